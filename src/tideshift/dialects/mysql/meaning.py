"""What the server's error numbers mean for the one who gets them; a broken connection brings a number of the library's own."""

from __future__ import annotations

from typing import Any

import pymysql

from tideshift.store.driver import Failure

__all__ = ["number_of", "meaning_of"]

_LOST = frozenset({
    1053,  # the server is shutting down
    1077, 1079, 1080,  # it was shut down, or forced to close the connection
    1152, 1153, 1156, 1158, 1159, 1160, 1161, 1184,  # the connection was aborted, or packets went wrong
    1927,  # this connection was killed
    2002, 2003, 2005, 2006, 2012, 2013, 2014, 2027, 2055,  # the library cannot reach the server, or lost it
    3169,  # the session was killed (MySQL)
    4031,  # ended for being idle (MySQL)
})  # fmt: skip
_RETRYABLE = frozenset({
    1020,  # the row has changed since it was read
    1040, 1203, 1226,  # too many connections
    1180, 1181,  # an error during COMMIT or ROLLBACK: on a cluster, a conflict with another node
    1213,  # deadlock
    1317,  # the statement was interrupted
    1412,  # the table's definition has changed, so the snapshot cannot be read any more
    1615,  # a prepared statement must be prepared again
    1637,  # too many transactions at once
    1969, 3024,  # the statement took longer than a limit of the session
    3101,  # a conflict with another member of the group
})  # fmt: skip
_LOCK_TIMEOUT = frozenset({
    1205,
    3572,  # NOWAIT (MySQL)
    4167,  # too many waiters (MySQL)
})  # fmt: skip
_DISK_FULL = frozenset({
    1021, 1114,  # the disk, or the table, is full
    3675,  # no room for a tablespace
})  # fmt: skip
_NO_ROOM_ERRNO = ("Errcode: 28", "error 28 ", "errno: 28", "Errcode: 122", "error 122 ")
_WRITING_FAILED = frozenset({3, 20, 1026, 1030, 1598})
_CONSTRAINT = frozenset({
    1022, 1062, 1169, 1557, 1586, 1761, 1762, 1859,  # a duplicate key
    1048, 1138, 1171, 1263, 1364,  # no value where there must be one
    1216, 1217, 1451, 1452,  # a foreign key
    3819, 4025,  # a CHECK
    1264, 1265, 1292, 1300, 1365, 1366, 1367, 1406, 1411, 1416, 1426, 1441, 1690,  # a value that does not fit its type
    1526, 1591, 1748, 1863,  # no partition for it
    3140, 3141, 3144, 3903, 3904, 4037, 4038,  # JSON
})  # fmt: skip


def number_of(error: BaseException) -> int | None:
    """Return the error's number, where it has one."""
    first: Any = error.args[0] if error.args else None
    return first if isinstance(first, int) and not isinstance(first, bool) else None


def meaning_of(error: BaseException, *, committing: bool) -> Failure:
    """Say what an error means; what came from the commit itself and broke the connection leaves its outcome open."""
    number = number_of(error)
    if number in _LOST or (number in (None, 0) and isinstance(error, (pymysql.err.InterfaceError, pymysql.err.OperationalError))):
        return Failure.AMBIGUOUS_COMMIT if committing else Failure.LOST
    if number in _LOCK_TIMEOUT:
        return Failure.LOCK_TIMEOUT
    if number in _RETRYABLE:
        return Failure.RETRYABLE
    if number in _DISK_FULL or (number in _WRITING_FAILED and any(text in str(error) for text in _NO_ROOM_ERRNO)):
        return Failure.DISK_FULL
    if number in _CONSTRAINT or isinstance(error, (pymysql.err.IntegrityError, pymysql.err.DataError)):
        return Failure.CONSTRAINT
    return Failure.FATAL
