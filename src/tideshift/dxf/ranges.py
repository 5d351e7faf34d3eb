"""Key ranges as units of work, for any task type: cutting a table into them, a cursor through one, the size of the next chunk.

A plan cuts the table (`cut_table`) and gives each range to a subtask (`range_meta`); the subtask's work reads where it is
(`Cursor.of`), asks for a chunk's size (`ChunkControl`), and writes the cursor that it came to as its checkpoint. Only
cutting asks the database; cursor and control are pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tideshift.store.database import Transaction
from tideshift.store.keys import Bound, KeyOrder, KeyRange

__all__ = ["Bound", "ChunkControl", "Cursor", "KeyOrder", "KeyRange", "cut_table", "range_meta"]


def cut_table(tx: Transaction, order: KeyOrder, *, parts: int, beside: KeyOrder | None = None) -> list[KeyRange]:
    """Cut a table, as it stands now, into at most `parts` adjoining ranges of about equal row counts; none for an empty one.

    The first range begins at the table's very start and the last one ends at the last key of now: rows that come behind it
    later are in no range. `beside` is the same key in another table, whose rows shall lie in the ranges too. Cut twice, a
    table that nobody wrote meanwhile gives the same ranges, as a plan must.
    """
    assert parts >= 1
    orders = [order] if beside is None else [order, beside]
    lasts = [ends[1] for ends in (one.first_and_last(tx) for one in orders) if ends is not None]
    if not lasts:
        return []
    last = lasts[-1] if order.compare(tx, lasts[0], lasts[-1]) < 0 else lasts[0]
    return order.split(tx, KeyRange(None, last), parts=parts) or [KeyRange(None, last)]


def range_meta(key_range: KeyRange) -> dict[str, Any]:
    """Return what a subtask's meta must hold for `Cursor.of` to find its range; it may hold more."""
    return {"range": key_range.as_record()}


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

    def next_rows(self, *, rows_max: int, seconds_max: float = math.inf) -> int:
        """Return the size of the next chunk, smaller in proportion where it may not last as long as the target."""
        return max(1, min(int(self.rows * min(1.0, seconds_max / self.target_seconds)), rows_max))

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
        """Read the cursor of a subtask from its meta (`range_meta`) and its checkpoint, empty where nothing is done yet."""
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
