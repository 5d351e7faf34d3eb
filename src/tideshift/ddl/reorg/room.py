"""How much room a job leaves to the application: when its copy waits, and when it must give its capture up."""

from __future__ import annotations

from tideshift import errors
from tideshift.ddl.dialect import Dialect, DiskRoom

__all__ = ["EATEN_SECONDS", "LOG_BYTES_MAX", "see_room", "why_give_up"]

LOG_BYTES_MAX = 1 << 30
EATEN_SECONDS = 600.0
"""Capture is given up when the log, growing as it does, would fill the disk within this time."""


def see_room(dialect: Dialect, *, hint: str = "Make room: it goes on by itself.") -> None:
    """Raise `DiskFull` when there is less room than a job leaves alone; whoever waits for room looks again."""
    room = dialect.load.room()
    if room is not None and room.free_bytes < room.reserve_bytes:
        message = f"{_mib(room.free_bytes)} are free on the disk, and {_mib(room.reserve_bytes)} are left alone"
        raise errors.DiskFull(message, hint=hint)


def why_give_up(room: DiskRoom | None, *, log_bytes: int, grows_by: float) -> str | None:
    """Return why capture must be given up now (None: it need not); `grows_by` is in bytes per second."""
    if log_bytes > LOG_BYTES_MAX:
        return f"the log of changes has grown to {_mib(log_bytes)}"
    if room is None:
        return None
    if room.free_bytes < room.least_bytes:
        return f"only {_mib(room.free_bytes)} are free on the disk"
    if grows_by > 0 and room.free_bytes < grows_by * EATEN_SECONDS:
        minutes = room.free_bytes / grows_by / 60
        return f"the log of changes grows so fast that the {_mib(room.free_bytes)} that are free would be full in {minutes:.1f} minutes"
    return None


def _mib(size_bytes: float) -> str:
    return f"{size_bytes / (1 << 20):,.0f} MiB"
