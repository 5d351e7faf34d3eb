"""What a job does when room runs short: the copy waits, and before the log costs an application a statement, capture is given up.

The log of changes grows with every write of the application. While there is room for it, it is drained: a little while the
copy goes on, alone when it is long. When it has become too big, or would eat what is left of the disk within minutes, the
application wins: the triggers are dropped, the pages of shadow and log are handed back chunk by chunk, and the job pauses in
the system's name. Nothing that is lost was anybody's but ours; on resume the copy starts again.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from tideshift import errors
from tideshift.ddl import points, tables
from tideshift.ddl.dialect import Dialect
from tideshift.ddl.job import Job
from tideshift.ddl.machine import JobState, SchemaState
from tideshift.ddl.reorg.room import LOG_BYTES_MAX, why_give_up
from tideshift.ddl.reshaping import ArtifactName
from tideshift.ddl.tasks import JobTasks
from tideshift.dxf.commands import ask_task
from tideshift.dxf.machine import TASK
from tideshift.store import events
from tideshift.store.database import Database
from tideshift.store.lease import Tenure

__all__ = ["RoomKeeper"]

log = logging.getLogger(__name__)
LOOK_SECONDS = 0.25
MEASURED_SECONDS_MIN = 10.0
"""Over how long the log's growth is measured at least: it comes in bursts."""
_CAPTURED = (JobState.RUNNING, JobState.PAUSED)


def _is_about_to_swap(job: Job) -> bool:
    """Whether nothing is left to do but the swap, after which the old rows give their pages back."""
    return job.state is JobState.RUNNING and job.current_plan.stages[job.stage].name == "cut over"


@dataclass(frozen=True)
class _Mark:
    """How big a job's log was, when, and by how many bytes per second it had grown until then."""

    at: float
    log_bytes: int
    grew_by: float = 0.0


class RoomKeeper:
    """Looks after the room of every job whose writes are captured; what it remembers only tells how fast a log grows."""

    def __init__(self, database: Database, dialect: Dialect, tasks: JobTasks) -> None:
        self.database = database
        self.dialect = dialect
        self.tasks = tasks
        self._looked_at: dict[int, float] = {}
        self._marks: dict[int, _Mark] = {}

    def gives_up(self, job: Job, tenure: Tenure) -> bool:
        """Look now and then; give capture up when it must be, and return whether it was."""
        now = self.database.clock.monotonic()
        if job.state not in _CAPTURED or now - self._looked_at.get(job.id, float("-inf")) < LOOK_SECONDS:
            return False
        self._looked_at[job.id] = now
        try:
            log_bytes = self._log_bytes(job)
        except (errors.Retryable, errors.CannotReach, errors.DiskFull) as error:
            log.info("job %s: its room was not looked at: %s", job.id, error)
            return False
        if log_bytes is None:
            self._marks.pop(job.id, None)
            return False
        reason = why_give_up(self.dialect.load.room(), log_bytes=log_bytes, grows_by=self._growth(job.id, now, log_bytes))
        if reason is None or (_is_about_to_swap(job) and log_bytes <= LOG_BYTES_MAX):
            return False
        self._give_up(job, tenure, reason)
        return True

    def _log_bytes(self, job: Job) -> int | None:
        """Return how big a job's log is; None when nothing captures its writes."""
        with self.database.transaction(write=False) as tx:
            captured = any(artifact.kind == "trigger" for artifact in tables.artifacts_of(tx, job.id))
            return self.dialect.shadow.log_bytes(tx, job.reorg) if captured else None

    def _growth(self, job_id: int, now: float, log_bytes: int) -> float:
        """Return by how many bytes per second the log grew, in the last two intervals alike: one burst is drained in time."""
        mark = self._marks.setdefault(job_id, _Mark(now, log_bytes))
        if now - mark.at < MEASURED_SECONDS_MIN:
            return 0.0
        grew_by = (log_bytes - mark.log_bytes) / (now - mark.at)
        self._marks[job_id] = _Mark(now, log_bytes, grew_by)
        return min(grew_by, mark.grew_by)

    def _give_up(self, job: Job, tenure: Tenure, reason: str) -> None:
        """Drop what writes the log, end the tasks, and pause, in one short transaction; shadow and log are purged after it."""
        stages = [stage.name for stage in job.current_plan.stages]
        said = f"what captured its writes was given up: {reason}; on resume the copy starts again"
        error = errors.DiskFull(said, hint=f"Make room, then: tideshift resume {job.id}").as_record()
        with self.database.transaction() as tx:
            if points.BEFORE_LOSE_CAPTURE.on:
                points.BEFORE_LOSE_CAPTURE.fire(job=job.id)
            for artifact in reversed(tables.artifacts_of(tx, job.id)):
                if not artifact.is_purged:
                    self.dialect.remains.drop(tx, ArtifactName(artifact.kind, artifact.name))
                    tables.mark_dropped(tx, job.id, artifact.ordinal)
            for task in self.tasks.of(tx, job):
                if task.state not in TASK.final:
                    ask_task(tx, task, "cancel", actor=tenure.owner_id)
            tables.move_job(
                tx, job, "lose_capture", actor=tenure.owner_id, tenure=tenure, stage=stages.index("capture"), attempt=job.attempt + 1,
                schema_state=SchemaState.DELETE_ONLY, paused_by="system", pause_reason=said, error=error, err_count=0, next_try_at=None,
            )  # fmt: skip
            for request in events.open_requests(tx, job_id=job.id, commands=("resume",)):
                events.conclude(tx, request.request_id, events.Outcome.FAILED, reason=said)
