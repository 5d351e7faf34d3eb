"""What hangs on a column or a table, so that a change of it would be refused half-way or would break something."""

from __future__ import annotations

from collections.abc import Collection

from tideshift.store.database import Transaction

__all__ = ["going_with", "missing_uses", "of_column"]

_OF_COLUMN = """
SELECT DISTINCT d.classid::regclass::text, d.deptype::text, d.objsubid,
       CASE WHEN d.classid = 'pg_catalog.pg_rewrite'::regclass
            THEN (SELECT CASE WHEN r.rulename = '_RETURN' THEN CASE c.relkind WHEN 'm' THEN 'materialized view ' ELSE 'view ' END ELSE 'rule ' || r.rulename || ' of ' END
                         || r.ev_class::regclass::text FROM pg_catalog.pg_rewrite r JOIN pg_catalog.pg_class c ON c.oid = r.ev_class WHERE r.oid = d.objid)
            ELSE pg_catalog.pg_describe_object(d.classid, d.objid, d.objsubid) END,
       EXISTS (SELECT 1 FROM pg_catalog.pg_rewrite r WHERE d.classid = 'pg_catalog.pg_rewrite'::regclass AND r.oid = d.objid AND r.ev_class = ANY ($3::bigint[]))
FROM pg_catalog.pg_depend d
WHERE d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid = $1 AND d.refobjsubid = $2
"""
_OWN = ("pg_attrdef", "pg_constraint", "pg_class", "pg_statistic_ext")
"""Indexes, constraints, defaults, sequences and statistics follow a column by themselves."""


def of_column(tx: Transaction, table: int, number: int, *, statistics: bool = False, but: Collection[int] = ()) -> list[str]:
    """Name the views, rules, policies, triggers, generated columns and publications (and extended statistics) that use a column.

    `but` are views that are taken care of, with their rules.
    """
    found = []
    for kind, deptype, subid, what, cared_for in tx.run_verbatim(_OF_COLUMN, (table, number, list(but))).rows:
        if cared_for:
            continue
        bare = kind.rpartition(".")[2]
        generated = bare == "pg_class" and subid > 0
        if bare not in _OWN or (bare == "pg_statistic_ext" and statistics) or generated or (bare == "pg_attrdef" and deptype == "n" and "default value" not in what):
            found.append(what)
    return sorted(set(found))


_GOING = """
SELECT DISTINCT CASE WHEN d.classid = 'pg_catalog.pg_class'::regclass THEN 'index ' || c.relname::text
                     WHEN d.classid = 'pg_catalog.pg_statistic_ext'::regclass THEN 'statistics ' || s.stxname::text
                     ELSE CASE f.contype WHEN 'f' THEN 'foreign key ' WHEN 'c' THEN 'check ' ELSE 'constraint ' END || f.conname::text END
FROM pg_catalog.pg_depend d LEFT JOIN pg_catalog.pg_constraint f ON d.classid = 'pg_catalog.pg_constraint'::regclass AND f.oid = d.objid AND f.conrelid = $1
LEFT JOIN pg_catalog.pg_class c ON d.classid = 'pg_catalog.pg_class'::regclass AND c.oid = d.objid AND c.relkind = 'i'
LEFT JOIN pg_catalog.pg_statistic_ext s ON d.classid = 'pg_catalog.pg_statistic_ext'::regclass AND s.oid = d.objid
WHERE d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid = $1 AND d.refobjsubid = $2 AND (f.contype <> 'n' OR c.oid IS NOT NULL OR s.oid IS NOT NULL) ORDER BY 1
"""


def going_with(tx: Transaction, table: int, number: int) -> list[str]:
    """Name the indexes, constraints and extended statistics that the server drops together with a column, over other columns too."""
    return [what for (what,) in tx.run_verbatim(_GOING, (table, number)).rows]


_USED = """
SELECT DISTINCT 'GRANT USAGE ON TYPE ' || coalesce(nullif(t.typelem, 0), t.oid)::regtype::text || ' TO ' || pg_catalog.quote_ident(current_user)
  FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
 WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped AND NOT pg_catalog.has_type_privilege(t.oid, 'USAGE')
UNION SELECT 'GRANT EXECUTE ON FUNCTION ' || d.refobjid::regprocedure::text || ' TO ' || pg_catalog.quote_ident(current_user)
  FROM pg_catalog.pg_depend d WHERE d.refclassid = 'pg_catalog.pg_proc'::regclass AND NOT pg_catalog.has_function_privilege(d.refobjid, 'EXECUTE') AND (
       (d.classid = 'pg_catalog.pg_constraint'::regclass AND d.objid IN (SELECT oid FROM pg_catalog.pg_constraint WHERE conrelid = $1))
    OR (d.classid = 'pg_catalog.pg_attrdef'::regclass AND d.objid IN (SELECT oid FROM pg_catalog.pg_attrdef WHERE adrelid = $1))
    OR (d.classid = 'pg_catalog.pg_class'::regclass AND d.objid IN (SELECT indexrelid FROM pg_catalog.pg_index WHERE indrelid = $1))) ORDER BY 1
"""


def missing_uses(tx: Transaction, table: int) -> list[str]:
    """Return the grants without which a role can neither try a table's own texts and columns nor copy rows by them."""
    return [grant for (grant,) in tx.run_verbatim(_USED, (table,)).rows]
