"""Copying one key range: chunk by chunk, each with its checkpoint in the same transaction.

Writers go on meanwhile and the log grows. When it has grown long a batch of it is applied now and then, and every other
time while it stays long, so that it is bounded however long the copy takes and neither of the two starves.
"""

from __future__ import annotations

from tideshift.ddl import points
from tideshift.ddl.dialect import Dialect, Reorg
from tideshift.dxf.ranges import ChunkControl, Cursor
from tideshift.dxf.tasktype import Context

__all__ = ["CopyWork"]

LOG_ROWS_SOFT = 2_000
"""From this backlog on the log is drained between chunks."""
CHUNKS_BETWEEN_LOOKS = 16


class CopyWork:
    """The copy of one range."""

    def __init__(self, dialect: Dialect, reorg: Reorg) -> None:
        self.dialect = dialect
        self.reorg = reorg
        self.control = ChunkControl(target_seconds=dialect.capabilities.chunk_target_seconds)
        self.drain_control = ChunkControl(target_seconds=dialect.capabilities.chunk_target_seconds)
        self._chunks_to_look = CHUNKS_BETWEEN_LOOKS

    def step(self, context: Context) -> bool:
        """Copy one chunk, or drain a batch of a log that has grown long."""
        cursor = Cursor.of(context.subtask.meta, context.subtask.checkpoint)
        if cursor.finished:
            return False
        self._chunks_to_look -= 1
        if self._chunks_to_look <= 0 and self._drain_if_long(context):
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

    def _drain_if_long(self, context: Context) -> bool:
        """Apply one batch of the log when it has grown long; return whether it had."""
        shadow = self.dialect.shadow
        with context.database.transaction(write=False) as tx:
            backlog = shadow.backlog(tx, self.reorg)
        self._chunks_to_look = CHUNKS_BETWEEN_LOOKS
        if backlog < LOG_ROWS_SOFT:
            return False
        rows_max = self.drain_control.next_rows(rows_max=context.limits.batch_size_rows)
        with context.chunk() as chunk:
            batch = shadow.apply_batch(chunk.tx, self.reorg, rows_max=rows_max)
            chunk.counters = {"log_rows": batch.log_rows}
        self.drain_control.observe(rows=batch.log_rows, seconds=chunk.held_seconds)
        if backlog - batch.log_rows >= LOG_ROWS_SOFT:
            self._chunks_to_look = 2
        return True
