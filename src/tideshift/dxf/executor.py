"""Runs one subtask on this node: chunk by chunk, each with its checkpoint, until it ends or is no longer ours.

States of an executor: not started, running, ended. Rules:
1. Starting raises the attempt and records who runs it, committed before any work.
2. A chunk's checkpoint is the last statement before the commit and names the attempt: a frozen or deposed executor
   cannot commit anything once somebody else raised the attempt, or the owner paused or cancelled the subtask.
3. After a commit whose answer was lost the checkpoint is read back, never assumed; when the connection was made anew,
   the session that was lost is ended and seen gone before that, and the new one is recorded before it works.
4. An error that passes is retried with back-off; one that does not fails the subtask with its record. A lock, a
   connection and room on the disk are waited for: that is no fault of the subtask.
5. A move that ends the attempt is written again until the database has answered.
"""

from __future__ import annotations

import logging
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from tideshift import errors
from tideshift.dxf import points, tables
from tideshift.dxf.machine import SubtaskState, TaskState
from tideshift.dxf.parameters import Limits
from tideshift.dxf.task import Subtask, Task
from tideshift.dxf.tasktype import Chunk, Registry, Work
from tideshift.dxf.throttle import DISK_FULL, NO_PAUSE, Pause, pause_after
from tideshift.store.database import Database, Session, Transaction
from tideshift.store.driver import SessionIdentity

__all__ = ["Executor"]

log = logging.getLogger(__name__)
_WORKING = (TaskState.RUNNING, TaskState.MODIFYING)
_WAITED_FOR = (errors.ConnectionLost, errors.CannotReach, errors.LockTimeout, errors.DiskFull)
"""What is no fault of the subtask, and passes or needs a person: waited for without a limit, with back-off."""
DISK_FULL_FAILURES_SAID = 4
"""How many tries in a row a full disk may pass for a moment's trouble; then it is said where people look."""
_PASSING = (errors.Retryable, errors.CannotReach, errors.DiskFull)


class Executor:
    """The life of one attempt at one subtask; `step` is called by a thread, or by a simulator."""

    def __init__(
        self, database: Database, registry: Registry, task: Task, subtask: Subtask, *, node: str, session: Session, stop: threading.Event
    ) -> None:
        self.database = database
        self.task = task
        self.subtask = subtask
        self.node = node
        self.ended = False
        self.lost = False
        """Whether somebody took the subtask from us: its row may still name our session, for the next one to end."""
        self._type = registry.find(task.type)
        self._session = session
        self._stop = stop
        self._work: Work | None = None
        self._sharers = 1
        self._refreshed_at = database.clock.monotonic()
        self._since_ms: int | None = None
        self._failures = 0
        self._disk_full_failures = 0
        self._not_before = 0.0
        self._last: tuple[float, float, int, int] | None = None
        self._ending: tuple[str, dict[str, Any]] | None = None
        self._must_look = False

    @property
    def limits(self) -> Limits:
        """Return the parameters in force; a chunk never holds more than a second's worth of a write speed."""
        limits = Limits.of(self.task, sharers=self._sharers)
        rows_max = limits.batch_size_rows
        if limits.write_rows_per_second_max is not None:
            rows_max = min(rows_max, limits.write_rows_per_second_max)
        if limits.write_bytes_per_second_max is not None and self.subtask.summary.get("row_count"):
            mean = max(1, self.subtask.summary.get("bytes", 0) // self.subtask.summary["row_count"])
            rows_max = min(rows_max, max(1, limits.write_bytes_per_second_max // mean))
        return replace(limits, batch_size_rows=rows_max)

    def start(self) -> bool:
        """Take the subtask: raise the attempt, record the session; return False when it is not ours to take."""
        if points.BEFORE_START.on:
            points.BEFORE_START.fire(task=self.task.id, subtask=self.subtask.id, node=self.node)
        try:
            with self._session.transaction() as tx:
                lost = self.subtask.session
                if lost is not None and lost != self._session.identity.as_record():
                    self._see_gone(tx, SessionIdentity.from_record(lost))
                started = tables.move_subtask(
                    tx, self.subtask, "start", actor=self.node, attempt=self.subtask.attempt + 1,
                    session=self._session.identity.as_record(), exec_id=self.node, start_time=tx.now_ms(),
                )  # fmt: skip
                self._sharers = self._count_sharers(tx)
        except (errors.StateChanged, errors.AmbiguousCommit, *_PASSING) as error:
            # After an ambiguous commit the row may name us: the node then gives it back, and the next start raises the attempt.
            log.info("subtask %s not started: %s", self.subtask.id, error)
            self.ended = True
            return False
        self.subtask = started
        try:
            self._work = self._type.open(self.task, self.subtask)
        except Exception as error:  # noqa: BLE001 - whatever a type raises is the subtask's failure, and stands on its row
            self._fail_unexpectedly(error)
        return True

    def step(self) -> bool:
        """Do one chunk, or wait a little when a limit says so; return whether there is more to do."""
        try:
            self._step()
        except errors.SubtaskLost as lost:
            log.info("subtask %s: %s", self.subtask.id, lost)
            self.ended = self.lost = True
        except errors.AmbiguousCommit as error:
            log.info("subtask %s: %s", self.subtask.id, error)
            self._must_look = True
        except _PASSING as error:
            self._count_failure(error)
        except errors.TideshiftError as error:
            self._fail(error.as_record())
        except Exception as error:  # noqa: BLE001 - as above
            self._fail_unexpectedly(error)
        return not self.ended

    def _step(self) -> None:
        if self.ended or self._waits(self._not_before):
            return
        if self._ending is not None:
            self._write_ending(self._ending)
        elif self._must_look:
            self._look_again()
        elif self._may_work():
            assert self._work is not None
            if self._disk_full_failures >= DISK_FULL_FAILURES_SAID:
                self._say_disk_full()
            more = self._work.step(self)
            self._failures = self._disk_full_failures = 0
            if not more:
                self._finish("succeed")

    def release(self, *, lock_wait_seconds: float | None = None) -> None:
        """Give a running subtask back for anybody to take, with its checkpoint; a lost one stays as it is."""
        if self.ended:
            return
        self._write_ending(("release", {"exec_id": None, "session": None}), lock_wait_seconds=lock_wait_seconds)
        self.ended = True

    def rest(self) -> None:
        """Give back the memory of the connection, which others use next; one that is broken keeps nothing."""
        try:
            self._session.rest()
        except errors.TideshiftError as error:
            log.info("subtask %s: %s", self.subtask.id, error)

    def discard_session(self) -> None:
        """Close the connection for good instead of giving it back to the pool."""
        self._session.connection.invalidate()

    @property
    def is_interruptible(self) -> bool:
        """Whether a statement of its work may be ended by `interrupt`."""
        return not self.ended and getattr(self._work, "interruptible", False)

    def interrupt(self) -> None:
        """End the statement that runs now; called by another thread. Whatever it hits is taken for an error that passes."""
        self.database.driver.interrupt(self._session.connection)

    @contextmanager
    def alone(self) -> Iterator[Session]:
        """Give the connection outside any transaction, once it stands on the subtask's row."""
        self._assert_recorded()
        yield self._session

    @contextmanager
    def chunk(self, *, write: bool = True) -> Iterator[Chunk]:
        """Open a chunk: its work, then its checkpoint under the attempt, then the commit."""
        if points.BEFORE_CHUNK.on:
            points.BEFORE_CHUNK.fire(task=self.task.id, subtask=self.subtask.id, node=self.node)
        clock = self.database.clock
        if write:
            with self._session.transaction(durable=False, lock_share_percent=self.limits.lock_share_percent) as tx:
                self._assert_recorded()
                begun = clock.monotonic()
                chunk = Chunk(tx=tx, checkpoint=dict(self.subtask.checkpoint))
                yield chunk
                recorded = self._record(tx, chunk)
        else:
            with self._session.transaction(write=False) as tx:
                self._assert_recorded()
                begun = clock.monotonic()
                chunk = Chunk(tx=tx, checkpoint=dict(self.subtask.checkpoint))
                yield chunk
            asked = clock.monotonic()
            with self._session.transaction(durable=False) as tx:
                begun += clock.monotonic() - asked  # who waits for the write lock holds nothing and need not rest for it
                recorded = self._record(tx, chunk)
        self.subtask = recorded
        ended = clock.monotonic()
        chunk.held_seconds = ended - begun
        self._last = (ended, chunk.held_seconds, chunk.rows, chunk.size_bytes)
        if write:
            self._session.relieve()
        if points.AFTER_CHUNK.on:
            points.AFTER_CHUNK.fire(task=self.task.id, subtask=self.subtask.id, node=self.node)

    def _record(self, tx: Transaction, chunk: Chunk) -> Subtask:
        if points.AFTER_CHUNK_WORK.on:
            points.AFTER_CHUNK_WORK.fire(task=self.task.id, subtask=self.subtask.id, node=self.node)
        summary = dict(self.subtask.summary)
        for name, value in {"row_count": chunk.rows, "bytes": chunk.size_bytes, "chunks": 1, **(chunk.counters or {})}.items():
            summary[name] = summary.get(name, 0) + value
        effective = Limits.of(self.task).as_record()  # what is in force for the task: a write speed is over all its subtasks
        if summary.get("effective") != effective or self._since_ms is None:
            self._since_ms = tx.now_ms()
            summary["effective"], summary["since"] = effective, self._since_ms
        summary["throttle"] = self._pause().as_record()
        if self._last is not None:  # One chunk behind: how long this one takes is known when it is committed.
            for name, seconds in (("held_seconds", self._last[1]), ("paused_seconds", self._pause().seconds)):
                summary[name] = round(summary.get(name, 0.0) + seconds, 4)
        if self._last is not None:
            summary["rows_per_second"] = self._rate(chunk.rows, summary.get("rows_per_second", 0.0), since=self._last[0])
        tables.checkpoint_subtask(tx, self.subtask, checkpoint=chunk.checkpoint, summary=summary)
        if points.AFTER_CHECKPOINT.on:
            points.AFTER_CHECKPOINT.fire(task=self.task.id, subtask=self.subtask.id, node=self.node)
        return replace(self.subtask, checkpoint=chunk.checkpoint, summary=summary)

    def _rate(self, rows: int, before: float, *, since: float) -> float:
        """Return the speed of late, pauses included: an average that forgets over about ten chunks."""
        now = rows / max(self.database.clock.monotonic() - since, 1e-3)
        return round(now if before == 0 else 0.9 * before + 0.1 * now, 1)

    def _pause(self) -> Pause:
        if self._last is None:
            return NO_PAUSE
        _, held, rows, size_bytes = self._last
        shares_lock = not self.database.driver.capabilities.concurrent_writers
        return pause_after(self.limits, held_seconds=held, rows=rows, size_bytes=size_bytes, shares_lock=shares_lock)

    def _may_work(self) -> bool:
        """Whether a chunk may be done now; otherwise wait a short while, so that a change of limits is noticed."""
        clock, profile = self.database.clock, self.database.profile
        if clock.monotonic() - self._refreshed_at >= profile.refresh_seconds:
            self._refresh()
        if self._last is not None and self._waits(self._last[0] + self._pause().seconds):
            return False
        return self.task.state in _WORKING or not self._waits(clock.monotonic() + profile.refresh_seconds / 4)

    def _waits(self, due: float) -> bool:
        """Wait towards a moment, for a short while only so that a change is noticed; return whether there was anything to wait for."""
        clock = self.database.clock
        waiting = due - clock.monotonic()
        if waiting <= 0:
            return False
        clock.wait(self._stop, min(waiting, self.database.profile.refresh_seconds / 2))
        return True

    def _refresh(self) -> None:
        """Read the task again: its parameters, how many share its write speed, and whether the subtask is still ours."""
        with self._session.transaction(write=False) as tx:
            self._own_row(tx)
            self.task = tables.task_by_id(tx, self.task.id)
            self._sharers = self._count_sharers(tx)
        self._refreshed_at = self.database.clock.monotonic()

    def _count_sharers(self, tx: Transaction) -> int:
        return max(1, tables.step_counts(tx, self.task.id, self.subtask.step).get(SubtaskState.RUNNING, 1))

    def _own_row(self, tx: Transaction) -> Subtask:
        """Read the subtask's row while this attempt runs it; raise `SubtaskLost` when it does not any more."""
        try:
            row = tables.subtask_by_id(tx, self.subtask.id)
        except errors.NotFound as error:
            raise errors.SubtaskLost(f"subtask {self.subtask.id} is finished") from error
        if row.attempt != self.subtask.attempt or row.state is not SubtaskState.RUNNING:
            raise errors.SubtaskLost(f"subtask {row.id} was taken from us", subtask_id=row.id, attempt=self.subtask.attempt)
        return row

    def _assert_recorded(self) -> None:
        """Let no connection work that a taker could not find in the row; asking costs nothing while it is the same one."""
        if self._session.identity.as_record() != self.subtask.session:
            self._must_look = True
            raise errors.ConnectionLost(f"the connection of subtask {self.subtask.id} was made anew")

    def _look_again(self) -> None:
        """After trouble with a connection or commit: end the session that was lost, record the new one, read what was committed."""
        with self._session.transaction() as tx:
            present = self._session.identity.as_record()
            row = self._own_row(tx)
            if row.session is not None and row.session != present:
                self._see_gone(tx, SessionIdentity.from_record(row.session))
                tables.record_session(tx, row, present)
                row = self._own_row(tx)
        self.subtask = row
        self._must_look = False

    def _see_gone(self, tx: Transaction, lost: SessionIdentity) -> None:
        driver = self.database.driver
        if not driver.capabilities.ends_sessions:
            return
        driver.end_session(tx.connection, lost)
        if not driver.session_gone(tx.connection, lost):
            raise errors.ConnectionLost(f"the lost session of subtask {self.subtask.id} is not gone yet")

    def _say_disk_full(self) -> None:
        """Write on the row why nothing moves: a chunk may find no room where these few bytes do. The next chunk takes it off."""
        if self.subtask.summary.get("throttle", {}).get("reason") == DISK_FULL:
            return
        summary = {**self.subtask.summary, "throttle": Pause(0.0, DISK_FULL, None, None).as_record()}
        with self._session.transaction(durable=False) as tx:
            self._assert_recorded()
            tables.checkpoint_subtask(tx, self.subtask, checkpoint=self.subtask.checkpoint, summary=summary)
        self.subtask = replace(self.subtask, summary=summary)

    def _count_failure(self, error: errors.TideshiftError) -> None:
        self._failures += 1
        if isinstance(error, errors.DiskFull):
            self._disk_full_failures += 1
            if self._disk_full_failures == DISK_FULL_FAILURES_SAID:
                log.warning("subtask %s of task %s waits for room on the disk: %s", self.subtask.id, self.task.id, error)
        log.info("subtask %s: try %s failed: %s", self.subtask.id, self._failures, error)
        if self._failures >= self.database.profile.error_count_limit and not isinstance(error, _WAITED_FOR):
            self._fail(error.as_record())
        else:
            self._back_off()

    def _back_off(self) -> None:
        doublings = min(self._failures, 16)
        back_off = min(0.05 * 2**doublings, self.database.profile.retry_seconds_max)
        self._not_before = self.database.clock.monotonic() + back_off

    def _fail_unexpectedly(self, error: Exception) -> None:
        log.error("subtask %s failed", self.subtask.id, exc_info=error)
        trace = "".join(traceback.format_exception(error))[-4000:]
        self._fail({"code": "internal", "message": repr(error), "hint": "", "fields": {"traceback": trace}})

    def _fail(self, record: dict[str, Any]) -> None:
        self._finish("fail", error=record, retries=self.subtask.retries + self._failures)

    def _finish(self, event: str, **columns: Any) -> None:
        self._ending = (event, columns)
        self._write_ending(self._ending)

    def _write_ending(self, ending: tuple[str, dict[str, Any]], *, lock_wait_seconds: float | None = None) -> None:
        """Take the last move of this attempt, or try again at a later step; a subtask that is no longer ours is left alone."""
        event, columns = ending
        try:
            with self._session.transaction(lock_wait_seconds=lock_wait_seconds) as tx:
                tables.move_subtask(tx, self._own_row(tx), event, actor=self.node, **columns)
        except errors.SubtaskLost as error:
            log.info("subtask %s: %s", self.subtask.id, error)
            self.lost = True
        except (errors.StateChanged, errors.AmbiguousCommit, *_PASSING) as error:
            log.info("subtask %s: %s again after %s", self.subtask.id, event, error)
            self._failures += 1
            self._back_off()
            return
        self.ended = True
