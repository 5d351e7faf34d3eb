"""A job on a disk that is really too small, under writers that must not notice: it waits, gives its capture up, and goes on when given room.

    unshare --user --map-root-user --mount python -m tests.crash.small_disk FOLDER SEED

Mounts a file system of its own on the folder, which nobody outside sees and which is gone with the process.
"""

from __future__ import annotations

import ctypes
import os
import sys
from contextlib import ExitStack, closing
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from tests.crash import writers
from tests.crash.application import MODULE
from tests.crash.frozen import submit
from tests.crash.killed import WRITERS, compare, end_writers, idle, start_writer
from tests.crash.processes import Worker, reader, standing
from tests.servers import end_with_parent
from tests.waiting import until
from tideshift.connect import connect
from tideshift.dxf.throttle import DISK_FULL

DISK_BYTES = 40 << 20
ROWS = 60_000
ROOM_BYTES = 15 << 20
"""What is left for the job at first: less than the copy takes and the reserve of 8 MiB."""
LOG_ROOM_BYTES = 4 << 20
"""What is left when somebody else has filled the disk: capture is given up when the log has eaten all but a quarter of the reserve, 2 MiB."""
FLOOD_ROWS, STATEMENT_ROWS, LOG_ROW_BYTES = 8_000, 500, 12
STATEMENTS_PER_LOOK = 8
BALLAST = "ballast"


def mount(folder: Path) -> None:
    """Mount a small file system in memory on a folder."""
    libc = ctypes.CDLL(None, use_errno=True)
    options = f"size={DISK_BYTES}".encode()
    if libc.mount(b"tmpfs", os.fsencode(folder), b"tmpfs", 0, options):
        raise OSError(ctypes.get_errno(), f"no file system could be mounted on {folder}")


def fill(folder: Path, left_bytes: int) -> None:
    """Let a file take everything but so much."""
    disk = os.statvfs(folder)
    with (folder / BALLAST).open("ab") as ballast:
        ballast.write(bytes(max(0, disk.f_bavail * disk.f_frsize - left_bytes)))


def run(folder: Path, seed: int) -> None:
    """Go through all of it; raise AssertionError where anything is not as it must be."""
    path = folder / "small.db"
    writers.create(path, ROWS)
    with closing(reader(path)) as look, ExitStack() as stack:
        look.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        logs = [start_writer(stack, path, number, seed) for number in range(WRITERS)]
        fill(folder, ROOM_BYTES)
        job_id = submit(path, lock_share=50)
        with Worker(path) as worker:
            worker.ready()
            until(lambda: _waits_for_room(path, job_id), lambda: f"a copy that waits for room: {standing(look)}")
            fill(folder, LOG_ROOM_BYTES)
            fill_with_the_log(path, look)
            until(lambda: not _made(look), lambda: f"a copy that is purged: {standing(look)}")
            written = look.execute("SELECT count(*) FROM readings").fetchone()
            until(lambda: look.execute("SELECT count(*) FROM readings").fetchone() != written, "a writer that goes on")

            (folder / BALLAST).unlink()
            with connect(str(path)) as connected:
                connected.ddl.resume(job_id)
            until(lambda: idle(look), lambda: f"the end of the job: {standing(look)}; {worker.log[-1500:]}", seconds=90)
            worker.stop()
        believed, _ = end_writers(logs)
        compare(look, believed, rows=ROWS)
        assert look.execute("SELECT state FROM tideshift_ddl_job_history").fetchall() == [("synced",)]
        assert look.execute("SELECT DISTINCT typeof(value) FROM readings").fetchall() == [("integer",)]
        assert look.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def fill_with_the_log(path: Path, look: Any) -> None:
    """Write so much that the log of the job alone takes what is left of the disk, until capture is given up for it; not a statement may fail."""
    longest = 0
    firsts = cycle(range(0, FLOOD_ROWS, STATEMENT_ROWS))
    with closing(MODULE.connect(path, isolation_level=None, timeout=30)) as application:

        def is_given_up() -> bool:
            nonlocal longest
            # No more for each look: a fast machine would fill these few MiB between two looks of the job.
            for first in islice(firsts, STATEMENTS_PER_LOOK):
                application.execute("UPDATE readings SET value = value WHERE id BETWEEN ? AND ?", (-first - STATEMENT_ROWS, -first - 1))
            longest = max(longest, _log_rows(look))
            return _job(look) == ("paused", 1)

        until(is_given_up, lambda: f"capture that is given up for its log of {longest} rows: {standing(look)}")
    assert longest * LOG_ROW_BYTES > LOG_ROOM_BYTES // 3, f"the log had {longest} rows at most"
    reason = look.execute("SELECT pause_reason FROM tideshift_ddl_job").fetchone()[0]
    assert "was given up" in reason, reason


def _log_name(look: Any) -> str | None:
    found = look.execute("SELECT name FROM sqlite_master WHERE name GLOB 'tideshift_[0-9]*_log'").fetchone()
    return None if found is None else found[0]


def _log_rows(look: Any) -> int:
    name = _log_name(look)
    return 0 if name is None else look.execute(f"SELECT coalesce(max(seq) - min(seq) + 1, 0) FROM {name}").fetchone()[0]


def _waits_for_room(path: Path, job_id: int) -> bool:
    with connect(str(path)) as connected:
        shown = connected.ddl.show(job_id)
    assert (shown["state"], shown["stage"]) != ("running", "cut over"), "the disk had room for everything"
    return (shown["throttle"] or {}).get("reason") == DISK_FULL


def _job(look: Any) -> tuple[str, int]:
    return look.execute("SELECT state, attempt FROM tideshift_ddl_job").fetchone() or ("gone", 0)


def _made(look: Any) -> list[str]:
    return look.execute("SELECT name FROM sqlite_master WHERE name GLOB 'tideshift_[0-9]*'").fetchall()


if __name__ == "__main__":
    end_with_parent(os.getppid())
    mount(Path(sys.argv[1]))
    run(Path(sys.argv[1]), int(sys.argv[2]))
