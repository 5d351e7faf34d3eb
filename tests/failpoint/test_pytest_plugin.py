"""The pytest plugin, each behaviour in a pytest of its own."""

from __future__ import annotations

import os
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import tideshift
from tideshift.failpoint.pytest_plugin import append_names, names_hit

pytest_plugins = "pytester"

POINTS = """
from tideshift import failpoint
FIRST = failpoint.point("inner.first", "The first place.", returns=int)
SECOND = failpoint.point("inner.second", "The second place.", returns=int)
"""
LIMIT_SECONDS = 60


@pytest.fixture
def inner(pytester, monkeypatch):
    """Give a function that runs a test file in another pytest with the plugin loaded."""
    monkeypatch.setenv("PYTHONPATH", str(Path(tideshift.__file__).parent.parent))
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.delenv("TIDESHIFT_FAILPOINT_SEED", raising=False)
    for variable in [name for name in os.environ if name.startswith("PYTEST_XDIST")]:
        monkeypatch.delenv(variable)
    pytester.makepyfile(points=POINTS)
    installed = entry_points(group="pytest11", name="tideshift_failpoint")
    plugin = () if installed else ("-p", "tideshift.failpoint.pytest_plugin")

    def run(source, *options):
        path = pytester.makepyfile(test_inner="import pytest\nfrom points import FIRST, SECOND, failpoint\n" + source)
        return pytester.runpytest_subprocess(*plugin, "--strict-markers", *options, path, timeout=LIMIT_SECONDS)

    return run


def test_the_fixture_undoes_what_it_enabled(inner):
    """A point that one test enabled is off in the next one."""
    result = inner("""
def test_one(failpoints):
    enabled = failpoints.enable(FIRST, "return(1)")
    assert FIRST.fire() == 1
    assert enabled.hits == 1
    failpoints.enable("inner.first", "return(2)", where={"job": 7})
    assert FIRST.fire(job=7) == 2
    failpoints.wait_hit(FIRST, 1, 0)

def test_two():
    assert not FIRST.on
""")

    result.assert_outcomes(passed=2)
    assert result.ret == 0


def test_a_paused_thread_is_woken_at_teardown(inner):
    """A thread left in a pause goes on when its test is over."""
    result = inner("""
from threading import Thread
threads = []

def test_one(failpoints):
    failpoints.enable(FIRST, "pause")
    threads.append(Thread(target=FIRST.fire))
    threads[0].start()
    failpoints.wait_hit(FIRST)

def test_two():
    threads[0].join(30)
    assert not threads[0].is_alive()
""")

    result.assert_outcomes(passed=2)


def test_a_point_that_was_never_hit_fails_the_test(inner):
    """A test that passes without its fault is reported, with the point and its terms; ending it early does not help."""
    result = inner("""
def test_missing(failpoints):
    failpoints.enable(FIRST, "return(1)")

def test_missing_by_filter(failpoints):
    failpoints.enable(FIRST, "2*off", where={"job": 7})
    FIRST.fire(job=8)

def test_missing_though_disabled(failpoints):
    failpoints.enable(FIRST, "3*off")
    failpoints.disable(FIRST)
""")

    result.assert_outcomes(passed=3, errors=3)
    assert result.ret == 1
    for terms in ("return(1)", "2*off", "3*off"):
        result.stdout.fnmatch_lines([f"*enabled but never hit: inner.first={terms.replace('[', '[[]')};*"])


def test_a_point_may_be_allowed_to_miss(inner):
    """may_miss lets a test enable what need not happen."""
    result = inner("""
def test_one(failpoints):
    failpoints.enable(FIRST, "return(1)", may_miss=True)
""")

    result.assert_outcomes(passed=1)


def test_a_failed_or_skipped_test_is_not_reported_twice(inner):
    """When the test itself did not pass, a missed point adds nothing."""
    result = inner("""
def test_failing(failpoints):
    failpoints.enable(FIRST, "return(1)")
    assert False

def test_skipped(failpoints):
    failpoints.enable(FIRST, "return(1)")
    pytest.skip("no")
""")

    result.assert_outcomes(failed=1, skipped=1)


def test_a_marker_enables_points(inner):
    """Markers enable points without naming the fixture, several at once and with options, for their test only."""
    result = inner("""
@pytest.mark.failpoint("inner.first", "return(1)")
@pytest.mark.failpoint("inner.second", "return(2)", where={"job": 7})
def test_one():
    assert (FIRST.fire(), SECOND.fire(job=7)) == (1, 2)

def test_two():
    assert not FIRST.on and not SECOND.on

@pytest.mark.failpoint("inner.first", "return(3)", may_miss=True)
class TestThree:
    def test_three(self):
        assert FIRST.fire() == 3

    @pytest.mark.failpoint("inner.first", "return(4)")
    def test_nearest_mark_wins(self, failpoints):
        assert FIRST.fire() == 4
""")

    result.assert_outcomes(passed=4)


def test_a_marked_test_must_hit_its_point(inner):
    """A marker is held to the same rule as the fixture."""
    result = inner("""
@pytest.mark.failpoint("inner.first", "return(1)")
def test_one():
    pass
""")

    result.assert_outcomes(passed=1, errors=1)


def test_a_misspelt_marker_is_an_error(inner):
    """A marker with an unknown name does not let the test run without its fault."""
    result = inner("""
@pytest.mark.failpoint("inner.frist", "return(1)")
def test_one():
    pass
""")

    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*no failpoint is named 'inner.frist' (did you mean inner.first*"])


@pytest.mark.parametrize("options", [(), ("-n", "2")], ids=["alone", "with workers"])
def test_a_point_left_enabled_fails_the_session(inner, options):
    """A session in which every test passed still fails when it leaves a point enabled, and says which."""
    result = inner(
        """
from threading import Thread

def test_one():
    enabled = failpoint.enable(FIRST, "pause")
    Thread(target=FIRST.fire).start()  # would keep the process from ending if nobody woke it
    enabled.wait_hit()
""",
        *options,
    )

    result.assert_outcomes(passed=1)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*ERROR failpoint left enabled at the end of the session: inner.first=pause"])


def test_a_failure_shows_the_seeds(inner):
    """A failing test with chance in it tells how to replay it."""
    result = inner("""
def test_one(failpoints):
    failpoints.enable(FIRST, "50%return(1)", seed=4711)
    failpoints.enable(SECOND, "off")
    FIRST.fire(), SECOND.fire()
    assert False
""")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*Failpoint seeds*", "inner.first=50%return(1) seed=4711"])
    result.stdout.no_fnmatch_line("inner.second=*")


def test_the_trace_file_collects_what_was_hit(inner, pytester):
    """Points that were passed while on are appended, session after session; those that were not are missing."""
    source = """
import os
def test_one(failpoints, tmp_path):
    os.chdir(tmp_path)  # the file is named from where pytest was started, wherever a test goes
    failpoints.enable(FIRST, "off")
    FIRST.fire()
    if SECOND.on:
        SECOND.fire()
"""
    inner(source, "--failpoint-trace", "hit.txt").assert_outcomes(passed=1)
    first = names_hit(pytester.path / "hit.txt")
    inner(source.replace("FIRST, ", "SECOND, ").replace("    FIRST.fire()\n", ""), "--failpoint-trace", "hit.txt")
    both = names_hit(pytester.path / "hit.txt")

    assert first == {"inner.first"}
    assert both == {"inner.first", "inner.second"}


def test_workers_share_the_trace_file(inner, pytester):
    """With several worker processes the file holds the union, and a trace counts as reaching a point."""
    result = inner(
        """
def test_one(failpoints):
    failpoints.enable(FIRST, "off")
    FIRST.fire()

def test_two():
    with failpoint.trace():
        SECOND.fire()
""",
        "-n",
        "2",
        "--failpoint-trace",
        "hit.txt",
    )

    result.assert_outcomes(passed=2)
    assert names_hit(pytester.path / "hit.txt") == {"inner.first", "inner.second"}


def test_names_are_appended_in_whole_lines(tmp_path):
    """Appending keeps what is there and writes no file when there is nothing to tell."""
    path = tmp_path / "hit.txt"
    append_names(path, set())
    missing = not path.exists()
    append_names(path, {"b", "a"})
    append_names(path, {"c"})

    assert missing
    assert path.read_text() == "a\nb\nc\n"
