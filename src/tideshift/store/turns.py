"""Taking turns where all writers share one lock: room for other processes between two write transactions of ours.

Such a lock knows no queue: whoever asks at the right moment gets it, and one who was refused sleeps longer and longer
before asking again. Transactions of ours that follow one another at once, however short, can keep an application out for
a long time. So the write transactions of one process follow one another in order, and each begins only after the lock was
left alone for as long as a refused writer sleeps. This decides nothing but when we ask: that two
transactions exclude one another stays the database's business, and one that waited too long for its turn asks anyway.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from tideshift.clock import Clock
from tideshift.config import PARAMETERS

__all__ = ["LOCK_SHARE_PERCENT", "Turn", "Turns", "room_after"]

LOCK_SHARE_PERCENT = int(PARAMETERS["lock_share"].default or 100)
"""How much of the time our transactions may hold the lock when nobody wished otherwise."""
ROOM_SECONDS = 0.0255
"""A writer that was refused asks again after 1, 2, 5, 10, 15, 20, 25 and 25 ms: it cannot miss a gap that is longer."""
ROOM_PER_HOLD = 10
"""Behind a hold of a few milliseconds a refused writer sleeps less, and had a long gap before it."""
FULL_ROOM_SHARE_PERCENT = 30
"""Up to this share the gaps are that long; whoever wishes for more of the lock has shorter ones."""


class Turn:
    """One write transaction's turn: whether it really has it, and since when it holds the lock."""

    def __init__(self, clock: Clock, *, ours: bool) -> None:
        self._clock = clock
        self.ours = ours
        """False when the time was over before the others of this process were done: then there is no more to wait for."""
        self.held_from: float | None = None

    def begun(self) -> None:
        """Note that the lock is held from now on."""
        self.held_from = self._clock.monotonic()


class _Line:
    """A lock that is given in the order of asking: a plain one may pass a thread over again and again, a heartbeat for one."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._waiting: deque[threading.Event] = deque()
        self._held = False

    def acquire(self, *, timeout: float) -> bool:
        """Wait in line, at most this long; return whether it is ours."""
        with self._guard:
            if not self._held:
                self._held = True
                return True
            called = threading.Event()
            self._waiting.append(called)
        called.wait(timeout)
        with self._guard:
            if not called.is_set():
                self._waiting.remove(called)
            return called.is_set()

    def release(self) -> None:
        """Hand it to the first in line, or leave it free."""
        with self._guard:
            assert self._held
            if self._waiting:
                self._waiting.popleft().set()
            else:
                self._held = False


class Turns:
    """The order of one process's write transactions on one database."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._order = _Line()
        self._never = threading.Event()
        self._released_at = 0.0
        self._held_seconds = 0.0

    @contextmanager
    def turn(self, *, wait_seconds: float, lock_share_percent: int) -> Iterator[Turn]:
        """Wait for this process's turn and until the lock was free for long enough, then let the transaction run."""
        turn = Turn(self._clock, ours=self._order.acquire(timeout=max(0.0, wait_seconds)))
        try:
            if turn.ours:
                self._leave_room(lock_share_percent)
            yield turn
        finally:
            if turn.held_from is not None:
                self._released_at = self._clock.monotonic()
                self._held_seconds = self._released_at - turn.held_from
            if turn.ours:
                self._order.release()

    def _leave_room(self, lock_share_percent: int) -> None:
        rest = self._released_at + room_after(self._held_seconds, lock_share_percent=lock_share_percent) - self._clock.monotonic()
        if rest > 0:
            self._clock.wait(self._never, rest)


def room_after(held_seconds: float, *, lock_share_percent: int) -> float:
    """Return how long the lock is left alone after it was held; not at all when no time has passed, as on a stepped clock."""
    share = lock_share_percent / 100
    factor = ROOM_PER_HOLD if lock_share_percent <= FULL_ROOM_SHARE_PERCENT else (1 - share) / share
    return min(max(0.0, held_seconds) * factor, ROOM_SECONDS)
