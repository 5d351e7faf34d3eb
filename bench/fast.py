"""The part `fast` of bench/sqlite.py: what a user waits for, `tideshift alter --fast` against a script of the twelve steps, by the clock on the wall.

Each is a whole process, from its start to its end, on a fresh copy of the database and without a writer. `--fast` makes the system tables of
its first job too, and has emptied and dropped the replaced table when it ends.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from typing import Any

import workload
from processes import finish, start

PAIRS = 7
RATIO_MAX = 1.3


def measure(bench: Any) -> None:
    """(h) The command `--fast` against the twelve-step rebuild, each a process of its own: seven pairs, the median of the ratios."""
    theirs, ours = [], []
    for _ in range(1 if bench.options.quick else PAIRS):
        theirs.append(_twelve(bench))
        ours.append(_fast(bench))
    ratios = [mine / other for mine, other in zip(ours, theirs, strict=True)]
    bench.note("twelve-step rebuild, whole process (median)", statistics.median(theirs), "s")
    bench.note("alter --fast, whole process (median)", statistics.median(ours), "s")
    bench.note("alter --fast against the twelve-step rebuild, whole processes (median of the pairs)", statistics.median(ratios), "x", RATIO_MAX)
    bench.details["fast"] = {"twelve": theirs, "fast": ours}


def _twelve(bench: Any) -> float:
    with bench.database(bench.options.rows) as path:
        begun = time.monotonic()
        finish(start("twelve", path, path.with_suffix(".twelve"), bench.options.synchronous), ask=False)
        return time.monotonic() - begun


def _fast(bench: Any) -> float:
    with bench.database(bench.options.rows) as path:
        command = [sys.executable, "-m", "tideshift", "--url", f"sqlite:///{path}", "alter", "--fast", "--yes", workload.CHANGE]
        begun = time.monotonic()
        subprocess.run(command, check=True, capture_output=True)
        return time.monotonic() - begun
