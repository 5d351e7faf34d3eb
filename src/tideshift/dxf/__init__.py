"""Distributed jobs over a database: what an author of a task type imports, resolved when it is first used."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tideshift.dxf.authoring import Author, PlanContext, RunContext, live, submit, task_type
    from tideshift.dxf.commands import Answer, Dxf, Verdict
    from tideshift.dxf.machine import SubtaskState, TaskState
    from tideshift.dxf.task import Task
    from tideshift.dxf.tasktype import Registry, TaskType

__all__ = [
    "Answer", "Author", "Dxf", "PlanContext", "Registry", "RunContext", "SubtaskState", "Task", "TaskState", "TaskType", "Verdict", "live", "submit",
    "task_type",
]  # fmt: skip

_MODULES = {
    "authoring": ("Author", "PlanContext", "RunContext", "live", "submit", "task_type"),
    "commands": ("Answer", "Dxf", "Verdict"),
    "machine": ("SubtaskState", "TaskState"),
    "task": ("Task",),
    "tasktype": ("Registry", "TaskType"),
}


def __getattr__(name: str) -> Any:
    for module, names in _MODULES.items():
        if name in names:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
