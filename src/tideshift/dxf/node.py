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
from tideshift.dxf.handover.tables import due_next, move_claimed
from tideshift.dxf.machine import SubtaskState, TaskState
from tideshift.dxf.parameters import threads_per_node
from tideshift.dxf.pulse import Pulse
from tideshift.dxf.task import Subtask, Task
from tideshift.dxf.tasktype import Registry
from tideshift.store.database import Database, Transaction

__all__ = ["WorkerNode", "node_name"]

log = logging.getLogger(__name__)
CLAIMS_PER_SLOT = 4
Rank = tuple[int, int, int]


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
        self.pulse = Pulse(database.apart(), node=self.name) if database.driver.capabilities.concurrent_writers else None
        """What adaptive work here asks how much it may work."""
        self.stopping = threading.Event()
        self.draining = threading.Event()
        """Set when nothing new shall be started here, while what runs goes on to its end."""
        self.executors: list[Executor] = []
        self._sessions: dict[int, ExitStack] = {}
        self._lock = threading.Lock()
        self._strays_seen: set[tuple[int, int]] = set()
        self._best_waiting: Rank | None = None
        """The best rank that found no slot at the last look."""

    def register(self, version: str) -> None:
        """Write the node into the register."""
        with self.database.session() as session:
            identity = session.identity.as_record()
            try:
                with session.transaction() as tx:
                    tables.put_node(
                        tx, host=self.name, role=self.scope, slots=self.slots, version=version, session=identity, draining=self._leaves
                    )
            except errors.AmbiguousCommit:
                # The heartbeat sees whether the row is there, and registers again if it is not.
                log.info("node %s: it is not known whether it was registered", self.name)

    @property
    def _leaves(self) -> bool:
        return self.stopping.is_set() or self.draining.is_set()

    def heartbeat(self, *, lock_wait_seconds: float | None = None, through: Database | None = None) -> bool:
        """Write that the node lives, and see whether it shall drain; return False when it was taken for dead and is off the register.

        `through` is the same database by connections that nothing else uses.
        """
        if points.BEFORE_HEARTBEAT.on:
            points.BEFORE_HEARTBEAT.fire(node=self.name)
        with (through or self.database).transaction(durable=False, lock_wait_seconds=lock_wait_seconds) as tx:
            drains = tables.touch_node(tx, self.name, draining=self._leaves)
        if drains and not self._leaves:
            log.warning("node %s was asked to drain", self.name)
            self.draining.set()
        return drains is not None

    @property
    def is_drained(self) -> bool:
        """Whether the node drains and runs nothing any more."""
        return self.draining.is_set() and not self.running()

    def deregister(self, *, lock_wait_seconds: float | None = None) -> None:
        """Take the node off the register."""
        with self.database.transaction(lock_wait_seconds=lock_wait_seconds) as tx:
            tables.delete_node(tx, self.name)

    def start_due(self) -> list[Executor]:
        """Start what this node was given and has slots for, in rank order; return the executors that began.

        Where a task of better rank finds no slot, the lowest-ranked work here is asked to yield; so is what a task runs
        beyond the threads that it may use by now.
        """
        self._forget_ended()
        if self.stopping.is_set():
            return []
        due, live = self._due()
        if self.draining.is_set():
            for executor in self.running():
                executor.yields = True
            return []
        self._take_back_slots(due, live)
        begun: list[Executor] = []
        for task, subtask in due:
            if len(self.executors) >= self.slots:
                break
            started = self._begin(task, subtask) if self._running_of(task) < self.threads_of(task) else None
            if started is not None:
                begun.append(started)
        return begun

    def _take_back_slots(self, due: list[tuple[Task, Subtask]], live: dict[int, Task]) -> None:
        """Ask executors to yield, by what the tasks' rows say now: too many threads, or a better rank that waits."""
        running = [executor for executor in self.running() if not executor.yields]
        for executor in running:
            task = live.get(executor.task.id)
            executor.yields = task is not None and (self._place_of(executor) >= self.threads_of(task) or self._is_elsewhere(task))
        wanted: dict[int, int] = {}
        ranks: list[Rank] = []
        for task, _ in due:
            wanted[task.id] = wanted.get(task.id, 0) + 1
            if self._running_of(task) + wanted[task.id] <= self.threads_of(task):
                ranks.append(task.rank)
        running = [executor for executor in running if not executor.yields]
        free = self.slots - len(running)
        self._best_waiting = ranks[free] if len(ranks) > free else None
        for rank, executor in zip(ranks[free:], sorted(running, key=lambda one: one.task.rank, reverse=True), strict=False):
            executor.yields = executor.task.rank > rank

    def _is_elsewhere(self, task: Task) -> bool:
        """Whether a task names a scope that is not this node's: it was changed while the task ran here."""
        return task.target_scope not in ("", self.scope)

    def _place_of(self, executor: Executor) -> int:
        """Return how many executors of the same task were here before this one."""
        same = [one for one in self.running() if one.task.id == executor.task.id]
        return same.index(executor) if executor in same else 0

    def _running_of(self, task: Task) -> int:
        return sum(executor.task.id == task.id for executor in self.running())

    def running(self) -> list[Executor]:
        """Return the executors that have not ended."""
        with self._lock:
            return [executor for executor in self.executors if not executor.ended]

    # ── hand-over: called in the executors' threads ───────────────────────────────────────────────────────────────

    @property
    def claims_max(self) -> int:
        """Return how many subtasks one thread may claim at once: all of them together at most four per slot."""
        return max(1, CLAIMS_PER_SLOT * self.slots // max(1, len(self.running())))

    def claim(self, tx: Transaction, ended: Executor, *, limit: int) -> tuple[Task, list[Subtask]]:
        """Claim the next subtasks of the same task, unless the node stops or the slot is wanted for a better rank."""
        task = ended.task
        if self.stopping.is_set() or self.draining.is_set() or (self._best_waiting is not None and self._best_waiting < task.rank):
            return task, []
        due, rev = due_next(tx, task_id=task.id, exec_id=self.name, limit=limit)
        if not due:
            return task, []
        if rev != task.rev:
            task = tables.task_by_id(tx, task.id)
            if self._running_of(task) > self.threads_of(task):
                return task, []
        ended.note_claim([one.id for one in due])
        return task, move_claimed(tx, due, actor=self.name, session=ended.session_record)

    def adopt(self, ended: Executor, successor: Executor) -> None:
        """Let the successor take the place, and the connection, of one that ended."""
        with self._lock:
            self.executors[self.executors.index(ended)] = successor
            self._sessions[id(successor)] = self._sessions.pop(id(ended))

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
        """Return how many subtasks of a task may run here at once: one where the database has one writer, and of an adaptive task."""
        return threads_per_node(task, concurrent_writers=self.database.driver.capabilities.concurrent_writers)

    def _due(self) -> tuple[list[tuple[Task, Subtask]], dict[int, Task]]:
        """Read what waits here, best rank first, no more of a task than could start at once; and the tasks that run."""
        with self.database.transaction(write=False) as tx:
            running = {task.id: task for task in tables.live_tasks(tx) if task.state is TaskState.RUNNING}
            given = tables.given_to(tx, self.name, limit=self.slots)
        self._give_back_strays([s for s in given if s.state is SubtaskState.RUNNING])
        pending = [s for s in given if s.state is SubtaskState.PENDING and s.task_id in running]
        pairs = [(running[s.task_id], s) for s in pending if running[s.task_id].step == s.step and s.type in self.registry]
        return sorted(pairs, key=lambda pair: (pair[0].rank, pair[1].ordinal)), running

    def _give_back_strays(self, running: list[Subtask]) -> None:
        """Give back what the rows say runs here though nothing does: after a start whose commit had no clear answer.

        Only what two looks in a row find so: between a look at the rows and one at the executors much may be claimed and done.
        """
        with self._lock:
            known = {claimed for executor in self.executors for claimed in executor.claimed_ids}
        strays = {(stray.id, stray.attempt): stray for stray in running if stray.id not in known}
        for seen, stray in strays.items():
            if seen not in self._strays_seen:
                continue
            log.warning("subtask %s was said to run here and does not: given back", stray.id)
            try:
                with self.database.transaction() as tx:
                    tables.move_subtask(tx, stray, "release", actor=self.name, exec_id=None, session=None)
            except (errors.StateChanged, errors.Retryable, errors.AmbiguousCommit) as error:
                log.info("subtask %s: looked at again after %s", stray.id, error)
        self._strays_seen = set(strays)

    def _begin(self, task: Task, subtask: Subtask) -> Executor | None:
        with ExitStack() as stack:
            session = stack.enter_context(self.database.session())
            executor = Executor(self.database, self.registry, task, subtask, node=self.name, session=session, stop=self.stopping, succession=self)
            if not executor.start():
                return None
            with self._lock:
                self._sessions[id(executor)] = stack.pop_all()
                self.executors.append(executor)
        executor.open()
        return executor

    def _forget_ended(self) -> None:
        for executor in [executor for executor in self.executors if executor.ended]:
            with self._lock:
                if executor not in self.executors:
                    continue  # a successor has taken its place meanwhile
                self.executors.remove(executor)
            if executor.lost:
                # Whoever takes the subtask ends the session that its row names: nobody else may be working in it by then.
                executor.discard_session()
            else:
                executor.rest()
            self._sessions.pop(id(executor)).close()

    def release_all(self, *, lock_wait_seconds: float | None = None) -> None:
        """Give back everything that still runs here; called when no thread steps an executor any more."""
        for executor in list(self.executors):
            try:
                executor.release(lock_wait_seconds=lock_wait_seconds)
            except errors.TideshiftError as error:
                log.warning("subtask %s was not given back: %s", executor.subtask.id, error)
        self._forget_ended()
