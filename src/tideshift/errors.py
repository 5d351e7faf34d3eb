"""The errors of tideshift: one tree, each with a stable code, fields, and what to do next.

A front end turns `code`, `message`, `hint` and `fields` into its own form; nobody detects an error by its text.
`exit_code` is the command line's code for it.
"""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = [
    "AmbiguousCommit",
    "BadStatement",
    "CannotReach",
    "CommandRefused",
    "ConnectionLost",
    "DiskFull",
    "Interrupted",
    "InvalidParameter",
    "LockTimeout",
    "MoveNotAllowed",
    "NoSystemTables",
    "NotFound",
    "OldSnapshots",
    "PlanRefused",
    "Retryable",
    "SchemaChanged",
    "StateChanged",
    "SubtaskAbandoned",
    "SubtaskLost",
    "TaskFailed",
    "TideshiftError",
    "UnknownTaskType",
    "ValueRefused",
    "VersionMismatch",
    "WaitTimeout",
]


class TideshiftError(Exception):
    """Something went wrong that tideshift can name."""

    code: ClassVar[str] = "internal"
    exit_code: ClassVar[int] = 1
    default_hint: ClassVar[str] = ""

    def __init__(self, message: str, *, hint: str | None = None, **fields: Any) -> None:
        super().__init__(message)
        self.message = message
        self.hint = self.default_hint if hint is None else hint
        self.fields = fields

    def as_record(self) -> dict[str, Any]:
        """Give the form that is stored in a row and printed as JSON: code, message, hint, fields."""
        return {"code": self.code, "message": self.message, "hint": self.hint, "fields": self.fields}


class StateChanged(TideshiftError):
    """The row moved on since it was read; read it again and decide again."""

    code = "state_changed"
    exit_code = 8
    default_hint = "Look at it again and repeat the command if it is still wanted."


class MoveNotAllowed(TideshiftError):
    """The machine has no move for this event in this state."""

    code = "move_not_allowed"
    exit_code = 8


class CommandRefused(TideshiftError):
    """A user's command is not possible in the present state; the message says which rule applies."""

    code = "command_refused"
    exit_code = 8


class UnknownTaskType(TideshiftError):
    """No node that was there for a long time knows the type of a task."""

    code = "unknown_type"
    default_hint = "Start a node of the program that has this task type, then submit the task again."


class SubtaskAbandoned(TideshiftError):
    """Every node that ran this subtask died before it committed anything."""

    code = "subtask_abandoned"
    default_hint = "Look at what ended those nodes (memory, a crash of a library), then resume the task or submit it again in smaller pieces."


class SubtaskLost(TideshiftError):
    """The subtask is no longer ours: it was taken over, paused or cancelled."""

    code = "subtask_lost"
    exit_code = 8


class NotFound(TideshiftError):
    """There is no such job, task, table or column."""

    code = "not_found"
    exit_code = 4


class BadStatement(TideshiftError):
    """The statement is not understood; `position` points at the token."""

    code = "bad_statement"
    exit_code = 5


class PlanRefused(TideshiftError):
    """The change cannot be done right, and nothing was made; `reasons` lists why."""

    code = "plan_refused"
    exit_code = 5


class InvalidParameter(TideshiftError):
    """A parameter is unknown, or its value makes no sense."""

    code = "invalid_parameter"
    exit_code = 2


class CannotReach(TideshiftError):
    """The database cannot be reached or opened."""

    code = "cannot_reach"
    exit_code = 7
    default_hint = "Check the URL, that the server runs, and that you may connect."


class NoSystemTables(TideshiftError):
    """The system tables are not there yet."""

    code = "no_system_tables"
    exit_code = 8
    default_hint = "Run: tideshift init"


class VersionMismatch(TideshiftError):
    """The system tables belong to another version of tideshift."""

    code = "version_mismatch"
    exit_code = 8
    default_hint = "Run: tideshift upgrade"


class ValueRefused(TideshiftError):
    """A row's value cannot be carried into the new shape; `key` names the row."""

    code = "value_refused"
    default_hint = "Correct the row or give a USING expression that can carry it, then submit the change again."


class SchemaChanged(TideshiftError):
    """The table under change was altered, renamed or renumbered by somebody else."""

    code = "schema_changed"
    default_hint = "Nothing of the table was touched; submit the change again."


class TaskFailed(TideshiftError):
    """A task ended without success; the fields carry its first error."""

    code = "task_failed"


class Interrupted(TideshiftError):
    """The person at the terminal interrupted; the job is kept."""

    code = "interrupted"
    exit_code = 130


class WaitTimeout(TideshiftError):
    """The given time passed; the job is kept."""

    code = "wait_timeout"
    exit_code = 6


class Retryable(TideshiftError):
    """The database asked to try again: serialization failure, deadlock, or a similar passing conflict."""

    code = "retryable"
    exit_code = 7
    default_hint = "The database is busy; run the command again."


class LockTimeout(Retryable):
    """A lock was not given within the time limit."""

    code = "lock_timeout"


class OldSnapshots(Retryable):
    """The cut-over waits for transactions that began before it and could miss rows afterwards."""

    code = "old_snapshots"
    default_hint = "It goes on by itself, at the latest when the time is over. At once: tideshift set ID old_snapshots=proceed"


class ConnectionLost(Retryable):
    """The connection broke outside a commit; the transaction is gone."""

    code = "connection_lost"
    default_hint = "Look whether the database still runs and can be reached; then run the command again."


class AmbiguousCommit(TideshiftError):
    """The connection broke while a commit was under way; whether it happened must be read from the database."""

    code = "ambiguous_commit"
    exit_code = 6
    default_hint = "See what is so: tideshift jobs"


class DiskFull(TideshiftError):
    """The database has no room left."""

    code = "disk_full"
    default_hint = "Make room: what waits for it goes on by itself, and a job that is held after: tideshift resume ID"
