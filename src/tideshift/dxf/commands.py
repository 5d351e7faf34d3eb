"""What a client may ask of tasks: submit, look, pause, resume, cancel, modify.

A command is one transaction: read the row, decide, write with its `rev`. It answers per task: applied (the request is
acknowledged and recorded, and will have exactly one outcome), already so, or refused because of a named rule. Losing
the compare-and-set is answered by reading again, a bounded number of times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeVar

from tideshift import errors
from tideshift.dxf import points, tables
from tideshift.dxf.machine import TASK, TaskState
from tideshift.dxf.node_tables import drain_node
from tideshift.dxf.parameters import FRAMEWORK_COLUMNS, merge, modification_type, parse_wished, refuse_where_one_writes
from tideshift.dxf.task import Node, Subtask, Task
from tideshift.dxf.tasktype import Registry, live_parameters
from tideshift.fsm import Actor
from tideshift.store import events
from tideshift.store.database import ConstraintViolated, Database, Transaction

__all__ = ["Answer", "Dxf", "Verdict", "ask_task", "modify_task", "settled", "unsettled"]

T = TypeVar("T")
_ALREADY = {
    "pause": (TaskState.PAUSING, TaskState.PAUSED),
    "resume": (TaskState.RESUMING, TaskState.RUNNING, TaskState.PENDING),
    "cancel": (TaskState.CANCELLING, TaskState.REVERTING, TaskState.REVERTED),
}
_SUPERSEDES = {"cancel": ("pause", "resume", "modify"), "pause": ("resume",), "resume": ()}
TRIES = 5


class Verdict(StrEnum):
    """How a command was answered."""

    APPLIED = "applied"
    ALREADY = "already"
    REFUSED = "refused"
    NOT_FOUND = "not found"
    UNDECIDED = "undecided"
    """The database did not say whether it took the command: look at the job."""
    FAILED = "failed"
    """The database did not let the command be given: it is busy or out of reach."""


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The answer for one id: verdict, the rule that applies, the state seen, and the request to follow."""

    id: int
    verdict: Verdict
    reason: str
    state: str | None = None
    request_id: str | None = None
    rev: int | None = None


def settled(attempt: Callable[[], T]) -> T:
    """Try a compare-and-set command again in a new transaction, a bounded number of times.

    After a commit without a clear answer the command is given again too: a state is then found to be so already, and
    parameters are absolute values, so giving them twice is giving them once.
    """
    for left in range(TRIES - 1, -1, -1):
        try:
            return attempt()
        except (errors.StateChanged, errors.Retryable, errors.AmbiguousCommit):
            if left == 0:
                raise
    raise AssertionError("unreachable")


def unsettled(asked_id: int, error: errors.TideshiftError) -> Answer:
    """Return what is said of one id when every try ended in an error, so that the others are still asked."""
    if isinstance(error, errors.AmbiguousCommit):
        return Answer(id=asked_id, verdict=Verdict.UNDECIDED, reason=f"{error.message}: look at it")
    verdict = Verdict.FAILED if isinstance(error, errors.Retryable) else Verdict.REFUSED
    return Answer(id=asked_id, verdict=verdict, reason=f"{error.message}; asked {TRIES} times")


def ask_task(tx: Transaction, seen: Task, command: str, *, actor: str) -> Answer:
    """Put pause, resume or cancel to a task in the given transaction."""
    if seen.state in _ALREADY[command] or (command == "resume" and _modifies_running(seen)):
        return Answer(id=seen.id, verdict=Verdict.ALREADY, reason=f"it is {seen.state}", state=seen.state, rev=seen.rev)
    if TASK.target(seen.state, command) is None:
        return Answer(id=seen.id, verdict=Verdict.REFUSED, reason=_why_not(seen, command), state=seen.state, rev=seen.rev)
    if points.AFTER_COMMAND_READ.on:
        points.AFTER_COMMAND_READ.fire(task=seen.id, command=command)
    columns: dict[str, Any] = {"modify_params": None} if command == "cancel" else {}
    request_id = events.request(tx, actor=actor, command=command, task_id=seen.id)
    moved = tables.move_task(tx, seen, command, actor=actor, request_id=request_id, **columns)
    for request in events.open_requests(tx, task_id=seen.id):
        if request.command in _SUPERSEDES[command]:
            events.conclude(tx, request.request_id, events.Outcome.SUPERSEDED, reason=f"by {command}", by=request_id)
    reason = f"the task is {moved.state}"
    return Answer(id=seen.id, verdict=Verdict.APPLIED, reason=reason, state=moved.state, request_id=request_id, rev=moved.rev)


def modify_task(tx: Transaction, seen: Task, wished: dict[str, Any], *, actor: str) -> Answer:
    """Put a modification into a task's mailbox in the given transaction; the values are checked already."""
    if TASK.target(seen.state, "modify") is None:
        return Answer(id=seen.id, verdict=Verdict.REFUSED, reason=_why_not(seen, "modify"), state=seen.state, rev=seen.rev)
    if points.AFTER_COMMAND_READ.on:
        points.AFTER_COMMAND_READ.fire(task=seen.id, command="modify")
    request_id = events.request(tx, actor=actor, command="modify", task_id=seen.id, detail={"wished": wished, "before": _present(seen, wished)})
    modifications = [
        {"type": modification_type(name), "to": value, "request_id": request_id, "actor": actor} for name, value in sorted(wished.items())
    ]
    mailbox = merge(seen, modifications)
    moved = tables.move_task(tx, seen, "modify", actor=actor, request_id=request_id, modify_params=mailbox.record)
    for superseded in mailbox.superseded:
        events.conclude(tx, superseded, events.Outcome.SUPERSEDED, reason="by modify", by=request_id)
    return Answer(id=seen.id, verdict=Verdict.APPLIED, reason="in the mailbox", state=moved.state, request_id=request_id, rev=moved.rev)


def _present(seen: Task, wished: dict[str, Any]) -> dict[str, Any]:
    """Return what those parameters are now, for whoever reads the log later."""
    columns = {name: FRAMEWORK_COLUMNS.get(modification_type(name)) for name in wished}
    own = seen.meta.get("parameters", {})
    return {name: own.get(name) if column is None else getattr(seen, column) for name, column in columns.items()}


def _modifies_running(seen: Task) -> bool:
    return seen.state is TaskState.MODIFYING and (seen.modify_params or {}).get("prev_state") != TaskState.PAUSED


def _why_not(seen: Task, command: str) -> str:
    if seen.state in TASK.final:
        return f"the task is finished: {seen.state}"
    sources = ", ".join(sorted(TASK.sources(command)))
    return f"the task is {seen.state}; {command} is possible while it is {sources}"


class Dxf:
    """The commands on tasks of one database."""

    def __init__(self, database: Database, *, actor: str = "api", registry: Registry | None = None) -> None:
        self.database = database
        self.actor = actor
        self.registry = registry or Registry()

    def submit(
        self, task_type: str, key: str, meta: dict[str, Any], *, threads: int = 1, priority: int = 512, max_node_count: int = 0,
        target_scope: str = "", manual_recovery: bool = False, tx: Transaction | None = None,
    ) -> Task:  # fmt: skip
        """Submit a task; the key is the caller's idempotency key and may be used once, live or finished.

        With `tx` it is part of the caller's own transaction: the task is there when, and only if, that one commits.
        """
        framework = {"max_node_count": max_node_count, "priority": priority, "target_scope": target_scope, "threads": threads}
        checked = parse_wished(framework)

        def insert(tx: Transaction) -> Task:
            taken = tables.task_by_key(tx, key)
            if taken is not None:
                raise errors.CommandRefused(f"the key {key!r} belongs to task {taken.id}", task_id=taken.id, state=str(taken.state))
            return tables.insert_task(
                tx, key=key, task_type=task_type, meta=meta, concurrency=checked["threads"], priority=checked["priority"],
                max_node_count=checked["max_node_count"], target_scope=checked["target_scope"],
                extra_params={"manual_recovery": True} if manual_recovery else {}, actor=self.actor,
            )  # fmt: skip

        if tx is not None:
            return insert(tx)
        try:
            return self.database.run(insert)
        except ConstraintViolated:
            # Somebody else took the key between our look and our insert; now we see who.
            return self.database.run(insert)

    def show(self, task_id: int) -> Task:
        """Read a task, live or finished; raise `NotFound`."""
        return self.database.run(lambda tx: tables.task_by_id(tx, task_id), write=False)

    def subtasks(self, task_id: int) -> list[Subtask]:
        """Read a task's subtasks."""
        return self.database.run(lambda tx: tables.subtasks_of(tx, task_id), write=False)

    def tasks(self) -> list[Task]:
        """Read the live tasks in rank order."""
        return self.database.run(tables.live_tasks, write=False)

    def nodes(self) -> list[Node]:
        """Read the register of nodes, by name."""
        return self.database.run(tables.nodes, write=False)

    def drain(self, host: str) -> None:
        """Ask a node to begin nothing new, to give back what it runs between two chunks, and to end; raise `NotFound`."""
        if not self.database.run(lambda tx: drain_node(tx, host)):
            raise errors.NotFound(f"there is no node {host!r}", node=host)

    def pause(self, *task_ids: int) -> list[Answer]:
        """Ask these tasks to pause."""
        return [self._ask(task_id, lambda tx, seen: ask_task(tx, seen, "pause", actor=self.actor)) for task_id in task_ids]

    def resume(self, *task_ids: int) -> list[Answer]:
        """Ask these tasks to go on."""
        return [self._ask(task_id, lambda tx, seen: ask_task(tx, seen, "resume", actor=self.actor)) for task_id in task_ids]

    def cancel(self, *task_ids: int) -> list[Answer]:
        """Ask these tasks to end and undo."""
        return [self._ask(task_id, lambda tx, seen: ask_task(tx, seen, "cancel", actor=self.actor)) for task_id in task_ids]

    def modify(self, task_id: int, *, if_rev: int | None = None, **parameters: Any) -> Answer:
        """Ask for other parameters: threads, max_node_count, priority, target_scope, batch_size, max_write_speed, lock_share, adaptive, and the type's own."""
        if not parameters:
            raise errors.InvalidParameter("nothing to modify", hint="Name at least one parameter.")
        try:
            wished = parse_wished(parameters, live_parameters(self.registry, self.show(task_id).type))
            refuse_where_one_writes(wished, concurrent_writers=self.database.driver.capabilities.concurrent_writers)
        except errors.NotFound as error:
            return Answer(id=task_id, verdict=Verdict.NOT_FOUND, reason=error.message)

        def ask(tx: Transaction, seen: Task) -> Answer:
            if if_rev is not None and seen.rev != if_rev:
                reason = f"the task is at rev {seen.rev}, not {if_rev}"
                return Answer(id=seen.id, verdict=Verdict.REFUSED, reason=reason, state=seen.state, rev=seen.rev)
            return modify_task(tx, seen, wished, actor=self.actor)

        return self._ask(task_id, ask)

    def _ask(self, task_id: int, command: Callable[[Transaction, Task], Answer]) -> Answer:
        def attempt() -> Answer:
            with self.database.transaction() as tx:
                return command(tx, tables.task_by_id(tx, task_id))

        try:
            return settled(attempt)
        except errors.NotFound as error:
            return Answer(id=task_id, verdict=Verdict.NOT_FOUND, reason=error.message)
        except (errors.StateChanged, errors.Retryable, errors.AmbiguousCommit) as error:
            return unsettled(task_id, error)


def allowed_commands(seen: Task) -> Sequence[str]:
    """Return the commands that a person may give now."""
    return [event for event in TASK.allowed(seen.state, Actor.USER) if not (event == "resume" and _modifies_running(seen))]
