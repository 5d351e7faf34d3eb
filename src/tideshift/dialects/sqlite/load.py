"""How busy the file is: what grows because a checkpoint cannot keep up, and the room that is left on its disk."""

from __future__ import annotations

import os
from pathlib import Path

from tideshift.ddl.dialect import LoadSignal
from tideshift.dialects.sqlite.driver import SqliteDriver
from tideshift.store.database import Database

__all__ = ["SqliteLoad"]

_WAL_BYTES_LIMIT = 256 << 20
_RESERVE_BYTES = 256 << 20


class SqliteLoad:
    """Measures from the file system only; nothing is asked of the database."""

    def __init__(self, driver: SqliteDriver) -> None:
        self._driver = driver

    def signals(self, database: Database) -> list[LoadSignal]:
        """Measure the write-ahead log and the free disk; the last is given as what lacks to a reserve."""
        del database
        wal = Path(f"{self._driver.path}-wal")
        wal_bytes = wal.stat().st_size if wal.exists() else 0
        disk = os.statvfs(self._driver.path)
        free_bytes = disk.f_bavail * disk.f_frsize
        return [
            LoadSignal(name="wal_bytes", value=wal_bytes, limit=_WAL_BYTES_LIMIT),
            LoadSignal(name="disk_free_bytes", value=free_bytes, limit=None),
            LoadSignal(name="disk_bytes_short_of_reserve", value=max(0, _RESERVE_BYTES - free_bytes), limit=0),
        ]
