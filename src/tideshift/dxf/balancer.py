"""Which node runs which subtask: a pure decision on one look at subtasks and nodes.

Running subtasks on live nodes are never moved. Pending ones are given to the live nodes of the task's scope, each node
getting a share in proportion to its slots; what is pending on a node that is gone is given to another.
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
    """Return the new node of each pending subtask that must change hands (id -> node); deterministic, and stable.

    A pending subtask stays where it is unless its node is not eligible or holds more than its share while others have
    less, so that a node that joins late gets work too and a second look changes nothing.
    """
    candidates = sorted(eligible(task, nodes), key=lambda node: node.host)
    held = {node.host: sum(s.exec_id == node.host for s in subtasks) for node in candidates}
    if task.max_node_count > 0:
        candidates = sorted(candidates, key=lambda node: (-held[node.host], node.host))[: task.max_node_count]
    if not candidates:
        return {}
    slots = {node.host: max(1, node.slots) for node in candidates}
    share = {host: -(-len(subtasks) * slots[host] // sum(slots.values())) for host in slots}
    load = {host: sum(s.state is SubtaskState.RUNNING and s.exec_id == host for s in subtasks) for host in slots}
    homeless: list[Subtask] = []
    for subtask in sorted(subtasks, key=lambda s: s.ordinal):
        if subtask.state is not SubtaskState.PENDING:
            continue
        if subtask.exec_id in load and load[subtask.exec_id] < share[subtask.exec_id]:
            load[subtask.exec_id] += 1
        else:
            homeless.append(subtask)
    moves: dict[int, str] = {}
    for subtask in homeless:
        # The shares add up to at least the number of subtasks, so somebody has room.
        target = min((h for h in load if load[h] < share[h]), key=lambda host: ((load[host] + 1) / slots[host], host))
        load[target] += 1
        if target != subtask.exec_id:
            moves[subtask.id] = target
    return moves
