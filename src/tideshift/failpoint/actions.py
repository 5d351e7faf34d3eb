"""What the terms do. Nothing here holds a lock, so that a waiting thread never stops another one."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from math import inf
from threading import Event, get_ident
from typing import Any, Final, assert_never

from tideshift.failpoint.terms import Action, Term


class NotFired(Enum):
    """The type of NOT_FIRED; an enum, so that it stays itself when copied and type checkers can narrow by it."""

    NOT_FIRED = "not fired"

    def __repr__(self) -> str:
        return "NOT_FIRED"

    def __bool__(self) -> bool:
        return False


NOT_FIRED: Final = NotFired.NOT_FIRED
SLICE_SECONDS: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One term to carry out for one pass of a point."""

    term: Term
    point_name: str
    context: Mapping[str, object]
    released: Event
    call: Callable[..., object] | None
    build_error: Callable[[], Exception] | None


def perform(order: Order) -> Any:
    """Carry one term out and return NOT_FIRED, or the value of a `return` term."""
    match order.term.action:
        case Action.RETURN:
            return order.term.argument()
        case Action.RAISE:
            assert order.build_error is not None
            raise order.build_error()
        case Action.SLEEP | Action.PAUSE:
            # A pause without a time-out ends when the activation does: disable, re-enable, or KeyboardInterrupt.
            _wait(order.released, order.term.wait_seconds)
        case Action.PRINT:
            _print(order)
        case Action.EXIT:
            os._exit(order.term.argument(default=1))
        case Action.KILL:
            os.kill(os.getpid(), signal.SIGKILL)
        case Action.STOP:
            # Sent to this thread: sent to the process, another one may take it, and this one runs on for a moment.
            signal.pthread_kill(get_ident(), signal.SIGSTOP)
        case Action.YIELD:
            _yield_time_slice()
        case Action.CALL:
            assert order.call is not None
            order.call(**order.context)
        case Action.OFF:
            pass  # its pass is counted and the chain ends here; that is all it is for
        case _ as never:
            assert_never(never)
    return NOT_FIRED


def _print(order: Order) -> None:
    """Write one line to standard error, since standard output belongs to the program under test."""
    context = " ".join(f"{key}={value}" for key, value in order.context.items())
    text = order.term.argument(default=context)
    sys.stderr.write(f"failpoint {order.point_name}: {text}\n")
    sys.stderr.flush()


def _wait(released: Event, seconds: float | None) -> None:
    """Wait in slices: a signal that comes just before a lock is waited for does not end that wait, and Ctrl-C would be lost for all of it."""
    deadline = inf if seconds is None else time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:  # ends: the clock goes on, or the activation ends
        if released.wait(min(left, SLICE_SECONDS)):
            return


def _yield_time_slice() -> None:
    """Let another thread of this process, and another process, run now."""
    time.sleep(0)  # gives up the interpreter lock, which sched_yield does not do in every Python release
    if hasattr(os, "sched_yield"):
        os.sched_yield()
