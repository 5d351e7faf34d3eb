"""Working a new shape out into a layout: sides, key, mapping, look-ups, and every reason why it cannot be done.

The library itself is the judge: every text is tried in an empty database in memory, and what comes out is compared. The
layout stands only if nothing but what was asked for differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from tideshift.ddl.change import Action, AddConstraint, SetColumnType, SetDefault, SetNotNull
from tideshift.dialects.sqlite.cascades import cascade_reasons, cascading, parent_conditions
from tideshift.dialects.sqlite.catalog import SourceTable, shape_of
from tideshift.dialects.sqlite.chunk_key import KeyUnusable, choose_key, rowid_column
from tideshift.dialects.sqlite.create_table import ClauseKind, TableText, UnreadableText, parse_table
from tideshift.dialects.sqlite.displaced import Conversion, displaced_rows
from tideshift.dialects.sqlite.driver import SqliteDriver, quote
from tideshift.dialects.sqlite.foreign_keys import foreign_key_reasons, new_foreign_keys
from tideshift.dialects.sqlite.foreseen import Unforeseeable
from tideshift.dialects.sqlite.kept import kept_indexes
from tideshift.dialects.sqlite.keys import rowid_alias
from tideshift.dialects.sqlite.layout import Displaced, Layout, NewReference, Side, SourceIndex
from tideshift.dialects.sqlite.mapping import Origin, conversions, converted_columns, mapped_columns, origins
from tideshift.dialects.sqlite.scratch import IndexShape, Shape, TextRefused, scratch
from tideshift.dialects.sqlite.shape_rules import shape_reasons, using_reasons
from tideshift.dialects.sqlite.trial import try_everything
from tideshift.dialects.sqlite.unique_keys import UniqueKeys, collate
from tideshift.errors import PlanRefused
from tideshift.store.database import Transaction

__all__ = ["Reshape", "Tried", "lay_out", "made_shapes", "refused", "try_shapes"]

_SAMPLE_ROWS = 200
_COLUMNS_MAX = 450
"""The library takes no expression that is nested deeper than 1000, and a comparison of rows has two terms per column."""
_VIRTUAL, _STORED = 2, 3
_GENERATED = (_VIRTUAL, _STORED)


@dataclass(frozen=True, kw_only=True)
class Reshape:
    """What is asked for: the table as it is, its text as it shall be, the actions that lead there, and indexes to be added."""

    source: SourceTable
    new_text: str
    actions: tuple[Action, ...]
    added_indexes: tuple[SourceIndex, ...] = ()
    remade_indexes: tuple[str, ...] = ()
    """The names of indexes that shall be made again, even where nothing about them changes."""


@dataclass(frozen=True)
class Tried:
    """One of the two texts as the library made it in an empty database: its shape, its automatic indexes, and why it lacks others."""

    table: TableText
    shape: Shape
    automatic_indexes: tuple[str, ...]
    refused: dict[str, str]
    """The reason against each index that the library does not take, by the index's name."""


def refused(source: SourceTable, reasons: list[str]) -> PlanRefused:
    """Return the refusal of a change with every reason."""
    return PlanRefused(f"the change of {source.name!r} is refused: {'; '.join(reasons)}", reasons=reasons)


def lay_out(tx: Transaction, asked: Reshape, driver: SqliteDriver, *, captured: bool) -> Layout:
    """Work the layout out, or raise `PlanRefused`; `captured` when writes go on meanwhile, so that they must be followed."""
    source = asked.source
    real = shape_of(tx, source.name)
    if len(real.columns) > _COLUMNS_MAX:
        raise refused(source, [f"it has {len(real.columns)} columns, and rows of more than {_COLUMNS_MAX} cannot be compared at once"])
    old, new = try_shapes(asked, driver)
    reasons = shape_reasons(source, real, (old.shape, new.shape), (old.table, new.table), asked.actions)
    reasons += using_reasons(source, old.table, driver, real, asked.actions)
    reasons += foreign_key_reasons(tx, source.name, new.shape, asked.new_text, driver)
    if reasons:
        raise refused(source, reasons)
    sides = (_side(old, source.automatic_indexes), _side(new, new.automatic_indexes))
    origin_of = origins(sides[0].columns, asked.actions)
    happening = conversions(old.table, new.table, sides, origin_of)
    try:
        key = choose_key(tx, source.name, driver, sides=sides, shapes=(old.shape, new.shape), conversions=happening)
        mapped = mapped_columns(*sides, new.table, origin_of, driver)
    except (KeyUnusable, TextRefused) as error:
        raise refused(source, [str(error)]) from error
    layout = Layout(
        table=source.name,
        changed=_changed(asked.actions),
        old=sides[0],
        new=sides[1],
        mapped=mapped,
        key=key.columns,
        collations_differ=key.collations_differ,
        utf8=tx.run_verbatim("PRAGMA encoding").scalar() == "UTF-8",
        indexes=source.indexes,
        added_indexes=asked.added_indexes,
        kept_indexes=(),
        look_up_indexes=(),
        displaced=(),
        parents=(),
        converted=converted_columns(happening, sides),
        new_references=_new_references(tx, asked, new.table, driver),
        row_bytes=0,
    )
    texts = {index.name: index.text for index in source.indexes}
    keys = UniqueKeys(old.table, source.name, old.shape, layout.key, layout.old.rowid_column, texts)
    shape = (new.table, new.shape)
    layout = replace(layout, kept_indexes=kept_indexes(layout, keys, shape, conversions=happening, origins=origin_of, remade=asked.remade_indexes))
    if captured:
        layout = _followed(tx, asked, layout, (keys, new.shape), happening=happening, origin_of=origin_of)
    reasons = try_everything(layout, driver)
    if reasons:
        raise refused(source, reasons)
    return replace(layout, row_bytes=_mean_row_bytes(tx, layout))


def try_shapes(asked: Reshape, driver: SqliteDriver) -> tuple[Tried, Tried]:
    """Execute old and new texts with the indexes, and raise `PlanRefused` with everything that the library does not take."""
    old, new = made_shapes(asked, driver)
    reasons = [*old.refused.values(), *new.refused.values()]
    if reasons:
        raise refused(asked.source, reasons)
    return old, new


def made_shapes(asked: Reshape, driver: SqliteDriver) -> tuple[Tried, Tried]:
    """Execute old and new texts with the indexes, each in an empty database, and read what the library made of them.

    Raises `PlanRefused` for a table; the indexes that are refused are named.
    """
    source = asked.source
    return (
        _made(source, driver, "its own text", source.text, source.indexes),
        _made(source, driver, "the new shape", asked.new_text, (*source.indexes, *asked.added_indexes)),
    )


def _made(source: SourceTable, driver: SqliteDriver, what: str, text: str, indexes: Sequence[SourceIndex]) -> Tried:
    indexes_refused: dict[str, str] = {}
    with scratch(driver) as trial:
        try:
            trial.run(text)
        except TextRefused as error:
            raise refused(source, [f"the library refuses {what} (the table): {error}"]) from error
        for index in indexes:
            try:
                trial.run(index.text)
            except TextRefused as error:
                indexes_refused[index.name] = f"the library refuses {what} (index {index.name!r}): {error}"
        automatic = trial.run("SELECT name FROM sqlite_master WHERE type = 'index' AND sql IS NULL AND tbl_name = ? ORDER BY rowid", (source.name,))
        try:
            return Tried(parse_table(text), trial.shape(source.name), tuple(name for (name,) in automatic), indexes_refused)
        except UnreadableText as error:
            raise refused(source, [str(error)]) from error


def _side(tried: Tried, automatic_indexes: tuple[str, ...]) -> Side:
    names = tuple(column[0] for column in tried.shape.columns)
    without_rowid = tried.table.without_rowid
    return Side(
        text=tried.table.text,
        columns=names,
        generated=tuple(column[0] for column in tried.shape.columns if column[5] in _GENERATED),
        virtual=tuple(column[0] for column in tried.shape.columns if column[5] == _VIRTUAL),
        rowid=None if without_rowid else rowid_alias(names),
        rowid_column=rowid_column(tried.shape, without_rowid=without_rowid),
        automatic_indexes=automatic_indexes,
    )


def _changed(actions: Sequence[Action]) -> tuple[str, ...]:
    named = (SetColumnType, SetDefault, SetNotNull)
    return tuple(dict.fromkeys(action.column for action in actions if isinstance(action, named)))


def _new_references(tx: Transaction, asked: Reshape, new: TableText, driver: SqliteDriver) -> tuple[NewReference, ...]:
    wanted = any(isinstance(action, AddConstraint) for action in asked.actions) or any(
        clause.kind in (ClauseKind.REFERENCES, ClauseKind.FOREIGN_KEY) for clause in new.clauses()
    )
    try:
        return new_foreign_keys(tx, asked.source.name, (asked.source.text, asked.new_text), driver) if wanted else ()
    except LookupError as error:
        raise refused(asked.source, [str(error)]) from error


# ── following the writes ──────────────────────────────────────────────────────────────────────────────────────────


def _followed(
    tx: Transaction, asked: Reshape, layout: Layout, shapes: tuple[UniqueKeys, Shape], *, happening: Sequence[Conversion], origin_of: Sequence[Origin]
) -> Layout:
    """Add what lets every write be followed: look-ups of displaced rows, the indexes for these, and the rows above deleted ones."""
    source, (keys, new) = asked.source, shapes
    gone = [name for name in layout.old.columns if not any(one.source == name for one in origin_of)]
    lost = [unique.label for unique in keys.all() if any(term.column in gone for term in unique.terms)]
    reasons = [f"{label} is over a column that is dropped; drop it first" for label in lost]
    by_number = layout.old.rowid if layout.old.has_hidden_rowid and layout.key[0].name != layout.old.rowid else None
    displaced: tuple[Displaced, ...] = ()
    try:
        displaced = () if lost else tuple(displaced_rows(keys, happening, hidden_rowid=by_number))
    except (Unforeseeable, UnreadableText) as error:
        reasons.append(f"the rows that a REPLACE may remove cannot be found: {error}")
    references = cascading(tx)
    reasons += cascade_reasons(references, source.name, (*layout.converted, *gone))
    if reasons:
        raise refused(source, reasons)
    return replace(
        layout,
        displaced=displaced,
        parents=parent_conditions(references, source.name),
        look_up_indexes=_look_up_indexes(keys, new, layout.kept_indexes),
    )


def _look_up_indexes(keys: UniqueKeys, new: Shape, kept: tuple[str, ...]) -> tuple[str, ...]:
    """Return the terms of each unique key that the shadow has no index for."""
    present = [_key_of(index) for index in new.indexes if not index.partial and index.name not in kept]
    by_name = {index.name: index for index in keys.shape.indexes}
    return tuple(
        ", ".join(f"{quote(term.column or '')}{collate(term.collation)}" for term in unique.terms)
        for unique in keys.all()
        if unique.is_plain and _key_of(by_name[unique.index]) not in present
    )


def _key_of(index: IndexShape) -> list[tuple[str | None, str]]:
    return [(name, collation) for _, name, _, collation, _ in index.key_terms]


def _mean_row_bytes(tx: Transaction, layout: Layout) -> int:
    """Estimate a row's size from rows at both ends of the table."""
    order = ", ".join(quote(key.name) for key in layout.key)
    lengths = " + ".join(f"coalesce(length(CAST({quote(name)} AS BLOB)), 0) + 1" for name in layout.old.columns)
    backwards = ", ".join(f"{quote(key.name)} DESC" for key in layout.key)
    sampled = " UNION ALL ".join(
        f"SELECT n FROM (SELECT {lengths} AS n FROM {quote(layout.table)} ORDER BY {one} LIMIT {_SAMPLE_ROWS})"
        for one in (order, backwards)
    )
    return int(tx.run_verbatim(f"SELECT avg(n) FROM ({sampled})").scalar() or 0) + 8
