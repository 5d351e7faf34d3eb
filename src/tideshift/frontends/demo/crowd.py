"""The shop's applications: two writers and a reader, each in a process of its own with its own log."""

from __future__ import annotations

import subprocess
from pathlib import Path

from tideshift.frontends.demo.activity import Activity, Log
from tideshift.frontends.demo.processes import DemoFailed, Processes

__all__ = ["WRITERS", "Crowd"]

WRITERS = 2
SECONDS_BETWEEN_WRITES = 0.006
SECONDS_BETWEEN_READS = 0.02


class Crowd:
    """The processes that use one shop."""

    def __init__(self, processes: Processes, path: Path, *, rows: int, name: str) -> None:
        folder = path.parent
        self.path = path
        self.log_paths = [folder / f"{name}-writer{number}.log" for number in range(WRITERS)]
        self.writers = Activity([Log(log_path) for log_path in self.log_paths])
        self._reader_log_path = folder / f"{name}-reader.log"
        self.reader = Activity([Log(self._reader_log_path)])
        self._rows = rows
        self._processes = processes
        self._running: list[subprocess.Popen[bytes]] = []
        self._stderr_path = str(folder / f"{name}-applications.err")

    def start(self) -> None:
        """Start them all."""
        for number, log_path in enumerate(self.log_paths):
            arguments = (self.path, log_path, self._rows, number, WRITERS, SECONDS_BETWEEN_WRITES)
            self._running.append(self._processes.start("writer", *arguments, log_path=self._stderr_path))
        arguments_of_reader = (self.path, self._reader_log_path, SECONDS_BETWEEN_READS)
        self._running.append(self._processes.start("reader", *arguments_of_reader, log_path=self._stderr_path))

    def look(self) -> None:
        """Take in what they did; one that failed ends the demonstration, since nothing of theirs may fail."""
        for activity in (self.writers, self.reader):
            activity.look()
            if activity.failures:
                raise DemoFailed(f"a statement of an application failed: {activity.failures[0]}")
        if any(process.poll() is not None for process in self._running):
            raise DemoFailed(f"an application ended by itself; see {self._stderr_path}")

    def stop(self) -> None:
        """Stop them all and take in the rest of their logs."""
        codes = self._processes.stop(*self._running)
        self._running.clear()
        self.look()
        if any(codes):
            raise DemoFailed(f"an application ended with {codes}; see {self._stderr_path}")
