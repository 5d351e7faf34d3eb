"""Removing what is ours: rows a few at a time, then the empty table."""

from __future__ import annotations

from dataclasses import dataclass

from tideshift.ddl.reshaping import ArtifactName
from tideshift.dialects import points
from tideshift.dialects.sqlite.driver import SqliteDriver, quote
from tideshift.dialects.sqlite.keys import SqliteKeyOrder
from tideshift.dialects.sqlite.names import OWN_NAME
from tideshift.store.database import Transaction

__all__ = ["delete_text", "drop", "empty_chunk", "warm_up"]

_ROWS_WITH_INDEX_MAX = 3_000_000
_ROWS_OVERWRITTEN_MAX = 300_000
_KIND = {"trigger": "TRIGGER", "index": "INDEX"}


def empty_chunk(tx: Transaction, artifact: ArtifactName, driver: SqliteDriver, *, rows_max: int) -> int:
    """Delete up to `rows_max` rows in key order; 0 when the table is empty, gone, or no table."""
    _only_ours(tx, artifact)
    if not tx.run_verbatim("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (artifact.name,)).rows:
        return 0
    order = SqliteKeyOrder.read(tx, artifact.name, driver)
    if _drop_index(tx, artifact.name, order):
        return 1
    if points.PURGE.on:
        points.PURGE.fire(table=artifact.name)
    return tx.run_verbatim(delete_text(artifact.name, order), (rows_max,)).affected


def delete_text(table: str, order: SqliteKeyOrder) -> str:
    """Return the statement that deletes the first rows of a table, in key order."""
    keys = order.select_list()
    left = keys if len(order.columns) == 1 else f"({keys})"
    return f"DELETE FROM {quote(table)} WHERE {left} IN (SELECT {keys} FROM {quote(table)} ORDER BY {order.order_by()} LIMIT ?)"


def warm_up(tx: Transaction, artifact: ArtifactName, driver: SqliteDriver) -> bool:
    """Read the index that is dropped next: its pages may be on the disk only, and each that is read under the lock keeps writers out."""
    _only_ours(tx, artifact)
    if not tx.run_verbatim("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (artifact.name,)).rows:
        return False
    index = _droppable_index(tx, artifact.name, SqliteKeyOrder.read(tx, artifact.name, driver))
    if index is not None and not index.partial:
        tx.run_verbatim(f"SELECT count(*) FROM {quote(artifact.name)} INDEXED BY {quote(index.name)}")
    return index is not None


@dataclass(frozen=True)
class _Index:
    """An index of a table of ours; one that is partial cannot be read as a whole by its name."""

    name: str
    partial: bool


def _droppable_index(tx: Transaction, table: str, order: SqliteKeyOrder) -> _Index | None:
    """Return an index that is dropped before the rows are deleted, if the table has one and is not too big for it.

    It only hands pages back, a few milliseconds for a million rows, while every row deleted beside an index costs a page
    somewhere in it. A library that overwrites what it deletes needs about ten times as long.
    """
    rows = tx.run_verbatim("SELECT name, partial FROM pragma_index_list(?) WHERE origin = 'c' LIMIT 1", (table,)).rows
    if not rows or not order.rowid:
        return None
    rowid = order.columns[0]
    # One min or max alone is a look at one end; two in one SELECT would read the whole table.
    span = tx.run_verbatim(f"SELECT (SELECT max({rowid}) FROM {quote(table)}) - (SELECT min({rowid}) FROM {quote(table)})").scalar()
    overwrites = tx.run_verbatim("PRAGMA secure_delete").scalar() == 1
    if span is None or span > (_ROWS_OVERWRITTEN_MAX if overwrites else _ROWS_WITH_INDEX_MAX):
        return None
    return _Index(rows[0][0], bool(rows[0][1]))


def _drop_index(tx: Transaction, table: str, order: SqliteKeyOrder) -> bool:
    """Drop one index before the rows; return whether there was one."""
    index = _droppable_index(tx, table, order)
    if index is None:
        return False
    if points.DROP.on:
        points.DROP.fire(name=index.name)
    tx.run_verbatim(f"DROP INDEX {quote(index.name)}")
    return True


def drop(tx: Transaction, artifact: ArtifactName) -> None:
    """Drop it if it is there."""
    _only_ours(tx, artifact)
    if points.DROP.on:
        points.DROP.fire(name=artifact.name)
    tx.run_verbatim(f"DROP {_KIND.get(artifact.kind, 'TABLE')} IF EXISTS {quote(artifact.name)}")


def _only_ours(tx: Transaction, artifact: ArtifactName) -> None:
    assert OWN_NAME.match(artifact.name), artifact
    # With foreign_keys on, DROP TABLE would first delete every row, and other tables would be looked at.
    assert not tx.run_verbatim("PRAGMA foreign_keys").scalar()
