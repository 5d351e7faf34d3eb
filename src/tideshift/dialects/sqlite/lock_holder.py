"""Which process holds a file's write lock, as the operating system's list of locks tells; where there is no such list, nobody knows.

SQLite locks single bytes: in WAL mode one of the `-shm` file, else two of the database file itself. The list is only read.
Opening one of the files and closing it again would give up every lock that this process has on it.
"""

from __future__ import annotations

import os
from pathlib import Path

from tideshift.ddl.dialect import LockHolder

__all__ = ["lock_holder"]

_LOCKS = Path("/proc/locks")
_WAL_WRITE = (120, 120)
_PENDING_TO_RESERVED = (0x40000000, 0x40000001)


def lock_holder(path: str) -> LockHolder | None:
    """Return the process that holds the write lock now; None where nobody does, or it cannot be known."""
    try:
        lines = _LOCKS.read_text().splitlines()
    except OSError:
        return None
    for name, wanted in ((f"{path}-shm", _WAL_WRITE), (path, _PENDING_TO_RESERVED)):
        file = _file(name)
        for line in lines if file is not None else ():
            process = _writer(line.split(), file, wanted)
            if process is not None:
                return LockHolder(process, _program(process))
    return None


def _file(name: str) -> str | None:
    """Return a file as the list names it."""
    try:
        found = os.stat(name)  # noqa: PTH116
    except OSError:
        return None
    return f"{os.major(found.st_dev):02x}:{os.minor(found.st_dev):02x}:{found.st_ino}"


def _writer(fields: list[str], file: str | None, wanted: tuple[int, int]) -> int | None:
    """Return the process of a line such as `3: POSIX ADVISORY WRITE 4242 fe:00:1474772 120 120`; one that only waits has an arrow."""
    if len(fields) != 8 or fields[1] != "POSIX" or fields[3] != "WRITE" or fields[5] != file:
        return None
    first, last = int(fields[6]), wanted[1] if fields[7] == "EOF" else int(fields[7])
    process = int(fields[4])  # 0 where it lives in another namespace of processes
    return process if process > 0 and first <= wanted[1] and last >= wanted[0] else None


def _program(process: int) -> str:
    """Return the program's name; its arguments may hold what is nobody's business."""
    try:
        return Path(f"/proc/{process}/comm").read_text(errors="replace").strip()
    except OSError:
        return ""
