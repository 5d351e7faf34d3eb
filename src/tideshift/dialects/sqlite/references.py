"""Whether references still hold in the new shape, as far as the change could break them.

Only keys that the changed column is a part of can be broken by a change of its type, and a reference that was broken
before is not our finding: so each row is looked at in its new form and in its old one, a bounded number at a time.
Before the swap the shadow is the new form: rows whose keys wait in the log are left out there, since it has them as they
were. After the swap the old rows are the old form, and every row is looked at.

Known gap: a child whose rows cannot be walked by a key that we can name is not looked at, nor a reference that SQLite
itself calls a mismatch, since nobody can rely on it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from tideshift.ddl.tokens import same_name
from tideshift.dialects.sqlite.catalog import shape_of
from tideshift.dialects.sqlite.driver import SqliteDriver, quote
from tideshift.dialects.sqlite.keys import SqliteKeyOrder
from tideshift.dialects.sqlite.layout import Layout
from tideshift.dialects.sqlite.names import Names
from tideshift.dialects.sqlite.scratch import Shape
from tideshift.errors import PlanRefused, SchemaChanged, ValueRefused
from tideshift.store.database import DatabaseFailed, Session, Transaction
from tideshift.store.keys import Bound, KeyRange, decode_value

__all__ = ["Reference", "foreign_keys", "is_enforced", "see_references_hold", "see_references_will_hold"]

log = logging.getLogger(__name__)

_ROWS_PER_LOOK = 2_000


@dataclass(frozen=True)
class Reference:
    """One foreign key: child columns and the parent columns that they name."""

    child: str
    parent: str
    columns: tuple[tuple[str, str], ...]
    on_delete: str


@dataclass(frozen=True)
class _Forms:
    """The tables that hold the new form and the old one, and the query for the keys whose new form is not known yet."""

    new: str
    old: str
    waiting: str | None


@dataclass(frozen=True)
class _Broken:
    """A child's row that loses its parent."""

    reference: Reference
    key: Bound
    shown_key: str
    values: tuple[str, ...]

    @property
    def message(self) -> str:
        """Return what a person reads."""
        return (
            f"a row of {self.reference.child} no longer finds the row of {self.reference.parent} that it refers to"
            f" (the row with {self.shown_key}, which refers by {', '.join(self.values)})"
        )


def see_references_will_hold(session: Session, layout: Layout, names: Names, driver: SqliteDriver) -> None:
    """Look before the swap; raise `ValueRefused` for a row that would lose the row that it refers to."""
    waiting = f"SELECT {', '.join(map(quote, layout.key_marks))} FROM {quote(names.log)}"
    broken = _first_broken(session, layout, names, driver, _Forms(names.shadow, layout.table, waiting))
    if broken is not None:
        raise ValueRefused(
            broken.message,
            hint="Give both columns types (or a USING expression) under which their values stay equal, or change the rows first.",
            table=layout.table,
            column=layout.column,
            child=broken.reference.child,
            parent=broken.reference.parent,
            key=broken.key,
            values=list(broken.values),
        )


def see_references_hold(session: Session, layout: Layout, names: Names, driver: SqliteDriver) -> None:
    """Look after the swap; raise `SchemaChanged` for a row that lost the row that it refers to."""
    broken = _first_broken(session, layout, names, driver, _Forms(layout.table, names.shadow, None))
    if broken is not None:
        raise SchemaChanged(
            broken.message,
            hint="Compare the two columns' types and values; the old rows are kept until they are purged.",
            child=broken.reference.child,
            parent=broken.reference.parent,
            key=broken.key,
            values=list(broken.values),
        )


def _first_broken(session: Session, layout: Layout, names: Names, driver: SqliteDriver, forms: _Forms) -> _Broken | None:
    with session.transaction(write=False) as tx:
        touched = [one for one in foreign_keys(tx) if _touched(one, layout) and not same_name(one.child, names.shadow)]
        touched = [one for one in touched if is_enforced(tx, one)]
    for reference in touched:
        try:
            broken = _look(session, layout, driver, forms, reference)
        except (PlanRefused, DatabaseFailed) as error:
            # No key to walk by, or a function or collation that only the application has.
            log.warning("the reference of %s to %s was not looked at: %s", reference.child, reference.parent, error)
            continue
        if broken is not None:
            return broken
    return None


def _touched(reference: Reference, layout: Layout) -> bool:
    """Whether the changed column, or one that may be computed from it, is a part of the key."""
    changed = (layout.column, *layout.generated)
    sides = ((reference.child, 0), (reference.parent, 1))
    return any(
        same_name(table, layout.table) and same_name(pair[side], column)
        for table, side in sides
        for pair in reference.columns
        for column in changed
    )


def foreign_keys(tx: Transaction) -> list[Reference]:
    """Read all foreign keys of ordinary tables; a parent's columns left out are its primary key."""
    rows = tx.run_verbatim(
        'SELECT m.name, f.id, f."table", f.on_delete, f."from", f."to" FROM sqlite_master AS m, pragma_foreign_key_list(m.name) AS f'
        " WHERE m.type = 'table' AND m.rootpage > 0 ORDER BY m.name, f.id, f.seq"
    ).rows
    grouped: dict[tuple[str, int, str, str], list[tuple[str, str | None]]] = {}
    for child, number, parent, on_delete, column, target in rows:
        grouped.setdefault((child, number, parent, on_delete), []).append((column, target))
    found = []
    for (child, _, parent, on_delete), columns in grouped.items():
        key = tx.run_verbatim("SELECT name FROM pragma_table_info(?, 'main') WHERE pk ORDER BY pk", (parent,)).rows
        targets = [target or (key[at][0] if at < len(key) else None) for at, (_, target) in enumerate(columns)]
        if all(targets):
            pairs = [(column, str(target)) for (column, _), target in zip(columns, targets, strict=True)]
            found.append(Reference(child, parent, tuple(pairs), on_delete.upper()))
    return found


def is_enforced(tx: Transaction, reference: Reference) -> bool:
    """Whether the parent is an ordinary table with a unique key over just these columns; any other is a mismatch to SQLite."""
    ordinary = "SELECT name FROM sqlite_master WHERE type = 'table' AND rootpage > 0 AND name = ? COLLATE NOCASE"
    parents = [name for (name,) in tx.run_verbatim(ordinary, (reference.parent,)).rows]
    if not parents:
        return False
    wanted = {parent.lower() for _, parent in reference.columns}
    return len(wanted) == len(reference.columns) and wanted in _unique_keys(shape_of(tx, parents[0]))


def _unique_keys(shape: Shape) -> list[set[str]]:
    keys = [[column[0] for column in shape.columns if column[4]]]
    keys += [[name or "" for _, name, *_ in index.key_terms] for index in shape.indexes if index.unique and not index.partial]
    return [{name.lower() for name in key} for key in keys]


def _look(session: Session, layout: Layout, driver: SqliteDriver, forms: _Forms, reference: Reference) -> _Broken | None:
    """Walk the children; each range is a short transaction of its own, so that nobody waits for long."""
    with session.transaction(write=False) as tx:
        is_own = same_name(reference.child, layout.table)
        order = layout.order(driver, forms.new) if is_own else SqliteKeyOrder.read(tx, reference.child, driver)
    low = None
    while True:  # Ends: every turn begins behind the last one's end, and the table has an end.
        with session.transaction(write=False) as tx:
            last = order.next_bound(tx, KeyRange(low, None), rows=_ROWS_PER_LOOK)
            if last is None:
                return None
            condition, binds = order.where(KeyRange(low, last), qualifier="c")
            sql = _broken_sql(layout, forms, reference, condition, shown=order.select_list(qualifier="c"))
            broken = tx.run_verbatim(sql, binds).rows
        if broken:
            row = broken[0]
            key = order.bound_of(row[: len(order.columns)])
            columns = layout.shown_key if is_own else order.columns
            shown = ", ".join(f"{name} = {decode_value(pair)!r}" for name, pair in zip(columns, key, strict=True))
            return _Broken(reference, key, shown, tuple(repr(value) for value in row[len(order.columns) :]))
        low = last


def _broken_sql(layout: Layout, forms: _Forms, reference: Reference, condition: str, *, shown: str) -> str:
    """Return the query for a child that refers to nothing in the new form, and refers to a row in the old one."""
    child_is_own, parent_is_own = same_name(reference.child, layout.table), same_name(reference.parent, layout.table)
    child = quote(forms.new if child_is_own else reference.child)
    new_parent = quote(forms.new if parent_is_own else reference.parent)
    old_parent = quote(forms.old if parent_is_own else reference.parent)
    present = " AND ".join(f"c.{quote(column)} IS NOT NULL" for column, _ in reference.columns)
    now = f"SELECT 1 FROM {new_parent} AS p WHERE {_matches(reference, 'c')}"
    if child_is_own:
        before = (
            f"SELECT 1 FROM {quote(forms.old)} AS o JOIN {old_parent} AS p ON {_matches(reference, 'o')}"
            f" WHERE {layout.key_is('o', 'c')}{_known(layout, forms, 'o')}"
        )
    else:
        before = f"SELECT 1 FROM {old_parent} AS p WHERE {_matches(reference, 'c')}"
    if parent_is_own:
        before += _known(layout, forms, "p")
    values = ", ".join(f"c.{quote(column)}" for column, _ in reference.columns)
    return (
        f"SELECT {shown}, {values} FROM {child} AS c WHERE {condition} AND {present}"
        f" AND NOT EXISTS ({now}) AND EXISTS ({before}) LIMIT 1"
    )


def _known(layout: Layout, forms: _Forms, row: str) -> str:
    """Return the condition that a row's new form is up to date."""
    return "" if forms.waiting is None else f" AND {layout.key_in(forms.waiting, negated=True, qualifier=row)}"


def _matches(reference: Reference, child: str) -> str:
    """Return how a reference is compared: by the parent's affinity and collation, so the child's are taken away."""
    return " AND ".join(f"p.{quote(parent)} = +{child}.{quote(column)}" for column, parent in reference.columns)
