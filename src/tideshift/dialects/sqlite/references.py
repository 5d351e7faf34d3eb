"""Whether references hold in the new shape, as far as the change could break them or brings them.

A reference that was broken before is not our finding, so each row is looked at in its new form and in its old one; a
foreign key that the change adds must hold for every row. A bounded number of rows is looked at at a time. Before the swap
the shadow is the new form: rows whose keys wait in the log are left out there, since it has them as they were. After the
swap the old rows are the old form, and every row is looked at.

Known gap: a child whose rows cannot be walked by a key that we can name is not looked at, nor a reference that SQLite
itself calls a mismatch, since nobody can rely on it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from tideshift.ddl.tokens import same_name
from tideshift.dialects.sqlite.driver import SqliteDriver, quote
from tideshift.dialects.sqlite.foreign_keys import Reference, foreign_keys, is_enforced
from tideshift.dialects.sqlite.keys import SqliteKeyOrder
from tideshift.dialects.sqlite.layout import Layout
from tideshift.dialects.sqlite.names import Names
from tideshift.errors import PlanRefused, SchemaChanged, TideshiftError, ValueRefused
from tideshift.store.database import DatabaseFailed, Transaction
from tideshift.store.keys import Bound, KeyRange, decode_value, encode_value

__all__ = ["Seen", "are_touched", "reference_texts", "see_all_references", "see_references"]

log = logging.getLogger(__name__)
_ROWS_AT_ONCE = 10_000


@dataclass(frozen=True)
class Seen:
    """How far references were looked at: the one under way by its place in the order, and the last row of its child."""

    reference: list[str]
    low: Bound | None

    def as_record(self) -> dict[str, Any]:
        """Give the stored form."""
        return {"reference": self.reference, "low": self.low}


@dataclass(frozen=True)
class _Forms:
    """The tables that hold the new form and the old one, and the query for the keys whose new form is not known yet."""

    new: str
    old: str
    waiting: str | None
    swapped: bool


@dataclass(frozen=True)
class _Wanted:
    """A reference to look at; `is_new` when every row must find its parent, whatever was before."""

    reference: Reference
    is_new: bool

    @property
    def sort_key(self) -> list[str]:
        return [*self.reference.sort_key, str(self.is_new)]


def are_touched(tx: Transaction, layout: Layout) -> bool:
    """Whether there is any reference that the change brings or could break."""
    return bool(_wanted(tx, layout))


def see_references(
    tx: Transaction, layout: Layout, names: Names, driver: SqliteDriver, seen: dict[str, Any] | None, *, rows_max: int, swapped: bool
) -> dict[str, Any] | None:
    """Look at the next rows behind `seen`, and return how far it came; None when everything was looked at.

    Raises `ValueRefused` (before the swap) or `SchemaChanged` (after it) for a row that does not find its parent.
    """
    waiting = f"SELECT {', '.join(map(quote, layout.key_marks))} FROM {quote(names.log)}"
    forms = _Forms(layout.table, names.shadow, None, swapped=True) if swapped else _Forms(names.shadow, layout.table, waiting, swapped=False)
    return _look(tx, layout, driver, forms, seen, rows_max=rows_max)


def see_all_references(tx: Transaction, layout: Layout, names: Names, driver: SqliteDriver) -> None:
    """Look at every row at once, in a transaction that has copied them all and not exchanged the tables yet."""
    forms = _Forms(names.shadow, layout.table, None, swapped=False)
    seen: dict[str, Any] | None = None
    while True:  # ends: each look goes on behind the one before
        seen = _look(tx, layout, driver, forms, seen, rows_max=_ROWS_AT_ONCE)
        if seen is None:
            return


def reference_texts(tx: Transaction, layout: Layout, names: Names, driver: SqliteDriver, *, captured: bool) -> list[str]:
    """Return the query for each reference that is looked at before the swap; `?` stands for the keys of a range."""
    waiting = f"SELECT {', '.join(map(quote, layout.key_marks))} FROM {quote(names.log)}" if captured else None
    forms = _Forms(names.shadow, layout.table, waiting, swapped=False)
    found = []
    for wanted in _wanted(tx, layout):
        try:
            order = _order(tx, layout, driver, forms, wanted.reference)
        except PlanRefused:  # no key to walk by: it is not looked at
            continue
        some_key = [encode_value(0)] * len(order.columns)
        condition, _ = order.where(KeyRange(some_key, some_key), qualifier="c")
        found.append(_broken_sql(layout, forms, wanted, condition, shown=order.select_list(qualifier="c")))
    return found


def _order(tx: Transaction, layout: Layout, driver: SqliteDriver, forms: _Forms, reference: Reference) -> SqliteKeyOrder:
    if same_name(reference.child, layout.table):
        return layout.new_order(driver, forms.new)
    return SqliteKeyOrder.read(tx, reference.child, driver)


def _look(
    tx: Transaction, layout: Layout, driver: SqliteDriver, forms: _Forms, seen: dict[str, Any] | None, *, rows_max: int
) -> dict[str, Any] | None:
    """Look at the rows of one child."""
    position = None if seen is None else Seen(seen["reference"], seen["low"])
    for wanted in _wanted(tx, layout):
        if position is not None and wanted.sort_key < position.reference:
            continue
        low = position.low if position is not None and wanted.sort_key == position.reference else None
        try:
            last = _look_at(tx, layout, driver, forms, wanted, low=low, rows_max=rows_max)
        except (PlanRefused, DatabaseFailed) as error:
            # No key to walk by, or a function or collation that only the application has.
            log.warning("the reference of %s to %s was not looked at: %s", wanted.reference.child, wanted.reference.parent, error)
            continue
        if last is not None:
            return Seen(wanted.sort_key, last).as_record()
    return None


def _wanted(tx: Transaction, layout: Layout) -> list[_Wanted]:
    """Return what is to be looked at, in a fixed order."""
    known = [one for one in foreign_keys(tx) if not one.child.lower().startswith("tideshift_") and is_enforced(tx, one)]
    found = [_Wanted(one, is_new=False) for one in known if _touched(one, layout)]
    found += [_Wanted(Reference(layout.table, one.parent, one.columns, ""), is_new=True) for one in layout.new_references]
    return sorted(found, key=lambda one: one.sort_key)


def _touched(reference: Reference, layout: Layout) -> bool:
    """Whether a converted column, or one that may be computed from it, is a part of the key."""
    sides = ((reference.child, 0), (reference.parent, 1))
    return any(
        same_name(table, layout.table) and same_name(pair[side], column)
        for table, side in sides
        for pair in reference.columns
        for column in layout.converted
    )


def _look_at(
    tx: Transaction, layout: Layout, driver: SqliteDriver, forms: _Forms, wanted: _Wanted, *, low: Bound | None, rows_max: int
) -> Bound | None:
    """Look at the next children; return the last one's key, or None when there are no more."""
    reference = wanted.reference
    order = _order(tx, layout, driver, forms, reference)
    last = order.next_bound(tx, KeyRange(low, None), rows=rows_max)
    if last is None:
        return None
    condition, binds = order.where(KeyRange(low, last), qualifier="c")
    sql = _broken_sql(layout, forms, wanted, condition, shown=order.select_list(qualifier="c"))
    broken = tx.run_verbatim(sql, binds).rows
    if broken:
        row = broken[0]
        key = order.bound_of(row[: len(order.columns)])
        columns = layout.shown_key if same_name(reference.child, layout.table) else order.columns
        shown = ", ".join(f"{name} = {decode_value(pair)!r}" for name, pair in zip(columns, key, strict=True))
        raise _broken(layout, forms, wanted, key=key, shown_key=shown, values=[repr(value) for value in row[len(order.columns) :]])
    return last


def _broken(layout: Layout, forms: _Forms, wanted: _Wanted, *, key: Bound, shown_key: str, values: list[str]) -> TideshiftError:
    reference = wanted.reference
    verb = "does not find a row" if wanted.is_new else "no longer finds the row"
    message = f"a row of {reference.child} {verb} of {reference.parent} that it refers to (the row with {shown_key}, which refers by {', '.join(values)})"
    fields: dict[str, Any] = {"table": layout.table, "child": reference.child, "parent": reference.parent, "key": key, "values": values}
    if forms.swapped:
        return SchemaChanged(message, hint="Compare the columns' types and values; the old rows are kept until they are purged.", **fields)
    hint = "Give both columns types (or a USING expression) under which their values stay equal, or change the rows first."
    if wanted.is_new:
        hint = "Correct the row, or add the row that it refers to; then submit the change again."
    return ValueRefused(message, hint=hint, column=layout.changed[0] if layout.changed else None, **fields)


def _broken_sql(layout: Layout, forms: _Forms, wanted: _Wanted, condition: str, *, shown: str) -> str:
    """Return the query for a child that refers to nothing in the new form, and refers to a row in the old one."""
    reference = wanted.reference
    child_is_own, parent_is_own = same_name(reference.child, layout.table), same_name(reference.parent, layout.table)
    child = quote(forms.new if child_is_own else reference.child)
    new_parent = quote(forms.new if parent_is_own else reference.parent)
    present = " AND ".join(f"c.{quote(column)} IS NOT NULL" for column, _ in reference.columns)
    now = f"SELECT 1 FROM {new_parent} AS p WHERE {_matches(reference, 'c')}"
    before = "" if wanted.is_new else f" AND EXISTS ({_before(layout, forms, reference)})"
    known = ""
    if wanted.is_new and forms.waiting is not None:
        known = f" AND {layout.new_key_in(forms.waiting, negated=True, qualifier='c')}"
        if parent_is_own:  # a parent that the shadow does not have yet
            coming = f"SELECT 1 FROM {quote(forms.old)} AS p WHERE {_matches(reference, 'c')} AND {layout.key_in(forms.waiting, qualifier='p')}"
            known += f" AND NOT EXISTS ({coming})"
    values = ", ".join(f"c.{quote(column)}" for column, _ in reference.columns)
    return f"SELECT {shown}, {values} FROM {child} AS c WHERE {condition} AND {present}{known} AND NOT EXISTS ({now}){before} LIMIT 1"


def _before(layout: Layout, forms: _Forms, reference: Reference) -> str:
    """Return the query for the row that a child refers to in the old form."""
    child_is_own, parent_is_own = same_name(reference.child, layout.table), same_name(reference.parent, layout.table)
    old_parent = quote(forms.old if parent_is_own else reference.parent)
    if child_is_own:
        before = (
            f"SELECT 1 FROM {quote(forms.old)} AS o JOIN {old_parent} AS p ON {_matches(reference, 'o')}"
            f" WHERE {layout.old_key_is_new('o', 'c')}{_known(layout, forms, 'o')}"
        )
    else:
        before = f"SELECT 1 FROM {old_parent} AS p WHERE {_matches(reference, 'c')}"
    return before + (_known(layout, forms, "p") if parent_is_own else "")


def _known(layout: Layout, forms: _Forms, row: str) -> str:
    """Return the condition that a row's new form is up to date."""
    return "" if forms.waiting is None else f" AND {layout.key_in(forms.waiting, negated=True, qualifier=row)}"


def _matches(reference: Reference, child: str) -> str:
    """Return how a reference is compared: by the parent's affinity and collation, so the child's are taken away."""
    return " AND ".join(f"p.{quote(parent)} = +{child}.{quote(column)}" for column, parent in reference.columns)
