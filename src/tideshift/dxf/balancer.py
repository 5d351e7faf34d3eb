"""Which node runs which subtask: a pure decision on one look at subtasks and nodes.

Running subtasks on live nodes are never moved. Pending ones are given to the live nodes of the task's scope, each node
getting an equal share up to its free slots first; what is pending on a node that is gone is given to another.
"""

from __future__ import annotations

from collections.abc import Sequence

from tideshift.dxf.machine import SubtaskState
from tideshift.dxf.task import Node, Subtask, Task

__all__ = ["assign", "eligible"]

BACKGROUND = "background"


def eligible(task: Task, nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes that this task may use: those of its scope; without one, the background nodes if there are any."""
    usable = [node for node in nodes if not node.draining]
    if task.target_scope:
        return [node for node in usable if node.role == task.target_scope]
    background = [node for node in usable if node.role == BACKGROUND]
    return background or [node for node in usable if node.role == ""]


def assign(task: Task, subtasks: Sequence[Subtask], nodes: Sequence[Node]) -> dict[int, str]:
    """Return the new node of each pending subtask that must change hands (id -> node); deterministic."""
    candidates = sorted(eligible(task, nodes), key=lambda node: node.host)
    held = {node.host: sum(s.exec_id == node.host for s in subtasks) for node in candidates}
    if task.max_node_count > 0:
        candidates = sorted(candidates, key=lambda node: (-held[node.host], node.host))[: task.max_node_count]
    if not candidates:
        return {}
    names = {node.host for node in candidates}
    load = {node.host: held[node.host] for node in candidates}
    slots = {node.host: max(1, node.slots) for node in candidates}
    moves: dict[int, str] = {}
    for subtask in sorted(subtasks, key=lambda s: s.ordinal):
        if subtask.state is not SubtaskState.PENDING or subtask.exec_id in names:
            continue
        target = min(names, key=lambda host: (load[host] / slots[host], host))
        moves[subtask.id] = target
        load[target] += 1
    return moves
