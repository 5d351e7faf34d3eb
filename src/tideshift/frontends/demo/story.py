"""The order of events: a busy shop, the classic way, the online way with its interruptions, the proof, the summary."""

from __future__ import annotations

import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import TextIO

from tideshift.connect import connect
from tideshift.dialects.sqlite.library import library_warnings, sqlite_library
from tideshift.frontends.demo import ROWS_MIN, Pace, points
from tideshift.frontends.demo.activity import Activity
from tideshift.frontends.demo.classic import ClassicRun, copy_shop, run_classic
from tideshift.frontends.demo.crowd import Crowd
from tideshift.frontends.demo.ending import Ending, show_ending
from tideshift.frontends.demo.job import COPYING, WatchedJob
from tideshift.frontends.demo.processes import DemoFailed, Processes
from tideshift.frontends.demo.proof import prove
from tideshift.frontends.demo.screen import Figures, Screen, Watched, milliseconds, open_screen
from tideshift.frontends.demo.shop import CHANGE, build, largest_amounts, open_shop, schema

__all__ = ["tell"]

TICK_SECONDS = 0.1
ROWS_FOR_FULL_SPEED = 100_000
"""Smaller tables are copied slower than could be, so that there is something to see and to interrupt."""


def tell(rows: int, *, folder: Path | None, stream: TextIO | None, seconds_max: float | None, pace: Pace) -> int:
    """Run the whole demonstration and return its exit code."""
    screen = open_screen(stream)
    # Where one stream was given, everything goes there; else what went wrong goes where errors do.
    complain = partial(print, file=stream or sys.stderr, flush=True)
    if rows < ROWS_MIN:
        complain(f"error: the demonstration wants at least {ROWS_MIN:,} rows, not {rows:,}")
        return 2
    if folder is not None and folder.exists() and any(folder.iterdir()):
        complain(f"error: {folder} is not empty; name another folder")
        return 2
    with _interruptible():
        try:
            with _folder(folder) as place, Processes() as processes, screen:
                deadline = time.monotonic() + (seconds_max if seconds_max is not None else 120 + rows / 1_500)
                return Story(rows, place, processes, screen, pace=pace, deadline=deadline, kept=folder is not None).run()
        except DemoFailed as error:
            complain(f"error: the demonstration failed: {error}")
            return 1
        except KeyboardInterrupt:
            complain("Interrupted: every process is stopped" + (", the temporary folder is gone." if folder is None else "."))
            return 130


@contextmanager
def _folder(folder: Path | None) -> Iterator[Path]:
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="tideshift-demo-", ignore_cleanup_errors=True) as name:
        yield Path(name)


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C or SIGTERM end the demonstration once, and nothing disturb the cleaning up; only a main thread can."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(*_: object) -> None:
        for number in before:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, former in before.items():
            signal.signal(number, former)


class Story:
    """One run of the demonstration."""

    def __init__(self, rows: int, folder: Path, processes: Processes, screen: Screen, *, pace: Pace, deadline: float, kept: bool) -> None:
        self.rows = rows
        self.path = folder / "shop.db"
        self.url = f"sqlite:///{self.path}"
        self.processes = processes
        self.screen = screen
        self.pace = pace
        self.kept = kept
        self._deadline = deadline
        self._pacing = threading.Event()

    def run(self) -> int:
        """Tell the story; return the exit code."""
        schema_before = self._open_the_shop()
        classic = self._classic()
        self.screen.chapter("The same change, online", f"tideshift alter '{CHANGE}'")
        crowd = Crowd(self.processes, self.path, rows=self.rows, name="shop")
        crowd.start()
        with connect(self.url, actor="demo") as connected:
            connected.bootstrap()
            job = WatchedJob(connected, self.processes, self.path.parent / "worker.log")
            self._watch(crowd, lambda: crowd.writers.count > 50, seconds_max=20)
            ending = self._online(crowd, job)
        crowd.stop()
        self.screen.clear()
        self._say_what_changed()
        if points.BEFORE_PROOF.on:
            points.BEFORE_PROOF.fire(folder=str(self.path.parent))
        self.screen.chapter("Proof", "The shop is compared with a model built from nothing but the writers' own logs.")
        findings = prove(self.path, rows=self.rows, log_paths=crowd.log_paths, schema_before=schema_before)
        return show_ending(self.screen, ending, classic, findings, kept_path=self.path if self.kept else None)

    # ── before ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _open_the_shop(self) -> dict[tuple[str, str], str | None]:
        module, version = sqlite_library()
        self.screen.chapter("A busy shop", f"SQLite {module.sqlite_version} in WAL mode, synchronous NORMAL; {self.rows:,} orders whose amounts are texts.")
        for warning in library_warnings(journal_mode="wal", version=version):
            self.screen.say(f"Note: {warning}")
        begun = time.monotonic()
        build(self.path, self.rows)
        size_mib = self.path.stat().st_size / (1 << 20)
        self.screen.say(
            f"Made in {time.monotonic() - begun:.1f} s: {size_mib:.0f} MiB, two indexes, foreign keys in and out, a trigger, a view."
        )
        with closing(open_shop(self.path)) as connection:
            self.screen.say(f"Its largest amounts, as the database sorts texts: {', '.join(largest_amounts(connection))}. That is the problem.")
            return schema(connection)

    def _classic(self) -> ClassicRun:
        self.screen.chapter("The classic way, on a copy", "New table, INSERT … SELECT, DROP, RENAME, indexes again: one transaction.")
        copy = self.path.with_name("classic.db")
        copy_shop(self.path, copy)
        classic = run_classic(
            copy, rows=self.rows, seconds_around=self.pace.classic_seconds, processes=self.processes, watch=self._watch_activities
        )
        for left in copy.parent.glob("classic*"):
            left.unlink()
        self.screen.clear()
        self.screen.say(f"It held the lock for {classic.lock_seconds:.2f} s; a writer waited {milliseconds(classic.stall_seconds)}.")
        return classic

    # ── the online change ─────────────────────────────────────────────────────────────────────────────────────────

    def _online(self, crowd: Crowd, job: WatchedJob) -> Ending:
        crowd.writers.start_again()
        begun = time.monotonic()
        gentle = f"{max(100, self.rows // 10)}rows"
        job.submit(max_write_speed=gentle)
        job.start_worker(self.url)
        self.screen.say(f"Job {job.job_id} is recorded, {job.view['strategy'].replace('_', ' ')}; a worker process takes it, at {gentle}/s at first.")
        self._follow(crowd, job, lambda: job.phase == COPYING and job.share_copied >= 0.1)
        self._pause_and_resume(crowd, job)
        self._kill(crowd, job)
        copied_from, since = job.view["row_count"], time.monotonic()
        job.set_speed("none")
        self._follow(crowd, job, lambda: job.phase != COPYING)
        rows_per_second = (job.view["row_count"] - copied_from) / max(0.1, time.monotonic() - since)
        self._follow(crowd, job, lambda: job.finished)
        seconds = time.monotonic() - begun
        self._stop_worker(job)
        return Ending(
            seconds=seconds, rows_copied=job.view["row_count"], rows_per_second=rows_per_second, statements=crowd.writers.count,
            stall_seconds=crowd.writers.longest_seconds, read_stall_seconds=crowd.reader.longest_seconds, rows_per_chunk=self._rows_per_chunk,
        )  # fmt: skip

    def _pause_and_resume(self, crowd: Crowd, job: WatchedJob) -> None:
        job.ask(job.connected.ddl.pause)
        self._follow(crowd, job, lambda: job.view["state"] == "paused")
        rows, statements = job.view["row_count"], crowd.writers.count
        self._follow(crowd, job, lambda: False, seconds=self.pace.paused_seconds)
        if job.view["row_count"] != rows:
            raise DemoFailed(f"the job is paused and went on from {rows:,} to {job.view['row_count']:,} rows")
        self.screen.say(f"Paused for {self.pace.paused_seconds:g} s: still {rows:,} rows, while the writers made {crowd.writers.count - statements:,} statements.")
        slow = max(50, self.rows // 40)
        job.set_speed(f"{slow}rows")
        job.ask(job.connected.ddl.resume)
        self._follow(crowd, job, lambda: job.view["row_count"] > rows)
        rows, since = job.view["row_count"], time.monotonic()
        self._follow(crowd, job, lambda: False, seconds=self.pace.slow_seconds)
        measured = (job.view["row_count"] - rows) / (time.monotonic() - since)
        self.screen.say(f"Resumed with max_write_speed={slow:,}rows: measured {measured:,.0f} rows/s.")

    def _kill(self, crowd: Crowd, job: WatchedJob) -> None:
        lifted = "none" if self.rows >= ROWS_FOR_FULL_SPEED else f"{self.rows // 4}rows"
        job.set_speed(lifted)
        self._follow(crowd, job, lambda: job.share_copied >= 0.45 or job.phase != COPYING)
        if job.phase != COPYING:
            raise DemoFailed("the copy was over before the worker could be killed in it")
        self._rows_per_chunk = job.rows_per_chunk()
        job.kill_worker()
        job.look()
        rows, since = job.view["row_count"], time.monotonic()
        self.screen.say(f"The limit is lifted; the worker is killed (SIGKILL) at {rows:,} rows. Another one starts.")
        if points.AFTER_KILL.on:
            points.AFTER_KILL.fire(folder=str(self.path.parent))
        job.start_worker(self.url)
        least = rows

        def goes_on() -> bool:
            nonlocal least
            least = min(least, job.view["row_count"])
            return bool(job.view["row_count"] > rows or job.phase != COPYING)

        self._follow(crowd, job, goes_on)
        if least < rows:
            raise DemoFailed(f"{rows - least:,} rows that were committed were done again after the kill")
        self.screen.say(
            f"It went on after {time.monotonic() - since:.1f} s from {rows:,} rows. Done again: the chunk in flight,"
            f" about {self._rows_per_chunk:,} rows; nothing that was committed."
        )

    def _stop_worker(self, job: WatchedJob) -> None:
        assert job.worker is not None
        worker, job.worker = job.worker, None
        (code,) = self.processes.stop(worker)
        if code != 0:
            raise DemoFailed(f"the worker ended with {code}; see {job.log_path}")

    def _say_what_changed(self) -> None:
        with closing(open_shop(self.path)) as connection:
            self.screen.say(f"The largest amounts now, as the database sorts numbers: {', '.join(largest_amounts(connection))}.")

    # ── watching ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _follow(self, crowd: Crowd, job: WatchedJob, over: Callable[[], bool], *, seconds: float | None = None) -> None:
        """Show the job until something is so, or for some seconds."""

        def figures() -> Figures:
            shown = job.look()
            if news := job.news():
                self.screen.say(news)
            return shown

        self._ticks(crowd.look, crowd.writers, crowd.reader, over, figures=figures, seconds=seconds)

    def _watch(self, crowd: Crowd, over: Callable[[], bool], *, seconds_max: float) -> None:
        self._ticks(crowd.look, crowd.writers, crowd.reader, over, seconds=seconds_max)

    def _watch_activities(self, writers: Activity, reader: Activity, over: Callable[[], bool], seconds_max: float) -> None:
        def look() -> None:
            writers.look()
            reader.look()

        self._ticks(look, writers, reader, over, seconds=seconds_max)

    def _ticks(
        self, look: Callable[[], None], writers: Activity, reader: Activity, over: Callable[[], bool], *,
        figures: Callable[[], Figures] | None = None, seconds: float | None = None,
    ) -> None:  # fmt: skip
        until = None if seconds is None else time.monotonic() + seconds
        while until is None or time.monotonic() < until:
            look()
            self.screen.show(Watched(writers, reader), None if figures is None else figures())
            if over():
                return
            if time.monotonic() > self._deadline:
                raise DemoFailed("the time for the demonstration is over; a slower machine may want fewer rows")
            self._pacing.wait(TICK_SECONDS)
