"""Real processes: frozen at the worst places, and killed at random moments while writers keep their own log."""

from __future__ import annotations

import pytest

from tests.crash.frozen import FREEZES, IS_OWNER, frozen_run
from tests.crash.killed import killed_run
from tests.crash.strikes import scratch

KILLS = 4
KILLING_SECONDS_MAX = 120
pytestmark = pytest.mark.timeout(300)  # real processes on a machine that may be busy


@pytest.mark.parametrize("place", FREEZES)
def test_frozen_worker_writes_nothing_late(place, seed):
    """A frozen worker whose work another one took over commits nothing more of it; one that holds the lock is waited for and named."""
    with scratch() as folder:
        frozen_run(folder, place, 1 if place == IS_OWNER else 2 + seed % 5)


def test_killed_at_random_moments(seed):
    """However often the worker is killed, the writers never notice, and the table is what their logs say."""
    with scratch() as folder:
        report = killed_run(folder, seed, kills_wanted=KILLS, seconds_max=KILLING_SECONDS_MAX)

    assert report.kills == KILLS
    assert report.jobs >= 1
    assert report.statements > 0
