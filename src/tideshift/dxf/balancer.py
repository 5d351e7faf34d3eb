"""Which node runs which subtask: a pure decision on one look at tasks, subtasks and nodes.

One round goes through the tasks in rank order and knows of each node how many of its slots the better ranks use
already. For one task:

1. *Eligible* are the nodes of its scope that do not drain; *good* those of them with a free slot. A task that may use
   only some nodes (`max_node_count`) keeps those where it runs, then those that hold most of it, then the roomiest.
2. Each good node has a *target*: its share of the task's subtasks, in proportion to the slots that the task can use
   there. What does not divide evenly goes first to nodes that already hold one more than the even part, so that nothing
   is moved for nothing.
3. A running subtask on a node that lives is never moved. A pending one is, when its node is not good, or holds more than
   its target: the last ones first. They fill the other nodes up to their targets.
4. The slots that the task can use on each node that holds any of it count as used for the tasks of lower rank.

The same look gives the same decision, and a second look after it moves nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import lcm

from tideshift.dxf.machine import SubtaskState
from tideshift.dxf.task import Node, Placed, Task

__all__ = ["BACKGROUND", "assign", "balance", "eligible", "spread", "window"]

BACKGROUND = "background"
WINDOW_PER_SLOT = 256
"""How many waiting subtasks per slot are given out at a time, so that a round costs the same however many wait behind them."""


def eligible(task: Task, nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes that this task may use: those of its scope; without one, the background nodes if there are any."""
    usable = [node for node in nodes if not node.draining]
    if task.target_scope:
        return [node for node in usable if node.role == task.target_scope]
    background = [node for node in usable if node.role == BACKGROUND]
    return background or [node for node in usable if node.role == ""]


def window(nodes: Sequence[Node]) -> int:
    """Return how many waiting subtasks of a task one round looks at."""
    return WINDOW_PER_SLOT * max(1, sum(node.slots for node in nodes))


def balance(
    work: Sequence[tuple[Task, Sequence[Placed]]], nodes: Sequence[Node], *, threads_max: int | None = None
) -> list[tuple[Task, dict[int, str]]]:
    """Go through the tasks, which come in rank order; return for each the new node of each subtask that must change hands."""
    used: Counter[str] = Counter()
    decided: list[tuple[Task, dict[int, str]]] = []
    for task, subtasks in work:
        moves = assign(task, subtasks, nodes, used=used, threads_max=threads_max)
        decided.append((task, moves))
        held = Counter(moves.get(subtask.id, subtask.exec_id) for subtask in subtasks)
        for node in nodes:
            used[node.host] += min(_threads(task, threads_max), held[node.host])
    return decided


def assign(
    task: Task, subtasks: Sequence[Placed], nodes: Sequence[Node], *, used: Mapping[str, int] | None = None, threads_max: int | None = None
) -> dict[int, str]:
    """Return the new node of each subtask of one task that must change hands (id -> node)."""
    ordered = sorted(subtasks, key=lambda subtask: subtask.ordinal)
    running = [subtask for subtask in ordered if subtask.state is SubtaskState.RUNNING]
    pending = [subtask for subtask in ordered if subtask.state is SubtaskState.PENDING]
    held = Counter(subtask.exec_id for subtask in (*running, *pending))
    runs = Counter(subtask.exec_id for subtask in running)
    room = _room(task, nodes, used=used or {}, held=held, runs=runs, threads_max=threads_max)
    if not room:
        return {}
    load = {host: runs[host] for host in room}
    scale = lcm(*room.values())
    targets = _targets(sum(load.values()) + len(pending), room, held)
    homeless: list[Placed] = []
    for subtask in pending:
        if subtask.exec_id in room and load[subtask.exec_id] < targets[subtask.exec_id]:
            load[subtask.exec_id] += 1
        else:
            homeless.append(subtask)
    moves: dict[int, str] = {}
    for subtask in homeless:
        # The targets add up to all of them, so somebody has room.
        host = min((host for host in room if load[host] < targets[host]), key=lambda host: (load[host] * scale // room[host], host))
        load[host] += 1
        if host != subtask.exec_id:
            moves[subtask.id] = host
    return moves


def spread(task: Task, count: int, nodes: Sequence[Node], *, threads_max: int | None = None) -> list[str]:
    """Return the nodes of the first subtasks of a fresh step, in their order; what lies behind the window is left for later."""
    fresh = [Placed(id=n, ordinal=n, state=SubtaskState.PENDING, exec_id=None, rev=1) for n in range(min(count, window(nodes)))]
    moves = assign(task, fresh, nodes, threads_max=threads_max)
    return [moves[one.id] for one in fresh] if moves else []


def _threads(task: Task, threads_max: int | None) -> int:
    return task.concurrency if threads_max is None else min(task.concurrency, threads_max)


def _room(
    task: Task, nodes: Sequence[Node], *, used: Mapping[str, int], held: Mapping[str | None, int], runs: Mapping[str | None, int], threads_max: int | None
) -> dict[str, int]:  # fmt: skip
    """Return the good nodes, and how many slots the task can use on each."""
    free = {node.host: node.slots - used.get(node.host, 0) for node in sorted(eligible(task, nodes), key=lambda node: node.host)}
    room = {host: min(_threads(task, threads_max), slots) for host, slots in free.items() if slots > 0}
    if 0 < task.max_node_count < len(room):
        kept = sorted(room, key=lambda host: (-runs.get(host, 0), -held.get(host, 0), -room[host], host))[: task.max_node_count]
        room = {host: room[host] for host in sorted(kept)}
    return room


def _targets(count: int, room: Mapping[str, int], held: Mapping[str | None, int]) -> dict[str, int]:
    """Divide so many subtasks among the nodes in proportion to their room; the sum is exact."""
    total = sum(room.values())
    exact = {host: Fraction(count * slots, total) for host, slots in room.items()}
    targets = {host: int(part) for host, part in exact.items()}
    by_claim = sorted(room, key=lambda host: (held.get(host, 0) <= targets[host], targets[host] - exact[host], host))
    for host in by_claim[: count - sum(targets.values())]:
        targets[host] += 1
    return targets
