"""The abstract job and its task: what the DDL worker and the scheduler do, while people ask and owners come and go.

States, targets and rules are the product's: `JOB`, `TASK`, `why_not`, and what supersedes what. An owner reads a row in
one step and acts in later ones; two owners may both believe that they lead. The last stage needs a statement that
cannot be undone: either it commits with the job's move, or (`commits_alone`) by itself, between `commit_to` and
`finish`; then a statement of an attempt that was given up may still arrive, and must find nothing.

The variants: the guard of the job's write (`blind`, `state`, `rev`), whether what a job asks of its task is guarded by
the job's `rev` too (`tasks_guarded`), whether a late statement is (`attempt_guarded`), and whether a copy that starts again
waits for the task of the one that was given up for want of room (`old_ended_first`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from types import SimpleNamespace
from typing import NamedTuple

from tests.model.explore import Step
from tests.model.task_model import APPLIED, FAILED, SUPERSEDED, Broken, Request, _answered, _decide
from tideshift.ddl import commands
from tideshift.ddl.machine import JOB, JobState
from tideshift.ddl.permission import why_not
from tideshift.dxf.commands import _ALREADY as TASK_ALREADY
from tideshift.dxf.machine import TASK, SubtaskState, TaskState

J, T, S = JobState, TaskState, SubtaskState


class JobRow(NamedTuple):
    """The job's row; `wish` is the number of the alter request that set it, -1 the default."""

    state: JobState = J.QUEUEING
    stage: str = "reorganize"
    revertible: bool = True
    started: bool = False
    wish: int = -1
    attempt: int = 0


class TaskRow(NamedTuple):
    """The task's row, with its one subtask; the mailbox holds a wish."""

    state: TaskState = T.PENDING
    prev: str = ""
    mailbox: tuple[int, ...] = ()
    value: int = -1
    subtask: SubtaskState | None = None
    attempt: int = 0


class Look(NamedTuple):
    """What an owner knows: the kind (job, task, paused, fenced, swap), the row it read, and whether that is still there."""

    kind: str
    row: JobRow | TaskRow | None
    fresh: bool = True


class World(NamedTuple):
    """Everything."""

    job: JobRow
    task: TaskRow | None
    swapped: bool
    owners: tuple[Look | None, ...]
    requests: tuple[Request, ...]
    crashes: int
    shortages: int = 0


@dataclass(frozen=True, kw_only=True)
class Model:
    """The bounds of one exploration, and its guards."""

    guard: str = "rev"
    tasks_guarded: bool = True
    attempt_guarded: bool = True
    old_ended_first: bool = True
    commits_alone: bool = True
    owners: int = 1
    asks: tuple[str, ...] = ("cancel", "pause", "resume", "alter")
    asks_max: int = 2
    crashes_max: int = 1
    shortages_max: int = 0
    """How often room may run short, so that capture is given up."""
    may_fail: bool = True

    def initial(self) -> World:
        """A job that was just submitted."""
        return World(JobRow(), None, False, (None,) * self.owners, (), 0)

    # ── what is always so ─────────────────────────────────────────────────────────────────────────────────────────

    def broken_in(self, world: World) -> str | None:
        """Name the rule that this state breaks."""
        job, task = world.job, world.task
        shown = {"pause": (J.PAUSING,), "resume": (J.QUEUEING,), "cancel": (J.CANCELLING, J.ROLLINGBACK)}
        alters = [number for number, request in enumerate(world.requests) if request.command == "alter"]
        if alters and job.wish != alters[-1]:
            return "an acknowledged alter is overwritten"
        for request in world.requests:
            if request.outcome is None and job.state in JOB.final:
                return f"a {request.command} has no outcome at the end"
            if request.outcome is None and request.command in shown and job.state not in shown[request.command]:
                return f"an acknowledged {request.command} is lost"
        if world.swapped and (job.state in (J.CANCELLING, J.ROLLINGBACK, J.ROLLBACK_DONE, J.CANCELLED, J.PAUSED) or job.stage != "cut over"):
            return f"swapped, and the job is {job.state}"
        if job.state in (J.DONE, J.SYNCED) and not world.swapped:
            return "done without a swap"
        if job.state in (J.DONE, J.SYNCED) and any(request.command == "cancel" for request in world.requests):
            return "cancelled and done"
        if task is not None and job.state in JOB.final and task.state not in TASK.final:
            return "the job is final, and its task is not"
        of_now = task is not None and task.attempt == job.attempt
        if of_now and job.state is J.PAUSED and task.state not in (*TASK.final, T.PAUSED, T.MODIFYING):
            return "the job is paused, and its task is not"
        return None

    def rests(self, world: World) -> bool:
        """Whether nothing needs to follow."""
        return world.job.state in JOB.final or (world.job.state is J.PAUSED and all(r.outcome for r in world.requests))

    # ── what may happen ───────────────────────────────────────────────────────────────────────────────────────────

    def steps(self, world: World) -> Iterator[Step[World]]:
        """Yield everything that anybody may do now."""
        if world.job.state not in JOB.final:
            yield from self._asks(world)
            yield from self._node(world)
        for owner, look in enumerate(world.owners):
            if look is None:
                yield from self._reads(world, owner)
                continue
            if world.crashes < self.crashes_max:
                yield Step(f"owner {owner}: dies", _knows(world._replace(crashes=world.crashes + 1), owner, None))
            yield from self._acts(world, owner, look)

    def _asks(self, world: World) -> Iterator[Step[World]]:
        if len(world.requests) >= self.asks_max:
            return
        job, number = world.job, len(world.requests)
        seen = SimpleNamespace(state=job.state, revertible=job.revertible)
        for command in self.asks:
            if job.state in commands._ALREADY.get(command, ()) or why_not(seen, command) is not None:
                continue
            requests = [*world.requests, Request(command)]
            weaker = commands._SUPERSEDES.get(command, ("alter",))
            for n, request in enumerate(world.requests):
                if request.outcome is None and request.command in weaker:
                    requests[n] = _answered(request, SUPERSEDED)
            after = job._replace(state=JOB.target(job.state, command))
            if command == "alter":
                after = after._replace(wish=number)
                requests[number] = Request(command, None if job.started else APPLIED)
            yield Step(f"person: {command} -> {after.state}", _job_written(world, after, requests))

    def _node(self, world: World) -> Iterator[Step[World]]:
        task = world.task
        if task is None or task.state is not T.RUNNING or task.subtask is not S.PENDING:
            return
        broken = "a body begins while the job is paused" if world.job.state is J.PAUSED else None
        for subtask in (S.SUCCEED, S.FAILED) if self.may_fail else (S.SUCCEED,):
            yield Step(f"node: {subtask}", _task_written(world, task._replace(subtask=subtask)), broken)

    def _reads(self, world: World, owner: int) -> Iterator[Step[World]]:
        if world.job.state not in JOB.final:
            yield Step(f"owner {owner}: reads job {world.job.state}", _knows(world, owner, Look("job", world.job)))
        if world.task is not None and world.task.state not in TASK.final:
            yield Step(f"owner {owner}: reads task {world.task.state}", _knows(world, owner, Look("task", world.task)))

    def _acts(self, world: World, owner: int, look: Look) -> Iterator[Step[World]]:
        idle = _knows(world, owner, None)
        if look.kind == "swap":
            yield Step(f"owner {owner}: the statement fails", idle)
            if look.fresh or not self.attempt_guarded:
                yield Step(f"owner {owner}: the statement commits", idle._replace(swapped=True))
            return
        if look.kind == "job" and world.shortages < self.shortages_max and look.row.state in (J.RUNNING, J.PAUSED) and world.task is not None:
            yield from self._gives_up(idle, owner, look)
        label = f"owner {owner}: acts after {look.kind} {look.row.state}"
        act = {"job": self._job_step, "task": self._task_step, "paused": self._paused, "fenced": self._decided}[look.kind]
        try:
            after = act(idle, owner, look)
        except Broken as broken:
            yield Step(label, world, str(broken))
        else:
            yield Step(label, after)

    # ── the worker ────────────────────────────────────────────────────────────────────────────────────────────────

    def _job_step(self, world: World, owner: int, look: Look) -> World:
        """One step of the worker on the job that it read."""
        seen: JobRow = look.row
        match seen.state:
            case J.QUEUEING:
                return self._move(world, look, "start", ends="resume", started=True)
            case J.RUNNING:
                return self._run(world, owner, look)
            case J.PAUSING:
                if _live(world.task) and world.task.state is not T.PAUSED:
                    return self._ask_task(world, look, "pause")
                return _knows(world, owner, Look("paused", seen, look.fresh))
            case J.PAUSED:
                return self._hand_on(world, look)
            case J.CANCELLING | J.ROLLINGBACK if _live(world.task):
                return self._ask_task(world, look, "cancel")
            case J.CANCELLING:
                return self._move(world, look, "undo" if world.task else "cancelled")
            case J.ROLLINGBACK:
                return self._move(world, look, "undone")
            case J.DONE:
                return self._move(world, look, "sync")
        raise AssertionError(seen)

    def _gives_up(self, world: World, owner: int, look: Look) -> Iterator[Step[World]]:
        """Room is short: capture goes, the task is cancelled, and the job pauses, all at once."""
        if look.row.stage != "reorganize":
            return
        label = f"owner {owner}: gives capture up"
        try:
            moved = self._move(world, look, "lose_capture", attempt=look.row.attempt + 1)
        except Broken as broken:
            yield Step(label, world, str(broken))
            return
        if moved is world:
            return
        task = moved.task
        target = TASK.target(task.state, "cancel") if _live(task) else None
        cancelled = moved if target is None else _task_written(moved, task._replace(state=target, mailbox=()))
        yield Step(label, cancelled._replace(shortages=world.shortages + 1))

    def _run(self, world: World, owner: int, look: Look) -> World:
        seen, task = look.row, world.task
        if seen.stage == "cut over":
            return self._cut_over(world, owner, look)
        if task is not None and task.attempt != seen.attempt:
            if _live(task) and self.old_ended_first:
                return self._ask_task(world, look, "cancel")
            moved = self._move(world, look, "step")
            if moved is not world and _live(task):
                raise Broken("a copy starts again while the old one may be at work")
            return moved if moved is world else moved._replace(task=TaskRow(value=seen.wish, attempt=seen.attempt))
        if task is None:
            moved = self._move(world, look, "step")
            return moved if moved is world else moved._replace(task=TaskRow(value=seen.wish))
        if task.state is T.SUCCEED:
            return self._move(world, look, "step", stage="cut over")
        if task.state in TASK.final:
            return self._move(world, look, "fail")
        if task.state is T.PAUSED:
            return self._ask_task(world, look, "resume")
        return self._hand_on(world, look)

    def _cut_over(self, world: World, owner: int, look: Look) -> World:
        if not self.commits_alone:
            moved = self._move(world, look, "finish", revertible=False)
            return moved if moved is world else moved._replace(swapped=True)
        if look.row.revertible:
            moved = self._move(world, look, "commit_to", revertible=False)
            # The statement carries the name of this attempt; whatever an earlier attempt still sends finds nothing.
            return moved if moved is world else _knows(_fenced(moved), owner, Look("swap", None))
        return _knows(_fenced(world), owner, Look("fenced", look.row, look.fresh))

    def _decided(self, world: World, owner: int, look: Look) -> World:
        """After the fence the catalogue says what happened, once and for all."""
        if world.swapped:
            return self._move(world, look, "finish")
        return self._move(world, look, "give_up", revertible=True)

    def _paused(self, world: World, owner: int, look: Look) -> World:
        return self._move(world, look, "paused", ends="pause")

    def _move(self, world: World, look: Look, event: str, *, ends: str | None = None, **columns: object) -> World:
        seen: JobRow = look.row
        lost = {"rev": not look.fresh, "state": world.job.state is not seen.state, "blind": world.job.state in JOB.final}[self.guard]
        if lost:
            return world
        target = JOB.target(seen.state, event)
        if target is None:
            raise Broken(f"the table has no move {seen.state} {event}")
        if JOB.target(world.job.state, event) is not target:
            raise Broken(f"{world.job.state} is overwritten by {target}")
        requests = list(world.requests)
        for n, request in enumerate(requests):
            if request.outcome is None and (request.command == ends or target in JOB.final):
                done = request.command == ends or (request.command == "cancel" and target is not J.SYNCED)
                requests[n] = _answered(request, APPLIED if done else FAILED)
        return _job_written(world, seen._replace(state=target, **columns), requests)

    # ── what a job asks of its task ───────────────────────────────────────────────────────────────────────────────

    def _ask_task(self, world: World, look: Look, command: str) -> World:
        task = world.task
        target = TASK.target(task.state, command)
        if target is None or task.state in TASK_ALREADY[command] or (self.tasks_guarded and not look.fresh):
            return world
        mailbox = () if command == "cancel" else task.mailbox
        return _task_written(world, task._replace(state=target, mailbox=mailbox))

    def _hand_on(self, world: World, look: Look) -> World:
        """Put the wish into the mailbox if it is not there; answer the alters once it is in force."""
        task, wish = world.task, look.row.wish
        if self.tasks_guarded and not look.fresh:
            return world
        if _live(task) and wish not in (task.mailbox or (task.value,)):
            target = TASK.target(task.state, "modify")
            if target is None:
                return world
            return _task_written(world, task._replace(state=target, mailbox=(wish,), prev=task.prev or str(task.state)))
        if _live(task) and task.mailbox:
            return world
        requests = list(world.requests)
        for number, request in enumerate(requests):
            if request.command == "alter" and request.outcome is None:
                if _live(task) and task.value != number:
                    raise Broken("an alter is called applied before it is")
                requests[number] = _answered(request, APPLIED)
        return world._replace(requests=tuple(requests))

    def _task_step(self, world: World, owner: int, look: Look) -> World:
        """One step of the scheduler on the task that it read, always guarded by the task's rev."""
        seen: TaskRow = look.row
        event, subtask = _decide(seen, seen.subtask, "revert")
        if event is None or not look.fresh:
            return world
        target = TASK.target(seen.state, event)
        if target is None:
            raise Broken(f"the table has no move {seen.state} {event}")
        after = seen._replace(state=target, subtask=subtask)
        if event in ("paused", "resumed") or event.startswith("modified_"):
            after = after._replace(mailbox=(), prev="", value=seen.mailbox[-1] if seen.mailbox else seen.value)
        return _task_written(world, after)


def _live(task: TaskRow | None) -> bool:
    return task is not None and task.state not in TASK.final


def _knows(world: World, owner: int, look: Look | None) -> World:
    owners = list(world.owners)
    owners[owner] = look
    return world._replace(owners=tuple(owners))


def _stale(world: World, *kinds: str) -> World:
    owners = tuple(look._replace(fresh=False) if look is not None and look.kind in kinds else look for look in world.owners)
    return world._replace(owners=owners)


def _job_written(world: World, job: JobRow, requests: list[Request]) -> World:
    return _stale(world, "job", "paused", "fenced")._replace(job=job, requests=tuple(requests))


def _task_written(world: World, task: TaskRow) -> World:
    return _stale(world, "task")._replace(task=task)


def _fenced(world: World) -> World:
    """No statement that is under way finds the name it was given."""
    return _stale(world, "swap")
