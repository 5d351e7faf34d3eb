"""Which indexes the table may keep through a change: not made again for the shadow, and not exchanged at the swap.

An index holds values and the key of the row (its number, or the primary key of a table without numbers), and it is the
source's own until the last moment. Where neither changes, the very same pages are right for the new rows. Making such an
index again would cost two pages written for each row copied, in random places.

Only indexes that are not unique: by a unique one the capture triggers look for displaced rows in the shadow.
"""

from __future__ import annotations

from collections.abc import Sequence

from tideshift.dialects.sqlite.affinity import affinity
from tideshift.dialects.sqlite.create_table import ClauseKind, TableText
from tideshift.dialects.sqlite.displaced import Conversion
from tideshift.dialects.sqlite.driver import quote
from tideshift.dialects.sqlite.layout import Layout
from tideshift.dialects.sqlite.mapping import Origin
from tideshift.dialects.sqlite.scratch import IndexShape, Shape
from tideshift.dialects.sqlite.unique_keys import UniqueKeys

__all__ = ["kept_indexes"]

_DIGITS_SAFE = 15


def kept_indexes(
    layout: Layout,
    keys: UniqueKeys,
    new: tuple[TableText, Shape],
    *,
    conversions: Sequence[Conversion],
    origins: Sequence[Origin],
    remade: Sequence[str],
) -> tuple[str, ...]:
    """Return the names of the source's indexes that stay; `remade` are those that shall be made again in any case."""
    new_table, new_shape = new
    if not _rows_keep_their_keys(layout):
        return ()
    touched = _touched(layout, (keys.table, new_table), conversions, origins)
    by_name = {index.name: index for index in new_shape.indexes}
    return tuple(
        index.name
        for index in keys.shape.indexes
        if index.origin == "c"
        and not index.unique
        and index.name not in remade
        and _form(index) == _form(by_name[index.name])
        and not keys.names_behind(index) & touched
    )


def _rows_keep_their_keys(layout: Layout) -> bool:
    """Whether an entry of an index leads to the same row in both: by its number, or by a primary key of the same form."""
    if layout.old.rowid is None and layout.new.rowid is None:
        return True
    (key, *_) = layout.key
    return None not in (layout.old.rowid, layout.new.rowid) and (key.name, key.new_name) == (layout.old.rowid, layout.new.rowid)


def _form(index: IndexShape) -> tuple[object, ...]:
    """Return what an index is over, with the key of the row at its end; a column's place in the table is of no matter."""
    return index.partial, [(min(cid, 0), name and name.lower(), falling, collation, is_key) for cid, name, falling, collation, is_key in index.terms]


def _touched(
    layout: Layout, tables: tuple[TableText, TableText], conversions: Sequence[Conversion], origins: Sequence[Origin]
) -> set[str]:
    """Return the names, in lower case, whose values or meaning in an expression may be others in the new shape."""
    old, new = tables
    name_of = {origin.source: origin.name for origin in origins if origin.source is not None}
    changing = {one.column.lower() for one in conversions if not one.keeps_values}
    otherwise = {
        name.lower()
        for name in layout.old.columns
        if name_of.get(name) != name or _meaning(old, name) != _meaning(new, name) or _value(layout, name) not in (None, quote(name))
    }
    added = {origin.name.lower() for origin in origins if origin.source is None}  # a word that meant something else before
    return changing | otherwise | added | {name.lower() for name in layout.old.columns if _may_round_default(old, name)}


def _meaning(table: TableText, column: str) -> list[str]:
    """Return the clauses that say how a column compares and what it is computed from."""
    return [
        table.text[clause.start : clause.end]
        for clause in table.column(column).clauses
        if clause.kind in (ClauseKind.COLLATE, ClauseKind.GENERATED)
    ]


def _may_round_default(table: TableText, column: str) -> bool:
    """Whether a row that has a column's default only by the table's text may be copied as another number.

    An entry of such a row holds the whole number; a REAL that is written holds it rounded, beyond 2^53 (15 digits are safe).
    """
    found = table.column(column)
    if affinity(table.text[found.type_start : found.type_end], strict=table.strict) != "REAL":
        return False
    texts = [table.text[clause.start : clause.end] for clause in found.clauses if clause.kind is ClauseKind.DEFAULT]
    return any(sum(letter.isdigit() for letter in text) > _DIGITS_SAFE or "x" in text.lower() for text in texts)


def _value(layout: Layout, column: str) -> str | None:
    """Return what a copied row writes into a column; None for a generated one."""
    return next((one.value for one in layout.mapped if one.name == column), None)
