"""The processes of the demonstration: started as modules of this package, stopped in order, and never left behind."""

from __future__ import annotations

import subprocess
import sys
from types import TracebackType
from typing import Self

__all__ = ["DemoFailed", "Processes"]

STOP_SECONDS_MAX = 15.0


class DemoFailed(Exception):
    """The demonstration cannot go on; its text is for the person who watches."""


class Processes:
    """Every process that is running; leaving the context ends them all."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        for process in self._running:
            process.kill()
        for process in self._running:
            process.wait(STOP_SECONDS_MAX)
        self._running.clear()

    def start(self, module: str, *arguments: object, log_path: str) -> subprocess.Popen[bytes]:
        """Start one module of this package; its complaints go to a file."""
        command = [sys.executable, "-m", f"tideshift.frontends.demo.{module}", *map(str, arguments)]
        with open(log_path, "a", encoding="utf-8") as log:  # noqa: PTH123 - a plain file for a child's stderr
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log)
        self._running.append(process)
        return process

    def stop(self, *processes: subprocess.Popen[bytes]) -> list[int]:
        """Ask processes to end, and wait for them; return their exit codes."""
        for process in processes:
            process.terminate()
        codes: list[int] = []
        for process in processes:
            try:
                codes.append(process.wait(STOP_SECONDS_MAX))
            except subprocess.TimeoutExpired as error:
                raise DemoFailed(f"{process.args!r} did not stop within {STOP_SECONDS_MAX:g} s") from error
            self._running.remove(process)
        return codes

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """End a process as a power failure would: by SIGKILL."""
        process.kill()
        process.wait(STOP_SECONDS_MAX)
        self._running.remove(process)
