"""What a job does with its tasks: submit, follow, and purge. The job is the wish, the task is the effect.

Everything is level-triggered: each call compares the two and asks the task for what is missing; a task that is in a state
which forbids it now is asked again at the next tick. Whatever a task is asked, and every answer to a request, is written
while the job's row is still the one that was read: otherwise an owner that stood still would resume the task of a job that
was paused meanwhile, or call a wish fulfilled that it has not seen.
"""

from __future__ import annotations

import itertools
from typing import Any

from tideshift.ddl import tables
from tideshift.ddl.job import Artifact, Job, Stage
from tideshift.ddl.reorg.purge import PurgeType, purge_key
from tideshift.ddl.reshaping import Strategy
from tideshift.dxf import tables as dxf_tables
from tideshift.dxf.commands import Verdict, ask_task, modify_task
from tideshift.dxf.machine import TASK, TaskState
from tideshift.dxf.parameters import pending_mailbox
from tideshift.dxf.task import Task
from tideshift.store import events
from tideshift.store.bootstrap import installation_changed
from tideshift.store.database import Database, Transaction
from tideshift.store.lease import Tenure

__all__ = ["JobTasks", "Purger", "newest_purge"]

ACTOR = "ddl"


class JobTasks:
    """The tasks of jobs, as the worker needs them."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def find(self, tx: Transaction, key: str) -> Task | None:
        """Read the task of a stage, live or finished."""
        return dxf_tables.task_by_key(tx, key)

    def submit(self, tx: Transaction, job: Job, stage: Stage, *, key: str | None = None) -> Task:
        """Insert the task of a stage, in the transaction of the job's move; under another key where the stage has had one."""
        assert stage.task_type is not None
        wished = job.wished()
        threads = wished.pop("threads")
        meta = {"job_id": job.id, "reshaping": job.plan["reshaping"], "step": stage.step, "parameters": wished}
        return dxf_tables.insert_task(tx, key=key or job.task_key(stage), task_type=stage.task_type, meta=meta, concurrency=threads, actor=ACTOR)

    def of(self, tx: Transaction, job: Job) -> list[Task]:
        """Read the tasks of a job's stages that were submitted, those of a copy that was given up too."""
        stages = [stage for stage in job.current_plan.stages if stage.task_type is not None]
        keys = [job.task_key(stage, attempt=attempt) for attempt in range(job.attempt + 1) for stage in stages]
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
                return self._modify(tx, job, live)
        settled = all(not pending_mailbox(task) for task in live)
        if waiting and settled:
            with self.database.transaction() as tx:
                tables.hold_job(tx, job)
                for request in events.open_requests(tx, job_id=job.id, commands=("alter",)):
                    if request.request_id in {seen.request_id for seen in waiting}:
                        events.conclude(tx, request.request_id, events.Outcome.APPLIED)
            return True
        return False

    def _modify(self, tx: Transaction, job: Job, live: list[Task]) -> bool:
        """Ask the tasks for what is missing; return whether any took it."""
        taken = False
        for task in live:
            fresh = dxf_tables.task_by_id(tx, task.id)
            missing = self._missing(job, fresh)
            if missing and fresh.state not in TASK.final:
                taken |= modify_task(tx, fresh, missing, actor=ACTOR).verdict is Verdict.APPLIED
        return taken

    def _missing(self, job: Job, task: Task) -> dict[str, Any]:
        """Return the wished values that neither the task nor its mailbox has."""
        present: dict[str, Any] = {**task.meta.get("parameters", {}), "threads": task.concurrency}
        kinds = {"modify_concurrency": "threads"}
        for modification in pending_mailbox(task):
            name = kinds.get(modification["type"], modification["type"].removeprefix("modify_"))
            present[name] = modification["to"]
        return {name: value for name, value in job.wished().items() if present.get(name) != value}

    def all_paused(self, job: Job) -> bool:
        """Ask every live task that does not rest to pause; return whether there was none."""
        with self.database.transaction(write=False) as tx:
            if all(_rests(task) for task in self.of(tx, job)):
                return True
        with self.database.transaction() as tx:
            tables.hold_job(tx, job)
            for task in self.of(tx, job):
                if not _rests(task):
                    ask_task(tx, task, "pause", actor=ACTOR)
        return False

    def all_ended(self, job: Job) -> bool:
        """Ask every live task to cancel; return whether all are final."""
        with self.database.transaction(write=False) as tx:
            if all(task.state in TASK.final for task in self.of(tx, job)):
                return True
        with self.database.transaction() as tx:
            tables.hold_job(tx, job)
            for task in self.of(tx, job):
                if task.state not in TASK.final:
                    ask_task(tx, task, "cancel", actor=ACTOR)
        return False

    def conclude(self, tx: Transaction, job: Job, command: str) -> None:
        """Record that the requests of this command had their effect."""
        for request in events.open_requests(tx, job_id=job.id, commands=(command,)):
            events.conclude(tx, request.request_id, events.Outcome.APPLIED)

    def purge(self, job_id: int, artifact: Artifact, *, wished: dict[str, Any], seen: Job | None = None) -> bool:
        """See that the purge of a table is under way; return whether it was submitted now.

        `seen` is the job as it was when the artifact was found to be needed no more, and must be so still: an owner that stood
        still would otherwise purge what its successor has made meanwhile. A purge that failed is submitted again under the
        next key, after a pause that grows with their number; another table's at once.
        """
        with self.database.transaction(write=False) as tx:
            attempt, known = newest_purge(tx, job_id)
            now_ms = tx.now_ms()
        if known is not None:
            if known.state is TaskState.PAUSED:
                with self.database.transaction() as tx:
                    ask_task(tx, dxf_tables.task_by_id(tx, known.id), "resume", actor=ACTOR)
            if known.state not in TASK.final:
                return False
            if known.state is TaskState.SUCCEED and known.meta["ordinal"] == artifact.ordinal:
                return False
            pause_ms = 1000 * self.database.profile.retry_seconds_max * 2 ** min(attempt, 7)
            if known.state is not TaskState.SUCCEED and now_ms - (known.end_time or 0) < pause_ms:
                return False
            attempt += 1
        with self.database.transaction() as tx:
            if seen is not None:
                tables.hold_job(tx, seen)
            if dxf_tables.task_by_key(tx, purge_key(job_id, attempt)) is None:
                self._submit_purge(tx, job_id, attempt, artifact, wished)
        return True

    def purging(self, job_id: int) -> bool:
        """Whether a purge of this job is not final yet."""
        with self.database.transaction(write=False) as tx:
            _, known = newest_purge(tx, job_id)
        return known is not None and known.state not in TASK.final

    def _submit_purge(self, tx: Transaction, job_id: int, attempt: int, artifact: Artifact, wished: dict[str, Any]) -> None:
        parameters = {name: value for name, value in wished.items() if name != "threads"}
        # Who had the table rebuilt under one lock waits for less while it is dropped as a whole.
        at_once = tables.job_by_id(tx, job_id).strategy == Strategy.DIRECT
        meta = {
            "job_id": job_id, "kind": artifact.kind, "name": artifact.name, "ordinal": artifact.ordinal, "at_once": at_once, "parameters": parameters,
        }  # fmt: skip
        dxf_tables.insert_task(tx, key=purge_key(job_id, attempt), task_type=PurgeType.name, meta=meta, concurrency=1, actor=ACTOR)


def newest_purge(tx: Transaction, job_id: int) -> tuple[int, Task | None]:
    """Return the number and the task of a job's newest purge (0 and None when there was none yet)."""
    newest: tuple[int, Task | None] = (0, None)
    for attempt in itertools.count():  # Ends at the first key that was not used.
        known = dxf_tables.task_by_key(tx, purge_key(job_id, attempt))
        if known is None:
            break
        newest = (attempt, known)
    return newest


def _rests(task: Task) -> bool:
    """Whether nothing of a task is at work, nor will be by itself; a paused one may be under modification."""
    if task.state is TaskState.MODIFYING:
        return (task.modify_params or {}).get("prev_state") == TaskState.PAUSED
    return task.state is TaskState.PAUSED or task.state in TASK.final


class Purger:
    """The duty that purges kept tables whose time is over."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self.tasks = JobTasks(database)

    def tick(self, tenure: Tenure) -> bool:
        """Submit the purges that are due; a copy of the database waits for a person."""
        if installation_changed(self.database) is not None:
            return False
        with self.database.transaction(write=False) as tx:
            due = list(tables.artifacts_due(tx))
            wished = {artifact.job_id: tables.job_by_id(tx, artifact.job_id).wished() for artifact in due}
        submitted = [self.tasks.purge(artifact.job_id, artifact, wished=wished[artifact.job_id]) for artifact in due]
        return any(submitted)
