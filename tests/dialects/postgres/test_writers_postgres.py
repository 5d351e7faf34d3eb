"""Writers in processes of their own beside changes: each statement gives what it gives without a job, and every row is what they wrote."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from tests.dialects.postgres.beside_writers import KINDS, carry_out_beside_writers

MAJORS = (15,)
ROWS = int(os.environ.get("TIDESHIFT_PROOF_ROWS", "1500"))
IN_SUITE = list(KINDS) if os.environ.get("TIDESHIFT_PROOF_ALL") else ["unique index", "type with a long log"]


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("kind", IN_SUITE)
def test_no_kind_of_change_is_felt_by_a_writer(kind: str, postgres_server: Any, tmp_path: Path, seed: int) -> None:
    """But for time; the campaign `postgres-writers` does the same for every kind, and for a hundred thousand rows."""
    names = [postgres_server.create_database() for _ in range(2)]
    try:
        report = carry_out_beside_writers([postgres_server.url(name) for name in names], tmp_path, KINDS[kind], seed=seed % 1_000_003, rows_wanted=ROWS, table_rows=500)
    finally:
        for name in names:
            postgres_server.drop_database(name)

    assert report.wrong == []
    assert report.rows >= ROWS
