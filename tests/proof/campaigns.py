"""The twins and the oracle as lists of small runs by key, for `make reliability`."""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from random import Random

from tests.proof.beside import beside
from tests.proof.engine import repairs
from tests.proof.examples import example
from tests.proof.oracle import windows_missed
from tests.proof.other_changes import OTHER_CHANGES
from tests.proof.random_schema import KEY_KINDS, random_scenario
from tests.proof.requests import KINDS
from tests.proof.shapes import SHAPES
from tests.proof.twin import compare
from tests.proof.twin_of_any import compare_kind
from tests.servers import fast_folder
from tideshift.failpoint.pytest_plugin import Failpoints

__all__ = ["change_keys", "oracle_keys", "run_change", "run_oracle", "run_twin", "twin_keys"]

TWINS = 5_000
CHANGES_PER_KIND = 200
ORACLE_SEEDS = 40
ORACLE_SEEDS_OF_OTHERS = 20
"""For each kind of change besides that of a type."""


def twin_keys(seed: int, stride: int) -> Iterator[str]:
    """Yield a kind of key and a number per random database."""
    yield from (f"{KEY_KINDS[index % len(KEY_KINDS)]}/{seed * TWINS + n}" for index, n in enumerate(range(0, TWINS, stride)))


def run_twin(key: str) -> tuple[str, ...]:
    """Compare one change with the reload; return what was wrong."""
    kind, _, number = key.partition("/")
    told: list[str] = []
    with tempfile.TemporaryDirectory(dir=fast_folder()) as folder:
        try:
            compare(Path(folder), random_scenario(Random(int(number)), kind), told.append)
        except Exception:  # noqa: BLE001 - whatever it raises is the answer
            return (*told, traceback.format_exc()[-1500:])
    return ()


def change_keys(seed: int, stride: int) -> Iterator[str]:
    """Yield a kind of change and the number of a random database, which is the example of that number in the suite."""
    yield from (f"{kind}/{seed * CHANGES_PER_KIND + n}" for kind in KINDS for n in range(0, CHANGES_PER_KIND, stride))


def run_change(key: str) -> tuple[bool, tuple[str, ...]]:
    """Compare one change of any kind with its twin; return whether it was carried out, and what was wrong."""
    kind, _, number = key.partition("/")
    told: list[str] = []
    with tempfile.TemporaryDirectory(dir=fast_folder()) as folder:
        try:
            return compare_kind(Path(folder), example(kind, int(number)), kind, told.append) == "changed", ()
        except Exception:  # noqa: BLE001 - whatever it raises is the answer
            return False, (*told, traceback.format_exc()[-1500:])


def oracle_keys(seed: int, stride: int) -> Iterator[str]:
    """Yield a shape, a journal mode and a number per stream."""
    for shapes, seeds in ((SHAPES, ORACLE_SEEDS), (OTHER_CHANGES, ORACLE_SEEDS_OF_OTHERS)):
        for n in range(0, seeds, stride):
            yield from (f"{shape.name}/{mode}/{seed * seeds + n}" for shape in shapes for mode in ("wal", "delete"))


def run_oracle(key: str) -> tuple[bool, tuple[str, ...]]:
    """Run one stream beside one job; return whether a row was changed in each window, and what was wrong."""
    name, mode, number = key.split("/")
    shape = next(shape for shape in (*SHAPES, *OTHER_CHANGES) if shape.name == name)
    failpoints = Failpoints()
    with tempfile.TemporaryDirectory(dir=fast_folder()) as folder:
        try:
            oracle, job = beside(Path(folder), shape, Random(int(number)), failpoints, journal_mode=mode)
            found = repairs(oracle.paths[0])
        finally:
            failpoints.undo()
    wrong = [] if str(job.state) == "synced" else [f"the job ended {job.state}: {job.error}"]
    wrong += [f"verification repaired {found} rows"] if found else []
    return not windows_missed(oracle, job, wal=mode == "wal"), (*oracle.faults, *wrong)
