"""Killed at a failpoint and started again, a job ends as if nothing had happened."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from random import Random

import pytest

from tests.crash.outcome import offline_twin
from tests.crash.scenarios import SCENARIOS
from tests.crash.strikes import Strike, distinct, scratch, strike, undisturbed
from tideshift import failpoint

SAMPLE = 8
"""Random places per scenario, besides one place for each point."""
RUNS_PER_TEST = 8
SECOND_DRAWS_MAX = 20
LAYERS = ("ddl.", "dialect.", "dxf.", "store.")
NOT_ON_ANY_WAY = {
    "dxf.before_rescue": "nobody dies in an undisturbed run, so nothing is taken from a dead node; tests/dxf/test_takeover.py does",
    "dxf.before_pulse": "adaptive work is refused on this database; tests/dxf/test_adaptive.py has some",
    "ddl.before_long_statement": "no plan of this database has a long statement; tests/dialects/postgres/test_changes.py runs some",
    "ddl.after_long_statement": "as above",
    "ddl.after_settle": "indexes stand on the empty copy of this database; tests/dialects/postgres/test_crashes.py passes it",
    "ddl.after_build": "as above",
    "ddl.after_fill_chunk": "this database changes no column in place; tests/dialects/postgres/test_in_place.py does",
    "ddl.before_tidy": "as above",
    "ddl.after_tidy": "as above",
    "ddl.after_compare_filled": "as above",
    "dialect.fill": "as above",
    "dialect.filled": "as above",
}
"""The points that no scenario passes, each with the reason."""
PARTS = {"strict": 8, "plain": 4}
"""How many tests share a scenario's places; the others have three."""
FIRST_OF_ALL = "strict"
"""The scenario in which every point that it passes is struck; in the others those that it alone passes."""


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
    assert len(mine) <= RUNS_PER_TEST, f"{name} has {len(strikes)} places: raise its PARTS"

    verdicts = [strike(SCENARIOS[name], twin, [one]) for one in mine]

    assert not [str(verdict) for verdict in verdicts if verdict.differences]
    assert all(verdict.struck == 1 for verdict in verdicts), "a place of the undisturbed run was not reached"


@pytest.mark.parametrize("name", SCENARIOS)
def test_killed_while_recovering(name, seed):
    """A second death while the first is being recovered from changes nothing either."""
    twin, hits = undisturbed(name)
    random = Random(f"{seed}/{name}/twice")
    places = distinct(hits)
    died_twice = 0

    # Behind the last quarter hardly anything is left to be killed in.
    for first in (Strike(*random.choice(places[: len(places) * 3 // 4])) for _ in range(2)):
        for _ in range(SECOND_DRAWS_MAX):
            point, ordinal = random.choice(places)
            verdict = strike(SCENARIOS[name], twin, [first, Strike(point, 1 + ordinal // 2)])
            assert not verdict.differences, str(verdict)
            died_twice += verdict.struck == 2
            if verdict.struck == 2:
                break

    assert died_twice == 2, "a run that died once did not come by any of the places drawn for its second death"


def test_each_failpoint_is_on_some_way_or_known_not_to_be():
    """Of every declared point it is known whether a scenario comes by it, and where none does, why."""
    package = Path(failpoint.__file__).parents[1]
    for path in package.rglob("points.py"):
        import_module(".".join(path.relative_to(package.parent).with_suffix("").parts))
    declared = {declaration.name for declaration in failpoint.catalogue() if declaration.name.startswith(LAYERS)}
    passed = {hit.name for name in SCENARIOS for hit in undisturbed(name)[1]}

    assert passed | set(NOT_ON_ANY_WAY) == declared
    assert not passed & set(NOT_ON_ANY_WAY), "an exception is not needed any more"


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
