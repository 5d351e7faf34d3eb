"""A node: registers under a name that is never used again, heartbeats, and starts the subtasks it was given.

It needs no owner to go on with what it has. `start_due` and the executors' steps are driven by threads, or by a simulator.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
from contextlib import ExitStack

from tideshift import errors
from tideshift.dxf import points, tables
from tideshift.dxf.executor import Executor
from tideshift.dxf.machine import SubtaskState, TaskState
from tideshift.dxf.task import Subtask, Task
from tideshift.dxf.tasktype import Registry
from tideshift.store.database import Database

__all__ = ["WorkerNode", "node_name"]

log = logging.getLogger(__name__)


def node_name() -> str:
    """Return a name that is never used twice: host, process id, random."""
    return f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(4)}"


class WorkerNode:
    """One registered node and the executors it runs."""

    def __init__(self, database: Database, registry: Registry, *, slots: int, scope: str = "", name: str | None = None) -> None:
        assert slots >= 1
        self.database = database
        self.registry = registry
        self.slots = slots
        self.scope = scope
        self.name = name or node_name()
        self.stopping = threading.Event()
        self.executors: list[Executor] = []
        self._sessions: dict[int, ExitStack] = {}

    def register(self, version: str) -> None:
        """Write the node into the register."""
        with self.database.session() as session:
            identity = session.identity.as_record()
            try:
                with session.transaction() as tx:
                    tables.put_node(tx, host=self.name, role=self.scope, slots=self.slots, version=version, session=identity)
            except errors.AmbiguousCommit:
                # The heartbeat sees whether the row is there, and registers again if it is not.
                log.info("node %s: it is not known whether it was registered", self.name)

    def heartbeat(self, *, lock_wait_seconds: float | None = None) -> bool:
        """Write that the node lives; return False when it was taken for dead and is off the register."""
        if points.BEFORE_HEARTBEAT.on:
            points.BEFORE_HEARTBEAT.fire(node=self.name)
        with self.database.transaction(durable=False, lock_wait_seconds=lock_wait_seconds) as tx:
            return tables.touch_node(tx, self.name, draining=self.stopping.is_set())

    def deregister(self, *, lock_wait_seconds: float | None = None) -> None:
        """Take the node off the register."""
        with self.database.transaction(lock_wait_seconds=lock_wait_seconds) as tx:
            tables.delete_node(tx, self.name)

    def start_due(self) -> list[Executor]:
        """Start what this node was given and has slots for, in rank order; return the executors that began."""
        self._forget_ended()
        free = self.slots - len(self.executors)
        if self.stopping.is_set():
            return []
        begun: list[Executor] = []
        for task, subtask in self._due():
            if len(begun) >= free:
                break
            mine = sum(executor.task.id == task.id for executor in self.executors)
            if mine >= self.threads_of(task):
                continue
            executor = self._begin(task, subtask)
            if executor is not None:
                begun.append(executor)
        return begun

    def interrupt_unwanted(self) -> None:
        """End the long statements whose subtask was paused, cancelled or taken over, or all of them when the node stops."""
        running = [executor for executor in list(self.executors) if executor.is_interruptible]
        if not running:
            return
        with self.database.transaction(write=False) as tx:
            wanted = {(subtask.id, subtask.attempt) for subtask in tables.active_subtasks(tx, exec_id=self.name) if subtask.state is SubtaskState.RUNNING}
        for executor in running:
            if self.stopping.is_set() or (executor.subtask.id, executor.subtask.attempt) not in wanted:
                executor.interrupt()

    def threads_of(self, task: Task) -> int:
        """Return how many subtasks of a task may run here at once: one where the database has one writer."""
        return task.concurrency if self.database.driver.capabilities.concurrent_writers else 1

    def _due(self) -> list[tuple[Task, Subtask]]:
        with self.database.transaction(write=False) as tx:
            tasks = {task.id: task for task in tables.live_tasks(tx) if task.state is TaskState.RUNNING and task.type in self.registry}
            given = tables.active_subtasks(tx, exec_id=self.name)
        self._give_back_strays([s for s in given if s.state is SubtaskState.RUNNING])
        pending = [s for s in given if s.state is SubtaskState.PENDING]
        pairs = [(tasks[s.task_id], s) for s in pending if s.task_id in tasks and tasks[s.task_id].step == s.step]
        return sorted(pairs, key=lambda pair: (pair[0].rank, pair[1].ordinal))

    def _give_back_strays(self, running: list[Subtask]) -> None:
        """Give back what the rows say runs here though nothing does: after a start whose commit had no clear answer."""
        known = {executor.subtask.id for executor in self.executors}
        for stray in running:
            if stray.id in known:
                continue
            log.warning("subtask %s was said to run here and does not: given back", stray.id)
            try:
                with self.database.transaction() as tx:
                    tables.move_subtask(tx, stray, "release", actor=self.name, exec_id=None, session=None)
            except (errors.StateChanged, errors.Retryable, errors.AmbiguousCommit) as error:
                log.info("subtask %s: looked at again after %s", stray.id, error)

    def _begin(self, task: Task, subtask: Subtask) -> Executor | None:
        with ExitStack() as stack:
            session = stack.enter_context(self.database.session())
            executor = Executor(self.database, self.registry, task, subtask, node=self.name, session=session, stop=self.stopping)
            if not executor.start():
                return None
            self._sessions[id(executor)] = stack.pop_all()
        self.executors.append(executor)
        return executor

    def _forget_ended(self) -> None:
        for executor in [executor for executor in self.executors if executor.ended]:
            self.executors.remove(executor)
            if executor.lost:
                # Whoever takes the subtask ends the session that its row names: nobody else may be working in it by then.
                executor.discard_session()
            else:
                executor.rest()
            self._sessions.pop(id(executor)).close()

    def release_all(self, *, lock_wait_seconds: float | None = None) -> None:
        """Give back everything that still runs here; called when no thread steps an executor any more."""
        for executor in self.executors:
            try:
                executor.release(lock_wait_seconds=lock_wait_seconds)
            except errors.TideshiftError as error:
                log.warning("subtask %s was not given back: %s", executor.subtask.id, error)
        self._forget_ended()
