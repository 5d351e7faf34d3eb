"""Databases that are copies of another one, in the middle of a job: a standby and what it becomes, a clone, a dump."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.dialects.postgres.stepping import application, on_engine, rows
from tests.servers import PostgresServer, find_postgres, unprivileged_user
from tests.waiting import until
from tideshift.ddl.machine import JobState
from tideshift.errors import PlanRefused, TideshiftError
from tideshift.store import bootstrap

SCHEMA = """
CREATE TABLE t (id int PRIMARY KEY, u int, c text);
INSERT INTO t SELECT i, i, 'c' || i FROM generate_series(1, 60) i;
ANALYZE;
"""
CHANGE = "ALTER TABLE t ALTER u TYPE bigint"
HELD = "the database was restored, cloned or failed over"


@pytest.fixture
def made(postgres_url: str) -> str:
    """A small table."""
    with application(postgres_url) as connection:
        connection.execute(SCHEMA.encode())
    return postgres_url


def half_way(url: str) -> int:
    """Bring a job to the middle of its copy, and leave it."""
    with on_engine(url) as engine:
        job_id = int(engine.ddl.submit(CHANGE, strategy="shadow_table", keep_old_seconds=0, parameters={"batch_size": 10}).id)
        engine.until(job_id, lambda job: job.stage >= 1 and 0 < engine.copied(job_id) < 50)
    return job_id


def name_of(url: str) -> str:
    """The name of a database."""
    return url.partition("@/")[2].partition("?")[0]


def held_then_adopted(url: str, job_id: int) -> JobState:
    """See that the job waits for a person on the copy, then let it go on to its end."""
    with on_engine(url, start_ms=1_800_000_000_000) as engine:
        job = engine.until(job_id, lambda job: job.state is JobState.PAUSED)
        assert (job.paused_by, job.pause_reason) == ("system", HELD)
        assert str(engine.ddl.resume(job_id)[0].verdict) == "refused"
        with application(url) as connection:
            connection.execute("UPDATE t SET c = 'on the copy' WHERE id <= 3; INSERT INTO t VALUES (1000, 1000, 'new')")
        bootstrap.adopt(engine.connected.database)
        engine.ddl.resume(job_id)
        job = engine.finish(job_id)
        engine.until(job_id, lambda _: engine.left_behind() == set())
    assert rows(url, "SELECT count(*), count(*) FILTER (WHERE c = 'on the copy') FROM t") == [(61, 3)]
    return job.state


def test_a_clone_holds_its_jobs_until_a_person_adopts_them(postgres_server: Any, made: str) -> None:
    """Then the job goes on where it was; the original goes on by itself."""
    job_id = half_way(made)
    clone = f"{name_of(made)}_clone"
    postgres_server.execute(f"CREATE DATABASE {clone} TEMPLATE {name_of(made)}")
    try:
        assert held_then_adopted(postgres_server.url(clone), job_id) is JobState.SYNCED
        assert rows(postgres_server.url(clone), "SELECT pg_typeof(u)::text FROM t LIMIT 1") == [("bigint",)]
    finally:
        postgres_server.drop_database(clone)

    with on_engine(made, start_ms=1_800_000_000_000) as engine:
        assert engine.finish(job_id).state is JobState.SYNCED


def test_a_dump_of_a_job_half_way_is_undone_where_it_is_restored(postgres_server: Any, made: str) -> None:
    """Nothing there is what the job recorded, so it ends; the application's writes were never hindered, and nothing is left."""
    job_id = half_way(made)
    restored = postgres_server.create_database()
    try:
        parts = urlsplit(made.replace("+psycopg", ""))
        host = parse_qs(parts.query)["host"][0]
        programs = find_postgres(major=postgres_server.major)
        text = subprocess.run([programs / "pg_dump", "-h", host, "-U", "tideshift", name_of(made)], capture_output=True, check=True, timeout=60).stdout
        subprocess.run([programs / "psql", "-q", "-v", "ON_ERROR_STOP=1", "-h", host, "-U", "tideshift", restored], input=text, capture_output=True, check=True, timeout=60)

        assert held_then_adopted(postgres_server.url(restored), job_id) is JobState.ROLLBACK_DONE
        assert rows(postgres_server.url(restored), "SELECT pg_typeof(u)::text FROM t LIMIT 1") == [("integer",)]
        with on_engine(postgres_server.url(restored), start_ms=1_900_000_000_000) as engine:
            assert engine.run(CHANGE, strategy="shadow_table", keep_old_seconds=0).state is JobState.SYNCED
    finally:
        postgres_server.drop_database(restored)


@contextmanager
def standby_of(server: PostgresServer) -> Iterator[PostgresServer]:
    """Run a standby that follows a server."""
    standby = PostgresServer(major=server.major)
    try:
        cluster = standby.folder / "cluster"
        shutil.rmtree(cluster)
        command = [find_postgres(major=server.major) / "pg_basebackup", "-D", cluster, "-h", server.folder / "socket", "-U", "tideshift", "-R", "-X", "stream", "-c", "fast"]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
        with (cluster / "postgresql.conf").open("a", encoding="utf-8") as settings:
            settings.write(f"unix_socket_directories = '{standby.folder / 'socket'}'\nhot_standby = on\n")
        uid, gid = unprivileged_user("postgres")
        for path in (cluster, *cluster.rglob("*")):
            os.chown(path, uid, gid, follow_symlinks=False) if uid else None
        standby.start()
        yield standby
    finally:
        standby.remove()


def test_a_standby_is_refused_and_holds_its_jobs_once_it_is_promoted(postgres_server: Any, made: str) -> None:
    """Nothing can be planned on a read replica; one that became a primary has the job, and it waits for a person."""
    job_id = half_way(made)
    with standby_of(postgres_server) as standby:
        url = standby.url(name_of(made))
        lsn = rows(made, "SELECT pg_current_wal_lsn()::text")[0][0]
        until(lambda: rows(url, f"SELECT pg_last_wal_replay_lsn() >= '{lsn}'")[0][0], "the standby has what the primary wrote")
        from tideshift.connect import connect

        replica = connect(url)
        for ask in (lambda: replica.ddl.plan(CHANGE), lambda: replica.ddl.submit(CHANGE)):
            with pytest.raises(PlanRefused) as refused:
                ask()
            assert "read replica" in refused.value.message
        assert replica.ddl.show(job_id)["state"] == "running"
        with pytest.raises(TideshiftError) as error:
            replica.database.run(lambda tx: bootstrap.next_ids(tx, "job", 1))
        assert "read-only" in error.value.message
        replica.close()

        assert rows(url, "SELECT pg_promote()") == [(True,)]
        assert held_then_adopted(url, job_id) is JobState.SYNCED

    with on_engine(made, start_ms=1_800_000_000_000) as engine:
        assert engine.finish(job_id).state is JobState.SYNCED
