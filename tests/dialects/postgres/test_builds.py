"""How many workers of the server's a build of an index may have."""

import os

import pytest

from tests.databases import opened
from tideshift.dialects.postgres.builds import limit_workers


@pytest.mark.parametrize(
    ("counts", "asked", "workers"),
    [
        ((8, 6), {"side_by_side": 1, "gently": False}, 6),
        ((8, 6), {"side_by_side": 2, "gently": False}, 3),
        ((8, 2), {"side_by_side": 2, "gently": False}, 2),
        ((2, 2), {"side_by_side": 2, "gently": False}, 0),
        ((2, 2), {"side_by_side": 1, "gently": False}, 1),
        ((1, 2), {"side_by_side": 4, "gently": False}, 0),
        ((64, 8), {"side_by_side": 1, "gently": True}, 0),
    ],
)
def test_builds_side_by_side_have_no_more_workers_than_there_are_processors(postgres_url, monkeypatch, counts, asked, workers):
    """Of a server on this machine the processors are known; the server's own setting is never exceeded, and holds again afterwards."""
    processors, allowed = counts
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(processors)))
    with opened(postgres_url) as database, database.session() as session:
        with session.transaction() as tx:
            tx.run_verbatim(f"SET max_parallel_maintenance_workers = {allowed}")
        with session.transaction() as tx:
            limit_workers(tx, **asked)
            during = tx.run_verbatim("SHOW max_parallel_maintenance_workers").scalar()
        with session.transaction() as tx:
            after = tx.run_verbatim("SHOW max_parallel_maintenance_workers").scalar()

    assert (during, after) == (str(workers), str(allowed))
