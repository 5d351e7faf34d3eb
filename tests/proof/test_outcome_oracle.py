"""The outcome oracle: because of a job, no statement fails, changes its outcome, or leaves other rows.

More seeds: TIDESHIFT_PROOF_SEEDS=100.
"""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from random import Random

import pytest

from tests.proof.beside import beside
from tests.proof.engine import repairs
from tests.proof.oracle import windows_missed
from tests.proof.other_changes import OTHER_CHANGES
from tests.proof.shapes import SHAPES, Shape
from tests.proof.stream import HOT_KEYS_MAX
from tideshift.failpoint.pytest_plugin import Failpoints

SEEDS = int(os.environ.get("TIDESHIFT_PROOF_SEEDS", "1"))
OTHERS = ("add column", "drop not null", "set without rowid", "add integer primary key", "create unique index")
"""The kinds of change besides that of a type that the suite tries; `python -m tests.reliability oracle` tries all."""
TRIED = [*SHAPES, *(shape for shape in OTHER_CHANGES if SEEDS > 1 or shape.name in OTHERS)]
CASES = [(shape, mode) for n, shape in enumerate(TRIED) for m, mode in enumerate(("wal", "delete")) if SEEDS > 1 or n % 2 == m]
"""The suite runs each shape in one journal mode, by turns; more seeds run both."""
HOT_KEYS_MIN = 150


@pytest.mark.stdlib_sqlite
@pytest.mark.parametrize("number", range(SEEDS))
@pytest.mark.parametrize(("shape", "journal_mode"), CASES, ids=str)
def test_every_statement_has_the_outcome_that_it_has_without_a_job(  # noqa: PLR0917 - fixtures and parameters
    tmp_path: Path, random: Random, failpoints: Failpoints, shape: Shape, journal_mode: str, number: int
) -> None:
    """Outcome, changes(), last_insert_rowid() and RETURNING are equal for each statement, the rows at the end; every window was hit."""
    oracle, job = beside(tmp_path, shape, random, failpoints, journal_mode=journal_mode)

    assert not oracle.faults, "\n".join(oracle.faults)
    assert str(job.state) == "synced", job.error
    assert oracle.rebuilt
    assert repairs(oracle.paths[0]) == 0, "verification had something to repair"
    assert windows_missed(oracle, job, wal=journal_mode == "wal") == [], oracle.windows
    assert HOT_KEYS_MIN <= len(oracle.stream.hot) <= HOT_KEYS_MAX
    assert oracle.errors > oracle.statements / 50, Counter(errors=oracle.errors, statements=oracle.statements)


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape.refused], ids=lambda shape: shape.name)
def test_a_value_that_cannot_be_carried_ends_the_job_and_touches_nobody(
    tmp_path: Path, random: Random, failpoints: Failpoints, shape: Shape
) -> None:
    """The writer's statement succeeds as without a job; the job rolls back, names the key, and leaves nothing."""
    oracle, job = beside(tmp_path, shape, random, failpoints, journal_mode="wal", refusing=True)

    assert not oracle.faults, "\n".join(oracle.faults)
    assert str(job.state) == "rollback done"
    assert job.error is not None
    assert job.error["code"] == "value_refused"
    assert "k = " in job.error["message"]
    assert not oracle.rebuilt
    assert oracle.windows["rollingback"]
