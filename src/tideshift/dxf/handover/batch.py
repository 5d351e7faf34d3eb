"""What one thread of a node has claimed: subtasks that are done and not written yet, and those that wait their turn.

One transaction writes what is done and claims what comes next. Where subtasks are quick, several are claimed at a time, so
that the transaction is shared; never more than take about `BATCH_SECONDS`, so that a dead node's work is soon done again
and a pause is soon obeyed.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tideshift.dxf.task import Subtask

__all__ = ["BATCH_SECONDS", "Batch"]

BATCH_SECONDS = 0.05
GROWTH = 2


@dataclass
class Batch:
    """The claimed subtasks of one thread, but for the one that it runs."""

    size: int = 1
    """How many to claim next time."""
    begun_at: float = 0.0
    asked_at: float = 0.0
    """When the last one was done: what the commit then takes says nothing about the subtasks."""
    done: list[Subtask] = field(default_factory=list)
    waiting: list[Subtask] = field(default_factory=list)
    claiming: list[int] = field(default_factory=list)
    """What the last claim chose, noted before its commit: nobody shall take those for strays."""

    @property
    def ids(self) -> list[int]:
        """Return the subtasks that rows may say run here because of this batch."""
        return [*(one.id for one in (*self.done, *self.waiting)), *self.claiming]

    def keeps(self, now: float) -> bool:
        """Whether what is done may still wait for the next one, instead of being written at once."""
        self.asked_at = now
        return bool(self.waiting) and now - self.begun_at < BATCH_SECONDS

    def wrote(self, *, size_max: int) -> None:
        """Note that what was done is written, and learn from the time it took how many to claim next."""
        each = (self.asked_at - self.begun_at) / max(1, len(self.done))
        fitting = self.size * GROWTH if each <= 0 else int(BATCH_SECONDS / each)
        self.size = max(1, min(fitting, self.size * GROWTH, size_max))
        self.done.clear()

    def claimed(self, now: float, subtasks: list[Subtask]) -> None:
        """Take what was claimed."""
        self.begun_at = now
        self.waiting = subtasks
