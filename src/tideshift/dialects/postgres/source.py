"""One table as the catalogue tells it: what a plan is made from."""

from __future__ import annotations

import difflib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tideshift.ddl.change import TableName
from tideshift.dialects.postgres.names import qualified
from tideshift.errors import NotFound, PlanRefused
from tideshift.store.database import Transaction
from tideshift.store.tables import NAMESPACE

__all__ = ["Column", "Constraint", "Index", "SourceTable", "class_oid", "find_index", "find_table", "near", "own_search_path", "user_path"]

_KINDS = {
    "v": "it is a view", "m": "it is a materialized view", "f": "it is a foreign table", "S": "it is a sequence", "i": "it is an index",
    "I": "it is an index", "c": "it is a composite type", "t": "it is a TOAST table",
}  # fmt: skip


@dataclass(frozen=True)
class Column:
    """One column: its number, its type as PostgreSQL writes it, and what it demands and fills in."""

    number: int
    name: str
    type_text: str
    not_null: bool
    default: str | None
    identity: str
    generated: str
    collation: str | None


@dataclass(frozen=True)
class Constraint:
    """One constraint: its kind by the catalogue's letter, its text, and the table that it refers to (0: none)."""

    name: str
    kind: str
    text: str
    validated: bool
    parent: int
    columns: tuple[int, ...]


@dataclass(frozen=True)
class Index:
    """One index and the constraint that it serves, if it does."""

    oid: int
    name: str
    text: str
    unique: bool
    valid: bool
    constraint: str | None
    parent: str | None
    """The index of a partitioned table that it is part of."""


@dataclass(frozen=True)
class SourceTable:
    """An ordinary or partitioned table."""

    oid: int
    schema: str
    name: str
    kind: str
    persistence: str
    is_partition: bool
    has_children: bool
    owner: str
    owned: bool
    rows: int
    bytes: int
    """With all indexes, and with every partition or child: a lock and a scan of the table take those too."""
    heap_bytes: int
    columns: tuple[Column, ...]
    constraints: tuple[Constraint, ...]
    indexes: tuple[Index, ...]

    @property
    def quoted(self) -> str:
        """Return its name behind its schema, quoted."""
        return qualified(self.schema, self.name)

    def column(self, name: str) -> Column:
        """Return a column by its exact name; raise `NotFound` with near names."""
        for column in self.columns:
            if column.name == name:
                return column
        raise NotFound(f"table {self.name!r} has no column {name!r}", hint=near(name, [one.name for one in self.columns]), table=self.name, column=name)

    def constraint(self, name: str) -> Constraint:
        """Return a constraint by its exact name; raise `NotFound` with near names."""
        for constraint in self.constraints:
            if constraint.name == name:
                return constraint
        known = [one.name for one in self.constraints]
        raise NotFound(f"table {self.name!r} has no constraint {name!r}", hint=near(name, known), table=self.name, constraint=name)


def own_search_path(tx: Transaction) -> str:
    """Return the search path that a session of this role has before we set ours: by it the user's texts are read."""
    return str(tx.run_verbatim("SELECT reset_val FROM pg_catalog.pg_settings WHERE name = 'search_path'").scalar())


@contextmanager
def user_path(tx: Transaction, path: str) -> Iterator[None]:
    """Read the names in a text of the user's as a session of the user's would."""
    tx.run_verbatim("SELECT pg_catalog.set_config('search_path', $1, true)", (path,))
    yield
    # After an error the transaction is rolled back, and the setting with it.
    tx.run_verbatim("SELECT pg_catalog.set_config('search_path', '', true)")


def find_table(tx: Transaction, table: TableName) -> SourceTable:
    """Find a table that can be changed; raise `NotFound` with near names, or `PlanRefused` with the reason."""
    oid = _oid_of(tx, table)
    row = tx.run_verbatim(_TABLE, (oid,)).rows[0]
    schema, name, kind, persistence, is_partition, has_children, owner, owned, rows, size, heap = row
    if kind not in ("r", "p"):
        _refuse(table, _KINDS.get(kind, "it is no table"))
    if schema in ("pg_catalog", "information_schema") or schema.startswith("pg_t"):
        _refuse(table, "it belongs to PostgreSQL itself" if not schema.startswith("pg_temp") else "it is a temporary table, which only its session sees")
    if schema == NAMESPACE or name.startswith(f"{NAMESPACE}_"):
        _refuse(table, f"it belongs to {NAMESPACE} itself")
    columns = tuple(Column(*one) for one in tx.run_verbatim(_COLUMNS, (oid,)).rows)
    constraints = tuple(
        Constraint(conname, letter, text, validated, parent, tuple(numbers))
        for conname, letter, text, validated, parent, numbers in tx.run_verbatim(_CONSTRAINTS, (oid,)).rows
    )
    indexes = tuple(Index(*one) for one in tx.run_verbatim(_INDEXES, (oid,)).rows)
    return SourceTable(
        oid, schema, name, kind, persistence, is_partition, has_children, owner, owned, int(rows), int(size), int(heap), columns, constraints, indexes
    )  # fmt: skip


def find_index(tx: Transaction, index: TableName) -> tuple[SourceTable, Index]:
    """Find an index by its name; raise `NotFound` with near names."""
    oid = class_oid(tx, index)
    found = None if oid is None else tx.run_verbatim(
        "SELECT n.nspname::text, t.relname::text FROM pg_catalog.pg_index x JOIN pg_catalog.pg_class t ON t.oid = x.indrelid"
        " JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace WHERE x.indexrelid = $1", (oid,)
    ).rows  # fmt: skip
    if not found:
        raise NotFound(f"there is no index {str(index)!r}", hint=near(index.name, _names(tx, ("i", "I"))), index=index.name)
    source = find_table(tx, TableName(*found[0]))
    return source, next(one for one in source.indexes if one.oid == oid)


def near(name: str, candidates: list[str]) -> str:
    """Return a hint that names what may have been meant."""
    found = difflib.get_close_matches(name, candidates, n=3, cutoff=0.6)
    return f"Did you mean {' or '.join(found)}?" if found else ""


def _oid_of(tx: Transaction, table: TableName) -> int:
    oid = class_oid(tx, table)
    if oid is None:
        raise NotFound(f"there is no table {str(table)!r}", hint=near(table.name, _names(tx, ("r", "p"))), table=table.name)
    return oid


def class_oid(tx: Transaction, name: TableName) -> int | None:
    """Find what a name means to a session of this role; raise `PlanRefused` with the grant where it may not look into the schema."""
    closed = "SELECT current_user::text FROM pg_catalog.pg_namespace WHERE nspname = $1 AND NOT pg_catalog.has_schema_privilege(oid, 'USAGE')"
    for (role,) in tx.run_verbatim(closed, (name.schema or "",)).rows:
        _refuse(name, f"a privilege is missing: GRANT USAGE ON SCHEMA {qualified(str(name.schema))} TO {qualified(role)}")
    with user_path(tx, own_search_path(tx)):
        text = qualified(name.name) if name.schema is None else qualified(name.schema, name.name)
        found = tx.run_verbatim("SELECT pg_catalog.to_regclass($1)::oid", (text,)).scalar()
    return None if found is None else int(found)


def _names(tx: Transaction, kinds: tuple[str, ...]) -> list[str]:
    letters = ", ".join(f"'{kind}'" for kind in kinds)
    rows = tx.run_verbatim(
        f"SELECT relname::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = relnamespace WHERE relkind IN ({letters})"
        f" AND nspname NOT IN ('pg_catalog', 'information_schema', 'pg_toast', '{NAMESPACE}') ORDER BY 1 LIMIT 5000"
    ).rows
    return [name for (name,) in rows]


def _refuse(table: TableName, reason: str) -> Any:
    raise PlanRefused(f"{str(table)!r} cannot be changed: {reason}", reasons=[reason])


_TABLE = """
WITH RECURSIVE tree (oid) AS (SELECT $1::oid UNION SELECT i.inhrelid FROM pg_catalog.pg_inherits i JOIN tree ON i.inhparent = tree.oid)
SELECT n.nspname::text, c.relname::text, c.relkind::text, c.relpersistence::text, c.relispartition,
       EXISTS (SELECT 1 FROM pg_catalog.pg_inherits i WHERE i.inhparent = c.oid),
       pg_catalog.pg_get_userbyid(c.relowner)::text, pg_catalog.pg_has_role(c.relowner, 'USAGE'),
       (SELECT sum(greatest(one.reltuples, 0)) FROM pg_catalog.pg_class one JOIN tree ON tree.oid = one.oid)::bigint,
       (SELECT sum(pg_catalog.pg_total_relation_size(tree.oid)) FROM tree)::bigint, (SELECT sum(pg_catalog.pg_table_size(tree.oid)) FROM tree)::bigint
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = $1
"""
_COLUMNS = """
SELECT a.attnum, a.attname::text, pg_catalog.format_type(a.atttypid, a.atttypmod), a.attnotnull, pg_catalog.pg_get_expr(d.adbin, d.adrelid),
       a.attidentity::text, a.attgenerated::text, CASE WHEN a.attcollation <> t.typcollation THEN a.attcollation::pg_catalog.regcollation::text END
FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
LEFT JOIN pg_catalog.pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
WHERE a.attrelid = $1 AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum
"""
_CONSTRAINTS = """
SELECT conname::text, contype::text, pg_catalog.pg_get_constraintdef(oid), convalidated, confrelid::bigint, coalesce(conkey::int[], '{}')
FROM pg_catalog.pg_constraint WHERE conrelid = $1 ORDER BY conname
"""
_INDEXES = """
SELECT x.indexrelid::bigint, c.relname::text, pg_catalog.pg_get_indexdef(x.indexrelid), x.indisunique, x.indisvalid,
       (SELECT conname::text FROM pg_catalog.pg_constraint WHERE conindid = x.indexrelid AND contype IN ('p', 'u', 'x') AND conrelid = x.indrelid),
       (SELECT inhparent::regclass::text FROM pg_catalog.pg_inherits WHERE inhrelid = x.indexrelid)
FROM pg_catalog.pg_index x JOIN pg_catalog.pg_class c ON c.oid = x.indexrelid WHERE x.indrelid = $1 ORDER BY c.relname
"""
