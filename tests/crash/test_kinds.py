"""Every kind of statement: undisturbed it ends as its twin, and killed anywhere, or with anything that fails, it ends as undisturbed."""

from __future__ import annotations

from random import Random

import pytest

from tests.crash.faults import any_fault, fail
from tests.crash.kinds import KINDS
from tests.crash.outcome import offline_twin
from tests.crash.strikes import Strike, distinct, strike, undisturbed, undone

PLACES = 2
"""How many places of each kind are struck; `python -m tests.reliability kinds` strikes 300."""


@pytest.mark.parametrize("name", KINDS)
def test_a_kind_of_statement_is_struck(name, seed, tmp_path):
    """Schema, rows, counters and history are those of a database that never saw us, or that nobody asked for anything."""
    twin, hits = undisturbed(name)
    random = Random(f"{seed}/{name}")
    assert twin.user.differences(offline_twin(KINDS[name], tmp_path)) == []
    places = random.sample(distinct(hits), PLACES)

    verdicts = [strike(KINDS[name], twin, [Strike(*place)]) for place in places]
    verdicts.append(fail(KINDS[name], twin, undone(KINDS[name]), *any_fault(hits, random)))

    assert not [str(verdict) for verdict in verdicts if verdict.differences or not verdict.struck]
