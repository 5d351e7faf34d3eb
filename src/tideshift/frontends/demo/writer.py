"""A writer in a process of its own: writes to the shop until it is told to stop, and logs what was acknowledged.

Each line of its log is `[when it began, seconds it took, operation]`, written after the commit was answered. A statement
that fails is logged with its error and ends the writer: because of a job no statement may fail.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import TextIO

from tideshift.frontends.demo.operations import Chooser, execute
from tideshift.frontends.demo.shop import open_shop
from tideshift.frontends.demo.stopping import StopSignal

__all__ = ["FAILED", "main"]

FAILED = "failed"


def main(arguments: Sequence[str]) -> int:
    """Write until stopped: PATH LOG ROWS WRITER WRITERS SECONDS_BETWEEN."""
    path, log_path, rows, writer, writers, pause_seconds = arguments
    stop = StopSignal()
    chooser = Chooser(Random(int(writer)), rows=int(rows), writer=int(writer), writers=int(writers))
    connection = open_shop(Path(path))
    with Path(log_path).open("a", encoding="utf-8") as log:
        while not stop.wait(float(pause_seconds)):
            if not _write_one(connection, chooser, log):
                return 1
    connection.close()
    return 0


def _write_one(connection: object, chooser: Chooser, log: TextIO) -> bool:
    operation = chooser.next()
    begun = time.monotonic()
    try:
        execute(connection, operation)
    except Exception as error:  # noqa: BLE001 - whatever it was, it is evidence
        _note(log, begun, [FAILED, repr(error), operation])
        return False
    chooser.done(operation)
    _note(log, begun, operation)
    return True


def _note(log: TextIO, begun: float, operation: list[object]) -> None:
    took = time.monotonic() - begun
    log.write(json.dumps([round(begun, 6), round(took, 6), operation], separators=(",", ":")) + "\n")
    log.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
