"""How busy a database is, and who is in a job's way: part of what the DDL engine asks of a database."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tideshift.store.database import Transaction

__all__ = ["Blocker", "DiskRoom", "InTheWay", "Load", "LockHolder"]


@dataclass(frozen=True, kw_only=True)
class DiskRoom:
    """The database's disk, in bytes: what is free, below what a copy waits for room, and below what a job gives its capture up."""

    free_bytes: int
    reserve_bytes: int
    least_bytes: int


@dataclass(frozen=True)
class LockHolder:
    """A process that holds the lock which every writer needs, and the name of its program (empty: not known)."""

    process: int
    program: str


@dataclass(frozen=True)
class Blocker:
    """A session that a statement of ours waits for: its process, how long its transaction has been open, and what it runs or ran last."""

    process: int
    seconds: int
    query: str


@dataclass(frozen=True, kw_only=True)
class InTheWay:
    """A session, or a prepared transaction, that a job waits for."""

    process: int
    """0: a prepared transaction has none."""
    started: str
    """When the session began, so that another one of the same number is not taken for it."""
    seconds: int
    """How long its transaction has lasted."""
    user: str
    query: str
    prepared: str = ""
    """What a prepared transaction is called."""
    relation: int = 0
    """What it holds that is waited for."""
    kept: str = ""
    """Why it is never ended; empty where it may be."""

    @property
    def text(self) -> str:
        """Tell it to a person."""
        who = f"prepared transaction {self.prepared!r}" if self.prepared else f"process {self.process}"
        return f"{who}{f' of {self.user}' if self.user else ''} for {self.seconds} s: {self.query}".rstrip(": ")


class Load(Protocol):
    """How busy the database is."""

    def room(self) -> DiskRoom | None:
        """Measure the disk now; None where it cannot be known."""
        ...

    def lock_holder(self) -> LockHolder | None:
        """Return the process that at this moment holds a lock which every writer needs; None where nobody does, or it cannot be known."""
        ...

    def waits_for(self, tx: Transaction, backend: str) -> list[Blocker]:
        """Return whom a session of ours waits for at this moment, by its number at the server: locks, and older snapshots."""
        ...

    def moment(self, tx: Transaction) -> str:
        """Name this moment, for `older_snapshots`."""
        ...

    def older_snapshots(self, tx: Transaction, moment: str) -> list[InTheWay]:
        """Return who looks at the database as it was before that moment, and would miss rows in a table that takes another one's place."""
        ...

    def end(self, tx: Transaction, session: InTheWay) -> str:
        """End a session that holds what a job waits for, and that is not `kept`; say in a few words what became of it. Raises nothing of its own."""
        ...
