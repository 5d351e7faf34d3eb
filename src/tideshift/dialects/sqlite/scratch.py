"""A database in memory by the same library, in which texts are tried before they touch the user's."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from tideshift.dialects.sqlite.driver import SqliteDriver

__all__ = ["IndexShape", "Scratch", "Shape", "TextRefused", "read_shape", "scratch", "schema_can_be_written"]

Run = Callable[[str, tuple[Any, ...]], list[tuple[Any, ...]]]


class TextRefused(Exception):
    """The library does not take a text; the argument says why, in its words."""


@dataclass(frozen=True)
class IndexShape:
    """One index as the catalogue tells it: origin `c`, `u` or `pk`, and per term (column number, name, falling, collation, is key)."""

    name: str
    unique: bool
    origin: str
    partial: bool
    terms: tuple[tuple[int, str | None, int, str, int], ...]

    @property
    def key_terms(self) -> tuple[tuple[int, str | None, int, str, int], ...]:
        """Return the terms that make up the key."""
        return tuple(term for term in self.terms if term[4])


@dataclass(frozen=True)
class Shape:
    """A table as the catalogue tells it: (name, type, not null, default, key position, hidden) per column, and its indexes."""

    columns: tuple[tuple[str, str, int, str | None, int, int], ...]
    indexes: tuple[IndexShape, ...]


def read_shape(run: Run, table: str) -> Shape:
    """Read a table's shape from the catalogue."""
    columns = run('SELECT name, type, "notnull", dflt_value, pk, hidden FROM pragma_table_xinfo(?) ORDER BY cid', (table,))
    indexes = []
    for name, unique, origin, partial in run(
        'SELECT name, "unique", origin, partial FROM pragma_index_list(?) ORDER BY name', (table,)
    ):
        terms = run('SELECT cid, name, "desc", coll, "key" FROM pragma_index_xinfo(?) ORDER BY seqno', (name,))
        indexes.append(IndexShape(name, bool(unique), origin, bool(partial), tuple(terms)))
    return Shape(tuple(columns), tuple(indexes))


class Scratch:
    """One empty database in memory."""

    def __init__(self, connection: Any, error: type[Exception]) -> None:
        self._connection = connection
        self._error = error

    def run(self, sql: str, binds: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
        """Execute one text, or raise `TextRefused`."""
        try:
            rows: list[tuple[Any, ...]] = self._connection.execute(sql, binds).fetchall()
        except self._error as error:
            raise TextRefused(str(error)) from error
        return rows

    def shape(self, table: str) -> Shape:
        """Read the shape of a table in here."""
        return read_shape(self.run, table)


@contextmanager
def scratch(driver: SqliteDriver) -> Iterator[Scratch]:
    """Open an empty database in memory."""
    # A statement kept from before a change of the schema has crashed the library when it was used again.
    connection = driver.module.connect(":memory:", isolation_level=None, cached_statements=0)
    try:
        yield Scratch(connection, driver.module.Error)
    finally:
        connection.close()


def schema_can_be_written(driver: SqliteDriver) -> bool:
    """Whether this library lets a connection write its schema table, which a library built as defensive does not."""
    with scratch(driver) as trial:
        try:
            trial.run("CREATE TABLE probe (old)")
            trial.run("PRAGMA writable_schema = ON")
            trial.run("UPDATE sqlite_master SET sql = 'CREATE TABLE probe (new)' WHERE name = 'probe'")
            trial.run("PRAGMA writable_schema = RESET")
            return trial.run("SELECT name FROM pragma_table_info('probe')") == [("new",)]
        except TextRefused:
            return False
