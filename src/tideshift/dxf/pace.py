"""How a subtask comes along: the summary that stands on its row, its speed, and the pause that its limits ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from tideshift.clock import Clock
from tideshift.dxf.parameters import Limits
from tideshift.dxf.pulse import Pulse
from tideshift.dxf.task import Subtask, Task
from tideshift.dxf.tasktype import Chunk
from tideshift.dxf.throttle import NO_PAUSE, Pause, pause_after

__all__ = ["Pace", "limits_of"]


def limits_of(task: Task, subtask: Subtask, *, sharers: int) -> Limits:
    """Return the parameters in force; a chunk never holds more than a second's worth of a write speed."""
    limits = Limits.of(task, sharers=sharers)
    rows_max = limits.batch_size_rows
    if limits.write_rows_per_second_max is not None:
        rows_max = min(rows_max, limits.write_rows_per_second_max)
    if limits.write_bytes_per_second_max is not None and subtask.summary.get("row_count"):
        mean = max(1, subtask.summary.get("bytes", 0) // subtask.summary["row_count"])
        rows_max = min(rows_max, max(1, limits.write_bytes_per_second_max // mean))
    return replace(limits, batch_size_rows=rows_max)


@dataclass(frozen=True)
class Last:
    """The last chunk: when it ended, how long it took, and what it held."""

    ended: float
    held_seconds: float
    rows: int
    size_bytes: int
    urgent: bool = False


class Pace:
    """The measured course of one attempt."""

    def __init__(self, *, shares_lock: bool, pulse: Pulse | None = None) -> None:
        self.last: Last | None = None
        self._pulse = pulse
        self._shares_lock = shares_lock
        self._since_ms: int | None = None

    def pause(self, limits: Limits) -> Pause:
        """Return the pause after the last chunk."""
        if self.last is None:
            return NO_PAUSE
        duty = self._pulse.duty(sharers=limits.sharers) if limits.adaptive and not self.last.urgent and self._pulse is not None else None
        return pause_after(
            limits, held_seconds=self.last.held_seconds, rows=self.last.rows, size_bytes=self.last.size_bytes, shares_lock=self._shares_lock, duty=duty
        )

    @contextmanager
    def working(self, limits: Limits) -> Iterator[None]:
        """Tell the pulse, where the work is adaptive, that the database is kept busy for a while."""
        if limits.adaptive and self._pulse is not None:
            self._pulse.duty()  # so that rest is known before the first pause is asked for
            with self._pulse.working():
                yield
        else:
            yield

    @contextmanager
    def alone(self, limits: Limits, clock: Clock) -> Iterator[None]:
        """The same for a statement that is no chunk; adaptive work rests after it as after a chunk."""
        begun = clock.monotonic()
        with self.working(limits):
            yield
        if limits.adaptive:
            ended = clock.monotonic()
            self.last = Last(ended, ended - begun, 0, 0)

    def due(self, limits: Limits) -> float | None:
        """Return when the next chunk may begin; None before the first one."""
        return None if self.last is None else self.last.ended + self.pause(limits).seconds

    def summary(self, before: dict[str, Any], chunk: Chunk, *, effective: dict[str, Any], limits: Limits, now: float, now_ms: Callable[[], int]) -> dict[str, Any]:
        """Add a chunk up: counts, what is in force and since when, what slows it, and the speed."""
        summary = dict(before)
        for name, value in {"row_count": chunk.rows, "bytes": chunk.size_bytes, "chunks": 1, **(chunk.counters or {})}.items():
            summary[name] = summary.get(name, 0) + value
        if summary.get("effective") != effective or self._since_ms is None:
            self._since_ms = now_ms()  # asked for only when it is written: a chunk asks the database for nothing that it does not need
            summary["effective"], summary["since"] = effective, self._since_ms
        pause = self.pause(limits)
        summary["throttle"] = pause.as_record()
        if self.last is not None:  # One chunk behind: how long this one takes is known when it is committed.
            for name, seconds in (("held_seconds", self.last.held_seconds), ("paused_seconds", pause.seconds)):
                summary[name] = round(summary.get(name, 0.0) + seconds, 4)
            summary["rows_per_second"] = _rate(chunk.rows, summary.get("rows_per_second", 0.0), seconds=now - self.last.ended)
        return summary


def _rate(rows: int, before: float, *, seconds: float) -> float:
    """Return the speed of late, pauses included: an average that forgets over about ten chunks."""
    now = rows / max(seconds, 1e-3)
    return round(now if before == 0 else 0.9 * before + 0.1 * now, 1)
