"""PostgreSQL as the store needs it: a schema `tideshift`, READ COMMITTED, sessions that can be ended and seen gone.

What a role or database may have set differently is pinned per session, so that a value's text form is the same in
every session and no time limit meant for applications ends our work; the limits that are ours are set per transaction.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from typing import Any

import psycopg
from psycopg import IsolationLevel, RawCursor, RawServerCursor
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import BigInteger, Connection, Engine, create_engine, literal_column
from sqlalchemy.pool import QueuePool
from sqlalchemy.sql.elements import ColumnElement

from tideshift.config import NORMAL
from tideshift.errors import CannotReach
from tideshift.store.driver import DriverCapabilities, Failure, SessionIdentity
from tideshift.store.tables import NAMESPACE

__all__ = ["PostgresDriver", "quote"]

_NAME_BYTES_MAX = 63
_STREAM_ROWS = 2_000
_LOOKS = 3
_END_WAIT_MS = 2_000
_CANCEL_SECONDS = 2.0
_NOW = "CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS BIGINT)"
_BOOTSTRAP_KEY = int.from_bytes(hashlib.sha256(b"tideshift bootstrap").digest()[:8], "big", signed=True)

_PINNED: Mapping[str, str] = {
    "TimeZone": "UTC",
    "DateStyle": "ISO, YMD",
    "IntervalStyle": "postgres",
    "extra_float_digits": "3",
    "bytea_output": "hex",
    "xmloption": "content",
    "lc_monetary": "C",
    "search_path": "",
    "client_encoding": "UTF8",
    "standard_conforming_strings": "on",
    "session_replication_role": "origin",
    "default_transaction_read_only": "off",
    "default_transaction_deferrable": "off",
    "statement_timeout": "0",
    "jit": "off",
    "transaction_timeout": "0",
    "idle_session_timeout": "0",
}
_KEEPALIVE: Mapping[str, int] = {
    "connect_timeout": 10,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}
_MEANING = {
    "40001": Failure.RETRYABLE,  # serialization failure
    "40P01": Failure.RETRYABLE,  # deadlock
    "53300": Failure.RETRYABLE,  # too many connections
    "57014": Failure.RETRYABLE,  # the statement was cancelled
    "55P03": Failure.LOCK_TIMEOUT,
    "53100": Failure.DISK_FULL,
}
_OTHERS_AT_WORK = """
SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND coalesce(backend_type, 'client backend') = 'client backend'
  AND application_name IS DISTINCT FROM current_setting('application_name') AND (state_change IS NULL OR state <> 'idle' OR state_change > now() - interval '2 s'))
"""
_LOST = frozenset({"57P01", "57P02", "57P03", "57P05", "25P03", "25P04", "40003"})


class PostgresDriver:
    """One database of a PostgreSQL server; `url` is libpq's, also in SQLAlchemy's spelling with a driver's name."""

    name = "postgres"
    capabilities = DriverCapabilities(concurrent_writers=True, transactional_ddl=True, ends_sessions=True)

    def __init__(
        self,
        url: str,
        *,
        pool_size: int = 16,
        application_name: str = "tideshift",
        idle_in_transaction_seconds: float = NORMAL.lease_seconds,
    ) -> None:
        scheme, colon, rest = url.partition("://")
        self.url = f"{scheme.partition('+')[0]}{colon}{rest}"
        self._pool_size = pool_size
        self._application_name = application_name
        self._idle_in_transaction_ms = round(idle_in_transaction_seconds * 1000)
        self._stream_numbers = itertools.count(1)
        self._seen_direct = False

    # ── connections and transactions ──────────────────────────────────────────────────────────────────────────────

    def create_engine(self) -> Engine:
        """Make the engine over a pool of connections."""
        return create_engine(
            "postgresql+psycopg://",
            creator=self.connect,
            poolclass=QueuePool,
            pool_size=self._pool_size,
            max_overflow=-1,
        )

    def connect(self) -> psycopg.Connection[Any]:
        """Open one bare DB-API connection the way all of ours are opened."""
        pinned = {**_PINNED, "idle_in_transaction_session_timeout": str(self._idle_in_transaction_ms)}
        # Only what differs: some of it only a superuser may set, and not every version knows all of it.
        self._see_direct()
        values = ", ".join(f"('{name}', '{value}')" for name, value in pinned.items())
        settings = (
            f"SELECT set_config(name, value, false) FROM (VALUES {values}) AS pinned(name, value)"
            " WHERE current_setting(name, true) <> value"
        )
        connection: psycopg.Connection[Any] | None = None
        try:
            # In the mode of one statement per transaction, since a rollback would take the settings back. Prepared
            # statements are left out: a pooler loses them, and a swapped table makes their plans fail.
            connection = self._bare()
            connection.execute(settings.encode())
            connection.isolation_level = IsolationLevel.READ_COMMITTED
            connection.autocommit = False
        except psycopg.Error as error:
            if connection is not None:
                connection.close()
            raise CannotReach(f"cannot reach the database: {error}".strip()) from error
        return connection

    def _see_direct(self) -> None:
        """See once that a connection is one session of the server's own; raise `CannotReach` where something in between lends sessions by the transaction.

        Two connections that are open at once then meet in one session, or one of them changes its session between two transactions.
        """
        if self._seen_direct:
            return
        try:
            with closing(self._bare()) as one, closing(self._bare()) as other:
                seen = [[_pid(one), _pid(other)] for _ in range(_LOOKS)]
        except psycopg.Error as error:
            raise CannotReach(f"cannot reach the database: {error}".strip()) from error
        firsts, seconds = ({pids[number] for pids in seen} for number in range(2))
        if firsts & seconds or len(firsts | seconds) != 2:
            raise CannotReach(
                "between this process and the server is a proxy that gives each transaction another session: settings, locks and the fences of jobs would be lost",
                hint="Give the server's own address, or a pool that lends a session for as long as a connection lasts (PgBouncer: pool_mode = session).",
            )
        self._seen_direct = True

    def _bare(self) -> psycopg.Connection[Any]:
        return psycopg.connect(self.url, autocommit=True, prepare_threshold=None, **self._options())

    def _options(self) -> dict[str, Any]:
        """Return the connection options that the URL does not set itself."""
        own = {"application_name": self._application_name, **_KEEPALIVE}
        given = conninfo_to_dict(self.url)
        return {name: value for name, value in own.items() if name not in given}

    def begin(self, connection: Connection, *, write: bool, durable: bool, lock_wait_seconds: float) -> None:
        """Begin with this transaction's own limits, a writing one in READ COMMITTED, which psycopg says by itself.

        One that only reads sees one snapshot, so that what it reads belongs together.

        Durable means at least that the server's disk and its synchronous standbys have it; a stronger default stays. What need
        not be durable waits for no disk: a crash may take the last such commits as a whole, and nothing else.
        SET and SHOW take no snapshot, so that the caller may still choose another level for this transaction.
        """
        dbapi_connection = _dbapi(connection)
        settings = [f"SET LOCAL lock_timeout = {max(1, round(lock_wait_seconds * 1000))}"]
        if not write:
            settings.insert(0, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        if write and durable:
            if "durable" not in connection.info:
                (default,) = dbapi_connection.execute("SHOW synchronous_commit").fetchone() or ("",)
                connection.info["durable"] = "remote_apply" if default == "remote_apply" else "on"
            settings.append(f"SET LOCAL synchronous_commit = {connection.info['durable']}")
        elif write:  # whatever is durable later has this on the disk before it
            settings.append("SET LOCAL synchronous_commit = off")
        dbapi_connection.execute("; ".join(settings).encode())

    def relieve(self, connection: Connection) -> None:
        """Do nothing: the server does its upkeep by itself."""

    def rest(self, connection: Connection) -> None:
        """Do nothing: rows that were read are not kept."""

    def now(self) -> ColumnElement[int]:
        """Return the server's clock, not the transaction's start."""
        return literal_column(_NOW, BigInteger())

    def classify(self, error: BaseException, *, committing: bool) -> Failure:
        """Say what an error means by its SQLSTATE; a broken connection brings none."""
        state = getattr(error, "sqlstate", None)
        if state is None:
            lost = isinstance(error, (psycopg.OperationalError, psycopg.InterfaceError))
        else:
            lost = state in _LOST or state.startswith("08")
        if lost:
            return Failure.AMBIGUOUS_COMMIT if committing else Failure.LOST
        if state is not None and state.startswith(("22", "23")):  # a value that does not fit its type, or a constraint
            return Failure.CONSTRAINT
        return _MEANING.get(state or "", Failure.FATAL)

    # ── verbatim statements ───────────────────────────────────────────────────────────────────────────────────────

    def run_verbatim(
        self, connection: Connection, sql: str, binds: tuple[Any, ...]
    ) -> tuple[list[tuple[Any, ...]], int]:
        """Execute one text by a cursor that knows only the server's own marks and leaves `%` alone."""
        with RawCursor(_dbapi(connection)) as cursor:
            cursor.execute(sql.encode(), binds or None)
            rows = cursor.fetchall() if cursor.description else []
            return rows, cursor.rowcount

    def others_at_work(self, connection: Connection) -> bool:
        """See it in the server's list of sessions; of other roles' it tells a plain role nothing, so theirs count as busy."""
        (others,) = _dbapi(connection).execute(_OTHERS_AT_WORK).fetchone() or (True,)
        return bool(others)

    def run_alone(self, connection: Connection, sql: str, settings: Mapping[str, str]) -> None:
        """Execute one text in the mode of one statement per transaction, and go back from that mode whatever happens."""
        bare = _dbapi(connection)
        before = {name: self._setting(bare, name) for name in settings}
        bare.rollback()
        bare.autocommit = True
        try:
            self._set(bare, settings)
            with RawCursor(bare) as cursor:
                cursor.execute(sql.encode())
        finally:
            if not bare.closed:
                self._set(bare, before)
                bare.autocommit = False

    @staticmethod
    def _setting(bare: psycopg.Connection[Any], name: str) -> str:
        (value,) = bare.execute("SELECT current_setting(%s)", (name,)).fetchone() or ("",)
        return str(value)

    @staticmethod
    def _set(bare: psycopg.Connection[Any], settings: Mapping[str, str]) -> None:
        for name, value in settings.items():
            bare.execute("SELECT set_config(%s, %s, false)", (name, value))

    def interrupt(self, connection: Connection) -> None:
        """Ask the server to cancel what the connection runs; one that is gone or answers nothing is left to its keepalive."""
        with suppress(psycopg.Error):
            _dbapi(connection).cancel_safe(timeout=_CANCEL_SECONDS)

    def stream_verbatim(self, connection: Connection, sql: str, binds: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        """Execute one query by a cursor on the server, so that other statements may run in between."""
        name = f"tideshift_stream_{next(self._stream_numbers)}"
        with RawServerCursor(_dbapi(connection), name) as cursor:
            cursor.itersize = _STREAM_ROWS
            cursor.execute(sql.encode(), binds or None)
            yield from cursor

    def placeholders(self, count: int) -> list[str]:
        """Return $1, $2 and so on."""
        return [f"${number}" for number in range(1, count + 1)]

    def quote(self, name: str) -> str:
        """Quote one identifier."""
        return quote(name)

    # ── sessions ──────────────────────────────────────────────────────────────────────────────────────────────────

    def session_identity(self, connection: Connection) -> SessionIdentity:
        """Name the server by its system identifier, and the backend by its number and start."""
        sql = "SELECT pg_backend_pid(), extract(epoch FROM backend_start) FROM pg_stat_activity WHERE pid = pg_backend_pid()"
        pid, started = connection.exec_driver_sql(sql).one()
        return SessionIdentity(server=_server(connection), backend=str(pid), started=str(started))

    def end_session(self, connection: Connection, identity: SessionIdentity) -> None:
        """End that very session, if it is on this server and still there, and wait a moment for it to go."""
        if identity.server != _server(connection):
            return
        sql = (
            "SELECT pg_terminate_backend(pid, $2) FROM pg_stat_activity"
            " WHERE pid = $1 AND extract(epoch FROM backend_start) = $3::numeric"
        )
        self.run_verbatim(connection, sql, (int(identity.backend), _END_WAIT_MS, identity.started))

    def session_gone(self, connection: Connection, identity: SessionIdentity) -> bool:
        """Whether the server lists that session no more; one whose start we may not see counts as there."""
        if identity.server != _server(connection):
            return True
        # A transaction keeps the first picture of the sessions that it was given.
        connection.exec_driver_sql("SELECT pg_stat_clear_snapshot()")
        sql = (
            "SELECT 1 FROM pg_stat_activity"
            " WHERE pid = $1 AND coalesce(extract(epoch FROM backend_start) = $2::numeric, true)"
        )
        rows, _ = self.run_verbatim(connection, sql, (int(identity.backend), identity.started))
        return not rows

    # ── system tables ─────────────────────────────────────────────────────────────────────────────────────────────

    @contextmanager
    def bootstrap_lock(self, connection: Connection) -> Iterator[None]:
        """Hold an advisory lock to the end of the transaction."""
        connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_BOOTSTRAP_KEY})")
        yield

    def create_namespace(self, connection: Connection) -> None:
        """Create the schema; asked for first, since IF NOT EXISTS wants the privilege even when it exists."""
        if not self._has_namespace(connection):
            connection.exec_driver_sql(f"CREATE SCHEMA {NAMESPACE}")

    def drop_namespace(self, connection: Connection) -> None:
        """Drop the schema unless somebody put something of his own in it."""
        in_use = (
            "SELECT 1 FROM pg_depend WHERE refclassid = 'pg_namespace'::regclass"
            f" AND refobjid = to_regnamespace('{NAMESPACE}') LIMIT 1"
        )
        if self._has_namespace(connection) and connection.exec_driver_sql(in_use).first() is None:
            connection.exec_driver_sql(f"DROP SCHEMA {NAMESPACE}")

    def _has_namespace(self, connection: Connection) -> bool:
        return connection.exec_driver_sql(f"SELECT to_regnamespace('{NAMESPACE}') IS NOT NULL").scalar_one() is True

    def existing_tables(self, connection: Connection) -> set[str]:
        """Return the tables of the schema."""
        rows = connection.exec_driver_sql(
            f"SELECT relname::text FROM pg_class WHERE relnamespace = to_regnamespace('{NAMESPACE}') AND relkind IN ('r', 'p')"
        )
        return {name for (name,) in rows}

    def existing_columns(self, connection: Connection, table: str) -> list[str]:
        """Return the columns of one system table, in order."""
        sql = (
            "SELECT attname::text FROM pg_attribute JOIN pg_class ON pg_class.oid = attrelid"
            f" WHERE relnamespace = to_regnamespace('{NAMESPACE}') AND relname = $1 AND attnum > 0 AND NOT attisdropped"
            " ORDER BY attnum"
        )
        rows, _ = self.run_verbatim(connection, sql, (table,))
        return [name for (name,) in rows]

    def installation(self, connection: Connection) -> dict[str, str]:
        """Name server, database and timeline: a clone has another oid, a restored or promoted server another timeline."""
        oid = connection.exec_driver_sql(
            "SELECT oid::text FROM pg_database WHERE datname = current_database()"
        ).scalar_one()
        return {"server": _server(connection), "database": str(oid), "timeline": _timeline(connection)}


def quote(name: str) -> str:
    """Quote one identifier; refuse what PostgreSQL would cut or could not be given."""
    if not name or "\0" in name:
        raise ValueError(f"not a usable name: {name!r}")
    try:
        size = len(name.encode())
    except UnicodeEncodeError as error:
        raise ValueError(f"not a usable name, since it is not valid Unicode: {name!r}") from error
    if size > _NAME_BYTES_MAX:
        raise ValueError(f"the name has {size} bytes, and PostgreSQL would cut it after {_NAME_BYTES_MAX}: {name!r}")
    return '"' + name.replace('"', '""') + '"'


def _pid(connection: psycopg.Connection[Any]) -> int:
    """Ask for the number of the session's process at the server, in a transaction of its own."""
    (pid,) = connection.execute("SELECT pg_backend_pid()").fetchone() or (0,)
    return int(pid)


def _dbapi(connection: Connection) -> psycopg.Connection[Any]:
    bare: Any = connection.connection.dbapi_connection
    assert bare is not None
    return bare  # type: ignore[no-any-return]


def _server(connection: Connection) -> str:
    """Return the system identifier, or where it may not be read, when and where the server was started."""
    readable = "SELECT has_function_privilege('pg_catalog.pg_control_system()', 'execute')"
    if connection.exec_driver_sql(readable).scalar_one():
        identifier = "SELECT system_identifier::text FROM pg_control_system()"
    else:
        identifier = "SELECT concat(host(inet_server_addr()), ':', current_setting('port'), '/', current_setting('cluster_name'))"
    return str(connection.exec_driver_sql(identifier).scalar_one())


def _timeline(connection: Connection) -> str:
    """Return the timeline that is written now; the control file would lag behind after a promotion."""
    if connection.exec_driver_sql("SELECT pg_is_in_recovery()").scalar_one():
        sql = "SELECT timeline_id FROM pg_control_checkpoint()"
        return str(connection.exec_driver_sql(sql).scalar_one())
    file_name = connection.exec_driver_sql("SELECT pg_walfile_name(pg_current_wal_lsn())").scalar_one()
    return str(int(str(file_name)[:8], 16))
