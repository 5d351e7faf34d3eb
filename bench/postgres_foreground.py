"""What 500 updates a second feel of a job, of one at full speed and of an adaptive one, and of pg_repack: a part of postgres.py."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

PER_SECOND = 500
IDLE_SECONDS = 30
STATEMENT = "ALTER TABLE public.bench ALTER COLUMN amount TYPE bigint"
Bench = Any
"""What postgres.py makes."""


def measure_foreground(bench: Bench, *, step_seconds: Callable[[Bench], dict[int, float]], repack: Callable[[Bench], float | None]) -> None:
    """What 500 updates a second feel of it."""
    bench.settle()
    with foreground(bench) as idle:
        threading.Event().wait(IDLE_SECONDS)
    bench.show("update with nothing beside it, p99", quantile(idle, 0.99), "ms")
    bench.settle()
    with foreground(bench) as beside:
        run = job_beside(bench)
    bench.show("the job meanwhile", run, "s")
    bench.show("update beside the job, p50", quantile(beside, 0.5), "ms")
    bench.show("update beside the job, p99", quantile(beside, 0.99), "ms")
    bench.show("update beside the job, longest (the cut-over's lock among it)", max(beside), "ms", 100)
    measure_adaptive(bench, quantile(idle, 0.99), bench.rows / step_seconds(bench)[1], step_seconds=step_seconds)
    with foreground(bench) as beside_other:
        other = repack(bench)
    if other is not None:
        bench.show("update beside pg_repack, p99", quantile(beside_other, 0.99), "ms")
        bench.show("update beside pg_repack, longest", max(beside_other), "ms")
        bench.show("p99 beside the job, beside that beside pg_repack", quantile(beside, 0.99) / quantile(beside_other, 0.99), "x", 1.0)


def measure_adaptive(bench: Bench, idle_p99: float, full_rate: float, *, step_seconds: Callable[[Bench], dict[int, float]]) -> None:
    """The same beside a job that keeps the foreground's latency by itself, and what is left of its speed."""
    bench.settle()
    with foreground(bench) as beside:
        run = job_beside(bench, "--adaptive")
    rate = bench.rows / step_seconds(bench)[1]
    bench.show("the adaptive job meanwhile", run, "s")
    bench.show("update beside the adaptive job, p50", quantile(beside, 0.5), "ms")
    bench.show("update beside the adaptive job, p99", quantile(beside, 0.99), "ms")
    bench.show("p99 beside the adaptive job, beside that with nothing", quantile(beside, 0.99) / idle_p99, "x", 1.5)
    bench.show("rows copied by it", rate, "rows/s")
    bench.show("of the rate without --adaptive", 100 * rate / full_rate, "%")


def job_beside(bench: Bench, *options: str) -> float:
    """Run a job in a process of its own, as an operator would; return its seconds."""
    command = [str(Path(sys.executable).with_name("tideshift")), "--url", bench.url]
    subprocess.run([*command, "init"], check=True, capture_output=True)
    begun = time.monotonic()
    ended = subprocess.run([*command, "alter", "--yes", "--strategy", "shadow_table", "--threads", "2", *options, STATEMENT], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return time.monotonic() - begun


@contextmanager
def foreground(bench: Bench) -> Iterator[list[float]]:
    """Update rows beside what is done meanwhile; gives the latencies in milliseconds afterwards."""
    latencies: list[float] = []
    with tempfile.TemporaryDirectory() as folder:
        stop = Path(folder) / "stop"
        command = [sys.executable, str(Path(__file__).with_name("postgres_writer.py")), bench.url, "bench", str(bench.rows), str(PER_SECOND), str(stop)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
            assert writer.stdout is not None
            writer.stdout.readline()
            try:
                yield latencies
            finally:
                stop.touch()
                told = json.loads(writer.stdout.readline())
        assert told["failures"] == 0, told["failures"]
        latencies += told["latencies"]


def quantile(latencies: list[float], share: float) -> float:
    """Return the latency below which a share of all lies."""
    return sorted(latencies)[min(len(latencies) - 1, int(len(latencies) * share))]
