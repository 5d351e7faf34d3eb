"""Whom a job waits for: a process that holds the lock which every writer needs, and is no node of ours that is alive."""

from __future__ import annotations

from tideshift.ddl.dialect import Dialect, LockHolder
from tideshift.dxf import tables
from tideshift.store.database import Transaction

__all__ = ["waited_for"]


def waited_for(tx: Transaction, dialect: Dialect) -> LockHolder | None:
    """Return who holds the lock at this moment; a node that is alive gives it back within a chunk, and is not named."""
    holder = dialect.load.lock_holder()
    if holder is None:
        return None
    alive_since = tx.now_ms() - tx.database.profile.node_dead_after_seconds * 1000
    alive = {node.session["backend"] for node in tables.nodes(tx) if node.session is not None and node.heartbeat_at >= alive_since}
    return None if str(holder.process) in alive else holder
