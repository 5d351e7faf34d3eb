"""The key by which rows are copied, logged and compared: it must tell rows apart in the source and in the new shape alike.

The rows' numbers where both have them and they stay; else the columns of a primary key that both have, or that one has as
its primary key and the other as a unique one. Its values must come through the change as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tideshift.ddl.tokens import same_name
from tideshift.dialects.sqlite.displaced import Conversion
from tideshift.dialects.sqlite.driver import SqliteDriver
from tideshift.dialects.sqlite.keys import SqliteKeyOrder
from tideshift.dialects.sqlite.layout import KeyColumn, Side
from tideshift.dialects.sqlite.scratch import Shape
from tideshift.store.database import Transaction

__all__ = ["ChunkKey", "KeyUnusable", "choose_key", "rowid_column"]


class KeyUnusable(Exception):
    """There is no key by which rows could be copied; the argument says why."""


@dataclass(frozen=True)
class ChunkKey:
    """The key's columns, and whether its index is ordered by other collations than the columns."""

    columns: tuple[KeyColumn, ...]
    collations_differ: bool


@dataclass(frozen=True)
class _Unique:
    """A unique key over plain columns: name, collation, direction of each."""

    columns: tuple[tuple[str, str | None, bool], ...]

    @property
    def names(self) -> list[str]:
        return [name.lower() for name, _, _ in self.columns]


def rowid_column(shape: Shape, *, without_rowid: bool) -> str | None:
    """Return the column that is the rowid: a sole INTEGER primary key for which no index was made."""
    key = [column for column in shape.columns if column[4]]
    if without_rowid or len(key) != 1 or key[0][1].upper() != "INTEGER" or any(index.origin == "pk" for index in shape.indexes):
        return None
    return key[0][0]


def choose_key(
    tx: Transaction,
    table: str,
    driver: SqliteDriver,
    *,
    sides: tuple[Side, Side],
    shapes: tuple[Shape, Shape],
    conversions: Sequence[Conversion],
) -> ChunkKey:
    """Choose the key, or raise `KeyUnusable`; `conversions` has every column that stays."""
    old, new = sides
    if _numbers_stay(old, new, conversions):
        assert old.rowid is not None
        assert new.rowid is not None
        return ChunkKey((KeyColumn(old.rowid, new.rowid, None, descending=False),), collations_differ=False)
    wanted = _primary_key(new, shapes[1]) or _primary_key(old, shapes[0])
    if wanted is None:
        raise KeyUnusable("the rows would have neither their numbers nor a primary key to be found by")
    source = _same_key(wanted, _unique_keys(old, shapes[0]))
    target = _same_key(wanted, _unique_keys(new, shapes[1]))
    if source is None or target is None:
        columns = ", ".join(name for name, _, _ in wanted.columns)
        where = "the table" if source is None else "the new shape"
        raise KeyUnusable(
            f"rows are copied by {columns}, and {where} has no primary key or unique index over just these columns with the same collations;"
            + (f" create one first: CREATE UNIQUE INDEX … ON {table} ({columns})" if source is None else "")
        )
    return _as_chunk_key(tx, table, driver, (source, target), conversions)


def _numbers_stay(old: Side, new: Side, conversions: Sequence[Conversion]) -> bool:
    """Whether both have rowids, and a row keeps its own."""
    if old.rowid is None or new.rowid is None:
        return False
    if new.rowid_column is None:
        return True
    return new.rowid_column == old.rowid_column and all(one.column != old.rowid_column or not one.has_using for one in conversions)


def _as_chunk_key(
    tx: Transaction,
    table: str,
    driver: SqliteDriver,
    keys: tuple[_Unique, _Unique],
    conversions: Sequence[Conversion],
) -> ChunkKey:
    source, target = keys
    columns = []
    for name, collation, falling in source.columns:
        new_name = next(one for one, _, _ in target.columns if one.lower() == name.lower())
        _see_value_stays(name, conversions)
        columns.append(KeyColumn(name, new_name, collation, descending=falling))
    plain = SqliteKeyOrder(
        table, [column.name for column in columns], rowid=False, driver=driver, descending=[column.descending for column in columns]
    )
    return ChunkKey(tuple(columns), collations_differ=len(columns) > 0 and plain.needs_collations(tx))


def _see_value_stays(name: str, conversions: Sequence[Conversion]) -> None:
    conversion = next((one for one in conversions if same_name(one.column, name)), None)
    part = f"{name!r} is a part of the key by which rows are copied, and"
    if conversion is None:
        raise KeyUnusable(f"{part} it does not stay")
    if conversion.has_using:
        raise KeyUnusable(f"{part} USING could change their order or make two equal")
    if not conversion.keeps_values:
        raise KeyUnusable(f"{part} {conversion.new_affinity} orders values otherwise than {conversion.old_affinity}")


def _primary_key(side: Side, shape: Shape) -> _Unique | None:
    """Return the primary key, by its index, or the column that is the rowid."""
    if side.rowid_column is not None:
        return _Unique(((side.rowid_column, None, False),))
    index = next((one for one in shape.indexes if one.origin == "pk"), None)
    if index is None:
        return None
    count = sum(1 for column in shape.columns if column[4])
    return _Unique(tuple((str(name), collation, bool(falling)) for _, name, falling, collation, _ in index.key_terms[:count]))


def _unique_keys(side: Side, shape: Shape) -> list[_Unique]:
    """Return every unique key over plain columns, for all rows; the primary key first."""
    primary = _primary_key(side, shape)
    found = [] if primary is None else [primary]
    return found + [
        _Unique(tuple((str(name), collation, bool(falling)) for _, name, falling, collation, _ in index.key_terms))
        for index in shape.indexes
        if index.unique and not index.partial and index.origin != "pk" and all(cid >= 0 for cid, *_ in index.key_terms)
    ]


def _same_key(wanted: _Unique, candidates: Sequence[_Unique]) -> _Unique | None:
    """Return a candidate over the same columns, each compared alike; a rowid is compared as a number, by no collation."""
    collations = {name.lower(): collation for name, collation, _ in wanted.columns}
    for candidate in candidates:
        if sorted(candidate.names) != sorted(wanted.names):
            continue
        if all(None in (collation, collations[name.lower()]) or collation == collations[name.lower()] for name, collation, _ in candidate.columns):
            return candidate
    return None
