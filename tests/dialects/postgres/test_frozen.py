"""A worker that the operating system stops at the worst places: its session is ended, another one goes on, and it writes nothing late."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.crash.processes import Worker
from tests.crash.worker import ON_SERVERS
from tests.dialects.postgres.stepping import application, rows
from tests.waiting import until
from tideshift.config import FAST
from tideshift.connect import Connected, connect
from tideshift.ddl.machine import JOB, JobState

MAJORS = (15,)
ROWS = 2_000
WAIT_SECONDS = 90.0
SCHEMA = f"""
CREATE TABLE t (id int PRIMARY KEY, u int UNIQUE, c text);
INSERT INTO t SELECT i, i, 'c' || i FROM generate_series(1, {ROWS}) i;
ANALYZE;
"""
PASSES = {"before begin": 4, "inside the transaction": 4, "after commit": 9, "owner before the swap": 1, "inside the swap": 1}
LOST = ("is no longer ours", "was taken from us", "has moved on", "the lease went to somebody else", "is finished", "terminating connection", "no longer the table")


@pytest.fixture
def submitted(postgres_url: str) -> Iterator[tuple[Connected, int]]:
    """A job that waits for a worker."""
    with application(postgres_url) as connection:
        connection.execute(SCHEMA.encode())
    with connect(postgres_url, profile=FAST, actor="client") as connected:
        connected.bootstrap()
        change = "ALTER TABLE t ALTER u TYPE bigint"
        yield connected, connected.ddl.submit(change, strategy="shadow_table", keep_old_seconds=0, parameters={"batch_size": 100}).id


@pytest.mark.timeout(400)
@pytest.mark.parametrize("place", ON_SERVERS if os.environ.get("TIDESHIFT_PROOF_ALL") else ["inside the transaction", "inside the swap"])
def test_a_frozen_worker_costs_neither_rows_nor_anybodys_statement(place: str, submitted: tuple[Connected, int], postgres_url: str, tmp_path: Path) -> None:
    """Writers are held up for the length of a lease at most; when it wakes up it finds that its work is not its own any more."""
    connected, job_id = submitted

    def is_over() -> bool:
        return connected.ddl.job(job_id).state in JOB.final and connected.database.run(connected.dialect.catalog.objects, write=False) == set()

    with Worker(tmp_path / "first", freeze=(place, PASSES[place]), url=postgres_url) as first, application(postgres_url) as writer:
        first.ready().wait_frozen()
        writer.execute("SET lock_timeout = '30s'")
        writer.execute("UPDATE t SET c = 'meanwhile' WHERE id IN (1, 1000); DELETE FROM t WHERE id IN (2, 1999); INSERT INTO t VALUES (-5, -5, 'new'), (9000, 9000, 'far'); UPDATE t SET id = 8000 WHERE id = 3")
        with Worker(tmp_path / "second", url=postgres_url) as second:
            second.ready()
            until(is_over, lambda: f"the job ends: {connected.ddl.show(job_id)}; {second.log[-1500:]}", seconds=WAIT_SECONDS)
            first.thaw()
            until(lambda: any(word in first.log for word in LOST), lambda: f"a worker that noticed its loss: {first.log[-2000:]}")
            second.stop()
        first.stop()

    _see_everything_right(postgres_url, connected, job_id)


def _see_everything_right(url: str, connected: Connected, job_id: int) -> None:
    job = connected.ddl.job(job_id)
    assert (job.state, job.error, job.warnings) == (JobState.SYNCED, None, [])
    expected: dict[int, Any] = {i: (i, f"c{i}") for i in range(1, ROWS + 1)}
    expected |= {1: (1, "meanwhile"), 1000: (1000, "meanwhile"), -5: (-5, "new"), 9000: (9000, "far"), 8000: (3, "c3")}
    for gone in (2, 1999, 3):
        del expected[gone]
    assert rows(url, "SELECT id, u, c FROM t ORDER BY id") == [(key, *expected[key]) for key in sorted(expected)]
    assert rows(url, "SELECT atttypid::regtype::text FROM pg_attribute WHERE attrelid = 't'::regclass AND attname = 'u'") == [("bigint",)]
