"""The machine of a job: TiDB's job states, schema states, and every move of a job.

The point of no return is a column (`revertible`), not a state: the owner's `commit_to` clears it before a statement that
cannot be undone, `give_up` sets it again when the attempt left nothing behind. A cancel or pause is refused by the
command while it is cleared. There is no move from `cancelling` back to `running`: an accepted cancel is never dropped.
"""

from __future__ import annotations

from enum import StrEnum

from tideshift.fsm import Actor, Machine, Move

__all__ = ["JOB", "JobState", "SchemaState"]


class JobState(StrEnum):
    """The states of a job, spelt as in TiDB (`rollback done` with a blank)."""

    QUEUEING = "queueing"
    RUNNING = "running"
    PAUSING = "pausing"
    PAUSED = "paused"
    CANCELLING = "cancelling"
    ROLLINGBACK = "rollingback"
    ROLLBACK_DONE = "rollback done"
    CANCELLED = "cancelled"
    DONE = "done"
    SYNCED = "synced"


class SchemaState(StrEnum):
    """How far the new element is visible to readers and writers."""

    NONE = "none"
    DELETE_ONLY = "delete only"
    WRITE_ONLY = "write only"
    WRITE_REORGANIZATION = "write reorganization"
    DELETE_REORGANIZATION = "delete reorganization"
    PUBLIC = "public"


_J = JobState
_USER, _OWNER = Actor.USER, Actor.OWNER

JOB: Machine[JobState] = Machine(
    "ddl job",
    _J.QUEUEING,
    (
        Move(_J.QUEUEING, "start", _J.RUNNING, _OWNER, "no live or earlier job meets its objects"),
        Move(_J.QUEUEING, "abandon", _J.CANCELLED, _OWNER, "it cannot be done, and nothing was made"),
        Move(_J.QUEUEING, "hold", _J.PAUSED, _OWNER, "paused by the system; the reason is on the row"),
        Move(_J.RUNNING, "step", _J.RUNNING, _OWNER, "a stage is finished, or an error was counted"),
        Move(_J.RUNNING, "commit_to", _J.RUNNING, _OWNER, "the point of no return, ahead of a statement that cannot be undone"),
        Move(_J.RUNNING, "give_up", _J.RUNNING, _OWNER, "the attempt failed and left nothing; it can be undone again"),
        Move(_J.RUNNING, "hold", _J.PAUSED, _OWNER, "paused by the system; the reason is on the row"),
        Move(_J.RUNNING, "abandon", _J.CANCELLED, _OWNER, "it failed before anything was made"),
        Move(_J.RUNNING, "fail", _J.ROLLINGBACK, _OWNER, "it failed and what was made must go"),
        Move(_J.RUNNING, "lose_capture", _J.PAUSED, _OWNER, "room ran short: writes are recorded no more, and the copy starts again on resume"),
        Move(_J.PAUSED, "lose_capture", _J.PAUSED, _OWNER, "as above, while it was paused"),
        Move(_J.PAUSED, "fail", _J.ROLLINGBACK, _OWNER, "what captures its writes is broken, or a write cannot be carried"),
        Move(_J.RUNNING, "finish", _J.DONE, _OWNER, "the swap, or the last change, is committed"),
        Move(_J.DONE, "verify", _J.DONE, _OWNER, "a stage after the swap is finished, or an error was counted"),
        Move(_J.DONE, "sync", _J.SYNCED, _OWNER, "everything after the swap is verified; the job goes to the history"),
        Move(_J.QUEUEING, "pause", _J.PAUSING, _USER, "asked before it started"),
        Move(_J.RUNNING, "pause", _J.PAUSING, _USER, "asked while running"),
        Move(_J.PAUSING, "paused", _J.PAUSED, _OWNER, "none of its tasks is active"),
        Move(_J.PAUSED, "resume", _J.QUEUEING, _USER, "asked while paused"),
        Move(_J.QUEUEING, "cancel", _J.CANCELLING, _USER, "asked before it started"),
        Move(_J.RUNNING, "cancel", _J.CANCELLING, _USER, "asked while running"),
        Move(_J.PAUSING, "cancel", _J.CANCELLING, _USER, "a cancel is stronger than a pause"),
        Move(_J.PAUSED, "cancel", _J.CANCELLING, _USER, "asked while paused"),
        Move(_J.CANCELLING, "undo", _J.ROLLINGBACK, _OWNER, "its tasks are final and what was made must go"),
        Move(_J.CANCELLING, "cancelled", _J.CANCELLED, _OWNER, "its tasks are final and nothing was made"),
        Move(_J.ROLLINGBACK, "unwind", _J.ROLLINGBACK, _OWNER, "a stage is undone, or an error was counted"),
        Move(_J.ROLLINGBACK, "undone", _J.ROLLBACK_DONE, _OWNER, "nothing that it made is left"),
        Move(_J.QUEUEING, "alter", _J.QUEUEING, _USER, "other parameters are wished"),
        Move(_J.RUNNING, "alter", _J.RUNNING, _USER, "other parameters are wished"),
        Move(_J.PAUSING, "alter", _J.PAUSING, _USER, "other parameters are wished"),
        Move(_J.PAUSED, "alter", _J.PAUSED, _USER, "other parameters are wished"),
    ),
    final=(_J.ROLLBACK_DONE, _J.CANCELLED, _J.SYNCED),
)
