"""How long it takes from the end of a subtask to the start of the next one, within a step and over a change of step.

    python bench/handover.py [--database sqlite|postgres] [--subtasks N] [--steps N] [--no-fsync] [--statements]

One service (owner and node in one process, one slot) carries out a task of many subtasks that do nothing, then one of many steps with one subtask each. What is
timed is the gap between two bodies: end of one body to begin of the next. With --statements the statements of one hand-over are counted too.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from sqlalchemy import event

from tests.servers import PostgresServer, sqlite_module
from tideshift.connect import Connected, connect
from tideshift.dxf.machine import TASK
from tideshift.dxf.task import DONE, INIT

LIMIT_MS = 20.0
WAIT_SECONDS_MAX = 60.0


class Idle:
    """A task of so many steps with so many subtasks, which note when they ran."""

    name = "bench.idle"

    def __init__(self) -> None:
        self.moments: list[tuple[float, float]] = []

    def next_step(self, task):
        following = 1 if task.step == INIT else task.step + 1
        return following if following <= task.meta["steps"] else DONE

    def step_name(self, step):
        return "nothing"

    def plan(self, tx, task, step):
        return [{"number": number} for number in range(task.meta["subtasks"])]

    def open(self, task, subtask):
        return self

    def step(self, context):
        begun = time.perf_counter()
        with context.chunk() as chunk:
            chunk.rows = 1
        self.moments.append((begun, time.perf_counter()))
        return False

    def modify(self, meta, modifications):
        return meta

    def revert(self, tx, task): ...


@contextmanager
def target(kind: str, folder: Path, *, fsync: bool) -> Iterator[str]:
    """Give the URL of an empty database."""
    if kind == "sqlite":
        connection = sqlite_module().connect(folder / "bench.db")
        connection.execute("PRAGMA journal_mode = wal")
        connection.close()
        yield str(folder / "bench.db")
        return
    server = PostgresServer(fsync=fsync, inside=folder)
    server.start()
    try:
        yield server.url(server.create_database())
    finally:
        server.remove()


def gaps_ms(connected: Connected, idle: Idle, key: str, *, steps: int, subtasks: int) -> list[float]:
    """Run one task and return the gaps between the bodies of its subtasks."""
    idle.moments.clear()
    task = connected.dxf.submit(Idle.name, key, {"steps": steps, "subtasks": subtasks})
    pacing = threading.Event()
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while connected.dxf.show(task.id).state not in TASK.final:
        if time.monotonic() > deadline:
            raise SystemExit(f"task {task.id} did not end in {WAIT_SECONDS_MAX} s")
        pacing.wait(0.2)
    moments = idle.moments[1:]  # the first subtask warms connections and caches up
    return [1000 * (after[0] - before[1]) for before, after in itertools.pairwise(moments)]


def show(name: str, gaps: list[float], processor_ms: float, statements: int | None, limit_ms: float | None) -> bool:
    """Print a line; return whether the limit is kept."""
    gaps = sorted(gaps)
    median, p95 = statistics.median(gaps), gaps[int(0.95 * (len(gaps) - 1))]
    met = limit_ms is None or median <= limit_ms
    counted = "" if statements is None else f", {statements / (len(gaps) + 2):.1f} statements each, chunk included"
    verdict = "" if limit_ms is None else f"   target {limit_ms:g} ms {'PASS' if met else 'FAIL'}"
    print(f"{name:<28} median {median:6.2f} ms   p95 {p95:6.2f} ms   {processor_ms / (len(gaps) + 2):5.2f} ms of the processor{counted}{verdict}")
    return met


def main() -> int:
    """Measure both hand-overs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="postgres")
    parser.add_argument("--subtasks", type=int, default=200)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--no-fsync", action="store_true", help="leave the disk out: what is left is the work of the processor")
    parser.add_argument("--statements", action="store_true", help="count statements as well")
    asked = parser.parse_args()
    met = True
    with tempfile.TemporaryDirectory(prefix="tideshift-handover-") as folder:
        Path(folder).chmod(0o755)
        with target(asked.database, Path(folder), fsync=not asked.no_fsync) as url, connect(url) as connected:
            connected.bootstrap()
            idle = Idle()
            connected.registry.add(idle)
            counted = [0]
            if asked.statements:
                event.listen(connected.database.engine, "before_cursor_execute", lambda *_: counted.__setitem__(0, counted[0] + 1))
            with connected.service(slots=1):
                for name, steps, subtasks in (("next subtask of a step", 1, asked.subtasks), ("first subtask of next step", asked.steps, 1)):
                    counted[0] = 0
                    processor = time.process_time()
                    gaps = gaps_ms(connected, idle, name, steps=steps, subtasks=subtasks)
                    met &= show(name, gaps, 1000 * (time.process_time() - processor), counted[0] if asked.statements else None, LIMIT_MS if asked.database == "postgres" else None)
    return 0 if met else 1


if __name__ == "__main__":
    sys.exit(main())
