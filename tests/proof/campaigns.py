"""The twin and the oracle as lists of small runs by key, for `make reliability`."""

from __future__ import annotations

import tempfile
import traceback
from collections.abc import Iterator
from pathlib import Path
from random import Random

from tests.proof.beside import beside
from tests.proof.engine import repairs
from tests.proof.oracle import windows_missed
from tests.proof.random_schema import KEY_KINDS, random_scenario
from tests.proof.shapes import SHAPES
from tests.proof.twin import compare
from tests.servers import fast_folder
from tideshift.failpoint.pytest_plugin import Failpoints

__all__ = ["oracle_keys", "run_oracle", "run_twin", "twin_keys"]

TWINS = 5_000
ORACLE_SEEDS = 40


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


def oracle_keys(seed: int, stride: int) -> Iterator[str]:
    """Yield a shape, a journal mode and a number per stream."""
    for n in range(0, ORACLE_SEEDS, stride):
        yield from (f"{shape.name}/{mode}/{seed * ORACLE_SEEDS + n}" for shape in SHAPES for mode in ("wal", "delete"))


def run_oracle(key: str) -> tuple[str, ...]:
    """Run one stream beside one job; return what was wrong."""
    name, mode, number = key.split("/")
    shape = next(shape for shape in SHAPES if shape.name == name)
    failpoints = Failpoints()
    with tempfile.TemporaryDirectory(dir=fast_folder()) as folder:
        try:
            oracle, job = beside(Path(folder), shape, Random(int(number)), failpoints, journal_mode=mode)
            found = repairs(oracle.paths[0])
        finally:
            failpoints.undo()
    wrong = [] if str(job.state) == "synced" else [f"the job ended {job.state}: {job.error}"]
    wrong += [f"no statement changed a row in the window {window!r}" for window in windows_missed(oracle, job, wal=mode == "wal")]
    return (*oracle.faults, *wrong, *([f"verification repaired {found} rows"] if found else []))
