"""The real engine in one thread: one file, one owner, one node, a clock that is stepped, and nothing that waits.

Between two turns, and at every failpoint that a test hooks, any other connection may do what an application does. A
lock that somebody holds is answered at once (no busy time-out), which the engine takes as an error that passes.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.servers import sqlite_module
from tideshift import errors
from tideshift.clock import SteppedClock
from tideshift.config import FAST
from tideshift.connect import Connected, connect
from tideshift.ddl import tables
from tideshift.ddl.job import Job
from tideshift.ddl.machine import JOB, JobState
from tideshift.ddl.reorg import task as reorg_task

__all__ = ["Engine", "Stuck", "application", "library", "on_engine", "repairs"]

TURN_SECONDS = 0.05
HEARTBEAT_TURNS = 8
OWNER_TURNS = 5
TURNS_MAX = 4_000
PARTS = 2
"""Into how many ranges a small table is cut: each costs a dozen system statements and proves nothing more."""
PROFILE = replace(FAST, system_lock_wait_seconds=0.0)


class Stuck(AssertionError):
    """The engine did not come to an end."""


def library() -> ModuleType:
    """Return the SQLite module of this run."""
    return sqlite_module()


def application(path: Path, *, timeout_seconds: float = 0.0) -> Any:
    """Open a plain connection as an application has it: every statement commits by itself."""
    return library().connect(os.fspath(path), isolation_level=None, timeout=timeout_seconds)


class Engine:
    """One owner and one node on one file, stepped by hand."""

    def __init__(self, path: Path, *, later_seconds: float = 0, parts: int = PARTS, strategy: str | None = "shadow_table") -> None:
        self.path = path
        self.strategy = strategy
        self.clock = SteppedClock()
        self.clock.advance(later_seconds)
        self.connected: Connected = connect(os.fspath(path), clock=self.clock, profile=PROFILE, actor="proof")
        self.connected.bootstrap()
        self.owner = self.connected.owner("proof-owner")
        self.node = self.connected.node(slots=1)
        self.node.register("proof")
        self.turns = 0
        self.delays: list[errors.Retryable] = []
        # Last, so that it is never changed by an engine that could not be made.
        self._parts = reorg_task.PARTS
        reorg_task.PARTS = parts

    def close(self) -> None:
        """Close every connection."""
        reorg_task.PARTS = self._parts
        self.node._forget_ended()
        self.connected.close()

    def submit(self, statement: str, **parameters: Any) -> int:
        """Submit a change and return the job's id."""
        return self.connected.ddl.submit(statement, parameters=parameters, strategy=self.strategy).id

    def turn(self) -> None:
        """Let the node do one chunk; let the owner look when there is none to do, and now and then beside it."""
        self.clock.advance(TURN_SECONDS)
        self.turns += 1
        running = [executor for executor in self.node.executors if not executor.ended]
        try:
            if self.turns % HEARTBEAT_TURNS == 0 and not self.node.heartbeat():
                self.node.register("proof")
            if not running:
                running = self.node.start_due()
        except errors.Retryable as error:
            # The lock is with somebody else: the service tries again at its next look as well.
            self.delays.append(error)
        for executor in running:
            executor.step()
        if not running or self.turns % OWNER_TURNS == 0:
            self.owner.tick()

    def job(self, job_id: int) -> Job:
        """Read a job."""
        return self.connected.ddl.job(job_id)

    def stage(self, job_id: int) -> str:
        """Name where the job stands: its stage, within the long one its step, or its state when it is not running."""
        with self.connected.database.transaction(write=False) as tx:
            job = tables.job_by_id(tx, job_id)
            if job.state is not JobState.RUNNING:
                return str(job.state)
            name = job.current_plan.stages[job.stage].name
            key = job.task_key(job.current_plan.stages[job.stage])
            step = tx.run_verbatim("SELECT step FROM tideshift_dxf_global_task WHERE task_key = ?", (key,)).scalar()
        return {1: "copy", 2: "catch up", 3: "verify"}.get(step, name) if name == "reorganize" else name

    def until(self, job_id: int, wanted: Callable[[Job], bool], *, turns_max: int = TURNS_MAX) -> Job:
        """Turn until the job is as wanted."""
        for _ in range(turns_max):
            job = self.job(job_id)
            if wanted(job):
                return job
            self.turn()
        raise Stuck(f"job {job_id} after {turns_max} turns: {self.connected.ddl.show(job_id)}")

    def until_stage(self, job_id: int, name: str) -> None:
        """Turn until the job stands at this stage or step."""
        job = self.until(job_id, lambda job: job.state in JOB.final or self.stage(job_id) == name)
        if self.stage(job_id) != name:
            raise Stuck(f"job {job_id} ended {job.state} before it came to {name!r}: {job.error}")

    def finish(self, job_id: int) -> Job:
        """Turn until the job is final and nothing that it made is left, but for old rows that it says it keeps."""
        ended = self.until(job_id, lambda job: job.state in JOB.final)
        if any("the old rows are kept" in warning for warning in ended.warnings):
            return ended
        for _ in range(TURNS_MAX // 10):
            if not self.left_behind():
                return ended
            self.turn()
        raise Stuck(f"job {job_id} ended {ended.state} with {ended.error} {ended.warnings} and left behind: {self.left_behind()}")

    def run(self, statement: str, **parameters: Any) -> Job:
        """Carry a change out from submission to the end of its purge."""
        return self.finish(self.submit(statement, **parameters))

    def left_behind(self) -> list[str]:
        """Name everything in our namespace that is no system table."""
        with closing(application(self.path)) as connection:
            rows = connection.execute(
                "SELECT name FROM sqlite_master WHERE name GLOB 'tideshift_[0-9]*' OR tbl_name GLOB 'tideshift_[0-9]*' ORDER BY 1"
            )
            return [name for (name,) in rows]


@contextmanager
def on_engine(path: Path, *, parts: int = PARTS, strategy: str | None = "shadow_table") -> Iterator[Engine]:
    """Open an engine on a file and close it at the end."""
    engine = Engine(path, parts=parts, strategy=strategy)
    try:
        yield engine
    finally:
        engine.close()


def repairs(path: Path) -> int:
    """Return how many rows verification found different."""
    with closing(application(path)) as connection:
        rows = connection.execute(
            "SELECT summary FROM tideshift_dxf_background_subtask UNION ALL SELECT summary FROM tideshift_dxf_background_subtask_history"
        ).fetchall()
    return sum(json.loads(summary or "{}").get("repaired", 0) for (summary,) in rows)
