"""The one owner: holds the lease and ticks its duties, each under the tenure that the lease gave.

An owner believes in its lease only for the trust window, counted from before the last renewal was sent. A duty writes
nothing that is not guarded by the tenure, so even an owner that believes too long cannot overwrite its successor.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from tideshift import errors
from tideshift.store.database import Database
from tideshift.store.driver import SessionIdentity
from tideshift.store.lease import Lease, Tenure

__all__ = ["Duty", "Owner"]

log = logging.getLogger(__name__)


class Duty(Protocol):
    """Something that only the owner does, a little at a time."""

    def tick(self, tenure: Tenure) -> bool:
        """Do a bounded piece of work; return whether there was any, so that the next tick comes at once."""
        ...


@runtime_checkable
class Hastened(Protocol):
    """A duty that can look at a single task out of turn."""

    def hasten(self, task_id: int, tenure: Tenure) -> bool:
        """Do what there is to do for this task; return whether it went on, so that nothing is left for a tick."""
        ...


class Owner:
    """One candidate for ownership; `tick` is called by a thread, or by a simulator."""

    def __init__(self, database: Database, *, holder: str, duties: Sequence[Duty]) -> None:
        self.lease = Lease(database, holder=holder)
        self.database = database
        self.duties = tuple(duties)
        self.tenure: Tenure | None = None
        self._renewed_at = 0.0
        self._renewing = threading.Lock()

    def tick(self) -> bool:
        """Hold or win the lease, then do every duty once; return whether there was anything to do."""
        if not self._lead():
            return False
        worked = False
        for duty in self.duties:
            tenure = self.tenure
            if tenure is None or not self.lease.holds(tenure):
                return worked
            try:
                worked |= duty.tick(tenure)
            except (errors.StateChanged, errors.Retryable, errors.AmbiguousCommit) as error:
                log.info("%s: again after %s", type(duty).__name__, error)
            except Exception:
                # One duty that fails must not keep the others from their work; it is tried again at the next tick.
                log.exception("%s failed", type(duty).__name__)
        return worked

    def hasten(self, task_id: int) -> bool:
        """Let the duties look at one task now, in the thread of whoever finished a piece of it; return whether all is done that there was.

        It may run beside a tick: of two that write the same move one loses, as with two owners.
        """
        tenure = self.tenure
        if tenure is None or not self.lease.holds(tenure):
            return False
        try:
            return any(duty.hasten(task_id, tenure) for duty in self.duties if isinstance(duty, Hastened))
        except errors.TideshiftError as error:
            log.info("task %s: left to the next tick: %s", task_id, error)
            return False

    def renew(self) -> None:
        """Renew the lease when it is time; the heartbeat calls it too, so that a long duty does not lose the lease."""
        with self._renewing:
            self._renew()

    def _renew(self) -> None:
        """Renew when the last renewal is old, and also when it is too old to be believed: the lease itself lasts longer."""
        clock, tenure = self.database.clock, self.tenure
        if tenure is None or clock.monotonic() - self._renewed_at < self.database.profile.heartbeat_seconds:
            return
        before = clock.monotonic()
        try:
            if not self.lease.renew(tenure):
                log.warning("the lease is over or went to somebody else")
                self.tenure = None
                return
        except errors.Retryable as error:
            log.info("the lease was not renewed yet: %s", error)  # Also while a long transaction of this very process keeps everybody waiting.
            return
        except (errors.AmbiguousCommit, errors.CannotReach, errors.DiskFull) as error:
            log.warning("the lease was not renewed: %s", error)
            return
        self._renewed_at = before

    def _lead(self) -> bool:
        with self._renewing:
            self._renew()
            if self.tenure is not None:
                return self.lease.holds(self.tenure)
            before = self.database.clock.monotonic()
            try:
                self.tenure = self.lease.acquire(sessions=self._sessions())
            except (errors.Retryable, errors.AmbiguousCommit, errors.CannotReach, errors.DiskFull) as error:
                log.info("no lease: %s", error)
            if self.tenure is not None:
                self._renewed_at = before
            return self.tenure is not None

    def _sessions(self) -> list[SessionIdentity]:
        """Name the process where that is what a session is; elsewhere tenure and `rev` alone fence an owner."""
        if not self.database.driver.capabilities.session_is_process:
            return []
        with self.database.session() as session:
            return [session.identity]

    def resign(self, *, lock_wait_seconds: float | None = None) -> None:
        """Give the lease back, so that another owner need not wait for it to expire."""
        if self.tenure is None:
            return
        tenure, self.tenure = self.tenure, None
        try:
            self.lease.resign(tenure, lock_wait_seconds=lock_wait_seconds)
        except (errors.Retryable, errors.AmbiguousCommit, errors.StateChanged) as error:
            log.info("the lease was not given back and will expire: %s", error)
