"""A task as people and programs see it: one record per task, the same for the command line and any other front end."""

from __future__ import annotations

from typing import Any

from tideshift.clock import rfc3339
from tideshift.config import PARAMETERS
from tideshift.dxf import tables
from tideshift.dxf.commands import allowed_commands
from tideshift.dxf.machine import TASK, SubtaskState
from tideshift.dxf.parameters import parameter_of, pending_mailbox
from tideshift.dxf.progress_tables import StepProgress, progress_of
from tideshift.dxf.task import DONE, INIT, Subtask, Task
from tideshift.dxf.tasktype import Registry
from tideshift.store import events
from tideshift.store.database import Transaction

__all__ = ["Record", "request_records", "task_record"]

Record = dict[str, Any]
_FRAMEWORK = {"threads": "concurrency", "max_node_count": "max_node_count", "priority": "priority", "target_scope": "target_scope"}


def task_record(tx: Transaction, task: Task, registry: Registry) -> Record:
    """Return the documented record of a task; what it costs does not grow with the number of its subtasks."""
    steps = progress_of(tx, task.id)
    running = tables.in_states(tx, task, (SubtaskState.RUNNING,)) if task.state not in TASK.final else []
    present = next((one for one in steps if one.step == task.step), None) or (steps[-1] if steps and task.step == DONE else None)
    return {
        "id": task.id, "rev": task.rev, "key": task.task_key, "type": task.type, "state": str(task.state), "step": task.step,
        "step_name": registry.find(task.type).step_name(task.step) if task.type in registry and task.step not in (INIT, DONE) else None,
        "progress": _progress(task, steps, present, running), "nodes": sorted({one.exec_id for one in running if one.exec_id}),
        "parameters": _parameters(task, running), "allowed": list(allowed_commands(task)), "error": task.error,
        "created_at": _time(task.create_time), "started_at": _time(task.start_time), "finished_at": _time(task.end_time),
    }  # fmt: skip


def _progress(task: Task, steps: list[StepProgress], present: StepProgress | None, running: list[Subtask]) -> Record:
    rows = sum(one.row_count for one in steps) + sum(one.summary.get("row_count", 0) for one in running)
    rate = sum(one.summary.get("rows_per_second", 0.0) for one in running)
    total, done = (present.subtasks_total, present.subtasks_done) if present else (0, 0)
    eta: float | None = None
    if rate > 0 and present is not None and done > 0 and present.row_count > 0:
        eta = round(max(0.0, present.row_count / done * total - present.row_count - sum(one.summary.get("row_count", 0) for one in running)) / rate, 1)
    return {
        "subtasks_total": total, "subtasks_done": done, "subtasks_running": len(running), "row_count": rows, "rows_per_second": round(rate, 1) or None,
        "percent": 100.0 if str(task.state) == "succeed" else round(100 * done / total, 1) if total else 0.0, "eta_seconds": eta,
    }  # fmt: skip


def _parameters(task: Task, running: list[Subtask]) -> Record:
    """Return per parameter what is wished, and per node what is in force and since when, as its running subtasks acknowledged it."""
    own = task.meta.get("parameters", {})
    wished = {name: getattr(task, column) for name, column in _FRAMEWORK.items()}
    wished |= {name: own.get(name, PARAMETERS[name].default) for name in PARAMETERS if name not in wished}
    wished |= own
    wished |= {parameter_of(one["type"]): one["to"] for one in pending_mailbox(task)}
    found: Record = {name: {"wished": value, "effective": {}} for name, value in sorted(wished.items())}
    for subtask in running:
        for name, value in subtask.summary.get("effective", {}).items():
            if name in found:
                found[name]["effective"][subtask.exec_id] = {"value": value, "since": _time(subtask.summary.get("since"))}
    return found


def request_records(tx: Transaction, task_id: int) -> list[Record]:
    """Return every request that was made of a task: who, when, what, and what became of it."""
    log = events.history(tx, task_id=task_id, limit=10_000)
    ended = {one.request_id: one for one in log if one.kind == "outcome"}
    return [
        {
            "request_id": one.request_id, "command": one.detail["command"], "actor": one.actor, "at": _time(one.at),
            "wished": one.detail.get("wished"), "before": one.detail.get("before"),
            "outcome": ended[one.request_id].target if one.request_id in ended else "open",
            "reason": (ended[one.request_id].detail or {}).get("reason") if one.request_id in ended else None,
        }
        for one in log
        if one.kind == "request"
    ]  # fmt: skip


def _time(epoch_ms: int | None) -> str | None:
    return None if epoch_ms is None else rfc3339(epoch_ms)
