"""What a failpoint costs when it is off: machine instructions and nanoseconds per pass of `if P.on: P.fire()`.

Instructions are counted by callgrind, so that the figure does not depend on the load of the machine. The guarded loop and an
empty loop each run with two lengths; the differences take off everything but the passes, and then the loop itself.
Exits with 1 if a pass takes more instructions than the limit, and with 2 if it cannot be counted.
"""

from __future__ import annotations

import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

INSTRUCTIONS_PER_PASS_MAX = 150
PASSES_SHORT = 20_000
PASSES_LONG = 120_000
PASSES_TIMED = 1_000_000
TIMED_RUNS = 9
CHILD_SECONDS_MAX = 300

GUARDED = "if P.on: P.fire()"
EMPTY = "pass"

CHILD = """
import sys, time
sys.path.insert(0, {source!r})
from tideshift import failpoint
P = failpoint.point("bench.probe", "One pass of the measured loop.")

def loop(passes):
    for _ in range(passes):
        {body}

best = None
for _ in range({runs}):
    start = time.perf_counter_ns()
    loop({passes})
    spent = time.perf_counter_ns() - start
    best = spent if best is None else min(best, spent)
print(best)
"""


def main() -> int:
    """Measure, print a table and one line of JSON, and judge the count."""
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        print(
            "bench/failpoint.py: valgrind is not on PATH; install the package 'valgrind'"
            " (Debian, Ubuntu: apt-get install valgrind; Fedora: dnf install valgrind; Alpine: apk add valgrind)",
            file=sys.stderr,
        )
        return 2
    instructions = instructions_per_pass(valgrind, GUARDED) - instructions_per_pass(valgrind, EMPTY)
    nanoseconds = nanoseconds_per_pass(GUARDED) - nanoseconds_per_pass(EMPTY)
    within = instructions <= INSTRUCTIONS_PER_PASS_MAX
    report(
        {
            "bench": "failpoint",
            "site": GUARDED,
            "python": platform.python_version(),
            "machine": platform.machine(),
            "valgrind": valgrind_version(valgrind),
            "instructions_per_pass": round(instructions, 1),
            "instructions_per_pass_max": INSTRUCTIONS_PER_PASS_MAX,
            "nanoseconds_per_pass": round(nanoseconds, 2),
            "within_limit": within,
        }
    )
    return 0 if within else 1


def instructions_per_pass(valgrind: str, body: str) -> float:
    """How many instructions one more pass of a loop takes."""
    short = instructions_of(valgrind, body, PASSES_SHORT)
    long = instructions_of(valgrind, body, PASSES_LONG)
    return (long - short) / (PASSES_LONG - PASSES_SHORT)


def instructions_of(valgrind: str, body: str, passes: int) -> int:
    """How many instructions a whole process takes that runs a loop once."""
    with tempfile.TemporaryDirectory() as folder:
        tool = [valgrind, "--tool=callgrind", f"--callgrind-out-file={Path(folder) / 'callgrind.out'}"]
        run = run_child(body, passes=passes, runs=1, before=tool)
    collected = re.search(r"Collected\s*:\s*([0-9]+)", run.stderr)
    if collected is None:
        raise SystemExit(f"bench/failpoint.py: callgrind told no count; it said:\n{run.stderr}")
    return int(collected[1])


def nanoseconds_per_pass(body: str) -> float:
    """How long one pass takes in the best of several runs, the loop included."""
    return int(run_child(body, passes=PASSES_TIMED, runs=TIMED_RUNS, before=[]).stdout) / PASSES_TIMED


def run_child(body: str, *, passes: int, runs: int, before: list[str]) -> subprocess.CompletedProcess[str]:
    """Run the loop in a process of its own, so that its count does not depend on this one."""
    source = str(Path(__file__).resolve().parent.parent / "src")
    script = CHILD.format(source=source, body=body, passes=passes, runs=runs)
    # A fixed hash seed keeps the start-up of all runs alike, which is what makes their difference exact.
    environment = {**os.environ, "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}
    run = subprocess.run(
        [*before, sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=environment,
        timeout=CHILD_SECONDS_MAX,
        check=False,
    )
    if run.returncode != 0:
        raise SystemExit(f"bench/failpoint.py: the measured process ended with {run.returncode}:\n{run.stderr}")
    return run


def valgrind_version(valgrind: str) -> str:
    """What valgrind calls itself."""
    run = subprocess.run([valgrind, "--version"], capture_output=True, text=True, timeout=30, check=True)
    return run.stdout.strip().removeprefix("valgrind-")


def report(result: dict[str, object]) -> None:
    """Print a table for people and the same as JSON on the last line."""
    width = max(len(key) for key in result)
    for key, value in result.items():
        print(f"{key:<{width}}  {value}")
    print(json.dumps(result))


if __name__ == "__main__":
    sys.exit(main())
