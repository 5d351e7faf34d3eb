"""Tests of which the suite runs a part, run in full: pytest with TIDESHIFT_PROOF_ALL, a process for each test, as the runs of a campaign."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["PLACES", "WRITERS", "failures", "node_keys"]

ROOT = Path(__file__).parents[2]
FOLDER = "tests/proof/"
WRITERS = ("test_writers.py",)
PLACES = ("test_commands_at_every_stage.py", "test_changes_by_others.py")
SECONDS_MAX = 900
_PASSED = re.compile(r"\b1 passed\b")


def node_keys(modules: tuple[str, ...], seed: int, stride: int) -> Iterator[str]:
    """Yield a seed and a test for each test that the modules have with the switch on."""
    asked = [f"{FOLDER}{module}" for module in modules]
    listed = _pytest("--collect-only", *asked, seed=seed).stdout.splitlines()
    nodes = [line.removeprefix(FOLDER) for line in listed if "::" in line]
    assert nodes, listed
    yield from (f"{seed} {node}" for node in nodes[::stride])


def failures(key: str) -> tuple[str, ...]:
    """Run one test; return the end of what it printed when it failed."""
    seed, _, node = key.partition(" ")
    ended = _pytest(f"{FOLDER}{node}", seed=int(seed))
    return () if ended.returncode == 0 and _PASSED.search(ended.stdout) else (ended.stdout[-3000:], ended.stderr[-500:])


def _pytest(*arguments: str, seed: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", *arguments]
    environment = {**os.environ, "TIDESHIFT_PROOF_ALL": "1", "TIDESHIFT_TEST_SEED": str(seed)}
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=SECONDS_MAX, check=False)
