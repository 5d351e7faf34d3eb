"""pytest plugin: the `failpoints` fixture, the `failpoint` marker, and proof that nothing stays enabled.

    def test_a_cancel_wins(failpoints):
        pause = failpoints.enable("ddl.job.before_move", "1*pause")
        ...
        pause.wait_hit()

At teardown everything that the fixture enabled is undone and every paused thread woken. A test that passed although a point
that it enabled was never hit fails there, since it tested less than it says; `may_miss=True` allows it.
`--failpoint-trace FILE` appends the names of the points that were hit, one a line, so that the union over all sessions can be
compared with the catalogue.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tideshift.failpoint.registry import (
    WAIT_HIT_SECONDS,
    Enabled,
    Point,
    Recorder,
    add_recorder,
    disable,
    enable,
    enabled_anywhere,
    remove_recorder,
    wait_hit,
)

_CALL_PASSED = pytest.StashKey[bool]()
_FIXTURE = pytest.StashKey["Failpoints"]()
_LEFT_ENABLED = pytest.StashKey[list[str]]()
_RECORDER = pytest.StashKey[Recorder]()
_NAMES_HIT = pytest.StashKey[set[str]]()
_WORKER_KEY = "failpoints_left_enabled"
_OPTION = "failpoint_trace"


class Failpoints:
    """What the fixture hands to a test: enabling that ends with the test."""

    def __init__(self) -> None:
        self._enabled: list[tuple[Enabled, bool]] = []

    def enable(
        self,
        point_or_name: Point | str,
        terms: str | None = None,
        *,
        call: Callable[..., object] | None = None,
        where: Mapping[str, object] | None = None,
        seed: int | str | None = None,
        may_miss: bool = False,
    ) -> Enabled:
        """Enable a point until the end of the test; the test must hit it, unless it may miss."""
        enabled = enable(point_or_name, terms, call=call, where=where, seed=seed)
        self._enabled.append((enabled, may_miss))
        return enabled

    def disable(self, point_or_name: Point | str) -> bool:
        """End the enabling of a point before the test ends; whether it was hit is still checked."""
        return disable(point_or_name)

    def wait_hit(self, point_or_name: Point | str, count: int = 1, timeout_seconds: float = WAIT_HIT_SECONDS) -> None:
        """Return once a point was passed `count` times since it was enabled, or raise HitTimeout."""
        wait_hit(point_or_name, count, timeout_seconds)

    def undo(self) -> list[str]:
        """End what is still enabled, latest first, and name what had to be hit but never was."""
        for enabled, _ in reversed(self._enabled):
            enabled.disable()
        return [_described(enabled) for enabled, may_miss in self._enabled if not (may_miss or enabled.hits)]

    def seeds(self) -> list[str]:
        """A line for each enabled point whose terms are random, with the seed that replays it."""
        states = [enabled.status for enabled, _ in self._enabled]
        return [f"{state.name}={state.terms} seed={state.seed!r}" for state in states if state.seed is not None]


@pytest.fixture
def failpoints(request: pytest.FixtureRequest) -> Iterator[Failpoints]:
    """Enable failpoints for one test."""
    points = Failpoints()
    request.node.stash[_FIXTURE] = points
    try:
        for mark in reversed(list(request.node.iter_markers("failpoint"))):
            points.enable(*mark.args, **mark.kwargs)
        yield points
    finally:
        missed = points.undo()
    if missed and request.node.stash.get(_CALL_PASSED, False):
        pytest.fail(f"enabled but never hit: {', '.join(missed)}; the test proves nothing about it", pytrace=False)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add --failpoint-trace."""
    parser.getgroup("failpoints").addoption(
        "--failpoint-trace",
        dest=_OPTION,
        metavar="FILE",
        default=None,
        help="append the names of the failpoints that were hit to FILE, one a line",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker and start to record hits when asked."""
    config.addinivalue_line("markers", "failpoint(name, terms, **options): enable a failpoint during the test")
    if config.getoption(_OPTION):
        # Made absolute here, because the workers of pytest-xdist get the options of this process but not its folder.
        config.option.failpoint_trace = str(config.invocation_params.dir / config.getoption(_OPTION))
        names: set[str] = set()
        config.stash[_NAMES_HIT] = names
        config.stash[_RECORDER] = lambda name, _context: names.add(name)
        add_recorder(config.stash[_RECORDER], every_point_on=False)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Append the names of the points that were hit."""
    if _RECORDER in config.stash:
        remove_recorder(config.stash[_RECORDER])
        append_names(Path(config.getoption(_OPTION)), config.stash[_NAMES_HIT])


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let a marked test have the fixture without naming it."""
    names = getattr(item, "fixturenames", None)
    if names is not None and "failpoints" not in names and item.get_closest_marker("failpoint") is not None:
        names.append("failpoints")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    """Keep how the test itself went, and show with a failure the seeds that replay it."""
    report = yield
    if report.when == "call":
        item.stash[_CALL_PASSED] = report.passed
    if report.failed and _FIXTURE in item.stash and (seeds := item.stash[_FIXTURE].seeds()):
        report.sections.append(("Failpoint seeds", "\n".join(seeds)))
    return report


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Fail a session that leaves a point enabled, and wake what waits in it."""
    left = [*session.config.stash.get(_LEFT_ENABLED, []), *_end_everything()]
    session.config.stash[_LEFT_ENABLED] = left
    worker_output = getattr(session.config, "workeroutput", None)
    if worker_output is not None:
        worker_output[_WORKER_KEY] = left
    elif left and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take over what a worker of pytest-xdist found enabled at its end."""
    left = getattr(node, "workeroutput", {}).get(_WORKER_KEY, [])
    node.config.stash.setdefault(_LEFT_ENABLED, []).extend(left)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Name what stayed enabled."""
    for described in config.stash.get(_LEFT_ENABLED, []):
        terminalreporter.write_line(f"ERROR failpoint left enabled at the end of the session: {described}", red=True)


def append_names(path: Path, names: set[str]) -> None:
    """Append names in one write to the end of the file, so that several processes never mix their lines."""
    if not names:
        return
    lines = "".join(f"{name}\n" for name in sorted(names)).encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        written = os.write(descriptor, lines)
    finally:
        os.close(descriptor)
    if written != len(lines):
        raise OSError(f"{path}: only {written} of {len(lines)} bytes could be appended")


def names_hit(path: Path) -> frozenset[str]:
    """The union of all names in a trace file."""
    return frozenset(path.read_text(encoding="utf-8").split())


def _end_everything() -> list[str]:
    left = enabled_anywhere()
    for enabled in left:
        enabled.disable()
    return [_described(enabled) for enabled in left]


def _described(enabled: Enabled) -> str:
    return f"{enabled.point.name}={enabled.activation.chain.text}"
