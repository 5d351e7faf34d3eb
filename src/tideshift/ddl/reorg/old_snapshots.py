"""Waiting, without any lock, for transactions that began before the cut-over and might read the table for the first time after it.

The moment that counts is that of the first try, so the wait has an end however many transactions begin. An owner that
takes over begins to wait anew. What was still there when the time was over is recorded, and the cut-over goes on.
"""

from __future__ import annotations

import logging
from dataclasses import asdict, dataclass, field

from tideshift.config import snapshot_wait_seconds
from tideshift.ddl import tables
from tideshift.ddl.dialect import Dialect, InTheWay
from tideshift.ddl.job import Job
from tideshift.errors import OldSnapshots
from tideshift.store import events
from tideshift.store.database import Database
from tideshift.store.lease import Tenure

__all__ = ["SnapshotWatch"]

log = logging.getLogger(__name__)


@dataclass
class _Wait:
    moment: str
    since_ms: int
    told: list[int] = field(default_factory=list)
    over: bool = False


class SnapshotWatch:
    """Whether a job may cut over yet, as far as older snapshots go."""

    def __init__(self, database: Database, dialect: Dialect) -> None:
        self.database = database
        self.dialect = dialect
        self._waits: dict[int, _Wait] = {}

    def is_over(self, job: Job, tenure: Tenure) -> bool:
        """Look once; the job's row says whom it waits for, and the event log how the wait ended."""
        wait = self._waits.get(job.id)
        if wait is not None and wait.over:
            return True
        with self.database.transaction(write=False) as tx:
            now_ms = tx.now_ms()
            if wait is None:
                wait = self._waits[job.id] = _Wait(self.dialect.load.moment(tx), now_ms)
            found = self.dialect.load.older_snapshots(tx, wait.moment)
        wished = job.at_cutover("old_snapshots")
        waited_ms = now_ms - wait.since_ms
        if found and waited_ms < snapshot_wait_seconds(wished) * 1000:
            self._tell(job, tenure, wait, found, wished)
            return False
        wait.over = True
        if found or wait.told:
            self._record(job, tenure, found, wished, waited_ms)
        return True

    def forget(self, job_id: int) -> None:
        """Forget a job that has cut over or ended."""
        self._waits.pop(job_id, None)

    def _tell(self, job: Job, tenure: Tenure, wait: _Wait, found: list[InTheWay], wished: str) -> None:
        """Write whom the job waits for on its row, whenever that changes."""
        present = [one.process for one in found]
        if present == wait.told:
            return
        error = OldSnapshots(f"waits ({wished}) for transactions that began before the cut-over: {'; '.join(one.text for one in found)}", sessions=[asdict(one) for one in found])
        log.info("job %s: %s", job.id, error)
        with self.database.transaction() as tx:
            tables.move_job(tx, job, "step", actor=tenure.owner_id, tenure=tenure, detail={"error": error.as_record()}, error=error.as_record())
        wait.told = present

    def _record(self, job: Job, tenure: Tenure, found: list[InTheWay], wished: str, waited_ms: int) -> None:
        with self.database.transaction() as tx:
            detail = {"wished": wished, "waited_ms": waited_ms, "sessions": [asdict(one) for one in found]}
            events.record(tx, actor=tenure.owner_id, kind="old snapshots", job_id=job.id, target="proceeded" if found else "gone", detail=detail)
