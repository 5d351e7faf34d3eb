"""Drives every task on the owner: one decision per task and tick, each a single guarded transaction.

It is level-triggered: it reads the row, does what its state asks for, and starts again at the next tick. Losing a
compare-and-set is normal: somebody's command came first, and the next tick obeys it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any

from tideshift import errors
from tideshift.dxf import points, tables
from tideshift.dxf.machine import SubtaskState, TaskState
from tideshift.dxf.parameters import FRAMEWORK_TYPES, pending_mailbox
from tideshift.dxf.task import DONE, Subtask, Task
from tideshift.dxf.tasktype import Registry
from tideshift.store import events
from tideshift.store.database import Database, Transaction
from tideshift.store.lease import Tenure

__all__ = ["Scheduler"]

log = logging.getLogger(__name__)
_S = SubtaskState
_CANCELLED = {"code": "cancelled", "message": "the task was cancelled", "hint": "", "fields": {}}


class Scheduler:
    """The duty that moves tasks."""

    def __init__(self, database: Database, registry: Registry) -> None:
        self.database = database
        self.registry = registry
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
        moved = False
        for task in tasks:
            if points.AFTER_TASK_READ.on:
                points.AFTER_TASK_READ.fire(task=task.id, state=str(task.state))
            try:
                if task.type not in self.registry:
                    moved |= self._unknown(task, tenure)
                else:
                    moved |= self.by_state[task.state](task, tenure)
            except (errors.StateChanged, errors.Retryable, errors.AmbiguousCommit) as error:
                log.info("task %s: looked at again after %s", task.id, error)
                moved = True
        return moved

    def _rest(self, task: Task, tenure: Tenure) -> bool:
        return False

    def _unknown(self, task: Task, tenure: Tenure) -> bool:
        """Leave a type to nodes that know it; fail it only when none took it for a long time."""
        with self.database.transaction(write=False) as tx:
            waited_seconds = (tx.now_ms() - task.state_update_time) / 1000
        if waited_seconds < self.database.profile.unknown_type_patience_seconds or task.state not in (TaskState.PENDING, TaskState.RUNNING):
            return False
        error = {"code": "unknown_type", "message": f"no node knows the task type {task.type!r}", "hint": "", "fields": {}}
        with self.database.transaction() as tx:
            self._move(tx, task, "fail", tenure, error=error)
        return True

    def _move(self, tx: Transaction, task: Task, event: str, tenure: Tenure, **columns: Any) -> Task:
        moved = tables.move_task(tx, task, event, actor=tenure.owner_id, tenure=tenure, **columns)
        if not moved_on(moved):
            for request in events.open_requests(tx, task_id=task.id):
                events.conclude(tx, request.request_id, _outcome_at_end(request.command, moved.state), reason=f"task ended as {moved.state}")
        return moved

    def _plan_next(self, task: Task, tenure: Tenure) -> bool:
        """Plan the next step that has subtasks; an empty plan is a step that is skipped."""
        task_type = self.registry.find(task.type)
        step = task_type.next_step(task)
        if step == DONE:
            with self.database.transaction() as tx:
                self._move(tx, task, "succeed", tenure, step=DONE)
            return True
        try:
            with self.database.transaction(write=False) as tx:
                metas = task_type.plan(tx, task, step)
        except (errors.Retryable, errors.StateChanged):
            raise
        except errors.TideshiftError as error:
            return self._give_up(task, tenure, error.as_record())
        if points.AFTER_PLANNING.on:
            points.AFTER_PLANNING.fire(task=task.id, step=step)
        with self.database.transaction() as tx:
            event = "start" if task.state is TaskState.PENDING else "advance"
            moved = self._move(tx, task, event, tenure, step=step)
            tables.insert_subtasks(tx, moved, step, metas)
        return True

    def _give_up(self, task: Task, tenure: Tenure, error: dict[str, Any] | None) -> bool:
        with self.database.transaction() as tx:
            event = "await" if task.extra_params.get("manual_recovery") and task.state is TaskState.RUNNING else "revert"
            self._move(tx, task, event, tenure, error=task.error or error)
        return True

    def _running(self, task: Task, tenure: Tenure) -> bool:
        with self.database.transaction(write=False) as tx:
            subtasks = tables.subtasks_of(tx, task.id, step=task.step)
        broken = [subtask for subtask in subtasks if subtask.state in (_S.FAILED, _S.CANCELED)]
        if broken:
            return self._give_up(task, tenure, next((s.error for s in broken if s.error), _CANCELLED))
        if all(subtask.state is _S.SUCCEED for subtask in subtasks):
            return self._plan_next(task, tenure)
        return False

    def _pausing(self, task: Task, tenure: Tenure) -> bool:
        """Pause what is active; a running attempt ends at its next commit, whose guard then fails."""
        with self.database.transaction() as tx:
            for subtask in self._in_states(tx, task, (_S.PENDING, _S.RUNNING)):
                tables.move_subtask(tx, subtask, "pause", actor=tenure.owner_id, tenure=tenure, exec_id=None, session=None)
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
        """Take the move and apply what waits in the mailbox with it: absolute values, so doing it twice is doing it once."""
        waiting = pending_mailbox(task)
        refused: errors.InvalidParameter | None = None
        for modification in waiting:
            if modification["type"] == "modify_concurrency":
                columns["concurrency"] = modification["to"]
            elif modification["type"] == "modify_max_node_count":
                columns["max_node_count"] = modification["to"]
        own = [modification for modification in waiting if modification["type"] not in FRAMEWORK_TYPES]
        if own:
            try:
                columns["meta"] = self.registry.find(task.type).modify(task.meta, own)
            except errors.InvalidParameter as error:
                refused = error
        tables.move_task(tx, task, event, actor=tenure.owner_id, tenure=tenure, modify_params=None, **columns)
        for request_id in sorted({modification["request_id"] for modification in waiting}):
            if refused is None:
                events.conclude(tx, request_id, events.Outcome.APPLIED)
            else:
                events.conclude(tx, request_id, events.Outcome.FAILED, reason=refused.message)

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
        with self.database.transaction() as tx:
            self.registry.find(task.type).revert(tx, task)
            self._move(tx, task, "reverted", tenure)
        return True

    def _in_states(self, tx: Transaction, task: Task, states: tuple[SubtaskState, ...]) -> list[Subtask]:
        return [subtask for subtask in tables.subtasks_of(tx, task.id, step=task.step) if subtask.state in states]


def moved_on(task: Task) -> bool:
    """Whether the task still lives."""
    return task.state not in (TaskState.SUCCEED, TaskState.FAILED, TaskState.REVERTED)


def _outcome_at_end(command: str, state: TaskState) -> events.Outcome:
    if command == "cancel" and state is TaskState.REVERTED:
        return events.Outcome.APPLIED
    return events.Outcome.FAILED


def _conclude(tx: Transaction, task: Task, command: str) -> None:
    for request in events.open_requests(tx, task_id=task.id, commands=(command,)):
        events.conclude(tx, request.request_id, events.Outcome.APPLIED)
