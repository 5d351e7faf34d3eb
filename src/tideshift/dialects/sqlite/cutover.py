"""The swap: source and shadow exchange their root pages in sqlite_master, and the text of one type changes.

Nothing is renamed, so no other row of sqlite_master moves or changes: names, order, views, triggers, statistics, the
AUTOINCREMENT counter and every foreign key that points here stay as they are. It takes milliseconds, at the end of one
transaction, and is as atomic as any other: until the commit nobody sees anything of it, and a crash leaves nothing.
Afterwards the shadow's name stands for the old rows, without foreign keys, so that they disturb nobody.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass

from tideshift.dialects import points
from tideshift.dialects.sqlite.capture import backlog, drop_triggers
from tideshift.dialects.sqlite.catalog import shape_of
from tideshift.dialects.sqlite.driver import SqliteDriver, quote
from tideshift.dialects.sqlite.layout import Layout
from tideshift.dialects.sqlite.names import Names
from tideshift.dialects.sqlite.scratch import Shape, scratch
from tideshift.dialects.sqlite.texts import retired_text
from tideshift.errors import SchemaChanged
from tideshift.store.database import Transaction

__all__ = ["final_shape", "swap", "see_swapped"]


@dataclass(frozen=True)
class _Stored:
    """One row of sqlite_master."""

    root_page: int
    text: str | None


def swap(tx: Transaction, layout: Layout, names: Names, driver: SqliteDriver) -> None:
    """Exchange source and shadow; the caller has seen that everything is as recorded."""
    waiting = backlog(tx, names, limit=0)
    assert waiting == 0, f"{waiting} log rows are not applied"
    expected = final_shape(layout, driver)
    if points.SWAP_BEGIN.on:
        points.SWAP_BEGIN.fire(job=names.job_id)
    drop_triggers(tx, layout, names)
    tx.run_verbatim(f"DROP TABLE {quote(names.log)}")
    if layout.may_renumber:
        tx.run_verbatim(f"DROP TABLE {quote(names.canary)}")
    if points.SWAP_EXCHANGE.on:
        points.SWAP_EXCHANGE.fire(job=names.job_id)
    before = _stored(tx)
    pairs = _pairs(tx, layout, names)
    with _writable_schema(tx):
        for source, shadow in pairs:
            _exchange(tx, before, source, shadow)
        _set_text(tx, layout.table, layout.new_text)
        _set_text(tx, names.shadow, retired_text(layout, names))
        version = int(tx.run_verbatim("PRAGMA schema_version").scalar())
        tx.run_verbatim(f"PRAGMA schema_version = {(version + 1) & 0x7FFFFFFF}")
    if points.SWAP_EXCHANGED.on:
        points.SWAP_EXCHANGED.fire(job=names.job_id)
    _see_exchanged(tx, before, pairs, layout, names)
    see_swapped(tx, layout, expected)
    for table in (layout.table, names.shadow):
        tx.run_verbatim(f"SELECT * FROM {quote(table)} LIMIT 1")
    if points.SWAPPED.on:
        points.SWAPPED.fire(job=names.job_id)


@contextlib.contextmanager
def _writable_schema(tx: Transaction) -> Iterator[None]:
    """Let this connection write the schema table, and read the schema afresh afterwards, whatever happens."""
    tx.run_verbatim("PRAGMA writable_schema = ON")
    try:
        yield
    finally:
        tx.run_verbatim("PRAGMA writable_schema = RESET")


def _stored(tx: Transaction) -> dict[str, _Stored]:
    """Read the whole schema table: names of tables, indexes, views and triggers are one namespace for us to compare."""
    rows = tx.run_verbatim("SELECT type || ' ' || name, rootpage, sql FROM sqlite_master").rows
    return {name: _Stored(int(root or 0), text) for name, root, text in rows}


def _pairs(tx: Transaction, layout: Layout, names: Names) -> list[tuple[str, str]]:
    """Return what exchanges pages with what: the table, and each index with the one made from the same words."""
    pairs = [(f"table {layout.table}", f"table {names.shadow}")]
    indexes = {index.name: names.index(number) for number, index in enumerate(layout.indexes, start=1)}
    for name in layout.automatic_indexes:
        ordinal = name.rpartition("_")[2]
        indexes[name] = f"sqlite_autoindex_{names.shadow}_{ordinal}"
    shapes = [
        {index.name: (index.unique, index.origin, index.partial, index.terms) for index in shape_of(tx, table).indexes}
        for table in (layout.table, names.shadow)
    ]
    for source, shadow in indexes.items():
        if source not in shapes[0] or shapes[0][source] != shapes[1].get(shadow):
            raise SchemaChanged(f"index {source!r} and the one made for it are not alike")
        pairs.append((f"index {source}", f"index {shadow}"))
    return pairs


def _exchange(tx: Transaction, before: dict[str, _Stored], source: str, shadow: str) -> None:
    for one, other in ((source, shadow), (shadow, source)):
        kind, _, name = one.partition(" ")
        changed = tx.run_verbatim(
            "UPDATE sqlite_master SET rootpage = ? WHERE type = ? AND name = ?", (before[other].root_page, kind, name)
        ).affected
        assert changed == 1, one


def _set_text(tx: Transaction, table: str, text: str) -> None:
    changed = tx.run_verbatim("UPDATE sqlite_master SET sql = ? WHERE type = 'table' AND name = ?", (text, table)).affected
    assert changed == 1, table


def _see_exchanged(
    tx: Transaction, before: dict[str, _Stored], pairs: list[tuple[str, str]], layout: Layout, names: Names
) -> None:
    """See that exactly what was meant has changed, and that the connection has read it."""
    expected = dict(before)
    for source, shadow in pairs:
        expected[source] = _Stored(before[shadow].root_page, before[source].text)
        expected[shadow] = _Stored(before[source].root_page, before[shadow].text)
    expected[f"table {layout.table}"] = _Stored(expected[f"table {layout.table}"].root_page, layout.new_text)
    expected[f"table {names.shadow}"] = _Stored(expected[f"table {names.shadow}"].root_page, retired_text(layout, names))
    if _stored(tx) != expected:
        raise SchemaChanged("the schema table does not hold what was written into it")
    if int(tx.run_verbatim("PRAGMA writable_schema").scalar()):
        raise SchemaChanged("the schema table was not closed again")


def final_shape(layout: Layout, driver: SqliteDriver) -> Shape:
    """Return the shape that the final texts have, as this library makes it in an empty database."""
    with scratch(driver) as trial:
        trial.run(layout.new_text)
        for index in layout.indexes:
            trial.run(index.text)
        return trial.shape(layout.table)


def see_swapped(tx: Transaction, layout: Layout, expected: Shape) -> None:
    """See that the catalogue shows the table in its new shape."""
    if shape_of(tx, layout.table) != expected:
        raise SchemaChanged(f"{layout.table} does not have the planned shape after the swap", table=layout.table)
