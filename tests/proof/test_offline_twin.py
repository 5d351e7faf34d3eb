"""Random databases, a random type change, and the same change by a reload that shares no code with ours: all must be equal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.proof.examples import BY_DEFAULT, try_examples
from tests.proof.random_schema import KEY_KINDS, random_scenario
from tests.proof.twin import compare


@pytest.mark.stdlib_sqlite
@pytest.mark.parametrize("key_kind", KEY_KINDS)
@pytest.mark.timeout(600 if BY_DEFAULT else 3600)
def test_a_change_equals_the_same_change_made_by_a_reload(key_kind: str) -> None:
    """Catalogue, rows, rowids, counters and references are equal; what the reload refuses is refused and leaves all as it was."""

    def example(folder: Path, random: Random, tell: Callable[[str], None]) -> str:
        return compare(folder, random_scenario(random, key_kind), tell)

    try_examples(key_kind, example, examples=15, on_stdlib=6)
