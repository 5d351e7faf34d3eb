"""Which pass of a point a term takes: counts, skip, every, percentages and chains."""

from __future__ import annotations

import pytest

from tideshift import failpoint
from tideshift.failpoint import NOT_FIRED, Registry
from tideshift.failpoint.activation import SEED_VARIABLE

FIRST = failpoint.point("probe.modifiers.first", "The first of two places.", returns=str | int)
SECOND = failpoint.point("probe.modifiers.second", "The second of two places.", returns=str | int)


def passes(point, count):
    """What a site sees in so many passes; a dot where nothing fired."""
    return ["." if (value := point.fire()) is NOT_FIRED else value for _ in range(count)]


@pytest.mark.parametrize(
    ("terms", "seen"),
    [
        ("return(1)", [1, 1, 1, 1, 1, 1, 1]),
        ("2*return(1)", [1, 1, ".", ".", ".", ".", "."]),
        ('2*return("a")->1*return("b")', ["a", "a", "b", ".", ".", ".", "."]),
        ('1*return("a")->return("b")', ["a", "b", "b", "b", "b", "b", "b"]),
        ("2*off->return(1)", [".", ".", 1, 1, 1, 1, 1]),
        ("2*off->1*return(1)", [".", ".", 1, ".", ".", ".", "."]),
        ("skip(2)return(1)", [".", ".", 1, 1, 1, 1, 1]),
        ("skip(2) 1*return(1)", [".", ".", 1, ".", ".", ".", "."]),
        ("every(3)return(1)", [".", ".", 1, ".", ".", 1, "."]),
        ("skip(1)every(2)return(1)", [".", ".", 1, ".", 1, ".", 1]),
        ("every(2)2*return(1)", [".", 1, ".", 1, ".", ".", "."]),
        ("every(2)return(1)->return(2)", [2, 1, 2, 1, 2, 1, 2]),
        ("100%return(1)", [1, 1, 1, 1, 1, 1, 1]),
        ("0%return(1)", [".", ".", ".", ".", ".", ".", "."]),
        ("0%1*return(1)->return(2)", [2, 2, 2, 2, 2, 2, 2]),
    ],
)
def test_terms_take_exactly_these_passes(terms, seen):
    """The passes that a term takes follow from its modifiers alone."""
    with failpoint.enable(FIRST, terms) as enabled:
        assert passes(FIRST, 7) == seen

    assert enabled.hits == 7


def test_a_later_term_counts_only_passes_that_reach_it():
    """A pass that an earlier term takes is no pass of the next term."""
    with failpoint.enable(FIRST, "2*return(1)->skip(1)return(2)"):
        assert passes(FIRST, 5) == [1, 1, ".", 2, 2]


@pytest.mark.parametrize("terms", ["50%2*return(1)", "2*50%return(1)"])
def test_the_percentage_is_tested_before_the_count(terms):
    """A count limits firings, not tries: with either order both firings are used up by the lucky passes."""
    with failpoint.enable(FIRST, terms, seed=1):
        assert passes(FIRST, 200).count(1) == 2


def test_a_seed_replays_the_same_passes():
    """Two runs with one seed fire at the same passes, about as often as the percentage says."""
    with failpoint.enable(FIRST, "30%return(1)", seed=7):
        first_run = passes(FIRST, 1_000)
    with failpoint.enable(FIRST, "30%return(1)", seed=7):
        second_run = passes(FIRST, 1_000)

    assert first_run == second_run
    assert 240 <= first_run.count(1) <= 360


def test_one_seed_does_not_tie_two_points_together():
    """Points that share a seed still fire at different passes."""
    with failpoint.enable(FIRST, "50%return(1)", seed=7), failpoint.enable(SECOND, "50%return(1)", seed=7):
        assert passes(FIRST, 64) != passes(SECOND, 64)


def test_the_effective_seed_is_told_and_replays(monkeypatch):
    """Without a seed one is drawn and told, and enabling with it gives the same passes."""
    monkeypatch.delenv(SEED_VARIABLE, raising=False)
    with failpoint.enable(FIRST, "50%return(1)") as drawn:
        unplanned = passes(FIRST, 64)

    with failpoint.enable(FIRST, "50%return(1)", seed=drawn.status.seed):
        assert passes(FIRST, 64) == unplanned


def test_two_enablings_draw_different_seeds(monkeypatch):
    """A run without a seed is not the same each time."""
    monkeypatch.delenv(SEED_VARIABLE, raising=False)

    seeds = {Registry().prepare(FIRST, "50%off").status.seed for _ in range(8)}

    assert len(seeds) == 8


def test_the_environment_may_give_the_seed(monkeypatch):
    """The variable seeds every point that has no seed of its own."""
    monkeypatch.setenv(SEED_VARIABLE, "4711")

    with failpoint.enable(FIRST, "50%return(1)") as by_variable, failpoint.enable(SECOND, "50%off", seed=5) as by_hand:
        seen = passes(FIRST, 64)

    assert (by_variable.status.seed, by_hand.status.seed) == ("4711", 5)
    with failpoint.enable(FIRST, "50%return(1)", seed="4711"):
        assert passes(FIRST, 64) == seen


def test_terms_without_chance_have_no_seed():
    """A seed is only told where it has an effect."""
    with failpoint.enable(FIRST, "2*off", seed=3) as enabled:
        assert enabled.status.seed is None
