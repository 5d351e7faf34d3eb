"""Workers killed at random moments, one after another, while real writers write; their own logs are the judge."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from tests.crash import writers
from tests.crash.frozen import submit
from tests.crash.processes import ROOT, Worker, reader, standing
from tests.waiting import WAIT_SECONDS_MAX, until
from tideshift.connect import connect

ROWS = 8_000
WRITERS = 2
TYPES = ("INTEGER", "TEXT")


@dataclass(frozen=True)
class Report:
    """What one run survived: deaths of workers that were at work, and what was done meanwhile."""

    kills: int
    jobs: int
    statements: int


def killed_run(folder: Path, seed: int, *, kills_wanted: int, seconds_max: float) -> Report:
    """Kill so many workers at work, then let one end it; raise AssertionError where the logs and the table differ."""
    random = Random(f"killed/{seed}")
    path = folder / "killed.db"
    writers.create(path, ROWS)
    kills, jobs = 0, 0
    with ExitStack() as stack:
        logs = [start_writer(stack, path, number, seed) for number in range(WRITERS)]
        look = stack.enter_context(closing(reader(path)))
        deadline = time.monotonic() + seconds_max
        while kills < kills_wanted and time.monotonic() < deadline:
            if jobs == 0 or idle(look):
                submit(path, f"ALTER TABLE readings ALTER COLUMN value TYPE {TYPES[jobs % 2]}", lock_share=30)
                jobs += 1
            with Worker(path) as worker:
                _let_work(worker.ready(), look, seconds=random.uniform(0.05, 1.5))
                at_work = not idle(look)
                worker.kill()
                kills += at_work
        with Worker(path) as last:
            last.ready()
            until(lambda: idle(look), lambda: f"the end of the job: {standing(look)}; {last.log[-1500:]}", seconds=90)
            last.stop()
        believed, statements = end_writers(logs)
        compare(look, believed)
        _see_clean(path, look, jobs)
    return Report(kills, jobs, statements)


def start_writer(stack: ExitStack, path: Path, number: int, seed: int) -> tuple[subprocess.Popen[bytes], Path]:
    """Start a writer that is ended with the stack; its log is where the path says."""
    log = path.with_suffix(f".writer-{number}.json")
    command = [sys.executable, "-m", "tests.crash.writers", str(path), str(number), str(WRITERS), str(seed), str(log)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
    child = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE)
    stack.callback(_end, child)
    return child, log


def _end(child: subprocess.Popen[bytes]) -> None:
    if child.poll() is None:
        child.kill()
    child.communicate()


def _let_work(worker: Worker, look: Any, *, seconds: float) -> None:
    """Wait so long, or until nothing is left to be killed in."""
    deadline = time.monotonic() + seconds
    until(lambda: time.monotonic() >= deadline or idle(look), lambda: f"time for the next kill: {worker.log[-800:]}")


def idle(look: Any) -> bool:
    """Whether no job, no task and no artifact is left."""
    return look.execute(
        "SELECT (SELECT count(*) FROM tideshift_ddl_job) + (SELECT count(*) FROM tideshift_dxf_global_task)"
        " + (SELECT count(*) FROM tideshift_ddl_artifact WHERE dropped_at IS NULL)"
    ).fetchone()[0] == 0  # fmt: skip


def end_writers(logs: list[tuple[subprocess.Popen[bytes], Path]]) -> tuple[dict[int, list[Any]], int]:
    """Stop the writers and put together what they believe."""
    believed: dict[int, list[Any]] = {}
    statements = 0
    for child, log in logs:
        child.terminate()
        complaint = child.communicate(timeout=WAIT_SECONDS_MAX)[1].decode()
        assert child.returncode == 0, f"a statement of a writer failed because of a job: {complaint[-1500:]}"
        told = json.loads(log.read_text())
        statements += told["statements"]
        believed |= {int(key): row for key, row in told["rows"].items()}
    return believed, statements


def compare(look: Any, believed: dict[int, list[Any]], *, rows: int = ROWS) -> None:
    """See that the table holds what the writers believe, and the rows that nobody wrote."""
    written = {key: [str(value), tag] for key, value, tag in look.execute("SELECT id, value, tag FROM readings WHERE id >= 0")}
    lost = sorted(believed.keys() - written.keys())
    extra = sorted(written.keys() - believed.keys())
    other = sorted(key for key in believed.keys() & written.keys() if believed[key] != written[key])
    assert not (lost or extra or other), f"lost {lost[:10]}, back again {extra[:10]}, different {other[:10]}"
    untouched = look.execute("SELECT count(*), sum(value) FROM readings WHERE id < 0").fetchone()
    assert untouched == (rows, rows * (rows + 1) // 2), f"rows that nobody wrote: {untouched}"


def _see_clean(path: Path, look: Any, jobs: int) -> None:
    states = [state for (state,) in look.execute("SELECT state FROM tideshift_ddl_job_history")]
    assert states == ["synced"] * jobs, states
    assert look.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    kinds = {kind for (kind,) in look.execute("SELECT DISTINCT typeof(value) FROM readings")}
    assert kinds == {TYPES[(jobs - 1) % 2].lower()}
    with connect(str(path)) as connected, connected.database.transaction(write=False) as tx:
        assert connected.dialect.catalog.objects(tx) == set()
