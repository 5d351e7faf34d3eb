"""One database under change: sessions and transactions, with errors turned into what they mean.

A transaction runs two kinds of statements on one connection: SQLAlchemy Core on the system tables (`execute`), and
verbatim text on user tables (`run_verbatim`), which is how a chunk of rows and its checkpoint commit together.
Nothing is retried in here except in `Database.run`, which starts a whole new transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any, NoReturn, TypeVar

from sqlalchemy import BigInteger, Connection, CursorResult, Executable, exc, literal, select
from sqlalchemy.sql.elements import ColumnElement

from tideshift import errors
from tideshift.clock import Clock, SystemClock
from tideshift.config import NORMAL, Profile
from tideshift.store import points
from tideshift.store.driver import Driver, Failure, SessionIdentity
from tideshift.store.turns import LOCK_SHARE_PERCENT, Turn, Turns

__all__ = ["ConstraintViolated", "Database", "DatabaseFailed", "Rows", "Session", "Transaction"]

T = TypeVar("T")
_IDENTITY = "tideshift identity"


class ConstraintViolated(errors.TideshiftError):
    """A statement of ours met a constraint of the table."""

    code = "constraint_violated"


class DatabaseFailed(errors.TideshiftError):
    """The database refused a statement for a reason that a retry does not mend."""

    code = "database_failed"


_MEANING: dict[Failure, type[errors.TideshiftError]] = {
    Failure.RETRYABLE: errors.Retryable,
    Failure.LOCK_TIMEOUT: errors.LockTimeout,
    Failure.LOST: errors.ConnectionLost,
    Failure.AMBIGUOUS_COMMIT: errors.AmbiguousCommit,
    Failure.DISK_FULL: errors.DiskFull,
    Failure.CONSTRAINT: ConstraintViolated,
    Failure.FATAL: DatabaseFailed,
}


@dataclass(frozen=True)
class Rows:
    """What a verbatim statement gave: its rows as tuples, and the affected row count (-1 when the driver cannot tell)."""

    rows: list[tuple[Any, ...]]
    affected: int

    def scalar(self) -> Any:
        """Return the first column of the first row, or None without rows."""
        return self.rows[0][0] if self.rows else None


class Transaction:
    """One open transaction on one connection."""

    def __init__(self, session: Session, connection: Connection) -> None:
        self.session = session
        self.database = session.database
        self.driver = session.database.driver
        self.connection = connection
        self._stamp_ms: int | None = None

    def execute(self, statement: Executable, parameters: Any = None) -> CursorResult[Any]:
        """Execute a Core statement on system tables."""
        if points.BEFORE_STATEMENT.on:
            points.BEFORE_STATEMENT.fire(kind="system")
        try:
            result = self.connection.execute(statement, parameters)
        except exc.DBAPIError as error:
            self.database.raise_meaning(error.orig or error, statement=str(statement))
        if points.AFTER_STATEMENT.on:
            points.AFTER_STATEMENT.fire(kind="system")
        return result

    def others_at_work(self) -> bool:
        """Whether somebody else used this database within the last seconds; true where that cannot be known."""
        try:
            return self.driver.others_at_work(self.connection)
        except Exception as error:
            bare = self.database.driver_error(error)
            if bare is None:
                raise
            self.database.raise_meaning(bare, statement="others at work")

    def run_verbatim(self, sql: str, binds: tuple[Any, ...] = ()) -> Rows:
        """Execute one text on user tables exactly as it stands, by the driver's own cursor."""
        if points.BEFORE_STATEMENT.on:
            points.BEFORE_STATEMENT.fire(kind="verbatim")
        try:
            rows, affected = self.driver.run_verbatim(self.connection, sql, binds)
        except Exception as error:
            if not self.database.is_driver_error(error):
                raise
            self.database.raise_meaning(error, statement=sql)
        if points.AFTER_STATEMENT.on:
            points.AFTER_STATEMENT.fire(kind="verbatim")
        return Rows(rows, affected)

    def stream_verbatim(self, sql: str, binds: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
        """Execute one text exactly as it stands and yield its rows without holding them all."""
        if points.BEFORE_STATEMENT.on:
            points.BEFORE_STATEMENT.fire(kind="verbatim")
        # What the driver raises on the way is given its meaning where the transaction ends.
        yield from self.driver.stream_verbatim(self.connection, sql, binds)
        if points.AFTER_STATEMENT.on:
            points.AFTER_STATEMENT.fire(kind="verbatim")

    def now_expression(self) -> ColumnElement[int]:
        """Return the expression for the database's time in UTC epoch milliseconds, for use inside a statement."""
        return self.database.now_expression()

    def now_ms(self) -> int:
        """Ask the database for its time in UTC epoch milliseconds."""
        return int(self.execute(select(self.now_expression())).scalar_one())

    def stamp_ms(self) -> int:
        """Return one moment for everything that this transaction writes down: the database is asked once."""
        if self._stamp_ms is None:
            self._stamp_ms = self.now_ms()
        return self._stamp_ms


class Session:
    """One connection that is kept for a while, with its identity on the server."""

    def __init__(self, database: Database, connection: Connection) -> None:
        self.database = database
        self._connection = connection

    @property
    def identity(self) -> SessionIdentity:
        """Return who this session is on its server; asked again when the connection had to be made anew."""
        inside = self._connection.in_transaction()
        present = self._connection.connection.dbapi_connection
        known: tuple[object, SessionIdentity] | None = self._connection.info.get(_IDENTITY)
        if known is None or known[0] is not present:
            known = (present, self.database.driver.session_identity(self._connection))
            self._connection.info[_IDENTITY] = known  # of the connection, not of who borrows it from the pool
            if not inside:
                self._connection.rollback()
        return known[1]

    @property
    def connection(self) -> Connection:
        """Return the SQLAlchemy connection, for what a dialect must do outside a transaction."""
        return self._connection

    def run_alone(self, sql: str, settings: Mapping[str, str] | None = None) -> None:
        """Execute one text that commits by itself, outside any transaction and under these settings of the session."""
        if points.BEFORE_STATEMENT.on:
            points.BEFORE_STATEMENT.fire(kind="alone")
        try:
            self.database.driver.run_alone(self._connection, sql, settings or {})
        except Exception as error:
            bare = self.database.driver_error(error)
            if bare is None:
                raise
            self.database.raise_meaning(bare, statement=sql)
        if points.AFTER_STATEMENT.on:
            points.AFTER_STATEMENT.fire(kind="alone")

    @contextmanager
    def transaction(
        self,
        *,
        write: bool = True,
        durable: bool = True,
        lock_wait_seconds: float | None = None,
        lock_share_percent: int = LOCK_SHARE_PERCENT,
    ) -> Iterator[Transaction]:
        """Open a transaction; commit at the end, roll back on any exception.

        Where all writers share one lock, it begins only after others had room for theirs, by the share that is given.
        Raises `AmbiguousCommit` when the answer to the commit is lost, and the meaning of any other database error.
        """
        database, connection = self.database, self._connection
        wait = database.profile.system_lock_wait_seconds if lock_wait_seconds is None else lock_wait_seconds
        if points.BEFORE_BEGIN.on:
            points.BEFORE_BEGIN.fire(write=write)
        with self._turn(write=write, wait_seconds=wait, lock_share_percent=lock_share_percent) as turn:
            statement = "BEGIN"
            try:
                connection.begin()
                waits = turn is None or turn.ours
                database.driver.begin(
                    connection, write=write, durable=durable, lock_wait_seconds=wait if waits else 0.0
                )
                statement = ""
                if turn is not None:
                    turn.begun()
                if points.AFTER_BEGIN.on:
                    points.AFTER_BEGIN.fire(write=write)
                yield Transaction(self, connection)
                if points.BEFORE_COMMIT.on:
                    points.BEFORE_COMMIT.fire(write=write)
                self._commit(connection, write=write)
            except BaseException as error:
                _roll_back(connection)
                bare = database.driver_error(error)
                if bare is None:
                    raise
                database.raise_meaning(bare, statement=statement)
        if points.AFTER_COMMIT.on:
            points.AFTER_COMMIT.fire(write=write)

    def relieve(self) -> None:
        """Do now, outside any transaction, what the database would leave to some later commit of an application."""
        try:
            self.database.driver.relieve(self._connection)
        except Exception as error:
            bare = self.database.driver_error(error)
            if bare is None:
                raise
            self.database.raise_meaning(bare, statement="relieve")

    def rest(self) -> None:
        """Give back the memory that this connection took for long work."""
        try:
            self.database.driver.rest(self._connection)
        except Exception as error:
            bare = self.database.driver_error(error)
            if bare is None:
                raise
            self.database.raise_meaning(bare, statement="rest")

    def _turn(
        self, *, write: bool, wait_seconds: float, lock_share_percent: int
    ) -> AbstractContextManager[Turn | None]:
        if not write or self.database.driver.capabilities.concurrent_writers:
            return nullcontext()
        return self.database.turns.turn(wait_seconds=wait_seconds, lock_share_percent=lock_share_percent)

    def _commit(self, connection: Connection, *, write: bool) -> None:
        """Commit; only for a writing transaction it matters whether a lost answer was a yes."""
        try:
            connection.commit()
        except exc.DBAPIError as error:
            self.database.raise_meaning(self.database.driver_error(error) or error, statement="COMMIT", committing=write)
        if write and points.COMMIT_ANSWER_LOST.on and points.COMMIT_ANSWER_LOST.fire() is True:
            raise errors.AmbiguousCommit("the answer to a commit was lost")


def _roll_back(connection: Connection) -> None:
    """Roll back, and drop the connection when even that fails: a broken one must not return to the pool.

    After a commit that failed SQLAlchemy takes the transaction for ended and sends nothing, while a database that
    answered "busy" keeps it open with its locks; so the driver is told as well.
    """
    try:
        connection.rollback()
        if not connection.invalidated:
            connection.connection.rollback()
    except Exception:  # noqa: BLE001 - whatever a broken connection raises, the error that led here matters more
        connection.invalidate()


class Database:
    """The database that is being changed, which also holds the system tables."""

    def __init__(self, driver: Driver, *, clock: Clock | None = None, profile: Profile = NORMAL) -> None:
        self.driver = driver
        self.clock: Clock = clock or SystemClock()
        self.profile = profile
        self.engine = driver.create_engine()
        self.turns = Turns(self.clock)

    def apart(self) -> Database:
        """Return the same database through connections of its own, which nobody else can use up; whoever asked closes it."""
        twin = Database(self.driver, clock=self.clock, profile=self.profile)
        twin.turns = self.turns  # of the process, not of the connections
        return twin

    def close(self) -> None:
        """Close every connection that nobody uses."""
        self.engine.dispose()

    @contextmanager
    def session(self) -> Iterator[Session]:
        """Take one connection and keep it until the end."""
        try:
            connection = self.engine.connect()
        except exc.DBAPIError as error:
            raise errors.CannotReach(f"cannot reach the database: {error.orig}") from error
        except exc.TimeoutError as error:
            raise errors.CannotReach(f"no connection was free: {error}") from error
        try:
            yield Session(self, connection)
        finally:
            connection.close()

    @contextmanager
    def transaction(
        self, *, write: bool = True, durable: bool = True, lock_wait_seconds: float | None = None
    ) -> Iterator[Transaction]:
        """Open one transaction on a connection of the pool."""
        with (
            self.session() as session,
            session.transaction(write=write, durable=durable, lock_wait_seconds=lock_wait_seconds) as tx,
        ):
            yield tx

    def run(self, work: Callable[[Transaction], T], *, write: bool = True, tries: int = 5) -> T:
        """Do `work` in a transaction, again from the start when the database asks to try again."""
        assert tries >= 1
        for left in range(tries - 1, -1, -1):
            try:
                with self.transaction(write=write) as tx:
                    return work(tx)
            except errors.Retryable:
                if left == 0:
                    raise
        raise AssertionError("unreachable")

    def now_expression(self) -> ColumnElement[int]:
        """Return the expression for the database's time: its own, or the stepped clock's."""
        stepped = self.clock.database_now_ms()
        return self.driver.now() if stepped is None else literal(stepped, BigInteger())

    def is_driver_error(self, error: BaseException) -> bool:
        """Whether this came from the DB-API driver."""
        dbapi = self.engine.dialect.dbapi
        return dbapi is not None and isinstance(error, dbapi.Error)

    def driver_error(self, error: BaseException) -> BaseException | None:
        """Return the DB-API error that this is or wraps, or None."""
        if isinstance(error, exc.DBAPIError):
            return error.orig or error
        return error if self.is_driver_error(error) else None

    def raise_meaning(self, error: BaseException, *, statement: str, committing: bool = False) -> NoReturn:
        """Raise what a DB-API error means, with the statement as a field."""
        failure = self.driver.classify(error, committing=committing)
        raise _MEANING[failure](str(error), statement=statement[:2000], failure=str(failure)) from error
