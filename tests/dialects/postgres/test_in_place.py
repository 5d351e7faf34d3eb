"""Changes of a column in place: whatever hangs on it hangs on the new one, and what the column cannot hold fails the job alone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.dialects.postgres.rich import RICH, ROLES, TABLE, dump
from tests.dialects.postgres.stepping import application, catalogue, on_engine, rows
from tideshift.ddl.machine import JobState

WAY: dict[str, Any] = {"strategy": "in_place", "allow_column_order_change": True}
CHANGES = {
    "key": f"ALTER TABLE {TABLE} ALTER id TYPE bigint",
    "serial": f"ALTER TABLE {TABLE} ALTER serial_no TYPE bigint",
    "foreign": f"ALTER TABLE {TABLE} ALTER small TYPE bigint",
    "checked": f"ALTER TABLE {TABLE} ALTER amount TYPE numeric(14, 3)",
    "using": f"ALTER TABLE {TABLE} ALTER at TYPE int USING num + \"Order \"\"s\".customer",
}
BEFORE = {"checked": f'ALTER TABLE {TABLE} DROP CONSTRAINT "two unique"', "using": f"ALTER TABLE {TABLE} ALTER at DROP DEFAULT"}
AFTER = {
    "serial": 'ALTER SEQUENCE "Shop x"."Order ""s_serial_no_seq" AS bigint',
    # The server's own change forgets these.
    "checked": 'ALTER INDEX "Shop x".expressed ALTER COLUMN 1 SET STATISTICS 77; ALTER STATISTICS "Shop x".two_of SET STATISTICS 55',
}


@pytest.fixture
def two(postgres_server: Any) -> Iterator[list[str]]:
    """Two databases with the rich table: one for a job, one for the server's own statement."""
    for role in ROLES:
        postgres_server.execute(f"CREATE ROLE {role}")
    names = [postgres_server.create_database() for _ in range(2)]
    urls = [postgres_server.url(name) for name in names]
    for url, name in zip(urls, names, strict=True):
        with application(url) as connection:
            connection.execute(RICH.encode())
            connection.execute(f'ALTER DATABASE {name} SET search_path = "Shop x", public'.encode())
    yield urls
    for name in names:
        postgres_server.drop_database(name)
    for role in ROLES:
        postgres_server.execute(f"DROP ROLE {role}")


def unordered(url: str) -> list[str]:
    """Return the server's own description of a database, whatever the order of columns."""
    return sorted(line.rstrip(",") for line in dump(url, "--schema-only").splitlines())


def content(url: str) -> list[Any]:
    """Every row of the table and of those beside it, in the order of their keys."""
    return [rows(url, f"SELECT to_jsonb(t)::text FROM {name} t ORDER BY t.id, 1") for name in (TABLE, '"Shop x".line', '"Shop x".seen')]


@pytest.mark.parametrize("name", CHANGES)
def test_everything_on_the_column_stays(name: str, two: list[str]) -> None:
    """But for the order of columns the server's dump is that after its own statement; so are the rows, and the numbers that come next."""
    made, twin = two
    for url in two:
        with application(url) as connection:
            connection.execute(BEFORE.get(name, "SELECT 1").encode())
    with application(twin) as connection:
        connection.execute(CHANGES[name].encode())
        connection.execute(AFTER.get(name, "SELECT 1").encode())
    with on_engine(made) as engine:
        job = engine.run(CHANGES[name], **WAY)
        assert (job.state, job.error) == (JobState.SYNCED, None)
        assert job.strategy == "in_place_column"
        assert engine.left_behind() == set()

    assert unordered(made) == unordered(twin)
    assert content(made) == content(twin)
    insert = f"INSERT INTO {TABLE} (customer, code) VALUES (1, 'next') RETURNING id, serial_no, small"
    assert rows(made, insert) == rows(twin, insert)


SCHEMA = """
CREATE TABLE t (id int PRIMARY KEY, c text NOT NULL, d int, note text);
INSERT INTO t SELECT i, i::text, i, 'n' FROM generate_series(1, 300) i;
CREATE INDEX ci ON t (c) WHERE d > 3;
ANALYZE t;
"""


@pytest.fixture
def made(postgres_url: str) -> str:
    """A small table."""
    with application(postgres_url) as connection:
        connection.execute(SCHEMA.encode())
    return postgres_url


NUMBER = "ALTER TABLE t ALTER c TYPE int USING c::int"
STAGES = ("fill the new column", "demand NOT NULL", "build an index", "compare the new column", "swap the columns")


def at(engine: Any, job_id: int, stage: str) -> None:
    """Step to a stage of a job."""
    engine.until(job_id, lambda _: engine.ddl.show(job_id)["stage"] == stage)


@pytest.mark.parametrize("stage", ["fill the new column", "build an index", "swap the columns"])
def test_cancel_leaves_the_table_as_it_was(stage: str, made: str) -> None:
    """Column, trigger, function, list, constraint and indexes are gone; and so it is after a pause at that stage."""
    before = catalogue(made, "t"), rows(made, "SELECT * FROM t ORDER BY id")
    with on_engine(made) as engine:
        job_id = engine.ddl.submit(NUMBER, parameters={"batch_size": 40}, **WAY).id
        at(engine, job_id, stage)
        engine.ddl.pause(job_id)
        engine.until(job_id, lambda job: job.state is JobState.PAUSED)
        engine.ddl.resume(job_id)
        engine.until(job_id, lambda job: job.state is JobState.RUNNING)
        engine.ddl.cancel(job_id)
        assert engine.finish(job_id).state in (JobState.ROLLBACK_DONE, JobState.CANCELLED)
        assert engine.left_behind() == set()

    assert (catalogue(made, "t"), rows(made, "SELECT * FROM t ORDER BY id")) == before
    assert rows(made, "SELECT count(*) FROM pg_trigger WHERE tgrelid = 't'::regclass") == [(0,)]


WRITES = {
    "a text": "UPDATE t SET c = 'no number' WHERE id = 7",
    "a long number": "INSERT INTO t (id, c) VALUES (1000, '99999999999')",
    "an upsert": "INSERT INTO t (id, c) VALUES (9, '9') ON CONFLICT (id) DO UPDATE SET c = 'nine'",
}


@pytest.mark.parametrize(("stage", "write"), [(stage, list(WRITES)[number % len(WRITES)]) for number, stage in enumerate(STAGES)])
def test_a_value_that_the_new_column_refuses_fails_the_job_and_never_the_writer(stage: str, write: str, made: str) -> None:
    """At each stage the statement does what it does without a job, and the job ends with the row's key."""
    with on_engine(made) as engine, application(made) as writer:
        job_id = engine.ddl.submit(NUMBER, parameters={"batch_size": 40}, **WAY).id
        at(engine, job_id, stage)
        assert writer.execute(WRITES[write].encode()).rowcount == 1
        job = engine.finish(job_id)
        assert job.state is JobState.ROLLBACK_DONE
        assert job.error is not None
        assert job.error["code"] == "value_refused"
        assert re.search(r"the row with id = (7|1000|9) does not fit", job.error["message"]), job.error
        assert engine.left_behind() == set()

    assert rows(made, "SELECT count(*) FROM t WHERE c IN ('no number', '99999999999', 'nine')") == [(1,)]
