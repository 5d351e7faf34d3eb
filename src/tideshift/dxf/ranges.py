"""Key ranges as units of work: a cursor through one range, and the control of chunk sizes. Pure, for any task type."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tideshift.store.keys import Bound, KeyRange

__all__ = ["ChunkControl", "Cursor"]


@dataclass
class ChunkControl:
    """How many rows the next chunk may hold, so that one chunk takes about the target time.

    It grows by at most a half and shrinks by at most two thirds, since one slow chunk may be the machine's fault; a chunk
    never holds less than `rows_min` or more than `rows_max`.
    """

    target_seconds: float
    rows_min: int = 16
    rows_start: int = 200
    rows: int = field(init=False)

    def __post_init__(self) -> None:
        self.rows = self.rows_start

    def next_rows(self, *, rows_max: int) -> int:
        """Return the size of the next chunk."""
        return max(1, min(self.rows, rows_max))

    def observe(self, *, rows: int, seconds: float) -> None:
        """Learn from a chunk that held `rows` rows for `seconds`; an empty one teaches nothing."""
        if rows <= 0:
            return
        fitting = rows * self.target_seconds / max(seconds, 1e-6)
        self.rows = max(self.rows_min, int(min(max(fitting, self.rows / 3), self.rows * 1.5)))


@dataclass(frozen=True)
class Cursor:
    """Where a subtask is in its range: everything up to and including `done` is committed."""

    range: KeyRange
    done: Bound | None
    finished: bool

    @classmethod
    def of(cls, meta: Mapping[str, Any], checkpoint: Mapping[str, Any]) -> Cursor:
        """Read the cursor of a subtask from its range and its checkpoint."""
        return cls(KeyRange.from_record(dict(meta["range"])), checkpoint.get("done"), bool(checkpoint.get("finished")))

    @property
    def rest(self) -> KeyRange:
        """Return the part of the range that is not done."""
        return KeyRange(self.done if self.done is not None else self.range.low, self.range.high)

    def advanced(self, last: Bound | None) -> Cursor:
        """Return the cursor after a chunk: at `last`, or at the end when the chunk found no further row."""
        return Cursor(self.range, self.done if last is None else last, last is None)

    def as_checkpoint(self) -> dict[str, Any]:
        """Give the stored form."""
        return {"done": self.done, "finished": self.finished}
