"""The benchmark of an idle site says what it lacks instead of reporting a count that it did not make."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

BENCH = Path(__file__).parents[2] / "bench" / "failpoint.py"


def test_a_missing_valgrind_is_named(tmp_path):
    """Without valgrind the benchmark fails and names the package to install."""
    run = subprocess.run(
        [sys.executable, str(BENCH)],
        capture_output=True,
        text=True,
        env={"PATH": str(tmp_path)},
        timeout=60,
        check=False,
    )

    assert run.returncode == 2
    assert "install the package 'valgrind'" in run.stderr
    assert run.stdout == ""
