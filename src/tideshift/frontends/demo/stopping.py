"""How a process of the demonstration learns that it shall end: by SIGTERM, or because its parent is gone."""

from __future__ import annotations

import os
import signal
import threading

__all__ = ["StopSignal"]


class StopSignal:
    """Set by SIGTERM, or when the process that started this one has died; Ctrl-C is the parent's business."""

    def __init__(self) -> None:
        self._event = threading.Event()
        self._parent = os.getppid()
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, lambda *_: self._event.set())

    def wait(self, seconds: float) -> bool:
        """Wait at most this long; return whether it is time to end."""
        return self._event.wait(seconds) or os.getppid() != self._parent
