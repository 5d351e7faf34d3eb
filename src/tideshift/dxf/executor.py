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
6. What succeeds is written together with the claim of what comes next (`handover`): the executor then ends, and its
   successor goes on with the same connection in the same thread.
7. An executor that is asked to yield gives its subtask back between two chunks, with its checkpoint.
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
from tideshift.dxf.handover.batch import Batch
from tideshift.dxf.handover.succession import Succession
from tideshift.dxf.handover.tables import finish
from tideshift.dxf.machine import SubtaskState, TaskState
from tideshift.dxf.ownership import own_row, see_gone
from tideshift.dxf.pace import Last, Pace, limits_of
from tideshift.dxf.parameters import Limits, threads_per_node
from tideshift.dxf.retries import DISK_FULL_FAILURES_SAID, PASSING, ErrorClass, Retries, error_class
from tideshift.dxf.task import Subtask, Task
from tideshift.dxf.tasktype import Chunk, Registry, Work
from tideshift.dxf.throttle import DISK_FULL, Pause
from tideshift.store.database import ConstraintViolated, Database, Session, Transaction
from tideshift.store.driver import SessionIdentity

__all__ = ["Executor"]

log = logging.getLogger(__name__)
_WORKING = (TaskState.RUNNING, TaskState.MODIFYING)
_GIVEN_BACK: dict[str, Any] = {"exec_id": None, "session": None}


class Executor:
    """The life of one attempt at one subtask; `step` is called by a thread, or by a simulator."""

    def __init__(
        self, database: Database, registry: Registry, task: Task, subtask: Subtask, *, node: str, session: Session, stop: threading.Event,
        succession: Succession | None = None, batch: Batch | None = None,
    ) -> None:  # fmt: skip
        self.database, self.registry = database, registry
        self.task = task
        self.subtask = subtask
        self.node = node
        self.ended = False
        self.lost = False
        """Whether somebody took the subtask from us: its row may still name our session, for the next one to end."""
        self.yields = False
        """Set by the node when the slot is wanted elsewhere."""
        self.successor: Executor | None = None
        self._type = registry.find(task.type)
        self._succession = succession
        self._batch = batch or Batch(begun_at=database.clock.monotonic())
        self._session = session
        self._stop = stop
        self._work: Work | None = None
        self._sharers = 1
        self._refreshed_at = database.clock.monotonic()
        self._retries = Retries(database.clock, database.profile, before=subtask.retries)
        self._pace = Pace(shares_lock=not database.driver.capabilities.concurrent_writers, pulse=None if succession is None else succession.pulse)
        self._ending: tuple[str, dict[str, Any]] | None = None
        self._must_look = False

    @property
    def claimed_ids(self) -> set[int]:
        """Return the subtasks that rows may say run here because of this executor."""
        return {self.subtask.id, *self._batch.ids}

    @property
    def session_record(self) -> dict[str, str]:
        """Return who works here, in the form that stands on a row."""
        return self._session.identity.as_record()

    def note_claim(self, ids: list[int]) -> None:
        """Note what is about to be claimed."""
        self._batch.claiming = ids

    @property
    def limits(self) -> Limits:
        """Return the parameters in force."""
        return limits_of(self.task, self.subtask, sharers=self._sharers)

    def start(self) -> bool:
        """Take the subtask: raise the attempt, record the session; return False when it is not ours to take."""
        if points.BEFORE_START.on:
            points.BEFORE_START.fire(task=self.task.id, subtask=self.subtask.id, node=self.node)
        try:
            with self._session.transaction() as tx:
                lost = self.subtask.session
                if lost is not None and lost != self.session_record:
                    see_gone(tx, self.subtask, SessionIdentity.from_record(lost))
                started = tables.move_subtask(
                    tx, self.subtask, "start", actor=self.node, attempt=self.subtask.attempt + 1,
                    session=self.session_record, exec_id=self.node, start_time=tx.stamp_ms(),
                )  # fmt: skip
                self._sharers = self._count_sharers(tx)
        except (errors.StateChanged, errors.AmbiguousCommit, *PASSING) as error:
            # After an ambiguous commit the row may name us: the node then gives it back, and the next start raises the attempt.
            log.info("subtask %s not started: %s", self.subtask.id, error)
            self.ended = True
            return False
        self.subtask = started
        return True

    def open(self) -> None:
        """Let the type open the work; called once it is known who runs it."""
        if self.subtask.retries >= self.database.profile.error_count_limit:
            self._fail(errors.SubtaskAbandoned(f"{self.subtask.retries} attempts in a row came to nothing", subtask_id=self.subtask.id))
            return
        try:
            self._work = self._type.open(self.task, self.subtask)
        except Exception as error:  # noqa: BLE001 - whatever a type raises is the subtask's failure, and stands on its row
            self._fail(error)

    def step(self) -> bool:
        """Do one chunk, or wait a little when a limit says so; return whether there is more to do."""
        try:
            self._step()
        except Exception as error:  # noqa: BLE001 - whatever a type raises is the subtask's failure, and stands on its row
            self._meet(error)
        return not self.ended

    def _meet(self, error: Exception) -> None:
        if isinstance(error, errors.AmbiguousCommit):
            log.info("subtask %s: %s", self.subtask.id, error)
            self._must_look = True
            return
        match error_class(error, self._type):
            case ErrorClass.CANCEL:
                log.info("subtask %s: %s", self.subtask.id, error)
                self.ended = self.lost = True
            case ErrorClass.RETRYABLE:
                self._count_failure(error)
            case ErrorClass.FATAL:
                self._fail(error)

    def _step(self) -> None:
        if self.ended or self._waits(self._retries.not_before):
            return
        if self._ending is not None:
            self._write_ending(self._ending)
        elif self._must_look:
            self._look_again()
        elif self.yields:
            self._finish("release", {**_GIVEN_BACK, "retries": self._retries.total})
        elif self._may_work():
            assert self._work is not None
            if self._retries.disk_full >= DISK_FULL_FAILURES_SAID:
                self._say_disk_full()
            more = self._work.step(self)
            self._retries.came_on()
            if not more:
                self._succeed()

    def release(self, *, lock_wait_seconds: float | None = None) -> None:
        """Give a running subtask back for anybody to take, with its checkpoint; a lost one stays as it is."""
        if self.ended:
            return
        self._write_ending(("release", {**_GIVEN_BACK, "retries": self._retries.total}), lock_wait_seconds=lock_wait_seconds)
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
        with self._pace.alone(self.limits, self.database.clock):
            yield self._session

    @contextmanager
    def chunk(self, *, write: bool = True) -> Iterator[Chunk]:
        """Open a chunk: its work, then its checkpoint under the attempt, then the commit."""
        if points.BEFORE_CHUNK.on:
            points.BEFORE_CHUNK.fire(task=self.task.id, subtask=self.subtask.id, node=self.node)
        clock = self.database.clock
        if write:
            with self._pace.working(self.limits), self._session.transaction(durable=False, lock_share_percent=self.limits.lock_share_percent) as tx:
                self._assert_recorded()
                begun = clock.monotonic()
                chunk = Chunk(tx=tx, checkpoint=dict(self.subtask.checkpoint))
                yield chunk
                recorded = self._record(tx, chunk)
        else:
            with self._pace.working(self.limits), self._session.transaction(write=False) as tx:
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
        self._pace.last = Last(ended, chunk.held_seconds, chunk.rows, chunk.size_bytes, chunk.urgent)
        if write:
            self._session.relieve()
        if points.AFTER_CHUNK.on:
            points.AFTER_CHUNK.fire(task=self.task.id, subtask=self.subtask.id, node=self.node)

    def _record(self, tx: Transaction, chunk: Chunk) -> Subtask:
        if points.AFTER_CHUNK_WORK.on:
            points.AFTER_CHUNK_WORK.fire(task=self.task.id, subtask=self.subtask.id, node=self.node)
        threads = threads_per_node(self.task, concurrent_writers=self.database.driver.capabilities.concurrent_writers)
        effective = {"threads": threads, **Limits.of(self.task).as_record()}  # what is in force for the task: a write speed is over all its subtasks
        summary = self._pace.summary(
            self.subtask.summary, chunk, effective=effective, limits=self.limits, now=self.database.clock.monotonic(), now_ms=tx.stamp_ms
        )  # fmt: skip
        tables.checkpoint_subtask(tx, self.subtask, checkpoint=chunk.checkpoint, summary=summary)
        if points.AFTER_CHECKPOINT.on:
            points.AFTER_CHECKPOINT.fire(task=self.task.id, subtask=self.subtask.id, node=self.node)
        return replace(self.subtask, checkpoint=chunk.checkpoint, summary=summary, retries=0)

    def _may_work(self) -> bool:
        """Whether a chunk may be done now; otherwise wait a short while, so that a change of limits is noticed."""
        clock, profile = self.database.clock, self.database.profile
        if clock.monotonic() - self._refreshed_at >= profile.refresh_seconds:
            self._refresh()
        due = self._pace.due(self.limits)
        if due is not None and self._waits(due):
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
            own_row(tx, self.subtask)
            self.task = tables.task_by_id(tx, self.task.id)
            self._sharers = self._count_sharers(tx)
        self._refreshed_at = self.database.clock.monotonic()

    def _count_sharers(self, tx: Transaction) -> int:
        if not self._shares:
            return 1  # there is nothing to share
        return max(1, tables.step_counts(tx, self.task.id, self.subtask.step).get(SubtaskState.RUNNING, 1))

    def _assert_recorded(self) -> None:
        """Let no connection work that a taker could not find in the row; asking costs nothing while it is the same one."""
        if self.session_record != self.subtask.session:
            self._must_look = True
            raise errors.ConnectionLost(f"the connection of subtask {self.subtask.id} was made anew")

    def _look_again(self) -> None:
        """After trouble with a connection or commit: end the session that was lost, record the new one, read what was committed."""
        with self._session.transaction() as tx:
            present = self.session_record
            row = own_row(tx, self.subtask)
            if row.session is not None and row.session != present:
                see_gone(tx, self.subtask, SessionIdentity.from_record(row.session))
                tables.record_session(tx, row, present)
                row = own_row(tx, self.subtask)
        self.subtask = row
        self._must_look = False

    def _say_disk_full(self) -> None:
        """Write on the row why nothing moves: a chunk may find no room where these few bytes do. The next chunk takes it off."""
        if self.subtask.summary.get("throttle", {}).get("reason") == DISK_FULL:
            return
        summary = {**self.subtask.summary, "throttle": Pause(0.0, DISK_FULL, None, None).as_record()}
        with self._session.transaction(durable=False) as tx:
            self._assert_recorded()
            tables.checkpoint_subtask(tx, self.subtask, checkpoint=self.subtask.checkpoint, summary=summary)
        self.subtask = replace(self.subtask, summary=summary)

    def _count_failure(self, error: Exception) -> None:
        log.info("subtask %s: a try failed: %s", self.subtask.id, error)
        if not self._retries.note(error):
            self._fail(error)
        elif self._retries.disk_full == DISK_FULL_FAILURES_SAID:
            log.warning("subtask %s of task %s waits for room on the disk: %s", self.subtask.id, self.task.id, error)

    def _fail(self, error: Exception) -> None:
        if isinstance(error, errors.TideshiftError):
            record = error.as_record()
        else:
            log.error("subtask %s failed", self.subtask.id, exc_info=error)
            trace = "".join(traceback.format_exception(error))[-4000:]
            record = {"code": "internal", "message": repr(error), "hint": "", "fields": {"traceback": trace}}
        self._finish("fail", {"error": record, "retries": self._retries.total})

    def _succeed(self) -> None:
        """Go on with the next one that is claimed already, or write what is done and claim again."""
        self._batch.done.append(self.subtask)
        if self._batch.keeps(self.database.clock.monotonic()):
            self._hand_over(self.task)
        else:
            self._finish("succeed")

    def _finish(self, event: str, columns: dict[str, Any] | None = None) -> None:
        self._ending = (event, columns or {})
        self._write_ending(self._ending)

    def _write_ending(self, ending: tuple[str, dict[str, Any]], *, lock_wait_seconds: float | None = None) -> None:
        """Take the last move of this attempt, or try again at a later step; a subtask that is no longer ours is left alone."""
        (event, columns), task, claimed = ending, self.task, list[Subtask]()
        try:
            with self._session.transaction(lock_wait_seconds=lock_wait_seconds) as tx:
                finish(tx, self._batch.done, actor=self.node, session=self.session_record)
                if event != "succeed":
                    tables.move_subtask(tx, own_row(tx, self.subtask), event, actor=self.node, **columns)
                if event == "release":
                    for waiting in self._batch.waiting:
                        tables.move_subtask(tx, waiting, event, actor=self.node, **_GIVEN_BACK)
                elif not self._batch.waiting and self._succession is not None and not self.yields:
                    task, claimed = self._succession.claim(tx, self, limit=self._batch.size)
        except errors.SubtaskLost as error:
            log.info("subtask %s: %s", self.subtask.id, error)
            self.lost = self.ended = True
        except (errors.StateChanged, errors.AmbiguousCommit, ConstraintViolated, *PASSING) as error:
            log.info("subtask %s: %s again after %s", self.subtask.id, event, error)
            if not isinstance(error, ConstraintViolated):  # two threads began the same row of counters: the second one finds it there
                self._retries.back_off()
            if isinstance(error, errors.StateChanged):
                self._settle_each()
        else:
            self._settled(task, claimed, goes_on=event != "release")

    def _settled(self, task: Task, claimed: list[Subtask], *, goes_on: bool) -> None:
        now = self.database.clock.monotonic()
        self._batch.wrote(size_max=1 if self._succession is None or self._shares else self._succession.claims_max)
        if claimed:
            self._batch.claimed(now, claimed)
            self._refreshed_at = now
        if goes_on and self._batch.waiting:
            self._hand_over(task)
        self.ended = True

    @property
    def _shares(self) -> bool:
        return Limits.of(self.task).are_shared

    def _hand_over(self, task: Task) -> None:
        """Let a successor go on with the next claimed subtask, as slowly as the limits ask after our last chunk."""
        assert self._succession is not None
        successor = Executor(
            self.database, self.registry, task, self._batch.waiting.pop(0), node=self.node, session=self._session, stop=self._stop,
            succession=self._succession, batch=self._batch,
        )  # fmt: skip
        successor._sharers, successor._refreshed_at, successor.yields = self._sharers, self._refreshed_at, self.yields
        successor._retries.not_before = self._pace.due(self.limits) or 0.0
        self._succession.adopt(self, successor)
        self.successor, self.ended = successor, True
        successor.open()

    def _settle_each(self) -> None:
        """Write what is done one by one, since one of them is no longer ours; the claimed ones that wait are given back as strays."""
        for one in list(self._batch.done):
            try:
                with self._session.transaction() as tx:
                    finish(tx, [one], actor=self.node, session=self.session_record)
            except errors.StateChanged as error:
                log.info("subtask %s was taken from us: %s", one.id, error)
                self.lost = True
            self._batch.done.remove(one)
        self.ended = self.ended or self.lost
