"""The machines of task and subtask: TiDB's states, and every move between them.

A task's `modify_params` is a mailbox that is independent of the state; `modifying` is only how it is shown when nothing
stronger is asked (cancel > pause > resume > modify). So a modification is accepted in `pausing` and `resuming` too (a
move from a state to itself), and a cancel or pause is accepted during `modifying`.
"""

from __future__ import annotations

from enum import StrEnum

from tideshift.fsm import Actor, Machine, Move

__all__ = ["SUBTASK", "TASK", "SubtaskState", "TaskState"]


class TaskState(StrEnum):
    """The states of a task, spelt as in TiDB."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEED = "succeed"
    FAILED = "failed"
    REVERTING = "reverting"
    REVERTED = "reverted"
    AWAITING_RESOLUTION = "awaiting-resolution"
    CANCELLING = "cancelling"
    PAUSING = "pausing"
    PAUSED = "paused"
    RESUMING = "resuming"
    MODIFYING = "modifying"


class SubtaskState(StrEnum):
    """The states of a subtask, spelt as in TiDB (`canceled` with one l)."""

    PENDING = "pending"
    RUNNING = "running"
    SUCCEED = "succeed"
    FAILED = "failed"
    CANCELED = "canceled"
    PAUSED = "paused"


_T, _S = TaskState, SubtaskState
_USER, _OWNER, _NODE = Actor.USER, Actor.OWNER, Actor.NODE

TASK: Machine[TaskState] = Machine(
    "task",
    _T.PENDING,
    (
        Move(_T.PENDING, "start", _T.RUNNING, _OWNER, "the first step is planned, its subtasks inserted"),
        Move(_T.RUNNING, "advance", _T.RUNNING, _OWNER, "a step is finished and the next one planned"),
        Move(_T.RUNNING, "succeed", _T.SUCCEED, _OWNER, "the last step is finished"),
        Move(_T.PENDING, "fail", _T.FAILED, _OWNER, "the framework cannot run it: unknown type"),
        Move(_T.RUNNING, "fail", _T.FAILED, _OWNER, "the framework cannot run it: unknown type"),
        Move(_T.PENDING, "revert", _T.REVERTING, _OWNER, "planning the first step failed for good"),
        Move(_T.RUNNING, "revert", _T.REVERTING, _OWNER, "a subtask failed, or planning failed for good"),
        Move(_T.CANCELLING, "revert", _T.REVERTING, _OWNER, "the cancel is carried out"),
        Move(_T.AWAITING_RESOLUTION, "revert", _T.REVERTING, _OWNER, "nobody resolved it in time"),
        Move(_T.REVERTING, "revert_again", _T.REVERTING, _OWNER, "undoing failed and is tried again; the reason is on the row"),
        Move(_T.REVERTING, "reverted", _T.REVERTED, _OWNER, "no subtask is active and the type has cleaned up"),
        Move(_T.RUNNING, "await", _T.AWAITING_RESOLUTION, _OWNER, "a subtask failed and manual recovery was asked for"),
        Move(_T.PENDING, "cancel", _T.CANCELLING, _USER, "asked before it started"),
        Move(_T.RUNNING, "cancel", _T.CANCELLING, _USER, "asked while running"),
        Move(_T.AWAITING_RESOLUTION, "cancel", _T.CANCELLING, _USER, "given up by a person"),
        Move(_T.PAUSING, "cancel", _T.CANCELLING, _USER, "a cancel is stronger than a pause"),
        Move(_T.PAUSED, "cancel", _T.CANCELLING, _USER, "asked while paused"),
        Move(_T.RESUMING, "cancel", _T.CANCELLING, _USER, "asked while resuming"),
        Move(_T.MODIFYING, "cancel", _T.CANCELLING, _USER, "a cancel is stronger than a modification"),
        Move(_T.PENDING, "pause", _T.PAUSING, _USER, "asked before it started"),
        Move(_T.RUNNING, "pause", _T.PAUSING, _USER, "asked while running"),
        Move(_T.RESUMING, "pause", _T.PAUSING, _USER, "asked while resuming"),
        Move(_T.MODIFYING, "pause", _T.PAUSING, _USER, "a pause is stronger than a modification"),
        Move(_T.PAUSING, "paused", _T.PAUSED, _OWNER, "no subtask of the step is active; the mailbox is applied"),
        Move(_T.PAUSED, "resume", _T.RESUMING, _USER, "asked while paused"),
        Move(_T.MODIFYING, "resume", _T.RESUMING, _USER, "asked while a paused task is modified"),
        Move(_T.AWAITING_RESOLUTION, "resume", _T.RESUMING, _USER, "a person removed the cause"),
        Move(_T.RESUMING, "resumed", _T.RUNNING, _OWNER, "no subtask is paused any more; the mailbox is applied"),
        Move(_T.PENDING, "modify", _T.MODIFYING, _USER, "parameters asked for before it started"),
        Move(_T.RUNNING, "modify", _T.MODIFYING, _USER, "parameters asked for while running"),
        Move(_T.PAUSED, "modify", _T.MODIFYING, _USER, "parameters asked for while paused"),
        Move(_T.MODIFYING, "modify", _T.MODIFYING, _USER, "merged into the mailbox, the later value wins"),
        Move(_T.PAUSING, "modify", _T.PAUSING, _USER, "put into the mailbox, applied when paused"),
        Move(_T.RESUMING, "modify", _T.RESUMING, _USER, "put into the mailbox, applied when resumed"),
        Move(_T.MODIFYING, "modified_pending", _T.PENDING, _OWNER, "applied; it was pending"),
        Move(_T.MODIFYING, "modified_running", _T.RUNNING, _OWNER, "applied; it was running"),
        Move(_T.MODIFYING, "modified_paused", _T.PAUSED, _OWNER, "applied; it was paused"),
    ),
    final=(_T.SUCCEED, _T.FAILED, _T.REVERTED),
)

SUBTASK: Machine[SubtaskState] = Machine(
    "subtask",
    _S.PENDING,
    (
        Move(_S.PENDING, "start", _S.RUNNING, _NODE, "a node took it"),
        Move(_S.RUNNING, "succeed", _S.SUCCEED, _NODE, "all of its work is committed"),
        Move(_S.RUNNING, "fail", _S.FAILED, _NODE, "an error that a retry does not mend"),
        Move(_S.RUNNING, "release", _S.PENDING, _NODE, "the node gives it back: draining, or to be retried"),
        Move(_S.RUNNING, "rescue", _S.PENDING, _OWNER, "its node is dead and its session seen gone"),
        Move(_S.PENDING, "pause", _S.PAUSED, _OWNER, "the task is pausing"),
        Move(_S.RUNNING, "pause", _S.PAUSED, _OWNER, "the task is pausing; the attempt ends at its next commit"),
        Move(_S.PENDING, "cancel", _S.CANCELED, _OWNER, "the task is reverting"),
        Move(_S.RUNNING, "cancel", _S.CANCELED, _OWNER, "the task is reverting; the attempt ends at its next commit"),
        Move(_S.PAUSED, "cancel", _S.CANCELED, _OWNER, "the task is reverting"),
        Move(_S.PAUSED, "resume", _S.PENDING, _OWNER, "the task is resuming"),
        Move(_S.FAILED, "retry", _S.PENDING, _USER, "a person removed the cause; the task is resuming"),
    ),
    final=(_S.SUCCEED, _S.FAILED, _S.CANCELED),
)
