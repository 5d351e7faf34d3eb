"""Actions that end, stop or interrupt the process, each tried in a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import tideshift

SOURCE = Path(tideshift.__file__).parent.parent
LIMIT_SECONDS = 60
CHILD = """
import atexit, sys
from tideshift import failpoint
P = failpoint.point("probe.dying.place", "A place in a process that is about to end.")
atexit.register(lambda: print("atexit ran", flush=True))
failpoint.enable(P, {terms!r})
print("before", flush=True)
sys.stdout.write("never flushed")
try:
    P.fire()
finally:
    print("after", flush=True)
"""
INTERRUPTED = """
import os, signal, threading
from tideshift import failpoint
P = failpoint.point("probe.dying.place", "A place in a process that is interrupted.")
enabled = failpoint.enable(P, {terms!r})
def interrupt():
    enabled.wait_hit(1, 30)
    os.kill(os.getpid(), signal.SIGINT)
threading.Thread(target=interrupt).start()
try:
    P.fire()
except KeyboardInterrupt:
    print("interrupted", P.hits, flush=True)
"""


def start(script):
    """Start a child that runs the script."""
    return subprocess.Popen(
        [sys.executable, "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(SOURCE)},  # without what would unbuffer its output
    )


def outcome(child):
    """Wait for the child and give its exit status and what it wrote."""
    with child:
        try:
            output, errors = child.communicate(timeout=LIMIT_SECONDS)
        finally:
            child.kill()
    return child.returncode, output, errors


@pytest.mark.parametrize(
    ("terms", "status"),
    [("exit", 1), ("exit(0)", 0), ("exit(137)", 137), ("exit(255)", 255), ("kill", -signal.SIGKILL)],
)
def test_a_process_dies_at_once(terms, status):
    """Exit and kill run no finally, no atexit function and no flush, as a crash would not."""
    returncode, output, errors = outcome(start(CHILD.format(terms=terms)))

    assert returncode == status
    assert output == "before\n"
    assert errors == ""


def test_a_count_decides_when_the_process_dies():
    """A chain lets passes go by before it strikes."""
    returncode, output, _ = outcome(start(CHILD.format(terms="1*off->exit(9)") + "\nP.fire()\nprint('not reached')"))

    assert returncode == 9
    assert output == "before\nnever flushedafter\n"


def test_a_stopped_process_goes_on_when_continued():
    """Stop freezes the whole process until it gets SIGCONT, and then the site goes on as if nothing were."""
    child = start(CHILD.format(terms="1*stop"))
    try:
        _, status = os.waitpid(child.pid, os.WUNTRACED)
        stopped = os.WIFSTOPPED(status) and os.WSTOPSIG(status) == signal.SIGSTOP
        os.kill(child.pid, signal.SIGCONT)
        returncode, output, _ = outcome(child)
    finally:
        child.kill()

    assert stopped
    assert returncode == 0
    assert output == "before\nnever flushedafter\natexit ran\n"


@pytest.mark.parametrize("terms", ["pause", "pause(600000)", 'sleep("10m")'])
def test_a_wait_can_be_interrupted(terms):
    """Ctrl-C ends a pause or a sleep in the main thread."""
    returncode, output, errors = outcome(start(INTERRUPTED.format(terms=terms)))

    assert (returncode, output, errors) == (0, "interrupted 1\n", "")


def test_a_forked_child_can_switch_points():
    """A child forked while another thread switches points does not inherit a lock that nobody will release."""
    script = """
import os, threading
from tideshift import failpoint
P = failpoint.point("probe.dying.place", "A place in a process that forks.")
stop = threading.Event()
def switch():
    while not stop.is_set():
        failpoint.enable(P, "off")
        failpoint.disable(P)
switcher = threading.Thread(target=switch)
switcher.start()
statuses = []
for _ in range(20):
    child = os.fork()
    if child == 0:
        failpoint.enable(P, "exit(9)")
        P.fire()
    statuses.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
stop.set()
switcher.join()
print(statuses == [9] * 20)
"""
    returncode, output, _ = outcome(start(script))

    assert (returncode, output) == (0, "True\n")
