"""Trying the rows of one range on the new shape, before anything is made: reads only."""

from __future__ import annotations

from tideshift.ddl.dialect import Dialect
from tideshift.ddl.reshaping import Reorg
from tideshift.dxf.ranges import ChunkControl, Cursor
from tideshift.dxf.tasktype import Context

__all__ = ["CheckRowsWork"]


class CheckRowsWork:
    """The check of one range."""

    def __init__(self, dialect: Dialect, reorg: Reorg) -> None:
        self.dialect = dialect
        self.reorg = reorg
        self.control = ChunkControl(target_seconds=dialect.capabilities.chunk_target_seconds, rows_start=reorg.reshaping.chunk_rows)

    def step(self, context: Context) -> bool:
        """Try one chunk of rows."""
        cursor = Cursor.of(context.subtask.meta, context.subtask.checkpoint)
        if cursor.finished:
            return False
        rows_max = self.control.next_rows(rows_max=context.limits.batch_size_rows, seconds_max=context.limits.chunk_seconds_max)
        clock = context.database.clock
        with context.chunk(write=False) as chunk:
            begun = clock.monotonic()
            result = self.dialect.shadow.check_rows(chunk.tx, self.reorg, cursor.rest, rows_max=rows_max)
            advanced = cursor.advanced(result.last)
            chunk.checkpoint = advanced.as_checkpoint()
            chunk.counters = {"checked": result.rows}
            self.control.observe(rows=result.rows, seconds=clock.monotonic() - begun)
        return not advanced.finished
