"""The table that a change is about, as the catalogue has it."""

from __future__ import annotations

from dataclasses import dataclass

from tideshift.ddl.change import TableName
from tideshift.dialects.mysql.meaning import number_of
from tideshift.dialects.mysql.names import qualified
from tideshift.dialects.mysql.shape import Shape
from tideshift.errors import NotFound
from tideshift.store.database import DatabaseFailed, Transaction
from tideshift.store.tables import NAMESPACE

__all__ = ["Source", "find_table", "shape_of"]

_TABLE = """
SELECT TABLE_SCHEMA, TABLE_NAME, TABLE_TYPE, coalesce(ENGINE, ''), coalesce(TABLE_ROWS, 0), coalesce(DATA_LENGTH, 0) + coalesce(INDEX_LENGTH, 0)
FROM information_schema.TABLES WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ?
"""
_COUNTED_ROWS_MAX = 20_000
_NO_SUCH_TABLE = 1146


@dataclass(frozen=True, kw_only=True)
class Source:
    """One table of the user's."""

    schema: str
    name: str
    engine: str
    rows: int
    """By the server's statistics, which may be old."""
    bytes: int
    shape: Shape

    @property
    def quoted(self) -> str:
        """Return its name as statements write it."""
        return qualified(self.schema, self.name)

    @property
    def table(self) -> TableName:
        """Return its name."""
        return TableName(self.schema, self.name)

    def is_small(self, tx: Transaction) -> bool:
        """Whether it has few rows: counted up to a limit, since statistics of a table that was just filled say nothing."""
        counted = tx.run_verbatim(f"SELECT count(*) FROM (SELECT 1 FROM {self.quoted} LIMIT {_COUNTED_ROWS_MAX + 1}) some").scalar()
        return int(counted) <= _COUNTED_ROWS_MAX


def find_table(tx: Transaction, name: TableName, database: str) -> Source:
    """Read a table; raise `NotFound` where there is none, or where it is no table or one of ours."""
    schema = name.schema or database
    rows = tx.run_verbatim(_TABLE, (schema, name.name)).rows
    if not rows or schema.lower() == NAMESPACE:
        raise NotFound(f"there is no table {name}", table=str(name))
    found_schema, found_name, kind, engine, count, size = rows[0]
    if kind != "BASE TABLE":
        raise NotFound(f"{name} is not a table but a {kind.lower()}", table=str(name))
    shape = shape_of(tx, qualified(found_schema, found_name))
    assert shape is not None
    return Source(schema=found_schema, name=found_name, engine=engine, rows=int(count), bytes=int(size), shape=shape)


def shape_of(tx: Transaction, quoted: str) -> Shape | None:
    """Return a table's shape; None where there is no such table."""
    try:
        row = tx.run_verbatim(f"SHOW CREATE TABLE {quoted}").rows[0]
    except DatabaseFailed as error:
        if number_of(error.__cause__ or error) == _NO_SUCH_TABLE:
            return None
        raise
    return Shape.of(str(row[1]))
