"""Following a job to its end: one live line on a terminal, else one plain line per change or every ten seconds.

Looking costs the job nothing: one short read every quarter of a second, given up at once when the database is busy.
Where the owner is in this process, it tells when there is something to see, and nobody waits for the next look.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tideshift.errors import Retryable, WaitTimeout
from tideshift.frontends.cli.interruption import Interruption
from tideshift.frontends.cli.output import Screen, count_text, duration_text
from tideshift.frontends.cli.register import is_any_alive

if TYPE_CHECKING:
    from tideshift.connect import Connected

__all__ = ["Follower", "Report", "live_line", "plain_line"]

log = logging.getLogger("tideshift.cli")
LOOK_SECONDS = 0.25
LOOK_SECONDS_MIN = 0.02
LOOK_WAIT_SECONDS = 0.5
PLAIN_SECONDS = 10.0
REPORT_SECONDS = 1.0
NODES_SECONDS = 2.0
BAR_CELLS = 20

Job = dict[str, Any]
Report = Callable[[str, Job], None]
"""Told (event, job): seen, changed, progress, ended."""


class Follower:
    """One command's view of one job, until it is final, the time is over, or somebody interrupts."""

    def __init__(
        self, connected: Connected, screen: Screen, interruption: Interruption, *, timeout_seconds: float | None,
        own_node: bool, report: Report | None = None, tells: bool = True,
    ) -> None:  # fmt: skip
        self.connected = connected
        self.clock = connected.database.clock
        self.screen = screen
        self.interruption = interruption
        self.own_node = own_node
        self.moved: threading.Event | None = None
        self.report = report
        self.tells = tells
        self.deadline = None if timeout_seconds is None else self.clock.monotonic() + timeout_seconds
        self._told: tuple[Any, ...] | None = None
        self._told_at = 0.0
        self._rows_reported: int | None = None
        self._reported_at = 0.0
        self._nodes_at = 0.0
        self._node_seen = True

    def until_final(self, job_id: int) -> Job:
        """Return the job once it is final; raise `WaitTimeout` or `Interrupted`."""
        from tideshift.ddl.machine import JOB

        try:
            while True:  # ends: final, time over, or interrupted
                job = self.look(job_id)
                if job is not None:
                    if self.tells:
                        self._tell(job)
                    if job["state"] in JOB.final:
                        return job
                self.pause_between(f"job {job_id} is kept")
        finally:
            self.screen.clear()

    def until_purged(self, job_id: int) -> bool:
        """See the replaced table away; return whether it is gone before the time is over."""
        from tideshift.ddl.view import purge_pending

        said = False
        while True:  # ends: gone, time over, or interrupted
            try:
                with self.connected.database.transaction(write=False, lock_wait_seconds=LOOK_WAIT_SECONDS) as tx:
                    if not purge_pending(tx, job_id):
                        return True
            except Retryable as error:
                log.debug("job %s: not seen: %s", job_id, error)
            if not said:
                self.screen.message("the change is in place; emptying the replaced table (Ctrl-C leaves it to the next node)")
                said = True
            try:
                self.pause_between("")
            except WaitTimeout:
                return False

    def look(self, job_id: int) -> Job | None:
        """Read the job as it is shown, or None when the database has no time for it now."""
        from tideshift.ddl import tables, view

        try:
            with self.connected.database.transaction(write=False, lock_wait_seconds=LOOK_WAIT_SECONDS) as tx:
                return view.job_view(tx, self.connected.dialect, tables.job_by_id(tx, job_id))
        except Retryable as error:
            log.debug("job %s: not seen: %s", job_id, error)
            return None

    def pause_between(self, what: str) -> None:
        """Wait until the next look."""
        if self.deadline is not None and self.clock.monotonic() >= self.deadline:
            raise WaitTimeout(f"the time is over; {what}")
        self.interruption.wait(self.clock, LOOK_SECONDS_MIN)
        self.interruption.wait(self.clock, LOOK_SECONDS - LOOK_SECONDS_MIN, wake=self.moved)
        if self.moved is not None:
            self.moved.clear()

    # ── telling ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _tell(self, job: Job) -> None:
        now = self.clock.monotonic()
        key = (job["state"], job["schema_state"], job["stage"], job["pause_reason"])
        changed = key != self._told
        self._report(job, changed=changed, now=now)
        if changed:
            log.debug("%s", plain_line(job), extra={"job": job["id"]})
        if self.screen.is_live:
            self.screen.show(live_line(job, width=self.screen.width))
        elif changed or now - self._told_at >= PLAIN_SECONDS:
            self.screen.message(plain_line(job))
            self._told_at = now
        if changed and job["state"] == "paused":
            self.screen.message(f"job {job['id']} is paused ({job['pause_reason']}); {way_on(job)}")
        self._told = key
        self._watch_nodes(now)

    def _report(self, job: Job, *, changed: bool, now: float) -> None:
        from tideshift.ddl.machine import JOB

        if self.report is None:
            return
        moved = job["row_count"] != self._rows_reported and now - self._reported_at >= REPORT_SECONDS
        if not changed and not moved:
            return
        event = "ended" if job["state"] in JOB.final else "seen" if self._told is None else "changed" if changed else "progress"
        self._rows_reported, self._reported_at = job["row_count"], now
        self.report(event, job)

    def _watch_nodes(self, now: float) -> None:
        """Say once when the last node is gone, while somebody else's node is what carries the job out."""
        if self.own_node or now - self._nodes_at < NODES_SECONDS:
            return
        self._nodes_at = now
        alive = is_any_alive(self.connected, when_busy=self._node_seen)
        if self._node_seen and not alive:
            self.screen.warn("no node is alive, so the job stands still; start one with: tideshift node")
        self._node_seen = alive


def way_on(job: Job) -> str:
    """Return what lets a paused job go on; a copy's jobs wait for a word on the copy first."""
    from tideshift.ddl.permission import COPIED

    if job["pause_reason"] == COPIED:
        return "let the jobs of this copy go on with: tideshift doctor --adopt; or undo them: tideshift doctor --clean"
    return f"go on with: tideshift resume {job['id']}"


def live_line(job: Job, *, width: int) -> str:
    """Return the one line of a terminal: schema state, rows, percent, rows/s, ETA, what slows it; bar and stage where they fit."""
    filled = min(BAR_CELLS, int(BAR_CELLS * job["percent"] / 100))
    bar = "█" * filled + "░" * (BAR_CELLS - filled) + " "
    numbers = [_rows(job), f"{count_text(job['rows_per_second'])} rows/s", f"ETA {duration_text(job['eta_seconds'])}", *_slowed(job)]
    name, percent = f"job {job['id']}", f"{job['percent']:.1f} %"
    forms = (
        [f"{name} {job['state']}", job["schema_state"], bar + percent, *numbers, job["stage"] or ""],
        [f"{name} {job['state']}", job["schema_state"], bar + percent, *numbers],
        [f"{name} {job['state']}", job["schema_state"], percent, *numbers],
        [name, job["schema_state"], percent, *numbers],
    )
    lines = [" · ".join(part for part in form if part) for form in forms]
    return next((line for line in lines if len(line) <= width), lines[-1])


def plain_line(job: Job) -> str:
    """Return the same for a log."""
    parts = [f"{job['state']}", f"schema state {job['schema_state']}"]
    if job["stage"]:
        parts.append(job["stage"])
    parts += [f"{job['percent']:.1f} %", f"{_rows(job)} rows"]
    if job["rows_per_second"] is not None:
        parts.append(f"{count_text(job['rows_per_second'])} rows/s")
    if job["eta_seconds"] is not None:
        parts.append(f"{duration_text(job['eta_seconds'])} left")
    return f"job {job['id']}: " + ", ".join([*parts, *_slowed(job)])


def _rows(job: Job) -> str:
    about = "" if job["row_total_exact"] else "~"
    return f"{count_text(job['row_count'])}/{about}{count_text(job['row_total'])}"


def _slowed(job: Job) -> list[str]:
    found: list[str] = []
    if job["throttle"] is not None:
        limit = job["throttle"]["limit"]
        found.append(f"slowed by {job['throttle']['reason']}" + ("" if limit is None else f" {limit:g}"))
    if job["error"] is not None and job["state"] == "running":
        found.append(f"tries again after {job['error']['code']}")
    return found
