"""Killing a run at one pass of one failpoint, and everything that is needed to say so and to do it again.

A golden run is traced; each (point, n-th pass) of it is a place to strike. A forked child runs the same scenario with that
point armed, dies there without a last word, and the parent goes on with the file as the next process would.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import tempfile
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from tests.crash.kinds import EVERY
from tests.crash.outcome import Ending, UserDatabase, offline_twin, read_ending
from tests.crash.stepper import Life, Scenario, Told
from tests.servers import fast_folder
from tideshift import failpoint

EXIT_CODE = 137
BROKEN_CODE = 70
PULSE = "store.before_begin"
"""Where the application writes between the engine's transactions."""
ACTIONS = {"exit": f"1*exit({EXIT_CODE})", "kill": "1*kill"}


@dataclass(frozen=True)
class Strike:
    """One pass of one point, and what happens there."""

    point: str
    ordinal: int
    action: str = "exit"

    @property
    def terms(self) -> str:
        """The term that strikes exactly there."""
        return f"skip({self.ordinal - 1}) {ACTIONS.get(self.action, self.action)}"

    def __str__(self) -> str:
        return f"{self.point}:{self.ordinal}:{self.action}"

    @classmethod
    def parse(cls, text: str) -> Strike:
        """Read the printed form."""
        point, ordinal, action = text.split(":", 2)
        return cls(point, int(ordinal), action)


@dataclass(frozen=True)
class Verdict:
    """What became of one run with strikes: how many struck, and what differs from the twin."""

    scenario: Scenario
    strikes: tuple[Strike, ...]
    struck: int
    differences: tuple[str, ...]

    def __str__(self) -> str:
        """One line that replays it, then what is wrong."""
        replay = f"python -m tests.reliability replay {self.scenario.name} {self.scenario.seed} {shlex.join(map(str, self.strikes))}"
        return "\n    ".join([f"FAILED, replay with: {replay}", *self.differences[:12]])


@contextmanager
def scratch() -> Iterator[Path]:
    """Give a folder in memory that is removed at the end."""
    folder = Path(tempfile.mkdtemp(prefix="tideshift-crash-", dir=fast_folder()))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def armed(strikes: Sequence[Strike], pulse: Callable[..., None]) -> Iterator[dict[str, failpoint.Enabled]]:
    """Enable the strikes, and the writer's pulse, which shares a point with some of them; give what is enabled by its point."""
    by_point = {PULSE: ["call"]}
    for strike in strikes:
        by_point.setdefault(strike.point, []).insert(0, strike.terms)
    with ExitStack() as stack:
        yield {
            point: stack.enter_context(failpoint.enable(point, "->".join(terms), call=pulse if point == PULSE else None))
            for point, terms in by_point.items()
        }


def live(path: Path, scenario: Scenario, told: Told, strikes: Sequence[Strike] = (), *, fd: int | None = None) -> None:
    """Live one life with strikes armed, telling acknowledgements through a pipe where there is one; `told` counts what struck."""

    def acknowledge(what: str) -> None:
        if fd is not None:
            os.write(fd, f"{what}\n".encode())

    with closing(Life(path, scenario, told=told, acknowledge=acknowledge)) as life, armed(strikes, life.writer.pulse) as enabled:
        try:
            life.run()
        finally:
            told.struck = sum(enabled[one.point].hits >= one.ordinal for one in strikes)


def golden(scenario: Scenario) -> tuple[Ending, list[failpoint.TracedHit]]:
    """Run undisturbed; return how it ends and every pass of every point, in order."""
    with scratch() as folder:
        path = folder / "shop.db"
        scenario.application.create(path, scenario.seed)
        told = Told()
        with failpoint.trace() as hits:
            live(path, scenario, told)
        ending = read_ending(path, told.acknowledged)
        problems = (*ending.problems, *told.escaped, *told.logged)
        assert not problems, f"{scenario.name}: the undisturbed run has problems: {problems}"
        assert ending.job["state"] == scenario.ends, f"{scenario.name} ended as {ending.job}"
        return ending, hits


@cache
def undisturbed(name: str) -> tuple[Ending, tuple[failpoint.TracedHit, ...]]:
    """Run a scenario once per process without any fault."""
    ending, hits = golden(EVERY[name])
    return ending, tuple(hits)


@cache
def undone(scenario: Scenario) -> UserDatabase:
    """Return how a job that was rolled back leaves the database: as the same writes do where nobody asked for anything."""
    with scratch() as folder:
        return offline_twin(replace(scenario, ends="rollback done"), folder)


def strike(scenario: Scenario, twin: Ending, strikes: Sequence[Strike]) -> Verdict:
    """Run with one death per strike, in this order, then to the end; compare with the twin."""
    with scratch() as folder:
        path = folder / "shop.db"
        scenario.application.create(path, scenario.seed)
        acknowledged: list[str] = []
        struck = 0
        for one in strikes:
            status, lines, complaint = in_child(lambda fd, one=one: live(path, scenario, Told(), (one,), fd=fd))
            acknowledged += lines
            if complaint:
                return Verdict(scenario, tuple(strikes), struck, (f"the child that was to die failed: {complaint}",))
            struck += status in (EXIT_CODE, -signal.SIGKILL)
        told = Told()
        try:
            live(path, scenario, told)
        except AssertionError as error:
            return Verdict(scenario, tuple(strikes), struck, (f"recovery: {error}", *told.logged, *told.escaped))
        ending = read_ending(path, acknowledged + told.acknowledged)
        return Verdict(scenario, tuple(strikes), struck, (*ending.differences(twin), *told.logged, *told.escaped))


def in_child(work: Callable[[int], None]) -> tuple[int, list[str], str]:
    """Fork, work, and end without cleaning up; return the exit status (minus the signal), what it told, and its complaint."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # the child uses no lock of another thread
        pid = os.fork()
    if pid == 0:
        code = 0
        try:
            os.close(reading)
            work(writing)
        except BaseException:  # noqa: BLE001 - told to the parent; a forked child must not return into its tests
            os.write(writing, b"!" + json.dumps(traceback.format_exc()[-3500:]).encode() + b"\n")
            code = BROKEN_CODE
        finally:
            os._exit(code)
    os.close(writing)
    with os.fdopen(reading, "rb") as stream:
        lines = stream.read().decode().splitlines()
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    complaint = "".join(json.loads(line[1:]) for line in lines if line.startswith("!"))
    return status, [line for line in lines if not line.startswith("!")], complaint


def distinct(hits: Sequence[failpoint.TracedHit]) -> list[tuple[str, int]]:
    """Return the first pass of each point between each two write commits.

    A killed process leaves what was committed last. Between the same two commits of the engine, passes of one point differ by
    the application's writes alone, which never wait for the engine; so the first of them stands for all.
    """
    seen: set[tuple[int, str]] = set()
    kept: list[tuple[str, int]] = []
    commits = 0
    for hit, place in zip(hits, failpoint.ordinals(hits), strict=True):
        if hit.name == "store.after_commit" and hit.context["write"]:
            commits += 1
        if (commits, hit.name) not in seen:
            seen.add((commits, hit.name))
            kept.append(place)
    return kept
