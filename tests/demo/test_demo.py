from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tideshift.frontends.demo import HURRIED, run_demo
from tideshift.frontends.demo import points as demo_points

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

ROWS = 2_000
SECONDS_MAX = 240.0
SPEED_CHANGED = re.compile(rf"Resumed with max_write_speed={ROWS // 40}rows: measured [\d,]+ rows/s")
BOTH_STALLS = re.compile(r"longest stall of a writer\W+[\d,.]+ m?s\W+[\d,.]+ m?s")
ROWS_PER_SECOND = re.compile(r"rows per second, without a limit\W+[1-9]")


@pytest.fixture
def temporary_folder(tmp_path, monkeypatch):
    """The folder in which the demonstration makes its own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


def test_small_run_proves_everything_and_leaves_nothing(temporary_folder):
    """The whole story, kill included, ends with 0 and takes its folder away."""
    shown = io.StringIO()

    code = run_demo(ROWS, stream=shown, seconds_max=SECONDS_MAX, pace=HURRIED)

    assert code == 0, shown.getvalue()
    for part in ("Paused for", "killed (SIGKILL)", "It went on after", "Proven: 0 differences", "none failed"):
        assert part in shown.getvalue()
    for figures in (SPEED_CHANGED, BOTH_STALLS, ROWS_PER_SECOND):
        assert figures.search(shown.getvalue()), f"{figures.pattern} is not in {shown.getvalue()}"
    assert not list(temporary_folder.iterdir())


def test_a_difference_is_a_failure(temporary_folder, failpoints):
    """A writer's log that tells of an order nobody has makes the exit code 1, and the table says where."""
    shown = io.StringIO()
    failpoints.enable(demo_points.BEFORE_PROOF, call=_tamper)

    code = run_demo(ROWS, stream=shown, seconds_max=SECONDS_MAX, pace=HURRIED)

    assert code == 1, shown.getvalue()
    assert "DIFFERS 1 " in shown.getvalue()
    assert not list(temporary_folder.iterdir())


def _tamper(folder: str, **_: object) -> None:
    with (Path(folder) / "shop-writer0.log").open("a") as log:
        log.write('[0, 0, ["place", 99999999, 1, 1, 0, "5", "new", 0, null]]\n')


def test_interrupt_stops_everything(temporary_folder):
    """Ctrl-C while the job runs ends every process, takes the folder away and exits with 130."""
    code = f"import sys; from tideshift.frontends.demo import run_demo; sys.exit(run_demo({ROWS}))"
    environment = {**os.environ, "TMPDIR": str(temporary_folder), "PYTHONUNBUFFERED": "1"}
    demo = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, env=environment)
    with demo:
        shown = []
        for line in demo.stdout:
            shown.append(line)
            if "is recorded" in line:
                demo.send_signal(signal.SIGINT)
                break
        shown += demo.stdout
        ended = demo.wait()

    assert ended == 130, "".join(shown)
    assert not list(temporary_folder.iterdir())
    assert not [pid for pid, arguments in _processes() if str(temporary_folder) in arguments]


def _processes():
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            yield entry.name, (entry / "cmdline").read_bytes().decode(errors="replace")
        except OSError:  # it ended meanwhile
            continue


def test_arguments_that_make_no_sense_are_refused(tmp_path):
    """Too few rows, or a folder that has a shop already, is exit code 2, and nothing is touched."""
    (tmp_path / "shop.db").write_text("mine")

    assert run_demo(10, stream=io.StringIO()) == 2
    assert run_demo(ROWS, folder=tmp_path, stream=io.StringIO()) == 2
    assert (tmp_path / "shop.db").read_text() == "mine"


def test_time_is_bounded(temporary_folder):
    """A run that takes longer than it may ends with 1 and leaves nothing."""
    shown = io.StringIO()

    code = run_demo(ROWS, stream=shown, seconds_max=0.5, pace=HURRIED)

    assert code == 1
    assert "time for the demonstration is over" in shown.getvalue()
    assert not list(temporary_folder.iterdir())
