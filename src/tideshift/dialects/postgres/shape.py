"""What a table looks like in the catalogue, in the parts that a copy of it is made from.

Read with an empty search path, so that every type, collation and function in a text stands behind its schema.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tideshift.dialects.postgres.driver import quote
from tideshift.store.database import Transaction

__all__ = ["Check", "Key", "Shape", "ShapeColumn", "ShapeIndex", "read_shape"]


@dataclass(frozen=True)
class ShapeColumn:
    """One column with everything that its definition says."""

    number: int
    name: str
    type_text: str
    collation: str | None
    not_null: bool
    not_null_name: str | None
    default: str | None
    identity: str
    sequence: str | None
    """The options of its identity's sequence."""
    generated: str
    storage: str | None
    compression: str
    statistics: int | None
    options: list[str]

    @property
    def definition(self) -> str:
        """Write it as CREATE TABLE takes it."""
        parts = [quote(self.name), self.type_text]
        if self.compression:
            parts.append(f"COMPRESSION {self.compression}")
        if self.collation is not None:
            parts.append(f"COLLATE {self.collation}")
        if self.not_null:
            parts.append(f"CONSTRAINT {quote(self.not_null_name)} NOT NULL" if self.not_null_name else "NOT NULL")
        if self.identity:
            always = "ALWAYS" if self.identity == "a" else "BY DEFAULT"
            parts.append(f"GENERATED {always} AS IDENTITY ({self.sequence})")
        elif self.generated:
            parts.append(f"GENERATED ALWAYS AS ({self.default}) {'STORED' if self.generated == 's' else 'VIRTUAL'}")
        elif self.default is not None:
            parts.append(f"DEFAULT {self.default}")
        return " ".join(parts)

    @property
    def settings(self) -> list[str]:
        """Return the clauses of ALTER TABLE that say what CREATE TABLE cannot."""
        clauses = []
        if self.storage is not None:
            clauses.append(f"ALTER COLUMN {quote(self.name)} SET STORAGE {self.storage}")
        if self.statistics is not None and self.statistics >= 0:
            clauses.append(f"ALTER COLUMN {quote(self.name)} SET STATISTICS {self.statistics}")
        if self.options:
            clauses.append(f"ALTER COLUMN {quote(self.name)} SET ({', '.join(self.options)})")
        return clauses


@dataclass(frozen=True)
class Check:
    """A CHECK: its name, its text, and whether it is validated."""

    name: str
    text: str
    validated: bool


@dataclass(frozen=True)
class Key:
    """A constraint that an index serves: PRIMARY KEY, UNIQUE or EXCLUDE."""

    kind: str
    text: str
    deferrable: bool
    deferred: bool


@dataclass(frozen=True)
class ShapeIndex:
    """An index: the text of its making behind the table's name, and the constraint that it serves."""

    name: str
    unique: bool
    valid: bool
    rest: str
    key: Key | None
    columns: tuple[int, ...]
    """The table's columns by number, in the index's order; 0 stands for an expression."""
    plain: bool
    """Whether it orders whole rows by columns alone, each by its own collation and usual order: not partial, no expression."""
    directions: frozenset[int]
    options: tuple[str, ...]
    tablespace: str | None


@dataclass(frozen=True)
class Shape:
    """A table's columns, checks and indexes, each in the order of the catalogue."""

    columns: tuple[ShapeColumn, ...]
    checks: tuple[Check, ...]
    indexes: tuple[ShapeIndex, ...]


def read_shape(tx: Transaction, oid: int) -> Shape:
    """Read a table; invalid indexes are left out, for they serve nobody."""
    columns = tuple(ShapeColumn(*row) for row in tx.run_verbatim(_COLUMNS, (oid,)).rows)
    checks = tuple(Check(*row) for row in tx.run_verbatim(_CHECKS, (oid,)).rows)
    indexes = tuple(_index(row) for row in tx.run_verbatim(_INDEXES, (oid,)).rows)
    return Shape(columns, checks, tuple(one for one in indexes if one.valid))


def _index(row: tuple[Any, ...]) -> ShapeIndex:
    name, prefix, text, unique, valid, numbers, count, plain, directions, options, tablespace, kind, key_text, deferrable, deferred = row
    assert text.startswith(prefix), (text, prefix)
    key = None if kind is None else Key(kind, key_text, deferrable, deferred)
    columns = tuple(map(int, numbers.split()))[:count]
    return ShapeIndex(name, unique, valid, text[len(prefix) :], key, columns, plain, frozenset(directions), tuple(options), tablespace)


_COLUMNS = r"""
SELECT a.attnum, a.attname::text, pg_catalog.format_type(a.atttypid, a.atttypmod),
       CASE WHEN a.attcollation <> t.typcollation THEN (SELECT pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.collname)
            FROM pg_catalog.pg_collation c JOIN pg_catalog.pg_namespace n ON n.oid = c.collnamespace WHERE c.oid = a.attcollation) END,
       a.attnotnull,
       (SELECT conname::text FROM pg_catalog.pg_constraint WHERE conrelid = a.attrelid AND contype = 'n' AND conkey = ARRAY[a.attnum]),
       pg_catalog.pg_get_expr(d.adbin, d.adrelid), a.attidentity::text,
       (SELECT concat_ws(' ', 'START WITH', s.seqstart, 'INCREMENT BY', s.seqincrement, 'MINVALUE', s.seqmin, 'MAXVALUE', s.seqmax, 'CACHE', s.seqcache,
               CASE WHEN s.seqcycle THEN 'CYCLE' ELSE 'NO CYCLE' END)
          FROM pg_catalog.pg_depend p JOIN pg_catalog.pg_sequence s ON s.seqrelid = p.objid
         WHERE p.classid = 'pg_catalog.pg_class'::regclass AND p.refclassid = 'pg_catalog.pg_class'::regclass AND p.refobjid = a.attrelid
           AND p.refobjsubid = a.attnum AND p.deptype = 'i'),
       a.attgenerated::text,
       CASE WHEN a.attstorage <> t.typstorage THEN CASE a.attstorage WHEN 'p' THEN 'PLAIN' WHEN 'e' THEN 'EXTERNAL' WHEN 'm' THEN 'MAIN' ELSE 'EXTENDED' END END,
       CASE a.attcompression WHEN 'p' THEN 'pglz' WHEN 'l' THEN 'lz4' ELSE '' END, a.attstattarget::int,
       ARRAY(SELECT o FROM unnest(a.attoptions) o WHERE o LIKE 'n\_distinct%')
FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_CHECKS = """
SELECT conname::text, pg_catalog.pg_get_constraintdef(oid), convalidated FROM pg_catalog.pg_constraint WHERE conrelid = $1 AND contype = 'c' ORDER BY oid
"""
_INDEXES = """
SELECT c.relname::text,
       'CREATE ' || CASE WHEN x.indisunique THEN 'UNIQUE ' ELSE '' END || 'INDEX ' || pg_catalog.quote_ident(c.relname) || CASE WHEN t.relkind = 'p' THEN ' ON ONLY ' ELSE ' ON ' END || CASE WHEN n.oid = pg_catalog.pg_my_temp_schema() THEN 'pg_temp' ELSE pg_catalog.quote_ident(n.nspname) END
           || '.' || pg_catalog.quote_ident(t.relname) || ' ',
       pg_catalog.pg_get_indexdef(x.indexrelid), x.indisunique, x.indisvalid, x.indkey::text, x.indnkeyatts,
       m.amname = 'btree' AND x.indpred IS NULL AND x.indexprs IS NULL AND NOT EXISTS (
           SELECT 1 FROM generate_series(0, x.indnkeyatts - 1) i JOIN pg_catalog.pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = x.indkey[i]
             JOIN pg_catalog.pg_opclass o ON o.oid = x.indclass[i]
            WHERE NOT o.opcdefault OR (x.indcollation[i] <> 0 AND x.indcollation[i] <> a.attcollation)),
       (SELECT coalesce(array_agg(DISTINCT (x.indoption[i] & 1)::int), '{}') FROM generate_series(0, x.indnkeyatts - 1) i),
       coalesce(c.reloptions, '{}'), (SELECT spcname::text FROM pg_catalog.pg_tablespace WHERE oid = c.reltablespace),
       k.contype::text, pg_catalog.pg_get_constraintdef(k.oid), k.condeferrable, k.condeferred
FROM pg_catalog.pg_index x JOIN pg_catalog.pg_class c ON c.oid = x.indexrelid JOIN pg_catalog.pg_class t ON t.oid = x.indrelid
JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace JOIN pg_catalog.pg_am m ON m.oid = c.relam
LEFT JOIN pg_catalog.pg_constraint k ON k.conindid = x.indexrelid AND k.conrelid = x.indrelid AND k.contype IN ('p', 'u', 'x')
WHERE x.indrelid = $1 ORDER BY x.indexrelid
"""
