"""What hangs on a column or a table, so that a change of it would be refused half-way or would break something."""

from __future__ import annotations

from tideshift.store.database import Transaction

__all__ = ["of_column"]

_OF_COLUMN = """
SELECT DISTINCT d.classid::regclass::text, d.deptype::text, d.objsubid,
       CASE WHEN d.classid = 'pg_catalog.pg_rewrite'::regclass
            THEN 'view ' || (SELECT r.ev_class::regclass::text FROM pg_catalog.pg_rewrite r WHERE r.oid = d.objid)
            ELSE pg_catalog.pg_describe_object(d.classid, d.objid, d.objsubid) END
FROM pg_catalog.pg_depend d
WHERE d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid = $1 AND d.refobjsubid = $2
"""
_OWN = ("pg_attrdef", "pg_constraint", "pg_class", "pg_statistic_ext")
"""Indexes, constraints, defaults, sequences and statistics follow a column by themselves."""


def of_column(tx: Transaction, table: int, number: int, *, statistics: bool = False) -> list[str]:
    """Name the views, rules, policies, triggers, generated columns and publications (and extended statistics) that use a column."""
    found = []
    for kind, deptype, subid, what in tx.run_verbatim(_OF_COLUMN, (table, number)).rows:
        bare = kind.rpartition(".")[2]
        generated = bare == "pg_class" and subid > 0
        if bare not in _OWN or (bare == "pg_statistic_ext" and statistics) or generated or (bare == "pg_attrdef" and deptype == "n" and "default value" not in what):
            found.append(what)
    return sorted(set(found))
