"""Drives every job on the owner: one bounded step per job and tick, each under the tenure and the `rev` that was read.

It is level-triggered. A step reads the job, does what state and stage ask for in one transaction, and writes the job's
move last, so that a command that came first makes the step fail as a whole and wins. Errors that pass are counted on
the row and retried with back-off; others make the job roll back, or are kept as warnings once the swap is committed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from tideshift import errors
from tideshift.ddl import points, queue, tables
from tideshift.ddl.changing import Changes
from tideshift.ddl.dialect import Dialect
from tideshift.ddl.inspection import TRIES_MAX, Inspector
from tideshift.ddl.job import PLAN_VERSION, Artifact, Job, Stage, StageKind
from tideshift.ddl.machine import JobState, SchemaState
from tideshift.ddl.permission import COPIED
from tideshift.ddl.plan import propose
from tideshift.ddl.reorg.blockers import ending_blockers
from tideshift.ddl.reorg.cutover import cut_over, drain_a_little
from tideshift.ddl.reorg.old_snapshots import SnapshotWatch
from tideshift.ddl.reorg.room import see_room
from tideshift.ddl.reshaping import UNFINISHED_INDEX, ArtifactName, Strategy
from tideshift.ddl.room import RoomKeeper
from tideshift.ddl.tasks import JobTasks
from tideshift.dxf.machine import TaskState
from tideshift.store import events
from tideshift.store.bootstrap import installation_changed
from tideshift.store.database import Database, DatabaseFailed, Transaction
from tideshift.store.lease import Tenure, hold_to_commit

__all__ = ["Worker"]

log = logging.getLogger(__name__)
DISK_FULL = "the disk is full"
DISK_FULL_TRIES = 4
"""How often a full disk may be a moment's trouble, before the job is held and waits for a person."""
_PASSING = (errors.Retryable, errors.DiskFull, errors.AmbiguousCommit, errors.CannotReach)
_WAITED_FOR = (errors.LockTimeout, errors.ConnectionLost, errors.CannotReach, errors.DiskFull)


class Worker:
    """The duty that moves jobs."""

    def __init__(self, database: Database, dialect: Dialect) -> None:
        self.database = database
        self.dialect = dialect
        self.tasks = JobTasks(database)
        self.room = RoomKeeper(database, dialect, self.tasks)
        self.inspector = Inspector(database, dialect, self.tasks)
        self.snapshots = SnapshotWatch(database, dialect)
        self.changes = Changes(database, dialect)
        self._failed_starts: dict[int, int] = {}
        self._short: Mapping[str, Callable[[Job, Stage, Tenure], bool]] = {
            "capture": self._capture,
            "cut over": self._cut_over,
            "change": self._change,
        }
        self.by_state: Mapping[JobState, Callable[[Job, Tenure], bool]] = {
            JobState.QUEUEING: self._start,
            JobState.RUNNING: self._run,
            JobState.PAUSING: self._pause,
            JobState.PAUSED: self._paused,
            JobState.CANCELLING: self._cancel,
            JobState.ROLLINGBACK: self._unwind,
            JobState.DONE: self._after_swap,
        }

    def tick(self, tenure: Tenure) -> bool:
        """Look at every live job once; return whether anything was moved."""
        with self.database.transaction(write=False) as tx:
            live = tables.live_jobs(tx)
            now_ms = tx.now_ms()
        if live and installation_changed(self.database) is not None:
            return self._hold_all(live, tenure)
        startable = {job.id for job in queue.runnable(live)}
        moved = False
        for job in live:
            if job.plan_version > PLAN_VERSION or _backs_off(job, now_ms):
                continue
            if job.state is JobState.QUEUEING and job.id not in startable:
                continue
            if points.AFTER_JOB_READ.on:
                points.AFTER_JOB_READ.fire(job=job.id, state=str(job.state), stage=job.stage)
            moved |= self._step(job, tenure)
        return moved

    def _step(self, job: Job, tenure: Tenure) -> bool:
        try:
            return self.room.gives_up(job, tenure) or self.by_state[job.state](job, tenure)
        except errors.StateChanged as error:
            log.info("job %s: looked at again: %s", job.id, error)
            return True
        except _PASSING as error:
            return self._count(job, tenure, error, limit=self.database.profile.error_count_limit)
        except errors.TideshiftError as error:
            return self._fail(job, tenure, error.as_record())
        except Exception as error:
            log.exception("job %s: a step failed", job.id)
            unknown = DatabaseFailed(f"a step failed: {error!r}", hint="See the log of the node.")
            return self._count(job, tenure, unknown, limit=TRIES_MAX)

    def _start(self, job: Job, tenure: Tenure) -> bool:
        """Start or go on; a job that starts is planned again, since the table may have changed while it waited."""
        if job.started_at is not None:
            with self.database.transaction() as tx:
                tables.move_job(tx, job, "start", actor=tenure.owner_id, tenure=tenure, paused_by=None, pause_reason=None)
                self.tasks.conclude(tx, job, "resume")
            return True
        with self.database.transaction(write=False) as tx:
            wished = None if job.strategy_wished is None else Strategy(job.strategy_wished)
            may_change = job.reorg.reshaping.column_order_may_change
            proposal = propose(tx, self.dialect, job.the_change, strategy=wished, column_order_may_change=may_change)
            objects = [asdict(claim) for claim in proposal.plan.reshaping.claims]
            if not queue.admits(objects, [other for other in tables.live_jobs(tx) if other.id != job.id]):
                return False  # It touches more than when it was submitted, and somebody is at work on that.
        with self.database.transaction() as tx:
            tables.move_job(
                tx, job, "start", actor=tenure.owner_id, tenure=tenure, plan=proposal.plan.as_record(), plan_version=proposal.plan.version,
                strategy=str(proposal.plan.strategy), objects=objects, row_total=proposal.rows, row_total_exact=proposal.rows_exact, paused_by=None,
                pause_reason=None,
            )  # fmt: skip
            self.tasks.conclude(tx, job, "resume")
        return True

    def _run(self, job: Job, tenure: Tenure) -> bool:
        stage = job.current_plan.stages[job.stage]
        if stage.kind is StageKind.LONG:
            return self._long(job, stage, tenure)
        return self._short["change" if stage.step is not None else stage.name](job, stage, tenure)

    def _long(self, job: Job, stage: Stage, tenure: Tenure) -> bool:
        """Submit the stage's task once, then follow it: resume it, hand on parameters, and go on when it has succeeded."""
        assert stage.task_type is not None
        with self.database.transaction(write=False) as tx:
            task = self.tasks.find(tx, job.task_key(stage))
        if task is None:
            if points.BEFORE_TASK.on:
                points.BEFORE_TASK.fire(job=job.id, stage=stage.name)
            with self.database.transaction() as tx:
                self.tasks.submit(tx, job, stage)
                made = [] if stage.step is None else self.dialect.native.made_by(job.reorg, stage.step)
                if made:
                    tables.insert_artifacts(tx, job.id, made)
                tables.move_job(
                    tx, job, "step" if stage.revertible else "commit_to", actor=tenure.owner_id, tenure=tenure, schema_state=stage.schema_state,
                    revertible=stage.revertible, err_count=0, error=None,
                )  # fmt: skip
            return True
        if task.state is TaskState.SUCCEED:
            with self.database.transaction() as tx:
                tables.move_job(
                    tx, job, "step", actor=tenure.owner_id, tenure=tenure, stage=job.stage + 1, err_count=0, next_try_at=None, error=None
                )  # fmt: skip
            return True
        if task.state in (TaskState.REVERTED, TaskState.FAILED):
            return self._fail(job, tenure, task.error or {"code": "task_failed", "message": f"task {task.id} failed", "hint": "", "fields": {}})
        return self.tasks.follow(job, task)

    def _capture(self, job: Job, stage: Stage, tenure: Tenure) -> bool:
        """Record what will be made, make it, and move, in one transaction; first what an earlier attempt left must be gone."""
        if not self.tasks.all_ended(job):
            return False
        with self.database.transaction(write=False) as tx:
            left = tables.artifacts_of(tx, job.id)
        if left or self.tasks.purging(job.id):
            return bool(left) and self.tasks.purge(job.id, left[0], wished=job.wished(), seen=job)
        see_room(self.dialect, hint=f"Make room, then: tideshift resume {job.id}")
        with self.database.transaction() as tx:
            if points.BEFORE_CAPTURE.on:
                points.BEFORE_CAPTURE.fire(job=job.id)
            tables.insert_artifacts(tx, job.id, self.dialect.shadow.artifacts(job.reorg))
            self.dialect.shadow.install(tx, job.reorg)
            if points.AFTER_CAPTURE.on:
                points.AFTER_CAPTURE.fire(job=job.id)
            hold_to_commit(tx, tenure)
            tables.move_job(
                tx, job, "step", actor=tenure.owner_id, tenure=tenure, stage=job.stage + 1, schema_state=stage.schema_state, err_count=0,
                next_try_at=None, error=None,
            )  # fmt: skip
        return True

    def _cut_over(self, job: Job, stage: Stage, tenure: Tenure) -> bool:
        """Wait for older snapshots without a lock, then try; who is in the way is ended only where that is wished."""
        if not self.snapshots.is_over(job, tenure):
            drain_a_little(self.database, self.dialect, job)
            return False
        with ending_blockers(self.database, self.dialect, job, tenure):
            swapped = cut_over(self.database, self.dialect, job, stage, tenure)
        if swapped is not None:
            self.snapshots.forget(job.id)
        return True

    def _change(self, job: Job, stage: Stage, tenure: Tenure) -> bool:
        """Carry a change, or a short step of it, out; who is in the way of the last one is ended only where that is wished."""
        last = job.current_plan.stages[job.stage + 1].kind is StageKind.LAST
        if last and job.strategy == Strategy.IN_PLACE_COLUMN and not self.snapshots.is_over(job, tenure):
            return False  # An older transaction that first reads the table after the swap would find nothing in the new column.
        made = self.changes.make(job, stage, tenure)
        if made is None:
            return False
        if made.error is None:
            self.snapshots.forget(job.id)
            return True
        if isinstance(made.error, _PASSING):
            return self._count(made.job, tenure, made.error, limit=self.database.profile.error_count_limit)
        return self._fail(made.job, tenure, made.error.as_record())

    def _pause(self, job: Job, tenure: Tenure) -> bool:
        if not self.tasks.all_paused(job):
            return False
        with self.database.transaction() as tx:
            tables.move_job(tx, job, "paused", actor=tenure.owner_id, tenure=tenure, paused_by="user", pause_reason="asked for")
            self.tasks.conclude(tx, job, "pause")
        return True

    def _paused(self, job: Job, tenure: Tenure) -> bool:
        """Keep a paused job's log short, at a small rate, so that pausing is not what fills the disk; without capture its copy goes."""
        if not self.tasks.all_paused(job):
            return False
        self.tasks.hand_on_parameters(job)
        with self.database.transaction(write=False) as tx:
            made = tables.artifacts_of(tx, job.id)
            left, captured = [artifact for artifact in made if artifact.is_purged], any(artifact.kind == "trigger" for artifact in made)
            if captured and self.dialect.shadow.backlog(tx, job.reorg, limit=0) == 0:
                return False
        if not captured:
            self._drop_unfinished(job, [artifact for artifact in made if artifact.kind == UNFINISHED_INDEX])
            return bool(left) and self.tasks.purge(job.id, left[0], wished=job.wished(), seen=job)
        drain_a_little(self.database, self.dialect, job, rounds=5)
        return False

    def _drop_unfinished(self, job: Job, unfinished: list[Artifact]) -> None:
        """Drop what an ended statement could not take back itself; where its lock is not had now, at a later look. Its next try holds a lock against this."""
        try:
            with self.database.transaction() as tx:
                for artifact in unfinished:
                    self.dialect.remains.drop(tx, ArtifactName(artifact.kind, artifact.name))
        except _WAITED_FOR as error:
            log.info("job %s: what is unfinished stays for now: %s", job.id, error)

    def _cancel(self, job: Job, tenure: Tenure) -> bool:
        if not self.tasks.all_ended(job):
            return False
        with self.database.transaction() as tx:
            event = "undo" if tables.artifacts_of(tx, job.id) else "cancelled"
            error = {"code": "cancelled", "message": "the job was cancelled", "hint": "", "fields": {}}
            state: dict[str, Any] = {} if event == "undo" else {"schema_state": SchemaState.NONE}
            tables.move_job(tx, job, event, actor=tenure.owner_id, tenure=tenure, error=error, next_try_at=None, **state)
        return True

    def _unwind(self, job: Job, tenure: Tenure) -> bool:
        """Undo in the reverse order of making: small things at once, tables through a purge, then end."""
        if not self.tasks.all_ended(job):
            return False
        with self.database.transaction(write=False) as tx:
            left = tables.artifacts_of(tx, job.id)
        if not left and self.tasks.purging(job.id):
            return False
        if not left:
            with self.database.transaction() as tx:
                tables.move_job(tx, job, "undone", actor=tenure.owner_id, tenure=tenure, schema_state=SchemaState.NONE, next_try_at=None)
            return True
        if all(artifact.is_purged for artifact in left):
            return self.tasks.purge(job.id, left[0], wished=job.wished())
        if points.BEFORE_UNDO.on:
            points.BEFORE_UNDO.fire(job=job.id, kind=left[-1].kind)
        with self.database.transaction() as tx:
            for artifact in reversed(left):
                if not artifact.is_purged:
                    self.dialect.remains.drop(tx, ArtifactName(artifact.kind, artifact.name), tries=job.err_count)
                    tables.mark_dropped(tx, job.id, artifact.ordinal)
            tables.move_job(tx, job, "unwind", actor=tenure.owner_id, tenure=tenure, schema_state=SchemaState.DELETE_ONLY)
        return True

    def _after_swap(self, job: Job, tenure: Tenure) -> bool:
        """Inspect with a connection that did not swap; what is wrong now cannot be undone, so it is said and the old rows are kept."""
        found = self.inspector.look(job, tenure)
        if found.waits:
            return found.moved
        with self.database.transaction() as tx:
            kept = "; the old rows are kept until a person drops them" if tables.artifacts_of(tx, job.id) else ""
            warnings = list(job.warnings) if found.wrong is None else [*job.warnings, found.wrong + kept]
            keep = tx.now_ms() + int(job.keep_old_seconds * 1000) if found.wrong is None else None
            tables.keep_as_old(tx, job.id, drop_after=keep)
            tables.move_job(tx, job, "sync", actor=tenure.owner_id, tenure=tenure, stage=job.stage + 1, warnings=warnings, error=None)
        return True

    def _hold_all(self, live: list[Job], tenure: Tenure) -> bool:
        """Hold every job of a database that is a copy, and let its tasks rest, until a person says what shall become of them."""
        for job in live:
            try:
                if job.state in (JobState.RUNNING, JobState.QUEUEING):
                    with self.database.transaction() as tx:
                        self._hold(tx, job, tenure, COPIED)
                elif job.state in (JobState.PAUSED, JobState.PAUSING):
                    self.tasks.all_paused(job)
            except (errors.StateChanged, *_PASSING) as error:
                log.info("job %s: looked at again: %s", job.id, error)
        return False

    def _hold(self, tx: Transaction, job: Job, tenure: Tenure, reason: str, **columns: Any) -> None:
        """Pause a job in the system's name; a resume that is under way ends here, with the reason."""
        tables.move_job(tx, job, "hold", actor=tenure.owner_id, tenure=tenure, paused_by="system", pause_reason=reason, **columns)
        for request in events.open_requests(tx, job_id=job.id, commands=("resume",)):
            events.conclude(tx, request.request_id, events.Outcome.FAILED, reason=reason)

    def _count(self, job: Job, tenure: Tenure, error: errors.TideshiftError, *, limit: int) -> bool:
        """Count a passing error on the row and try later; past the limit it is not passing.

        A lock, a connection or room on the disk is nobody's fault and is waited for without a limit; a disk that stays full
        holds the job, so that a person sees it and says when to go on.
        """
        log.info("job %s: %s", job.id, error)
        if isinstance(error, errors.AmbiguousCommit):
            return False
        passing = isinstance(error, _PASSING)
        if job.state is JobState.QUEUEING and not passing:
            return self._fail(job, tenure, error.as_record())
        if job.state is JobState.RUNNING and not isinstance(error, _WAITED_FOR) and job.err_count + 1 >= limit:
            return self._fail(job, tenure, error.as_record())
        event = {JobState.RUNNING: "step", JobState.DONE: "verify", JobState.ROLLINGBACK: "unwind"}.get(job.state)
        if event is None:
            return False
        wait_ms = int(1000 * min(0.1 * 2 ** min(job.err_count, 16), self.database.profile.retry_seconds_max))
        try:
            with self.database.transaction() as tx:
                if isinstance(error, errors.DiskFull) and job.state is JobState.RUNNING and job.err_count + 1 >= DISK_FULL_TRIES:
                    self._hold(tx, job, tenure, DISK_FULL, error=error.as_record())
                else:
                    self._count_on_row(tx, job, event, tenure, error=error.as_record(), next_try_at=tx.now_ms() + wait_ms)
        except (errors.StateChanged, *_PASSING) as second:
            log.info("job %s: the error was not counted: %s", job.id, second)
        return False

    def _fail(self, job: Job, tenure: Tenure, error: dict[str, Any]) -> bool:
        """End a job that cannot go on: roll back what was made, or end at once when nothing was."""
        log.warning("job %s failed: %s", job.id, error["message"])
        if job.state in (JobState.PAUSING, JobState.CANCELLING) or self._starts_again(job):
            return False
        try:
            with self.database.transaction() as tx:
                self._write_failure(tx, job, tenure, error)
        except errors.StateChanged as second:
            log.info("job %s: looked at again: %s", job.id, second)
        except _PASSING as second:
            log.info("job %s: its failure was not written: %s", job.id, second)
            return False
        return True

    def _starts_again(self, job: Job) -> bool:
        """Whether a job that was resumed, and cannot start, is tried again: what it has made is not thrown away for one error."""
        if job.state is not JobState.QUEUEING or job.started_at is None:
            return False
        self._failed_starts[job.id] = self._failed_starts.get(job.id, 0) + 1
        return self._failed_starts[job.id] < TRIES_MAX

    def _write_failure(self, tx: Transaction, job: Job, tenure: Tenure, error: dict[str, Any]) -> None:
        if job.state is JobState.QUEUEING and job.started_at is not None:
            self._hold(tx, job, tenure, f"it could not be resumed: {error['message']}", error=error)
            self._failed_starts.pop(job.id, None)
            return
        if job.state in (JobState.QUEUEING, JobState.RUNNING, JobState.PAUSED):
            event = "fail" if tables.artifacts_of(tx, job.id) else "abandon"
            state: dict[str, Any] = {} if event == "fail" else {"schema_state": SchemaState.NONE}
            tables.move_job(tx, job, event, actor=tenure.owner_id, tenure=tenure, error=error, next_try_at=None, **state)
        else:
            event = "verify" if job.state is JobState.DONE else "unwind"
            later = tx.now_ms() + int(self.database.profile.retry_seconds_max * 1000)
            self._count_on_row(tx, job, event, tenure, error=error, next_try_at=later)

    def _count_on_row(self, tx: Transaction, job: Job, event: str, tenure: Tenure, *, error: dict[str, Any], next_try_at: int) -> None:
        """Write an error and when to try again; a job that rolls back keeps the error that made it, and the event log has the new one."""
        kept = job.error if job.state is JobState.ROLLINGBACK and job.error is not None else error
        tables.move_job(
            tx, job, event, actor=tenure.owner_id, tenure=tenure, detail={"error": error}, error=kept, err_count=job.err_count + 1,
            next_try_at=next_try_at,
        )  # fmt: skip


def _backs_off(job: Job, now_ms: int) -> bool:
    """Whether a job waits after an error that passes; a person's command is never kept waiting."""
    waits = job.state in (JobState.QUEUEING, JobState.RUNNING, JobState.DONE, JobState.ROLLINGBACK)
    return waits and job.next_try_at is not None and job.next_try_at > now_ms
