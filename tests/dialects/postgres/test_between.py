"""What stands between a job and its server: pools of sessions, and commits whose answer never comes."""

from __future__ import annotations

from contextlib import closing
from random import Random
from typing import Any

import pytest

from tests.conftest import give_up
from tests.dialects.postgres.between import PORT, Wire, find_pool, pool
from tests.dialects.postgres.stepping import application, on_engine, rows
from tests.servers import Unavailable
from tideshift.config import FAST
from tideshift.connect import connect
from tideshift.ddl.machine import JobState
from tideshift.errors import CannotReach

SCHEMA = """
CREATE TABLE t (id int PRIMARY KEY, u int UNIQUE, c text);
INSERT INTO t SELECT i, i, 'c' || i FROM generate_series(1, 60) i;
CREATE VIEW v AS SELECT id, u FROM t;
ANALYZE;
"""
CHANGES = {
    "shadow": ("ALTER TABLE t ALTER u TYPE bigint, ADD COLUMN z int DEFAULT 1", "shadow_table"),
    "index": ("CREATE INDEX ci ON t (c)", None),
}


def name_of(url: str) -> str:
    """The name of a database."""
    return url.partition("@/")[2].partition("?")[0]


@pytest.fixture
def with_pool() -> None:
    """Skip, visibly, where there is no PgBouncer."""
    try:
        find_pool()
    except Unavailable as reason:
        give_up("pgbouncer", str(reason))


@pytest.mark.parametrize("mode", ["transaction", "statement"])
def test_a_pool_that_lends_sessions_by_the_transaction_is_recognised(mode: str, with_pool: None, postgres_server: Any, postgres_url: str) -> None:
    """Before anything is asked of the database, by what it does and not by its name."""
    with pool(postgres_server, mode) as folder:
        connected = connect(f"postgresql://tideshift@/{name_of(postgres_url)}?host={folder}&port={PORT}", profile=FAST)
        with pytest.raises(CannotReach) as refused:
            connected.bootstrap()
        connected.close()

    assert "gives each transaction another session" in refused.value.message
    assert "pool_mode = session" in refused.value.hint
    assert rows(postgres_url, "SELECT to_regnamespace('tideshift') IS NULL") == [(True,)]


def test_a_pool_that_lends_sessions_for_a_connection_will_do(with_pool: None, postgres_server: Any, postgres_url: str) -> None:
    """A whole job over it."""
    with application(postgres_url) as connection:
        connection.execute(SCHEMA.encode())
    with pool(postgres_server, "session") as folder, on_engine(f"postgresql+psycopg://tideshift@/{name_of(postgres_url)}?host={folder}&port={PORT}") as engine:
        job = engine.run(CHANGES["shadow"][0], strategy="shadow_table", keep_old_seconds=0)

    assert (job.state, job.error) == (JobState.SYNCED, None)


@pytest.mark.parametrize(("name", "reaches"), [("shadow", True), ("shadow", False), ("index", True)], ids=["shadow done", "shadow not done", "index done"])
def test_a_commit_whose_answer_is_lost_is_done_once(name: str, reaches: bool, postgres_server: Any, postgres_url: str, random: Random) -> None:
    """Whether it was done is read from the tables: nothing is done twice and nothing is lost, whichever commit it was."""
    with application(postgres_url) as connection:
        connection.execute(SCHEMA.encode())
    statement, strategy = CHANGES[name]
    wire = Wire(postgres_server)
    try:
        with on_engine(wire.url(name_of(postgres_url))) as engine, application(postgres_url) as writer, closing(connect(postgres_url, profile=FAST)) as direct:
            job_id = engine.ddl.submit(statement, strategy=strategy, keep_old_seconds=0, parameters={"batch_size": 20}).id
            start = wire.commits
            # Every few commits, no two side by side, so that work goes on between them.
            wire.breaks_at = frozenset(start + at for at in range(random.randrange(2, 5), 400, random.randrange(5, 8)))
            wire.reaches_server = reaches
            written = 0
            for n in range(1500):
                job = direct.ddl.job(job_id)
                if job.state in (JobState.SYNCED, JobState.ROLLBACK_DONE, JobState.CANCELLED):
                    break
                engine.cluster.step()
                if n % 10 == 0 and written < 30:
                    written += 1
                    writer.execute(f"UPDATE t SET c = 'w' WHERE id = {written}".encode())
            wire.breaks_at = frozenset()
            assert (job.state, job.error) == (JobState.SYNCED, None), job
            engine.until(job_id, lambda _: engine.left_behind() == set())
    finally:
        wire.close()

    assert wire.broken > 3
    assert rows(postgres_url, "SELECT count(*), count(*) FILTER (WHERE c = 'w'), sum(id), sum(u) FROM t") == [(60, written, 1830, 1830)]
    if name == "shadow":
        assert rows(postgres_url, "SELECT pg_typeof(u)::text, z FROM t LIMIT 1") == [("bigint", 1)]
        assert rows(postgres_url, "SELECT count(*) FROM v") == [(60,)]
    else:
        assert rows(postgres_url, "SELECT indexrelid::regclass::text, indisvalid FROM pg_index WHERE indrelid = 't'::regclass ORDER BY 1") == [("ci", True), ("t_pkey", True), ("t_u_key", True)]
