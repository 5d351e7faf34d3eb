"""The room that is left on the file's disk, how much of it a job leaves alone, and who holds the write lock."""

from __future__ import annotations

import os

from tideshift.ddl.dialect import Blocker, DiskRoom, InTheWay, LockHolder
from tideshift.dialects import points
from tideshift.dialects.sqlite.driver import SqliteDriver
from tideshift.dialects.sqlite.lock_holder import lock_holder
from tideshift.failpoint import NOT_FIRED
from tideshift.store.database import Transaction

__all__ = ["SqliteLoad"]

_RESERVE_SHARE = 20
_RESERVE_BYTES_MIN, _RESERVE_BYTES_MAX = 8 << 20, 256 << 20
"""Enough for some write-ahead log, which a chunk, a checkpoint and the application all need."""


class SqliteLoad:
    """Measures by the file system only; nothing is asked of the database."""

    def __init__(self, driver: SqliteDriver) -> None:
        self._driver = driver

    def room(self) -> DiskRoom:
        """Measure what any user may still write; the reserve is a twentieth of the disk, within bounds."""
        disk = os.statvfs(self._driver.path)
        free = disk.f_bavail * disk.f_frsize
        if points.DISK_FREE.on:
            told = points.DISK_FREE.fire()
            free = free if told is NOT_FIRED else int(str(told))
        reserve = min(_RESERVE_BYTES_MAX, max(_RESERVE_BYTES_MIN, disk.f_blocks * disk.f_frsize // _RESERVE_SHARE))
        return DiskRoom(free_bytes=free, reserve_bytes=reserve, least_bytes=reserve // 4)

    def lock_holder(self) -> LockHolder | None:
        """Ask the operating system."""
        return lock_holder(self._driver.path)

    def waits_for(self, tx: Transaction, backend: str) -> list[Blocker]:
        """Return nobody: only a writer waits here, and `lock_holder` is whom it waits for."""
        return []

    def moment(self, tx: Transaction) -> str:
        """Return nothing: readers keep the tables of their snapshot, whatever takes their place."""
        return ""

    def older_snapshots(self, tx: Transaction, moment: str) -> list[InTheWay]:
        """Return nobody, for the same reason."""
        return []

    def end(self, tx: Transaction, session: InTheWay) -> str:
        """Refuse: a process is never ended by us."""
        return "refused: a process is never ended"
