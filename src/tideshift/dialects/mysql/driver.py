"""MariaDB and MySQL as the store needs them: a database `tideshift`, READ COMMITTED, sessions that can be ended and seen gone.

What a server or account may have set differently is pinned per session, so that a value's text form and a statement's
meaning are the same in every session, and no time limit meant for applications ends our work. DDL commits by itself
here: what makes several objects is written so that it can be done again over its own half-done work. Time limits of locks are
whole seconds on the server, so a wait is rounded up to the next one.
"""

from __future__ import annotations

import math
import pickle
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import pymysql
from pymysql.constants import CLIENT
from pymysql.cursors import SSCursor
from sqlalchemy import BigInteger, Connection, Engine, create_engine, literal_column
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import QueuePool
from sqlalchemy.sql.elements import ColumnElement

from tideshift.config import NORMAL
from tideshift.dialects.mysql import sessions
from tideshift.dialects.mysql.marks import literal, with_values
from tideshift.dialects.mysql.meaning import meaning_of
from tideshift.dialects.mysql.names import quote
from tideshift.dialects.mysql.system_sql import use_ours
from tideshift.dialects.mysql.url import Address, read_address
from tideshift.errors import CannotReach, LockTimeout
from tideshift.store.driver import DriverCapabilities, Failure, SessionIdentity
from tideshift.store.tables import NAMESPACE

__all__ = ["SQL_MODE", "MysqlDriver", "dbapi_of", "is_mariadb"]

_NOW = "CAST(floor(unix_timestamp(sysdate(6)) * 1000) AS SIGNED)"
_BOOTSTRAP_LOCK = f"{NAMESPACE} bootstrap"
_BOOTSTRAP_WAIT_SECONDS = 60
_STREAM_MEMORY_BYTES = 8 << 20
_STREAM_ROWS = 2_000
_LOCK_WAIT = "lock wait seconds"
_LOCK_WAIT_SECONDS_MAX = 31_536_000
_ISOLATION = "READ COMMITTED"
_KEEPALIVE = (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 2), ("TCP_KEEPCNT", 3), ("TCP_USER_TIMEOUT", 15_000))

SQL_MODE = "STRICT_ALL_TABLES,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION,NO_AUTO_VALUE_ON_ZERO"
"""A value that does not fit is an error; 0 stays 0 in a counted column; zero dates are values like any other."""
_PINNED = f"""SET SESSION sql_mode = '{SQL_MODE}', time_zone = '+00:00', foreign_key_checks = 1, unique_checks = 1, sql_safe_updates = 0,
 sql_select_limit = 18446744073709551615, sql_auto_is_null = 0, low_priority_updates = 0, div_precision_increment = 4, default_week_format = 0,
 lc_time_names = 'en_US', group_concat_max_len = 1048576, completion_type = 'NO_CHAIN', wait_timeout = 28800, net_read_timeout = 60,
 net_write_timeout = 60, max_sort_length = 1024
 /*M!100300 , max_statement_time = 0, idle_transaction_timeout = 0, idle_readonly_transaction_timeout = 0, tx_read_only = 0,
 idle_write_transaction_timeout = {{idle_seconds}} */
 /*!80000 , max_execution_time = 0, transaction_read_only = 0 */"""


class MysqlDriver:
    """One database of a MariaDB or MySQL server, by SQLAlchemy's form of URL; `unix_socket` and `ssl_…` are options behind `?`."""

    name = "mysql"
    capabilities = DriverCapabilities(concurrent_writers=True, transactional_ddl=False, ends_sessions=True)

    def __init__(self, url: str, *, pool_size: int = 16, idle_write_transaction_seconds: float = NORMAL.lease_seconds) -> None:
        try:
            self.address: Address = read_address(url)
        except ArgumentError as error:
            raise CannotReach(f"cannot read the database's address: {error}") from error
        self._pool_size = pool_size
        self._idle_seconds = math.ceil(idle_write_transaction_seconds)
        self._own = sessions.OwnSessions()

    @property
    def database(self) -> str:
        """The user's database, whose tables are changed."""
        return self.address.database

    # ── connections and transactions ──────────────────────────────────────────────────────────────────────────────

    def create_engine(self) -> Engine:
        """Make the engine over a pool of connections."""
        engine = create_engine(
            "mysql+pymysql://", creator=self.connect, poolclass=QueuePool, pool_size=self._pool_size, max_overflow=-1, isolation_level=None
        )
        use_ours(engine)
        return engine

    def connect(self) -> Any:
        """Open one bare DB-API connection the way all of ours are opened."""
        connection: Any = None
        try:
            connection = pymysql.connect(
                **self.address.arguments, database=self.database, charset="utf8mb4", autocommit=False, client_flag=CLIENT.FOUND_ROWS,
                local_infile=False, program_name=NAMESPACE, defer_connect=True,
            )  # fmt: skip
            self._reach(connection)
            with connection.cursor() as cursor:
                cursor.execute(_PINNED.format(idle_seconds=self._idle_seconds))
                cursor.execute(f"SET SESSION TRANSACTION ISOLATION LEVEL {_ISOLATION}")
        except (pymysql.Error, OSError, ValueError) as error:
            if connection is not None and connection.open:
                connection.close()
            raise CannotReach(f"cannot reach the database: {error}") from error
        self._keep_alive(connection)
        self._own.add(connection)
        return connection

    def _reach(self, connection: Any) -> None:
        """Connect; a Unix socket is opened here, since the library leaves one open that nobody answers at."""
        if not self.address.by_socket:
            connection.connect()
            return
        wire = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            wire.settimeout(self.address.arguments["connect_timeout"])
            wire.connect(self.address.arguments["unix_socket"])
        except BaseException:
            wire.close()
            raise
        connection._secure = True  # noqa: SLF001 - as the library notes it for a socket that it opened itself
        connection.connect(wire)

    def _keep_alive(self, connection: Any) -> None:
        """Notice a server that vanished without a word within seconds, where the connection goes over a network."""
        wire: socket.socket = connection._sock  # noqa: SLF001 - the library gives no other way to it
        if not self.address.by_socket:
            for option, value in _KEEPALIVE:
                if (number := getattr(socket, option, None)) is not None:
                    with suppress(OSError):  # not every system takes every option
                        wire.setsockopt(socket.IPPROTO_TCP, number, value)

    def begin(self, connection: Connection, *, write: bool, durable: bool, lock_wait_seconds: float) -> None:
        """Begin with this transaction's own limits: a reading one in one snapshot, a writing one in READ COMMITTED, with its first statement.

        What survives a crash of the server is a setting of the whole server, not of a transaction; `doctor` says what it is.
        """
        bare = dbapi_of(connection)
        least = 0 if is_mariadb(bare) else 1
        seconds = min(max(least, math.ceil(lock_wait_seconds)), _LOCK_WAIT_SECONDS_MAX)
        with bare.cursor() as cursor:
            if connection.info.get(_LOCK_WAIT) != seconds:
                cursor.execute(f"SET SESSION innodb_lock_wait_timeout = {seconds}, lock_wait_timeout = {seconds}")
                connection.info[_LOCK_WAIT] = seconds
            if not write:
                cursor.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                cursor.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")

    def limit_lock_wait(self, connection: Connection, seconds: int) -> None:
        """Wait at most so long for each lock, until the next transaction says otherwise."""
        with dbapi_of(connection).cursor() as cursor:
            cursor.execute(f"SET SESSION innodb_lock_wait_timeout = {seconds}, lock_wait_timeout = {seconds}")
        connection.info.pop(_LOCK_WAIT, None)

    def relieve(self, connection: Connection) -> None:
        """Do nothing: the server does its upkeep by itself."""

    def rest(self, connection: Connection) -> None:
        """Do nothing: rows that were read are not kept."""

    def now(self) -> ColumnElement[int]:
        """Return the server's clock when the expression is evaluated: behind a wait for a lock, not before it."""
        return literal_column(_NOW, BigInteger())

    def classify(self, error: BaseException, *, committing: bool) -> Failure:
        """Say what an error means by its number."""
        return meaning_of(error, committing=committing)

    # ── verbatim statements ───────────────────────────────────────────────────────────────────────────────────────

    def run_verbatim(self, connection: Connection, sql: str, binds: tuple[Any, ...]) -> tuple[list[tuple[Any, ...]], int]:
        """Execute one text with its values in their places."""
        bare = dbapi_of(connection)
        with bare.cursor() as cursor:
            cursor.execute(with_values(sql, binds) if binds else sql)
            rows = list(cursor.fetchall()) if cursor.description else []
            return rows, cursor.rowcount

    def others_at_work(self, connection: Connection) -> bool:
        """See it in the server's list of sessions; another process of ours counts as somebody, and so does whoever we may not see."""
        return sessions.others_at_work(dbapi_of(connection), self.database, self._own.ids())

    def run_alone(self, connection: Connection, sql: str, settings: Mapping[str, str]) -> None:
        """Execute one text in the mode of one statement per transaction, and go back from that mode whatever happens."""
        bare = dbapi_of(connection)
        bare.rollback()
        with bare.cursor() as cursor:
            before: dict[str, Any] = {}
            for name in settings:
                cursor.execute(f"SELECT @@SESSION.{name}")
                (before[name],) = cursor.fetchone()
            bare.autocommit(True)  # noqa: FBT003 - the library takes no name
            try:
                _set(cursor, settings)
                cursor.execute(sql)
            finally:
                if bare.open:
                    _set(cursor, before)
                    bare.autocommit(False)  # noqa: FBT003
        connection.info.pop(_LOCK_WAIT, None)

    def interrupt(self, connection: Connection) -> None:
        """End what the connection runs, through another one; one that is gone needs no ending."""
        bare: Any = connection.connection.dbapi_connection
        if bare is None or not bare.open:
            return
        with suppress(pymysql.Error, CannotReach):
            other = self.connect()
            try:
                with other.cursor() as cursor:
                    cursor.execute(f"KILL QUERY {int(bare.thread_id())}")
            finally:
                other.close()

    def stream_verbatim(self, connection: Connection, sql: str, binds: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        """Execute one query and lay its rows aside in a file, since a connection can do nothing else while rows come."""
        bare = dbapi_of(connection)
        with tempfile.SpooledTemporaryFile(max_size=_STREAM_MEMORY_BYTES) as rows:
            with bare.cursor(SSCursor) as cursor:
                cursor.execute(with_values(sql, binds) if binds else sql)
                while some := cursor.fetchmany(_STREAM_ROWS):
                    pickle.dump(list(some), rows, protocol=pickle.HIGHEST_PROTOCOL)
            end = rows.tell()
            rows.seek(0)
            while rows.tell() < end:
                yield from pickle.load(rows)  # noqa: S301 - our own, written a moment ago

    def placeholders(self, count: int) -> list[str]:
        """Return the mark that the server's own prepared statements have."""
        return ["?"] * count

    def quote(self, name: str) -> str:
        """Quote one identifier."""
        return quote(name)

    # ── sessions ──────────────────────────────────────────────────────────────────────────────────────────────────

    def session_identity(self, connection: Connection) -> SessionIdentity:
        """Name the server and its start, and the session by its number, which that run of the server gives once."""
        return sessions.identity(dbapi_of(connection))

    def end_session(self, connection: Connection, identity: SessionIdentity) -> None:
        """End that very session, if it is on this run of this server and still there, and wait a moment for it to go."""
        sessions.end(dbapi_of(connection), identity)

    def session_gone(self, connection: Connection, identity: SessionIdentity) -> bool:
        """Whether the server lists that session no more; one of an account that we may not see counts as there."""
        return sessions.gone(dbapi_of(connection), identity)

    # ── system tables ─────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def bootstrap_lock(self, connection: Connection) -> Iterator[None]:
        """Hold a lock of the session, which outlives the commits of DDL, until what was done is committed.

        A cluster of several writable nodes has no such lock; there each statement is done again harmlessly.
        """
        bare = dbapi_of(connection)
        locked = not sessions.is_clustered(bare)
        if locked and _scalar(bare, f"SELECT get_lock('{_BOOTSTRAP_LOCK}', {_BOOTSTRAP_WAIT_SECONDS})") != 1:
            raise LockTimeout("somebody else has been installing or upgrading the system tables for a minute")
        try:
            yield
            bare.commit()
        except BaseException:
            with suppress(pymysql.Error):  # what led here matters more; a lost session holds no lock either
                bare.rollback()
            raise
        finally:
            if locked and bare.open:
                with suppress(pymysql.Error):
                    _scalar(bare, f"SELECT release_lock('{_BOOTSTRAP_LOCK}')")

    def create_namespace(self, connection: Connection) -> None:
        """Create the database; asked for first, since IF NOT EXISTS wants the privilege even when it exists."""
        if not self._has_namespace(connection):
            connection.exec_driver_sql(f"CREATE DATABASE IF NOT EXISTS {NAMESPACE} CHARACTER SET utf8mb4")

    def drop_namespace(self, connection: Connection) -> None:
        """Drop the database unless somebody put something of his own in it."""
        sources = {"TABLES": "TABLE_SCHEMA", "ROUTINES": "ROUTINE_SCHEMA", "EVENTS": "EVENT_SCHEMA"}
        in_use = " UNION ALL ".join(f"SELECT 1 FROM information_schema.{view} WHERE {column} = '{NAMESPACE}'" for view, column in sources.items())
        if self._has_namespace(connection) and connection.exec_driver_sql(f"{in_use} LIMIT 1").first() is None:
            connection.exec_driver_sql(f"DROP DATABASE IF EXISTS {NAMESPACE}")

    def _has_namespace(self, connection: Connection) -> bool:
        sql = f"SELECT 1 FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = '{NAMESPACE}'"
        return connection.exec_driver_sql(sql).first() is not None

    def existing_tables(self, connection: Connection) -> set[str]:
        """Return the tables of the database."""
        sql = f"SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = '{NAMESPACE}' AND TABLE_TYPE = 'BASE TABLE'"
        return {name for (name,) in connection.exec_driver_sql(sql)}

    def existing_columns(self, connection: Connection, table: str) -> list[str]:
        """Return the columns of one system table, in order."""
        sql = "SELECT COLUMN_NAME FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ? ORDER BY ORDINAL_POSITION"
        rows, _ = self.run_verbatim(connection, sql, (NAMESPACE, table))
        return [name for (name,) in rows]

    def installation(self, connection: Connection) -> dict[str, str]:
        """Name the server by its number and its folder, and by its own identifier where it has one."""
        return sessions.installation(dbapi_of(connection))


def dbapi_of(connection: Connection) -> Any:
    """Return the library's own connection."""
    bare = connection.connection.dbapi_connection
    assert bare is not None
    return bare


def is_mariadb(bare: Any) -> bool:
    """Whether the server at the other end is MariaDB."""
    return "mariadb" in str(bare.get_server_info()).lower()


def _set(cursor: Any, settings: Mapping[str, Any]) -> None:
    for name, value in settings.items():
        cursor.execute(f"SET SESSION {name} = {value if isinstance(value, (int, float)) or str(value).isdigit() else literal(value)}")


def _scalar(bare: Any, sql: str) -> Any:
    with bare.cursor() as cursor:
        cursor.execute(sql)
        row = cursor.fetchone()
        return row[0] if row else None
