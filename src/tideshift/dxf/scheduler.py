"""Drives every task on the owner: one decision per task and tick, each a single guarded transaction.

It is level-triggered: it reads the row, does what its state asks for, and starts again at the next tick. Losing a
compare-and-set is normal: somebody's command came first, and the next tick obeys it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from tideshift import errors
from tideshift.dxf import balancer, points, tables
from tideshift.dxf.machine import TASK, SubtaskState, TaskState
from tideshift.dxf.parameters import FRAMEWORK_COLUMNS, FRAMEWORK_TYPES, pending_mailbox
from tideshift.dxf.planner import Planner
from tideshift.dxf.task import DONE, INIT, Subtask, Task
from tideshift.dxf.tasktype import Registry
from tideshift.store import events
from tideshift.store.database import Database, Transaction
from tideshift.store.lease import Tenure

__all__ = ["Scheduler"]

log = logging.getLogger(__name__)
_S = SubtaskState
REVERT_ERROR = "revert_error"
"""Where `extra_params` says why a task that is reverting does not end."""
_CANCELLED = {"code": "cancelled", "message": "the task was cancelled", "hint": "", "fields": {}}


class Scheduler:
    """The duty that moves tasks."""

    def __init__(self, database: Database, registry: Registry) -> None:
        self.database = database
        self.registry = registry
        self.planner = Planner(database, registry)
        self._hastened: dict[int, float] = {}
        self.planned: Callable[[], object] | None = None
        """Called when a step's subtasks are committed, so that a node of this process need not wait for its next look."""
        self.by_state: Mapping[TaskState, Callable[[Task, Tenure], bool]] = {
            TaskState.PENDING: self._plan_next,
            TaskState.RUNNING: self._running,
            TaskState.PAUSING: self._pausing,
            TaskState.PAUSED: self._rest,
            TaskState.RESUMING: self._resuming,
            TaskState.MODIFYING: self._modifying,
            TaskState.CANCELLING: self._cancelling,
            TaskState.REVERTING: self._reverting,
            TaskState.AWAITING_RESOLUTION: self._rest,
        }

    def tick(self, tenure: Tenure) -> bool:
        """Look at every live task once; return whether anything was moved."""
        with self.database.transaction(write=False) as tx:
            tasks = tables.live_tasks(tx)
        self.planner.keep_only({(task.id, task.rev) for task in tasks if task.state in (TaskState.PENDING, TaskState.RUNNING)})
        moved = False
        for task in tasks:
            if not self._is_hastened(task):
                moved |= self._drive(task, tenure, self.by_state[task.state])
        self._hastened = {task.id: self._hastened[task.id] for task in tasks if task.id in self._hastened}
        return moved

    def hasten(self, task_id: int, tenure: Tenure) -> bool:
        """Look at one running task now; return whether it went on to another step: who waits for its end is to look as soon as it has ended."""
        with self.database.transaction(write=False) as tx:
            task = tables.task_by_id(tx, task_id)
            if task.state is not TaskState.RUNNING or task.type not in self.registry:
                return False
            telling = tables.telling_subtasks(tx, task)
        self._hastened[task_id] = self.database.clock.monotonic()
        if not self._drive(task, tenure, lambda *_: self._go_on(task, tenure, telling, at_once=True)):
            return False
        with self.database.transaction(write=False) as tx:
            return tables.task_by_id(tx, task_id).state is TaskState.RUNNING

    def _is_hastened(self, task: Task) -> bool:
        """Whether a running task was looked at just now by who finished a piece of it: a second look at the same time would only get in its way."""
        since = self.database.clock.monotonic() - self._hastened.get(task.id, float("-inf"))
        return task.state is TaskState.RUNNING and since < self.database.profile.scan_seconds / 2

    def _drive(self, task: Task, tenure: Tenure, step: Callable[[Task, Tenure], bool]) -> bool:
        if points.AFTER_TASK_READ.on:
            points.AFTER_TASK_READ.fire(task=task.id, state=str(task.state))
        try:
            if task.type not in self.registry:
                return self._unknown(task, tenure)
            return step(task, tenure)
        except errors.StateChanged as error:
            log.info("task %s: looked at again: %s", task.id, error)
            return True
        except (errors.Retryable, errors.AmbiguousCommit, errors.DiskFull) as error:
            log.info("task %s: at the next tick again: %s", task.id, error)
        except Exception:
            # One task that cannot be driven must not keep the others from their work; it is looked at again at the next tick.
            log.exception("task %s failed in state %s", task.id, task.state)
        return False

    def _rest(self, task: Task, tenure: Tenure) -> bool:
        return False

    def _unknown(self, task: Task, tenure: Tenure) -> bool:
        """Leave a type to owners that know it; one that none began for a long time fails, and one that is not begun can be cancelled."""
        if task.step == INIT and task.state in (TaskState.CANCELLING, TaskState.REVERTING):
            return self.by_state[task.state](task, tenure)
        if task.state is not TaskState.PENDING:
            return False
        with self.database.transaction(write=False) as tx:
            waited_seconds = (tx.now_ms() - task.state_update_time) / 1000
        if waited_seconds < self.database.profile.unknown_type_patience_seconds:
            return False
        error = errors.UnknownTaskType(f"no node knows the task type {task.type!r}", task_type=task.type)
        with self.database.transaction() as tx:
            self._move(tx, task, "fail", tenure, error=error.as_record())
        return True

    def _move(self, tx: Transaction, task: Task, event: str, tenure: Tenure, **columns: Any) -> Task:
        moved = tables.move_task(tx, task, event, actor=tenure.owner_id, tenure=tenure, **columns)
        if moved.state in TASK.final:
            clean = getattr(self.registry.find(task.type), "clean", None) if task.type in self.registry else None
            if clean is not None:
                clean(tx, moved)  # in the transaction of the end: done if and only if the task has ended
            for request in events.open_requests(tx, task_id=task.id):
                events.conclude(tx, request.request_id, _outcome_at_end(request.command, moved.state), reason=f"task ended as {moved.state}")
        return moved

    def _plan_next(self, task: Task, tenure: Tenure, *, at_once: bool = False) -> bool:
        """Go on to the next step that has subtasks, once it is planned."""
        try:
            plan = self.planner.plan(task, at_once=at_once)
        except (errors.Retryable, errors.StateChanged, errors.AmbiguousCommit, errors.CannotReach, errors.DiskFull):
            raise
        except Exception as error:  # noqa: BLE001 - whatever a type raises is the task's failure, and stands on its row
            return self._give_up(task, tenure, _record_of(error))
        if plan is None:
            return False
        if plan.step == DONE:
            with self.database.transaction() as tx:
                self._move(tx, task, "succeed", tenure, step=DONE)
            return True
        if points.AFTER_PLANNING.on:
            points.AFTER_PLANNING.fire(task=task.id, step=plan.step)
        with self.database.transaction() as tx:
            event = "start" if task.state is TaskState.PENDING else "advance"
            moved = self._move(tx, task, event, tenure, step=plan.step)
            given = balancer.spread(moved, len(plan.metas), plan.nodes, threads_max=self._threads_max)
            tables.insert_subtasks(tx, moved, plan.step, plan.metas, nodes=given)
        if self.planned is not None:
            self.planned()
        return True

    @property
    def _threads_max(self) -> int | None:
        return None if self.database.driver.capabilities.concurrent_writers else 1

    def _give_up(self, task: Task, tenure: Tenure, error: dict[str, Any] | None) -> bool:
        with self.database.transaction() as tx:
            event = "await" if task.extra_params.get("manual_recovery") and task.state is TaskState.RUNNING else "revert"
            self._move(tx, task, event, tenure, error=task.error or error)
        return True

    def _running(self, task: Task, tenure: Tenure) -> bool:
        with self.database.transaction(write=False) as tx:
            telling = tables.telling_subtasks(tx, task)
        return self._go_on(task, tenure, telling)

    def _go_on(self, task: Task, tenure: Tenure, telling: list[Subtask], *, at_once: bool = False) -> bool:
        """Give up when a subtask failed (a canceled one counts as failed), plan the next step when none is left to be done."""
        broken = [subtask for subtask in telling if subtask.state in (_S.FAILED, _S.CANCELED)]
        if broken:
            return self._give_up(task, tenure, broken[0].error or _CANCELLED)
        return not telling and self._plan_next(task, tenure, at_once=at_once)

    def _pausing(self, task: Task, tenure: Tenure) -> bool:
        """Pause what is active; a running attempt ends at its next commit, whose guard then fails."""
        with self.database.transaction() as tx:
            for subtask in self._in_states(tx, task, (_S.PENDING, _S.RUNNING)):
                tables.move_subtask(tx, subtask, "pause", actor=tenure.owner_id, tenure=tenure, exec_id=None)
            self._settle_mailbox(tx, task, "paused", tenure)
            _conclude(tx, task, "pause")
        return True

    def _resuming(self, task: Task, tenure: Tenure) -> bool:
        with self.database.transaction() as tx:
            for subtask in self._in_states(tx, task, (_S.PAUSED,)):
                tables.move_subtask(tx, subtask, "resume", actor=tenure.owner_id, tenure=tenure, error=None)
            for subtask in self._in_states(tx, task, (_S.FAILED,)):
                tables.move_subtask(tx, subtask, "retry", actor=tenure.owner_id, error=None, exec_id=None, session=None)
            self._settle_mailbox(tx, task, "resumed", tenure, error=None)
            _conclude(tx, task, "resume")
        return True

    def _modifying(self, task: Task, tenure: Tenure) -> bool:
        prev_state = (task.modify_params or {}).get("prev_state", str(TaskState.RUNNING))
        with self.database.transaction() as tx:
            self._settle_mailbox(tx, task, f"modified_{prev_state}", tenure)
        return True

    def _settle_mailbox(self, tx: Transaction, task: Task, event: str, tenure: Tenure, **columns: Any) -> None:
        """Take the move and apply what waits in the mailbox with it: absolute values, so doing it twice is doing it once.

        A request is applied as a whole or, when the type refuses a value, not at all; others are not touched by that.
        """
        refused: dict[str, str] = {}
        meta = task.meta
        waiting = _by_request(pending_mailbox(task))
        for request_id, modifications in waiting.items():
            own = [modification for modification in modifications if modification["type"] not in FRAMEWORK_TYPES]
            try:
                meta = self.registry.find(task.type).modify(meta, own) if own else meta
            except Exception as error:  # noqa: BLE001 - whatever a type raises is the request's outcome
                refused[request_id] = str(_record_of(error)["message"])
                continue
            columns |= {FRAMEWORK_COLUMNS[m["type"]]: m["to"] for m in modifications if m["type"] in FRAMEWORK_TYPES}
        if meta is not task.meta:
            columns["meta"] = meta
        tables.move_task(tx, task, event, actor=tenure.owner_id, tenure=tenure, modify_params=None, **columns)
        for request_id in sorted(waiting):
            if request_id in refused:
                events.conclude(tx, request_id, events.Outcome.FAILED, reason=refused[request_id])
            else:
                events.conclude(tx, request_id, events.Outcome.APPLIED)

    def _cancelling(self, task: Task, tenure: Tenure) -> bool:
        with self.database.transaction() as tx:
            self._move(tx, task, "revert", tenure, error=task.error or _CANCELLED, modify_params=None)
        return True

    def _reverting(self, task: Task, tenure: Tenure) -> bool:
        """Cancel what is active, then let the type undo, then end; each is repeated safely after a crash."""
        with self.database.transaction() as tx:
            active = self._in_states(tx, task, (_S.PENDING, _S.RUNNING, _S.PAUSED))
            for subtask in active:
                tables.move_subtask(tx, subtask, "cancel", actor=tenure.owner_id, tenure=tenure)
        try:
            with self.database.transaction() as tx:
                if task.step != INIT:
                    self.registry.find(task.type).revert(tx, task)
                self._move(tx, task, "reverted", tenure)
        except (errors.StateChanged, errors.Retryable, errors.AmbiguousCommit, errors.CannotReach, errors.DiskFull):
            raise
        except Exception as error:
            log.exception("task %s: undoing failed and is tried again", task.id)
            return self._say_why_stuck(task, tenure, _record_of(error))
        return True

    def _say_why_stuck(self, task: Task, tenure: Tenure, record: dict[str, Any]) -> bool:
        """Write on the row why a task does not end, once per reason."""
        if task.extra_params.get(REVERT_ERROR, {}).get("message") != record["message"]:
            with self.database.transaction() as tx:
                self._move(tx, task, "revert_again", tenure, extra_params={**task.extra_params, REVERT_ERROR: record})
        return False

    def _in_states(self, tx: Transaction, task: Task, states: tuple[SubtaskState, ...]) -> list[Subtask]:
        return tables.in_states(tx, task, states)


def _record_of(error: Exception) -> dict[str, Any]:
    if isinstance(error, errors.TideshiftError):
        return error.as_record()
    return {"code": "internal", "message": repr(error), "hint": "See the log of the owner.", "fields": {}}


def _by_request(modifications: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Group what waits by its request, in the order of asking."""
    grouped: dict[str, list[dict[str, Any]]] = {}
    for modification in modifications:
        grouped.setdefault(modification["request_id"], []).append(modification)
    return grouped


def _outcome_at_end(command: str, state: TaskState) -> events.Outcome:
    if command == "cancel" and state is TaskState.REVERTED:
        return events.Outcome.APPLIED
    return events.Outcome.FAILED


def _conclude(tx: Transaction, task: Task, command: str) -> None:
    for request in events.open_requests(tx, task_id=task.id, commands=(command,)):
        events.conclude(tx, request.request_id, events.Outcome.APPLIED)
