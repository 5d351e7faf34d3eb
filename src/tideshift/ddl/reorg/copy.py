"""Copying one key range: chunk by chunk, each with its checkpoint in the same transaction."""

from __future__ import annotations

from tideshift.ddl import points
from tideshift.ddl.dialect import Dialect, Reorg
from tideshift.dxf.ranges import ChunkControl, Cursor
from tideshift.dxf.tasktype import Context
from tideshift.store.database import Database

__all__ = ["CopyWork", "drain_if_long"]

LOG_ROWS_SOFT = 2_000
"""From this backlog on the log is drained between chunks, so that it stays short however long the copy takes."""
DRAIN_ROWS = 500


class CopyWork:
    """The copy of one range."""

    def __init__(self, dialect: Dialect, reorg: Reorg) -> None:
        self.dialect = dialect
        self.reorg = reorg
        self.control = ChunkControl(target_seconds=dialect.capabilities.chunk_target_seconds)
        self._chunks = 0

    def step(self, context: Context) -> bool:
        """Copy one chunk, or drain a batch of a log that has grown long."""
        cursor = Cursor.of(context.subtask.meta, context.subtask.checkpoint)
        if cursor.finished:
            return False
        self._chunks += 1
        if self._chunks % 16 == 0 and drain_if_long(context, self.dialect, self.reorg):
            return True
        rows_max = self.control.next_rows(rows_max=context.limits.batch_size_rows)
        clock = context.database.clock
        with context.chunk() as chunk:
            begun = clock.monotonic()
            self.dialect.shadow.check(chunk.tx, self.reorg)
            result = self.dialect.shadow.copy_chunk(chunk.tx, self.reorg, cursor.rest, rows_max=rows_max)
            if points.AFTER_COPY_CHUNK.on:
                points.AFTER_COPY_CHUNK.fire(job=self.reorg.job_id, subtask=context.subtask.id)
            advanced = cursor.advanced(result.last)
            chunk.checkpoint = advanced.as_checkpoint()
            chunk.rows, chunk.size_bytes = result.rows, result.size_bytes
            self.control.observe(rows=result.rows, seconds=clock.monotonic() - begun)
        return not advanced.finished


def drain_if_long(context: Context, dialect: Dialect, reorg: Reorg) -> bool:
    """Apply one batch of the log when it has grown long; return whether it had."""
    database: Database = context.database
    with database.transaction(write=False) as tx:
        backlog = dialect.shadow.backlog(tx, reorg)
    if backlog < LOG_ROWS_SOFT:
        return False
    with context.chunk() as chunk:
        batch = dialect.shadow.apply_batch(chunk.tx, reorg, rows_max=DRAIN_ROWS)
        chunk.counters = {"log_rows": batch.log_rows}
    return True
