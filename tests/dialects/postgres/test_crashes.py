"""A process that dies anywhere costs nothing: the next one goes on, and everything is as without the death."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

from tests.dialects.postgres.crashes import SCENARIOS, golden, portrait, strike, twin
from tests.dialects.postgres.stepping import as_if_large

MAJORS = (15,)
PLACES = int(os.environ.get("TIDESHIFT_CRASH_PLACES", "2"))
FIRST = int(os.environ.get("TIDESHIFT_PROOF_FIRST", "0"))


@contextmanager
def fresh(server: Any) -> Iterator[str]:
    """An empty database."""
    name = server.create_database()
    try:
        yield server.url(name)
    finally:
        server.drop_database(name)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_death_anywhere_costs_nothing(name: str, postgres_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows, catalogue, counters, triggers and the job's end equal those of a run that nothing disturbed, and of the server's own change."""
    scenario = SCENARIOS[name]
    with as_if_large(monkeypatch):
        with fresh(postgres_server) as url:
            places = golden(url, scenario)
            expected = portrait(url, with_state=True)
            assert str(expected[0][0][0]) == str(scenario.ends)
        with fresh(postgres_server) as url:
            assert expected[1:] == twin(url, scenario)
        struck = 0
        for place in Random(f"{name} {FIRST}").sample(places, min(PLACES, len(places))):
            with fresh(postgres_server) as url:
                try:
                    struck += strike(url, scenario, place)
                    assert portrait(url, with_state=True) == expected
                except (AssertionError, Exception) as error:
                    error.add_note(f"{name}: struck at {place}")
                    raise
        assert struck >= min(PLACES, len(places)) * 0.8
