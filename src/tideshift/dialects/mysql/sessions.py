"""Sessions on their server: who they are, whether they are still there, and ending them.

A session's number is given once in the life of a server's process; so number and start of that process name it. Start
is reckoned within one statement, where both clocks are read at the same moment, and so is always the same. A session leaves
the server's list only after its transaction was rolled back.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

import pymysql

from tideshift.dialects.mysql.meaning import number_of
from tideshift.store.driver import SessionIdentity

__all__ = ["OwnSessions", "end", "gone", "identity", "installation", "is_clustered", "others_at_work"]

_UNKNOWN_THREAD = 1094
_UNKNOWN_VARIABLE = 1193
_LOOKS, _LOOK_SECONDS = 100, 0.02
_BUSY_SECONDS = 2
_SERVER = "concat_ws(' ', @@hostname, @@port, @@datadir)"
_STATUS = {True: "information_schema.GLOBAL_STATUS", False: "performance_schema.global_status"}


class OwnSessions:
    """The sessions of this process, as long as their connections are there."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._connections: weakref.WeakSet[Any] = weakref.WeakSet()

    def add(self, connection: Any) -> None:
        """Note a connection that was opened."""
        with self._lock:
            self._connections.add(connection)

    def ids(self) -> set[int]:
        """Return the numbers of those that are open."""
        with self._lock:
            return {int(connection.thread_id()) for connection in self._connections if connection.open}


def identity(bare: Any) -> SessionIdentity:
    """Name the session of this connection: the account is part of it, since not everybody sees everybody's sessions."""
    server, number, started, account = _rows(bare, f"SELECT {_SERVER}, connection_id(), {_started(bare)}, current_user()")[0]
    return SessionIdentity(server=str(server), backend=f"{number} {account}", started=str(started))


def gone(bare: Any, one: SessionIdentity) -> bool:
    """Whether that session is no longer on its server; on a cluster, a session of another node loses to whoever commits first."""
    number, _, account = one.backend.partition(" ")
    sql = (
        f"SELECT {_SERVER}, {_started(bare)}, current_user(),"
        f" (SELECT count(*) FROM information_schema.PROCESSLIST WHERE ID = {int(number)})"
    )
    server, started, own_account, found = _rows(bare, sql)[0]
    if (str(server), str(started)) != (one.server, one.started):
        return True
    return not found and (str(own_account) == account or sees_all(bare))


def end(bare: Any, one: SessionIdentity) -> None:
    """Kill that session, if it is on this run of this server, and wait a moment for its transaction to be rolled back."""
    if gone(bare, one):
        return
    try:
        _rows(bare, f"KILL CONNECTION {int(one.backend.partition(' ')[0])}")
    except pymysql.Error as error:
        if number_of(error) != _UNKNOWN_THREAD:
            raise
    for _ in range(_LOOKS):
        if gone(bare, one):
            return
        _rows(bare, f"SELECT sleep({_LOOK_SECONDS})")


def sees_all(bare: Any) -> bool:
    """Whether this account sees the sessions of the others."""
    user, _, host = str(_rows(bare, "SELECT current_user()")[0][0]).rpartition("@")
    sql = "SELECT 1 FROM information_schema.USER_PRIVILEGES WHERE PRIVILEGE_TYPE = 'PROCESS' AND GRANTEE = %s LIMIT 1"
    with bare.cursor() as cursor:
        cursor.execute(sql, (f"'{user}'@'{host}'",))
        return cursor.fetchone() is not None


def others_at_work(bare: Any, database: str, own: set[int]) -> bool:
    """Whether a session that is not of this process used the database a moment ago; true where we do not see everybody."""
    sql = (
        "SELECT ID FROM information_schema.PROCESSLIST WHERE DB = %s AND ID <> connection_id()"
        f" AND NOT (COMMAND = 'Sleep' AND TIME >= {_BUSY_SECONDS}) AND COMMAND <> 'Daemon'"
    )
    with bare.cursor() as cursor:
        cursor.execute(sql, (database,))
        found = {int(number) for (number,) in cursor.fetchall()}
    return bool(found - own) or not sees_all(bare)


def is_clustered(bare: Any) -> bool:
    """Whether this server is a node of a Galera cluster."""
    try:
        return bool(_rows(bare, "SELECT @@SESSION.wsrep_on")[0][0])
    except pymysql.Error as error:
        if number_of(error) == _UNKNOWN_VARIABLE:
            return False
        raise


def installation(bare: Any) -> dict[str, str]:
    """Name the server: its number and folder, and on MySQL the identifier that it made for itself."""
    server, folder = _rows(bare, "SELECT @@server_id, @@datadir")[0]
    named = {"server": str(server), "folder": str(folder)}
    try:
        named["uuid"] = str(_rows(bare, "SELECT @@server_uuid")[0][0])
    except pymysql.Error as error:
        if number_of(error) != _UNKNOWN_VARIABLE:
            raise
    return named


def _started(bare: Any) -> str:
    status = _STATUS["mariadb" in str(bare.get_server_info()).lower()]
    return f"(SELECT CAST(unix_timestamp() - VARIABLE_VALUE AS SIGNED) FROM {status} WHERE VARIABLE_NAME = 'Uptime')"


def _rows(bare: Any, sql: str) -> list[tuple[Any, ...]]:
    with bare.cursor() as cursor:
        cursor.execute(sql)
        return list(cursor.fetchall()) if cursor.description else []
