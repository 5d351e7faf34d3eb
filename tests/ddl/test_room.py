"""When room runs short: the copy waits, capture is given up before an application could feel it, and both go on when there is room again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.proof.engine import Engine, application, on_engine
from tideshift.ddl import points
from tideshift.ddl import room as ddl_room
from tideshift.ddl.dialect import DiskRoom
from tideshift.ddl.job import Job
from tideshift.ddl.machine import JobState
from tideshift.ddl.reorg.purge import PurgeType, PurgeWork
from tideshift.ddl.reorg.room import LOG_BYTES_MAX, why_give_up
from tideshift.ddl.room import RoomKeeper
from tideshift.ddl.tasks import JobTasks
from tideshift.dialects.points import DISK_FREE
from tideshift.dialects.sqlite.dialect import SqliteDialect
from tideshift.dxf.parameters import Limits
from tideshift.dxf.points import BEFORE_SUBTASK_MOVE
from tideshift.dxf.tasktype import Chunk
from tideshift.dxf.throttle import DISK_FULL
from tideshift.store.database import Database, Transaction

CHANGE = "ALTER TABLE t ALTER c TYPE INTEGER"
MIB = 1 << 20
ROOM = DiskRoom(free_bytes=100 * MIB, reserve_bytes=40 * MIB, least_bytes=10 * MIB)

GIVEN_UP = {
    "room enough": (ROOM, 0, 0.0, None),
    "below the reserve, with no log that grows": (DiskRoom(free_bytes=20 * MIB, reserve_bytes=40 * MIB, least_bytes=10 * MIB), MIB, -5.0, None),
    "next to nothing left": (DiskRoom(free_bytes=9 * MIB, reserve_bytes=40 * MIB, least_bytes=10 * MIB), 0, 0.0, "9 MiB are free"),
    "full in less than ten minutes": (ROOM, MIB, 100 * MIB / 599, "10.0 minutes"),
    "full in more than ten minutes": (ROOM, MIB, 100 * MIB / 601, None),
    "a log that is too big": (ROOM, LOG_BYTES_MAX + 1, 0.0, "1,024 MiB"),
    "a disk that nobody can see": (None, LOG_BYTES_MAX, 1e12, None),
    "a disk that nobody can see, and a log that is too big": (None, LOG_BYTES_MAX + 1, 0.0, "has grown"),
}


@pytest.mark.parametrize(("room", "log_bytes", "grows_by", "said"), GIVEN_UP.values(), ids=GIVEN_UP)
def test_when_capture_is_given_up(room: DiskRoom | None, log_bytes: int, grows_by: float, said: str | None) -> None:
    """By what is left, by how fast the log eats it, and by the log's own size."""
    why = why_give_up(room, log_bytes=log_bytes, grows_by=grows_by)

    assert (why is None) == (said is None)
    assert said is None or said in why


@pytest.fixture
def table(sqlite_path: Path) -> Path:
    """A table of 300 rows."""
    with closing(application(sqlite_path)) as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, c TEXT, d UNIQUE)")
        connection.execute("CREATE INDEX i ON t (c)")
        connection.executemany("INSERT INTO t VALUES (?, ?, ?)", [(number, str(number), number) for number in range(300)])
    return sqlite_path


def _write(path: Path, number: int) -> None:
    """Write as an application does, which nothing may keep from it."""
    with closing(application(path)) as connection:
        connection.execute("INSERT INTO t VALUES (?, ?, ?)", (number, f"{number}", number))
        connection.execute("UPDATE t SET c = '7' || c WHERE id = ?", (number % 300,))
        connection.execute("DELETE FROM t WHERE id = ?", (number % 299,))


def _whole(path: Path) -> list[tuple[object, ...]]:
    with closing(application(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        return connection.execute("SELECT id, c, d FROM t ORDER BY id").fetchall()


def _turn(engine: Engine, turns: int) -> None:
    for _ in range(turns):
        engine.turn()


def _made(path: Path) -> list[str]:
    with closing(application(path)) as connection:
        return [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE name GLOB 'tideshift_[0-9]*'")]


def test_a_copy_waits_for_room_and_goes_on_by_itself(table: Path, failpoints) -> None:
    """Below the reserve not a row is copied, and the job says why; the log is kept, and nothing is lost."""
    with on_engine(table) as engine:
        job_id = engine.submit(CHANGE, batch_size=20)
        engine.until_stage(job_id, "copy")
        _turn(engine, 2)
        room = engine.connected.dialect.load.room()
        failpoints.enable(DISK_FREE, f"return({(room.reserve_bytes + room.least_bytes) // 2})")
        _turn(engine, 40)
        copied = engine.connected.ddl.show(job_id)["row_count"]

        _turn(engine, 400)

        shown = engine.connected.ddl.show(job_id)
        assert (shown["state"], shown["row_count"], shown["throttle"]["reason"]) == ("running", copied, DISK_FULL)
        assert copied < 300
        _write(table, 1000)
        failpoints.disable(DISK_FREE)
        assert engine.finish(job_id).state is JobState.SYNCED
    assert {type(value) for _, value, _ in _whole(table)} == {int}


@pytest.mark.parametrize("paused", [False, True], ids=["running", "paused"])
def test_capture_is_given_up_and_the_copy_starts_again(paused: bool, table: Path, failpoints) -> None:
    """Triggers, log and copy go, the application goes on, and on resume everything is copied as it is by then."""
    with on_engine(table) as engine:
        job_id = engine.submit(CHANGE, batch_size=20)
        engine.until_stage(job_id, "copy")
        _turn(engine, 3)
        if paused:
            engine.connected.ddl.pause(job_id)
            engine.until(job_id, lambda job: job.state is JobState.PAUSED)
        _write(table, 1000)
        failpoints.enable(DISK_FREE, "return(0)")

        job = engine.until(job_id, lambda job: job.attempt == 1)

        assert (job.state, job.paused_by, str(job.schema_state)) == (JobState.PAUSED, "system", "delete only")
        assert "given up: only 0 MiB are free" in job.pause_reason
        assert not [name for name in _made(table) if name.endswith(("insert", "update", "delete"))]
        _write(table, 1001)
        engine.until(job_id, lambda _: not _made(table))
        _turn(engine, 100)
        assert engine.job(job_id).state is JobState.PAUSED

        failpoints.disable(DISK_FREE)
        engine.connected.ddl.resume(job_id)
        engine.until_stage(job_id, "copy")
        _write(table, 1002)
        assert engine.finish(job_id).state is JobState.SYNCED
    rows = _whole(table)
    assert {type(value) for _, value, _ in rows} == {int}
    assert {1000, 1001, 1002} <= {number for number, *_ in rows}


def test_a_job_that_only_has_to_swap_does_so(table: Path, failpoints) -> None:
    """It is what gives room back soonest."""
    with on_engine(table) as engine:
        job_id = engine.submit(CHANGE, batch_size=20)
        engine.until_stage(job_id, "cut over")
        failpoints.enable(DISK_FREE, "return(0)")
        engine.clock.advance(1.1)  # so that it is looked at
        engine.owner.renew()

        job = engine.finish(job_id)

    assert (job.state, job.attempt) == (JobState.SYNCED, 0)


def test_a_resume_without_room_is_held_again(table: Path, failpoints) -> None:
    """It makes nothing that would have to be given up at once."""
    with on_engine(table) as engine:
        job_id = engine.submit(CHANGE, batch_size=20)
        engine.until_stage(job_id, "copy")
        failpoints.enable(DISK_FREE, "return(0)")
        engine.until(job_id, lambda job: job.attempt == 1)
        engine.until(job_id, lambda _: not _made(table))
        engine.connected.ddl.resume(job_id)

        job = engine.until(job_id, lambda job: job.state is JobState.PAUSED)

        assert (job.paused_by, job.attempt, _made(table)) == ("system", 1, [])
        assert "MiB are free on the disk" in job.error["message"]


@pytest.mark.parametrize("purged", [False, True])
def test_a_job_without_capture_can_be_cancelled(purged: bool, table: Path, failpoints) -> None:
    """Whether its copy is gone by then or not."""
    before = _whole(table)
    with on_engine(table) as engine:
        job_id = engine.submit(CHANGE, batch_size=20)
        engine.until_stage(job_id, "copy")
        _turn(engine, 4)
        failpoints.enable(DISK_FREE, "return(0)")
        engine.until(job_id, lambda job: job.attempt == 1)
        if purged:
            engine.until(job_id, lambda _: not _made(table))
            _turn(engine, 30)
        engine.connected.ddl.cancel(job_id)

        ended = engine.finish(job_id)
        assert ended.state in (JobState.ROLLBACK_DONE, JobState.CANCELLED)
        assert (str(ended.schema_state), _made(table)) == ("none", [])
    assert _whole(table) == before


def test_an_owner_that_fails_while_it_gives_up_leaves_all_as_it_was(table: Path, failpoints) -> None:
    """Everything is dropped and written in one transaction, which the next look tries again."""
    with on_engine(table) as engine:
        job_id = engine.submit(CHANGE, batch_size=20)
        engine.until_stage(job_id, "copy")
        made = _made(table)
        failpoints.enable(points.BEFORE_LOSE_CAPTURE, "1*raise")
        failpoints.enable(DISK_FREE, "return(0)")
        engine.until(job_id, lambda job: job.err_count == 1)
        assert _made(table) == made

        job = engine.until(job_id, lambda job: job.attempt == 1)
        assert (job.state, job.err_count) == (JobState.PAUSED, 0)


class ProcessDied(BaseException):
    """What a test raises where a process dies."""


def test_a_purge_that_comes_back_leaves_the_next_copy_alone(table: Path, failpoints) -> None:
    """Its node died after the drop and before it said so: the copy waits until that is settled, and the purge finds its table gone."""
    died: list[dict[str, Any]] = []

    def die(**_: object) -> None:
        (executor,) = engine.node.executors
        if executor.task.type == PurgeType.name:
            died.append(executor.task.meta)
            raise ProcessDied

    with on_engine(table) as engine:
        job_id = engine.submit(CHANGE, batch_size=20)
        engine.until_stage(job_id, "copy")
        _turn(engine, 3)
        failpoints.enable(DISK_FREE, "return(0)")
        engine.until(job_id, lambda job: job.attempt == 1)
        failpoints.enable(BEFORE_SUBTASK_MOVE, call=die, where={"event": "succeed"})
        with pytest.raises(ProcessDied):
            _turn(engine, 1_000)
    failpoints.disable(DISK_FREE)
    failpoints.disable(BEFORE_SUBTASK_MOVE)
    assert died[0]["kind"] == "shadow"
    assert not _shadows(table)

    with on_engine(table) as engine:
        engine.connected.ddl.resume(job_id)
        _turn(engine, 25)
        assert not _shadows(table)  # the dead node's purge is not settled yet
        engine.clock.advance(600)
        engine.until_stage(job_id, "verify")
        engine.until(job_id, lambda _: engine.node.executors)
        with engine.connected.database.transaction() as tx:
            revived = PurgeWork(engine.connected.dialect, died[0])
            assert revived.step(_Context(tx, Limits.of(engine.node.executors[0].task), engine.connected.database)) is False
            assert tx.run_verbatim(f"SELECT count(*) FROM {_shadows(table)[0]}").scalar() == 300
        assert engine.finish(job_id).state is JobState.SYNCED
    assert {type(value) for _, value, _ in _whole(table)} == {int}
    assert len(_whole(table)) == 300


def _shadows(path: Path) -> list[str]:
    return [name for name in _made(path) if name.endswith("shadow")]


class _Context:
    """What a revived purge is given: one transaction, which commits nothing of its own."""

    def __init__(self, tx: Transaction, limits: Limits, database: Database) -> None:
        self.limits = limits
        self.database = database
        self._tx = tx

    @contextmanager
    def chunk(self) -> Iterator[Chunk]:
        yield Chunk(tx=self._tx, checkpoint={})


def test_a_copy_that_waits_for_room_drains(table: Path, failpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log is looked at before each try, however long the pauses between them have become."""
    monkeypatch.setattr(SqliteDialect, "capabilities", replace(SqliteDialect.capabilities, copy_log_rows=10))
    with on_engine(table) as engine:
        job_id = engine.submit(CHANGE, batch_size=20)
        engine.until_stage(job_id, "copy")
        room = engine.connected.dialect.load.room()
        failpoints.enable(DISK_FREE, f"return({(room.reserve_bytes + room.least_bytes) // 2})")
        _turn(engine, 60)
        with closing(application(table)) as connection:
            connection.execute("UPDATE t SET d = d + 1000")

        waited = engine.clock.monotonic()
        engine.until(job_id, lambda job: _backlog(engine, job) < 300)

        assert engine.clock.monotonic() - waited < 40
        assert engine.job(job_id).state is JobState.RUNNING


def _backlog(engine: Engine, job: Job) -> int:
    with engine.connected.database.transaction(write=False) as tx:
        return engine.connected.dialect.shadow.backlog(tx, job.reorg, limit=10_000)


def test_one_burst_is_drained_and_a_flood_is_given_up_to(table: Path, failpoints, monkeypatch: pytest.MonkeyPatch) -> None:
    """What grows in two intervals in a row would fill the disk; what grew in one may be over."""
    monkeypatch.setattr(ddl_room, "MEASURED_SECONDS_MIN", 1.0)
    with on_engine(table) as engine:
        job_id = engine.submit(CHANGE, batch_size=20)
        engine.until_stage(job_id, "copy")
        engine.connected.ddl.pause(job_id)
        job = engine.until(job_id, lambda job: job.state is JobState.PAUSED)
        tenure, keeper = engine.owner.tenure, RoomKeeper(engine.connected.database, engine.connected.dialect, JobTasks(engine.connected.database))
        room = engine.connected.dialect.load.room()
        failpoints.enable(DISK_FREE, f"return({room.least_bytes + 1})")
        grown = []
        for _ in range(3):
            assert not keeper.gives_up(engine.job(job_id), tenure), grown
            with engine.connected.database.transaction() as tx:
                log = engine.connected.dialect.shadow.artifacts(job.reorg)
                name = next(made.name for made in log if made.kind == "log")
                last = tx.run_verbatim(f"SELECT coalesce(max(seq), 0) FROM {name}").scalar()
                tx.run_verbatim(f"INSERT INTO {name} VALUES (?, 1)", (last + 100_000,))  # the log's span counts
            engine.clock.advance(1.1)
            engine.owner.renew()
            grown.append(last)
        assert keeper.gives_up(engine.job(job_id), tenure)
