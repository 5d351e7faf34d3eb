"""Comparing one range of source and shadow; a difference is repaired through the log, and a second one is a bug of ours.

A chunk is compared in one read snapshot first. When keys were left out because the log names them, or when something
differs, the log is applied and the same chunk compared again in one writing transaction: there every key is compared,
and a key that still differs fails the job, with both rows as evidence in its error.
"""

from __future__ import annotations

from tideshift.ddl import points
from tideshift.ddl.dialect import Comparison, Dialect
from tideshift.ddl.reorg.drain import Drain
from tideshift.ddl.reshaping import Reorg
from tideshift.dxf.ranges import ChunkControl, Cursor
from tideshift.dxf.tasktype import Chunk, Context
from tideshift.errors import TaskFailed
from tideshift.store.database import Transaction
from tideshift.store.keys import KeyRange

__all__ = ["VerifyWork", "settle"]

LOG_ROWS_SOFT = 100
"""From this backlog on the log is drained and nothing compared, since each comparison looks every key up in the log."""
SETTLE_ROWS = 1_000
"""A settle is begun only with at most this many log rows, since all of them are applied under the lock."""
DRAIN_ROWS = 500
EVIDENCE_ROWS = 5


def settle(tx: Transaction, dialect: Dialect, reorg: Reorg) -> int:
    """Apply the log until it is empty, in this transaction, which keeps it from growing; return how many log rows there were."""
    applied = 0
    while batch := dialect.shadow.apply_batch(tx, reorg, rows_max=SETTLE_ROWS).log_rows:
        applied += batch
    return applied


class VerifyWork:
    """The verification of one range."""

    def __init__(self, dialect: Dialect, reorg: Reorg) -> None:
        self.dialect = dialect
        self.reorg = reorg
        self.control = ChunkControl(target_seconds=dialect.capabilities.chunk_target_seconds, rows_start=reorg.reshaping.chunk_rows)
        self.drain = Drain(dialect, reorg, rows_soft=LOG_ROWS_SOFT, steps_between_looks=1)

    def step(self, context: Context) -> bool:
        """Compare one chunk, or drain a batch of the log, so that no settle has much to apply under the lock."""
        cursor = Cursor.of(context.subtask.meta, context.subtask.checkpoint)
        if cursor.finished:
            return False
        if self.drain.step(context):
            return True
        rows_max = self.control.next_rows(rows_max=context.limits.batch_size_rows, seconds_max=context.limits.chunk_seconds_max)
        clock = context.database.clock
        with context.chunk(write=False) as chunk:
            begun = clock.monotonic()
            comparison = self.dialect.shadow.compare_chunk(chunk.tx, self.reorg, cursor.rest, rows_max=rows_max)
            self.control.observe(rows=comparison.rows, seconds=clock.monotonic() - begun)
            clean = not comparison.differing and not comparison.excluded
            if clean:
                cursor = _record(chunk, cursor, comparison)
        if points.AFTER_COMPARE.on:
            points.AFTER_COMPARE.fire(job=self.reorg.job_id, subtask=context.subtask.id)
        if not clean:
            cursor = self._settled(context, cursor, comparison)
        return not cursor.finished

    def _settled(self, context: Context, cursor: Cursor, seen: Comparison) -> Cursor:
        """Repair through the log, then compare the same rows where nobody can write between."""
        with context.chunk() as chunk:
            if self.dialect.shadow.backlog(chunk.tx, self.reorg, limit=SETTLE_ROWS) > SETTLE_ROWS:
                self.dialect.shadow.apply_batch(chunk.tx, self.reorg, rows_max=DRAIN_ROWS)
                return cursor  # Too much for one transaction: a batch now, and the same chunk is looked at again.
            if seen.differing:
                self.dialect.shadow.request_repair(chunk.tx, self.reorg, seen.differing)
            log_rows = settle(chunk.tx, self.dialect, self.reorg)
            high = cursor.rest.high if seen.last is None else seen.last
            rows_max = max(1, seen.rows + seen.excluded + log_rows + 1)
            again = self.dialect.shadow.compare_chunk(chunk.tx, self.reorg, KeyRange(cursor.rest.low, high), rows_max=rows_max)
            if again.differing:
                raise TaskFailed(
                    f"{len(again.differing)} rows of {self.reorg.reshaping.table} differ from their copies after a repair",
                    hint="This is a fault of tideshift: nothing was swapped. Please report it with the event log of the job.",
                    keys=list(again.differing[:EVIDENCE_ROWS]),
                    rows=[self.dialect.shadow.rows_of(chunk.tx, self.reorg, key) for key in again.differing[:EVIDENCE_ROWS]],
                )
            cursor = _record(chunk, cursor, again)
            chunk.counters = {**(chunk.counters or {}), "repaired": len(seen.differing), "log_rows": log_rows}
        # This comparison holds the lock, unlike the first one, and its rows are chosen by that one's size.
        self.control.observe(rows=seen.rows, seconds=chunk.held_seconds)
        return cursor


def _record(chunk: Chunk, cursor: Cursor, comparison: Comparison) -> Cursor:
    advanced = cursor.advanced(comparison.last)
    chunk.checkpoint = advanced.as_checkpoint()
    chunk.counters = {"verified": comparison.rows}
    return advanced
