"""Plans steps beside the owner's tick, so that a plan that takes long keeps no other task waiting, nor a command on its own.

A plan is made of one look at a task: its `rev` is the plan's name. A task that has moved on meanwhile (it was cancelled, paused
or modified) throws the plan away: the statement that runs for it is ended, and whatever still comes of it is not used.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection
from dataclasses import dataclass, field, replace
from typing import Any

from tideshift.dxf.machine import TaskState
from tideshift.dxf.node_tables import alive_nodes
from tideshift.dxf.task import DONE, Node, Task
from tideshift.dxf.tasktype import Registry
from tideshift.store.database import Database, Session

__all__ = ["Plan", "Planner"]

log = logging.getLogger(__name__)
Spawn = Callable[[str, Callable[[], None]], None]


@dataclass(frozen=True)
class Plan:
    """The next step that has subtasks, or DONE, and the nodes that were alive then."""

    step: int
    metas: list[dict[str, Any]]
    nodes: list[Node]


@dataclass
class _Planning:
    """One plan that is being made."""

    rev: int
    session: Session | None = None
    plan: Plan | None = None
    error: Exception | None = None
    over: threading.Event = field(default_factory=threading.Event)
    unwanted: bool = False


class Planner:
    """Makes plans: at once, or in threads of `spawn` once that is set."""

    def __init__(self, database: Database, registry: Registry) -> None:
        self.database = database
        self.registry = registry
        self.spawn: Spawn | None = None
        self.wake: Callable[[], object] = lambda: None
        self._under_way: dict[int, _Planning] = {}
        self._lock = threading.Lock()

    def plan(self, task: Task, *, at_once: bool = False) -> Plan | None:
        """Return the plan for this look at a task, made in this thread if it shall be there at once; None while it is being made.

        Raise what planning raised.
        """
        if self.spawn is None:
            with self.database.session() as session:
                return self._make(session, task)
        with self._lock:
            planning = self._under_way.get(task.id)
            is_new = planning is None or planning.rev != task.rev
            if planning is None or is_new:
                self._drop(task.id)
                planning = self._under_way[task.id] = _Planning(task.rev)
        if is_new and at_once:
            self._run(task, planning)
        elif is_new:
            self.spawn(f"plan-{task.id}", lambda: self._run_beside(task, planning))
        if not planning.over.is_set():
            return None
        with self._lock:
            if self._under_way.get(task.id) is planning:
                del self._under_way[task.id]
        if planning.error is not None:
            raise planning.error
        return planning.plan

    def keep_only(self, wanted: Collection[tuple[int, int]] = ()) -> None:
        """Drop the plans of all looks but these (task id and rev)."""
        with self._lock:
            for task_id, planning in list(self._under_way.items()):
                if (task_id, planning.rev) not in wanted:
                    self._drop(task_id)

    def _drop(self, task_id: int) -> None:
        planning = self._under_way.pop(task_id, None)
        if planning is None:
            return
        planning.unwanted = True
        if planning.session is not None and not planning.over.is_set():
            self.database.driver.interrupt(planning.session.connection)

    def _run_beside(self, task: Task, planning: _Planning) -> None:
        self._run(task, planning)
        self.wake()

    def _run(self, task: Task, planning: _Planning) -> None:
        try:
            with self.database.session() as session:
                planning.session = session
                try:
                    if not planning.unwanted:
                        planning.plan = self._make(session, task)
                finally:
                    planning.session = None
        except Exception as error:  # noqa: BLE001 - it is raised where the plan is asked for
            planning.error = error
        planning.over.set()

    def _make(self, session: Session, task: Task) -> Plan:
        """Find the next step that has subtasks; an empty plan is a step that is skipped, but for the last one of a task that has not begun."""
        task_type = self.registry.find(task.type)
        metas: list[dict[str, Any]] = []
        nodes: list[Node] = []
        step = task_type.next_step(task)
        while step != DONE and not metas:  # ends: each turn takes a later step
            with session.transaction(write=False) as tx:
                metas = task_type.plan(tx, task, step)
                nodes = alive_nodes(tx)
            following = step if metas else task_type.next_step(replace(task, step=step))
            if following == DONE and task.state is TaskState.PENDING:
                break
            step = following
        return Plan(step, metas, nodes)
