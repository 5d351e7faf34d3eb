"""Catching up: applies the log by re-reading the source's current rows, until what is left fits into a cut-over."""

from __future__ import annotations

from tideshift.ddl import points
from tideshift.ddl.dialect import Dialect
from tideshift.ddl.reshaping import Reorg
from tideshift.dxf.ranges import ChunkControl
from tideshift.dxf.tasktype import Context

__all__ = ["CUTOVER_ROWS", "CatchUpWork"]

CUTOVER_ROWS = 200
"""A backlog of at most this many log rows is left to the drain under the cut-over's lock."""
BACKLOG_SHOWN = 2_000
"""How far the rows that wait are counted for the checkpoint, since counting them takes time under the lock."""


class CatchUpWork:
    """The catch-up of one bucket of keys."""

    def __init__(self, dialect: Dialect, reorg: Reorg) -> None:
        self.dialect = dialect
        self.reorg = reorg
        self.control = ChunkControl(target_seconds=dialect.capabilities.chunk_target_seconds, rows_start=100)

    def step(self, context: Context) -> bool:
        """Apply one batch; done when the backlog is short."""
        rows_max = self.control.next_rows(rows_max=context.limits.batch_size_rows)
        with context.chunk() as chunk:
            self.dialect.shadow.check(chunk.tx, self.reorg)
            batch = self.dialect.shadow.apply_batch(chunk.tx, self.reorg, rows_max=rows_max)
            left = self.dialect.shadow.backlog(chunk.tx, self.reorg, limit=BACKLOG_SHOWN)
            if points.AFTER_APPLY.on:
                points.AFTER_APPLY.fire(job=self.reorg.job_id, subtask=context.subtask.id)
            chunk.checkpoint, chunk.urgent = {"backlog": left}, True
            chunk.counters = {"log_rows": batch.log_rows, "log_keys": batch.keys}
        self.control.observe(rows=batch.log_rows, seconds=chunk.held_seconds)
        return left > CUTOVER_ROWS
