"""A server that is stopped as by a crash in the middle of a shadow copy, beside a writer that remembers what was acknowledged."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from random import Random
from typing import Any

import psycopg

from tests.dialects.postgres.stepping import application, rows
from tests.servers import PostgresServer
from tests.waiting import until
from tideshift.config import FAST
from tideshift.connect import Connected, connect
from tideshift.ddl.machine import JOB, JobState
from tideshift.errors import TideshiftError

__all__ = ["COPYING", "MAJORS_STOPPED", "stopped_at"]

MAJORS_STOPPED = (15, 18)
ROWS = 4_000
SCHEMA = f"""
CREATE TABLE t (id int PRIMARY KEY, u int UNIQUE, c text);
INSERT INTO t SELECT i, i, 'c' || i FROM generate_series(1, {ROWS}) i;
CREATE TABLE child (t int REFERENCES t);
ANALYZE;
"""
CHANGE = "ALTER TABLE t ALTER u TYPE bigint, ADD COLUMN z int DEFAULT 1"
COPYING = 0.7
"""This share of all moments lie within the copy, the others in what follows it."""
LATER = ("build indexes", "catch up", "settle", "build keys", "statistics", "verify", "cut over", "validate")
SECONDS_MAX = 120.0


def stopped_at(server: PostgresServer, moments: list[float], *, seed: int) -> list[str]:
    """Stop a running server at moments between 0 (the beginning of the copy) and 1 (the end of the job); return what was wrong."""
    url = server.url(server.create_database())
    with application(url) as connection:
        connection.execute(SCHEMA.encode())
    acknowledged: dict[int, str] = {}
    stop = threading.Event()
    writer = threading.Thread(target=_write, args=(url, stop, acknowledged, Random(seed)))
    try:
        with connect(url, profile=FAST) as connected:
            connected.bootstrap()
            job_id = connected.ddl.submit(CHANGE, strategy="shadow_table", keep_old_seconds=0, parameters={"batch_size": 200, "max_write_speed": "3000rows"}).id
            writer.start()
            with connected.service(slots=2):
                for moment in sorted(moments):
                    until(lambda moment=moment: _come(connected, job_id, moment), lambda moment=moment: f"moment {moment}: {_asked(lambda: connected.ddl.show(job_id))}", seconds=SECONDS_MAX)
                    server.stop(signal.SIGQUIT)
                    server.start()
                until(lambda: _asked(lambda: connected.ddl.job(job_id).state in JOB.final), lambda: f"the job ends: {connected.ddl.show(job_id)}", seconds=SECONDS_MAX)
            stop.set()
            writer.join()
            job = connected.ddl.job(job_id)
    finally:
        stop.set()
    wrong = [] if (job.state, job.error, job.warnings) == (JobState.SYNCED, None, []) else [f"ended {job.state}: {job.error} {job.warnings}"]
    return wrong + _lost(url, acknowledged, deaths=len(moments))


def _lost(url: str, acknowledged: dict[int, str], *, deaths: int) -> list[str]:
    found = dict(rows(url, "SELECT id, c FROM t"))
    differing = {key: (value, found.get(key)) for key, value in acknowledged.items() if found.get(key) != value}
    # One write at most was under way at each death: it may be there without its answer, and is then the later one.
    lost = {key: (value, now) for key, (value, now) in differing.items() if now is None or not now.startswith("w") or int(now[1:]) < int(value[1:])}
    wrong = [f"{len(lost)} acknowledged writes are lost: {lost}"] if lost else []
    if len(differing) > deaths:
        wrong.append(f"{len(differing)} rows differ after {deaths} deaths: {differing}")
    counted = rows(url, "SELECT count(*), count(z), count(DISTINCT u) FROM t")
    return wrong if counted == [(ROWS, ROWS, ROWS)] else [*wrong, f"rows: {counted}"]


def _write(url: str, stop: threading.Event, acknowledged: dict[int, str], random: Random) -> None:
    """Write rows of one's own and remember what was acknowledged; a lost connection is made anew."""
    n = 0
    while not stop.is_set():
        try:
            with application(url) as connection:
                while not stop.is_set():
                    n += 1
                    key = 1 + random.randrange(ROWS)
                    connection.execute("UPDATE t SET c = %s WHERE id = %s", (f"w{n}", key))
                    acknowledged[key] = f"w{n}"
                    stop.wait(0.01)
        except psycopg.Error:
            stop.wait(0.05)


def _come(connected: Connected, job_id: int, moment: float) -> bool:
    """Whether the job has come to a moment, or is past it."""
    return bool(_asked(lambda: _is_past(connected.ddl.show(job_id), moment)))


def _is_past(view: dict[str, Any], moment: float) -> bool:
    stage = str(view["stage"] or "").rpartition(": ")[2]
    if moment < COPYING:
        return stage in LATER or view["state"] not in ("queueing", "running") or (view["row_count"] >= ROWS * moment / COPYING and stage == "copy")
    wanted = int((moment - COPYING) / (1 - COPYING) * len(LATER))
    return stage in LATER[wanted:] or view["state"] in ("done", "synced")


def _asked(question: Callable[[], Any]) -> Any:
    """Ask; a server that is just coming back has no answer."""
    try:
        return question()
    except TideshiftError:
        return None
