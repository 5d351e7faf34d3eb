from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from tideshift.frontends.demo import HURRIED, run_demo
from tideshift.frontends.demo import points as demo_points
from tideshift.frontends.demo.shop import open_shop

pytestmark = pytest.mark.timeout(300)

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


def test_committed_work_that_is_done_again_is_a_failure(temporary_folder, failpoints):
    """A count of copied rows that falls behind what was committed before the kill makes the exit code 1."""
    shown = io.StringIO()
    failpoints.enable(demo_points.AFTER_KILL, call=_forget_rows)

    code = run_demo(ROWS, stream=shown, seconds_max=SECONDS_MAX, pace=HURRIED)

    assert code == 1, shown.getvalue()
    assert "rows that were committed were done again after the kill" in shown.getvalue()
    assert "It went on after" not in shown.getvalue()


def _forget_rows(folder: str, **_: object) -> None:
    forget = "UPDATE tideshift_dxf_background_subtask SET summary = json_set(summary, '$.row_count', 0) WHERE state = 'running'"
    with closing(open_shop(Path(folder) / "shop.db")) as connection:
        connection.execute(forget)


def _tamper(folder: str, **_: object) -> None:
    with (Path(folder) / "shop-writer0.log").open("a") as log:
        log.write('[0, 0, ["place", 99999999, 1, 1, 0, "5", "new", 0, null]]\n')


def test_interrupt_stops_everything(temporary_folder):
    """Ctrl-C while the job runs ends every process, takes the folder away and exits with 130."""
    command = [sys.executable, "-m", "tideshift.frontends.cli", "demo", "--rows", str(ROWS)]
    environment = {**os.environ, "TMPDIR": str(temporary_folder), "PYTHONUNBUFFERED": "1"}
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
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
    assert f"{ROWS:,} orders" in "".join(shown)
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
