"""What Ctrl-C and SIGTERM do to a command that follows or runs a job.

The first one is only counted: the loop sees it within a tenth of a second, the node of this process stops in order, and
the job is kept. The second one, on a terminal, lets the command ask what shall become of the job; without a terminal,
and a third one anywhere, the process ends at once. What it held expires by itself. A command that runs nothing but a node
takes its first SIGTERM as a wish to drain, which counts as no interruption.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from types import FrameType, TracebackType
from typing import Any, Self

from tideshift.clock import Clock
from tideshift.errors import Interrupted
from tideshift.frontends.cli.output import is_terminal

__all__ = ["Interruption"]

SLICE_SECONDS = 0.1
SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interruption:
    """Counts the signals while it is entered; a plain number, since a signal may come while a lock is held."""

    def __init__(self, *, terminal: bool | None = None) -> None:
        self.count = 0
        self.may_drain = False
        """Whether the first SIGTERM is a wish to drain instead of an interruption."""
        self.drains = False
        self._terminal = (is_terminal(sys.stderr) and sys.stdin.isatty()) if terminal is None else terminal
        self._never = threading.Event()
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> Self:
        for number in SIGNALS:
            self._before[number] = signal.signal(number, self._on_signal)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    @property
    def asks(self) -> bool:
        """Whether the person at the terminal interrupted a second time and is to be asked."""
        return self._terminal and self.count > 1

    def check(self) -> None:
        """Raise `Interrupted` once there was a signal."""
        if self.count:
            raise Interrupted("interrupted")

    def wait(self, clock: Clock, seconds: float, *, wake: threading.Event | None = None) -> None:
        """Wait in slices, or until the event is set, and raise `Interrupted` as soon as there was a signal."""
        deadline = clock.monotonic() + seconds
        self.check()
        while (left := deadline - clock.monotonic()) > 0:  # ends: the clock goes on
            woken = clock.wait(wake or self._never, min(left, SLICE_SECONDS))
            self.check()
            if woken:
                return

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if number == signal.SIGTERM and self.may_drain and not self.drains and not self.count:
            self.drains = True
            return
        self.count += 1
        if self.count > (2 if self._terminal else 1):
            os._exit(Interrupted.exit_code)
