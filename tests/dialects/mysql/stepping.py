"""The whole engine on one MariaDB database, stepped in one thread, and what an application sees of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pymysql

from tideshift.clock import SteppedClock
from tideshift.config import FAST
from tideshift.connect import connect
from tideshift.ddl import tables
from tideshift.ddl.job import Job
from tideshift.ddl.machine import JOB
from tideshift.dialects.mysql.shape import Shape
from tideshift.testing.cluster import Cluster

TURNS_MAX = 600


def application(url: str, **options: Any) -> Any:
    """Connect as an application does: every statement commits by itself."""
    name = url.partition("@/")[2].partition("?")[0]
    return pymysql.connect(unix_socket=url.rpartition("=")[2], user="root", database=name, charset="utf8mb4", **{"autocommit": True, **options})


def execute(url: str, *statements: str) -> list[tuple[Any, ...]]:
    """Let the application run statements; return the rows of the last one."""
    with closing(application(url)) as connection, connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        return list(cursor.fetchall())


def shape(url: str, table: str) -> Shape:
    """What a table is, as its server tells."""
    return Shape.of(execute(url, f"SHOW CREATE TABLE `{table}`")[0][1])


class Engine:
    """One owner and as many nodes as are asked for."""

    def __init__(self, url: str, *, nodes: int = 1, seed: int = 0, start_ms: int = 1_700_000_000_000) -> None:
        self.clock = SteppedClock(start_ms)
        self.connected = connect(url, clock=self.clock, profile=FAST, actor="ann")
        self.connected.bootstrap()
        self.ddl = self.connected.ddl
        self.cluster = Cluster(self.connected.database, self.connected.registry, lambda *_: self.connected.owner("any").duties, nodes=nodes, seed=seed)

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

    def left_behind(self) -> set[tuple[str, str]]:
        """Name whatever has a name of ours outside our database."""
        return self.connected.database.run(self.connected.dialect.catalog.objects, write=False)

    def artifacts(self, job_id: int) -> list[str]:
        """Name what a job has made and nobody has dropped."""
        with self.connected.database.transaction(write=False) as tx:
            return [one.name for one in tables.artifacts_of(tx, job_id)]


@contextmanager
def on_engine(url: str, **options: Any) -> Iterator[Engine]:
    """Open the engine and end it."""
    engine = Engine(url, **options)
    try:
        yield engine
    finally:
        engine.cluster.__exit__()
        engine.connected.close()
