"""How fast a rewrite of a large PostgreSQL table is beside what others do for it, and what a writer feels.

    python bench/postgres.py [--rows N] [--pairs N] [--only NAME,…] [--tuned] [--folder FOLDER]

Starts a private PostgreSQL 15 from the binaries on the machine, with the distribution's default settings (or --tuned ones, which are printed), and prints a table
with PASS or FAIL for each target; the figures go into bench/results/postgres.json. README.md in this folder says what is measured and how. pg_repack is measured
where it is installed (postgresql-15-repack).
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import psycopg

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(Path(__file__).resolve().parent)]

from postgres_foreground import STATEMENT, measure_foreground

from tests.servers import PostgresServer
from tideshift.connect import connect
from tideshift.ddl.machine import JOB

RESULTS = Path(__file__).resolve().parent / "results" / "postgres.json"
PARTS = ("copy", "job", "foreground", "in-place")
DEFAULT = ("shared_buffers = 128MB", "autovacuum_naptime = 1min")
TUNED = (
    "shared_buffers = 4GB", "maintenance_work_mem = 1GB", "max_wal_size = 16GB", "checkpoint_timeout = 30min", "wal_buffers = 64MB", "autovacuum_naptime = 1min",
    "max_parallel_maintenance_workers = 2",
)  # fmt: skip
CHUNK_ROWS = 10_000
FILL_RANGES = 16
SCHEMA = """
CREATE TABLE bench (id bigint PRIMARY KEY, customer int NOT NULL, status text NOT NULL, amount int NOT NULL, at timestamptz NOT NULL, body text NOT NULL);
INSERT INTO bench SELECT i, (i::bigint * 7919) % 100000, (ARRAY['new', 'paid', 'sent'])[1 + i % 3], i % 10000, timestamptz '2024-01-01' + i * interval '1 second', md5(i::text) || md5((i + 1)::text)
  FROM generate_series(1, {rows}) i;
CREATE INDEX bench_customer ON bench (customer);
CREATE INDEX bench_status_at ON bench (status, at);
CREATE INDEX bench_body ON bench (body);
"""
LOG = """
CREATE TABLE bench_log (k bigint, reset boolean);
CREATE FUNCTION bench_capture() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$ BEGIN
  IF TG_OP = 'INSERT' THEN INSERT INTO public.bench_log (k) VALUES (NEW.id); ELSE INSERT INTO public.bench_log (k) VALUES (OLD.id); END IF; RETURN NULL; END $$;
CREATE TRIGGER bench_capture AFTER INSERT OR UPDATE OR DELETE ON bench FOR EACH ROW EXECUTE FUNCTION bench_capture();
CREATE TABLE bench_heap (id bigint, customer int NOT NULL, status text NOT NULL, amount bigint NOT NULL, at timestamptz NOT NULL, body text NOT NULL);
"""

FILLED = """
ALTER TABLE bench ADD COLUMN filled bigint;
CREATE FUNCTION bench_fill() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.filled := NEW.amount; RETURN NEW; END $$;
CREATE TRIGGER "~bench_fill" BEFORE INSERT OR UPDATE ON bench FOR EACH ROW EXECUTE FUNCTION bench_fill();
ALTER TABLE bench ENABLE ALWAYS TRIGGER "~bench_fill";
"""


@dataclass(frozen=True)
class Figure:
    """One figure, and the target that it is held against (None: shown only)."""

    name: str
    value: float
    unit: str
    limit: float | None = None
    at_least: bool = False

    @property
    def verdict(self) -> str:
        """Say whether the target is met."""
        if self.limit is None:
            return ""
        return "PASS" if (self.value >= self.limit if self.at_least else self.value <= self.limit) else "FAIL"


@dataclass(frozen=True)
class JobRun:
    """One whole job: seconds from submission to its end, and of its parts."""

    seconds: float
    copy: float
    verify: float


class Bench:
    """One server and one table of a size."""

    def __init__(self, server: PostgresServer, rows: int) -> None:
        self.server = server
        self.rows = rows
        self.name = server.create_database()
        self.figures: list[Figure] = []
        self.run(SCHEMA.format(rows=rows))
        self.run("VACUUM ANALYZE bench")

    @property
    def url(self) -> str:
        """The database, as libpq takes it."""
        return self.server.url(self.name).replace("+psycopg", "")

    def run(self, text: str) -> None:
        """Execute what has no answer."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            connection.execute(text.encode())

    def settle(self) -> None:
        """Begin each measurement with nothing left to write, and no job's table left over."""
        with psycopg.connect(self.url, autocommit=True) as connection:
            left = connection.execute(b"SELECT relname FROM pg_class WHERE relname LIKE 'tideshift%shadow' AND relkind = 'r'").fetchall()
            for (table,) in left:
                connection.execute(f'DROP TABLE "{table}"'.encode())
            connection.execute(b"DROP SCHEMA IF EXISTS tideshift CASCADE")
            connection.execute(b"ALTER TABLE bench ALTER COLUMN amount TYPE int")
            connection.execute(b"VACUUM ANALYZE bench")
            connection.execute(b"CHECKPOINT")

    def show(self, name: str, value: float, unit: str, limit: float | None = None, *, at_least: bool = False) -> None:
        """Keep a figure and print it."""
        figure = Figure(name, round(value, 3), unit, limit, at_least)
        self.figures.append(figure)
        print(f"  {name:<66} {value:>12,.3f} {unit:<8} {'' if limit is None else f'target {limit}':<14} {figure.verdict}", flush=True)


def job(bench: Bench, *, threads: int, statement: str = STATEMENT) -> JobRun:
    """Carry the change out with an owner and a node in this process."""
    bench.settle()
    pause = threading.Event()
    with connect(bench.url) as connected:
        connected.bootstrap()
        begun = time.monotonic()
        parameters = {"threads": threads, "batch_size": 100_000}
        job_id = connected.ddl.submit(statement, strategy="shadow_table", parameters=parameters).id
        with connected.service(slots=threads):
            while (state := connected.ddl.job(job_id).state) not in JOB.final:
                pause.wait(0.01)
            seconds = time.monotonic() - begun
        assert str(state) == "synced", connected.ddl.show(job_id)
    times = step_seconds(bench)
    return JobRun(seconds, times[1], times[3])


def step_seconds(bench: Bench) -> dict[int, float]:
    """Return how long each step of the last reorganization took, as its records tell: 1 is the copy, 3 the comparison."""
    times = {}
    with psycopg.connect(bench.url) as connection:
        for table in ("dxf_background_subtask", "dxf_background_subtask_history"):
            tasks = "SELECT id FROM tideshift.dxf_global_task_history WHERE type = 'ddl.reorg'"
            sql = f"SELECT s.step, min(s.start_time), max(s.end_time) FROM tideshift.{table} s WHERE s.task_id IN ({tasks}) GROUP BY s.step"
            times |= {step: (end - start) / 1000 for step, start, end in connection.execute(sql.encode()) if start and end}
    return times


def bare_loop(bench: Bench, *, threads: int) -> float:
    """Copy into a bare heap by chunks of fixed size, each committed, with the same capture trigger in force; return the seconds."""
    bench.settle()
    bench.run(LOG)
    part = bench.rows // threads

    def work(number: int) -> None:
        with psycopg.connect(bench.url, autocommit=True) as connection:
            end = bench.rows if number == threads - 1 else (number + 1) * part
            for low in range(number * part, end, CHUNK_ROWS):
                connection.execute(f"INSERT INTO bench_heap SELECT * FROM bench WHERE id > {low} AND id <= {min(low + CHUNK_ROWS, end)}".encode())

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    begun = time.monotonic()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    seconds = time.monotonic() - begun
    bench.run("DROP TRIGGER bench_capture ON bench; DROP FUNCTION bench_capture; DROP TABLE bench_log, bench_heap")
    return seconds


def fill(bench: Bench, *, threads: int) -> tuple[float, float]:
    """Change the column in place; return the seconds in which it was filled, and those of its vacuums, which count for each thread its part."""
    bench.settle()
    pause = threading.Event()
    with connect(bench.url) as connected:
        connected.bootstrap()
        parameters = {"threads": threads, "batch_size": 100_000}
        job_id = connected.ddl.submit(STATEMENT, strategy="in_place", allow_column_order_change=True, parameters=parameters).id
        with connected.service(slots=threads):
            while (state := connected.ddl.job(job_id).state) not in JOB.final:
                pause.wait(0.01)
        assert str(state) == "synced", connected.ddl.show(job_id)
    spent, tidied = [], 0.0
    with psycopg.connect(bench.url) as connection:
        for table in ("dxf_background_subtask", "dxf_background_subtask_history"):
            tasks = "SELECT id FROM tideshift.dxf_global_task_history WHERE type = 'ddl.fill'"
            for start, end, summary in connection.execute(f"SELECT start_time, end_time, summary FROM tideshift.{table} WHERE task_id IN ({tasks})".encode()):
                spent += [start, end]
                tidied += (json.loads(summary) if isinstance(summary, str) else summary)["tidy_ms"] / 1000
    return (max(spent) - min(spent)) / 1000 - tidied / threads, tidied / threads


def bare_fill(bench: Bench, *, threads: int) -> tuple[float, float]:
    """Fill a column by chunks of fixed size, each committed, with the same trigger in force; return the seconds, and those of a vacuum after each range."""
    bench.settle()
    bench.run(FILLED)
    part = bench.rows // FILL_RANGES
    tidied = [0.0] * threads

    def work(number: int) -> None:
        with psycopg.connect(bench.url, autocommit=True) as connection:
            for place in range(number, FILL_RANGES, threads):
                end = bench.rows if place == FILL_RANGES - 1 else (place + 1) * part
                for low in range(place * part, end, CHUNK_ROWS):
                    connection.execute(f"UPDATE bench SET filled = amount WHERE id > {low} AND id <= {min(low + CHUNK_ROWS, end)} AND filled IS DISTINCT FROM amount".encode())
                begun = time.monotonic()
                connection.execute(b"VACUUM (SKIP_LOCKED, TRUNCATE false) bench")
                tidied[number] += time.monotonic() - begun

    workers = [threading.Thread(target=work, args=(number,)) for number in range(threads)]
    begun = time.monotonic()
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    seconds = time.monotonic() - begun
    bench.run('DROP TRIGGER "~bench_fill" ON bench; DROP FUNCTION bench_fill; ALTER TABLE bench DROP COLUMN filled')
    return seconds - sum(tidied) / threads, sum(tidied) / threads


def native(bench: Bench) -> float:
    """Let the server rewrite the table under its lock; return the seconds."""
    bench.settle()
    begun = time.monotonic()
    bench.run(STATEMENT)
    return time.monotonic() - begun


def repack(bench: Bench) -> float | None:
    """Rebuild the table with pg_repack, two workers for its indexes; None where it is not installed."""
    program = shutil.which("pg_repack", path=f"{bench.server.bin_folder}:/usr/bin")
    if program is None:
        return None
    bench.settle()
    bench.run("CREATE EXTENSION IF NOT EXISTS pg_repack")
    command = [program, "--no-order", "-j", "2", "-t", "bench", "-d", bench.name, "-h", str(bench.server.folder / "socket"), "-U", "tideshift"]
    begun = time.monotonic()
    subprocess.run(command, check=True, capture_output=True)
    return time.monotonic() - begun


# ── the parts ─────────────────────────────────────────────────────────────────────────────────────────────────────


def measure_copy(bench: Bench, pairs: int) -> None:
    """The copy beside a bare loop, turn by turn."""
    for threads in (1, 2):
        ratios = []
        for _ in range(pairs):
            loop, run = bare_loop(bench, threads=threads), job(bench, threads=threads)
            ratios.append(loop / run.copy)
            bench.show(f"bare loop, {threads} threads", bench.rows / loop, "rows/s")
            bench.show(f"copy, {threads} threads", bench.rows / run.copy, "rows/s")
        bench.show(f"copy beside the bare loop, {threads} threads (median of {pairs})", statistics.median(ratios), "x", 0.9, at_least=True)


def measure_job(bench: Bench, pairs: int) -> None:
    """The whole job beside the server's own rewrite and pg_repack, turn by turn."""
    bench.show("the server's own ALTER, under its lock", native(bench), "s")
    ratios = []
    for _ in range(pairs):
        other, run = repack(bench), job(bench, threads=2)
        bench.show("job, 2 threads", run.seconds, "s")
        bench.show("of that, comparing every row", run.verify, "s")
        if other is not None:
            bench.show("pg_repack -j 2", other, "s")
            ratios.append((run.seconds - run.verify) / other)
    if ratios:
        bench.show(f"job without comparing, beside pg_repack (median of {pairs})", statistics.median(ratios), "x", 1.15 if bench.rows < 5_000_000 else 1.0)


def measure_in_place(bench: Bench, pairs: int) -> None:
    """A column filled in place beside a bare loop, turn by turn, the vacuums apart."""
    for threads in (1, 2):
        ratios = []
        for _ in range(pairs):
            (loop, loop_tidied), (ours, tidied) = bare_fill(bench, threads=threads), fill(bench, threads=threads)
            ratios.append(loop / ours)
            bench.show(f"bare UPDATE loop, {threads} threads", bench.rows / loop, "rows/s")
            bench.show("of it vacuums, apart", loop_tidied, "s")
            bench.show(f"column filled in place, {threads} threads", bench.rows / ours, "rows/s")
            bench.show("of it vacuums, apart", tidied, "s")
        bench.show(f"filled in place beside the bare loop, {threads} threads (median of {pairs})", statistics.median(ratios), "x", 0.9, at_least=True)


def main() -> int:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--pairs", type=int, default=3)
    parser.add_argument("--only", default=",".join(PARTS))
    parser.add_argument("--tuned", action="store_true")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    options = parser.parse_args()
    settings = TUNED if options.tuned else DEFAULT
    print(f"PostgreSQL 15, fsync on, {', '.join(settings)}; {options.rows:,} rows", flush=True)
    server = PostgresServer(fsync=True, settings=settings, inside=options.folder)
    try:
        server.start()
        bench = Bench(server, options.rows)
        for part in options.only.split(","):
            print(part, flush=True)
            {
                "copy": lambda: measure_copy(bench, options.pairs), "job": lambda: measure_job(bench, options.pairs), "foreground": lambda: measure_foreground(bench, step_seconds=step_seconds, repack=repack),
                "in-place": lambda: measure_in_place(bench, options.pairs),
            }[part]()  # fmt: skip
    finally:
        server.remove()
    keep(bench, options, settings)
    return int(any(figure.verdict == "FAIL" for figure in bench.figures))


def keep(bench: Bench, options: Any, settings: tuple[str, ...]) -> None:
    """Put the figures beside those of earlier runs of other sizes and settings."""
    known = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    key = f"{options.rows} rows, {'tuned' if options.tuned else 'default settings'}, {options.only}"
    known[key] = {"settings": list(settings), "figures": [{**asdict(figure), "verdict": figure.verdict} for figure in bench.figures]}
    RESULTS.write_text(json.dumps(known, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    sys.exit(main())
