"""Time as something that is handed in: the system's clock, or one that a test steps; and how a moment is written."""

from __future__ import annotations

import threading
import time
from datetime import UTC, datetime
from typing import Protocol

__all__ = ["Clock", "SteppedClock", "SystemClock", "rfc3339"]


def rfc3339(epoch_ms: float) -> str:
    """Write UTC epoch milliseconds as people and programs read it: RFC 3339, UTC, with milliseconds."""
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


class Clock(Protocol):
    """What the code may know and do about time."""

    def monotonic(self) -> float:
        """Return seconds that never go backwards."""
        ...

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait for the event at most this long; return whether it is set."""
        ...

    def database_now_ms(self) -> int | None:
        """Return the time that the database shall be taken to have (UTC epoch milliseconds), or None for its own."""
        ...


class SystemClock:
    """The clock of the machine; the database keeps its own time."""

    def monotonic(self) -> float:
        """Return the machine's monotonic seconds."""
        return time.monotonic()

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Wait on the event for real."""
        return event.wait(seconds)

    def database_now_ms(self) -> int | None:
        """Leave the time to the database."""
        return None


class SteppedClock:
    """A clock that moves only when told, for the database's time as well; waiting moves it."""

    def __init__(self, start_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = float(start_ms)
        self._lock = threading.Lock()

    def advance(self, seconds: float) -> None:
        """Move time on."""
        assert seconds >= 0
        with self._lock:
            self._now_ms += seconds * 1000

    def monotonic(self) -> float:
        """Return the stepped time in seconds."""
        with self._lock:
            return self._now_ms / 1000

    def wait(self, event: threading.Event, seconds: float) -> bool:
        """Move time on instead of waiting."""
        if not event.is_set():
            self.advance(seconds)
        return event.is_set()

    def database_now_ms(self) -> int | None:
        """Give the stepped time to the database too."""
        with self._lock:
            return int(self._now_ms)
