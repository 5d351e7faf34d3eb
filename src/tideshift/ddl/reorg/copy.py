"""Copying one key range: chunk by chunk, each with its checkpoint in the same transaction."""

from __future__ import annotations

from tideshift.ddl import points
from tideshift.ddl.dialect import Dialect
from tideshift.ddl.reorg.drain import Drain
from tideshift.ddl.reorg.room import see_room
from tideshift.ddl.reshaping import Reorg
from tideshift.dxf.ranges import ChunkControl, Cursor
from tideshift.dxf.tasktype import Context
from tideshift.errors import DiskFull

__all__ = ["CopyWork"]

class CopyWork:
    """The copy of one range."""

    def __init__(self, dialect: Dialect, reorg: Reorg) -> None:
        self.dialect = dialect
        self.reorg = reorg
        self.control = ChunkControl(target_seconds=dialect.capabilities.chunk_target_seconds, rows_start=reorg.reshaping.chunk_rows)
        self.drain = Drain(dialect, reorg, rows_soft=dialect.capabilities.copy_log_rows)

    def step(self, context: Context) -> bool:
        """Copy one chunk, or drain a batch of a log that has grown long (a key ahead of the copy is better left to it); wait where the disk has no room for a copy."""
        cursor = Cursor.of(context.subtask.meta, context.subtask.checkpoint)
        if cursor.finished:
            return False
        if self.drain.step(context):
            return True
        try:
            see_room(self.dialect)
        except DiskFull:
            self.drain.look_next()
            raise
        rows_max = self.control.next_rows(rows_max=context.limits.batch_size_rows, seconds_max=context.limits.chunk_seconds_max)
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
