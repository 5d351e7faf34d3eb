"""The processes of bench/sqlite.py: parts of workload.py that are started, waited for and ended."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import workload

WRITE_INTERVAL_SECONDS = 0.002
JOB_SECONDS_MAX = 900.0


def start(*arguments: object) -> subprocess.Popen[bytes]:
    """Start a part of workload.py."""
    return subprocess.Popen([sys.executable, str(Path(workload.__file__)), *map(str, arguments)])


def finish(process: subprocess.Popen[bytes], *, ask: bool) -> None:
    """Wait for a process, after asking it to end; a failed one fails the benchmark."""
    if ask:
        process.terminate()
    code = process.wait(JOB_SECONDS_MAX)
    if code != 0:
        raise SystemExit(f"bench/sqlite.py: {process.args!r} ended with {code}")


@contextmanager
def writer(path: Path, synchronous: str) -> Iterator[Path]:
    """Let the writer work on a database; its times are in the file that is given, once the context is left."""
    result = path.with_suffix(".writer")
    process = start("write", path, result, WRITE_INTERVAL_SECONDS, synchronous)
    pacing = threading.Event()
    try:
        while not Path(f"{result}.ready").exists() and process.poll() is None:
            pacing.wait(0.01)
        yield result
        finish(process, ask=True)
    finally:
        process.kill()
        process.wait()
