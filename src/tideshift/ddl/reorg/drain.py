"""Keeping the log short while something else goes on: a batch now and then, and every other time while it stays long.

So the log is bounded however long the work takes, and neither of the two starves; where the log has become very long, the
work waits. Who must not work at all while the log is long looks before every step.
"""

from __future__ import annotations

from tideshift.ddl.dialect import Dialect
from tideshift.ddl.reshaping import Reorg
from tideshift.dxf.ranges import ChunkControl
from tideshift.dxf.tasktype import Context

__all__ = ["Drain"]

STEPS_BETWEEN_LOOKS = 16
STEPS_WHILE_LONG = 2
HARD = 2
"""From this many times the soft limit on nothing but draining is done."""


class Drain:
    """The drain beside one subtask's own work."""

    def __init__(self, dialect: Dialect, reorg: Reorg, *, rows_soft: int, steps_between_looks: int = STEPS_BETWEEN_LOOKS) -> None:
        self.dialect = dialect
        self.reorg = reorg
        self.rows_soft = rows_soft
        self.control = ChunkControl(target_seconds=dialect.capabilities.chunk_target_seconds)
        self.steps_between_looks = steps_between_looks
        self._steps_left = steps_between_looks

    def step(self, context: Context) -> bool:
        """Look now and then whether the log is long, and apply one batch of it then; return whether it did."""
        self._steps_left -= 1
        if self._steps_left > 0:
            return False
        self._steps_left = self.steps_between_looks
        shadow = self.dialect.shadow
        with context.database.transaction(write=False) as tx:
            backlog = shadow.backlog(tx, self.reorg, limit=HARD * self.rows_soft)
        if backlog < self.rows_soft:
            return False
        self._apply(context, backlog)
        return True

    def look_next(self) -> None:
        """Look at the very next step: nothing else can be done now."""
        self._steps_left = 1

    def _apply(self, context: Context, backlog: int) -> None:
        shadow = self.dialect.shadow
        rows_max = self.control.next_rows(rows_max=context.limits.batch_size_rows)
        with context.chunk() as chunk:
            shadow.check(chunk.tx, self.reorg)
            batch = shadow.apply_batch(chunk.tx, self.reorg, rows_max=rows_max)
            chunk.urgent = True
            chunk.counters = {"log_rows": batch.log_rows, "chunks": 0, "drains": 1}
        self.control.observe(rows=batch.log_rows, seconds=chunk.held_seconds)
        if backlog - batch.log_rows >= self.rows_soft:
            steps = 1 if backlog >= HARD * self.rows_soft else STEPS_WHILE_LONG
            self._steps_left = min(steps, self.steps_between_looks)
