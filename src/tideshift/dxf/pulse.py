"""Small durable commits of our own, timed at rest and beside the work of this node: what an application's statements feel of it.

Only while a task that runs here is `adaptive`. The commits are writes of this node's own row in the register. `beat` is called
by a thread, or by a test; executors ask for the `duty` and say by `working` when they keep the database busy. States: idle
(nobody asked of late: no commit is made), beating. What is measured is forgotten with the process.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tideshift import errors
from tideshift.dxf import points, tables
from tideshift.dxf.slowness import SLOW_SHARE_MAX, Slowness
from tideshift.dxf.throttle import Duty
from tideshift.store.database import Database

__all__ = ["Pulse"]

log = logging.getLogger(__name__)
BESIDE_SECONDS = 0.008
"""How soon after one commit beside work the next one follows."""
AT_REST_SECONDS = 0.03
ASKED_SECONDS = 2.0
"""How long after the last question the commits go on."""
LOOK_SECONDS = 1.0
"""How often it is asked whether there is an application at all."""


class Pulse:
    """The pulse of one node; safe to be asked by many threads while one of them beats."""

    def __init__(self, database: Database, *, node: str) -> None:
        self.asked = threading.Event()
        """Set when somebody asked for the duty; whoever drives the beats waits for it."""
        self._database = database
        self._node = node
        self._slowness = Slowness()
        self._lock = threading.Lock()
        self._working = 0
        self._begun = 0
        """How many pieces of work began: two looks that differ had one in between."""
        self._asked_at = float("-inf")
        self._looked_at = float("-inf")
        self._alone = False

    @contextmanager
    def working(self) -> Iterator[None]:
        """Say that the work keeps the database busy for a while."""
        with self._lock:
            self._working += 1
            self._begun += 1
        try:
            yield
        finally:
            with self._lock:
                self._working -= 1

    def duty(self, *, sharers: int = 1) -> Duty:
        """Return the share of the time in which this node may work: all of it where nobody else is there.

        What may be slow is divided among the nodes that work at the same time, since each sees only its own work.
        """
        self._asked_at = self._database.clock.monotonic()
        self.asked.set()
        share = 1.0 if self._alone else self._slowness.duty / sharers
        return Duty(share, round(100 * self._slowness.slow_share_beside, 2), 100 * SLOW_SHARE_MAX)

    def beat(self) -> float:
        """Make and time one commit, if anybody asked of late; return the seconds until the next one, infinity when nobody did."""
        clock = self._database.clock
        if clock.monotonic() - self._asked_at > ASKED_SECONDS:
            self.asked.clear()
            return float("inf")
        try:
            if clock.monotonic() - self._looked_at >= LOOK_SECONDS:
                self._look()
            if not self._alone:
                self._commit()
        except (errors.Retryable, errors.CannotReach, errors.AmbiguousCommit, errors.DiskFull) as error:
            log.info("node %s: a pulse was missed: %s", self._node, error)
            return LOOK_SECONDS
        return LOOK_SECONDS if self._alone else BESIDE_SECONDS if self._working else AT_REST_SECONDS

    def close(self) -> None:
        """Close the connection."""
        self._database.close()

    def _look(self) -> None:
        with self._database.transaction(write=False) as tx:
            self._alone = not tx.others_at_work()
        self._looked_at = self._database.clock.monotonic()

    def _commit(self) -> None:
        clock = self._database.clock
        with self._database.session() as session:
            with session.transaction() as tx:
                tables.beat_node(tx, self._node)
                working, begun, asked = self._working, self._begun, clock.monotonic()
                if points.BEFORE_PULSE.on:
                    points.BEFORE_PULSE.fire(node=self._node, working=working)
            seconds = clock.monotonic() - asked
        self._slowness.note(seconds, beside=bool(working) or self._working > 0 or self._begun != begun)
