"""What an error means for a subtask, and how long it is tried again: a budget per subtask, with back-off.

Three classes. *Cancel*: the attempt is over (taken over, paused, cancelled), which is no failure of anybody. *Retryable*: tried
again after a growing pause, until the subtask's budget is used up; a lock, a connection and room on the disk are waited
for without a limit, since they are no fault of the subtask. *Fatal*: the subtask fails at once with its record.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING

from tideshift import errors

if TYPE_CHECKING:
    from tideshift.clock import Clock
    from tideshift.config import Profile
    from tideshift.dxf.tasktype import TaskType

__all__ = ["DISK_FULL_FAILURES_SAID", "PASSING", "ErrorClass", "Retries", "error_class"]

_WAITED_FOR = (errors.ConnectionLost, errors.CannotReach, errors.LockTimeout, errors.DiskFull)
"""What is no fault of the subtask, and passes or needs a person: waited for without a limit, with back-off."""
DISK_FULL_FAILURES_SAID = 4
"""How many tries in a row a full disk may pass for a moment's trouble; then it is said where people look."""
PASSING = (errors.Retryable, errors.CannotReach, errors.DiskFull)
FIRST_SECONDS = 0.05


class ErrorClass(StrEnum):
    """What becomes of an attempt that met an error."""

    CANCEL = "cancel"
    RETRYABLE = "retryable"
    FATAL = "fatal"


def error_class(error: BaseException, task_type: TaskType) -> ErrorClass:
    """Return the class of an error; a type may have a method `is_retryable(error)` for those of its own work."""
    if isinstance(error, errors.SubtaskLost):
        return ErrorClass.CANCEL
    if isinstance(error, (*PASSING, errors.AmbiguousCommit)):
        return ErrorClass.RETRYABLE
    asked = getattr(task_type, "is_retryable", None)
    return ErrorClass.RETRYABLE if asked is not None and asked(error) else ErrorClass.FATAL


class Retries:
    """The failures of one attempt; `before` are those of earlier attempts, which stand on the row."""

    def __init__(self, clock: Clock, profile: Profile, *, before: int = 0) -> None:
        self._clock = clock
        self._profile = profile
        self._before = before
        self._in_a_row = 0
        self.counted = 0
        """How many failures of this attempt count against the budget."""
        self.disk_full = 0
        """How often in a row the disk was full."""
        self.not_before = 0.0

    @property
    def total(self) -> int:
        """Return what stands on the row when the attempt ends."""
        return self._before + self.counted

    def note(self, error: BaseException) -> bool:
        """Count a failure and back off; return False when the budget is used up."""
        self.disk_full += isinstance(error, errors.DiskFull)
        if not isinstance(error, _WAITED_FOR):
            self.counted += 1
            if self.total >= self._profile.error_count_limit:
                return False
        self.back_off()
        return True

    def back_off(self) -> None:
        """Wait longer than the last time before the next try."""
        self._in_a_row += 1
        seconds = min(FIRST_SECONDS * 2.0 ** min(self._in_a_row, 16), self._profile.retry_seconds_max)
        self.not_before = self._clock.monotonic() + seconds

    def came_on(self) -> None:
        """Note that a chunk was committed: whoever comes on has its whole budget again."""
        self._before = self.counted = self._in_a_row = self.disk_full = 0
