"""A job as front ends show it: the record that the command line prints as JSON, put together from job, tasks and subtasks."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tideshift.clock import rfc3339
from tideshift.config import PARAMETERS
from tideshift.ddl import tables
from tideshift.ddl.dialect import Dialect
from tideshift.ddl.job import Job, Stage
from tideshift.ddl.machine import JOB, JobState
from tideshift.ddl.native_task import StatementType
from tideshift.ddl.permission import allowed
from tideshift.ddl.reorg.fill import FILL, FillType
from tideshift.ddl.reorg.task import CATCH_UP, COPY, SEE_REFERENCES, VERIFY, ReorgType
from tideshift.ddl.reshaping import Strategy
from tideshift.ddl.tasks import newest_purge
from tideshift.ddl.waiting import waited_for
from tideshift.dxf import tables as dxf_tables
from tideshift.dxf.machine import TASK, SubtaskState, TaskState
from tideshift.dxf.task import DONE, Subtask, Task
from tideshift.store.database import Transaction

__all__ = ["job_view", "purge_pending"]

assert FILL == COPY, "rows that are filled are counted as rows that are copied"
_WEIGHTS = {COPY: 70.0, CATCH_UP: 5.0, VERIFY: 18.0, SEE_REFERENCES: 2.0}


def job_view(tx: Transaction, dialect: Dialect, job: Job) -> dict[str, Any]:
    """Return the documented record of one job."""
    plan = job.current_plan
    stage = plan.stages[job.stage] if job.stage < len(plan.stages) else None
    task = dxf_tables.task_by_key(tx, job.task_key(stage)) if stage is not None and stage.task_type else None
    reorg = task if task is not None and task.type == ReorgType.name else _reorg_task(tx, job)
    subtasks = [] if reorg is None else dxf_tables.subtasks_of(tx, reorg.id)
    running = _running(tx, task)
    rows: int = sum(s.summary.get("row_count", 0) for s in subtasks if s.step == COPY)
    if job.strategy == Strategy.DIRECT and job.state in (JobState.DONE, JobState.SYNCED):
        rows = job.row_total
    rates = [s.summary["rows_per_second"] for s in running if "rows_per_second" in s.summary]
    speed: float | None = sum(rates) if rates else None
    return {
        "id": job.id, "rev": job.rev, "type": job.type, "schema": job.schema_name, "table": job.table_name, "objects": job.objects,
        "query": job.query, "state": str(job.state), "schema_state": str(job.schema_state), "stage": _stage_name(stage, task),
        "strategy": job.strategy, "row_count": rows, "row_total": job.row_total, "row_total_exact": job.row_total_exact,
        "percent": _percent(job, reorg, subtasks, rows), "rows_per_second": speed,
        "eta_seconds": _eta_seconds(job, reorg, subtasks, rows, speed), "throttle": _throttle(running),
        "lock_holder": _lock_holder(tx, dialect, job),
        "waits_for": _waits_for(tx, dialect, task, running),
        "parameters": _parameters(dialect, job, task, running), "allowed": allowed(job), "requested_by": job.requested_by,
        "paused_by": job.paused_by, "pause_reason": job.pause_reason, "warnings": job.warnings, "error": _error(job),
        "artifacts": [
            {"kind": a.kind, "name": a.name, "drop_after": _time(a.drop_after)} for a in tables.artifacts_of(tx, job.id)
        ],
        "created_at": _time(job.created_at), "started_at": _time(job.started_at), "finished_at": _time(job.finished_at),
    }  # fmt: skip


def purge_pending(tx: Transaction, job_id: int) -> bool:
    """Whether a replaced table of a job is due to be purged, or is being purged."""
    _, task = newest_purge(tx, job_id)
    if task is not None and task.state is not TaskState.SUCCEED:
        return task.state not in TASK.final
    return any(artifact.job_id == job_id for artifact in tables.artifacts_due(tx))


def _reorg_task(tx: Transaction, job: Job) -> Task | None:
    keys = [job.task_key(stage) for stage in job.current_plan.stages if stage.task_type in (ReorgType.name, FillType.name)]
    return dxf_tables.task_by_key(tx, keys[0]) if keys else None


def _running(tx: Transaction, task: Task | None) -> list[Subtask]:
    if task is None or task.state in TASK.final:
        return []
    return [s for s in dxf_tables.subtasks_of(tx, task.id, step=task.step) if s.state is SubtaskState.RUNNING]


def _stage_name(stage: Stage | None, task: Task | None) -> str | None:
    if stage is None:
        return None
    step = ReorgType.names.get(task.step) if task is not None and task.type == ReorgType.name else None
    return stage.name if step is None else f"{stage.name}: {step}"


def _percent(job: Job, reorg: Task | None, subtasks: list[Subtask], rows: int) -> float:
    """Return how far the job is: copying is most of it, comparing the rest; 100 only when it is over."""
    if job.state in (JobState.SYNCED, JobState.DONE):
        return 100.0
    if reorg is None:
        return 0.0
    if reorg.step == DONE:
        return 95.0
    total = max(job.row_total, rows, 1)
    verified: int = sum(s.summary.get("verified", 0) for s in subtasks if s.step == VERIFY)
    share = {COPY: rows / total, CATCH_UP: 0.0, VERIFY: min(1.0, verified / total)}
    steps = list(ReorgType.names)
    before = sum(_WEIGHTS.get(step, 0.0) for step in steps[: steps.index(reorg.step)]) if reorg.step in steps else 0.0
    return round(before + _WEIGHTS.get(reorg.step, 0.0) * share.get(reorg.step, 0.0), 1)


def _eta_seconds(job: Job, reorg: Task | None, subtasks: list[Subtask], rows: int, speed: float | None) -> float | None:
    """Return what is left to copy and compare at the present speed; None when nothing is measured."""
    if reorg is None or not speed:
        return None
    total = max(job.row_total, rows)
    verified: int = sum(s.summary.get("verified", 0) for s in subtasks if s.step == VERIFY)
    left = (total - rows if reorg.step == COPY else 0) + max(0, total - verified)
    return round(left / speed, 1)


def _throttle(running: list[Subtask]) -> dict[str, Any] | None:
    for subtask in running:
        throttle = subtask.summary.get("throttle")
        if throttle and throttle["reason"] is not None:
            return dict(throttle)
    return None


def _lock_holder(tx: Transaction, dialect: Dialect, job: Job) -> dict[str, Any] | None:
    holder = None if job.state in JOB.final else waited_for(tx, dialect)
    return None if holder is None else asdict(holder)


def _waits_for(tx: Transaction, dialect: Dialect, task: Task | None, running: list[Subtask]) -> list[dict[str, Any]]:
    """Name the sessions that a long statement of the job waits for at this moment."""
    if task is None or task.type != StatementType.name:
        return []
    sessions = [subtask.session for subtask in running if subtask.session is not None]
    return [asdict(blocker) for session in sessions for blocker in dialect.load.waits_for(tx, session["backend"])]


def _parameters(dialect: Dialect, job: Job, task: Task | None, running: list[Subtask]) -> dict[str, Any]:
    """Return wished and effective values; what a running subtask acknowledged is what is in force."""
    effective: dict[str, Any] = {} if job.state is not JobState.RUNNING else {name: job.at_cutover(name) for name in PARAMETERS if PARAMETERS[name].of_cutover}
    since: int | None = None
    if task is not None and running:
        effective["threads"] = task.concurrency if dialect.capabilities.concurrent_writers else 1
    for subtask in running:
        effective.update(subtask.summary.get("effective", {}))
        since = subtask.summary.get("since", since)
    return {
        name: {
            "wished": _shown(job.parameters[name]["value"]),
            "effective": _shown(effective.get(name)),
            "since": _time(since if since is not None and name != "threads" and not PARAMETERS[name].of_cutover else job.parameters[name]["since"]),
        }
        for name in PARAMETERS if name in job.parameters
    }


def _shown(value: Any) -> Any:
    """Return a parameter's value as front ends show it: a byte rate is a whole number per second, a row rate says so."""
    return int(value.removesuffix(" bytes")) if isinstance(value, str) and value.endswith(" bytes") else value


def _error(job: Job) -> dict[str, Any] | None:
    if job.error is None:
        return None
    return {"code": job.error["code"], "message": job.error["message"], "hint": job.error.get("hint") or None, **_fields(job.error)}


def _fields(error: dict[str, Any]) -> dict[str, Any]:
    fields = error.get("fields") or {}
    return {"fields": fields} if fields else {}


def _time(ms: int | None) -> str | None:
    return None if ms is None else rfc3339(ms)
