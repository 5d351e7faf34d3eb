"""The n-th statement, begin or commit fails: the job succeeds as its twin, or is undone with the reason on its row."""

from __future__ import annotations

import shlex
from random import Random

import pytest

from tests.crash.faults import FAULTS, MARK, Fault, any_fault, fail, known_fault, passes, sampled
from tests.crash.scenarios import PLAIN, SCENARIOS
from tests.crash.strikes import Strike, Verdict, distinct, undisturbed, undone
from tideshift import failpoint

AT_LENGTH = ("plain", "cancelled")
FAILURES = 3
"""Places per kind of failure and scenario; `python -m tests.reliability faults` takes every one."""


@pytest.mark.parametrize("fault", FAULTS.values(), ids=lambda fault: fault.name)
@pytest.mark.parametrize("name", AT_LENGTH)
def test_nth_fails(name, fault, seed):
    """Wherever one statement or commit fails, nothing is half done, lost or left behind."""
    twin, hits = undisturbed(name)
    count = passes(failpoint.ordinals(hits), fault)
    ordinals = sampled(count - seed % 7, FAILURES)

    verdicts = [fail(SCENARIOS[name], twin, undone(SCENARIOS[name]), fault, ordinal) for ordinal in ordinals]

    assert len(verdicts) >= FAILURES
    assert not [str(verdict) for verdict in verdicts if verdict.differences]
    assert [verdict.struck for verdict in verdicts] == [1] * len(verdicts)


@pytest.mark.parametrize("name", [name for name in SCENARIOS if name not in AT_LENGTH])
def test_each_scenario_meets_a_failure(name, seed):
    """The same in every other scenario, for a kind of failure and a place that the seed chooses."""
    twin, hits = undisturbed(name)

    verdict = fail(SCENARIOS[name], twin, undone(SCENARIOS[name]), *any_fault(hits, Random(f"{seed}/{name}")))

    assert not verdict.differences, str(verdict)
    assert verdict.struck == 1


@pytest.mark.parametrize("fault", FAULTS.values(), ids=lambda fault: fault.name)
def test_printed_line_replays_the_same_fault(fault):
    """What a failure prints can be pasted into a shell, and is judged there as it was here."""
    printed = str(Verdict(PLAIN, (fault.at(3),), 1, ("something differs",))).splitlines()[0]

    *_, scenario, _, strike = shlex.split(printed)

    assert (scenario, known_fault(Strike.parse(strike))) == (PLAIN.name, fault)


def test_no_fault_fires_behind_the_last_statement():
    """The loop over n ends: behind the last statement of a run nothing is left to fail."""
    twin, hits = undisturbed("plain")
    fault = FAULTS["busy"]
    count = passes(failpoint.ordinals(hits), fault)

    verdict = fail(PLAIN, twin, undone(PLAIN), fault, count + 1)

    assert verdict.differences == ()
    assert verdict.struck == 0


@pytest.mark.parametrize("part", range(2))
def test_exception_at_each_point(part, seed):
    """An exception at any point, as a bug of ours would raise, leaves nothing half done."""
    twin, hits = undisturbed("plain")
    by_point: dict[str, list[int]] = {}
    for point, ordinal in distinct(hits):
        by_point.setdefault(point, []).append(ordinal)
    places = [(point, ordinals[seed % len(ordinals)]) for point, ordinals in by_point.items()][part::2]

    verdicts = [
        fail(PLAIN, twin, undone(PLAIN), Fault(point, point, f'1*raise(RuntimeError,"{MARK}")', may_fail=True), ordinal)
        for point, ordinal in places
    ]

    assert not [str(verdict) for verdict in verdicts if verdict.differences]
    assert [verdict.struck for verdict in verdicts] == [1] * len(places)
