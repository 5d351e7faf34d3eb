"""Room on the disk: what is warned of before, and how much of a replaced table goes at once."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest

from tests.proof.engine import application, on_engine
from tideshift.connect import connect
from tideshift.dialects.points import DISK_FREE


@pytest.mark.parametrize(("strategy", "chunks"), [("direct", 1), ("shadow_table", 11)])
def test_a_table_that_was_rebuilt_under_one_lock_is_dropped_under_one(strategy: str, chunks: int, sqlite_path: Path) -> None:
    """Whoever had it fast waits for nothing more; a shadow table's old rows go a few at a time."""
    with closing(application(sqlite_path)) as connection:
        connection.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, c TEXT)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(k, str(k)) for k in range(100)])

    with on_engine(sqlite_path, strategy=strategy) as engine:
        assert str(engine.run("ALTER TABLE t ALTER c TYPE INT", batch_size=10).state) == "synced"

    with closing(application(sqlite_path)) as connection:
        subtasks = " UNION ALL ".join(f"SELECT task_id, summary FROM tideshift_dxf_background_subtask{end}" for end in ("", "_history"))
        tasks = " UNION ALL ".join(f"SELECT id, type, meta FROM tideshift_dxf_global_task{end}" for end in ("", "_history"))
        rows = connection.execute(f"SELECT s.summary, t.meta FROM ({subtasks}) AS s JOIN ({tasks}) AS t ON t.id = s.task_id WHERE t.type = 'ddl.purge'")
        found = [json.loads(summary)["chunks"] for summary, meta in rows if json.loads(meta)["kind"] == "old table"]
    assert found == [chunks]


def test_a_plan_that_the_disk_has_no_room_for_says_so(sqlite_path: Path, failpoints) -> None:
    """It is a warning: rows may go meanwhile, and others may make room."""
    with closing(application(sqlite_path)) as connection:
        connection.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, c TEXT)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(k, "x" * 500) for k in range(5_000)])
    failpoints.enable(DISK_FREE, "return(9000000)")

    with connect(str(sqlite_path)) as connected:
        warnings = connected.ddl.plan("ALTER TABLE t ALTER c TYPE INT", strategy="shadow_table").warnings

    assert any("it would stop for want of room" in warning for warning in warnings)
