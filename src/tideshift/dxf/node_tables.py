"""The register of nodes, and every statement on it."""

from __future__ import annotations

from typing import Any

from sqlalchemy import BigInteger, Boolean, Column, Integer, String, Table, delete, insert, select, update

from tideshift.dxf.task import Node, from_row
from tideshift.store.database import Transaction
from tideshift.store.tables import METADATA, Json

__all__ = ["alive_nodes", "beat_node", "delete_node", "drain_node", "node", "nodes", "put_node", "touch_node"]

node = Table(
    "dist_framework_meta",
    METADATA,
    Column("host", String(261), primary_key=True),
    Column("role", String(64), nullable=False),
    Column("cpu_count", Integer, nullable=False),
    Column("keyspace_id", BigInteger, nullable=False),
    Column("heartbeat_at", BigInteger, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("version", String(64), nullable=False),
    Column("draining", Boolean, nullable=False),
    Column("session", Json),
)


def nodes(tx: Transaction) -> list[Node]:
    """Read the registered nodes, by name."""
    return [from_row(Node, row) for row in tx.execute(select(node).order_by(node.c.host)).mappings()]


def alive_nodes(tx: Transaction) -> list[Node]:
    """Read the nodes whose last heartbeat is young enough, by name."""
    oldest = tx.now_expression() - round(tx.database.profile.node_dead_after_seconds * 1000)
    return [from_row(Node, row) for row in tx.execute(select(node).where(node.c.heartbeat_at >= oldest).order_by(node.c.host)).mappings()]


def put_node(tx: Transaction, *, host: str, role: str, slots: int, version: str, session: dict[str, str], draining: bool = False) -> None:
    """Register a node whose name was never used before, or whose row was taken away."""
    now = tx.now_ms()
    row = {
        "host": host, "role": role, "cpu_count": slots, "keyspace_id": -1, "heartbeat_at": now, "started_at": now,
        "version": version, "draining": draining, "session": session,
    }  # fmt: skip
    tx.execute(insert(node).values(row))


def touch_node(tx: Transaction, host: str, *, draining: bool) -> bool | None:
    """Write a heartbeat, and that the node drains if it does; return whether it shall drain, None when it is not registered (any more)."""
    values: dict[str, Any] = {"heartbeat_at": tx.now_expression(), **({"draining": True} if draining else {})}
    if tx.execute(update(node).where(node.c.host == host).values(values)).rowcount != 1:
        return None
    return bool(tx.execute(select(node.c.draining).where(node.c.host == host)).scalar_one())


def beat_node(tx: Transaction, host: str) -> None:
    """Write a node's row as it is: a small write that is no heartbeat."""
    tx.execute(update(node).where(node.c.host == host).values(host=node.c.host))


def drain_node(tx: Transaction, host: str) -> bool:
    """Ask a node to drain; it sees that with its next heartbeat. Return whether it is registered."""
    return tx.execute(update(node).where(node.c.host == host).values(draining=True)).rowcount == 1


def delete_node(tx: Transaction, host: str, *, seen_heartbeat_at: int | None = None) -> bool:
    """Take a node off the register, if its heartbeat is still the one that was seen; return whether it was there."""
    statement = delete(node).where(node.c.host == host)
    if seen_heartbeat_at is not None:
        statement = statement.where(node.c.heartbeat_at == seen_heartbeat_at)
    return tx.execute(statement).rowcount == 1
