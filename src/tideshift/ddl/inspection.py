"""Looking once more after the swap, with connections that did not swap: nothing can be undone any more, only said."""

from __future__ import annotations

from dataclasses import dataclass

from tideshift import errors
from tideshift.ddl import points, tables
from tideshift.ddl.dialect import Dialect
from tideshift.ddl.job import Job, Stage
from tideshift.ddl.reshaping import Strategy
from tideshift.ddl.tasks import JobTasks
from tideshift.dxf.machine import TASK, TaskState
from tideshift.dxf.task import Task
from tideshift.store.database import Database, Transaction
from tideshift.store.lease import Tenure

__all__ = ["TRIES_MAX", "Found", "Inspector"]

TRIES_MAX = 3
"""How often something is tried that fails for a reason which nobody foresaw."""
_PASSING = (errors.Retryable, errors.DiskFull, errors.AmbiguousCommit, errors.CannotReach)
_SAYS_WHAT_IS_WRONG = (errors.SchemaChanged.code, errors.ValueRefused.code)


@dataclass(frozen=True)
class Found:
    """What a look gave: it waits for its task, or is over; then what is not as it was planned (None: all is)."""

    waits: bool = False
    moved: bool = False
    wrong: str | None = None


class Inspector:
    """Inspects the changes of jobs whose new shape is in place."""

    def __init__(self, database: Database, dialect: Dialect, tasks: JobTasks) -> None:
        self.database = database
        self.dialect = dialect
        self.tasks = tasks

    def look(self, job: Job, tenure: Tenure) -> Found:
        """Let the stage's task do its part, if it has one, then inspect."""
        stage = job.current_plan.stages[job.stage]
        wrong: str | None = None
        if stage.task_type is not None:
            with self.database.transaction(write=False) as tx:
                number, task = self._newest(tx, job, stage)
            if task is None or (_is_unforeseen(task) and number + 1 < TRIES_MAX):
                return self._submit(job, stage, tenure, 0 if task is None else number + 1)
            if task.state not in TASK.final:
                return Found(waits=True, moved=self.tasks.follow(job, task))
            if task.state is not TaskState.SUCCEED:
                wrong = str((task.error or {}).get("message", "the references were not looked at"))
        if points.BEFORE_INSPECT.on:
            points.BEFORE_INSPECT.fire(job=job.id)
        return Found(wrong=wrong or self._inspect(job))

    def _newest(self, tx: Transaction, job: Job, stage: Stage) -> tuple[int, Task | None]:
        """Return the last task that was submitted for the stage, and its number."""
        newest: tuple[int, Task | None] = (0, None)
        for number in range(TRIES_MAX):
            task = self.tasks.find(tx, _key(job, stage, number))
            if task is None:
                break
            newest = (number, task)
        return newest

    def _submit(self, job: Job, stage: Stage, tenure: Tenure, number: int) -> Found:
        with self.database.transaction() as tx:
            self.tasks.submit(tx, job, stage, key=_key(job, stage, number))
            tables.move_job(tx, job, "verify", actor=tenure.owner_id, tenure=tenure, err_count=0, error=None)
        return Found(waits=True, moved=True)

    def _inspect(self, job: Job) -> str | None:
        """Return what is not as it was planned (None: all is); where it could not be seen, that is tried again a few times before it is said."""
        inspect = self.dialect.shadow.inspect_swapped if job.strategy == Strategy.SHADOW_TABLE else self.dialect.native.inspect
        with self.database.session() as session:
            try:
                inspect(session, job.reorg)
            except _PASSING:
                raise
            except errors.TideshiftError as error:
                if not isinstance(error, errors.SchemaChanged) and job.err_count + 1 < TRIES_MAX:
                    raise
                return error.message
        return None


def _key(job: Job, stage: Stage, number: int) -> str:
    return job.task_key(stage) + (f"/again/{number}" if number else "")


def _is_unforeseen(task: Task) -> bool:
    """Whether a task failed without having seen what is wrong."""
    failed = task.state in TASK.final and task.state is not TaskState.SUCCEED
    return failed and (task.error or {}).get("code") not in _SAYS_WHAT_IS_WRONG
