"""Removing what is ours: rows a few at a time, then the empty table."""

from __future__ import annotations

from tideshift.ddl.dialect import ArtifactName
from tideshift.dialects import points
from tideshift.dialects.sqlite.driver import SqliteDriver, quote
from tideshift.dialects.sqlite.keys import SqliteKeyOrder
from tideshift.dialects.sqlite.names import OWN_NAME
from tideshift.store.database import Transaction

__all__ = ["drop", "empty_chunk"]

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
    keys = order.select_list()
    left = keys if len(order.columns) == 1 else f"({keys})"
    if points.PURGE.on:
        points.PURGE.fire(table=artifact.name)
    return tx.run_verbatim(
        f"DELETE FROM {quote(artifact.name)} WHERE {left} IN"
        f" (SELECT {keys} FROM {quote(artifact.name)} ORDER BY {order.order_by()} LIMIT ?)",
        (rows_max,),
    ).affected


def _drop_index(tx: Transaction, table: str, order: SqliteKeyOrder) -> bool:
    """Drop one index of a table that is not too big for it; return whether there was one.

    It only hands pages back, a few milliseconds for a million rows, while every row deleted beside an index costs a page
    somewhere in it. A library that overwrites what it deletes needs about ten times as long.
    """
    index = tx.run_verbatim("SELECT name FROM pragma_index_list(?) WHERE origin = 'c' LIMIT 1", (table,)).scalar()
    if index is None or not order.rowid:
        return False
    rowid = order.columns[0]
    span = tx.run_verbatim(f"SELECT max({rowid}) - min({rowid}) FROM {quote(table)}").scalar()
    overwrites = tx.run_verbatim("PRAGMA secure_delete").scalar() == 1
    if span is None or span > (_ROWS_OVERWRITTEN_MAX if overwrites else _ROWS_WITH_INDEX_MAX):
        return False
    if points.DROP.on:
        points.DROP.fire(name=index)
    tx.run_verbatim(f"DROP INDEX {quote(index)}")
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
