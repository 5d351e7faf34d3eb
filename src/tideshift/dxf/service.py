"""Runs an owner and a node in one process: the threads around the loops, and an orderly end.

Threads: heartbeat, owner, node, pulse, and one per executor. The heartbeat renews the lease too, both through connections that
nothing else uses and that stay open, so that neither a pool nor a server without a free connection can make a live node look
dead. What starves a thread is a statement of C that holds the interpreter's lock: then the node is taken for dead, and its
work is fenced like that of any other. `stop` ends them within the stop budget: no new chunk starts, the chunk in flight is finished or rolled
back, subtasks and the lease are given back.
"""

from __future__ import annotations

import contextvars
import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from tideshift import errors
from tideshift.dxf.executor import Executor
from tideshift.dxf.node import WorkerNode
from tideshift.dxf.owner import Owner
from tideshift.dxf.planner import Planner
from tideshift.dxf.scheduler import Scheduler
from tideshift.store import bootstrap
from tideshift.store.database import Database

__all__ = ["Service"]

log = logging.getLogger(__name__)
STOP_SECONDS = 3.5
"""An interrupted command ends within five seconds; what is left of them is for noticing the signal and for a last look at the job."""
LOCK_WAIT_SECONDS_MIN = 0.1
"""How long each of the last writes may wait for a busy database even where nothing of the budget is left."""


class Service:
    """An owner and a node at work; a context manager that stops them at its end."""

    def __init__(self, database: Database, owner: Owner, node: WorkerNode, *, version: str) -> None:
        self.database = database
        self.owner = owner
        self.node = node
        self._heart = database.apart()
        owner.lease.database = self._heart
        self._version = version
        self.moved = threading.Event()
        """Set when the owner of this process did something that may be worth a look; whoever waits for it clears it."""
        self._threads: list[threading.Thread] = []
        self._spawning = threading.Lock()
        self._owner_wake = threading.Event()
        self._node_wake = threading.Event()
        self._planners: list[Planner] = []
        for duty in owner.duties:
            if isinstance(duty, Scheduler):
                duty.planned = self._node_wake.set
                duty.planner.spawn, duty.planner.wake = self._spawn_guarded, self._owner_wake.set
                self._planners.append(duty.planner)

    def __enter__(self) -> Self:
        self.node.register(self._version)
        self._beat()  # the connection is made before there is any work that could be in its way
        for name, loop in (("heartbeat", self._heartbeat), ("owner", self._own), ("node", self._execute), ("pulse", self._feel)):
            self._spawn(name, loop)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop everything and give back what was taken; safe to call twice."""
        self.node.stopping.set()
        self._interrupt()
        self.wake()
        deadline = self.database.clock.monotonic() + STOP_SECONDS
        for thread in self._threads:
            thread.join(max(0.0, deadline - self.database.clock.monotonic()))
        late = [thread.name for thread in self._threads if thread.is_alive()]
        if late:
            log.warning("did not stop in time, the lease will expire: %s", ", ".join(late))
            return
        self._threads.clear()
        self._last_words(deadline)
        self._heart.close()
        if self.node.pulse is not None:
            self.node.pulse.close()

    def drain(self) -> None:
        """Begin nothing new: chunked work is given back between two chunks, what cannot be cut is finished."""
        self.node.draining.set()
        self._node_wake.set()

    def _last_words(self, deadline: float) -> None:
        self._beat(lock_wait_seconds=max(LOCK_WAIT_SECONDS_MIN, deadline - self.database.clock.monotonic()))
        for give_back in (self.node.release_all, self.owner.resign, self.node.deregister):
            try:
                # No write waits for a busy database beyond the stop budget, so that all of them together do not either.
                give_back(lock_wait_seconds=max(LOCK_WAIT_SECONDS_MIN, deadline - self.database.clock.monotonic()))
            except errors.TideshiftError as error:
                log.warning("not given back, it will expire: %s", error)

    def _interrupt(self) -> None:
        try:
            for planner in self._planners:
                planner.keep_only()
            self.node.interrupt_unwanted()
        except (errors.Retryable, errors.CannotReach) as error:
            log.warning("a long statement was not ended: %s", error)

    def wake(self) -> None:
        """Let the loops look now instead of at the next scan."""
        if self.node.pulse is not None and self.node.stopping.is_set():
            self.node.pulse.asked.set()
        self._owner_wake.set()
        self._node_wake.set()

    def _spawn_guarded(self, name: str, target: Callable[[], None]) -> None:
        """Start a thread that ends by itself, unless everything is being stopped."""
        if not self.node.stopping.is_set():
            self._spawn(name, target)

    def _spawn(self, name: str, target: Callable[[], None]) -> None:
        context = contextvars.copy_context()
        thread = threading.Thread(target=context.run, args=(self._guarded, name, target), name=f"tideshift-{name}", daemon=True)
        with self._spawning:
            thread.start()
            self._threads = [*(one for one in self._threads if one.is_alive()), thread]

    def _guarded(self, name: str, target: Callable[[], None]) -> None:
        """Keep a loop alive through an error it did not expect; it is logged and the loop starts again."""
        while not self.node.stopping.is_set():
            try:
                target()
                return
            except Exception:
                log.exception("the %s loop failed and starts again", name)
                self.database.clock.wait(self.node.stopping, self.database.profile.scan_seconds)

    def _heartbeat(self) -> None:
        profile = self.database.profile
        while not self.database.clock.wait(self.node.stopping, profile.heartbeat_seconds):
            self.owner.renew()
            self._beat()

    def _beat(self, *, lock_wait_seconds: float | None = None) -> None:
        try:
            if not self.node.heartbeat(lock_wait_seconds=lock_wait_seconds, through=self._heart) and not self.node.stopping.is_set():
                log.warning("node %s was taken for dead; registering again", self.node.name)
                self.node.register(self._version)
            self._see_version()
        except (errors.Retryable, errors.CannotReach, errors.AmbiguousCommit, errors.DiskFull) as error:
            log.warning("no heartbeat: %s", error)

    def _feel(self) -> None:
        """Beat the node's pulse while adaptive work asks for it."""
        pulse, stopping = self.node.pulse, self.node.stopping
        while pulse is not None and not stopping.is_set():
            seconds = pulse.beat()
            if seconds == float("inf"):
                pulse.asked.wait()  # no time passes for somebody who waits for a question
            else:
                self.database.clock.wait(stopping, seconds)

    def _see_version(self) -> None:
        """Stop where somebody has taken the system tables to another version: what this one writes may mean something else there."""
        found = bootstrap.state(self.database)
        if found in (bootstrap.SystemState.OLDER, bootstrap.SystemState.NEWER):
            log.error("this node stops: the tideshift tables are of a version %s than its own", found)
            self.node.stopping.set()

    def _own(self) -> None:
        while not self.node.stopping.is_set():
            if self.owner.tick():
                self._node_wake.set()
                self.moved.set()
            else:
                self._rest(self._owner_wake)

    def _execute(self) -> None:
        while not self.node.stopping.is_set():
            begun = self.node.start_due()
            self.node.interrupt_unwanted()
            for executor in begun:
                self._spawn(f"subtask-{executor.subtask.id}", lambda executor=executor: self._drive(executor))  # type: ignore[misc]
            self._rest(self._node_wake)

    def _drive(self, executor: Executor) -> None:
        """Step one executor after another: each successor goes on in the same thread, on the same connection."""
        while not self.node.stopping.is_set():  # ends: an executor ends, and one without a successor is the last
            if executor.step():
                continue
            if executor.successor is None:
                break
            executor = executor.successor
        if not self.owner.hasten(executor.task.id):
            self._owner_wake.set()
        self._node_wake.set()

    def _rest(self, wake: threading.Event) -> None:
        """Wait for the next scan, or until something happened in this process; each loop has an event that only it clears."""
        self.database.clock.wait(wake, self.database.profile.scan_seconds)
        wake.clear()
