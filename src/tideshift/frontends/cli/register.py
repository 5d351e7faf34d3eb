"""Who is alive: the register of nodes as a command sees it."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tideshift.errors import Retryable

if TYPE_CHECKING:
    from tideshift.connect import Connected
    from tideshift.dxf.task import Node
    from tideshift.frontends.cli.output import Screen
    from tideshift.store.database import Transaction

__all__ = ["NO_NODE", "SeenNode", "is_any_alive", "seen_nodes", "warn_without_node"]

log = logging.getLogger("tideshift.cli")
LOOK_WAIT_SECONDS = 1.0
NO_NODE = "no node is alive to carry this out; start one with: tideshift node"


@dataclass(frozen=True)
class SeenNode:
    """A registered node, how long ago it was heard of, and whether it is taken for alive."""

    node: Node
    silent_seconds: float
    is_alive: bool


def seen_nodes(tx: Transaction) -> list[SeenNode]:
    """Read the register and judge each node by its heartbeat, and by its process where that can be seen."""
    from tideshift.dxf import tables

    now_ms = tx.now_ms()
    limit_seconds = tx.database.profile.node_dead_after_seconds
    found: list[SeenNode] = []
    for node in tables.nodes(tx):
        silent_seconds = max(0.0, (now_ms - node.heartbeat_at) / 1000)
        found.append(SeenNode(node, silent_seconds, silent_seconds <= limit_seconds and not _process_gone(tx, node)))
    return found


def _process_gone(tx: Transaction, node: Node) -> bool:
    from tideshift.store.driver import SessionIdentity

    if node.session is None or not tx.driver.capabilities.session_is_process:
        return False
    return tx.driver.session_gone(tx.connection, SessionIdentity.from_record(node.session))


def is_any_alive(connected: Connected, *, when_busy: bool = False, but: str | None = None) -> bool:
    """Whether a node that takes work is alive, `but` for one; `when_busy` when the database has no time to say so soon.

    It is asked after a command was acknowledged and while Ctrl-C may come, so it neither fails nor waits for long.
    """
    try:
        with connected.database.transaction(write=False, lock_wait_seconds=LOOK_WAIT_SECONDS) as tx:
            found = seen_nodes(tx)
    except Retryable as error:
        log.debug("nodes not seen: %s", error)
        return when_busy
    return any(seen.is_alive and not seen.node.draining and seen.node.host != but for seen in found)


def warn_without_node(connected: Connected, screen: Screen) -> None:
    """Say so when nobody is there to complete what was asked."""
    if not is_any_alive(connected):
        screen.warn(NO_NODE)
