"""A job by a shadow table beside an application: no statement fails or changes its outcome, and no row is lost or comes back."""

from __future__ import annotations

import os
from collections import Counter
from random import Random
from typing import Any

import pytest

from tests.dialects.postgres.oracle import CHANGES, IN_PLACE, KEY_KINDS, compare

MAJORS = (15,)
EXAMPLES = int(os.environ.get("TIDESHIFT_PROOF_EXAMPLES", "1"))
FIRST = int(os.environ.get("TIDESHIFT_PROOF_FIRST", "0"))


def run(server: Any, change: str, kind: str, number: int) -> str:
    """Make one numbered example in two databases of its own."""
    names = [server.create_database() for _ in range(2)]
    try:
        return str(compare([server.url(name) for name in names], change, KEY_KINDS[kind], Random(f"{change} {kind} {number}")))
    except Exception as error:
        error.add_note(f"alone: TIDESHIFT_PROOF_FIRST={number} TIDESHIFT_PROOF_EXAMPLES=1, {change}, {kind}")
        raise
    finally:
        for name in names:
            server.drop_database(name)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", KEY_KINDS)
def test_every_kind_of_key(postgres_server: Any, kind: str) -> None:
    """Rows are found, cut and ordered by the server alone, whatever the key's type and its texts."""
    for number in range(FIRST, FIRST + EXAMPLES):
        run(postgres_server, "type", kind, number)


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("change", [*CHANGES, *IN_PLACE])
def test_every_kind_of_change(postgres_server: Any, change: str) -> None:
    """What the new shape refuses ends the job and nothing else; where it never can, the job ends well."""
    ends = Counter(run(postgres_server, change, "int", number) for number in range(FIRST, FIRST + 2 * EXAMPLES))
    if change in ("type", "using", "another key", "order", "dropped", "in place", "in place, using", "in place, key"):
        assert set(ends) == {"synced"}
