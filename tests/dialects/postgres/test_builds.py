"""How many helpers of the server's a build of an index may have."""

import os

import pytest

from tests.databases import opened
from tideshift.dialects.postgres.builds import limit_helpers


@pytest.mark.parametrize(
    ("processors", "allowed", "side_by_side", "gently", "helpers"),
    [(8, 6, 1, False, 6), (8, 6, 2, False, 3), (8, 2, 2, False, 2), (2, 2, 2, False, 0), (2, 2, 1, False, 1), (1, 2, 4, False, 0), (64, 8, 1, True, 0)],
)
def test_builds_side_by_side_have_no_more_helpers_than_there_are_processors(postgres_url, monkeypatch, processors, allowed, side_by_side, gently, helpers):
    """Of a server on this machine the processors are known; the server's own setting is never exceeded, and holds again afterwards."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(processors)))
    with opened(postgres_url) as database, database.session() as session:
        with session.transaction() as tx:
            tx.run_verbatim(f"SET max_parallel_maintenance_workers = {allowed}")
        with session.transaction() as tx:
            limit_helpers(tx, side_by_side=side_by_side, gently=gently)
            during = tx.run_verbatim("SHOW max_parallel_maintenance_workers").scalar()
        with session.transaction() as tx:
            after = tx.run_verbatim("SHOW max_parallel_maintenance_workers").scalar()

    assert (during, after) == (str(helpers), str(allowed))
