"""The log's own limits: from the soft one on the copy shares its time with the drain, from the hard one on it stands still."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace
from itertools import groupby
from pathlib import Path

import pytest

from tests.proof.engine import Engine, application, on_engine
from tideshift.ddl.job import Job
from tideshift.ddl.machine import JobState
from tideshift.ddl.reorg.drain import HARD, STEPS_BETWEEN_LOOKS, STEPS_WHILE_LONG
from tideshift.dialects.sqlite.dialect import SqliteDialect

CHANGE = "ALTER TABLE t ALTER c TYPE INTEGER"
ROWS, CHUNK_ROWS, SOFT = 2_000, 5, 40
STEPS = 60


@pytest.fixture
def table(sqlite_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table that takes many chunks, and a log that counts as long with some ten rows."""
    monkeypatch.setattr(SqliteDialect, "capabilities", replace(SqliteDialect.capabilities, copy_log_rows=SOFT))
    with closing(application(sqlite_path)) as connection:
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, c TEXT)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(number, str(number)) for number in range(ROWS)])
    return sqlite_path


def _backlog(engine: Engine, job: Job) -> int:
    with engine.connected.database.transaction(write=False) as tx:
        return engine.connected.dialect.shadow.backlog(tx, job.reorg, limit=10 * ROWS)


def _fill(engine: Engine, job: Job, log_rows: int) -> None:
    """Write as an application does, until the log has so many rows."""
    with closing(application(engine.path)) as connection:
        connection.execute("UPDATE t SET c = c WHERE id IN (SELECT id FROM t LIMIT ?)", (max(0, log_rows - _backlog(engine, job)),))
    assert _backlog(engine, job) >= log_rows


def _done(engine: Engine, job: Job, *, log_rows: int, steps: int) -> str:
    """Return what the next steps did, the application writing before each: c for a chunk copied, d for a batch drained."""
    done = ""
    while len(done) < steps:
        _fill(engine, job, log_rows)
        before = engine.connected.ddl.show(job.id)["row_count"], _backlog(engine, job)
        engine.turn()
        after = engine.connected.ddl.show(job.id)["row_count"], _backlog(engine, job)
        done += "c" * (after[0] > before[0]) + "d" * (after[1] < before[1])
    return done


LEVELS = {
    "short": (SOFT - 1, ["c"]),
    "from the soft limit on": (SOFT + CHUNK_ROWS, ["c" * (STEPS_WHILE_LONG - 1), "d"]),
    "just below the hard one": (HARD * SOFT - 1, ["c" * (STEPS_WHILE_LONG - 1), "d"]),
    "from the hard limit on": (HARD * SOFT, ["d"]),
    "far beyond it": (20 * SOFT, ["d"]),
}


@pytest.mark.parametrize(("log_rows", "rhythm"), LEVELS.values(), ids=LEVELS)
def test_a_log_slows_the_copy_and_then_stops_it(log_rows: int, rhythm: list[str], table: Path) -> None:
    """However long an application keeps it so: below the soft limit only chunks, from there on in turns, from the hard one on not a row."""
    with on_engine(table, parts=1) as engine:
        job_id = engine.submit(CHANGE, batch_size=CHUNK_ROWS)
        engine.until_stage(job_id, "copy")
        job = engine.job(job_id)
        _done(engine, job, log_rows=log_rows, steps=2 * STEPS_BETWEEN_LOOKS)  # until the drain has looked

        done = _done(engine, job, log_rows=log_rows, steps=STEPS)

    runs = ["".join(run) for _, run in groupby(done)]
    if len(rhythm) == 1:
        assert set(done) == {rhythm[0]}, done
    else:
        assert set(runs[1:-1]) == set(rhythm), done


def test_a_copy_that_stood_still_goes_on_when_the_log_is_short(table: Path) -> None:
    """The log is drained to below the soft limit without a chunk between as long as it is that long; then the copy is done as ever, with every write."""
    with on_engine(table, parts=1) as engine:
        job_id = engine.submit(CHANGE, batch_size=CHUNK_ROWS)
        engine.until_stage(job_id, "copy")
        job = engine.job(job_id)
        _done(engine, job, log_rows=4 * SOFT, steps=2 * STEPS_BETWEEN_LOOKS)
        copied = engine.connected.ddl.show(job_id)["row_count"]
        with closing(application(table)) as connection:
            connection.execute("UPDATE t SET c = id + 1000000")

        engine.until(job_id, lambda job: _backlog(engine, job) < HARD * SOFT)
        stood = engine.connected.ddl.show(job_id)["row_count"]

        assert stood - copied <= CHUNK_ROWS
        engine.connected.ddl.alter(job_id, {"batch_size": ROWS})
        assert engine.finish(job_id).state is JobState.SYNCED
    with closing(application(table)) as connection:
        assert connection.execute("SELECT count(*), min(c - id), max(c - id), max(typeof(c)) FROM t").fetchall() == [(ROWS, 1000000, 1000000, "integer")]
