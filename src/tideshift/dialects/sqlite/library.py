"""Which SQLite library is used, and what is known to be wrong with its version."""

from __future__ import annotations

import os
import sqlite3
from types import ModuleType

__all__ = ["has_wal_reset_bug", "library_warnings", "sqlite_library"]

Version = tuple[int, int, int]

_WAL_RESET_FIRST: Version = (3, 7, 0)
_WAL_RESET_LAST: Version = (3, 51, 2)
_WAL_RESET_BACKPORTS: tuple[Version, ...] = ((3, 44, 6), (3, 50, 7))
"""The first version of each older line that carries the correction."""


def sqlite_library() -> tuple[ModuleType, Version]:
    """Choose the module, pysqlite3 where it is installed, and tell its library's version.

    The environment variable TIDESHIFT_SQLITE=stdlib takes the standard library's whatever is installed.
    """
    module = _module()
    return module, module.sqlite_version_info


def _module() -> ModuleType:
    if os.environ.get("TIDESHIFT_SQLITE") != "stdlib":
        try:
            import pysqlite3
        except ImportError:
            return sqlite3
        chosen: ModuleType = pysqlite3
        return chosen
    return sqlite3


def library_warnings(*, journal_mode: str, version: Version) -> list[str]:
    """Say what of this library version can harm a database in this journal mode."""
    if journal_mode.lower() != "wal" or not has_wal_reset_bug(version):
        return []
    text = (
        f"SQLite {'.'.join(map(str, version))} has the WAL-reset bug (3.7.0 to 3.51.2): when several processes write in"
        " WAL mode, a checkpoint can lose committed pages. Install a library without it: pip install 'tideshift[sqlite]'"
    )
    return [text]


def has_wal_reset_bug(version: Version) -> bool:
    """Whether this version can lose committed pages in WAL mode."""
    if not _WAL_RESET_FIRST <= version <= _WAL_RESET_LAST:
        return False
    return not any(version[:2] == fixed[:2] and version >= fixed for fixed in _WAL_RESET_BACKPORTS)
