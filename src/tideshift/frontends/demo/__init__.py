"""The demonstration: a busy shop, a column's type changed under it, a killed worker, and a proof at the end.

`shop` is the database, `operations` what a writer does to it and to the model, `writer`, `reader`, `worker` and `rebuild`
the processes, `activity` reads the writers' logs, `story` is the order of events, `screen` shows them, `proof` compares.
Importing this package imports nothing else: the command line reads its help text.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

__all__ = ["HURRIED", "ROWS_DEFAULT", "ROWS_MIN", "Pace", "run_demo"]

ROWS_DEFAULT = 200_000
ROWS_MIN = 1_000


@dataclass(frozen=True, kw_only=True)
class Pace:
    """How long the demonstration lingers where there is something to see."""

    classic_seconds: float = 1.5
    """Before and after the rebuild, so that the writers are at work when it begins."""
    paused_seconds: float = 2.0
    slow_seconds: float = 3.0


USUAL = Pace()
HURRIED = Pace(classic_seconds=0.3, paused_seconds=0.3, slow_seconds=0.3)


def run_demo(
    rows: int = ROWS_DEFAULT,
    *,
    folder: Path | None = None,
    stream: TextIO | None = None,
    seconds_max: float | None = None,
    pace: Pace = USUAL,
) -> int:
    """Run the demonstration and return its exit code: 0 when everything was proven, 1 when anything differs, 2 for bad arguments, 130 when interrupted.

    The database stays when a folder is given. `seconds_max` bounds the whole run (None: by the number of rows).
    """
    from tideshift.frontends.demo.story import tell

    return tell(rows, folder=folder, stream=stream, seconds_max=seconds_max, pace=pace)
