"""Killed at a failpoint and started again, a job ends as if nothing had happened."""

from __future__ import annotations

from functools import cache
from random import Random

import pytest

from tests.crash.outcome import Ending, offline_twin
from tests.crash.scenarios import SCENARIOS
from tests.crash.strikes import Strike, distinct, golden, scratch, strike
from tideshift import failpoint

SAMPLE = 12
"""Random places per scenario, besides one place for each point."""
RUNS_PER_TEST = 8
PARTS = {"strict": 8, "plain": 4}
"""How many tests share a scenario's places; the others have three."""
FIRST_OF_ALL = "strict"
"""The scenario in which every point that it passes is struck; in the others those that it alone passes."""


@cache
def undisturbed(name: str) -> tuple[Ending, tuple[failpoint.TracedHit, ...]]:
    """Run a scenario once per process without any fault."""
    ending, hits = golden(SCENARIOS[name])
    return ending, tuple(hits)


def one_place_per_point(name: str, random: Random) -> list[Strike]:
    """Choose a pass of each point that no earlier scenario passes, in the order of the run."""
    earlier: set[str] = set()
    for other in (FIRST_OF_ALL, *SCENARIOS):
        if other == name:
            break
        earlier |= {hit.name for hit in undisturbed(other)[1]}
    by_point: dict[str, list[int]] = {}
    for point, ordinal in distinct(undisturbed(name)[1]):
        by_point.setdefault(point, []).append(ordinal)
    return [Strike(point, random.choice(ordinals)) for point, ordinals in by_point.items() if point not in earlier]


@pytest.mark.parametrize("name", SCENARIOS)
def test_undisturbed_run_equals_the_offline_twin(name, tmp_path):
    """A run that nobody disturbs ends as the same change and writes on a database that never saw us."""
    ending, _ = undisturbed(name)

    twin = offline_twin(SCENARIOS[name], tmp_path)

    assert ending.user.differences(twin) == []


@pytest.mark.parametrize(("name", "part"), [(name, part) for name in SCENARIOS for part in range(PARTS.get(name, 3))])
def test_killed_once(name, part, seed):
    """Killed at any place the next process brings the job to the end of its twin: no row, command or object is lost or left."""
    twin, hits = undisturbed(name)
    random = Random(f"{seed}/{name}")
    strikes = one_place_per_point(name, random)
    strikes += [Strike(*place, random.choice(["exit", "kill"])) for place in random.sample(distinct(hits), SAMPLE)]
    mine = strikes[part :: PARTS.get(name, 3)]

    verdicts = [strike(SCENARIOS[name], twin, [one]) for one in mine]

    assert len(mine) <= RUNS_PER_TEST, f"{name} has {len(strikes)} places: raise its PARTS"
    assert not [str(verdict) for verdict in verdicts if verdict.differences]
    assert all(verdict.struck == 1 for verdict in verdicts), "a place of the undisturbed run was not reached"


@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_while_recovering(name, seed):
    """A second death while the first is being recovered from changes nothing either."""
    twin, hits = undisturbed(name)
    random = Random(f"{seed}/{name}/twice")
    places = distinct(hits)
    pairs = [(random.choice(places), random.choice(places)) for _ in range(2)]
    runs = [[Strike(*first), Strike(second[0], 1 + second[1] // 2)] for first, second in pairs]

    verdicts = [strike(SCENARIOS[name], twin, strikes) for strikes in runs]

    assert not [str(verdict) for verdict in verdicts if verdict.differences]
    assert any(verdict.struck == 2 for verdict in verdicts), "no run died twice"


def test_driver_goes_red_when_a_row_is_lost():
    """The comparison sees a single row that a run has lost, and a value that kept its old type."""
    scenario = SCENARIOS["plain"]
    twin, _ = undisturbed("plain")
    with scratch() as folder:
        damaged = offline_twin(scenario, folder)
    orders = damaged.rows["orders"]
    kept = [orders[0], *orders[2:]]
    as_text = [(*row[:6], str(row[6]), "text", *row[8:]) for row in orders]

    lost = type(damaged)(**{**vars(damaged), "rows": {**damaged.rows, "orders": kept}}).differences(twin.user)
    untyped = type(damaged)(**{**vars(damaged), "rows": {**damaged.rows, "orders": as_text}}).differences(twin.user)

    assert len(lost) == 1
    assert untyped
