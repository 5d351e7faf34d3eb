"""What hangs on a column and goes with it: read under the lock of the swap, as statements that hang the same on the column that takes its place."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tideshift.dialects.postgres import capture
from tideshift.dialects.postgres.driver import quote
from tideshift.dialects.postgres.in_place_layout import ColumnLayout, ColumnNames
from tideshift.dialects.postgres.names import qualified
from tideshift.store.database import Transaction

__all__ = ["ColumnAttachments", "read_column_attachments"]

_WHOLE_NUMBERS = ("smallint", "integer", "bigint")


@dataclass
class ColumnAttachments:
    """Statements by when they are run: before the old column goes, and when the new one has its name."""

    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)


def read_column_attachments(tx: Transaction, layout: ColumnLayout, names: ColumnNames) -> ColumnAttachments:
    """Read everything but keys, indexes, checks and foreign keys; and give the sequence of an identity another name, which keeps everybody else from it."""
    found = ColumnAttachments()
    column = f"{layout.source}.{quote(layout.column)}"
    for dropped, made, target, comment in tx.run_verbatim(_STATISTICS, (layout.oid, layout.number)).rows:
        found.before.append(dropped)
        found.after += [made, *(text for text in (target, comment) if text)]
    if layout.default is not None:
        found.after.append(f"ALTER TABLE {layout.source} ALTER COLUMN {quote(layout.column)} SET DEFAULT {layout.default}")
    for deptype, schema, name, oid, kind in tx.run_verbatim(_SEQUENCES, (layout.oid, layout.number)).rows:
        if deptype == "a":
            found.before.append(f"ALTER SEQUENCE {qualified(schema, name)} OWNED BY NONE")
            found.after += [*_widened(layout, qualified(schema, name), kind), f"ALTER SEQUENCE {qualified(schema, name)} OWNED BY {column}"]
        else:
            found.after += _identity(tx, layout, names, (schema, name), int(oid))
    found.after += [text.replace("{table}", layout.source) for (text,) in tx.run_verbatim(_PRIVILEGES, (layout.oid, layout.number)).rows]
    found.after += [f"COMMENT ON COLUMN {column} IS {text}" for (text,) in tx.run_verbatim(_COMMENT, (layout.oid, layout.number)).rows]
    for index in layout.indexes:
        rows: list[tuple[Any, ...]] = tx.run_verbatim(_INDEX, (qualified(layout.schema, index.name), layout.oid)).rows
        found.after += [text.replace("{table}", layout.source).replace("{index}", qualified(layout.schema, index.name)).replace("{bare}", quote(index.name)) for (text,) in rows]
    for kept, in tx.run_verbatim(_CONSTRAINT_COMMENTS, (layout.oid, [name for name, *_ in layout.checked] + [one.name for one in layout.indexes])).rows:
        found.after.append(kept.replace("{table}", layout.source))
    return found


def _widened(layout: ColumnLayout, sequence: str, kind: str) -> list[str]:
    """Let the sequence of a serial column count as far as its column."""
    if layout.type_text not in _WHOLE_NUMBERS or _WHOLE_NUMBERS.index(kind) >= _WHOLE_NUMBERS.index(layout.type_text):
        return []
    return [f"ALTER SEQUENCE {sequence} AS {layout.type_text}"]


def _identity(tx: Transaction, layout: ColumnLayout, names: ColumnNames, place: tuple[str, str], oid: int) -> list[str]:
    """Make the identity of the new column: its sequence gets the old one's name, place in the count, privileges and comment."""
    schema, name = place
    sequence, ours = qualified(schema, name), names.bare("sequence")
    tx.run_verbatim(f"ALTER SEQUENCE {sequence} RENAME TO {quote(ours)}")
    last, called = tx.run_verbatim(f"SELECT last_value::text, is_called FROM {qualified(schema, ours)}").rows[0]
    always = "ALWAYS" if layout.identity == "a" else "BY DEFAULT"
    column = f"ALTER TABLE {layout.source} ALTER COLUMN {quote(layout.column)}"
    statements = [
        f"{column} ADD GENERATED {always} AS IDENTITY (SEQUENCE NAME {sequence} {layout.sequence})",
        capture.nobodys(sequence, "SEQUENCE"),
        f"SELECT pg_catalog.setval({_literal(sequence)}::pg_catalog.regclass, {last}, {str(called).lower()})",
    ]
    statements += [text.replace("{sequence}", sequence) for (text,) in tx.run_verbatim(_SEQUENCE, (oid,)).rows]
    return statements


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


_GRANTEE = "CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(a.grantee)) END"
_OPTION = "CASE WHEN a.is_grantable THEN ' WITH GRANT OPTION' ELSE '' END"
_SEQUENCES = """
SELECT p.deptype::text, n.nspname::text, c.relname::text, c.oid::bigint, s.seqtypid::regtype::text
FROM pg_catalog.pg_depend p JOIN pg_catalog.pg_class c ON c.oid = p.objid AND c.relkind = 'S' JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_sequence s ON s.seqrelid = c.oid
WHERE p.classid = 'pg_catalog.pg_class'::regclass AND p.refclassid = 'pg_catalog.pg_class'::regclass AND p.refobjid = $1 AND p.refobjsubid = $2 AND p.deptype IN ('a', 'i')
"""
_SEQUENCE = f"""
SELECT 'GRANT ' || a.privilege_type || ' ON SEQUENCE {{sequence}} TO ' || {_GRANTEE} || {_OPTION} FROM pg_catalog.pg_class c, pg_catalog.aclexplode(c.relacl) a WHERE c.oid = $1
UNION ALL SELECT 'COMMENT ON SEQUENCE {{sequence}} IS ' || pg_catalog.quote_literal(pg_catalog.obj_description($1::oid, 'pg_class'))
           WHERE pg_catalog.obj_description($1::oid, 'pg_class') IS NOT NULL
"""
_PRIVILEGES = f"""
SELECT 'GRANT ' || a.privilege_type || ' (' || pg_catalog.quote_ident(attname) || ') ON {{table}} TO ' || {_GRANTEE} || {_OPTION}
  FROM pg_catalog.pg_attribute, pg_catalog.aclexplode(attacl) WITH ORDINALITY AS a (grantor, grantee, privilege_type, is_grantable, place)
 WHERE attrelid = $1 AND attnum = $2 ORDER BY a.place
"""
_COMMENT = "SELECT pg_catalog.quote_literal(text) FROM pg_catalog.col_description($1::oid, $2::int) AS text WHERE text IS NOT NULL"
_STATISTICS = """
SELECT 'DROP STATISTICS ' || place, pg_catalog.pg_get_statisticsobjdef(oid), CASE WHEN target >= 0 THEN 'ALTER STATISTICS ' || place || ' SET STATISTICS ' || target END,
       'COMMENT ON STATISTICS ' || place || ' IS ' || pg_catalog.quote_literal(pg_catalog.obj_description(oid, 'pg_statistic_ext'))
FROM (SELECT s.oid, pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(stxname) AS place, stxstattarget AS target
        FROM pg_catalog.pg_statistic_ext s JOIN pg_catalog.pg_namespace n ON n.oid = stxnamespace
       WHERE stxrelid = $1 AND ($2::int2 = ANY (stxkeys) OR EXISTS (SELECT 1 FROM pg_catalog.pg_depend d WHERE d.classid = 'pg_catalog.pg_statistic_ext'::regclass AND d.objid = s.oid
             AND d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid = $1 AND d.refobjsubid = $2))) one
ORDER BY place
"""
_INDEX = """
SELECT text FROM pg_catalog.pg_index x, LATERAL (
    SELECT 'COMMENT ON INDEX {index} IS ' || pg_catalog.quote_literal(pg_catalog.obj_description(x.indexrelid, 'pg_class')) AS text
    UNION ALL SELECT 'ALTER INDEX {index} ALTER COLUMN ' || attnum || ' SET STATISTICS ' || attstattarget FROM pg_catalog.pg_attribute WHERE attrelid = x.indexrelid AND attstattarget >= 0
    UNION ALL SELECT 'ALTER TABLE {table} REPLICA IDENTITY USING INDEX {bare}' WHERE x.indisreplident
    UNION ALL SELECT 'ALTER TABLE {table} CLUSTER ON {bare}' WHERE x.indisclustered) one
WHERE x.indexrelid = pg_catalog.to_regclass($1) AND x.indrelid = $2 AND text IS NOT NULL
"""
_CONSTRAINT_COMMENTS = """
SELECT 'COMMENT ON CONSTRAINT ' || pg_catalog.quote_ident(conname) || ' ON {table} IS ' || pg_catalog.quote_literal(description)
  FROM pg_catalog.pg_constraint c JOIN pg_catalog.pg_description ON classoid = 'pg_catalog.pg_constraint'::regclass AND objoid = c.oid
 WHERE conrelid = $1 AND conname = ANY ($2)
"""
