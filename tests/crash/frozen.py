"""A worker that is stopped by the operating system at the worst places, another one that takes over, and its awakening."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from tests.crash import writers
from tests.crash.application import MODULE
from tests.crash.outcome import read_ending
from tests.crash.processes import Worker, reader, standing
from tests.crash.worker import PLACES
from tests.waiting import until
from tideshift.config import FAST
from tideshift.connect import connect
from tideshift.frontends.cli.doctor import diagnose

ROWS = 3_000
CHANGE = "ALTER TABLE readings ALTER COLUMN value TYPE INTEGER"
FREEZES = tuple(PLACES)
LISTED = Path("/proc/locks").exists()
"""Whether this system tells who holds a lock."""
HOLDS_THE_LOCK = "inside the transaction"
IS_OWNER = "owner before the swap"


def frozen_run(folder: Path, place: str, passes: int) -> None:
    """Freeze a worker at the n-th pass of a place, let another one take over, thaw it, and check what is left."""
    path = folder / "frozen.db"
    writers.create(path, ROWS)
    job_id = submit(path)
    with Worker(path, freeze=(place, passes)) as first, closing(reader(path)) as look:
        first.ready().wait_frozen()
        if place != IS_OWNER:
            _see_who_runs(look, first)
        if place == HOLDS_THE_LOCK:  # nobody can take over: it must be seen, named, and harm nothing
            _see_writers_blocked(path)
            until(lambda: _named_by_doctor(path, first), f"a doctor that names {first.name}")
            first.thaw()
        with Worker(path) as second:
            second.ready()
            if place != HOLDS_THE_LOCK:
                write_meanwhile(path)
                seen = _is_over if place == IS_OWNER else _taken_over
                until(lambda: seen(look, job_id), lambda: f"the frozen worker's work taken over: {standing(look)}; {second.log[-1500:]}")
                seen_before = len(first.log)
                first.thaw()
                _see_late_writes_fenced(first, seen_before)
            until(lambda: _is_over(look, job_id), lambda: f"job {job_id} over: {standing(look)}; {first.log[-1500:]} and {second.log[-1500:]}")
            second.stop()
        first.stop()
    if place == HOLDS_THE_LOCK:
        write_meanwhile(path)
    _see_everything_right(path)


def submit(path: Path, change: str = CHANGE, **parameters: Any) -> int:
    """Submit a change, as a client of its own would."""
    with connect(str(path), profile=FAST, actor="client") as connected:
        connected.bootstrap()
        return connected.ddl.submit(change, parameters={"batch_size": 100, **parameters}, keep_old_seconds=0, strategy="shadow_table").id


def write_meanwhile(path: Path) -> None:
    """Write as the application does while the job stands: below the copy's front and above it."""
    with closing(reader(path)) as connection:
        connection.execute("INSERT INTO readings VALUES (1, '1001', 'new'), (?, '1002', 'far')", (10 * ROWS,))
        connection.execute("UPDATE readings SET value = '7' WHERE id IN (?, ?)", (-ROWS, -1))
        connection.execute("DELETE FROM readings WHERE id IN (?, ?)", (-ROWS + 1, -2))
        connection.execute("UPDATE readings SET id = 5 WHERE id = ?", (-ROWS + 2,))


def _expected() -> list[tuple[Any, ...]]:
    rows = {-n: (n, f"f{n}") for n in range(1, ROWS + 1)} | {1: (1001, "new"), 10 * ROWS: (1002, "far")}
    rows[-ROWS], rows[-1] = (7, f"f{ROWS}"), (7, "f1")
    del rows[-ROWS + 1], rows[-2]
    rows[5] = rows.pop(-ROWS + 2)
    return sorted((key, *row) for key, row in rows.items())


def _see_who_runs(look: Any, first: Worker) -> None:
    """The rows name the process that runs the subtask, so that a person can be told who holds the lock."""
    sessions = look.execute("SELECT session FROM tideshift_dxf_background_subtask WHERE state = 'running'").fetchall()
    assert any(f'"backend":"{first.child.pid}"' in session for (session,) in sessions), f"{sessions} do not name {first.child.pid}"


def _named_by_doctor(path: Path, first: Worker) -> bool:
    """Whether the doctor, who only reads, tells which process does not answer, by its node's name and as the holder of the lock."""
    with connect(str(path), profile=FAST, actor="doctor") as connected:
        findings = diagnose(connected).findings
    assert f":{first.child.pid}:" in first.name
    dead = any(finding["code"] == "dead_node" and first.name in finding["message"] for finding in findings)
    held = any(finding["code"] == "lock_held" and f"process {first.child.pid} (" in finding["message"] for finding in findings)
    return dead and (held or not LISTED)


def _see_writers_blocked(path: Path) -> None:
    with closing(MODULE.connect(path, isolation_level=None, timeout=0.1)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except MODULE.OperationalError as error:
            assert "locked" in str(error)  # noqa: PT017 - the point is that nothing else was raised
        else:
            raise AssertionError("a worker that is frozen inside its transaction holds no lock: the freeze missed its place")


def _taken_over(look: Any, job_id: int) -> bool:
    return bool(look.execute("SELECT 1 FROM tideshift_event WHERE kind = 'subtask' AND detail LIKE '%\"event\":\"rescue\"%'").fetchone())


def _is_over(look: Any, job_id: int) -> bool:
    ended = look.execute("SELECT state FROM tideshift_ddl_job_history WHERE id = ?", (job_id,)).fetchone()
    left = look.execute(
        "SELECT (SELECT count(*) FROM tideshift_ddl_artifact WHERE dropped_at IS NULL) + (SELECT count(*) FROM tideshift_dxf_global_task)"
        " + (SELECT count(*) FROM tideshift_dxf_background_subtask)"
    ).fetchone()[0]
    return ended is not None and left == 0


def _see_late_writes_fenced(first: Worker, seen_before: int) -> None:
    """The thawed worker found out that the work is not its own any more, and said so behind what it had said before."""
    words = ("is no longer ours", "was taken from us", "has moved on", "the lease went to somebody else")
    until(lambda: any(word in first.log[seen_before:] for word in words), lambda: f"a worker that noticed its loss: {first.log[-2000:]}")


def _see_everything_right(path: Path) -> None:
    ending = read_ending(path, [])
    assert not ending.problems, ending.problems
    assert ending.job["state"] == "synced", ending.job
    with closing(reader(path)) as connection:
        rows = connection.execute("SELECT id, value, tag FROM readings ORDER BY id").fetchall()
    assert rows == _expected()
