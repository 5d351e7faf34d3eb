"""REINDEX on PostgreSQL: every index anew beside the traffic, and nothing half made stays behind, whoever is killed and when."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dialects.postgres.stepping import application, as_if_large, catalogue, on_engine, rows
from tests.waiting import until
from tideshift.ddl.machine import JobState
from tideshift.errors import NotFound, PlanRefused

SCHEMA = """
CREATE SCHEMA "Sal""es x";
CREATE TABLE other (id int PRIMARY KEY);
CREATE TABLE "Sal""es x"."T t" (id int PRIMARY KEY, a int UNIQUE DEFERRABLE, b text, span int4range, CONSTRAINT apart EXCLUDE USING gist (span WITH &&));
INSERT INTO "Sal""es x"."T t" SELECT i, i, 'b' || i, int4range(i * 10, i * 10 + 5) FROM generate_series(1, 300) i;
CREATE INDEX "by B" ON "Sal""es x"."T t" (lower(b) DESC) INCLUDE (a) WITH (fillfactor = 70) WHERE id > 3;
CREATE INDEX "by B_ccnew" ON "Sal""es x"."T t" (b);
COMMENT ON INDEX "Sal""es x"."by B" IS 'kept';
CREATE TABLE plain (id int PRIMARY KEY, long text);
CREATE INDEX plain_long ON plain (md5(long));
INSERT INTO plain SELECT i, repeat(md5(i::text), 200) FROM generate_series(1, 50) i;
CREATE TABLE parts (id int, part int, b text, PRIMARY KEY (part, id)) PARTITION BY RANGE (part);
CREATE TABLE parts_1 PARTITION OF parts FOR VALUES FROM (0) TO (10);
CREATE TABLE "Parts 2" PARTITION OF parts FOR VALUES FROM (10) TO (20) PARTITION BY LIST (part);
CREATE TABLE parts_2a PARTITION OF "Parts 2" FOR VALUES IN (10, 11);
CREATE INDEX parts_b ON parts (b);
INSERT INTO parts SELECT i, i % 12, 'b' || i FROM generate_series(1, 300) i;
ANALYZE;
"""
T = '"Sal""es x"."T t"'
BY_B = '"Sal""es x"."by B"'
OLD_SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM other"
HALF_MADE = "SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid OR NOT indisready OR NOT indislive"


@pytest.fixture
def made(postgres_url: str) -> str:
    """A database with indexes of every kind."""
    with application(postgres_url) as connection:
        connection.execute(SCHEMA.encode())
    return postgres_url


def oids(url: str) -> dict[str, int]:
    """Every index of the application's by its name, with the oid and the file that it has now."""
    query = "SELECT c.oid::regclass::text, c.relfilenode::bigint FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace WHERE relkind = 'i' AND (nspname IN ('public', 'Sal\"es x') OR (nspname = 'pg_toast' AND c.oid > 16384))"
    return dict(rows(url, query))


@pytest.mark.parametrize("large", [False, True], ids=["small", "large"])
@pytest.mark.parametrize(
    ("statement", "remade"),
    {
        f"REINDEX INDEX {BY_B}": [BY_B],
        f"REINDEX INDEX CONCURRENTLY {BY_B}": [BY_B],
        "REINDEX plain": ["plain_pkey", "plain_long", "pg_toast"],
        "REINDEX TABLE CONCURRENTLY Plain": ["plain_pkey", "plain_long", "pg_toast"],
        "REINDEX TABLE public.parts": ["parts_1_pkey", "parts_2a_pkey", "parts_1_b_idx", "parts_2a_b_idx", "pg_toast"],
        "REINDEX INDEX parts_b": ["parts_1_b_idx", "parts_2a_b_idx"],
        'REINDEX INDEX "Sal""es x"."T t_pkey"': ['"Sal""es x"."T t_pkey"'],
    }.items(),
)
def test_every_index_that_is_meant_is_made_again_and_no_other(statement: str, remade: list[str], large: bool, made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With their names, definitions, constraints and comments; the indexes of partitions and of the TOAST table too."""
    before, tables = oids(made), [catalogue(made, one) for one in (T, "plain", "parts", "parts_1", "parts_2a")]
    with on_engine(made) as engine:
        if large:
            with as_if_large(monkeypatch):
                job = engine.run(statement)
        else:
            job = engine.run(statement)
        assert (job.state, job.error, job.warnings, str(job.strategy)) == (JobState.SYNCED, None, [], "native_online" if large else "direct")

    after = oids(made)
    changed = {name for name in before if after.get(name) != before[name]}
    wanted = {name for name in before if any(name == one or (one == "pg_toast" and name.startswith("pg_toast")) for one in remade)}
    if "pg_toast" in remade:
        table = "parts" if "parts" in statement else "plain"
        tree = f"SELECT reltoastrelid FROM pg_class WHERE oid IN (SELECT relid FROM pg_partition_tree('{table}') UNION SELECT '{table}'::regclass)"
        toasts = {name for (name,) in rows(made, f"SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid IN ({tree})")}
        wanted = {name for name in wanted if not name.startswith("pg_toast") or name in toasts}
    assert changed == wanted
    assert [catalogue(made, one) for one in (T, "plain", "parts", "parts_1", "parts_2a")] == tables
    assert rows(made, f"SELECT obj_description('{BY_B}'::regclass)") == [("kept",)]
    assert rows(made, HALF_MADE) == []


def stop_while_it_waits(engine: Any, made: str, statement: str, stop: Any) -> int:
    """Let a REINDEX run into an old snapshot and stop it there; return the job."""
    job_id = engine.ddl.submit(statement).id
    with application(made) as old:
        old.execute(OLD_SNAPSHOT.encode())
        with engine.connected.service():
            until(lambda: rows(made, "SELECT 1 FROM pg_stat_progress_create_index WHERE phase LIKE 'waiting for%'"), "the build waits")
            stop(job_id, old)
    return int(job_id)


@pytest.mark.parametrize("command", ["cancel", "pause"])
def test_a_command_ends_it_and_nothing_half_made_stays(command: str, made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even while the job is paused; and who holds the old snapshot is shown meanwhile. What looks like a leftover and is valid stays."""
    before = catalogue(made, T)
    with on_engine(made) as engine, as_if_large(monkeypatch):

        def stop(job_id: int, old: Any) -> None:
            waits_for = until(lambda: engine.ddl.show(job_id)["waits_for"], lambda: str(engine.ddl.show(job_id)))
            assert [(one["process"], "SELECT count(*) FROM other" in one["query"]) for one in waits_for] == [(old.info.backend_pid, True)]
            getattr(engine.ddl, command)(job_id)
            wanted = JobState.PAUSED if command == "pause" else JobState.ROLLBACK_DONE
            until(lambda: engine.ddl.job(job_id).state is wanted, lambda: str(engine.ddl.show(job_id)))
            until(lambda: rows(made, HALF_MADE) == [], "nothing half made")

        job_id = stop_while_it_waits(engine, made, f"REINDEX INDEX {BY_B}", stop)
        assert catalogue(made, T) == before
        if command == "pause":
            oid = rows(made, f"SELECT '{BY_B}'::regclass::oid")
            engine.ddl.resume(job_id)
            assert engine.finish(job_id).state is JobState.SYNCED
            assert rows(made, f"SELECT '{BY_B}'::regclass::oid") != oid

    assert catalogue(made, T) == before


def test_what_cannot_be_dropped_at_once_goes_while_the_job_is_paused(made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A session that reads the table keeps the half made index where it is; the job is paused all the same, and drops it once it can."""
    with on_engine(made) as engine, as_if_large(monkeypatch):

        def stop(job_id: int, old: Any) -> None:
            with application(made) as reader:
                reader.execute(f"BEGIN; SELECT 1 FROM {T} LIMIT 1".encode())
                engine.ddl.pause(job_id)
                until(lambda: engine.ddl.job(job_id).state is JobState.PAUSED, lambda: str(engine.ddl.show(job_id)))
                assert len(rows(made, HALF_MADE)) == 1
                reader.execute(b"COMMIT")
            until(lambda: rows(made, HALF_MADE) == [], "nothing half made")
            assert engine.ddl.job(job_id).state is JobState.PAUSED
            assert engine.ddl.job(job_id).error is None

        stop_while_it_waits(engine, made, f"REINDEX INDEX {BY_B}", stop)


def test_a_killed_session_costs_one_more_try(made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it left, the server's `_ccnew`, is dropped before the next try; an index of that very manner that is valid is the user's."""
    before = catalogue(made, T)
    with on_engine(made) as engine, as_if_large(monkeypatch):

        def stop(_: int, __: Any) -> None:
            (pid,) = rows(made, "SELECT pid FROM pg_stat_progress_create_index")[0]
            rows(made, f"SELECT pg_terminate_backend({pid}, 5000)")
            assert rows(made, HALF_MADE) == [('"Sal""es x"."by B_ccnew1"',)]

        job_id = stop_while_it_waits(engine, made, f"REINDEX {BY_B}", stop)
        assert engine.finish(job_id).state is JobState.SYNCED

    assert catalogue(made, T) == before
    assert rows(made, HALF_MADE) == []


def test_a_swap_that_was_cut_off_afterwards_is_taken_for_done(made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server dies between the exchange of names and the dropping of the old index: that is dropped, and nothing is built twice."""
    with on_engine(made) as engine, as_if_large(monkeypatch), application(made) as reader:
        job_id = engine.ddl.submit(f"REINDEX {BY_B}").id
        reader.execute(f"BEGIN; SELECT count(*) FROM {T}".encode())
        with engine.connected.service():
            # It waits for a reader of the table before it marks the old index as dead: the names have changed by then.
            until(lambda: rows(made, "SELECT 1 FROM pg_stat_progress_create_index WHERE phase LIKE 'waiting for readers before marking dead'"), "the old index waits")
            (pid,) = rows(made, "SELECT pid FROM pg_stat_progress_create_index")[0]
            oid = rows(made, f"SELECT '{BY_B}'::regclass::oid")
            rows(made, f"SELECT pg_terminate_backend({pid}, 5000)")
            assert rows(made, HALF_MADE) == [('"Sal""es x"."by B_ccold"',)]
            reader.execute("COMMIT")
            until(lambda: engine.ddl.job(job_id).state is JobState.SYNCED, lambda: str(engine.ddl.show(job_id)))

    assert rows(made, f"SELECT '{BY_B}'::regclass::oid") == oid
    assert rows(made, HALF_MADE) == []


def test_what_somebody_else_has_left_is_rebuilt_or_dropped_by_name(made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """An invalid index of the user's becomes valid; a `_ccnew` of another one is dropped, and the plan says so before."""
    with application(made) as connection:
        connection.execute("INSERT INTO plain VALUES (100, 'same'), (101, 'same')")
        with pytest.raises(Exception, match="could not create unique index"):
            connection.execute("CREATE UNIQUE INDEX CONCURRENTLY half ON plain (long)")
        connection.execute("DELETE FROM plain WHERE id = 101")
        connection.execute("SET statement_timeout = 0")
        connection.execute("CREATE INDEX plain_long_ccnew ON plain (md5(long)); UPDATE pg_index SET indisvalid = false WHERE indexrelid = 'plain_long_ccnew'::regclass")
    with on_engine(made) as engine, as_if_large(monkeypatch):
        assert engine.ddl.plan("REINDEX TABLE plain").sql_steps[0].sql == 'DROP INDEX CONCURRENTLY "public"."plain_long_ccnew"'
        assert engine.run("REINDEX TABLE plain").state is JobState.SYNCED

    assert [(name, valid) for name, _, valid, _, _ in catalogue(made, "plain")[2]] == [("half", True), ("plain_long", True), ("plain_pkey", True)]


def test_rows_that_do_not_fit_an_invalid_unique_index_end_the_job(made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the values, and without anything half made besides what was there."""
    with application(made) as connection:
        connection.execute("INSERT INTO plain VALUES (100, 'same'), (101, 'same')")
        with pytest.raises(Exception, match="could not create unique index"):
            connection.execute("CREATE UNIQUE INDEX CONCURRENTLY half ON plain (long)")
    with on_engine(made) as engine, as_if_large(monkeypatch):
        job = engine.run("REINDEX INDEX half")
        assert job.state in (JobState.ROLLBACK_DONE, JobState.CANCELLED)
        assert job.error is not None
        assert (job.error["code"], "is duplicated" in job.error["message"]) == ("value_refused", True)

    assert rows(made, HALF_MADE) == [("half",)]


def test_what_cannot_be_made_again_is_refused(made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Exclusion constraints on a large table, unless it may be locked; the server's own tables; what is not there."""
    with on_engine(made) as engine, as_if_large(monkeypatch):
        with pytest.raises(PlanRefused, match="apart serves an exclusion constraint"):
            engine.ddl.plan(f"REINDEX TABLE {T}")
        with pytest.raises(PlanRefused, match="PostgreSQL itself"):
            engine.ddl.plan("REINDEX TABLE pg_catalog.pg_class")
        with pytest.raises(NotFound, match="there is no index 'plain_lng'"):
            engine.ddl.plan("REINDEX INDEX plain_lng")
        with pytest.raises(NotFound, match="there is no index 'plain'"):
            engine.ddl.plan("REINDEX INDEX plain")
        with pytest.raises(NotFound, match="is an index"):
            engine.ddl.plan("REINDEX TABLE plain_long")
        assert engine.run(f"REINDEX TABLE {T}", strategy="direct").state is JobState.SYNCED
