"""Ending sessions that keep a cut-over from its locks: only where a person wished it, only those, and each one on record."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict

from tideshift.ddl.dialect import Dialect, InTheWay
from tideshift.ddl.job import Job
from tideshift.errors import LockTimeout
from tideshift.store import events
from tideshift.store.database import Database
from tideshift.store.lease import Tenure

__all__ = ["ending_blockers"]

log = logging.getLogger(__name__)


@contextmanager
def ending_blockers(database: Database, dialect: Dialect, job: Job, tenure: Tenure) -> Iterator[None]:
    """Let the one last transaction of a change be tried; where it does not get its locks, who is in the way is ended if that is wished."""
    try:
        yield
    except LockTimeout as error:
        _end(database, dialect, job, tenure, error)
        raise


def _end(database: Database, dialect: Dialect, job: Job, tenure: Tenure, error: LockTimeout) -> None:
    """End whom a failed try names, but for those that are kept; what is about to be done is written before it is done, and then what became of it."""
    if job.at_cutover("end_blockers") != "on":
        return
    for one in (InTheWay(**record) for record in error.fields.get("sessions", ())):
        if not one.kept:
            _record(database, job, tenure, one, "ending")
        with database.transaction() as tx:
            outcome = f"kept: {one.kept}" if one.kept else dialect.load.end(tx, one)
            events.record(tx, actor=tenure.owner_id, kind="blocker", job_id=job.id, target=outcome.partition(":")[0], detail={**asdict(one), "outcome": outcome})
        log.warning("job %s: %s: %s", job.id, one.text, outcome)


def _record(database: Database, job: Job, tenure: Tenure, one: InTheWay, target: str) -> None:
    with database.transaction() as tx:
        events.record(tx, actor=tenure.owner_id, kind="blocker", job_id=job.id, target=target, detail=asdict(one))
