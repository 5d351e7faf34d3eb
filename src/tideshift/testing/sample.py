"""A small but complete task type: copies the rows of one table into another, then counts what arrived.

Both tables have the columns `id` (a whole number, the primary key of the source) and `n` (a whole number). The target
has no key on purpose, so that a row which is copied twice is seen. A source row whose `n` is negative is refused, which
fails its subtask until somebody corrects the row. Statements are portable, with the driver's own marks for values.
"""

# ruff: noqa: S608 - the names of both tables are given by the author of the test, quoted as the database wants it

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

from tideshift.dxf.parameters import apply_to_parameters
from tideshift.dxf.task import DONE, INIT, Subtask, Task
from tideshift.dxf.tasktype import Context, Work
from tideshift.errors import ValueRefused
from tideshift.store.database import Rows, Transaction

__all__ = ["COPY", "COUNT", "CopyRows", "CountWork", "CopyWork", "sample_meta"]

COPY, COUNT = 1, 2
ROW_BYTES = 16


def sample_meta(source: str, target: str, *, parts: int = 4, **parameters: Any) -> dict[str, Any]:
    """Return the meta of a sample task; the two tables are texts that stand in statements as they are."""
    return {"source": source, "target": target, "parts": parts, "parameters": parameters}


def _run(tx: Transaction, sql: str, *binds: Any) -> Rows:
    """Run a statement whose values are marked by `?`, with the marks that the driver wants."""
    marks = iter(tx.driver.placeholders(len(binds)))
    return tx.run_verbatim("".join(next(marks) if letter == "?" else letter for letter in sql), binds)


@dataclass
class CopyWork:
    """Copies one range of ids, after `low` up to and including `high`."""

    source: str
    target: str

    def step(self, context: Context) -> bool:
        """Copy one chunk: its rows, and how far it came, in one transaction."""
        high = context.subtask.meta["high"]
        with context.chunk() as chunk:
            done = chunk.checkpoint.get("done", context.subtask.meta["low"])
            last, rows, least = self._next(chunk.tx, done, high, context.limits.batch_size_rows)
            if rows and least < 0:
                raise ValueRefused(f"a row after id {done} has a negative n", key=last)
            if rows:
                sql = f"INSERT INTO {self.target} SELECT id, n FROM {self.source} WHERE id > ? AND id <= ?"
                _run(chunk.tx, sql, done, last)
            done = last if rows else high
            chunk.checkpoint = {"done": done}
            chunk.rows, chunk.size_bytes = rows, rows * ROW_BYTES
        return bool(done < high)

    def _next(self, tx: Transaction, done: int, high: int, rows_max: int) -> tuple[int, int, int]:
        """Return the last id, the number and the least `n` of the next rows."""
        chunk = f"SELECT id, n FROM {self.source} WHERE id > ? AND id <= ? ORDER BY id LIMIT ?"
        sql = f"SELECT coalesce(max(id), 0), count(*), coalesce(min(n), 0) FROM ({chunk}) AS chunk"
        last, rows, least = _run(tx, sql, done, high, rows_max).rows[0]
        return int(last), int(rows), int(least)


@dataclass
class CountWork:
    """Counts what arrived in one range: reads only, in one snapshot."""

    target: str

    def step(self, context: Context) -> bool:
        """Count the whole range at once."""
        meta = context.subtask.meta
        with context.chunk(write=False) as chunk:
            sql = f"SELECT count(*) FROM {self.target} WHERE id > ? AND id <= ?"
            counted = int(_run(chunk.tx, sql, meta["low"], meta["high"]).scalar())
            chunk.checkpoint = {"counted": counted}
            chunk.counters = {"counted": counted}
        return False


class CopyRows:
    """The sample task type."""

    name = "sample.copy_rows"

    def next_step(self, task: Task) -> int:
        """Return copy, then count."""
        return {INIT: COPY, COPY: COUNT, COUNT: DONE}[task.step]

    def step_name(self, step: int) -> str:
        """Name a step for people."""
        return {COPY: "copy", COUNT: "count"}.get(step, "")

    def plan(self, tx: Transaction, task: Task, step: int) -> list[dict[str, Any]]:
        """Cut the ids into adjoining ranges; an empty table needs no subtasks."""
        parts = task.meta["parts"]
        low, high = _run(tx, f"SELECT coalesce(min(id), 0), coalesce(max(id), -1) FROM {task.meta['source']}").rows[0]
        ends = [low - 1 + (high - low + 1) * part // parts for part in range(parts + 1)]
        return [{"low": after, "high": end} for after, end in itertools.pairwise(ends) if after < end]

    def open(self, task: Task, subtask: Subtask) -> Work:
        """Open the work by its step."""
        if subtask.step == COPY:
            return CopyWork(task.meta["source"], task.meta["target"])
        return CountWork(task.meta["target"])

    def modify(self, meta: dict[str, Any], modifications: list[dict[str, Any]]) -> dict[str, Any]:
        """Take over batch size, write speed and lock share."""
        return apply_to_parameters(meta, modifications)

    def revert(self, tx: Transaction, task: Task) -> None:
        """Empty the target; doing it again does nothing."""
        tx.run_verbatim(f"DELETE FROM {task.meta['target']}")
