"""The whole engine on one PostgreSQL database, stepped in one thread, and what its catalogue says of a table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from tideshift.clock import SteppedClock
from tideshift.config import FAST
from tideshift.connect import connect
from tideshift.ddl import tables
from tideshift.ddl.job import Job
from tideshift.ddl.machine import JOB
from tideshift.dialects.postgres import estimate
from tideshift.testing.cluster import Cluster

TURNS_MAX = 600
OF_TABLE = (
    """
    SELECT attnum, attname, format_type(atttypid, atttypmod), attnotnull, pg_get_expr(adbin, adrelid), attidentity::text, attgenerated::text, attstattarget,
           attcollation::regcollation::text
    FROM pg_attribute LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum WHERE attrelid = $1::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum
    """,
    """
    SELECT conname, contype::text, pg_get_constraintdef(oid), convalidated, condeferrable, condeferred
    FROM pg_constraint WHERE conrelid = $1::regclass OR confrelid = $1::regclass ORDER BY conname
    """,
    "SELECT indexrelid::regclass::text, pg_get_indexdef(indexrelid), indisvalid, indisready, indisprimary FROM pg_index WHERE indrelid = $1::regclass ORDER BY 1",
    "SELECT reloptions, relreplident::text, relrowsecurity FROM pg_class WHERE oid = $1::regclass",
)


def application(url: str, **options: Any) -> psycopg.Connection[Any]:
    """Connect as an application does: every statement commits by itself."""
    return psycopg.connect(url.replace("+psycopg", ""), autocommit=True, **options)


def catalogue(url: str, table: str) -> list[list[tuple[Any, ...]]]:
    """Return everything that a change of a table can alter."""
    with application(url) as connection, psycopg.RawCursor(connection) as cursor:
        return [cursor.execute(query, (table,)).fetchall() for query in OF_TABLE]


def rows(url: str, query: str) -> list[tuple[Any, ...]]:
    """Return the rows of a query."""
    with application(url) as connection:
        return connection.execute(query.encode()).fetchall()


class Engine:
    """One owner and as many nodes as are asked for."""

    def __init__(self, url: str, *, nodes: int = 1, seed: int = 0, start_ms: int = 1_700_000_000_000) -> None:
        self.clock = SteppedClock(start_ms)
        self.connected = connect(url, clock=self.clock, profile=FAST, actor="ann")
        self.connected.bootstrap()
        self.ddl = self.connected.ddl
        self.cluster = Cluster(self.connected.database, self.connected.registry, lambda *_: self.connected.owner("any").duties, nodes=nodes, seed=seed)

    def jobs(self) -> list[Job]:
        """Every job, ended or not."""
        with self.connected.database.transaction(write=False) as tx:
            return [*tables.live_jobs(tx), *tables.recent_jobs(tx, limit=10)]

    def copied(self, job_id: int) -> int:
        """Return how many rows a job has copied."""
        return int(self.ddl.show(job_id)["row_count"])

    def until(self, job_id: int, wanted: Any) -> Job:
        """Step until the job is as wanted."""
        for _ in range(TURNS_MAX):
            job = self.ddl.job(job_id)
            if wanted(job):
                return job
            self.cluster.step()
        raise AssertionError(f"after {TURNS_MAX} turns: {self.ddl.show(job_id)}")

    def run(self, statement: str, **options: Any) -> Job:
        """Carry a change out to its end."""
        return self.finish(self.ddl.submit(statement, **options).id)

    def finish(self, job_id: int) -> Job:
        """Step to the job's end."""
        return self.until(job_id, lambda job: job.state in JOB.final)

    def kept(self, job: Job) -> set[tuple[str, str]]:
        """Name the table that a job has replaced and keeps for a while."""
        with self.connected.database.transaction(write=False) as tx:
            return {("table", one.name) for one in tables.artifacts_of(tx, job.id)}

    def left_behind(self) -> set[tuple[str, str]]:
        """Name whatever has a name of ours outside our schema."""
        return self.connected.database.run(self.connected.dialect.catalog.objects, write=False)


@contextmanager
def on_engine(url: str, **options: Any) -> Iterator[Engine]:
    """Open the engine and end it."""
    engine = Engine(url, **options)
    try:
        yield engine
    finally:
        engine.cluster.__exit__()
        engine.connected.close()


@contextmanager
def as_if_large(monkeypatch: Any) -> Iterator[None]:
    """Let every table be too large for a scan or a build under a lock."""
    with monkeypatch.context() as patched:
        patched.setattr(estimate, "LOCK_BUDGET_SECONDS", 0.0)
        yield
