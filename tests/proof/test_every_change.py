"""Random databases and every kind of change on them, in every way it can be carried out: equal to the same change made by others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.proof.examples import BY_DEFAULT, try_examples
from tests.proof.requests import KINDS
from tests.proof.twin_of_any import compare_kind


@pytest.mark.stdlib_sqlite
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.timeout(600 if BY_DEFAULT else 3600)
def test_every_kind_of_change_equals_its_twin(kind: str) -> None:
    """Catalogue, rows, numbers, counters and references are equal; what the twin refuses is refused and leaves all as it was."""

    def compare(folder: Path, random: Random, tell: Callable[[str], None]) -> str:
        return compare_kind(folder, random, kind, tell)

    try_examples(kind, compare, examples=16, on_stdlib=12)
