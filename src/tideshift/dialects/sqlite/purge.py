"""Removing what is ours: rows a few at a time, then the empty table."""

from __future__ import annotations

from tideshift.ddl.dialect import ArtifactName
from tideshift.dialects import points
from tideshift.dialects.sqlite.driver import SqliteDriver, quote
from tideshift.dialects.sqlite.keys import SqliteKeyOrder
from tideshift.dialects.sqlite.names import OWN_NAME
from tideshift.store.database import Transaction

__all__ = ["drop", "empty_chunk"]

_KIND = {"trigger": "TRIGGER", "index": "INDEX"}


def empty_chunk(tx: Transaction, artifact: ArtifactName, driver: SqliteDriver, *, rows_max: int) -> int:
    """Delete up to `rows_max` rows in key order; 0 when the table is empty, gone, or no table."""
    _only_ours(tx, artifact)
    if not tx.run_verbatim("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?", (artifact.name,)).rows:
        return 0
    order = SqliteKeyOrder.read(tx, artifact.name, driver)
    keys = order.select_list()
    left = keys if len(order.columns) == 1 else f"({keys})"
    if points.PURGE.on:
        points.PURGE.fire(table=artifact.name)
    return tx.run_verbatim(
        f"DELETE FROM {quote(artifact.name)} WHERE {left} IN"
        f" (SELECT {keys} FROM {quote(artifact.name)} ORDER BY {order.order_by()} LIMIT ?)",
        (rows_max,),
    ).affected


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
