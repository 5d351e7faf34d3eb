"""Seeing that rows which refer to one another still do so in the new shape: a few at a time, reading only."""

from __future__ import annotations

from tideshift.ddl.dialect import Dialect
from tideshift.ddl.reshaping import Reorg
from tideshift.dxf.ranges import ChunkControl
from tideshift.dxf.tasktype import Context

__all__ = ["ReferencesWork"]


class ReferencesWork:
    """One walk over every reference that the change touches, before the swap or after it."""

    def __init__(self, dialect: Dialect, reorg: Reorg, *, swapped: bool) -> None:
        self.dialect = dialect
        self.reorg = reorg
        self.swapped = swapped
        self.control = ChunkControl(target_seconds=dialect.capabilities.chunk_target_seconds)

    def step(self, context: Context) -> bool:
        """Look at the next rows."""
        seen = context.subtask.checkpoint.get("seen")
        rows_max = self.control.next_rows(rows_max=context.limits.batch_size_rows, seconds_max=context.limits.chunk_seconds_max)
        clock = context.database.clock
        with context.chunk(write=False) as chunk:
            begun = clock.monotonic()
            came = self.dialect.shadow.see_references(chunk.tx, self.reorg, seen, rows_max=rows_max, swapped=self.swapped)
            chunk.checkpoint = {"seen": came}
            self.control.observe(rows=rows_max, seconds=clock.monotonic() - begun)
        return came is not None
