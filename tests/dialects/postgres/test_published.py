"""Logical replication beside a job: what would be published or filled by others is refused, before anything is made or when it comes later."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dialects.postgres.stepping import application, on_engine, rows
from tideshift.ddl.machine import JobState
from tideshift.errors import PlanRefused

SCHEMA = """
CREATE TABLE t (id int PRIMARY KEY, u int, c text);
INSERT INTO t SELECT i, i, 'c' || i FROM generate_series(1, 100) i;
ANALYZE;
"""
CHANGE = "ALTER TABLE t ALTER u TYPE bigint"


@pytest.fixture
def made(postgres_url: str) -> str:
    """A small table."""
    run(postgres_url, SCHEMA)
    return postgres_url


def run(url: str, text: str) -> None:
    """Run statements as the administrator does."""
    with application(url) as connection:
        connection.execute(text.encode())


@pytest.mark.parametrize(("publication", "words"), [
    ("CREATE PUBLICATION p FOR ALL TABLES", "the publication p publishes every table"),
    ("CREATE PUBLICATION p FOR TABLES IN SCHEMA public", "the publication p publishes every table of its schema"),
])  # fmt: skip
def test_f43_a_publication_of_everything_would_send_the_copy(publication: str, words: str, made: str) -> None:
    """Refused by its name; where it comes while a job runs, the job ends, and no statement of the application fails."""
    with on_engine(made) as engine:
        job_id = engine.ddl.submit(CHANGE, strategy="shadow_table", keep_old_seconds=0, parameters={"batch_size": 10}).id
        engine.until(job_id, lambda job: job.stage >= 1 and engine.copied(job_id) > 10)
        run(made, publication)
        run(made, "UPDATE t SET c = 'w' WHERE id < 20; DELETE FROM t WHERE id = 50; INSERT INTO t VALUES (500, 5, 'n')")
        job = engine.finish(job_id)
        engine.until(job_id, lambda _: engine.left_behind() == set())
        with pytest.raises(PlanRefused) as refused:
            engine.ddl.submit(CHANGE, strategy="shadow_table")

    assert job.state is JobState.ROLLBACK_DONE
    assert words in refused.value.message
    assert rows(made, "SELECT count(*), count(*) FILTER (WHERE c = 'w') FROM t") == [(100, 19)]


def test_f44_a_table_that_a_subscription_fills_is_refused(postgres_server: Any, made: str) -> None:
    """Its rows come from elsewhere, by the names of there."""
    source = postgres_server.create_database()
    host = postgres_server.folder / "socket"
    try:
        run(postgres_server.url(source), "CREATE TABLE t (id int PRIMARY KEY, u int, c text); CREATE PUBLICATION p FOR TABLE t")
        run(made, f"CREATE SUBSCRIPTION s CONNECTION 'host={host} user=tideshift dbname={source}' PUBLICATION p WITH (create_slot = false, enabled = false, copy_data = false, slot_name = NONE)")
        with on_engine(made) as engine, pytest.raises(PlanRefused) as refused:
            engine.ddl.submit(CHANGE, strategy="shadow_table")
        run(made, "DROP SUBSCRIPTION s")
    finally:
        postgres_server.drop_database(source)

    assert "a subscription fills it" in refused.value.message


def test_f44_a_published_table_stays_published_with_its_columns_and_condition(made: str) -> None:
    """The new table is a member in the old one's place."""
    run(made, "CREATE PUBLICATION p FOR TABLE t (id, c) WHERE (id > 3)")
    with on_engine(made) as engine:
        assert engine.run(CHANGE, strategy="shadow_table", keep_old_seconds=0).state is JobState.SYNCED

    assert rows(made, "SELECT tablename, attnames::text, rowfilter FROM pg_publication_tables WHERE pubname = 'p'") == [("t", "{id,c}", "(id > 3)")]
