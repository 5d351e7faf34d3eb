"""The dialect's own record of one reshaping, made at plan time and kept in the job: texts, columns, key, unique keys."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from tideshift.ddl.reshaping import Reorg
from tideshift.dialects.sqlite.driver import SqliteDriver, quote
from tideshift.dialects.sqlite.keys import SqliteKeyOrder
from tideshift.dialects.sqlite.names import Names

__all__ = ["ROW_ALIAS", "Displaced", "KeyColumn", "Layout", "LookedUpIn", "Mapped", "NewReference", "Side", "SourceIndex"]

ROW_ALIAS = "tideshift_row"
"""What the row is called that a look-up seeks."""


@dataclass(frozen=True)
class KeyColumn:
    """One column of the chunk key: its name in the source and in the shadow, with its collation in the key's index."""

    name: str
    new_name: str
    collation: str | None
    descending: bool


@dataclass(frozen=True)
class SourceIndex:
    """One index that the user made."""

    name: str
    text: str


@dataclass(frozen=True)
class Mapped:
    """One column that a copied row writes: its name in the shadow, and its value as SQL over the source's row."""

    name: str
    value: str
    given_once: bool = False
    """Whether the value is another one each time, so that it cannot be compared."""


@dataclass(frozen=True)
class NewReference:
    """A foreign key that the change adds: child columns and the parent's, which every row must find."""

    parent: str
    columns: tuple[tuple[str, str], ...]


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
class Side:
    """One of the two tables: its text, columns in order, those that cannot be written, and how its rows are numbered."""

    text: str
    columns: tuple[str, ...]
    generated: tuple[str, ...]
    virtual: tuple[str, ...]
    """Those of the generated columns that are not stored."""
    rowid: str | None
    """The name by which the rowid is reached, or None for a table without one."""
    rowid_column: str | None
    """The column that is the rowid (INTEGER PRIMARY KEY), if any."""
    automatic_indexes: tuple[str, ...]
    """The names of the indexes that its constraints make, as they stand in sqlite_master under the table's own name."""

    @property
    def has_hidden_rowid(self) -> bool:
        """Whether the rows have numbers that no column shows."""
        return self.rowid is not None and self.rowid_column is None

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Side:
        """Read the stored form."""
        lists = ("columns", "generated", "virtual", "automatic_indexes")
        values: dict[str, Any] = {name: tuple(value) if name in lists else value for name, value in record.items()}
        return cls(**values)


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Everything about source and shadow that does not depend on the job's id."""

    table: str
    changed: tuple[str, ...]
    """The columns whose values or rules change, as a person named them; for messages."""
    old: Side
    new: Side
    mapped: tuple[Mapped, ...]
    key: tuple[KeyColumn, ...]
    collations_differ: bool
    """Whether the key's index has other collations than its columns, so that every statement must spell them out."""
    utf8: bool
    indexes: tuple[SourceIndex, ...]
    added_indexes: tuple[SourceIndex, ...]
    kept_indexes: tuple[str, ...]
    """Those of the source's indexes that the change does not touch at all: the table keeps them, and the shadow has none."""
    look_up_indexes: tuple[str, ...]
    """Terms of the indexes that the shadow needs only for look-ups, since the new shape has no such unique key."""
    displaced: tuple[Displaced, ...]
    parents: tuple[str, ...]
    """Conditions on the rows that a deleted row refers to in its own table by ON DELETE CASCADE."""
    converted: tuple[str, ...]
    """Columns whose values may differ from the source's, and those that are computed from them: references by these are looked at."""
    new_references: tuple[NewReference, ...]
    row_bytes: int

    def as_record(self) -> dict[str, Any]:
        """Give the stored form."""
        return asdict(self)

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Layout:
        """Read the stored form."""
        references = [NewReference(one["parent"], tuple((pair[0], pair[1]) for pair in one["columns"])) for one in record["new_references"]]
        return cls(
            **{
                **record,
                "changed": tuple(record["changed"]),
                "old": Side.from_record(record["old"]),
                "new": Side.from_record(record["new"]),
                "mapped": tuple(Mapped(**one) for one in record["mapped"]),
                "key": tuple(KeyColumn(**key) for key in record["key"]),
                "indexes": tuple(SourceIndex(**index) for index in record["indexes"]),
                "added_indexes": tuple(SourceIndex(**index) for index in record["added_indexes"]),
                "kept_indexes": tuple(record["kept_indexes"]),
                "look_up_indexes": tuple(record["look_up_indexes"]),
                "parents": tuple(record["parents"]),
                "converted": tuple(record["converted"]),
                "new_references": tuple(references),
                "displaced": tuple(Displaced(**{**one, "place": LookedUpIn(one["place"])}) for one in record["displaced"]),
            }
        )

    @classmethod
    def of(cls, reorg: Reorg) -> Layout:
        """Read a job's."""
        return cls.from_record(reorg.reshaping.detail["layout"])

    def names(self, reorg: Reorg) -> Names:
        """Return the names for one job."""
        return Names(reorg.job_id, self.table)

    # ── the key ───────────────────────────────────────────────────────────────────────────────────────────────────

    def order(self, driver: SqliteDriver) -> SqliteKeyOrder:
        """Return the order of the chunk key in the source."""
        return self._order(driver, self.table, self.old, [key.name for key in self.key])

    def new_order(self, driver: SqliteDriver, table: str) -> SqliteKeyOrder:
        """Return the same order in a table of the new shape."""
        return self._order(driver, table, self.new, [key.new_name for key in self.key])

    def _order(self, driver: SqliteDriver, table: str, side: Side, names: list[str]) -> SqliteKeyOrder:
        by_number = names == [side.rowid]
        return SqliteKeyOrder(
            table,
            side.columns if by_number else names,
            rowid=by_number,
            driver=driver,
            collations=[self._collation(key) for key in self.key],
            descending=[key.descending for key in self.key],
            utf8=self.utf8,
        )

    def _collation(self, key: KeyColumn) -> str | None:
        return key.collation if self.collations_differ else None

    @property
    def may_renumber(self) -> bool:
        """Whether VACUUM may give other numbers to rows that are found by their number."""
        return any(side.has_hidden_rowid and name == side.rowid for side, name in ((self.old, self.key[0].name), (self.new, self.key[0].new_name)))

    @property
    def shown_key(self) -> tuple[str, ...]:
        """Return the names of the key's columns as a person knows them."""
        names = tuple(key.name for key in self.key)
        return (self.old.rowid_column,) if self.old.rowid_column is not None and names == (self.old.rowid,) else names

    def new_key_is(self, left: str, right: str) -> str:
        """Return the condition that two rows of the new shape, each given as a quoted table or alias, have the same key."""
        return " AND ".join(
            f"{left}.{quote(key.new_name)}{_collate(self._collation(key))} = {right}.{quote(key.new_name)}" for key in self.key
        )

    def old_key_is_new(self, old: str, new: str) -> str:
        """Return the condition that a row of the source and one of the new shape have the same key."""
        return " AND ".join(f"{old}.{quote(key.name)}{_collate(self._collation(key))} = {new}.{quote(key.new_name)}" for key in self.key)

    def key_in(self, keys: str, *, negated: bool = False, qualifier: str = "") -> str:
        """Return the condition that a source row's key is among those of a query, whose columns are named as the log's."""
        return self._in([key.name for key in self.key], keys, negated=negated, qualifier=qualifier)

    def new_key_in(self, keys: str, *, negated: bool = False, qualifier: str = "") -> str:
        """Return the same for a row of the new shape."""
        return self._in([key.new_name for key in self.key], keys, negated=negated, qualifier=qualifier)

    def _in(self, columns: list[str], keys: str, *, negated: bool, qualifier: str) -> str:
        dot = f"{qualifier}." if qualifier else ""
        names = [f"{dot}{quote(name)}{_collate(self._collation(key))}" for name, key in zip(columns, self.key, strict=True)]
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

    # ── what a copied row is ──────────────────────────────────────────────────────────────────────────────────────

    @property
    def written_list(self) -> str:
        """Return the columns that a copy of a row writes, as a list in SQL."""
        return ", ".join(quote(one.name) for one in self.mapped)

    @property
    def mapped_list(self) -> str:
        """Return the values for them, read from the source's row: the change itself."""
        return ", ".join(one.value for one in self.mapped)

    @property
    def compared(self) -> tuple[str, ...]:
        """Return the columns of the new shape that are stored in a row and can be compared.

        What is generated may be computed from a value that is given once, and then is another one in each copy too.
        """
        once = {one.name for one in self.mapped if one.given_once}
        left_out = {*once, *self.new.generated} if once else set(self.new.virtual)
        return tuple(name for name in self.new.columns if name not in left_out)

    @property
    def new_indexes(self) -> tuple[SourceIndex, ...]:
        """Return the indexes of the new shape that are made by hand."""
        return (*self.indexes, *self.added_indexes)

    @property
    def made_indexes(self) -> tuple[SourceIndex, ...]:
        """Return those of them that are made for the shadow; the n-th answers to the shadow's n-th."""
        return tuple(index for index in self.new_indexes if index.name not in self.kept_indexes)


def _collate(collation: str | None) -> str:
    return f" COLLATE {quote(collation)}" if collation is not None else ""
