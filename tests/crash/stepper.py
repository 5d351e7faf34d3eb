"""The real engine in one thread: owner, node, executors and a client, stepped in a fixed order on a clock that is stepped too.

A `Life` is what one process does with a database until everything is settled or it dies. It keeps nothing but the file:
the next life finds out from the system tables what was asked for already, as a client with a durable script would.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.crash.application import MODULE, Application, Statement, Writer
from tideshift import __version__, errors
from tideshift.clock import SteppedClock
from tideshift.config import FAST
from tideshift.connect import connect
from tideshift.ddl.dialect import DiskRoom, InTheWay, Load, LockHolder
from tideshift.dxf.commands import Answer, Verdict
from tideshift.store.database import Transaction

START_MS = 1_700_000_000_000
ROUNDS_MAX = 3_000
ROUND_SECONDS = 0.1
HEARTBEAT_ROUNDS = 4
"""A heartbeat every 0.4 s of stepped time, as often as the profile asks for."""


@dataclass(frozen=True, kw_only=True)
class Command:
    """One thing that the client asks for, once the job has come to a place (and `subtasks` of that step are done)."""

    verb: str
    at: str
    subtasks: int = 0
    parameters: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A change of an application under writes, with what the client asks meanwhile and how it must end."""

    name: str
    application: Application
    script: tuple[Command, ...] = ()
    parameters: tuple[tuple[str, Any], ...] = (("batch_size", 5),)
    writes: int = 60
    write_every: int = 4
    steps: int = 3
    """How many steps each executor takes between two ticks of the owner."""
    ends: str = "synced"
    seed: int = 1
    strategy: str | None = "shadow_table"
    short_of_room_at: str | None = None
    """The place at which the disk has no room left, until the job has given its capture up."""

    @property
    def operations(self) -> list[Statement]:
        """Return the application's writes in order."""
        return self.application.operations(self.seed, self.writes)


@dataclass(frozen=True)
class Look:
    """The job as the file shows it to somebody who does not use the engine."""

    state: str | None
    place: str
    subtasks_done: int
    settled: bool
    asked: int
    job_id: int = 0
    attempt: int = 0


class Observer:
    """Reads the system tables by plain SQL, so that looking passes no failpoint."""

    def __init__(self, path: Path) -> None:
        self.connection = MODULE.connect(path, isolation_level=None, timeout=5)

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def rows(self, sql: str, *binds: Any) -> list[tuple[Any, ...]]:
        """Read rows."""
        return self.connection.execute(sql, binds).fetchall()

    def look(self) -> Look:
        """See where the job is."""
        if not self.rows("SELECT 1 FROM sqlite_master WHERE name = 'tideshift_ddl_job_history'"):
            return Look(None, "nowhere", 0, settled=False, asked=0)
        live = self.rows("SELECT id, state, stage, plan, attempt FROM tideshift_ddl_job")
        ended = self.rows("SELECT id, state, stage, plan, attempt FROM tideshift_ddl_job_history")
        if not live and not ended:
            return Look(None, "nowhere", 0, settled=False, asked=0)
        job_id, state, stage, plan, attempt = max(live + ended)
        asked = self.rows("SELECT count(*) FROM tideshift_event WHERE kind = 'request' AND job_id = ?", job_id)[0][0]
        place, subtasks_done = self._place(job_id, state, json.loads(plan)["stages"][stage:], attempt)
        return Look(state, place, subtasks_done, settled=not live and not self._unsettled(), asked=asked, job_id=job_id, attempt=attempt)

    def _place(self, job_id: int, state: str, stages: list[dict[str, Any]], attempt: int) -> tuple[str, int]:
        if state != "running":
            return state, 0
        name = stages[0]["name"]
        key = f"ddl/{job_id}/{name}" + (f"/{attempt}" if attempt else "")
        task = self.rows("SELECT id, step, state FROM tideshift_dxf_global_task WHERE task_key = ?", key)
        if not task:
            return name, 0
        task_id, step, _ = task[0]
        done = self.rows(
            "SELECT count(*) FROM tideshift_dxf_background_subtask WHERE task_id = ? AND step = ? AND state = 'succeed'", task_id, step
        )[0][0]
        names = {1: "copy", 2: "catch up", 3: "verify"} if name == "reorganize" else {1: name}
        return names.get(step, name), done

    def _unsettled(self) -> bool:
        counts = (
            "SELECT count(*) FROM tideshift_dxf_global_task", "SELECT count(*) FROM tideshift_dxf_background_subtask",
            "SELECT count(*) FROM tideshift_ddl_artifact WHERE dropped_at IS NULL",
        )  # fmt: skip
        return any(self.rows(sql)[0][0] for sql in counts)

    def time_ms(self) -> int:
        """Return the latest time that any life has written."""
        if not self.rows("SELECT 1 FROM sqlite_master WHERE name = 'tideshift_owner_lease'"):
            return START_MS
        latest = self.rows(
            "SELECT max(t) FROM (SELECT max(at) AS t FROM tideshift_event UNION ALL SELECT max(heartbeat_at) FROM tideshift_dist_framework_meta"
            f" UNION ALL SELECT max(expires_at) - {int(FAST.lease_seconds * 1000)} FROM tideshift_owner_lease)"
        )
        return latest[0][0] or START_MS


@dataclass
class Told:
    """What a life told the outside world before it ended: acknowledgements, and errors that nobody expected."""

    acknowledged: list[str] = field(default_factory=list)
    refused: list[Answer] = field(default_factory=list)
    escaped: list[str] = field(default_factory=list)
    logged: list[str] = field(default_factory=list)
    struck: int = 0
    """How many of the armed strikes were reached."""


class NotSettled(AssertionError):
    """A life did not come to an end within its rounds."""


class Disk:
    """The disk under a file, which can be told to be full."""

    def __init__(self, real: Load) -> None:
        self.real = real
        self.is_full = False

    def room(self) -> DiskRoom | None:
        """Measure, or say that nothing is left."""
        return DiskRoom(free_bytes=0, reserve_bytes=8, least_bytes=2) if self.is_full else self.real.room()

    def lock_holder(self) -> LockHolder | None:
        """Ask the real one."""
        return self.real.lock_holder()

    def waits_for(self, tx, backend):
        """Ask the real one."""
        return self.real.waits_for(tx, backend)

    def moment(self, tx: Transaction) -> str:
        """Ask the real one."""
        return self.real.moment(tx)

    def older_snapshots(self, tx: Transaction, moment: str) -> list[InTheWay]:
        """Ask the real one."""
        return self.real.older_snapshots(tx, moment)

    def end(self, tx: Transaction, session: InTheWay) -> str:
        """Ask the real one."""
        return self.real.end(tx, session)


class Life:
    """One process at work; `run` returns when nothing is left to do."""

    def __init__(
        self, path: Path, scenario: Scenario, *, told: Told | None = None, acknowledge: Callable[[str], None] | None = None,
        later_seconds: float = 0.0,
    ) -> None:  # fmt: skip
        self.path = path
        self.scenario = scenario
        self.told = told or Told()
        self.acknowledge = acknowledge or (lambda _: None)
        self.observer = Observer(path)
        self.writer = Writer(path, scenario.operations, every=scenario.write_every)
        self.clock = SteppedClock(self.observer.time_ms())
        self.clock.advance(later_seconds)
        self.connected = connect(str(path), clock=self.clock, profile=FAST, actor="client")
        self.disk = Disk(self.connected.dialect.load)
        self.connected.dialect.load = self.disk
        self.node = self.connected.node()
        self.owner = self.connected.owner(self.node.name)
        self.bootstrapped = self.registered = False
        self.rounds = 0

    def close(self) -> None:
        """Close every connection, as the end of a process does."""
        for executor in self.node.executors:
            executor.ended = True
        self.node.release_all()
        self.connected.close()
        self.writer.close()
        self.observer.close()

    def run(self) -> None:
        """Go round until everything is settled, then let the application finish its writes."""
        with _errors_logged(self.told.logged):
            while not self.observer.look().settled:
                if self.rounds >= ROUNDS_MAX:
                    raise NotSettled(f"{self.scenario.name}: not settled after {ROUNDS_MAX} rounds: {self._why()}")
                self.round()
        self.writer.finish()

    def round(self) -> None:
        """Do one thing of each kind."""
        self.rounds += 1
        self._guarded(self._boot)
        if self.bootstrapped:
            for act in (self._client, self.owner.tick, self._heartbeat, self.node.start_due, self._execute):
                self._guarded(act)
        self.clock.advance(ROUND_SECONDS)

    def _guarded(self, act: Callable[[], Any]) -> None:
        """Go on after an error, as the loops of a service do."""
        try:
            act()
        except Exception as error:  # noqa: BLE001 - what escaped is judged at the end
            self.told.escaped.append(f"{getattr(act, '__name__', act)}: {type(error).__name__}: {error}")

    def _boot(self) -> None:
        """Make the system tables, again after a failure, and register once: the heartbeat finds out what became of it."""
        if not self.bootstrapped:
            self.connected.bootstrap()
            self.bootstrapped = True
        if not self.registered:
            # Before it is done: with its answer lost it may have happened, and a second one would be refused.
            self.registered = True
            self.node.register(__version__)

    def _client(self) -> None:
        """Submit the job, then ask for what the script says, each when its place is reached."""
        look = self.observer.look()
        if look.state is None:
            self.submit()
            return
        if self.scenario.short_of_room_at is not None:
            self.disk.is_full = look.place == self.scenario.short_of_room_at and look.subtasks_done > 0 and look.attempt == 0
        if look.asked < len(self.scenario.script):
            command = self.scenario.script[look.asked]
            if command.at == look.place and look.subtasks_done >= command.subtasks:
                self.ask(command)

    def submit(self) -> None:
        """Hand the change in."""
        job = self.connected.ddl.submit(self.scenario.application.change, parameters=dict(self.scenario.parameters), keep_old_seconds=0, strategy=self.scenario.strategy)
        self.acknowledge(f"job {job.id}")
        self.told.acknowledged.append(f"job {job.id}")

    def ask(self, command: Command) -> Answer:
        """Put one command to the job."""
        ddl, job_id = self.connected.ddl, self.observer.look().job_id
        if command.verb == "alter":
            answer = ddl.alter(job_id, dict(command.parameters))
        else:
            (answer,) = {"pause": ddl.pause, "resume": ddl.resume, "cancel": ddl.cancel}[command.verb](job_id)
        if answer.verdict is Verdict.APPLIED:
            self.acknowledge(f"request {answer.request_id}")
            self.told.acknowledged.append(f"request {answer.request_id}")
        else:
            self.told.refused.append(answer)
        return answer

    def _heartbeat(self) -> None:
        if self.rounds % HEARTBEAT_ROUNDS == 0:
            if not self.node.heartbeat():
                self.node.register(__version__)
            self.owner.renew()

    def _execute(self) -> None:
        for executor in list(self.node.executors):
            for _ in range(self.scenario.steps):
                if not executor.ended:
                    executor.step()

    def _why(self) -> str:
        look = self.observer.look()
        live = self.observer.rows("SELECT id, state, stage, err_count, error FROM tideshift_ddl_job")
        tasks = self.observer.rows("SELECT id, task_key, state, step, error FROM tideshift_dxf_global_task")
        subtasks = self.observer.rows(
            "SELECT id, task_id, step, state, attempt, exec_id FROM tideshift_dxf_background_subtask WHERE state <> 'succeed'"
        )
        artifacts = self.observer.rows("SELECT job_id, kind, name, drop_after FROM tideshift_ddl_artifact WHERE dropped_at IS NULL")
        return f"{look}; jobs {live}; tasks {tasks}; subtasks {subtasks}; artifacts {artifacts}; escaped {self.told.escaped[-5:]}"


class _Collector(logging.Handler):
    """Keeps what is logged as an error: an exception that a loop swallowed and went on after."""

    def __init__(self, kept: list[str]) -> None:
        super().__init__(logging.ERROR)
        self.kept = kept

    def emit(self, record: logging.LogRecord) -> None:
        """Keep one record with its exception."""
        cause = record.exc_info[1] if record.exc_info else None
        self.kept.append(f"{record.name}: {record.getMessage()}: {type(cause).__name__}: {cause}")


@contextmanager
def _errors_logged(kept: list[str]) -> Iterator[None]:
    collector = _Collector(kept)
    logger = logging.getLogger("tideshift")
    logger.addHandler(collector)
    try:
        yield
    finally:
        logger.removeHandler(collector)


def is_expected(line: str, injected: Sequence[str]) -> bool:
    """Whether an error that escaped or was logged is the injected one, or what the engine says of it."""
    passing = (errors.StateChanged.__name__, errors.SubtaskLost.__name__)
    return any(word in line for word in (*injected, *passing))
