"""The framework by itself: how fast it drains, how soon it starts, takes over and obeys, and whether it loses anything.

    python bench/dxf.py [--database sqlite|postgres] [--only PART,…] [--quick]

Parts: drain (B1), latency (B2), failover (B3), control (B4), growth (B5), correctness (B7). Nodes are processes of their own. The ceiling is printed first: a
bare loop that claims and finishes rows of a table in batches as large as ours, by one connection, with nothing around it. --quick makes everything small: it
checks the benchmark, its figures are no proof. README.md in this folder says what each figure means.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))
sys.path.insert(0, str(Path(__file__).resolve().parent))

from handover import target

from tideshift.connect import Connected, connect
from tideshift.dxf.machine import TASK, SubtaskState, TaskState
from tideshift.dxf.task import DONE, INIT

PARTS = ("drain", "latency", "failover", "control", "growth", "correctness")
RESULTS = Path(__file__).resolve().parent / "results"
WAIT_SECONDS_MAX = 300.0
SLOTS = 4
NEVER = threading.Event()


class Bodies:
    """A task type whose subtasks do nothing, rest, or count a row up, as the meta says."""

    name = "bench.bodies"

    def next_step(self, task):
        return {INIT: 1, 1: DONE}[task.step]

    def step_name(self, step):
        return "work"

    def plan(self, tx, task, step):
        return [{"number": number} for number in range(task.meta["subtasks"])]

    def open(self, task, subtask):
        return {"nothing": Nothing, "rest": Rest, "count": Count}[task.meta["body"]](task.meta)

    def modify(self, meta, modifications):
        return meta

    def revert(self, tx, task): ...


@dataclass
class Nothing:
    """Ends at once; notes the first time it runs where the meta wants that."""

    meta: dict[str, Any]

    def step(self, context):
        if "mark" in self.meta:
            Path(self.meta["mark"]).write_text(repr(time.time()))
        return False


@dataclass
class Rest:
    """Rests for so long, chunk by chunk."""

    meta: dict[str, Any]

    def step(self, context):
        NEVER.wait(self.meta["chunk_seconds"])
        with context.chunk() as chunk:
            chunk.checkpoint = {"done": chunk.checkpoint.get("done", 0) + 1}
            chunk.rows = 1
        return chunk.checkpoint["done"] < self.meta["chunks"]


@dataclass
class Count:
    """Adds one to the counter of its number, once."""

    meta: dict[str, Any]

    def step(self, context):
        if not context.subtask.checkpoint:
            with context.chunk() as chunk:
                (mark,) = chunk.tx.driver.placeholders(1)
                chunk.tx.run_verbatim(f"UPDATE {self.meta['table']} SET n = n + 1 WHERE id = {mark}", (context.subtask.meta["number"],))
                chunk.checkpoint = {"done": True}
        return False


@dataclass
class Bench:
    """One database, the figures so far, and how large things are."""

    url: str
    connected: Connected
    folder: Path
    quick: bool
    figures: list[dict[str, Any]] = field(default_factory=list)
    tasks: int = 0

    def submit(self, body: str, subtasks: int, *, threads: int = SLOTS, **meta: Any) -> int:
        """Submit a task and return its id."""
        self.tasks += 1
        key = f"{body} {self.tasks} {time.time_ns()}"
        return self.connected.dxf.submit(Bodies.name, key, {"body": body, "subtasks": subtasks, **meta}, threads=threads).id

    def note(self, part: str, name: str, value: float, unit: str, limit: float | None = None, *, at_least: bool = False) -> None:
        """Print a figure with its target, and keep it."""
        met = None if limit is None else (value >= limit if at_least else value <= limit)
        verdict = "" if met is None else f"   target {'>=' if at_least else '<='} {limit:g}: {'PASS' if met else 'FAIL'}"
        print(f"{part:<12} {name:<58} {value:>10.1f} {unit}{verdict}", flush=True)
        self.figures.append({"part": part, "name": name, "value": round(value, 3), "unit": unit, "limit": limit, "met": met})

    def table(self, name: str) -> str:
        """Return a table's name as statements must write it."""
        return f"public.{name}" if self.connected.database.driver.name == "postgres" else name

    def state(self, task_id: int) -> TaskState:
        """Read a task's state."""
        return self.connected.dxf.show(task_id).state

    def ended(self, task_id: int) -> bool:
        """Whether it is over."""
        return self.state(task_id) in TASK.final

    def count(self, task_id: int, state: SubtaskState) -> int:
        """Count subtasks in a state."""
        return sum(one.state is state for one in self.connected.dxf.subtasks(task_id))


def until(condition: Callable[[], Any], *, pause: float = 0.01) -> float:
    """Wait for a condition and return when it held."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"bench/dxf.py: not reached in {WAIT_SECONDS_MAX} s")
        NEVER.wait(pause)
    return time.monotonic()


@contextmanager
def nodes(bench: Bench, number: int, *, slots: int = SLOTS) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Run so many nodes as processes until the end of the block."""
    known = len(bench.connected.dxf.nodes())
    command = [sys.executable, str(Path(__file__).resolve()), "--worker", bench.url, "--slots", str(slots)]
    started = [subprocess.Popen(command, env={**os.environ, "PYTHONPATH": str(ROOT / "src")}) for _ in range(number)]
    try:
        until(lambda: len(bench.connected.dxf.nodes()) >= known + number)
        yield started
    finally:
        for process in started:
            if process.poll() is None:
                process.terminate()
        for process in started:
            process.wait(30)


# ── the parts ─────────────────────────────────────────────────────────────────────────────────────────────────────


def bare_loop(bench: Bench, rows: int, batch: int) -> float:
    """Return how many rows a second a loop claims and finishes that does nothing else."""
    database, queue = bench.connected.database, bench.table("bare_queue")
    with database.transaction() as tx:
        tx.run_verbatim(f"DROP TABLE IF EXISTS {queue}")
        tx.run_verbatim(f"CREATE TABLE {queue} (id integer PRIMARY KEY, state text NOT NULL, attempt integer NOT NULL)")
        tx.run_verbatim(f"INSERT INTO {queue} WITH RECURSIVE c(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM c WHERE i < {rows}) SELECT i, 'pending', 0 FROM c")
    begun = time.monotonic()
    with database.session() as session:
        for low in range(0, rows + batch, batch):
            with session.transaction() as tx:
                tx.run_verbatim(f"UPDATE {queue} SET state = 'done' WHERE id > {low - batch} AND id <= {low} AND state = 'running' AND attempt = 1")
                tx.run_verbatim(f"UPDATE {queue} SET state = 'running', attempt = 1 WHERE id > {low} AND id <= {low + batch} AND state = 'pending'")
    return rows / (time.monotonic() - begun)


def drain(bench: Bench) -> None:
    """B1: no-op subtasks a second, at one, two and four nodes."""
    subtasks = 400 if bench.quick else 10_000
    ceiling = bare_loop(bench, subtasks, 4 * SLOTS)
    bench.note("drain", f"ceiling: a bare loop in batches of {4 * SLOTS}", ceiling, "rows/s")
    rates: dict[int, float] = {}
    for number in (1, 2) if bench.quick else (1, 2, 4):
        with nodes(bench, number):
            task_id = bench.submit("nothing", subtasks)
            until(lambda task_id=task_id: bench.ended(task_id), pause=0.05)
        done = bench.connected.dxf.subtasks(task_id)
        seconds = (max(one.end_time or 0 for one in done) - min(one.start_time or 0 for one in done)) / 1000
        rates[number] = subtasks / max(seconds, 0.001)
        bench.note("drain", f"{number} node(s)", rates[number], "subtasks/s", 0.5 * ceiling if number == 1 else None, at_least=True)
    most = max(rates)
    bench.note("drain", f"{most} nodes against one", rates[most] / rates[1], "x", 1.0, at_least=True)


def latency(bench: Bench) -> None:
    """B2: from the call of submit to the first line of user code, on an idle node of the same process."""
    waits: list[float] = []
    limit = 20.0 if bench.connected.database.driver.capabilities.concurrent_writers else 150.0
    with bench.connected.service(slots=SLOTS) as service:
        until(lambda: service.owner.tenure is not None)
        for number in range(10 if bench.quick else 100):
            mark = bench.folder / f"mark-{number}"
            asked = time.time()
            bench.submit("nothing", 1, mark=str(mark))
            service.wake()
            until(lambda mark=mark: mark.exists() and mark.read_text(), pause=0.001)
            waits.append(1000 * (float(mark.read_text()) - asked))
            NEVER.wait(0.05)
    waits.sort()
    bench.note("latency", "submit to first user code, same process, p50", statistics.median(waits), "ms", limit)
    bench.note("latency", "the same, p95", waits[int(0.95 * (len(waits) - 1))], "ms")


def failover(bench: Bench) -> None:
    """B3: kill -9 of a node, and of the owner: until all of its work runs again."""
    for name in ("a node that does not own", "the owner"):
        with nodes(bench, 2, slots=8) as processes:
            task_id = bench.submit("rest", 16, threads=8, chunks=100_000, chunk_seconds=0.1)
            until(lambda task_id=task_id: bench.count(task_id, SubtaskState.RUNNING) == 16)
            victim = _victim(bench, processes, owner=name == "the owner")
            lost = {one.id: one.attempt for one in bench.connected.dxf.subtasks(task_id) if f":{victim.pid}:" in (one.exec_id or "")}
            with nodes(bench, 1, slots=16):
                victim.send_signal(signal.SIGKILL)
                killed = time.monotonic()
                again = until(lambda lost=lost, task_id=task_id: _run_again(bench, task_id, lost), pause=0.05)
                bench.note("failover", f"kill -9 of {name}, all of its {len(lost)} subtasks run again", again - killed, "s", 8.0)
                bench.connected.dxf.cancel(task_id)
                until(lambda task_id=task_id: bench.ended(task_id), pause=0.05)


def _victim(bench: Bench, processes: list[subprocess.Popen[bytes]], *, owner: bool) -> subprocess.Popen[bytes]:
    from sqlalchemy import select

    from tideshift.store.tables import owner_lease

    holder = bench.connected.database.run(lambda tx: tx.execute(select(owner_lease.c.owner_id)).scalar_one(), write=False)
    return next(one for one in processes if (f":{one.pid}:" in holder) == owner)


def _run_again(bench: Bench, task_id: int, lost: dict[int, int]) -> bool:
    return all(
        one.state is SubtaskState.RUNNING and one.attempt > lost[one.id] for one in bench.connected.dxf.subtasks(task_id) if one.id in lost
    )


def control(bench: Bench) -> None:
    """B4: pause, resume, modify and cancel, from the call to the effect."""
    running = lambda: bench.count(task_id, SubtaskState.RUNNING)  # noqa: E731
    with nodes(bench, 2, slots=8):
        task_id = bench.submit("rest", 60 if bench.quick else 400, threads=2, chunks=100_000, chunk_seconds=0.02)
        until(lambda: running() == 4)
        steps: list[tuple[str, Callable[[], Any], Callable[[], bool]]] = [
            ("modify threads 2 to 8", lambda: bench.connected.dxf.modify(task_id, threads=8), lambda: running() == 16),
            ("modify threads 8 to 1", lambda: bench.connected.dxf.modify(task_id, threads=1), lambda: running() == 2),
            ("pause, until paused", lambda: bench.connected.dxf.pause(task_id), lambda: bench.state(task_id) is TaskState.PAUSED),
            ("resume, until it runs again", lambda: bench.connected.dxf.resume(task_id), lambda: running() == 2),
            ("cancel, until reverted", lambda: bench.connected.dxf.cancel(task_id), lambda: bench.ended(task_id)),
        ]
        for name, ask, effect in steps:
            asked = time.monotonic()
            ask()
            bench.note("control", name, until(effect) - asked, "s", 1.5 if "threads" in name or "resume" in name else 1.0)


def growth(bench: Bench) -> None:
    """B5: planning, the rate and the progress query with many subtasks queued behind."""
    sizes = (200, 2_000) if bench.quick else (1_000, 100_000)
    rates: list[float] = []
    for size in sizes:
        with nodes(bench, 1):
            submitted = time.monotonic()
            task_id = bench.submit("nothing", size)
            until(lambda task_id=task_id: bench.state(task_id) is not TaskState.PENDING, pause=0.05)
            bench.note("growth", f"{size} subtasks planned", size / (time.monotonic() - submitted), "subtasks/s")
            began, before = time.monotonic(), _done(bench, task_id)
            until(lambda task_id=task_id, size=size: _done(bench, task_id) >= min(size, sizes[0]), pause=0.05)
            rates.append((_done(bench, task_id) - before) / max(time.monotonic() - began, 0.001))
            asked = time.monotonic()
            _done(bench, task_id)
            bench.note("growth", f"progress query with {size} subtasks", 1000 * (time.monotonic() - asked), "ms", 50.0)
            bench.connected.dxf.cancel(task_id)
            until(lambda task_id=task_id: bench.ended(task_id), pause=0.1)
    bench.note("growth", f"rate over the first {sizes[0]} of {sizes[1]} against {sizes[0]} alone", rates[1] / rates[0], "x", 0.8, at_least=True)


def _done(bench: Bench, task_id: int) -> int:
    from tideshift.dxf.progress_tables import progress_of

    return sum(one.subtasks_done for one in bench.connected.database.run(lambda tx: progress_of(tx, task_id), write=False))


def correctness(bench: Bench) -> None:
    """B7: counters that are counted up while nodes are killed: none lost, none twice, none stuck."""
    subtasks, kills = (300, 2) if bench.quick else (5_000, 20)
    counter = bench.table("bench_counter")
    with bench.connected.database.transaction() as tx:
        tx.run_verbatim(f"CREATE TABLE {counter} (id integer PRIMARY KEY, n integer NOT NULL)")
        tx.run_verbatim(f"INSERT INTO {counter} WITH RECURSIVE c(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM c WHERE i < {subtasks - 1}) SELECT i, 0 FROM c")
    with ExitStack() as stack:
        alive = [stack.enter_context(nodes(bench, 1))[0] for _ in range(2)]
        task_id = bench.submit("count", subtasks, table=counter)
        for number in range(kills):
            NEVER.wait(1.0 if bench.quick else 3.0)
            alive[number % 2].send_signal(signal.SIGKILL)
            alive[number % 2] = stack.enter_context(nodes(bench, 1))[0]
        until(lambda: bench.ended(task_id), pause=0.1)
    with bench.connected.database.transaction(write=False) as tx:
        ((lost, twice),) = tx.run_verbatim(f"SELECT coalesce(sum(CASE WHEN n = 0 THEN 1 ELSE 0 END), 0), coalesce(sum(CASE WHEN n > 1 THEN 1 ELSE 0 END), 0) FROM {counter}").rows
    bench.note("correctness", f"{subtasks} counters, {kills} kills: lost", float(lost), "", 0.0)
    bench.note("correctness", "counted twice", float(twice), "", 0.0)
    bench.note("correctness", "stuck", float(bench.state(task_id) is not TaskState.SUCCEED), "", 0.0)


def serve(url: str, slots: int) -> int:
    """Be a node until SIGTERM."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    with connect(url) as connected:
        connected.registry.add(Bodies())
        with connected.service(slots=slots):
            while not ended.wait(0.1):  # ends: SIGTERM
                continue
    return 0


def main() -> int:
    """Measure the parts that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--database", choices=("sqlite", "postgres"), default="postgres")
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    parser.add_argument("--slots", type=int, default=SLOTS, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.worker:
        return serve(asked.worker, asked.slots)
    by_name = {one.__name__: one for one in (drain, latency, failover, control, growth, correctness)}
    with tempfile.TemporaryDirectory(prefix="tideshift-dxf-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        with target(asked.database, folder, fsync=True) as url, connect(url) as connected:
            connected.bootstrap()
            connected.registry.add(Bodies())
            bench = Bench(url, connected, folder, asked.quick)
            for part in asked.only.split(","):
                by_name[part](bench)
    if not asked.quick:
        (RESULTS / f"dxf-{asked.database}.json").write_text(json.dumps({"cores": os.cpu_count(), "figures": bench.figures}, indent=1) + "\n")
    return 1 if any(figure["met"] is False for figure in bench.figures) else 0


if __name__ == "__main__":
    sys.exit(main())
