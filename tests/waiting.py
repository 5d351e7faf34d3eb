"""Waiting for what other processes do: the one place of the tests that looks again after a while, and never for ever."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

__all__ = ["WAIT_SECONDS_MAX", "until"]

WAIT_SECONDS_MAX = 40.0
LOOK_SECONDS = 0.02
_NEVER = threading.Event()


def until(condition: Callable[[], Any], what: str | Callable[[], str], *, seconds: float = WAIT_SECONDS_MAX) -> Any:
    """Ask again and again until the answer is true, or fail saying what did not happen and how things then stand."""
    deadline = time.monotonic() + seconds
    while True:
        answer = condition()
        if answer:
            return answer
        assert time.monotonic() < deadline, f"after {seconds:.0f} s: not yet {what if isinstance(what, str) else what()}"
        _NEVER.wait(LOOK_SECONDS)
