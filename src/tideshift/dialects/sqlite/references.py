"""Whether references still hold after the swap, as far as the change could have broken them.

Only keys that the changed column is a part of can be broken by a change of its type, and a reference that was broken
before is not our finding: so each row is looked at in its new form and in its old one, a bounded number at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

from tideshift.dialects.sqlite.driver import SqliteDriver, quote
from tideshift.dialects.sqlite.layout import Layout
from tideshift.dialects.sqlite.names import Names
from tideshift.errors import SchemaChanged
from tideshift.store.database import Session, Transaction
from tideshift.store.keys import KeyRange

__all__ = ["see_references_hold"]

_ROWS_PER_LOOK = 2_000


@dataclass(frozen=True)
class _Reference:
    """One foreign key: child columns and the parent columns that they name."""

    child: str
    parent: str
    columns: tuple[tuple[str, str], ...]


def see_references_hold(session: Session, layout: Layout, names: Names, driver: SqliteDriver) -> None:
    """Look at every row that refers, by the changed column, to another or is referred to; raise `SchemaChanged` if one broke."""
    with session.transaction(write=False) as tx:
        touched = [one for one in _references(tx) if _touched(one, layout)]
    for reference in touched:
        _look(session, layout, names, driver, reference)


def _touched(reference: _Reference, layout: Layout) -> bool:
    column, table = layout.column.lower(), layout.table.lower()
    as_child = reference.child.lower() == table and any(child.lower() == column for child, _ in reference.columns)
    as_parent = reference.parent.lower() == table and any(parent.lower() == column for _, parent in reference.columns)
    return as_child or as_parent


def _references(tx: Transaction) -> list[_Reference]:
    """Read all foreign keys between tables that exist; a parent's columns left out are its primary key."""
    rows = tx.run_verbatim(
        'SELECT m.name, f.id, f."table", f."from", f."to", f.seq FROM sqlite_master AS m, pragma_foreign_key_list(m.name) AS f'
        " WHERE m.type = 'table' ORDER BY m.name, f.id, f.seq"
    ).rows
    grouped: dict[tuple[str, int, str], list[tuple[str, str | None]]] = {}
    for child, number, parent, column, target, _ in rows:
        grouped.setdefault((child, number, parent), []).append((column, target))
    found = []
    for (child, _, parent), columns in grouped.items():
        key = tx.run_verbatim("SELECT name FROM pragma_table_info(?) WHERE pk ORDER BY pk", (parent,)).rows
        targets = [target or (key[at][0] if at < len(key) else None) for at, (_, target) in enumerate(columns)]
        if all(targets):
            pairs = [(column, str(target)) for (column, _), target in zip(columns, targets, strict=True)]
            found.append(_Reference(child, parent, tuple(pairs)))
    return found


def _look(session: Session, layout: Layout, names: Names, driver: SqliteDriver, reference: _Reference) -> None:
    """Walk the children; each range is a short transaction of its own, so that nobody waits for long."""
    from tideshift.dialects.sqlite.keys import SqliteKeyOrder

    with session.transaction(write=False) as tx:
        order = SqliteKeyOrder.read(tx, reference.child, driver)
    low = None
    while True:  # Ends: every turn begins behind the last one's end, and the table has an end.
        with session.transaction(write=False) as tx:
            last = order.next_bound(tx, KeyRange(low, None), rows=_ROWS_PER_LOOK)
            if last is None:
                return
            condition, binds = order.where(KeyRange(low, last), qualifier="c")
            broken = tx.run_verbatim(_broken(layout, names, reference, condition), binds).rows
        if broken:
            raise SchemaChanged(
                f"a row of {reference.child} no longer finds the row of {reference.parent} that it refers to",
                hint="Compare the two columns' types and values; the old rows are kept until they are purged.",
                child=reference.child,
                parent=reference.parent,
                values=[repr(value) for value in broken[0]],
            )
        low = last


def _broken(layout: Layout, names: Names, reference: _Reference, condition: str) -> str:
    """Return the query for a child that refers to nothing now, and referred to a row before the change."""
    child, parent = quote(reference.child), quote(reference.parent)
    old_child = _is(reference.child, layout)
    old_parent = quote(names.shadow) if _is(reference.parent, layout) else parent
    present = " AND ".join(f"c.{quote(column)} IS NOT NULL" for column, _ in reference.columns)
    now = f"SELECT 1 FROM {parent} AS p WHERE {_matches(reference, 'c')}"
    if old_child:
        before = (
            f"SELECT 1 FROM {quote(names.shadow)} AS o JOIN {old_parent} AS p ON {_matches(reference, 'o')}"
            f" WHERE {layout.key_is('o', 'c')}"
        )
    else:
        before = f"SELECT 1 FROM {old_parent} AS p WHERE {_matches(reference, 'c')}"
    shown = ", ".join(f"c.{quote(column)}" for column, _ in reference.columns)
    return (
        f"SELECT {shown} FROM {child} AS c WHERE {condition} AND {present}"
        f" AND NOT EXISTS ({now}) AND EXISTS ({before}) LIMIT 1"
    )


def _is(name: str, layout: Layout) -> bool:
    return name.lower() == layout.table.lower()


def _matches(reference: _Reference, child: str) -> str:
    """Return how a reference is compared: by the parent's affinity and collation, so the child's are taken away."""
    return " AND ".join(f"p.{quote(parent)} = +{child}.{quote(column)}" for column, parent in reference.columns)
