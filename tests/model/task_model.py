"""The abstract task: its row with the mailbox, one subtask, a node, owners with stale copies, and people who ask.

Where a state leads is asked from `tideshift.dxf.machine.TASK` and `SUBTASK`, what supersedes what from the commands. An
owner reads the row in one step and writes in another; in between anybody may do anything. Two owners may both believe
that they lead (no tenure is checked here, which is harsher than the product). A crash forgets a copy or a body.

The variants differ in the guard of the owner's write: `blind` (the whole row as it was copied), `state` (only while the
state is the one that was seen) and `rev` (only while nothing at all was written). `attempt` is the guard of a node's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from tests.model.explore import Step
from tideshift.dxf import commands
from tideshift.dxf.machine import SUBTASK, TASK, SubtaskState, TaskState

T, S = TaskState, SubtaskState
APPLIED, SUPERSEDED, FAILED = "applied", "superseded", "failed"
ACTIVE = (S.PENDING, S.RUNNING)


class Row(NamedTuple):
    """The task's row: the mailbox holds the numbers of the modify requests that wait, `value` the last one applied."""

    state: TaskState = T.PENDING
    prev: str = ""
    mailbox: tuple[int, ...] = ()
    value: int = -1


class Copy(NamedTuple):
    """What an owner has read, and whether it is still what is there."""

    row: Row
    fresh: bool = True


class Request(NamedTuple):
    """An acknowledged command."""

    command: str
    outcome: str | None = None


class World(NamedTuple):
    """Everything."""

    row: Row
    subtask: SubtaskState | None
    node: str
    """idle; looked (saw it pending); late (a look that is not true any more); body; lost (a body that is not the running attempt)."""
    owners: tuple[Copy | None, ...]
    requests: tuple[Request, ...]
    crashes: int


class Broken(Exception):
    """A rule is broken."""


@dataclass(frozen=True, kw_only=True)
class Model:
    """The bounds of one exploration, and its guards."""

    guard: str = "rev"
    attempt_checked: bool = True
    owners: int = 1
    asks: tuple[str, ...] = ("cancel", "pause", "resume", "modify")
    asks_max: int = 3
    crashes_max: int = 1
    may_fail: bool = True
    manual_recovery: bool = False

    def initial(self) -> World:
        """A task that was just submitted."""
        return World(Row(), None, "idle", (None,) * self.owners, (), 0)

    # ── what is always so ─────────────────────────────────────────────────────────────────────────────────────────

    def broken_in(self, world: World) -> str | None:
        """Name the rule that this state breaks."""
        row = world.row
        shown = {"pause": (T.PAUSING,), "resume": (T.RESUMING,), "cancel": (T.CANCELLING, T.REVERTING)}
        for number, request in enumerate(world.requests):
            if request.outcome is not None:
                continue
            if row.state in TASK.final:
                return f"a {request.command} has no outcome at the end"
            if request.command == "modify" and number not in row.mailbox:
                return "an acknowledged modify is lost"
            if request.command != "modify" and row.state not in shown[request.command]:
                return f"an acknowledged {request.command} is lost"
        if row.state is T.PAUSED and world.subtask in ACTIVE:
            return "paused, and a subtask is active"
        if row.state in TASK.final and world.subtask in (*ACTIVE, S.PAUSED):
            return "final, and a subtask is not"
        if row.state is T.SUCCEED and Request("cancel", APPLIED) in world.requests:
            return "cancelled and succeeded"
        return None

    def rests(self, world: World) -> bool:
        """Whether nothing needs to follow: it has ended, or waits for a person and every request is answered."""
        resting = world.row.state in (T.PAUSED, T.AWAITING_RESOLUTION)
        return world.row.state in TASK.final or (resting and all(r.outcome for r in world.requests))

    # ── what may happen ───────────────────────────────────────────────────────────────────────────────────────────

    def steps(self, world: World) -> Iterator[Step[World]]:
        """Yield everything that anybody may do now."""
        if world.row.state not in TASK.final:
            yield from self._asks(world)
            yield from self._nodes(world)
        for owner, copy in enumerate(world.owners):
            yield from self._owner(world, owner, copy)

    def _asks(self, world: World) -> Iterator[Step[World]]:
        """A command is one transaction on the present row; losing the race it reads again, so it is one step."""
        if len(world.requests) >= self.asks_max:
            return
        row, number = world.row, len(world.requests)
        for command in self.asks:
            target = TASK.target(row.state, command)
            if target is None or row.state in commands._ALREADY.get(command, ()):
                continue
            requests = [*world.requests, Request(command)]
            after = row._replace(state=target)
            if command == "modify":
                after = after._replace(mailbox=(number,), prev=row.prev or str(row.state))
                superseded = row.mailbox  # one parameter only, so that a later request leaves nothing of an earlier one
            else:
                superseded = tuple(n for n, r in enumerate(world.requests) if not r.outcome and r.command in commands._SUPERSEDES[command])
                if command == "cancel":
                    after = after._replace(mailbox=(), prev="")
            for n in superseded:
                requests[n] = _answered(requests[n], SUPERSEDED)
            yield Step(f"person: {command} -> {target}", _written(world, after, requests=tuple(requests)))

    def _nodes(self, world: World) -> Iterator[Step[World]]:
        match world.node:
            case "idle":
                if world.row.state is T.RUNNING and world.subtask is S.PENDING:
                    yield Step("node: looks", world._replace(node="looked"))
            case "looked":
                broken = "a body begins while paused" if world.row.state is T.PAUSED else None
                begun = SUBTASK.target(S.PENDING, "start")
                yield Step("node: starts", world._replace(node="body", subtask=begun), broken)
            case "late":
                yield Step("node: is told that it came late", world._replace(node="idle"))
            case "body" | "lost":
                yield from self._body(world)

    def _body(self, world: World) -> Iterator[Step[World]]:
        lost = world.node == "lost"
        for event in ("succeed", "fail") if self.may_fail else ("succeed",):
            if lost and self.attempt_checked:
                continue
            broken = "a lost attempt commits" if lost else None
            target = SUBTASK.target(S.RUNNING, event)
            yield Step(f"node: {event}", world._replace(node="idle", subtask=target), broken)
        if lost:
            yield Step("node: is told that it lost the subtask", world._replace(node="idle"))
        if world.crashes < self.crashes_max and not lost:
            rescued = SUBTASK.target(S.RUNNING, "rescue")
            yield Step("node: dies, is rescued", world._replace(node="idle", subtask=rescued, crashes=world.crashes + 1))

    def _owner(self, world: World, owner: int, copy: Copy | None) -> Iterator[Step[World]]:
        if copy is None:
            if world.row.state not in TASK.final:
                yield Step(f"owner {owner}: reads {world.row.state}", _with_copy(world, owner, Copy(world.row)))
            return
        if world.crashes < self.crashes_max:
            yield Step(f"owner {owner}: dies", _with_copy(world._replace(crashes=world.crashes + 1), owner, None))
        label = f"owner {owner}: writes after {copy.row.state}"
        try:
            after = self._write(_with_copy(world, owner, None), copy)
        except Broken as broken:
            yield Step(label, world, str(broken))
        else:
            yield Step(label, after)

    # ── the owner's write ─────────────────────────────────────────────────────────────────────────────────────────

    def _write(self, world: World, copy: Copy) -> World:
        """What the scheduler does about the state it read; one transaction, so all of it or nothing."""
        event, subtask = _decide(copy.row, world.subtask, "await" if self.manual_recovery else "revert")
        if event is None:
            return world
        lost = {"rev": not copy.fresh, "state": world.row.state is not copy.row.state, "blind": world.row.state in TASK.final}[self.guard]
        if lost:
            return world
        target = TASK.target(copy.row.state, event)
        if target is None:
            raise Broken(f"the table has no move {copy.row.state} {event}")
        if TASK.target(world.row.state, event) is not target:
            raise Broken(f"{world.row.state} is overwritten by {target}")
        after = copy.row._replace(state=target)
        requests = list(world.requests)
        if event in ("paused", "resumed") or event.startswith("modified_"):
            for number in copy.row.mailbox:
                requests[number] = _answered(requests[number], APPLIED)
            value = copy.row.mailbox[-1] if copy.row.mailbox else copy.row.value
            after = after._replace(mailbox=(), prev="", value=value)
        ends = {"paused": "pause", "resumed": "resume"}.get(event)
        for number, request in enumerate(requests):
            if request.outcome is None and (request.command == ends or target in TASK.final):
                requests[number] = _answered(request, APPLIED if request.command in (ends, "cancel") else FAILED)
        return _written(world, after, requests=tuple(requests), subtask=subtask)


def _decide(seen: Row, subtask: SubtaskState | None, on_failure: str) -> tuple[str | None, SubtaskState | None]:
    """Return the event that the scheduler takes in this state, and what becomes of the subtask with it."""
    match seen.state:
        case T.PENDING:
            return "start", S.PENDING
        case T.RUNNING if subtask is None:
            return "advance", S.PENDING
        case T.RUNNING if subtask is S.SUCCEED:
            return "succeed", subtask
        case T.RUNNING if subtask in (S.FAILED, S.CANCELED):
            return on_failure, subtask
        case T.PAUSING:
            return "paused", _moved(subtask, "pause")
        case T.RESUMING:
            return "resumed", _moved(_moved(subtask, "resume"), "retry")
        case T.MODIFYING:
            return f"modified_{seen.prev}", subtask
        case T.CANCELLING:
            return "revert", subtask
        case T.REVERTING:
            return "reverted", _moved(subtask, "cancel")
    return None, subtask


def _moved(subtask: SubtaskState | None, event: str) -> SubtaskState | None:
    """Where the subtask goes if the event is possible for it."""
    target = None if subtask is None else SUBTASK.target(subtask, event)
    return subtask if target is None else target


def _answered(request: Request, outcome: str) -> Request:
    if request.outcome is not None:
        raise Broken(f"a {request.command} has a second outcome")
    return request._replace(outcome=outcome)


def _written(world: World, row: Row, *, requests: tuple[Request, ...], subtask: SubtaskState | str | None = "as it is") -> World:
    """The row was written: every other copy is stale; a node whose subtask was taken from it is late or lost."""
    stale = tuple(None if copy is None else copy._replace(fresh=False) for copy in world.owners)
    after = world._replace(row=row, owners=stale, requests=requests)
    if subtask == "as it is" or subtask is world.subtask:
        return after
    node = {"looked": "late", "body": "lost"}.get(world.node, world.node)
    return after._replace(subtask=subtask, node=node)


def _with_copy(world: World, owner: int, copy: Copy | None) -> World:
    owners = list(world.owners)
    owners[owner] = copy
    return world._replace(owners=tuple(owners))
