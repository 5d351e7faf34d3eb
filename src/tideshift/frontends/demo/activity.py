"""What writers and readers have done so far, read from their logs as these grow."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tideshift.frontends.demo.operations import Operation
from tideshift.frontends.demo.writer import FAILED

__all__ = ["Activity", "Log", "acknowledged"]

WINDOW_SECONDS = 1.0


class Log:
    """One growing log; each look returns the lines that came since the last one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._offset = 0

    def new_entries(self) -> list[tuple[float, float, Operation]]:
        """Return what was written since the last call; a line that is not finished waits."""
        if not self.path.exists():
            return []
        with self.path.open("rb") as file:
            file.seek(self._offset)
            block = file.read()
        whole = block[: block.rfind(b"\n") + 1]
        self._offset += len(whole)
        return [(entry[0], entry[1], entry[2]) for entry in map(json.loads, whole.splitlines())]


@dataclass
class Activity:
    """The statements of several processes: how many, how fast of late, and the longest one."""

    logs: list[Log]
    count: int = 0
    longest_seconds: float = 0.0
    failures: list[Any] = field(default_factory=list)
    per_second: float = 0.0
    _ends: deque[float] = field(default_factory=deque)

    def look(self) -> None:
        """Take in what is new."""
        for log in self.logs:
            for begun, seconds, operation in log.new_entries():
                self.count += 1
                self.longest_seconds = max(self.longest_seconds, seconds)
                self._ends.append(begun + seconds)
                if operation[0] == FAILED:
                    self.failures.append(operation[1:])
        oldest = time.monotonic() - WINDOW_SECONDS
        while self._ends and self._ends[0] < oldest:
            self._ends.popleft()
        self.per_second = len(self._ends) / WINDOW_SECONDS

    def start_again(self) -> None:
        """Forget the longest statement, so that the next phase has its own."""
        self.longest_seconds = 0.0
        self.count = 0


def acknowledged(path: Path) -> Iterator[Operation]:
    """Yield every operation of a finished log that the shop acknowledged, in order."""
    with path.open(encoding="utf-8") as file:
        for line in file:
            operation = json.loads(line)[2]
            if operation[0] != FAILED:
                yield operation
