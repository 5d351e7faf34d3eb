"""Short steps by the database's own statements: in one transaction with the job's move, or, where DDL commits by itself, in attempts.

Of an attempt the owner's intent is on record first, and the catalogue tells what became of it:

| on the row | what it means | who goes on |
|---|---|---|
| revertible | no attempt is under way; a cancel or a pause wins | an owner that begins one: `commit_to`, which names the session |
| not revertible | an attempt is under way, or was cut off | its owner; or a successor that has seen that session gone |

An attempt ends in one of two ways: the statement got through, and the job goes on; or it did not, and `give_up` makes the
job revertible again. Which of the two is never taken from an answer alone: where the statement failed, or its answer was lost,
the session is seen gone first, then the catalogue is asked.
"""

from __future__ import annotations

import logging
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

from tideshift import errors
from tideshift.ddl import points, tables
from tideshift.ddl.dialect import Dialect
from tideshift.ddl.job import Job, Stage, StageKind
from tideshift.ddl.reorg.blockers import ending_blockers
from tideshift.store import events
from tideshift.store.database import Database, Session, Transaction
from tideshift.store.driver import SessionIdentity
from tideshift.store.lease import Tenure, hold_to_commit

__all__ = ["Changes", "Made"]

log = logging.getLogger(__name__)
_EVENTS_READ = 1_000
"""Behind the beginning of an attempt nothing but wishes for other parameters is written."""


@dataclass(frozen=True)
class Made:
    """What became of a try: the job as it is now, and why the step was not taken (None: it was)."""

    job: Job
    error: errors.TideshiftError | None = None


class Changes:
    """Takes short steps, one at a time, in the owner's thread."""

    def __init__(self, database: Database, dialect: Dialect) -> None:
        self.database = database
        self.dialect = dialect

    def make(self, job: Job, stage: Stage, tenure: Tenure) -> Made | None:
        """Take the step; None where what became of an attempt can only be seen later. Raises what a transaction met, which then changed nothing."""
        last = _is_last(job)
        if self.dialect.committing is not None:
            return self._attempt(job, stage, tenure)
        with ending_blockers(self.database, self.dialect, job, tenure) if last else nullcontext():
            return Made(self._in_one_transaction(job, stage, tenure, last=last))

    def _in_one_transaction(self, job: Job, stage: Stage, tenure: Tenure, *, last: bool) -> Job:
        """Change and move together; a replaced table is purged later."""
        with self.database.transaction() as tx:
            if points.BEFORE_CHANGE.on:
                points.BEFORE_CHANGE.fire(job=job.id)
            replaced = self.dialect.native.artifacts(job.reorg)
            made = [*replaced, *([] if stage.step is None else self.dialect.native.made_by(job.reorg, stage.step))]
            if made:
                tables.insert_artifacts(tx, job.id, made)
            self.dialect.native.change(tx, job.reorg, step=stage.step or 0, tries=job.err_count)
            if replaced:
                tables.keep_as_old(tx, job.id, drop_after=None)
            elif last:
                tables.hand_over_artifacts(tx, job.id)
            if points.AFTER_CHANGE.on:
                points.AFTER_CHANGE.fire(job=job.id)
            return _move_on(tx, job, stage, tenure, last=last)

    # ── attempts ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _attempt(self, job: Job, stage: Stage, tenure: Tenure) -> Made | None:
        """Make an attempt, or end one that was cut off; None while its session is still there."""
        committing = self.dialect.committing
        assert committing is not None
        with self.database.session() as session:
            if not job.revertible:
                if not self._is_over(job):
                    log.info("job %s: the session of an attempt that was cut off is still there", job.id)
                    return None
                return self._settle(session, job, stage, tenure, error=errors.Retryable("the attempt was cut off"))
            with session.transaction() as tx:
                if points.BEFORE_CHANGE.on:
                    points.BEFORE_CHANGE.fire(job=job.id)
                identity = session.identity
                begun = tables.move_job(
                    tx, job, "commit_to", actor=tenure.owner_id, tenure=tenure, detail={"session": identity.as_record()}, revertible=False
                )
            try:
                if session.identity != identity:
                    raise errors.ConnectionLost("the connection was made anew before the statement was sent")
                with ending_blockers(self.database, self.dialect, begun, tenure):
                    committing.attempt(session, job.reorg, stage.step or 0, tries=job.err_count)
            except errors.TideshiftError as error:
                if not self._gone_or_ours(session, identity):
                    log.info("job %s: what became of the attempt is seen later: %s", job.id, error)
                    return None
                return self._settle(session, begun, stage, tenure, error=error)
            return self._taken(begun, stage, tenure)

    def _settle(self, session: Session, job: Job, stage: Stage, tenure: Tenure, *, error: errors.TideshiftError) -> Made:
        """Ask the catalogue whether the statement got through, and move the job accordingly."""
        assert self.dialect.committing is not None
        if self.dialect.committing.has_happened(session, job.reorg, stage.step or 0):
            return self._taken(job, stage, tenure)
        with self.database.transaction() as tx:
            given_up = tables.move_job(
                tx, job, "give_up", actor=tenure.owner_id, tenure=tenure, revertible=True, detail={"error": error.as_record()}
            )
        return Made(given_up, error)

    def _taken(self, job: Job, stage: Stage, tenure: Tenure) -> Made:
        """Write down that the step is taken; where it was the last one, what the job made is the user's from now on."""
        last = _is_last(job)
        with self.database.transaction() as tx:
            if last:
                tables.hand_over_artifacts(tx, job.id)
            if points.AFTER_CHANGE.on:
                points.AFTER_CHANGE.fire(job=job.id)
            return Made(_move_on(tx, job, stage, tenure, last=last))

    def _gone_or_ours(self, session: Session, identity: SessionIdentity) -> bool:
        """Whether nobody can run the statement any more: this very session has its answer, or it is seen gone."""
        try:
            if session.identity == identity:
                with session.transaction(write=False) as tx:
                    tx.now_ms()
                if session.identity == identity:
                    return True
        except errors.TideshiftError as error:
            log.info("the session of an attempt answers no more: %s", error)
        return self._see_gone(identity)

    def _is_over(self, job: Job) -> bool:
        """End the session that the last attempt named, and see it gone."""
        with self.database.transaction(write=False) as tx:
            record = _session_of_attempt(tx, job)
        return record is None or self._see_gone(SessionIdentity.from_record(record))

    def _see_gone(self, identity: SessionIdentity) -> bool:
        driver = self.database.driver
        with self.database.transaction(write=False) as tx:
            if not driver.session_gone(tx.connection, identity):
                driver.end_session(tx.connection, identity)
            return driver.session_gone(tx.connection, identity)


def _is_last(job: Job) -> bool:
    return job.current_plan.stages[job.stage + 1].kind is StageKind.LAST


def _move_on(tx: Transaction, job: Job, stage: Stage, tenure: Tenure, *, last: bool) -> Job:
    hold_to_commit(tx, tenure)
    return tables.move_job(
        tx, job, "finish" if last else "step", actor=tenure.owner_id, tenure=tenure, stage=job.stage + 1, schema_state=stage.schema_state,
        revertible=not last, err_count=0, next_try_at=None, error=None,
    )  # fmt: skip


def _session_of_attempt(tx: Transaction, job: Job) -> dict[str, Any] | None:
    for one in events.latest(tx, job_id=job.id, kind="move", limit=_EVENTS_READ):
        if one.detail.get("event") == "commit_to":
            session: dict[str, Any] | None = one.detail.get("session")
            return session
    return None
