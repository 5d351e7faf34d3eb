"""Cutting over: drain what is left and swap, in one transaction that is as short as the lock budget.

First the backlog is brought down outside the lock, a batch at a time; the attempt is given up and repeated at the next
tick while the backlog is still too long. The job's own move is written last in the swap's transaction: a cancel or a
pause that was committed earlier makes it fail, and then nothing was swapped.
"""

from __future__ import annotations

from tideshift.ddl import points, tables
from tideshift.ddl.dialect import Dialect
from tideshift.ddl.job import Job, Stage
from tideshift.ddl.reorg.catch_up import CUTOVER_ROWS
from tideshift.ddl.reorg.verify import settle
from tideshift.store.database import Database
from tideshift.store.lease import Tenure, hold_to_commit

__all__ = ["cut_over", "drain_a_little"]

DRAIN_ROWS = 200
ROUNDS = 20


def drain_a_little(database: Database, dialect: Dialect, job: Job, *, rounds: int = ROUNDS) -> int:
    """Apply a few batches of the log outside any longer lock; return the backlog that is left."""
    with database.session() as session:
        for _ in range(rounds):
            with session.transaction(durable=False) as tx:
                dialect.shadow.check(tx, job.reorg)
                dialect.shadow.apply_batch(tx, job.reorg, rows_max=DRAIN_ROWS)
                left = dialect.shadow.backlog(tx, job.reorg, limit=CUTOVER_ROWS)
            session.relieve()
            if left <= CUTOVER_ROWS:
                break
    return left


def cut_over(database: Database, dialect: Dialect, job: Job, stage: Stage, tenure: Tenure) -> Job | None:
    """Try to swap; return the moved job, or None when the backlog is still too long for the lock budget."""
    if points.BEFORE_CUTOVER.on:
        points.BEFORE_CUTOVER.fire(job=job.id)
    if drain_a_little(database, dialect, job) > CUTOVER_ROWS:
        return None
    with database.transaction() as tx:
        began = database.clock.monotonic()
        dialect.shadow.hold_still(tx, job.reorg, tries=job.err_count)
        waited_ms = round(1000 * (database.clock.monotonic() - began))
        if dialect.shadow.backlog(tx, job.reorg, limit=CUTOVER_ROWS) > CUTOVER_ROWS:
            return None  # Somebody wrote much while we waited for the lock: drained outside it again.
        settle(tx, dialect, job.reorg)
        if points.IN_CUTOVER.on:
            points.IN_CUTOVER.fire(job=job.id)
        dialect.shadow.swap(tx, job.reorg)
        for artifact in tables.artifacts_of(tx, job.id):
            if artifact.kind != "shadow":
                tables.mark_dropped(tx, job.id, artifact.ordinal)
        tables.keep_as_old(tx, job.id, drop_after=None)
        if points.AFTER_SWAP.on:
            points.AFTER_SWAP.fire(job=job.id)
        hold_to_commit(tx, tenure)
        return tables.move_job(
            tx, job, "finish", actor=tenure.owner_id, tenure=tenure, stage=job.stage + 1, schema_state=stage.schema_state,
            detail={"waited_ms": waited_ms, "tries": job.err_count + 1}, revertible=False, err_count=0, next_try_at=None, error=None,
        )  # fmt: skip
