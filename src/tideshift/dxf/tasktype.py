"""What an author of a distributed job writes: a task type plans steps, and opens the work of one subtask.

The framework owns every transaction. A unit of work is one call of `Work.step`: it opens at most one chunk
(`context.chunk()`), does its rows in `chunk.tx`, and tells the chunk how far it came; the checkpoint is written last,
guarded by the attempt, and commits together with the rows. Plans must be stable: planning a step twice gives the same
subtasks. Subtasks must be idempotent up to their checkpoint: after a crash one is run again from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Protocol

from tideshift.dxf.parameters import Limits
from tideshift.dxf.task import Subtask, Task
from tideshift.errors import NotFound
from tideshift.store.database import Database, Session, Transaction

__all__ = ["Chunk", "Context", "Registry", "TaskType", "Work", "live_parameters"]


@dataclass(kw_only=True)
class Chunk:
    """One transaction of a subtask; the work sets what the checkpoint shall say."""

    tx: Transaction
    checkpoint: dict[str, Any]
    rows: int = 0
    size_bytes: int = 0
    counters: dict[str, int] | None = None
    """Other counters to add up in the subtask's summary."""
    urgent: bool = False
    """Whether adaptive work does not rest after it: what must keep up with the application's own writes falls behind for ever otherwise."""
    held_seconds: float = 0.0
    """How long the transaction took, commit included; known once the chunk is over."""


class Context(Protocol):
    """What the framework gives to running work."""

    database: Database
    task: Task
    subtask: Subtask

    @property
    def limits(self) -> Limits:
        """Return the parameters in force now."""
        ...

    def alone(self) -> AbstractContextManager[Session]:
        """Give the subtask's connection outside any transaction, for a statement that commits by itself; it may be ended from outside."""
        ...

    def chunk(self, *, write: bool = True) -> AbstractContextManager[Chunk]:
        """Open a chunk; a read-only one sees one snapshot, and its checkpoint follows in a transaction of its own."""
        ...


class Work(Protocol):
    """The work of one subtask on one node.

    One whose single statements take long sets an attribute `interruptible = True`: the statement that runs is then ended on the
    server once the subtask is no longer wanted here, and does its work again when it is.
    """

    def step(self, context: Context) -> bool:
        """Do one chunk; return False when everything of the subtask is done."""
        ...


class TaskType(Protocol):
    """One kind of distributed work.

    It may have more: `is_retryable(error)` for errors of its own that pass; `live_parameters`, its own parameters that may
    change while it runs, each with what checks a value and gives its stored form; and `clean(tx, task)`, which is called
    in the transaction that ends the task, whatever way it ends: what it raises keeps the task from ending, and it is tried again.
    """

    name: str

    def next_step(self, task: Task) -> int:
        """Return the step after `task.step`, or `DONE`; it must not depend on the meta."""
        ...

    def step_name(self, step: int) -> str:
        """Name a step for people."""
        ...

    def plan(self, tx: Transaction, task: Task, step: int) -> list[dict[str, Any]]:
        """Return the metas of a step's subtasks (JSON, all different); an empty list skips the step. Reads only."""
        ...

    def open(self, task: Task, subtask: Subtask) -> Work:
        """Prepare the work of a subtask; it touches nothing yet."""
        ...

    def modify(self, meta: dict[str, Any], modifications: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the meta with the application's own modifications applied; raise `InvalidParameter` for one that makes no sense."""
        ...

    def revert(self, tx: Transaction, task: Task) -> None:
        """Undo the effects of a task that will not succeed; idempotent, tolerates what is gone already."""
        ...


class Registry:
    """The task types that this process knows; it never touches a task of another type."""

    def __init__(self, *types: TaskType) -> None:
        self._types: dict[str, TaskType] = {}
        for task_type in types:
            self.add(task_type)

    def add(self, task_type: TaskType) -> None:
        """Make a type known; a name can be taken once."""
        assert task_type.name not in self._types, task_type.name
        self._types[task_type.name] = task_type

    def __contains__(self, name: str) -> bool:
        return name in self._types

    def __iter__(self) -> Iterator[str]:
        return iter(self._types)

    def find(self, name: str) -> TaskType:
        """Return the type; raise `NotFound`."""
        if name not in self._types:
            raise NotFound(f"this node does not know the task type {name!r}", hint="Run a node of the version that submitted it.")
        return self._types[name]


def live_parameters(registry: Registry, name: str) -> Mapping[str, Callable[[Any], Any]] | None:
    """Return what a type lets be changed of its own while it runs; None when the type is not known here."""
    if name not in registry:
        return None
    found: Mapping[str, Callable[[Any], Any]] = getattr(registry.find(name), "live_parameters", {})
    return found
