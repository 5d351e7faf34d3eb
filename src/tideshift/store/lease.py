"""The lease that makes one process the owner, and the tenure that fences everything the owner does.

A tenure is one unbroken holding of the lease: its number only grows. Taking over needs an expired row, by the
database's time; whatever sessions the old holder named are ended first and seen gone, because a number alone cannot
stop a process that is frozen with a transaction open. Expiry is judged by the database, belief by the local clock:
a holder trusts its last renewal for less time than the lease lasts, counted from before the renewal was sent.

Known gap: EXISTS on the tenure is read when the statement runs, not when it commits; `rev` and ending the session are
what protects the rest of the way.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Row, and_, exists, insert, literal, or_, select, update

from tideshift.config import Profile
from tideshift.errors import StateChanged
from tideshift.store.database import ConstraintViolated, Database, Transaction
from tideshift.store.driver import SessionIdentity
from tideshift.store.tables import owner_lease

__all__ = ["Lease", "Tenure", "hold_to_commit", "tenure_guard"]


@dataclass(frozen=True)
class Tenure:
    """One unbroken holding of a lease."""

    name: str
    owner_id: str
    number: int


def tenure_guard(tenure: Tenure, tx: Transaction) -> ColumnElement[bool]:
    """Return the condition that this tenure still holds, for the WHERE of an owner's move."""
    held = and_(_is(tenure), owner_lease.c.expires_at > tx.now_expression())
    return exists(select(owner_lease.c.name).where(held))


def hold_to_commit(tx: Transaction, tenure: Tenure) -> None:
    """Prolong the tenure from inside the transaction that does the owner's work, however long that took; `StateChanged` when it is over.

    Where one transaction keeps all others from writing, nobody could renew meanwhile, and nobody could take over either. Whoever would
    succeed needs the same row, so from here to the commit nobody does: the time of expiry need not be looked at.
    """
    expires_at = tx.now_expression() + round(tx.database.profile.lease_seconds * 1000)
    if tx.execute(update(owner_lease).where(_is(tenure)).values(expires_at=expires_at)).rowcount == 0:
        raise StateChanged(f"{tenure.owner_id} is not the owner any more")


class Lease:
    """One named lease, seen by one would-be holder; `holder` must be unique per process."""

    def __init__(self, database: Database, *, name: str = "owner", holder: str, profile: Profile | None = None) -> None:
        self.database = database
        self.name = name
        self.holder = holder
        self.profile = profile or database.profile
        self._believed: tuple[Tenure, float] | None = None

    @property
    def _lease_ms(self) -> int:
        return round(self.profile.lease_seconds * 1000)

    def acquire(self, *, sessions: Iterable[SessionIdentity] = ()) -> Tenure | None:
        """Take the lease if nobody holds it, and return the new tenure; None when somebody does, or when it was lost.

        `sessions` are those in which the holder will work, so that a successor can end them.
        """
        sent_at = self.database.clock.monotonic()
        with self.database.transaction(write=False) as tx:
            seen = tx.execute(
                select(owner_lease, (owner_lease.c.expires_at > tx.now_expression()).label("held")).where(
                    owner_lease.c.name == self.name
                )
            ).one_or_none()
        if seen is None:
            tenure = self._found(sessions)
        elif (seen.held and not self._holder_died(seen)) or not self._old_sessions_gone(seen):
            return None
        else:
            tenure = self._succeed(seen, sessions)
        if tenure is not None:
            self._believed = (tenure, sent_at)
        return tenure

    def renew(self, tenure: Tenure, *, sessions: Iterable[SessionIdentity] | None = None) -> bool:
        """Prolong an unbroken tenure, naming the sessions anew if they changed; False says that it is over."""
        sent_at = self.database.clock.monotonic()
        with self.database.transaction() as tx:
            now = tx.now_expression()
            values: dict[str, Any] = {"expires_at": now + self._lease_ms}
            if sessions is not None:
                values["session"] = _records(sessions)
            statement = update(owner_lease).where(_is(tenure), owner_lease.c.expires_at > now).values(values)
            renewed = tx.execute(statement).rowcount == 1
        self._believed = (tenure, sent_at) if renewed else None
        return renewed

    def resign(self, tenure: Tenure, *, lock_wait_seconds: float | None = None) -> bool:
        """Give the lease up, so that another may take it at once; False when it was not ours any more."""
        self._believed = None
        with self.database.transaction(lock_wait_seconds=lock_wait_seconds) as tx:
            now = tx.now_expression()
            statement = update(owner_lease).where(_is(tenure), owner_lease.c.expires_at > now)
            return tx.execute(statement.values(expires_at=now, session=None)).rowcount == 1

    def holds(self, tenure: Tenure) -> bool:
        """Whether the last renewal of this tenure is young enough to be trusted, without asking the database."""
        if self._believed is None or self._believed[0] != tenure:
            return False
        return self.database.clock.monotonic() - self._believed[1] < self.profile.trust_seconds

    # ── taking it ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _found(self, sessions: Iterable[SessionIdentity]) -> Tenure | None:
        """Write the lease's first row."""
        try:
            with self.database.transaction() as tx:
                now = tx.now_expression()
                tx.execute(
                    insert(owner_lease).values(
                        name=self.name,
                        owner_id=self.holder,
                        tenure=1,
                        started_at=now,
                        expires_at=now + self._lease_ms,
                        session=_records(sessions),
                    )
                )
        except ConstraintViolated:
            return None
        return Tenure(self.name, self.holder, 1)

    def _succeed(self, seen: Row[Any], sessions: Iterable[SessionIdentity]) -> Tenure | None:
        """Begin the next tenure if the expired one is still as it was seen."""
        tenure = Tenure(self.name, self.holder, seen.tenure + 1)
        with self.database.transaction() as tx:
            now = tx.now_expression()
            statement = (
                update(owner_lease)
                .where(
                    _is(Tenure(self.name, seen.owner_id, seen.tenure)),
                    or_(owner_lease.c.expires_at <= now, literal(bool(seen.held))),
                )
                .values(
                    owner_id=self.holder,
                    tenure=tenure.number,
                    started_at=now,
                    expires_at=now + self._lease_ms,
                    session=_records(sessions),
                )
            )
            return tenure if tx.execute(statement).rowcount == 1 else None

    def _holder_died(self, seen: Row[Any]) -> bool:
        """Whether the holder's process is known to have ended, so that nobody need wait for the expiry."""
        driver = self.database.driver
        if not driver.capabilities.session_is_process or not seen.session or seen.owner_id == self.holder:
            return False
        with self.database.transaction(write=False) as tx:
            return all(
                driver.session_gone(tx.connection, SessionIdentity.from_record(record)) for record in seen.session
            )

    def _old_sessions_gone(self, seen: Row[Any]) -> bool:
        """End the sessions of the expired holder and see them gone; one that lingers is looked at again next time.

        It happens before the row is touched, which a frozen session may hold locked. Our own earlier tenure is spared.
        """
        driver = self.database.driver
        if seen.owner_id == self.holder or not driver.capabilities.ends_sessions:
            return True
        with self.database.transaction(write=False) as tx:
            for identity in map(SessionIdentity.from_record, seen.session or ()):
                if not driver.session_gone(tx.connection, identity):
                    driver.end_session(tx.connection, identity)
                    if not driver.session_gone(tx.connection, identity):
                        return False
        return True


def _is(tenure: Tenure) -> ColumnElement[bool]:
    return and_(
        owner_lease.c.name == tenure.name,
        owner_lease.c.owner_id == tenure.owner_id,
        owner_lease.c.tenure == tenure.number,
    )


def _records(sessions: Iterable[SessionIdentity]) -> list[dict[str, str]] | None:
    return [identity.as_record() for identity in sessions] or None
