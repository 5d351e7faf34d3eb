"""Drives every task on the owner: one decision per task and tick, each a single guarded transaction.

It is level-triggered: it reads the row, does what its state asks for, and starts again at the next tick. Losing a
compare-and-set is normal: somebody's command came first, and the next tick obeys it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tideshift import errors
from tideshift.dxf import points, tables
from tideshift.dxf.machine import TASK, SubtaskState, TaskState
from tideshift.dxf.parameters import FRAMEWORK_TYPES, pending_mailbox
from tideshift.dxf.task import DONE, INIT, Subtask, Task
from tideshift.dxf.tasktype import Registry
from tideshift.store import events
from tideshift.store.database import Database, Transaction
from tideshift.store.lease import Tenure

__all__ = ["Scheduler"]

log = logging.getLogger(__name__)
_S = SubtaskState
_COLUMNS = {"modify_concurrency": "concurrency", "modify_max_node_count": "max_node_count"}
REVERT_ERROR = "revert_error"
"""Where `extra_params` says why a task that is reverting does not end."""
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
            except errors.StateChanged as error:
                log.info("task %s: looked at again: %s", task.id, error)
                moved = True
            except (errors.Retryable, errors.AmbiguousCommit, errors.DiskFull) as error:
                log.info("task %s: at the next tick again: %s", task.id, error)
            except Exception:
                # One task that cannot be driven must not keep the others from their work; it is looked at again at the next tick.
                log.exception("task %s failed in state %s", task.id, task.state)
        return moved

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
            for request in events.open_requests(tx, task_id=task.id):
                events.conclude(tx, request.request_id, _outcome_at_end(request.command, moved.state), reason=f"task ended as {moved.state}")
        return moved

    def _plan_next(self, task: Task, tenure: Tenure) -> bool:
        """Plan the next step that has subtasks; an empty plan is a step that is skipped, but for the last one of a task that has not begun."""
        task_type = self.registry.find(task.type)
        metas: list[dict[str, Any]] = []
        try:
            step = task_type.next_step(task)
            while step != DONE and not metas:  # ends: each turn takes a later step
                with self.database.transaction(write=False) as tx:
                    metas = task_type.plan(tx, task, step)
                following = step if metas else task_type.next_step(replace(task, step=step))
                if following == DONE and task.state is TaskState.PENDING:
                    break
                step = following
        except (errors.Retryable, errors.StateChanged, errors.AmbiguousCommit, errors.CannotReach, errors.DiskFull):
            raise
        except Exception as error:  # noqa: BLE001 - whatever a type raises is the task's failure, and stands on its row
            return self._give_up(task, tenure, _record_of(error))
        if step == DONE:
            with self.database.transaction() as tx:
                self._move(tx, task, "succeed", tenure, step=DONE)
            return True
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
            columns |= {_COLUMNS[m["type"]]: m["to"] for m in modifications if m["type"] in FRAMEWORK_TYPES}
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
        return [subtask for subtask in tables.subtasks_of(tx, task.id, step=task.step) if subtask.state in states]


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
