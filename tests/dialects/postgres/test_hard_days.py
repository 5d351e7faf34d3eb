"""What a shadow table meets on a hard day: blockers, sessions that replicate, triggers switched off, a server that dies."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from tests.conftest import give_up
from tests.dialects.postgres.stepping import application, catalogue, on_engine, rows
from tests.dialects.postgres.stopped import COPYING, stopped_at
from tests.servers import PostgresServer, Unavailable
from tideshift.ddl.machine import JobState

SCHEMA = """
CREATE TABLE t (id int PRIMARY KEY, u int UNIQUE, c text);
INSERT INTO t SELECT i, i, 'c' || i FROM generate_series(1, {rows}) i;
CREATE TABLE child (t int REFERENCES t);
CREATE TABLE numbered (id serial);
ANALYZE;
"""
CHANGE = "ALTER TABLE t ALTER u TYPE bigint, ADD COLUMN z int DEFAULT 1"


@pytest.fixture
def made(postgres_url: str) -> str:
    """A small table."""
    with application(postgres_url) as connection:
        connection.execute(SCHEMA.format(rows=300).encode())
    return postgres_url


def submit(engine: Any) -> int:
    """Ask for the change."""
    return int(engine.ddl.submit(CHANGE, strategy="shadow_table", keep_old_seconds=0, parameters={"batch_size": 20}).id)


@pytest.mark.parametrize("holder", ["SELECT 1 FROM t LIMIT 1", "SELECT 1 FROM child", "LOCK TABLE t IN ACCESS SHARE MODE"])
def test_a_blocked_swap_gives_up_lets_everybody_through_and_succeeds_later(holder: str, made: str) -> None:
    """Who is in the way is named with what it runs; writers go on meanwhile, and what they write is in the new table."""
    with on_engine(made) as engine, application(made) as old, application(made) as other:
        job_id = submit(engine)
        engine.until(job_id, lambda job: job.stage >= 2)
        with old.transaction():
            old.execute(holder.encode())
            engine.until(job_id, lambda job: job.err_count >= 2)
            other.execute("UPDATE t SET c = 'meanwhile' WHERE id = 7; INSERT INTO child VALUES (7)")
            job = engine.ddl.job(job_id)
            assert job.error is not None
            assert holder.partition(" ")[0] in job.error["message"], job.error
            assert job.state is JobState.RUNNING
        assert engine.finish(job_id).state is JobState.SYNCED

    assert rows(made, "SELECT c, z FROM t WHERE id = 7") == [("meanwhile", 1)]


def test_a_session_that_replicates_is_captured_too(made: str) -> None:
    """It fires no ordinary trigger; ours are always fired."""
    with on_engine(made) as engine, application(made) as applying:
        job_id = submit(engine)
        engine.until(job_id, lambda job: job.stage >= 1 and engine.copied(job_id) > 100)
        applying.execute("SET session_replication_role = replica")
        applying.execute("UPDATE t SET c = 'replicated' WHERE id <= 5; DELETE FROM t WHERE id = 6")
        assert engine.finish(job_id).state is JobState.SYNCED

    assert rows(made, "SELECT count(*) FILTER (WHERE c = 'replicated'), count(*) FROM t") == [(5, 299)]


DEEDS = {
    "triggers off": "ALTER TABLE t DISABLE TRIGGER ALL; UPDATE t SET c = 'unseen'; ALTER TABLE t ENABLE TRIGGER ALL",
    "column": "ALTER TABLE t ADD COLUMN y int",
    "index": "CREATE INDEX another ON t (c)",
    "no index": "ALTER TABLE t DROP CONSTRAINT t_u_key",
    "default": "ALTER TABLE t ALTER c SET DEFAULT 'x'",
    "check": "ALTER TABLE t ADD CHECK (id > 0)",
    "storage": "ALTER TABLE t SET (fillfactor = 50)",
    "statistics": "ALTER TABLE t ALTER c SET STATISTICS 7",
    "function": "CREATE FUNCTION of_row(one t) RETURNS int LANGUAGE sql AS 'SELECT 1'",
}


@pytest.mark.parametrize("deed", DEEDS.values(), ids=DEEDS)
def test_whatever_would_be_lost_ends_the_job(deed: str, made: str) -> None:
    """Triggers switched off for a moment only are seen by what the catalogue keeps of it; what was added meanwhile stays, and nothing of the job does."""
    with on_engine(made) as engine:
        job_id = submit(engine)
        engine.until(job_id, lambda job: job.stage >= 1 and engine.copied(job_id) > 100)
        with application(made) as connection:
            connection.execute(deed.encode())
        job = engine.finish(job_id)
        assert job.state is JobState.ROLLBACK_DONE
        assert job.error is not None
        assert job.error["code"] == "schema_changed"
        engine.until(job_id, lambda _: engine.left_behind() == set())

    assert "z" not in [column[1] for column in catalogue(made, "t")[0]]


def test_what_the_last_sequence_gave_stays_the_sessions_own(made: str) -> None:
    """The log numbers nothing, so a write does not change what the application is told next."""
    with on_engine(made) as engine, application(made) as session:
        engine.until(submit(engine), lambda job: job.stage >= 1)
        session.execute("INSERT INTO numbered DEFAULT VALUES; INSERT INTO t VALUES (1000, 1000, 'x')")

        assert session.execute("SELECT lastval()").fetchone() == (1,)


def test_capture_changes_no_answer(made: str) -> None:
    """Tags, counts and returned rows are as without a job."""
    statements = ("UPDATE t SET c = c WHERE id < 4 RETURNING id", "DELETE FROM t WHERE id = 9 RETURNING *", "INSERT INTO t VALUES (2000, 2000, 'n') ON CONFLICT DO NOTHING RETURNING id")
    with on_engine(made) as engine, application(made) as session:
        engine.until(submit(engine), lambda job: job.stage >= 1)
        answers = [(cursor.statusmessage, cursor.fetchall()) for cursor in (session.execute(one.encode()) for one in statements)]

    assert answers == [("UPDATE 3", [(1,), (2,), (3,)]), ("DELETE 1", [(9, 9, "c9")]), ("INSERT 0 1", [(2000,)])]


def test_what_is_hung_on_it_meanwhile_is_carried_over(made: str) -> None:
    """A trigger, a view, a privilege, a comment and a reference that came while the job was on."""
    with on_engine(made) as engine, application(made) as session:
        job_id = submit(engine)
        engine.until(job_id, lambda job: job.stage >= 1 and engine.copied(job_id) > 100)
        session.execute(
            "CREATE VIEW late AS SELECT c FROM t; GRANT SELECT ON t TO PUBLIC; COMMENT ON TABLE t IS 'late'; CREATE TABLE lately (t int REFERENCES t);"
            " CREATE FUNCTION quiet() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'; CREATE TRIGGER late BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION quiet()"
        )
        assert engine.finish(job_id).state is JobState.SYNCED
        session.execute("INSERT INTO t VALUES (5000, 5000, 'seen by it'); INSERT INTO lately VALUES (5000)")

        assert session.execute("SELECT 1 FROM late WHERE c = 'seen by it'").fetchall() == [(1,)]
        assert session.execute("SELECT obj_description('t'::regclass), has_table_privilege('public', 't', 'SELECT')").fetchall() == [("late", True)]
        assert session.execute("SELECT tgname::text FROM pg_trigger WHERE tgrelid = 't'::regclass AND NOT tgisinternal").fetchall() == [("late",)]


def test_grants_on_everything_are_no_harm(made: str) -> None:
    """As each deployment gives them, on our objects too: capture is in force all the same."""
    with on_engine(made) as engine, application(made) as session:
        job_id = submit(engine)
        engine.until(job_id, lambda job: job.stage >= 1 and engine.copied(job_id) > 100)
        session.execute("GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO PUBLIC; GRANT SELECT ON ALL TABLES IN SCHEMA public TO PUBLIC")
        assert engine.finish(job_id).state is JobState.SYNCED


def test_a_temporary_view_of_another_session_is_waited_for(made: str) -> None:
    """Nobody else can make it again; it goes with its session."""
    with on_engine(made) as engine:
        with application(made) as other:
            other.execute("CREATE TEMPORARY VIEW passing AS SELECT id FROM t")
            job_id = submit(engine)
            job = engine.until(job_id, lambda job: job.err_count >= 1)
            assert job.error is not None
            assert "passing" in job.error["message"]
        assert engine.finish(job_id).state is JobState.SYNCED


def test_a_prepared_transaction_on_the_table_is_waited_for(made: str) -> None:
    """It has no session that could be asked; its lock is there all the same, and its rows are in the new table."""
    with on_engine(made) as engine, application(made) as session:
        job_id = submit(engine)
        engine.until(job_id, lambda job: job.stage >= 1 and engine.copied(job_id) > 100)
        session.execute("BEGIN; UPDATE t SET c = 'prepared' WHERE id = 3; PREPARE TRANSACTION 'one'")
        engine.until(job_id, lambda job: job.err_count >= 1)
        session.execute("COMMIT PREPARED 'one'")
        assert engine.finish(job_id).state is JobState.SYNCED

    assert rows(made, "SELECT c FROM t WHERE id = 3") == [("prepared",)]


# ── the server itself ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def mortal(postgres_server: PostgresServer) -> Iterator[PostgresServer]:
    """A server of this test's own, which may die."""
    server = None
    try:
        server = PostgresServer(major=postgres_server.major)
        server.start()
        yield server
    except Unavailable as reason:
        give_up(f"postgres{postgres_server.major}", str(reason))
    finally:
        if server is not None:
            server.remove()


def test_a_server_that_dies_loses_nothing_that_was_acknowledged(mortal: PostgresServer, random: Random) -> None:
    """Stopped as a crash stops it, at three moments of a job: the job goes on by itself, and every acknowledged write is there."""
    moments = [random.random() * COPYING, random.random() * COPYING, COPYING + random.random() * (1 - COPYING)]

    assert stopped_at(mortal, moments, seed=random.randrange(1000)) == []
