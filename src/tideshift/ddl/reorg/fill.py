"""Filling a new column beside the one whose place it takes, and comparing the two, range by range.

`ddl.fill` writes rows chunk by chunk, each with its checkpoint in the same transaction, and lets the room of their old
versions be used again after each range, so that the table grows by the part that is under way and not by all of itself.
`ddl.compare` reads; a row that differs is a fault of ours, since whoever writes a row gives the new column its value.
"""

from __future__ import annotations

from typing import Any

from tideshift.ddl import points
from tideshift.ddl.dialect import Dialect
from tideshift.ddl.reorg.task import reorg_of
from tideshift.ddl.reshaping import Reorg
from tideshift.dxf.parameters import apply_to_parameters
from tideshift.dxf.ranges import ChunkControl, Cursor, cut_table, range_meta
from tideshift.dxf.task import DONE, INIT, Subtask, Task
from tideshift.dxf.tasktype import Context, Work
from tideshift.errors import TaskFailed
from tideshift.store.database import Transaction

__all__ = ["FILL", "CompareType", "FillType"]

FILL = COMPARE = 1
EVIDENCE_ROWS = 5


class FillWork:
    """One range: chunk by chunk, then its old versions. A statement of it is ended on the server when the subtask is no longer wanted here."""

    interruptible = True

    def __init__(self, dialect: Dialect, reorg: Reorg) -> None:
        self.dialect = dialect
        self.reorg = reorg
        self.control = ChunkControl(target_seconds=dialect.capabilities.chunk_target_seconds, rows_start=reorg.reshaping.chunk_rows)

    def step(self, context: Context) -> bool:
        """Fill one chunk; behind the last one, tidy up."""
        cursor = Cursor.of(context.subtask.meta, context.subtask.checkpoint)
        if cursor.finished:
            return self._tidy(context, cursor)
        rows_max = self.control.next_rows(rows_max=context.limits.batch_size_rows, seconds_max=context.limits.chunk_seconds_max)
        with context.chunk() as chunk:
            result = self.dialect.in_place.fill_chunk(chunk.tx, self.reorg, cursor.rest, rows_max=rows_max)
            if points.AFTER_FILL_CHUNK.on:
                points.AFTER_FILL_CHUNK.fire(job=self.reorg.job_id, subtask=context.subtask.id)
            chunk.checkpoint = cursor.advanced(result.last).as_checkpoint()
            chunk.rows, chunk.size_bytes = result.rows, result.size_bytes
        self.control.observe(rows=result.rows, seconds=chunk.held_seconds)
        return True

    def _tidy(self, context: Context, cursor: Cursor) -> bool:
        if context.subtask.checkpoint.get("tidied"):
            return False
        if points.BEFORE_TIDY.on:
            points.BEFORE_TIDY.fire(job=self.reorg.job_id, subtask=context.subtask.id)
        begun = context.database.clock.monotonic()
        with context.alone() as session:
            self.dialect.in_place.tidy(session, self.reorg)
        if points.AFTER_TIDY.on:
            points.AFTER_TIDY.fire(job=self.reorg.job_id, subtask=context.subtask.id)
        taken_ms = round((context.database.clock.monotonic() - begun) * 1000)
        with context.chunk() as chunk:
            chunk.checkpoint = {**cursor.as_checkpoint(), "tidied": True}
            chunk.counters = {"tidy_ms": taken_ms}
        return False


class CompareWork:
    """The comparison of one range."""

    def __init__(self, dialect: Dialect, reorg: Reorg) -> None:
        self.dialect = dialect
        self.reorg = reorg
        self.control = ChunkControl(target_seconds=dialect.capabilities.chunk_target_seconds, rows_start=reorg.reshaping.chunk_rows)

    def step(self, context: Context) -> bool:
        """Compare one chunk in one snapshot."""
        cursor = Cursor.of(context.subtask.meta, context.subtask.checkpoint)
        if cursor.finished:
            return False
        rows_max = self.control.next_rows(rows_max=context.limits.batch_size_rows, seconds_max=context.limits.chunk_seconds_max)
        with context.chunk(write=False) as chunk:
            found = self.dialect.in_place.compare_chunk(chunk.tx, self.reorg, cursor.rest, rows_max=rows_max)
            if found.differing:
                raise TaskFailed(
                    f"{len(found.differing)} rows of {self.reorg.reshaping.table} have another value in the new column than they should",
                    hint="This is a fault of tideshift: nothing was changed. Please report it with the event log of the job.",
                    keys=list(found.differing[:EVIDENCE_ROWS]),
                )
            cursor = cursor.advanced(found.last)
            chunk.checkpoint = cursor.as_checkpoint()
            chunk.counters = {"verified": found.rows}
        if points.AFTER_COMPARE_FILLED.on:
            points.AFTER_COMPARE_FILLED.fire(job=self.reorg.job_id, subtask=context.subtask.id)
        self.control.observe(rows=found.rows, seconds=chunk.held_seconds)
        return not cursor.finished


class _OverRanges:
    """A task of one step with one subtask per range of the table's key."""

    name: str
    said: str
    work: type[FillWork | CompareWork]

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    def next_step(self, task: Task) -> int:
        """Return the only step, then done."""
        return {INIT: FILL, FILL: DONE}[task.step]

    def step_name(self, step: int) -> str:
        """Name a step for people."""
        return self.said if step == FILL else ""

    def plan(self, tx: Transaction, task: Task, step: int) -> list[dict[str, Any]]:
        """Cut the table as it stands now; what comes behind its last key later has its value by the trigger."""
        reorg, in_place = reorg_of(task), self.dialect.in_place
        return [range_meta(one) for one in cut_table(tx, in_place.key_order(reorg), parts=in_place.parts(reorg))]

    def open(self, task: Task, subtask: Subtask) -> Work:
        """Open the work of one range."""
        return self.work(self.dialect, reorg_of(task))

    def modify(self, meta: dict[str, Any], modifications: list[dict[str, Any]]) -> dict[str, Any]:
        """Take over batch size, write speed and lock share."""
        return apply_to_parameters(meta, modifications)

    def revert(self, tx: Transaction, task: Task) -> None:
        """Do nothing: what was made is the job's, and the job undoes it by its artifacts."""


class FillType(_OverRanges):
    """Fills the new column."""

    name = "ddl.fill"
    said = "fill the new column"
    work = FillWork


class CompareType(_OverRanges):
    """Compares the new column with what it must hold."""

    name = "ddl.compare"
    said = "compare the new column"
    work = CompareWork
