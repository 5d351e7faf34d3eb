"""Foreign keys from a column that is changed in place, and to it."""

from __future__ import annotations

from tideshift.dialects.postgres.driver import quote
from tideshift.dialects.postgres.shadow_design import COMPARABLE
from tideshift.store.database import Transaction

__all__ = ["Reference", "joined_tables", "references", "see_references", "unvalidated"]

_OVER = "((f.conrelid = $1 AND $2 = ANY (f.conkey)) OR (f.confrelid = $1 AND ($2 = ANY (f.confkey) OR f.conindid::bigint = ANY ($3))))"
_NAMED = """
pg_catalog.pg_constraint f JOIN pg_catalog.pg_class c ON c.oid = f.conrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
"""
_REFERENCES = f"""
SELECT f.conname::text, pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname), pg_catalog.pg_get_constraintdef(f.oid),
       pg_catalog.quote_nullable(pg_catalog.obj_description(f.oid, 'pg_constraint'))
FROM {_NAMED} WHERE f.contype = 'f' AND {_OVER} ORDER BY f.oid
"""
_JOINED = f"""
SELECT DISTINCT c.oid::bigint, pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname) FROM pg_catalog.pg_constraint f
  JOIN pg_catalog.pg_class c ON c.oid = CASE WHEN f.conrelid = $1 THEN f.confrelid ELSE f.conrelid END JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE f.contype = 'f' AND {_OVER} AND c.oid <> $1
"""
_PAIRS = """
SELECT f.conname::text, f.convalidated, f.conrelid::bigint, f.confrelid::bigint, k.child, k.parent,
       (SELECT pg_catalog.format_type(atttypid, atttypmod) FROM pg_catalog.pg_attribute WHERE attrelid = f.conrelid AND attnum = k.child),
       (SELECT pg_catalog.format_type(atttypid, atttypmod) FROM pg_catalog.pg_attribute WHERE attrelid = f.confrelid AND attnum = k.parent)
FROM pg_catalog.pg_constraint f, LATERAL unnest(f.conkey, f.confkey) AS k (child, parent)
WHERE f.contype = 'f' AND ((f.conrelid = $1 AND k.child = $2) OR (f.confrelid = $1 AND k.parent = $2))
"""
_UNVALIDATED = f"""
SELECT f.conname::text, pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname) FROM {_NAMED}
 WHERE NOT f.convalidated AND NOT (CASE WHEN f.conrelid = $1 THEN '' ELSE f.conrelid::bigint::text || ' ' END || f.conname = ANY ($2))
   AND ((f.contype = 'f' AND (f.conrelid = $1 OR f.confrelid = $1)) OR (f.contype = 'c' AND f.conrelid = $1)) ORDER BY f.oid
"""


class Reference:
    """A foreign key: how it goes, and how it comes back, not yet validated."""

    def __init__(self, name: str, table: str, text: str, comment: str) -> None:
        valid = "" if text.endswith(" NOT VALID") else " NOT VALID"
        self.dropped = f"ALTER TABLE {table} DROP CONSTRAINT {quote(name)}"
        self.added = f"ALTER TABLE {table} ADD CONSTRAINT {quote(name)} {text}{valid}"
        self.comment = None if comment == "NULL" else f"COMMENT ON CONSTRAINT {quote(name)} ON {table} IS {comment}"


def references(tx: Transaction, oid: int, number: int, indexes: list[int]) -> list[Reference]:
    """Read those that the column, or an index that is replaced, is part of."""
    return [Reference(*row) for row in tx.run_verbatim(_REFERENCES, (oid, number, indexes)).rows]


def joined_tables(tx: Transaction, oid: int, number: int, indexes: list[int]) -> dict[int, str]:
    """Return the tables at the other end of them."""
    return {int(other): name for other, name in tx.run_verbatim(_JOINED, (oid, number, indexes)).rows}


def see_references(tx: Transaction, oid: int, number: int, new_type: str) -> tuple[tuple[str, ...], list[str]]:
    """Return the constraints of the table, and foreign keys to it, that are not validated and shall stay so; and reasons where types will not be comparable."""
    reasons = []
    for name, _, child, parent, child_number, parent_number, child_type, parent_type in tx.run_verbatim(_PAIRS, (oid, number)).rows:
        types = [new_type if parent == oid and parent_number == number else parent_type, new_type if child == oid and child_number == number else child_type]
        bare = [one.partition("(")[0] for one in types]
        if bare[0] != bare[1] and not tx.run_verbatim(COMPARABLE, tuple(bare)).scalar():
            reasons.append(f"the foreign key {name} would compare {types[1]} with {types[0]}: drop it first")
    left = tx.run_verbatim(
        "SELECT CASE WHEN conrelid = $1 THEN '' ELSE conrelid::bigint::text || ' ' END || conname::text FROM pg_catalog.pg_constraint"
        " WHERE NOT convalidated AND (conrelid = $1 OR confrelid = $1) ORDER BY oid", (oid,)
    ).rows  # fmt: skip
    return tuple(name for (name,) in left), reasons


def unvalidated(tx: Transaction, oid: int, left: tuple[str, ...]) -> list[tuple[str, str]]:
    """Return what is still to be validated: name and table."""
    return [(name, table) for name, table in tx.run_verbatim(_UNVALIDATED, (oid, list(left))).rows]
