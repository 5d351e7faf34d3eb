"""SQLite as the store needs it: one file, one writer, tables with the prefix `tideshift_`.

Every setting made here belongs to one connection and ends with it (busy_timeout, synchronous); nothing is written into
the file's header, and a file that is not there is never created. Double-quoted strings stay as the library has them:
the user's views and triggers may lean on them, and they run on our connections too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import Any
from urllib.parse import quote as percent_encode

from sqlalchemy import BigInteger, Connection, Engine, Integer, create_engine, event, literal_column
from sqlalchemy.dialects import registry
from sqlalchemy.dialects.sqlite.pysqlite import SQLiteDialect_pysqlite
from sqlalchemy.pool import QueuePool
from sqlalchemy.sql.elements import ColumnElement
from sqlalchemy.util import LRUCache

from tideshift.dialects.sqlite.library import library_warnings, sqlite_library
from tideshift.dialects.sqlite.session import own_identity, process_gone
from tideshift.errors import CannotReach
from tideshift.store.driver import DriverCapabilities, Failure, SessionIdentity
from tideshift.store.tables import NAMESPACE

__all__ = ["CACHE_KIB", "SqliteDriver", "library_warnings", "quote"]

_PREFIX = f"{NAMESPACE}_"
_COMPILED_MAX = 1_000
_NOW = "CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER)"
"""Milliseconds: julianday() is a whole number of them divided, so rounding gives it back exactly."""

_BUSY, _LOCKED, _IOERR, _INTERRUPT, _FULL, _PROTOCOL, _SCHEMA, _CONSTRAINT, _MISMATCH = 5, 6, 10, 9, 13, 15, 17, 19, 20
_MEANING = {
    _BUSY: Failure.LOCK_TIMEOUT,
    _LOCKED: Failure.LOCK_TIMEOUT,
    _INTERRUPT: Failure.RETRYABLE,
    _PROTOCOL: Failure.RETRYABLE,
    _SCHEMA: Failure.RETRYABLE,
    _FULL: Failure.DISK_FULL,
    _CONSTRAINT: Failure.CONSTRAINT,
    _MISMATCH: Failure.CONSTRAINT,
}
_CANNOT_OPEN = {3: "permission denied", 14: "it is not there or may not be opened", 26: "it is not an SQLite database"}
_LONG_LOG_PAGES = 4000
CACHE_KIB = 20 * 1024
"""What one connection may keep in memory: the pages of the indexes under copy are met again and again, at random."""
_SYNCHRONOUS = {"NORMAL": 1, "FULL": 2, "EXTRA": 3}


class Dialect(SQLiteDialect_pysqlite):
    """SQLAlchemy's dialect without its REGEXP function, which the user's own CHECKs and indexes must never meet."""

    supports_statement_cache = True

    def on_connect(self) -> Callable[[Any], None]:
        """Leave a new connection as it is."""
        return lambda _: None

    def __eq__(self, other: object) -> bool:
        """Two files of the same library read the same SQL: what was compiled for one serves the other."""
        return isinstance(other, Dialect) and self.dbapi is other.dbapi

    def __hash__(self) -> int:
        return hash((Dialect, id(self.dbapi)))


_COMPILED: LRUCache[Any, Any] = LRUCache(_COMPILED_MAX)
"""The engine's own statements as SQL text, for every file that this process opens."""


registry.register("sqlite.tideshift", __name__, "Dialect")


class SqliteDriver:
    """One SQLite file."""

    name = "sqlite"
    capabilities = DriverCapabilities(
        concurrent_writers=False, transactional_ddl=True, ends_sessions=False, session_is_process=True
    )

    def __init__(self, path: str | os.PathLike[str], *, pool_size: int = 16, open_wait_seconds: float = 5.0) -> None:
        self.path = os.path.realpath(os.fspath(path))
        self.module, self.version = sqlite_library()
        self._pool_size = pool_size
        self._open_wait_seconds = open_wait_seconds

    # ── connections and transactions ──────────────────────────────────────────────────────────────────────────────

    def create_engine(self) -> Engine:
        """Make the engine over a pool of connections, each to the existing file."""
        engine = create_engine(
            "sqlite+tideshift://",
            creator=self.connect,
            module=self.module,
            poolclass=QueuePool,
            pool_size=self._pool_size,
            max_overflow=-1,
            execution_options={"compiled_cache": _COMPILED},
            pool_use_lifo=True,  # the connection that was used last has the pages that are needed next
        )
        engine.dialect.tideshift_identity_type = Integer()  # type: ignore[attr-defined]
        event.listen(engine, "before_cursor_execute", _use_prefix, retval=True)
        return engine

    def connect(self) -> Any:
        """Open one bare DB-API connection the way all of ours are opened."""
        uri = f"file:{percent_encode(os.fsencode(self.path))}?mode=rw"
        try:
            connection = self.module.connect(
                uri, uri=True, timeout=self._open_wait_seconds, isolation_level=None, check_same_thread=False
            )
            # Text that is not UTF-8 must come back as the very bytes that it is.
            connection.text_factory = _decode
            try:
                connection.execute("PRAGMA schema_version").fetchone()
            except self.module.Error as error:
                # A file that somebody holds locked is a database all the same.
                if _primary_code(error) not in (_BUSY, _LOCKED):
                    connection.close()
                    raise
        except self.module.Error as error:
            reason = _CANNOT_OPEN.get(_primary_code(error) or 0, str(error))
            raise CannotReach(
                f"cannot open {self.path!r}: {reason}", hint="Check the path and its permissions.", path=self.path
            ) from error
        return connection

    def begin(self, connection: Connection, *, write: bool, durable: bool, lock_wait_seconds: float) -> None:
        """Begin; a writing transaction takes the file's write lock at once, so that it never fails half-way for it."""
        dbapi_connection = _dbapi(connection)
        settings = connection.info
        _pin(dbapi_connection, settings, "busy_timeout", max(0, round(lock_wait_seconds * 1000)))
        if write:
            _pin(dbapi_connection, settings, "cache_size", -CACHE_KIB)
            _pin(
                dbapi_connection,
                settings,
                "synchronous",
                self._synchronous(dbapi_connection, settings, durable=durable),
            )
            if durable and settings["journal_mode"] == "wal":
                self._flush_log()
        dbapi_connection.execute("BEGIN IMMEDIATE" if write else "BEGIN DEFERRED")

    def _flush_log(self) -> None:
        """Let the disk have what is in the log by now, while nobody waits: a durable commit then has only its own pages to wait for under the lock.

        The log's file has no locks of its own, so closing it takes none away. Where it cannot be flushed so, the commit does it all.
        """
        with suppress(OSError):
            log = os.open(f"{self.path}-wal", os.O_RDONLY)
            try:
                os.fsync(log)
            finally:
                os.close(log)

    def _synchronous(self, dbapi_connection: Any, settings: dict[Any, Any], *, durable: bool) -> int:
        """Choose how hard a commit is made: weaker only in WAL mode, where losing the last commits corrupts nothing.

        With a rollback journal the commit is the journal's removal, which FULL does not write through; EXTRA does.
        The mode is asked once: WAL cannot be left while we are connected, and the other way round costs only time.
        """
        if "journal_mode" not in settings:
            settings["journal_mode"] = dbapi_connection.execute("PRAGMA journal_mode").fetchone()[0]
        if settings["journal_mode"] == "wal":
            return _SYNCHRONOUS["FULL" if durable else "NORMAL"]
        return _SYNCHRONOUS["EXTRA" if durable else "FULL"]

    def relieve(self, connection: Connection) -> None:
        """Write the log's pages into the file, so that no commit of an application finds it long and has to do it.

        A passive checkpoint keeps nobody waiting, but it leaves over what others committed meanwhile, and a log with a
        rest is not begun anew. One that has become very long is dealt with under the lock, where no rest can arise.
        """
        settings, dbapi_connection = connection.info, _dbapi(connection)
        _, pages, _ = dbapi_connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        if pages >= _LONG_LOG_PAGES:
            _pin(dbapi_connection, settings, "busy_timeout", 0)
            dbapi_connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()

    def rest(self, connection: Connection) -> None:
        """Let the pages go that were kept for the next chunk: the next worker may well get another connection, with pages of its own."""
        _dbapi(connection).execute("PRAGMA shrink_memory")

    def now(self) -> ColumnElement[int]:
        """Return the file's time, which is the machine's."""
        return literal_column(_NOW, BigInteger())

    def classify(self, error: BaseException, *, committing: bool) -> Failure:
        """Say what an error means by its code; a module without codes is read by its text."""
        code = _primary_code(error)
        if code is None:
            return Failure.LOST if "closed database" in str(error) else Failure.FATAL
        if code == _IOERR and committing:
            return Failure.AMBIGUOUS_COMMIT
        return _MEANING.get(code, Failure.FATAL)

    # ── verbatim statements ───────────────────────────────────────────────────────────────────────────────────────

    def run_verbatim(
        self, connection: Connection, sql: str, binds: tuple[Any, ...]
    ) -> tuple[list[tuple[Any, ...]], int]:
        """Execute one text by the module's own cursor."""
        dbapi_connection = _dbapi(connection)
        cursor = dbapi_connection.cursor()
        try:
            cursor.execute(sql, binds)
            rows = cursor.fetchall() if cursor.description else []
            affected = cursor.rowcount
            if affected == -1 and cursor.description is None and sql.lstrip()[:4].upper() == "WITH":
                # The standard library counts only what begins with INSERT, UPDATE, DELETE or REPLACE.
                affected = dbapi_connection.execute("SELECT changes()").fetchone()[0]
        finally:
            cursor.close()
        return rows, affected

    def others_at_work(self, connection: Connection) -> bool:
        """Say that it cannot be known: nobody is registered with a file."""
        return True

    def run_alone(self, connection: Connection, sql: str, settings: Mapping[str, str]) -> None:
        """Execute one text; each setting is a pragma of the connection."""
        bare = _dbapi(connection)
        for name, value in settings.items():
            _pin(bare, connection.info, name, int(value))
        bare.execute(sql)

    def interrupt(self, connection: Connection) -> None:
        """Make the statement that runs end with an error."""
        _dbapi(connection).interrupt()

    def stream_verbatim(self, connection: Connection, sql: str, binds: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        """Execute one text and let SQLite step through it as rows are asked for."""
        cursor = _dbapi(connection).cursor()
        try:
            cursor.execute(sql, binds)
            yield from cursor
        finally:
            cursor.close()

    def placeholders(self, count: int) -> list[str]:
        """Return as many question marks."""
        return ["?"] * count

    def quote(self, name: str) -> str:
        """Quote one identifier."""
        return quote(name)

    # ── sessions ──────────────────────────────────────────────────────────────────────────────────────────────────

    def session_identity(self, connection: Connection) -> SessionIdentity:
        """Name the process: SQLite knows no sessions."""
        del connection
        return own_identity()

    def end_session(self, connection: Connection, identity: SessionIdentity) -> None:
        """Do nothing: a process that holds the lock is named, never killed unasked."""

    def session_gone(self, connection: Connection, identity: SessionIdentity) -> bool:
        """Whether that process has ended, as this host sees it."""
        del connection
        return process_gone(identity)

    # ── system tables ─────────────────────────────────────────────────────────────────────────────────────────────

    def bootstrap_lock(self, connection: Connection) -> AbstractContextManager[None]:
        """Rely on the write lock that a writing transaction holds anyway."""
        del connection
        return nullcontext()

    def create_namespace(self, connection: Connection) -> None:
        """Do nothing: the prefix is the namespace."""

    def drop_namespace(self, connection: Connection) -> None:
        """Do nothing: the prefix is the namespace."""

    def existing_tables(self, connection: Connection) -> set[str]:
        """Return the tables with the prefix, without it."""
        rows = connection.exec_driver_sql(
            "SELECT lower(name) FROM sqlite_master WHERE type = 'table' AND lower(name) GLOB ?", (f"{_PREFIX}*",)
        )
        return {name.removeprefix(_PREFIX) for (name,) in rows}

    def existing_columns(self, connection: Connection, table: str) -> list[str]:
        """Return the columns of one system table, in order."""
        rows = connection.exec_driver_sql("SELECT name FROM pragma_table_info(?) ORDER BY cid", (f"{_PREFIX}{table}",))
        return [name for (name,) in rows]

    def installation(self, connection: Connection) -> dict[str, str]:
        """Name the file by its number and path: a copy has another number, a moved one another path.

        The device's number is left out, since it may change when the machine starts again.
        """
        del connection
        return {"file": str(os.stat(self.path).st_ino), "path": _printable(self.path)}  # noqa: PTH116


def quote(name: str) -> str:
    """Quote one identifier; refuse what SQLite would cut or could not be given."""
    if not name or "\0" in name:
        raise ValueError(f"not a usable name: {name!r}")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"not a usable name, since it is not valid Unicode: {name!r}") from error
    return '"' + name.replace('"', '""') + '"'


def _decode(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")


def _printable(path: str) -> str:
    return os.fsencode(path).decode("utf-8", "backslashreplace")


def _dbapi(connection: Connection) -> Any:
    return connection.connection.dbapi_connection


def _pin(dbapi_connection: Any, settings: dict[Any, Any], name: str, value: int) -> None:
    """Set one setting of this connection, unless it is known to be set; remembered as long as the connection lives."""
    if settings.get(name) != value:
        dbapi_connection.execute(f"PRAGMA {name} = {value}")
        settings[name] = value


def _primary_code(error: BaseException) -> int | None:
    """Return the result code without its extension, or None for an error of the module itself."""
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else int(code) & 0xFF


def _use_prefix(  # noqa: PLR0917 - the event's own signature
    connection: Connection, cursor: Any, statement: str, parameters: Any, context: Any, executemany: Any
) -> tuple[str, Any]:
    """Turn `tideshift.job` into `tideshift_job`; a system statement binds every value, so no text of anybody is met."""
    del connection, cursor, context, executemany
    return statement.replace(f"{NAMESPACE}.", _PREFIX), parameters
