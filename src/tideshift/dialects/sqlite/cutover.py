"""The swap: source and shadow exchange their root pages in sqlite_master, and the source's text becomes the new one.

No table is renamed, so no other row of sqlite_master moves or changes: names, order, views, triggers, statistics, the
AUTOINCREMENT counter and every foreign key that points here stay as they are. Indexes that both shapes have exchange their
pages too, but for those that the change does not touch, which the table keeps; one that the change brings moves from the
shadow to the table, one that it takes away moves the other way. It takes milliseconds, at the end of one transaction, and is as atomic as any other: until the commit nobody sees anything of
it, and a crash leaves nothing. Afterwards the shadow's name stands for the old rows, without foreign keys, so that they
disturb nobody.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass, replace

from tideshift.dialects import points
from tideshift.dialects.sqlite.capture import backlog, drop_triggers
from tideshift.dialects.sqlite.catalog import shape_of
from tideshift.dialects.sqlite.create_table import ClauseKind, parse_table
from tideshift.dialects.sqlite.driver import SqliteDriver, quote
from tideshift.dialects.sqlite.layout import Layout, Side
from tideshift.dialects.sqlite.names import Names
from tideshift.dialects.sqlite.scratch import Shape, scratch
from tideshift.dialects.sqlite.texts import index_names, index_texts, retired_text, shadow_text
from tideshift.errors import SchemaChanged
from tideshift.store.database import Transaction

__all__ = ["exchange", "exchange_texts", "final_shape", "see_swapped", "swap"]


_WRITTEN = "UPDATE sqlite_master SET name = ?, tbl_name = ?, rootpage = ?, sql = ? WHERE rowid = ?"
_ADDED = "INSERT INTO sqlite_master (name, tbl_name, rootpage, sql, rowid, type) VALUES (?, ?, ?, ?, ?, ?)"
_REMOVED = "DELETE FROM sqlite_master WHERE rowid = ?"


@dataclass(frozen=True)
class _Stored:
    """One row of sqlite_master."""

    rowid: int
    kind: str
    name: str
    table: str
    root_page: int
    text: str | None


def swap(tx: Transaction, layout: Layout, names: Names, driver: SqliteDriver) -> None:
    """End capture and exchange source and shadow; the caller has seen that everything is as recorded."""
    waiting = backlog(tx, names, limit=0)
    assert waiting == 0, f"{waiting} log rows are not applied"
    if points.SWAP_BEGIN.on:
        points.SWAP_BEGIN.fire(job=names.job_id)
    drop_triggers(tx, layout, names)
    tx.run_verbatim(f"DROP TABLE {quote(names.log)}")
    if layout.may_renumber:
        tx.run_verbatim(f"DROP TABLE {quote(names.canary)}")
    exchange(tx, layout, names, driver)


def exchange(tx: Transaction, layout: Layout, names: Names, driver: SqliteDriver) -> None:
    """Let source and shadow change places; nothing captures any more, and both hold the same rows."""
    expected = final_shape(layout, driver)
    if points.SWAP_EXCHANGE.on:
        points.SWAP_EXCHANGE.fire(job=names.job_id)
    before = _stored(tx)
    after = _exchanged(before, layout, names)
    with _writable_schema(tx):
        _write(tx, before, after)
        version = int(tx.run_verbatim("PRAGMA schema_version").scalar())
        tx.run_verbatim(f"PRAGMA schema_version = {(version + 1) & 0x7FFFFFFF}")
    for sql, binds in _forgotten(tx, layout, driver):
        tx.run_verbatim(sql, binds)
    if points.SWAP_EXCHANGED.on:
        points.SWAP_EXCHANGED.fire(job=names.job_id)
    if _stored(tx) != after:
        raise SchemaChanged("the schema table does not hold what was written into it")
    if int(tx.run_verbatim("PRAGMA writable_schema").scalar()):
        raise SchemaChanged("the schema table was not closed again")
    see_swapped(tx, layout, expected)
    for table in (layout.table, names.shadow):
        tx.run_verbatim(f"SELECT * FROM {quote(table)} LIMIT 1")
    if points.SWAPPED.on:
        points.SWAPPED.fire(job=names.job_id)


def exchange_texts(tx: Transaction, layout: Layout, names: Names, driver: SqliteDriver) -> list[str]:
    """Return the statements of the exchange, worked out on the rows as they will be; `?` stands for a row's number or pages."""
    before = _foreseen(layout, names)
    after = _exchanged(before, layout, names)
    owner = {row.root_page: row.name for row in before.values()}
    texts = ["PRAGMA writable_schema = ON"]
    texts += [f"{_REMOVED} -- index {_on_one_line(before[rowid].name)}" for rowid in sorted(before.keys() - after.keys())]
    for rowid, row in sorted(after.items()):
        if before.get(rowid) == row:
            continue
        values = [_literal(row.name), _literal(row.table), "?", "NULL" if row.text is None else _literal(row.text), "?", _literal(row.kind)]
        sql = _filled(_WRITTEN if rowid in before else _ADDED, values)
        texts.append(f"{sql} -- the pages of {_on_one_line(owner[row.root_page])}")
    forgotten = [" ".join([sql, "--", *map(_on_one_line, binds)]) for sql, binds in _forgotten(tx, layout, driver)]
    return [*texts, "PRAGMA schema_version = ?", "PRAGMA writable_schema = RESET", *forgotten]


def _foreseen(layout: Layout, names: Names) -> dict[int, _Stored]:
    """Return the rows of the schema table that the exchange concerns, each with a page of its own, before they are there."""
    table, shadow = layout.table, names.shadow
    rows: list[tuple[str, str, str, str | None]] = [("table", table, table, layout.old.text)]
    rows += [*(("index", index.name, table, index.text) for index in layout.indexes)]
    rows += [("index", name, table, None) for name in layout.old.automatic_indexes]
    rows += [("table", shadow, shadow, shadow_text(layout, names))]
    rows += [("index", _beside(names, _ordinal(name)[0]), shadow, None) for name in layout.new.automatic_indexes]
    rows += [("index", name, shadow, text) for name, text in zip(index_names(layout, names), index_texts(layout, names), strict=True)]
    return {number: _Stored(number, *row[:3], root_page=number, text=row[3]) for number, row in enumerate(rows, start=1)}


def _filled(sql: str, values: list[str]) -> str:
    """Put values in place of a statement's question marks; there may be more than it takes."""
    pieces = sql.split("?")
    return "".join(piece + value for piece, value in zip(pieces, [*values[: len(pieces) - 1], ""], strict=True))


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _on_one_line(name: str) -> str:
    return " ".join(name.split())


@contextlib.contextmanager
def _writable_schema(tx: Transaction) -> Iterator[None]:
    """Let this connection write the schema table, and read the schema afresh afterwards, whatever happens."""
    tx.run_verbatim("PRAGMA writable_schema = ON")
    try:
        yield
    finally:
        tx.run_verbatim("PRAGMA writable_schema = RESET")


def _stored(tx: Transaction) -> dict[int, _Stored]:
    """Read the whole schema table."""
    rows = tx.run_verbatim("SELECT rowid, type, name, tbl_name, rootpage, sql FROM sqlite_master").rows
    return {rowid: _Stored(rowid, kind, name, table, int(root or 0), text) for rowid, kind, name, table, root, text in rows}


# ── the rows as they shall be ─────────────────────────────────────────────────────────────────────────────────────


def _exchanged(before: dict[int, _Stored], layout: Layout, names: Names) -> dict[int, _Stored]:
    """Return the schema table after the exchange: a pure rearrangement of pages, names and texts."""
    after = dict(before)
    row_of = {(row.kind, row.name): row for row in before.values()}

    def put(row: _Stored, **values: object) -> None:
        after[row.rowid] = replace(row, **values)  # type: ignore[arg-type]

    table, shadow = row_of["table", layout.table], row_of["table", names.shadow]
    put(table, root_page=shadow.root_page, text=layout.new.text)
    put(shadow, root_page=table.root_page, text=retired_text(layout, names))
    for number, index in enumerate(layout.made_indexes, start=1):
        made = row_of["index", names.index(number)]
        if index in layout.indexes:
            own = row_of["index", index.name]
            put(own, root_page=made.root_page)
            put(made, root_page=own.root_page)
        else:
            put(made, name=index.name, table=layout.table, text=index.text)
    old, new = (dict(map(_ordinal, side.automatic_indexes)) for side in (layout.old, layout.new))
    for ordinal in sorted(new):
        made = row_of["index", _beside(names, ordinal)]
        if ordinal in old:
            own = row_of["index", old[ordinal]]
            put(own, root_page=made.root_page)
            put(made, root_page=own.root_page)
        else:
            put(made, name=new[ordinal], table=layout.table)
    last = max(before)
    for ordinal in sorted(old.keys() - new.keys()):
        # The library reads the rows in order, and an index must come behind its table.
        own = row_of["index", old[ordinal]]
        del after[own.rowid]
        last += 1
        after[last] = replace(own, rowid=last, name=_beside(names, ordinal), table=names.shadow)
    return after


def _ordinal(name: str) -> tuple[str, str]:
    return name.rpartition("_")[2], name


def _beside(names: Names, ordinal: str) -> str:
    return f"sqlite_autoindex_{names.shadow}_{ordinal}"


def _write(tx: Transaction, before: dict[int, _Stored], after: dict[int, _Stored]) -> None:
    for rowid in sorted(before.keys() - after.keys()):
        tx.run_verbatim(_REMOVED, (rowid,))
    for rowid, row in sorted(after.items()):
        if before.get(rowid) == row:
            continue
        values = (row.name, row.table, row.root_page, row.text, rowid)
        if rowid in before:
            changed = tx.run_verbatim(_WRITTEN, values).affected
        else:
            changed = tx.run_verbatim(_ADDED, (*values, row.kind)).affected
        assert changed == 1, row.name


def _forgotten(tx: Transaction, layout: Layout, driver: SqliteDriver) -> list[tuple[str, tuple[str, ...]]]:
    """Return what takes away what the library keeps about something that is no more: statistics of indexes, the counter of a key that goes."""
    found: list[tuple[str, tuple[str, ...]]] = []
    old, new = (_automatic(side, layout.table, driver) for side in (layout.old, layout.new))
    others = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
    for statistics in ("sqlite_stat1", "sqlite_stat4") if others else ():
        if tx.run_verbatim("SELECT 1 FROM sqlite_master WHERE name = ?", (statistics,)).rows:
            found += [(f"DELETE FROM {statistics} WHERE tbl = ? AND idx = ?", (layout.table, index)) for index in others]
    counted = [any(clause.kind is ClauseKind.AUTOINCREMENT for clause in parse_table(side.text).clauses()) for side in (layout.old, layout.new)]
    return [*found, ("DELETE FROM sqlite_sequence WHERE name = ?", (layout.table,))] if counted == [True, False] else found


def _automatic(side: Side, table: str, driver: SqliteDriver) -> dict[str, object]:
    """Return what each index that a constraint makes is over, by its name."""
    with scratch(driver) as trial:
        trial.run(side.text)
        return {index.name: [term[1:] for term in index.key_terms] for index in trial.shape(table).indexes}


# ── seeing that it is so ──────────────────────────────────────────────────────────────────────────────────────────


def final_shape(layout: Layout, driver: SqliteDriver) -> Shape:
    """Return the shape that the final texts have, as this library makes it in an empty database."""
    with scratch(driver) as trial:
        trial.run(layout.new.text)
        for index in layout.new_indexes:
            trial.run(index.text)
        return trial.shape(layout.table)


def see_swapped(tx: Transaction, layout: Layout, expected: Shape) -> None:
    """See that the catalogue shows the table in its new shape."""
    if shape_of(tx, layout.table) != expected:
        raise SchemaChanged(f"{layout.table} does not have the planned shape after the swap", table=layout.table)
