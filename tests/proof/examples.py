"""Numbered random examples: the same number is the same example on every machine, beside whatever other tests run.

`TIDESHIFT_PROOF_EXAMPLES` sets how many a test tries, `TIDESHIFT_PROOF_FIRST` the number of the first.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

from tests.proof.engine import library
from tests.servers import fast_folder

__all__ = ["BY_DEFAULT", "example", "try_examples"]

FIRST = int(os.environ.get("TIDESHIFT_PROOF_FIRST", "0"))
EXAMPLES = os.environ.get("TIDESHIFT_PROOF_EXAMPLES")
MOST = 3
ENOUGH = 3
BY_DEFAULT = EXAMPLES is None
"""Whether the suite's own number of examples is tried, for which its timeouts are made."""

Example = Callable[[Path, Random, Callable[[str], None]], str]


def example(name: str, number: int) -> Random:
    """Return what draws the example of a number."""
    return Random(f"{name} {number}")


def try_examples(name: str, compare: Example, *, examples: int, on_stdlib: int) -> None:
    """Try each example in a folder of its own; a failure carries its story and how to run it alone.

    It goes on until a third of the number was carried out, or three times the number was tried: refusals alone prove little.
    Fewer on the standard library's SQLite, on which the suite runs for the second time.
    """
    outcomes: Counter[str] = Counter()
    number = int(EXAMPLES) if EXAMPLES is not None else on_stdlib if library().__name__.startswith("sqlite3") else examples
    for n in range(FIRST, FIRST + MOST * number):
        if n >= FIRST + number and outcomes["changed"] * ENOUGH >= number:
            break
        told: list[str] = []
        with tempfile.TemporaryDirectory(dir=fast_folder()) as folder:
            try:
                outcomes[compare(Path(folder), example(name, n), told.append)] += 1
            except Exception as error:
                error.add_note("\n".join([*told, f"example {n} of {name}; alone: TIDESHIFT_PROOF_FIRST={n} TIDESHIFT_PROOF_EXAMPLES=1"]))
                raise
    assert FIRST or outcomes["changed"] * ENOUGH >= number, f"too few of {name} were carried out to prove anything: {outcomes}"
