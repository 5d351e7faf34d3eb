"""Random databases, a random type change, and the same change by a reload that shares no code with ours: all must be equal.

Fewer on the standard library's SQLite, on which the suite runs for the second time.
`TIDESHIFT_PROOF_EXAMPLES` sets the number of examples per kind of key; anything but the default is random anew each time.
A failing example takes minutes to shrink: set TIDESHIFT_PROOF_SHRINK=1 for that.
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
from tests.proof.twin import compare
from tests.servers import fast_folder

EXAMPLES = int(os.environ.get("TIDESHIFT_PROOF_EXAMPLES", "8" if library().__name__.startswith("sqlite3") else "22"))
SHRINK = [Phase.shrink] if os.environ.get("TIDESHIFT_PROOF_SHRINK") else []
BY_NAME = os.environ.get("TIDESHIFT_PROOF_EXAMPLES") is None


@pytest.mark.stdlib_sqlite
@pytest.mark.parametrize("key_kind", KEY_KINDS)
@pytest.mark.timeout(3600 if not BY_NAME else 600)
def test_a_change_equals_the_same_change_made_by_a_reload(key_kind: str) -> None:
    """Catalogue, rows, rowids, counters and references are equal; what the reload refuses is refused and leaves all as it was."""
    outcomes: Counter[str] = Counter()

    @settings(
        max_examples=EXAMPLES, derandomize=BY_NAME, deadline=None, database=None, print_blob=True,
        phases=[Phase.explicit, Phase.reuse, Phase.generate, *SHRINK],
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.large_base_example],
    )  # fmt: skip
    @given(random=st.randoms(use_true_random=False))
    def change_one(random: Random) -> None:
        scenario = random_scenario(random, key_kind)
        with tempfile.TemporaryDirectory(dir=fast_folder()) as folder:
            outcomes[compare(Path(folder), scenario, note)] += 1

    change_one()

    assert outcomes["changed"] >= outcomes.total() / 3, f"too few of the changes were carried out to prove anything: {outcomes}"
