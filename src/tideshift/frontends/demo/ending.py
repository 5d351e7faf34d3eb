"""The end of the story: what was found, the two ways side by side, and what to try next."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tideshift.frontends.demo.classic import ClassicRun
from tideshift.frontends.demo.processes import DemoFailed
from tideshift.frontends.demo.proof import Finding
from tideshift.frontends.demo.screen import Screen, milliseconds

__all__ = ["Ending", "show_ending"]


@dataclass(frozen=True, kw_only=True)
class Ending:
    """What was measured while the online change ran, from its submission to the end of the purge."""

    seconds: float
    rows_copied: int
    rows_per_second: float
    statements: int
    stall_seconds: float
    read_stall_seconds: float
    rows_per_chunk: int
    """On average: what a kill can cost."""


def show_ending(screen: Screen, ending: Ending, classic: ClassicRun, findings: Sequence[Finding], *, kept_path: Path | None) -> int:
    """Show the tables and return the exit code; raise `DemoFailed` when anything differs."""
    rows = [(f.what, str(f.differences) if not f.differences else f"DIFFERS {f.differences:,}", f.found) for f in findings]
    screen.table("What was compared", ("", "differences", "found"), rows)
    screen.table(
        "The same change of the same table, two ways",
        ("", "tideshift", "classic rebuild"),
        (
            ("longest stall of a writer", milliseconds(ending.stall_seconds), milliseconds(classic.stall_seconds)),
            ("longest look of the reader", milliseconds(ending.read_stall_seconds), "-"),
            ("took, interruptions included", f"{ending.seconds:.1f} s", f"{classic.lock_seconds:.1f} s"),
            ("rows copied", f"{ending.rows_copied:,}", "all, in one transaction"),
            ("rows per second, without a limit", f"{ending.rows_per_second:,.0f}", "-"),
            ("statements of writers meanwhile", f"{ending.statements:,}, none failed", f"{classic.statements:,}"),
            ("lost by SIGKILL", f"about {ending.rows_per_chunk:,} rows of work", "everything"),
            ("can be paused, slowed, resumed", "yes", "no"),
        ),
    )
    differences = sum(finding.differences for finding in findings)
    if differences:
        raise DemoFailed(f"{differences:,} differences. Nothing may differ: please report this.")
    screen.chapter("Proven: 0 differences", "What to try next:")
    database = kept_path or "my.db"
    if kept_path is not None:
        screen.say(f"The shop stays at {kept_path}.")
    screen.say(f"tideshift plan --url {database} \"ALTER TABLE … ALTER COLUMN … TYPE …\"   shows what would be done, and writes nothing")
    screen.say(f"tideshift alter --url {database} \"…\"   does it; tideshift jobs, pause, resume, cancel, set: while it runs")
    return 0
