"""A durable commit waits for the disk under the lock: what others have left to be flushed is flushed before it is taken."""

from __future__ import annotations

import os
from contextlib import closing
from pathlib import Path

import pytest

from tests.databases import opened
from tests.servers import sqlite_module


@pytest.mark.parametrize("durable", [True, False])
def test_the_log_is_flushed_before_the_lock_is_taken(sqlite_path: Path, durable: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only for a durable transaction, and while another writer gets through at once."""
    flushed: list[str] = []
    flush = os.fsync

    def look(descriptor: int) -> None:
        with closing(sqlite_module().connect(sqlite_path, timeout=0, isolation_level=None)) as other:
            other.execute("INSERT INTO t VALUES (2)")
        link = Path(f"/proc/self/fd/{descriptor}")
        flushed.append(str(link.readlink()) if link.is_symlink() else f"{sqlite_path}-wal")
        flush(descriptor)

    with opened(f"sqlite:///{sqlite_path}") as database:
        with database.transaction() as tx:
            tx.run_verbatim("CREATE TABLE t (id INTEGER)")
        monkeypatch.setattr(os, "fsync", look)
        with database.transaction(durable=durable) as tx:
            tx.run_verbatim("INSERT INTO t VALUES (1)")

    assert flushed == ([f"{os.path.realpath(sqlite_path)}-wal"] if durable else [])


def test_a_log_that_is_not_there_is_no_hindrance(tmp_path: Path) -> None:
    """As before the first write, and in another journal mode."""
    path = tmp_path / "new.db"
    with closing(sqlite_module().connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = wal")
    with opened(f"sqlite:///{path}") as database, database.transaction() as tx:
        tx.run_verbatim("CREATE TABLE t (id INTEGER)")
