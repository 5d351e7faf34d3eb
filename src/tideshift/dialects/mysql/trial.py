"""Trying a change on an empty copy of the table: what the server takes, by which algorithm, and what the table is afterwards.

The copy stands beside the table for a moment, under a name of ours that holds the session which made it, on a connection
of its own, since DDL here commits whatever transaction it stands in. One that a killed process left is taken away by the next trial.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import pymysql

from tideshift.dialects.mysql.driver import MysqlDriver
from tideshift.dialects.mysql.meaning import meaning_of, number_of
from tideshift.dialects.mysql.names import own_name, parts_of, qualified
from tideshift.dialects.mysql.shape import Shape
from tideshift.dialects.mysql.source import Source
from tideshift.errors import LockTimeout, Retryable
from tideshift.store.driver import Failure
from tideshift.store.tables import NAMESPACE

__all__ = ["Refused", "Trial", "trial"]

_LOCK_SECONDS = 5
_NOT_BY_THIS_WAY = frozenset({1845, 1846})
_OURS = re.compile(rf"{NAMESPACE}_0_[0-9a-f]{{8}}_trial_(\d+)")


class Refused(Exception):
    """The server does not take the change at all, and why."""


@dataclass
class Trial:
    """The empty copy, and the shape that it was made with."""

    bare: Any
    quoted: str
    source: Source
    made: Shape

    def run(self, sql: str) -> bool:
        """Try one statement; return whether it was taken, False when not by the algorithm that it asks for."""
        try:
            self._execute(sql)
        except pymysql.Error as error:
            if number_of(error) in _NOT_BY_THIS_WAY:
                return False
            if meaning_of(error, committing=False) in (Failure.RETRYABLE, Failure.LOST):
                raise Retryable(str(error)) from error
            said = str(error.args[1] if len(error.args) > 1 else error)
            raise Refused(said.replace(parts_of(self.quoted)[-1], self.source.name)) from error
        return True

    def shape(self) -> Shape:
        """Return what the copy is now."""
        return Shape.of(str(self._execute(f"SHOW CREATE TABLE {self.quoted}")[0][1]))

    def _execute(self, sql: str) -> list[tuple[Any, ...]]:
        with self.bare.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall()) if cursor.description else []


@contextmanager
def trial(driver: MysqlDriver, source: Source) -> Iterator[Trial]:
    """Make an empty copy for as long as the block lasts."""
    with closing(driver.connect()) as bare, bare.cursor() as cursor:
        cursor.execute(f"SET SESSION lock_wait_timeout = {_LOCK_SECONDS}")
        _clean(cursor, source.schema)
        quoted = qualified(source.schema, own_name(0, source.quoted, f"trial_{bare.thread_id()}"))
        try:
            cursor.execute(f"CREATE TABLE {quoted} LIKE {source.quoted}")
        except pymysql.Error as error:
            if meaning_of(error, committing=False) is Failure.LOCK_TIMEOUT:
                raise LockTimeout(f"an empty copy of {source.quoted} could not be made: {error}") from error
            raise Refused(f"an empty copy of the table cannot be made: {error.args[-1]}") from error
        try:
            made = Trial(bare, quoted, source, source.shape)
            made.made = made.shape()
            yield made
        finally:
            with suppress(pymysql.Error):  # The next trial takes it away.
                cursor.execute(f"DROP TABLE IF EXISTS {quoted}")


def _clean(cursor: Any, schema: str) -> None:
    """Drop copies whose session is over."""
    cursor.execute("SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = %s AND TABLE_NAME LIKE %s", (schema, f"{NAMESPACE}\\_0\\_%\\_trial\\_%"))
    for (name,) in cursor.fetchall():
        found = _OURS.fullmatch(name)
        if found is not None and not cursor.execute("SELECT 1 FROM information_schema.PROCESSLIST WHERE ID = %s", (found[1],)):
            with suppress(pymysql.Error):  # somebody else took it away
                cursor.execute(f"DROP TABLE IF EXISTS {qualified(schema, name)}")
