"""A table as its parts, so that its CREATE TABLE can be printed again with one type replaced: the twin's own way.

Nothing here reads SQL, and nothing of the product is used: whoever made the parts knows where the type stands.
"""

from __future__ import annotations

from dataclasses import dataclass, field

__all__ = ["Change", "Column", "Insertion", "Scenario", "Table", "Value", "affinity", "quoted"]

Value = tuple[str, object]
"""A storage class and a Python value; text is kept as its bytes in the database's encoding."""


def quoted(name: str) -> str:
    """Quote one identifier."""
    return '"' + name.replace('"', '""') + '"'


def affinity(type_text: str, *, strict: bool) -> str:
    """Return what a declared type does to values, by the five rules of the library's documentation, the first that holds."""
    declared = type_text.upper()
    rules = (("INTEGER", ("INT",)), ("TEXT", ("CHAR", "CLOB", "TEXT")), ("BLOB", ("BLOB",)), ("REAL", ("REAL", "FLOA", "DOUB")))
    if declared == "" or (strict and declared == "ANY"):
        return "BLOB"
    return next((name for name, parts in rules if any(part in declared for part in parts)), "NUMERIC")


@dataclass(frozen=True)
class Column:
    """One column: `spelled` is its name as written, `rest` everything behind the type, blanks included."""

    name: str
    spelled: str
    type_text: str
    rest: str = ""
    generated: bool = False

    def text(self, type_text: str | None = None) -> str:
        """Print the definition, with another type where one is given."""
        shown = self.type_text if type_text is None else type_text
        return f"{self.spelled} {shown}{self.rest}" if shown else f"{self.spelled}{self.rest}"


@dataclass(frozen=True)
class Table:
    """One table; `gaps` are the texts between its elements, commas and comments included."""

    name: str
    spelled: str
    columns: tuple[Column, ...]
    constraints: tuple[str, ...] = ()
    options: str = ""
    opening: str = "("
    closing: str = ")"
    gaps: tuple[str, ...] = (", ",)
    key: tuple[str, ...] = ()
    """The names of the primary key's columns; none without one."""
    rowid_column: str | None = None
    """The column that is the rowid."""

    @property
    def without_rowid(self) -> bool:
        """Whether it is a table without a rowid."""
        return "WITHOUT ROWID" in self.options

    def column(self, name: str) -> Column:
        """Return one column."""
        return next(column for column in self.columns if column.name == name)

    def text(self, retyped: tuple[str, str] | None = None) -> str:
        """Print the CREATE TABLE, with another type for one column where asked."""
        elements = [column.text(retyped[1] if retyped and retyped[0] == column.name else None) for column in self.columns]
        elements += self.constraints
        body = elements[0]
        for number, element in enumerate(elements[1:]):
            body += self.gaps[number % len(self.gaps)] + element
        return f"CREATE TABLE {self.spelled}{self.opening}{body}{self.closing}{self.options}"

    def written(self) -> tuple[Column, ...]:
        """Return the columns that can be written."""
        return tuple(column for column in self.columns if not column.generated)

    def rowid_alias(self) -> str | None:
        """Return a name by which the rowid can be reached, or None when there is none."""
        if self.without_rowid:
            return None
        taken = {column.name.lower() for column in self.columns}
        return next((alias for alias in ("rowid", "_rowid_", "oid") if alias not in taken), None)


@dataclass(frozen=True)
class Change:
    """A type change as its parts."""

    table: str
    column: str
    type_text: str
    using: str | None = None
    prefix: str = "ALTER COLUMN"
    verb: str = "TYPE"

    @property
    def statement(self) -> str:
        """Print the statement."""
        using = f" USING {self.using}" if self.using is not None else ""
        return f"ALTER TABLE {quoted(self.table)} {self.prefix} {quoted(self.column)} {self.verb} {self.type_text}{using}"


@dataclass(frozen=True)
class Insertion:
    """One row to try: whatever a constraint refuses is left out."""

    table: str
    columns: tuple[str, ...]
    values: tuple[Value, ...]


@dataclass
class Scenario:
    """A whole database in parts: tables, rows, then everything that stands on them, and one change of `tables[0]`."""

    encoding: str
    auto_vacuum: bool
    wal: bool
    tables: list[Table]
    rows: list[Insertion]
    others: list[str]
    change: Change
    deletions: list[str] = field(default_factory=list)

    @property
    def target(self) -> Table:
        """Return the table under change."""
        return self.tables[0]

    def __repr__(self) -> str:
        """Show it as a script that a person can run."""
        pragma = [f"PRAGMA encoding = '{self.encoding}'", f"PRAGMA auto_vacuum = {int(self.auto_vacuum)}", f"-- wal: {self.wal}"]
        rows = [f"-- {row.table} {row.columns} {row.values}" for row in self.rows]
        script = [*pragma, *(table.text() for table in self.tables), *rows, *self.deletions, *self.others, self.change.statement]
        return "\n" + ";\n".join(script)
