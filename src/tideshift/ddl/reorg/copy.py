"""Copying one key range: chunk by chunk, each with its checkpoint in the same transaction."""

from __future__ import annotations

from tideshift.ddl import points
from tideshift.ddl.dialect import Dialect, Reorg
from tideshift.ddl.reorg.drain import Drain
from tideshift.dxf.ranges import ChunkControl, Cursor
from tideshift.dxf.tasktype import Context

__all__ = ["CopyWork"]

LOG_ROWS_SOFT = 20_000
"""From this backlog on the log is drained between chunks; a key ahead of the copy is better left to it."""


class CopyWork:
    """The copy of one range."""

    def __init__(self, dialect: Dialect, reorg: Reorg) -> None:
        self.dialect = dialect
        self.reorg = reorg
        self.control = ChunkControl(target_seconds=dialect.capabilities.chunk_target_seconds)
        self.drain = Drain(dialect, reorg, rows_soft=LOG_ROWS_SOFT)

    def step(self, context: Context) -> bool:
        """Copy one chunk, or drain a batch of a log that has grown long."""
        cursor = Cursor.of(context.subtask.meta, context.subtask.checkpoint)
        if cursor.finished:
            return False
        if self.drain.step(context):
            return True
        rows_max = self.control.next_rows(rows_max=context.limits.batch_size_rows)
        with context.chunk() as chunk:
            self.dialect.shadow.check(chunk.tx, self.reorg)
            result = self.dialect.shadow.copy_chunk(chunk.tx, self.reorg, cursor.rest, rows_max=rows_max)
            if points.AFTER_COPY_CHUNK.on:
                points.AFTER_COPY_CHUNK.fire(job=self.reorg.job_id, subtask=context.subtask.id)
            advanced = cursor.advanced(result.last)
            chunk.checkpoint = advanced.as_checkpoint()
            chunk.rows, chunk.size_bytes = result.rows, result.size_bytes
        self.control.observe(rows=result.rows, seconds=chunk.held_seconds)
        return not advanced.finished
