"""How fast a type change of a busy SQLite table is, and what its writer feels: every target of the project in one run.

    python bench/sqlite.py [--rows N] [--pair-rows N] [--pairs N] [--only NAME,…] [--quick] [--folder FOLDER]

Prints a table with PASS or FAIL for each target, puts the parts that were run into bench/results/sqlite.json, and exits with 1 on a FAIL. README.md in this
folder says what is measured and how. The whole run takes less than 25 minutes on two cores, --quick less than 3.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import fast
import strategies
import workload
from processes import JOB_SECONDS_MAX, WRITE_INTERVAL_SECONDS, finish, start, writer

from tideshift.config import PARAMETERS
from tideshift.connect import Connected, connect
from tideshift.ddl.view import purge_pending
from tideshift.dialects.sqlite.library import sqlite_library

COPY_STEP = 1
HELP_RUNS = 21
RESULTS = Path(__file__).resolve().parent / "results"
BENCHES = ("pairs", "job", "strategies", "fast", "trade", "memory", "help")


@dataclass(frozen=True)
class Result:
    """One figure, and the target that it is held against (None: shown only)."""

    name: str
    value: float
    unit: str
    limit: float | None = None
    at_least: bool = False
    part: str = ""

    @property
    def verdict(self) -> str:
        if self.limit is None:
            return ""
        met = self.value >= self.limit if self.at_least else self.value <= self.limit
        return "PASS" if met else "FAIL"


@dataclass(frozen=True, kw_only=True)
class JobRun:
    """One whole job: its times, and what the writer beside it felt (empty without one)."""

    seconds: float
    copy_seconds: float
    copied: int
    chunks: int
    paused_seconds: float
    pauses: int
    peak_mib: float
    cpu_seconds: float
    latencies: list[float]
    delays: list[float]


class Bench:
    """The settings of a run, its databases, and what was measured."""

    def __init__(self, options: argparse.Namespace, folder: Path) -> None:
        self.options = options
        self.folder = folder
        self.results: list[Result] = []
        self.part = ""
        self.details: dict[str, Any] = {}
        self._made = 0

    def note(self, name: str, value: float, unit: str, limit: float | None = None, *, at_least: bool = False) -> None:
        """Keep one figure and show it."""
        result = Result(name, round(value, 4), unit, limit, at_least, self.part)
        self.results.append(result)
        print(line(result), flush=True)

    @contextmanager
    def database(self, rows: int) -> Iterator[Path]:
        """Give a fresh database with `rows` rows, copied from one that is made once."""
        original = self.folder / f"{rows}.original"
        if not original.exists():
            workload.build(original, rows, journal_mode=self.options.journal_mode)
        self._made += 1
        path = self.folder / f"run{self._made}.db"
        shutil.copyfile(original, path)
        os.sync()
        try:
            yield path
        finally:
            for left in self.folder.glob(f"run{self._made}.*"):
                left.unlink()

    # ── one job ───────────────────────────────────────────────────────────────────────────────────────────────────

    def job(self, path: Path, *, with_writer: bool, **parameters: Any) -> JobRun:
        """Run the whole job on a database, from its submission to the end of the purge."""
        url = f"sqlite:///{path}"
        with connect(url) as connected:
            connected.bootstrap()
            worker_result = path.with_suffix(".worker")
            if not with_writer:
                seconds, copy = self.carried_out(connected, url, worker_result, parameters)
                return JobRun(seconds=seconds, **copy, **json.loads(worker_result.read_text()), latencies=[], delays=[])
            with writer(path, self.options.synchronous) as times:
                threading.Event().wait(1.0)
                submitted = time.monotonic()
                seconds, copy = self.carried_out(connected, url, worker_result, parameters)
            felt = [moment for moment in workload.read_times(times) if moment[2] >= submitted]
        return JobRun(
            seconds=seconds, **copy, **json.loads(worker_result.read_text()),
            latencies=[committed - begun for _, begun, committed in felt], delays=[committed - due for due, _, committed in felt],
        )  # fmt: skip

    def carried_out(
        self, connected: Connected, url: str, result: Path, parameters: dict[str, Any], *, statement: str = workload.CHANGE,
        strategy: str = "shadow_table",
    ) -> tuple[float, dict[str, Any]]:  # fmt: skip
        """Submit a change and wait until it is over, purge included; return the seconds and what the copy did."""
        begun = time.monotonic()
        job = connected.ddl.submit(statement, parameters=parameters, strategy=strategy)
        worker = start("work", url, result)
        pacing = threading.Event()
        try:
            while not self._over(connected, job.id):
                if worker.poll() is not None or time.monotonic() - begun > JOB_SECONDS_MAX:
                    raise SystemExit(f"bench/sqlite.py: the job did not end: {connected.ddl.show(job.id)}")
                pacing.wait(0.25)
            seconds = time.monotonic() - begun
            finish(worker, ask=True)
        finally:
            worker.kill()
            worker.wait()
        return seconds, _copy_figures(connected) if strategy == "shadow_table" else {}

    @staticmethod
    def _over(connected: Connected, job_id: int) -> bool:
        state = connected.ddl.job(job_id).state
        if state in ("rollback done", "cancelled"):
            raise SystemExit(f"bench/sqlite.py: the job is {state}: {connected.ddl.show(job_id)['error']}")
        return state == "synced" and not connected.database.run(lambda tx: purge_pending(tx, job_id), write=False)

    # ── the parts ─────────────────────────────────────────────────────────────────────────────────────────────────

    def pairs(self) -> None:
        """(a) The copy rate of ours against a bare loop with the same chunks, pauses and triggers, in interleaved pairs."""
        usual = int(PARAMETERS["lock_share"].default or 100)
        ratios: dict[int, list[float]] = {usual: [], 100: []}
        for share, found in ratios.items():
            for _ in range(self.options.pairs if share == usual else min(3, self.options.pairs)):
                with self.database(self.options.pair_rows) as path:
                    ours = self.job(path, with_writer=True, lock_share=share)
                with self.database(self.options.pair_rows) as path, writer(path, self.options.synchronous):
                    result = path.with_suffix(".bare")
                    chunk = max(1, round(ours.copied / max(1, ours.chunks)))
                    # What our throttle asks for after a mean chunk; whatever else we spend between chunks counts against us.
                    pause = ours.paused_seconds / max(1, ours.pauses)
                    finish(start("bare", path, result, chunk, f"{pause:.6f}", self.options.synchronous), ask=False)
                    theirs = json.loads(result.read_text())
                rates = ours.copied / ours.copy_seconds, theirs["rows"] / theirs["seconds"]
                found.append(rates[0] / rates[1])
                print(f"    lock_share {share}: {chunk} rows a chunk, pause {pause * 1000:.1f} ms, ours {rates[0]:,.0f} rows/s, bare {rates[1]:,.0f}: {found[-1]:.3f}", flush=True)
        self.details["pairs"] = ratios
        self.note("copy rate against a bare loop (median)", statistics.median(ratios[usual]), "x", 0.9, at_least=True)
        self.note("the same without pauses", statistics.median(ratios[100]), "x")

    def whole_job(self) -> None:
        """(b), (c) and memory: a whole job with the defaults, its writer, and the twelve-step rebuild beside it."""
        with self.database(self.options.rows) as path:
            run = self.job(path, with_writer=True)
        with self.database(self.options.rows) as path:
            result = path.with_suffix(".twelve")
            with writer(path, self.options.synchronous) as times:
                threading.Event().wait(1.0)
                finish(start("twelve", path, result, self.options.synchronous), ask=False)
                threading.Event().wait(0.5)
            stall = max(committed - begun for _, begun, committed in workload.read_times(times))
            twelve_seconds = json.loads(result.read_text())["seconds"]
        self.details["job"] = {**asdict(run), "latencies": len(run.latencies), "delays": len(run.delays)}
        self._felt(run)
        self.note("twelve-step rebuild: the writer's longest", stall * 1000, "ms")
        self.note("twelve-step rebuild: lock held", twelve_seconds, "s")
        self.note(f"whole job, {self.options.rows:,} rows", run.seconds, "s", 240)
        self.note("copy", run.copied / run.copy_seconds, "rows/s")
        self.note("processor of the worker", run.cpu_seconds, "s")
        self.note(f"peak memory of the worker, {self.options.rows:,} rows", run.peak_mib, "MiB", 120e6 / (1 << 20))

    def _felt(self, run: JobRun) -> None:
        for name, values, limits in (("", run.latencies, (25, 50, 150)), (", counted from when it was due", run.delays, (None, None, None))):
            ordered = sorted(values)
            for label, share, limit in (("p50", 0.5, None), ("p99", 0.99, limits[0]), ("p99.9", 0.999, limits[1]), ("longest", 1.0, limits[2])):
                value = ordered[min(len(ordered) - 1, int(share * len(ordered)))]
                self.note(f"writer's {label}{name}", value * 1000, "ms", limit)

    def trade(self) -> None:
        """(d) What more or less of the lock buys: the duration of the job and the writer's longest statement."""
        found: dict[str, Any] = {}
        for share in sorted({10, int(PARAMETERS["lock_share"].default or 100), 50, 100}):
            with self.database(self.options.trade_rows) as path:
                run = self.job(path, with_writer=True, lock_share=share)
            ordered = sorted(run.latencies)
            p99 = ordered[int(0.99 * len(ordered))] * 1000
            found[str(share)] = {"seconds": run.seconds, "p99_ms": p99, "longest_ms": ordered[-1] * 1000}
            self.note(f"lock_share {share}: {self.options.trade_rows:,} rows", run.seconds, "s")
            self.note(f"lock_share {share}: writer's p99", p99, "ms")
            self.note(f"lock_share {share}: writer's longest", ordered[-1] * 1000, "ms")
        self.details["trade"] = found

    def memory(self) -> None:
        """(e) The worker's peak memory on a larger table."""
        with self.database(self.options.memory_rows) as path:
            run = self.job(path, with_writer=False, lock_share=100)
        self.note(f"peak memory of the worker, {self.options.memory_rows:,} rows", run.peak_mib, "MiB", 120e6 / (1 << 20))
        self.note(f"whole job at lock_share 100, {self.options.memory_rows:,} rows", run.seconds, "s")

    def help(self) -> None:
        """(f) The processor time of `tideshift --help`."""
        spent = sorted(_cpu_seconds([sys.executable, "-m", "tideshift.frontends.cli", "--help"]) for _ in range(HELP_RUNS))
        self.note("processor time of tideshift --help (median)", statistics.median(spent) * 1000, "ms", 80)
        bare = sorted(_cpu_seconds([sys.executable, "-c", "import click"]) for _ in range(HELP_RUNS))
        self.note("of which Python and click alone", statistics.median(bare) * 1000, "ms")


def _copy_figures(connected: Connected) -> dict[str, Any]:
    """Return what the copy step of the only job did, from its subtasks' own records."""

    def read(tx: Any) -> list[Any]:
        from tideshift.dxf import tables

        task = tables.task_by_key(tx, "ddl/1/reorganize")
        assert task is not None
        return [subtask for subtask in tables.subtasks_of(tx, task.id) if subtask.step == COPY_STEP]

    subtasks = connected.database.run(read, write=False)
    begun, ended = min(s.start_time for s in subtasks), max(s.end_time for s in subtasks)
    return {
        "copy_seconds": (ended - begun) / 1000,
        "copied": sum(s.summary["row_count"] for s in subtasks),
        "chunks": sum(s.summary["chunks"] for s in subtasks),
        "paused_seconds": sum(s.summary.get("paused_seconds", 0.0) for s in subtasks),
        "pauses": sum(s.summary["chunks"] + s.summary.get("drains", 0) - 1 for s in subtasks),
    }


def _cpu_seconds(command: Sequence[str]) -> float:
    process = os.posix_spawn(command[0], command, os.environ, file_actions=[(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)])
    _, status, usage = os.wait4(process, 0)
    if status != 0:
        raise SystemExit(f"bench/sqlite.py: {command} ended with {status}")
    return usage.ru_utime + usage.ru_stime


# ── the run ───────────────────────────────────────────────────────────────────────────────────────────────────────


def line(result: Result) -> str:
    """Return a figure as one line of the table."""
    sign = ">=" if result.at_least else "<="
    target = "" if result.limit is None else f"{sign} {result.limit:g}"
    return f"{result.name:<62} {result.value:>12,.2f} {result.unit:<7} {target:<11} {result.verdict}".rstrip()


def options_of(arguments: Sequence[str]) -> argparse.Namespace:
    """Read the options; --quick makes everything small, its figures are no proof."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, help="of the whole job (default 1,000,000)")
    parser.add_argument("--pair-rows", type=int, help="of each run of a pair (default 200,000)")
    parser.add_argument("--pairs", type=int, help="how many (default 7)")
    parser.add_argument("--trade-rows", type=int, help="of each lock share (default 200,000)")
    parser.add_argument("--memory-rows", type=int, help="of the larger table (default 3,000,000)")
    parser.add_argument("--only", default=",".join(BENCHES), help=f"some of {','.join(BENCHES)}")
    parser.add_argument("--quick", action="store_true", help="everything small: a check of the benchmark, not of the targets")
    parser.add_argument("--journal-mode", default="wal", choices=("wal", "delete"))
    parser.add_argument("--synchronous", default="NORMAL", choices=("NORMAL", "FULL"), help="of the application's connections")
    parser.add_argument("--folder", type=Path, help="where the databases are made (default: the temporary folder)")
    options = parser.parse_args(arguments)
    small = {"rows": 60_000, "pair_rows": 30_000, "pairs": 1, "trade_rows": 30_000, "memory_rows": 120_000}
    full = {"rows": 1_000_000, "pair_rows": 200_000, "pairs": 7, "trade_rows": 200_000, "memory_rows": 3_000_000}
    for name, value in (small if options.quick else full).items():
        if getattr(options, name) is None:
            setattr(options, name, value)
    return options


def merged(before: dict[str, Any], bench: Bench, machine: dict[str, Any], parts: Sequence[str]) -> dict[str, Any]:
    """Return what was published with the parts of this run in place of the same ones of earlier runs."""
    results = [{**asdict(result), "verdict": result.verdict} for result in bench.results]
    names = {result["name"] for result in results}
    kept = [result for result in before.get("results", ()) if result.get("part") not in parts and result["name"] not in names]
    order = {part: number for number, part in enumerate(("", *BENCHES))}
    return {
        "machine": machine,
        "machines": {**before.get("machines", {}), **dict.fromkeys(parts, machine)},
        "results": sorted([*kept, *results], key=lambda result: order[result.get("part", "")]),
        "details": {**before.get("details", {}), **bench.details},
    }


def main(arguments: Sequence[str]) -> int:
    """Measure, print, write the JSON, and judge."""
    options = options_of(arguments)
    with tempfile.TemporaryDirectory(dir=options.folder, prefix="tideshift-bench-") as folder:
        bench = Bench(options, Path(folder))
        module, _ = sqlite_library()
        machine = {
            "sqlite": module.sqlite_version, "journal_mode": options.journal_mode, "synchronous": options.synchronous,
            "python": platform.python_version(), "cores": os.cpu_count(), "machine": platform.machine(),
            "write_interval_ms": WRITE_INTERVAL_SECONDS * 1000, "rows": options.rows, "quick": options.quick,
        }  # fmt: skip
        print("  ".join(f"{name}={value}" for name, value in machine.items()), flush=True)
        parts = {
            "pairs": bench.pairs, "job": bench.whole_job, "strategies": partial(strategies.measure, bench), "fast": partial(fast.measure, bench),
            "trade": bench.trade, "memory": bench.memory, "help": bench.help,
        }  # fmt: skip
        for name in options.only.split(","):
            described = parts[name].func if isinstance(parts[name], partial) else parts[name]
            print(f"── {name}: {(described.__doc__ or '').strip()}", flush=True)
            bench.part = name
            parts[name]()
    failed = [result.name for result in bench.results if result.verdict == "FAIL"]
    target = RESULTS / ("sqlite-quick.json" if options.quick else "sqlite.json")
    target.parent.mkdir(exist_ok=True)
    before = json.loads(target.read_text()) if target.exists() else {}
    target.write_text(json.dumps(merged(before, bench, machine, options.only.split(",")), indent=1) + "\n")
    print(f"{len(failed)} targets missed{': ' + '; '.join(failed) if failed else ''}. Written: {target}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
