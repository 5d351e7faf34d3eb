"""What a job does with its tasks: submit, follow, and purge. The job is the wish, the task is the effect.

Everything is level-triggered: each call compares the two and asks the task for what is missing; a task that is in a state
which forbids it now is asked again at the next tick. Whatever a task is asked, and every answer to a request, is written
while the job's row is still the one that was read: otherwise an owner that stood still would resume the task of a job that
was paused meanwhile, or call a wish fulfilled that it has not seen.
"""

from __future__ import annotations

import logging
from typing import Any

from tideshift import errors
from tideshift.ddl import tables
from tideshift.ddl.job import Artifact, Job, Stage, StageKind
from tideshift.ddl.reorg.purge import PurgeType, purge_key
from tideshift.dxf import tables as dxf_tables
from tideshift.dxf.commands import ask_task, modify_task
from tideshift.dxf.machine import TASK, TaskState
from tideshift.dxf.parameters import pending_mailbox
from tideshift.dxf.task import Task
from tideshift.store import events
from tideshift.store.database import Database, Transaction
from tideshift.store.lease import Tenure

__all__ = ["JobTasks", "Purger"]

log = logging.getLogger(__name__)
ACTOR = "ddl"
PURGE_TRIES = 5


class JobTasks:
    """The tasks of jobs, as the worker needs them."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def find(self, tx: Transaction, key: str) -> Task | None:
        """Read the task of a stage, live or finished."""
        return dxf_tables.task_by_key(tx, key)

    def submit(self, tx: Transaction, job: Job, stage: Stage) -> Task:
        """Insert the task of a long stage, in the transaction of the job's move."""
        assert stage.task_type is not None
        wished = job.wished()
        threads = wished.pop("threads")
        meta = {"job_id": job.id, "reshaping": job.plan["reshaping"], "parameters": wished}
        return dxf_tables.insert_task(tx, key=job.task_key(stage), task_type=stage.task_type, meta=meta, concurrency=threads, actor=ACTOR)

    def of(self, tx: Transaction, job: Job) -> list[Task]:
        """Read the tasks of a job's long stages that were submitted."""
        keys = [job.task_key(stage) for stage in job.current_plan.stages if stage.kind is StageKind.LONG]
        found = [dxf_tables.task_by_key(tx, key) for key in keys]
        return [task for task in found if task is not None]

    def follow(self, job: Job, task: Task) -> bool:
        """Let a running job's task run, with the parameters that are wished."""
        if task.state in (TaskState.PAUSED, TaskState.AWAITING_RESOLUTION):
            with self.database.transaction() as tx:
                tables.hold_job(tx, job)
                ask_task(tx, dxf_tables.task_by_id(tx, task.id), "resume", actor=ACTOR)
            return True
        return self.hand_on_parameters(job)

    def hand_on_parameters(self, job: Job) -> bool:
        """Ask the live task for the parameters that differ from the wish; close the requests once nothing differs."""
        with self.database.transaction(write=False) as tx:
            live = [task for task in self.of(tx, job) if task.state not in TASK.final]
            waiting = events.open_requests(tx, job_id=job.id, commands=("alter",))
        if any(self._missing(job, task) for task in live):
            with self.database.transaction() as tx:
                tables.hold_job(tx, job)
                for task in live:
                    fresh = dxf_tables.task_by_id(tx, task.id)
                    missing = self._missing(job, fresh)
                    if missing and fresh.state not in TASK.final:
                        modify_task(tx, fresh, missing, actor=ACTOR)
            return True
        settled = all(not pending_mailbox(task) for task in live)
        if waiting and settled:
            with self.database.transaction() as tx:
                tables.hold_job(tx, job)
                for request in events.open_requests(tx, job_id=job.id, commands=("alter",)):
                    if request.request_id in {seen.request_id for seen in waiting}:
                        events.conclude(tx, request.request_id, events.Outcome.APPLIED)
            return True
        return False

    def _missing(self, job: Job, task: Task) -> dict[str, Any]:
        """Return the wished values that neither the task nor its mailbox has."""
        present: dict[str, Any] = {**task.meta.get("parameters", {}), "threads": task.concurrency}
        kinds = {"modify_concurrency": "threads"}
        for modification in pending_mailbox(task):
            name = kinds.get(modification["type"], modification["type"].removeprefix("modify_"))
            present[name] = modification["to"]
        return {name: value for name, value in job.wished().items() if present.get(name) != value}

    def all_paused(self, job: Job) -> bool:
        """Ask every live task to pause; return whether none is active any more."""
        with self.database.transaction() as tx:
            tables.hold_job(tx, job)
            live = [task for task in self.of(tx, job) if task.state not in TASK.final]
            for task in live:
                ask_task(tx, task, "pause", actor=ACTOR)
        return all(task.state is TaskState.PAUSED for task in live)

    def all_ended(self, job: Job) -> bool:
        """Ask every live task to cancel; return whether all are final."""
        with self.database.transaction() as tx:
            tables.hold_job(tx, job)
            live = [task for task in self.of(tx, job) if task.state not in TASK.final]
            for task in live:
                ask_task(tx, task, "cancel", actor=ACTOR)
        return not live

    def conclude(self, tx: Transaction, job: Job, command: str) -> None:
        """Record that the requests of this command had their effect."""
        for request in events.open_requests(tx, job_id=job.id, commands=(command,)):
            events.conclude(tx, request.request_id, events.Outcome.APPLIED)

    def purge(self, job_id: int, artifact: Artifact, *, wished: dict[str, Any]) -> bool:
        """See that the purge of a table is under way; return whether it was submitted now.

        A purge that failed is submitted again under the next key, a bounded number of times; then only a person helps.
        """
        with self.database.transaction() as tx:
            for attempt in range(PURGE_TRIES):
                known = dxf_tables.task_by_key(tx, purge_key(job_id, attempt))
                if known is None:
                    self._submit_purge(tx, job_id, attempt, artifact, wished)
                    return True
                if known.state is TaskState.PAUSED:
                    ask_task(tx, known, "resume", actor=ACTOR)
                if known.state not in TASK.final or known.state is TaskState.SUCCEED:
                    return False
        raise errors.TaskFailed(f"the table {artifact.name} could not be purged in {PURGE_TRIES} tries", job_id=job_id)

    def purging(self, job_id: int) -> bool:
        """Whether a purge of this job is not final yet."""
        with self.database.transaction(write=False) as tx:
            known = [dxf_tables.task_by_key(tx, purge_key(job_id, attempt)) for attempt in range(PURGE_TRIES)]
        return any(task is not None and task.state not in TASK.final for task in known)

    def _submit_purge(self, tx: Transaction, job_id: int, attempt: int, artifact: Artifact, wished: dict[str, Any]) -> None:
        parameters = {name: value for name, value in wished.items() if name != "threads"}
        meta = {"job_id": job_id, "kind": artifact.kind, "name": artifact.name, "ordinal": artifact.ordinal, "parameters": parameters}
        dxf_tables.insert_task(tx, key=purge_key(job_id, attempt), task_type=PurgeType.name, meta=meta, concurrency=1, actor=ACTOR)


class Purger:
    """The duty that purges kept tables whose time is over."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.tasks = JobTasks(database)

    def tick(self, tenure: Tenure) -> bool:
        """Submit the purges that are due."""
        with self.database.transaction(write=False) as tx:
            due = list(tables.artifacts_due(tx))
            wished = {artifact.job_id: tables.job_by_id(tx, artifact.job_id).wished() for artifact in due}
        submitted = False
        for artifact in due:
            try:
                submitted |= self.tasks.purge(artifact.job_id, artifact, wished=wished[artifact.job_id])
            except errors.TaskFailed:
                log.exception("a purge was given up")
        return submitted
