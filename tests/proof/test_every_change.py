"""Random databases and every kind of change on them, in every way it can be carried out: equal to the same change made by others.

`TIDESHIFT_PROOF_EXAMPLES` sets the number of examples per kind of change; anything but the default is random anew each time.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, Phase, given, note, settings
from hypothesis import strategies as st

from tests.proof.engine import library
from tests.proof.random_schema import KEY_KINDS, random_scenario
from tests.proof.requests import KINDS, random_request
from tests.proof.twin_of_any import compare_any
from tests.servers import fast_folder

EXAMPLES = int(os.environ.get("TIDESHIFT_PROOF_EXAMPLES", "12" if library().__name__.startswith("sqlite3") else "16"))
SHRINK = [Phase.shrink] if os.environ.get("TIDESHIFT_PROOF_SHRINK") else []
BY_NAME = os.environ.get("TIDESHIFT_PROOF_EXAMPLES") is None


@pytest.mark.stdlib_sqlite
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.timeout(3600 if not BY_NAME else 600)
def test_every_kind_of_change_equals_its_twin(kind: str) -> None:
    """Catalogue, rows, numbers, counters and references are equal; what the twin refuses is refused and leaves all as it was."""
    ended: Counter[str] = Counter()

    @settings(
        max_examples=EXAMPLES, derandomize=BY_NAME, deadline=None, database=None, print_blob=True,
        phases=[Phase.explicit, Phase.reuse, Phase.generate, *SHRINK],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )  # fmt: skip
    @given(seed=st.integers(0, 2**64 - 1), key_kind=st.sampled_from(KEY_KINDS))
    def examples(seed: int, key_kind: str) -> None:
        random = Random(seed)
        scenario = random_scenario(random, key_kind)
        with tempfile.TemporaryDirectory(dir=fast_folder()) as folder:
            path = Path(folder)
            ended[compare_any(path, scenario, random_request(random, scenario, kind), note)] += 1

    examples()
    assert ended["changed"] >= EXAMPLES / 4, ended
