"""What a database must answer for the layers above: the Driver protocol and its words.

A driver gives expressions and small verbs, so that the statements on system tables stay the same everywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine
    from sqlalchemy.sql.elements import ColumnElement

__all__ = ["Driver", "DriverCapabilities", "Failure", "SessionIdentity"]


class Failure(StrEnum):
    """What an error of the database means for the one who got it."""

    RETRYABLE = "retryable"
    LOCK_TIMEOUT = "lock timeout"
    LOST = "lost"
    AMBIGUOUS_COMMIT = "ambiguous commit"
    DISK_FULL = "disk full"
    CONSTRAINT = "constraint"
    FATAL = "fatal"


@dataclass(frozen=True, kw_only=True)
class DriverCapabilities:
    """What this kind of database can do; the engine branches on these and never on a name."""

    concurrent_writers: bool
    transactional_ddl: bool
    """Whether DDL is taken back with its transaction. Where not, each statement commits by itself, and CREATE TABLE makes a table's indexes too."""
    ends_sessions: bool
    """Whether a session of another process can be ended and seen gone."""
    session_is_process: bool = False
    """Whether a session lives exactly as long as its process, so that a dead process is known at once."""
    notifies: bool = False


@dataclass(frozen=True, kw_only=True)
class SessionIdentity:
    """Who runs a transaction, so that a taker can end it and see it gone: server, backend, and when it started."""

    server: str
    backend: str
    started: str

    def as_record(self) -> dict[str, str]:
        """Give the form stored beside a subtask."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: dict[str, str]) -> SessionIdentity:
        """Read the stored form."""
        return cls(server=record["server"], backend=record["backend"], started=record["started"])


class Driver(Protocol):
    """One kind of database, as the store needs it."""

    name: str
    capabilities: DriverCapabilities

    def create_engine(self) -> Engine:
        """Make the engine; connecting to something that does not exist raises `CannotReach` and creates nothing."""
        ...

    def begin(self, connection: Connection, *, write: bool, durable: bool, lock_wait_seconds: float) -> None:
        """Begin a transaction: a writing one in READ COMMITTED, with the write lock at once where there is one; a reading one in one snapshot.

        `durable` makes the commit survive a crash of the server whatever the session's default is.
        """
        ...

    def relieve(self, connection: Connection) -> None:
        """Do, outside any transaction, work that would otherwise fall to a later commit of anybody; nothing where there is none."""
        ...

    def rest(self, connection: Connection) -> None:
        """Give back, outside any transaction, the memory that a connection took for long work, before it goes back among the others."""
        ...

    def now(self) -> ColumnElement[int]:
        """Return the expression for the database's present time, in UTC epoch milliseconds (not the transaction's start)."""
        ...

    def classify(self, error: BaseException, *, committing: bool) -> Failure:
        """Say what a DB-API error (bare, not wrapped) means; `committing` when it came from the commit itself."""
        ...

    def run_verbatim(
        self, connection: Connection, sql: str, binds: tuple[Any, ...]
    ) -> tuple[list[tuple[Any, ...]], int]:
        """Execute one text exactly as given by the driver's own cursor; return its rows and the affected row count."""
        ...

    def run_alone(self, connection: Connection, sql: str, settings: Mapping[str, str]) -> None:
        """Execute one text outside any transaction, under these settings of the session, which are taken back afterwards."""
        ...

    def interrupt(self, connection: Connection) -> None:
        """End the statement that another thread runs on this connection, if there is one; it fails there as one to try again."""
        ...

    def others_at_work(self, connection: Connection) -> bool:
        """Whether a session that is not of tideshift's used this database within the last two seconds; true where that cannot be known."""
        ...

    def stream_verbatim(self, connection: Connection, sql: str, binds: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        """Execute one text and yield its rows without holding them all."""
        ...

    def placeholders(self, count: int) -> list[str]:
        """Return the driver's own marks for `count` bound values."""
        ...

    def quote(self, name: str) -> str:
        """Quote one identifier; refuse with `ValueError` what the database would cut or misread (empty, NUL, too long)."""
        ...

    def session_identity(self, connection: Connection) -> SessionIdentity:
        """Return who this connection is on its server."""
        ...

    def end_session(self, connection: Connection, identity: SessionIdentity) -> None:
        """End that session on the server if it is still there (no-op where `ends_sessions` is false)."""
        ...

    def session_gone(self, connection: Connection, identity: SessionIdentity) -> bool:
        """Whether that session can no longer commit anything, as the server sees it."""
        ...

    def bootstrap_lock(self, connection: Connection) -> AbstractContextManager[None]:
        """Keep two bootstraps apart, inside a writing transaction."""
        ...

    def create_namespace(self, connection: Connection) -> None:
        """Create what holds the system tables (a schema, a database) if it is not there; nothing where a prefix does."""
        ...

    def drop_namespace(self, connection: Connection) -> None:
        """Remove what `create_namespace` created."""
        ...

    def existing_tables(self, connection: Connection) -> set[str]:
        """Return the bare names of the system tables that exist."""
        ...

    def existing_columns(self, connection: Connection, table: str) -> list[str]:
        """Return the column names of one system table, in order."""
        ...

    def installation(self, connection: Connection) -> dict[str, str]:
        """Return what identifies the physical database, so that a copy of it is recognised."""
        ...
