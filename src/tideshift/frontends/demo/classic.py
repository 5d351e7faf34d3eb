"""The classic rebuild under the same writers, on a copy of the shop: what the online change is compared with."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from tideshift.frontends.demo.activity import Activity
from tideshift.frontends.demo.crowd import Crowd
from tideshift.frontends.demo.processes import DemoFailed, Processes
from tideshift.frontends.demo.shop import open_shop

__all__ = ["ClassicRun", "copy_shop", "run_classic"]


@dataclass(frozen=True, kw_only=True)
class ClassicRun:
    """What the rebuild cost: how long it held the lock, and the longest stall that a writer saw."""

    lock_seconds: float
    stall_seconds: float
    statements: int


def copy_shop(source: Path, target: Path) -> None:
    """Copy the whole database, in the same journal mode."""
    with closing(open_shop(source)) as original, closing(open_shop(target)) as copy:
        original.backup(copy)
        copy.execute("PRAGMA journal_mode = WAL").fetchall()


def run_classic(
    path: Path, *, rows: int, seconds_around: float, processes: Processes, watch: Callable[[Activity, Activity, Callable[[], bool], float], None]
) -> ClassicRun:
    """Let writers work on the copy, rebuild its table under them, and stop them."""
    folder = path.parent
    result_path = folder / "classic.seconds"
    crowd = Crowd(processes, path, rows=rows, name="classic")
    crowd.start()
    watch(crowd.writers, crowd.reader, lambda: False, seconds_around)
    crowd.writers.start_again()
    rebuild = processes.start("rebuild", path, result_path, log_path=str(folder / "classic.log"))
    watch(crowd.writers, crowd.reader, lambda: rebuild.poll() is not None, 600.0)
    watch(crowd.writers, crowd.reader, lambda: False, seconds_around)
    crowd.stop()
    if rebuild.returncode != 0:
        raise DemoFailed(f"the classic rebuild ended with {rebuild.returncode}; see {folder / 'classic.log'}")
    return ClassicRun(
        lock_seconds=float(result_path.read_text()), stall_seconds=crowd.writers.longest_seconds, statements=crowd.writers.count
    )
