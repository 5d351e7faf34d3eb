"""How long a subtask waits between two chunks, and why: pure decisions on what was measured."""

from __future__ import annotations

from dataclasses import dataclass

from tideshift.dxf.parameters import Limits
from tideshift.store.turns import room_after

__all__ = ["DISK_FULL", "NO_PAUSE", "Duty", "Pause", "pause_after"]


@dataclass(frozen=True)
class Pause:
    """A wait before the next chunk: seconds, the reason with its limit and value (None when nothing slows)."""

    seconds: float
    reason: str | None
    limit: float | None
    value: float | None

    def as_record(self) -> dict[str, float | str | None]:
        """Give the form that is shown to people."""
        return {"reason": self.reason, "limit": self.limit, "value": self.value}


@dataclass(frozen=True)
class Duty:
    """What share of the time adaptive work may take, and why: how many in a hundred small commits beside it are slow, and how many may be."""

    share: float
    slow_percent: float
    slow_percent_max: float


PAUSE_SECONDS_MAX = 60.0
"""No single piece of adaptive work is followed by a longer rest; one that long is a statement that cannot be cut."""
DISK_FULL = "disk_full"
"""The reason of a subtask that waits for room on the disk."""
NO_PAUSE = Pause(0.0, None, None, None)


def pause_after(limits: Limits, *, held_seconds: float, rows: int, size_bytes: int, shares_lock: bool, duty: Duty | None = None) -> Pause:
    """Decide the wait after a chunk that held its locks for `held_seconds`: the longest that any limit asks for.

    `shares_lock` is true where writers and the job take turns on one lock; `duty` is what adaptive work may take of the time.
    """
    candidates = [NO_PAUSE]
    if shares_lock and limits.lock_share_percent < 100:
        share = limits.lock_share_percent / 100
        room = room_after(held_seconds, lock_share_percent=limits.lock_share_percent)
        candidates.append(Pause(max(held_seconds * (1 - share) / share, room), "lock_share", limits.lock_share_percent, None))
    if duty is not None and duty.share < 1:
        rest = min(PAUSE_SECONDS_MAX, held_seconds * (1 - duty.share) / duty.share)
        candidates.append(Pause(rest, "latency", duty.slow_percent_max, duty.slow_percent))
    for speed, amount in ((limits.write_rows_per_second_max, rows), (limits.write_bytes_per_second_max, size_bytes)):
        if speed is not None and amount > 0:
            wanted = max(0.0, amount / speed - held_seconds)
            candidates.append(Pause(wanted, "max_write_speed", float(speed), amount / max(held_seconds, 1e-6)))
    return max(candidates, key=lambda pause: pause.seconds)
