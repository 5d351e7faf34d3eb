"""The last step of a shadow table beside others: old snapshots are waited for without a lock, and who is in the way is ended only on request."""

from __future__ import annotations

import threading
from typing import Any

import psycopg
import pytest

from tests.dialects.postgres.stepping import application, on_engine, rows
from tideshift.ddl.machine import JobState
from tideshift.store import events

SCHEMA = """
CREATE TABLE t (id int PRIMARY KEY, u int, c text);
INSERT INTO t SELECT i, i, 'c' || i FROM generate_series(1, 100) i;
CREATE TABLE other (id int PRIMARY KEY);
INSERT INTO other SELECT generate_series(1, 10);
ANALYZE;
"""
CHANGE = "ALTER TABLE t ALTER u TYPE bigint"


@pytest.fixture
def made(postgres_url: str) -> str:
    """Two small tables."""
    with application(postgres_url) as connection:
        connection.execute(SCHEMA.encode())
    return postgres_url


def submit(engine: Any, **parameters: Any) -> int:
    """Ask for the change."""
    return int(engine.ddl.submit(CHANGE, strategy="shadow_table", keep_old_seconds=0, parameters=parameters).id)


def told(engine: Any, job_id: int, kind: str) -> list[tuple[str | None, dict[str, Any]]]:
    """What the event log says of a kind."""
    history = engine.connected.database.run(lambda tx: events.history(tx, job_id=job_id), write=False)
    return [(event.target, event.detail) for event in history if event.kind == kind]


def waits(engine: Any, job_id: int) -> Any:
    """Step until the job waits for old snapshots."""
    return engine.until(job_id, lambda job: job.error is not None and job.error["code"] == "old_snapshots")


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
def test_an_old_snapshot_is_waited_for_without_a_lock(level: str, made: str) -> None:
    """The job says whose it is, and goes on when it has ended; everybody can lock the table meanwhile."""
    with on_engine(made) as engine, application(made) as old, application(made) as other:
        old.execute(f"BEGIN ISOLATION LEVEL {level}".encode())
        old.execute("SELECT count(*) FROM other")
        job_id = submit(engine)
        job = waits(engine, job_id)
        assert (job.state, job.err_count) == (JobState.RUNNING, 0)
        assert f"process {old.info.backend_pid} of tideshift for" in job.error["message"]
        assert "SELECT count(*) FROM other" in job.error["message"]
        with other.transaction():
            other.execute("LOCK TABLE t IN ACCESS EXCLUSIVE MODE NOWAIT")
        other.execute("UPDATE t SET c = 'meanwhile' WHERE id = 1")
        old.execute("COMMIT")
        assert engine.finish(job_id).state is JobState.SYNCED

        assert [target for target, _ in told(engine, job_id, "old snapshots")] == ["gone"]
    assert rows(made, "SELECT c FROM t WHERE id = 1") == [("meanwhile",)]


def test_the_wait_has_an_end_and_is_recorded(made: str) -> None:
    """Who was still there is in the log; it finds the table empty, as after a rewrite by the server itself."""
    with on_engine(made) as engine, application(made) as old:
        old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT count(*) FROM other")
        job_id = submit(engine, old_snapshots="wait 3s")
        waits(engine, job_id)
        assert engine.finish(job_id).state is JobState.SYNCED

        ((target, detail),) = told(engine, job_id, "old snapshots")
        assert (target, detail["wished"], [one["process"] for one in detail["sessions"]]) == ("proceeded", "wait 3s", [old.info.backend_pid])
        assert 3000 <= detail["waited_ms"] < 10_000
        assert old.execute("SELECT count(*) FROM t").fetchone() == (0,)


def test_the_wait_can_be_cut_short_while_it_lasts(made: str) -> None:
    """The wish is in force with the next try, and answered at once."""
    with on_engine(made) as engine, application(made) as old:
        old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT count(*) FROM other")
        job_id = submit(engine, old_snapshots="wait 1h")
        waits(engine, job_id)
        answer = engine.ddl.alter(job_id, {"old_snapshots": "proceed"})
        assert str(answer.verdict) == "applied"
        assert engine.ddl.show(job_id)["parameters"]["old_snapshots"]["effective"] == "proceed"
        assert engine.finish(job_id).state is JobState.SYNCED

        ((target, detail),) = told(engine, job_id, "old snapshots")
        outcomes = [target for target, detail in told(engine, job_id, "outcome")]
    assert (target, detail["wished"], outcomes) == ("proceeded", "proceed", ["applied"])


def test_what_began_later_is_not_waited_for(made: str) -> None:
    """Though a transaction that writes holds every new snapshot back, and though somebody is always reading."""
    with on_engine(made) as engine, application(made) as writer, application(made) as old, application(made) as late:
        writer.execute("BEGIN; INSERT INTO other VALUES (99)")
        old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM other")
        job_id = submit(engine, old_snapshots="wait 1h")
        waits(engine, job_id)
        late.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM other")
        old.execute("COMMIT")

        assert engine.finish(job_id).state is JobState.SYNCED


def test_a_blocked_cut_over_gives_up_within_its_budget_lets_a_writer_through_and_succeeds_later(made: str) -> None:
    """Each failed try is on record with its wait and with who was in the way; a writer that never stops is never kept longer than that."""
    stop = threading.Event()
    longest: list[float] = []

    def write() -> None:
        with application(made) as connection:
            n = 0
            while not stop.is_set():
                n += 1
                began = engine_time()
                connection.execute(b"UPDATE t SET c = %s WHERE id = 50", (f"w{n}",))
                longest.append(engine_time() - began)

    from time import monotonic as engine_time

    with on_engine(made) as engine, application(made) as blocker:
        job_id, pid = submit(engine), blocker.info.backend_pid
        engine.until(job_id, lambda job: job.stage >= 2)
        writer = threading.Thread(target=write)
        with blocker.transaction():
            blocker.execute("SELECT 1 FROM t LIMIT 1")
            writer.start()
            engine.until(job_id, lambda job: job.err_count >= 3)
            job = engine.ddl.job(job_id)
        try:
            assert job.state is JobState.RUNNING
            assert engine.finish(job_id).state is JobState.SYNCED
        finally:
            stop.set()
            writer.join(20)
        moves = [detail for _, detail in told(engine, job_id, "move")]

    failed = [one["error"]["fields"] for one in moves if one.get("error", {}).get("code") == "lock_timeout"]
    assert len(failed) >= 3
    assert all(150 <= one["waited_ms"] <= 1500 for one in failed), failed
    # The writer may be on its way through at the very moment.
    assert all(pid in [session["process"] for session in one["sessions"]] for one in failed[:3]), failed
    (last,) = (one for one in moves if one["event"] == "finish")
    assert last["tries"] > 3
    assert longest
    assert rows(made, "SELECT c FROM t WHERE id = 50") == [(f"w{len(longest)}",)]


def test_nobody_is_ended_unasked_and_who_is_in_the_way_is_ended_on_request(made: str) -> None:
    """The wish may come while the job tries; what was done is on record before and after."""
    with on_engine(made) as engine, application(made) as blocker, application(made) as bystander:
        job_id, pid = submit(engine), blocker.info.backend_pid
        engine.until(job_id, lambda job: job.stage >= 2)
        bystander.execute("BEGIN; SELECT 1 FROM other")
        blocker.execute("BEGIN; SELECT 1 FROM t LIMIT 1")
        engine.until(job_id, lambda job: job.err_count >= 2)
        assert told(engine, job_id, "blocker") == []
        assert blocker.execute("SELECT 1").fetchone() == (1,)
        engine.ddl.alter(job_id, {"end_blockers": "on"})
        assert engine.finish(job_id).state is JobState.SYNCED
        with pytest.raises(psycopg.OperationalError):
            blocker.execute("SELECT 1")
        assert bystander.execute("SELECT 1").fetchone() == (1,)

        done = told(engine, job_id, "blocker")
    assert [(target, detail["process"]) for target, detail in done] == [("ending", pid), ("ended", pid)]
    assert done[0][1]["query"] == "SELECT 1"


@pytest.mark.parametrize("kept", ["backup", "prepared", "old"])
def test_some_are_never_ended(kept: str, made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A backup, a prepared transaction, and whatever is older than the page says; the log names the reason."""
    from tideshift.dialects.postgres import locks

    with on_engine(made) as engine, application(made, application_name="pg_dump" if kept == "backup" else "shop") as blocker, application(made) as other:
        if kept == "old":
            monkeypatch.setattr(locks, "WRITER_SECONDS_MAX", -1)
        job_id = submit(engine, end_blockers=True)
        engine.until(job_id, lambda job: job.stage >= 2)
        blocker.execute("BEGIN; UPDATE t SET c = 'x' WHERE id = 3")
        if kept == "prepared":
            blocker.execute("PREPARE TRANSACTION 'held'")
        engine.until(job_id, lambda job: job.err_count >= 2)
        reasons = {detail["kept"] for target, detail in told(engine, job_id, "blocker")}
        error = engine.ddl.job(job_id).error
        (blocker if kept != "prepared" else other).execute("COMMIT" if kept != "prepared" else "COMMIT PREPARED 'held'")
        assert engine.finish(job_id).state is JobState.SYNCED

    assert reasons == {
        {"backup": "it is pg_dump", "prepared": "it is prepared: it ends by COMMIT PREPARED or ROLLBACK PREPARED", "old": "it has written for more than -1 s"}[kept]
    }  # fmt: skip
    assert error is not None
    assert ("prepared transaction 'held'" if kept == "prepared" else "UPDATE t SET c") in error["message"]
    assert rows(made, "SELECT c FROM t WHERE id = 3") == [("x",)]
