"""Tasks, subtasks and nodes as they are read from their rows; a value here is a look at the past, never the truth."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

from tideshift.dxf.machine import SubtaskState, TaskState

if TYPE_CHECKING:
    from sqlalchemy import RowMapping

__all__ = ["DONE", "INIT", "Node", "Placed", "Subtask", "Task", "from_row"]

INIT = -1
"""The step of a task whose first step is not planned yet."""
DONE = -2
"""The step of a task that has no further step."""

R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class Task:
    """One unit of distributed work; `rev` is what every write compares."""

    id: int
    task_key: str
    type: str
    state: TaskState
    priority: int
    create_time: int
    start_time: int | None
    state_update_time: int
    end_time: int | None
    meta: dict[str, Any]
    concurrency: int
    step: int
    target_scope: str
    error: dict[str, Any] | None
    modify_params: dict[str, Any] | None
    max_node_count: int
    extra_params: dict[str, Any]
    keyspace: str
    rev: int

    @property
    def rank(self) -> tuple[int, int, int]:
        """Return what tasks are ordered by: priority, creation, id."""
        return (self.priority, self.create_time, self.id)


@dataclass(frozen=True, kw_only=True)
class Subtask:
    """The piece of a step that one node runs; `attempt` fences every write of its work."""

    id: int
    step: int
    task_id: int
    type: str
    exec_id: str | None
    state: SubtaskState
    checkpoint: dict[str, Any]
    concurrency: int
    create_time: int
    start_time: int | None
    state_update_time: int
    end_time: int | None
    meta: dict[str, Any]
    ordinal: int
    error: dict[str, Any] | None
    summary: dict[str, Any]
    attempt: int
    retries: int
    session: dict[str, str] | None
    rev: int


@dataclass(frozen=True, kw_only=True)
class Placed:
    """A subtask as the balancer needs it: its order, its state, and where it is."""

    id: int
    ordinal: int
    state: SubtaskState
    exec_id: str | None
    rev: int


@dataclass(frozen=True, kw_only=True)
class Node:
    """A process that heartbeats; `slots` is how many subtasks it runs at once."""

    host: str
    role: str
    cpu_count: int
    heartbeat_at: int
    started_at: int
    version: str
    draining: bool
    session: dict[str, str] | None

    @property
    def slots(self) -> int:
        """Return the capacity; the column keeps TiDB's name."""
        return self.cpu_count


_ENUMS: Mapping[type, Mapping[str, Any]] = {Task: {"state": TaskState}, Subtask: {"state": SubtaskState}, Placed: {"state": SubtaskState}}


def from_row(kind: type[R], row: RowMapping) -> R:
    """Make the value from a row that has at least its columns."""
    enums = _ENUMS.get(kind, {})
    names = [f.name for f in fields(kind)]  # type: ignore[arg-type]
    return kind(**{name: enums[name](row[name]) if name in enums else row[name] for name in names})
