"""The dialect's own record of one reshaping, made at plan time and kept in the job: texts, columns, key, unique keys."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from tideshift.ddl.dialect import Reorg
from tideshift.dialects.sqlite.driver import SqliteDriver, quote
from tideshift.dialects.sqlite.keys import SqliteKeyOrder
from tideshift.dialects.sqlite.names import Names

__all__ = ["ROW_ALIAS", "Displaced", "KeyColumn", "Layout", "LookedUpIn", "SourceIndex"]

ROW_ALIAS = "tideshift_row"
"""What the row is called that a look-up seeks."""


@dataclass(frozen=True)
class KeyColumn:
    """One column of the chunk key with its collation in the key's index."""

    name: str
    collation: str | None
    descending: bool


@dataclass(frozen=True)
class SourceIndex:
    """One index that the user made."""

    name: str
    text: str


class LookedUpIn(StrEnum):
    """Where displaced rows are sought: in the shadow after a statement, or in the source before it."""

    SHADOW = "shadow"
    SOURCE = "source"


@dataclass(frozen=True)
class Displaced:
    """How to find the rows that a statement displaces through one unique key: conditions for an INSERT and an UPDATE."""

    place: LookedUpIn
    on_insert: str
    on_update: str


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Everything about source and shadow that does not depend on the job's id."""

    table: str
    column: str
    using: str | None
    old_text: str
    new_text: str
    columns: tuple[str, ...]
    """All columns, in order; `generated` names those that cannot be written, `virtual` those of them that are not stored."""
    generated: tuple[str, ...]
    virtual: tuple[str, ...]
    rowid: str | None
    """The name by which the rowid is reached, or None for a table without one."""
    rowid_column: str | None
    """The column that is the rowid (INTEGER PRIMARY KEY), if any."""
    key: tuple[KeyColumn, ...]
    collations_differ: bool
    """Whether the key's index has other collations than its columns, so that every statement must spell them out."""
    utf8: bool
    indexes: tuple[SourceIndex, ...]
    automatic_indexes: tuple[str, ...]
    displaced: tuple[Displaced, ...]
    parents: tuple[str, ...]
    """Conditions on the rows that a deleted row refers to in its own table by ON DELETE CASCADE."""
    may_renumber: bool
    """Whether VACUUM may give the rows new rowids."""
    row_bytes: int

    def as_record(self) -> dict[str, Any]:
        """Give the stored form."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Layout:
        """Read the stored form."""
        return cls(
            **{
                **record,
                "columns": tuple(record["columns"]),
                "generated": tuple(record["generated"]),
                "virtual": tuple(record["virtual"]),
                "key": tuple(KeyColumn(**key) for key in record["key"]),
                "indexes": tuple(SourceIndex(**index) for index in record["indexes"]),
                "automatic_indexes": tuple(record["automatic_indexes"]),
                "parents": tuple(record["parents"]),
                "displaced": tuple(
                    Displaced(**{**one, "place": LookedUpIn(one["place"])}) for one in record["displaced"]
                ),
            }
        )

    @classmethod
    def of(cls, reorg: Reorg) -> Layout:
        """Read a job's."""
        return cls.from_record(reorg.reshaping.detail)

    def names(self, reorg: Reorg) -> Names:
        """Return the names for one job."""
        return Names(reorg.job_id, self.table)

    def order(self, driver: SqliteDriver, table: str | None = None) -> SqliteKeyOrder:
        """Return the order of the chunk key, of the source or of a table of the same key."""
        return SqliteKeyOrder(
            table or self.table,
            self.columns if self.rowid else [key.name for key in self.key],
            rowid=self.rowid is not None,
            driver=driver,
            collations=[self._collation(key) for key in self.key],
            descending=[key.descending for key in self.key],
            utf8=self.utf8,
        )

    def _collation(self, key: KeyColumn) -> str | None:
        return key.collation if self.collations_differ else None

    @property
    def written(self) -> tuple[str, ...]:
        """Return the columns that a copy of a row writes; a rowid that no column shows comes first."""
        hidden = (self.rowid,) if self.rowid is not None and self.rowid_column is None else ()
        return hidden + tuple(name for name in self.columns if name not in self.generated)

    @property
    def written_list(self) -> str:
        """Return those columns as a list in SQL."""
        return ", ".join(map(quote, self.written))

    @property
    def mapped_list(self) -> str:
        """Return the values for them, read from the source's row: the change itself."""
        return ", ".join(
            f"({self.using})" if self.using is not None and name == self.column else quote(name) for name in self.written
        )

    @property
    def compared(self) -> tuple[str, ...]:
        """Return the columns that are stored in a row."""
        return tuple(name for name in self.columns if name not in self.virtual)

    @property
    def key_names(self) -> tuple[str, ...]:
        """Return the names of the key's columns."""
        return tuple(key.name for key in self.key)

    @property
    def shown_key(self) -> tuple[str, ...]:
        """Return the names of the key's columns as a person knows them."""
        return (self.rowid_column,) if self.rowid_column is not None else self.key_names

    def key_is(self, left: str, right: str) -> str:
        """Return the condition that two rows, each given as a quoted table or alias, have the same key."""
        return " AND ".join(
            f"{left}.{quote(key.name)}{_collate(self._collation(key))} = {right}.{quote(key.name)}"
            for key in self.key
        )

    def key_in(self, keys: str, *, negated: bool = False, qualifier: str = "") -> str:
        """Return the condition that a row's key is among those of a query, whose columns are named as the log's."""
        dot = f"{qualifier}." if qualifier else ""
        names = [f"{dot}{quote(key.name)}{_collate(self._collation(key))}" for key in self.key]
        if len(names) == 1:
            return f"{names[0]} {'NOT IN' if negated else 'IN'} ({keys})"
        row = f"({', '.join(names)}) {'NOT IN' if negated else 'IN'} ({keys})"
        if negated or not self.collations_differ:
            return row
        # A row of values with collations of their own finds no index; its first value alone does.
        return f"{names[0]} IN (SELECT {quote(self.key_marks[0])} FROM ({keys})) AND {row}"

    @property
    def key_marks(self) -> tuple[str, ...]:
        """Return the log's key columns."""
        return tuple(f"k{number}" for number in range(len(self.key)))


def _collate(collation: str | None) -> str:
    return f" COLLATE {quote(collation)}" if collation is not None else ""
