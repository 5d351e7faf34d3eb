"""The changes that a job can carry, as typed operations; a statement is only another way to write one down.

Texts inside a change (a type, a default, a whole column definition) are the user's own, letter by letter. `kind` is the
job's type: TiDB's strings where TiDB has the operation.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, ClassVar, TypeAlias

__all__ = [
    "Action", "AddColumn", "AddConstraint", "AlterObject", "AlterTable", "Change", "ConstraintKind", "CreateIndex", "DatabaseForm", "DropColumn", "DropConstraint", "DropIndex",
    "DropNotNull", "MoveColumn", "Place", "Position", "Reindex", "RenameColumn", "RenameTable", "SetColumnType", "SetDefault", "SetNotNull",
    "SetOption", "TableName", "TableOption", "change_from_record",
]  # fmt: skip


@dataclass(frozen=True)
class TableName:
    """A table as the user named it, unquoted; `schema` is None for the database's own default."""

    schema: str | None
    name: str

    def __str__(self) -> str:
        return self.name if self.schema is None else f"{self.schema}.{self.name}"


class ConstraintKind(StrEnum):
    """What a constraint of a table demands."""

    CHECK = "CHECK"
    UNIQUE = "UNIQUE"
    PRIMARY_KEY = "PRIMARY KEY"
    FOREIGN_KEY = "FOREIGN KEY"
    EXCLUDE = "EXCLUDE"
    NOT_NULL = "NOT NULL"


class TableOption(StrEnum):
    """What stands behind a table's list of columns, or its absence."""

    STRICT = "STRICT"
    NOT_STRICT = "NOT STRICT"
    WITHOUT_ROWID = "WITHOUT ROWID"
    ROWID = "ROWID"


class Place(StrEnum):
    """Where a column goes among the others."""

    FIRST = "FIRST"
    BEFORE = "BEFORE"
    AFTER = "AFTER"


@dataclass(frozen=True)
class Position:
    """A place in the order of columns; `column` is None for the first one."""

    place: Place
    column: str | None = None


# ── what an ALTER TABLE can hold ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class AddColumn:
    """ADD [COLUMN] definition [FIRST | BEFORE c | AFTER c]; the definition is a name, a type and clauses."""

    kind: ClassVar[str] = "add column"
    column: str
    definition: str
    position: Position | None = None


@dataclass(frozen=True, kw_only=True)
class DropColumn:
    """DROP [COLUMN] column."""

    kind: ClassVar[str] = "drop column"
    column: str


@dataclass(frozen=True, kw_only=True)
class SetColumnType:
    """ALTER [COLUMN] column [SET DATA] TYPE type [USING expression]."""

    kind: ClassVar[str] = "modify column"
    column: str
    type_text: str
    using: str | None = None


@dataclass(frozen=True, kw_only=True)
class SetDefault:
    """ALTER [COLUMN] column SET DEFAULT expression, or DROP DEFAULT (`default` is None)."""

    kind: ClassVar[str] = "set default value"
    column: str
    default: str | None


@dataclass(frozen=True, kw_only=True)
class SetNotNull:
    """ALTER [COLUMN] column SET NOT NULL; `conflict` is SQLite's ON CONFLICT clause."""

    kind: ClassVar[str] = "modify column"
    column: str
    conflict: str | None = None


@dataclass(frozen=True, kw_only=True)
class DropNotNull:
    """ALTER [COLUMN] column DROP NOT NULL."""

    kind: ClassVar[str] = "modify column"
    column: str


@dataclass(frozen=True, kw_only=True)
class MoveColumn:
    """MOVE [COLUMN] column FIRST | BEFORE c | AFTER c."""

    kind: ClassVar[str] = "modify column"
    column: str
    position: Position


@dataclass(frozen=True, kw_only=True)
class AddConstraint:
    """ADD [CONSTRAINT name] CHECK (…) | UNIQUE (…) | PRIMARY KEY (…) | FOREIGN KEY (…) REFERENCES …; `text` is all of it."""

    constraint: ConstraintKind
    text: str

    @property
    def kind(self) -> str:
        """Return the job's type."""
        return {
            ConstraintKind.CHECK: "add check constraint",
            ConstraintKind.UNIQUE: "add index",
            ConstraintKind.PRIMARY_KEY: "add primary key",
            ConstraintKind.FOREIGN_KEY: "add foreign key",
            ConstraintKind.EXCLUDE: "add exclusion constraint",
            ConstraintKind.NOT_NULL: "modify column",
        }[self.constraint]


@dataclass(frozen=True, kw_only=True)
class DropConstraint:
    """DROP CONSTRAINT name; or one without a name by what it is: DROP PRIMARY KEY, UNIQUE (…), CHECK (…), FOREIGN KEY (…)."""

    name: str | None = None
    constraint: ConstraintKind | None = None
    inner: str | None = None
    """What stands in the parentheses: columns, or the condition."""

    @property
    def kind(self) -> str:
        """Return the job's type."""
        if self.constraint is None:
            return "drop constraint"
        return {
            ConstraintKind.CHECK: "drop check constraint",
            ConstraintKind.UNIQUE: "drop index",
            ConstraintKind.PRIMARY_KEY: "drop primary key",
            ConstraintKind.FOREIGN_KEY: "drop foreign key",
            ConstraintKind.EXCLUDE: "drop exclusion constraint",
            ConstraintKind.NOT_NULL: "modify column",
        }[self.constraint]


@dataclass(frozen=True, kw_only=True)
class SetOption:
    """SET STRICT | NOT STRICT | WITHOUT ROWID | ROWID."""

    kind: ClassVar[str] = "modify table options"
    option: TableOption


@dataclass(frozen=True, kw_only=True)
class RenameColumn:
    """RENAME [COLUMN] column TO new_name; alone in its statement."""

    kind: ClassVar[str] = "rename column"
    column: str
    new_name: str


@dataclass(frozen=True, kw_only=True)
class RenameTable:
    """RENAME TO new_name; alone in its statement."""

    kind: ClassVar[str] = "rename table"
    new_name: str


@dataclass(frozen=True, kw_only=True)
class DatabaseForm:
    """An action that only one kind of database has, as it stands; `form` is its first words, `column` the column that it is about."""

    kind: ClassVar[str] = "alter table"
    form: str
    column: str | None
    text: str


Action: TypeAlias = (
    AddColumn
    | DropColumn
    | SetColumnType
    | SetDefault
    | SetNotNull
    | DropNotNull
    | MoveColumn
    | AddConstraint
    | DropConstraint
    | SetOption
    | RenameColumn
    | RenameTable
    | DatabaseForm
)


# ── whole changes ─────────────────────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True, kw_only=True)
class AlterTable:
    """ALTER TABLE table action, …: one change, carried out as a whole or not at all."""

    table: TableName
    actions: tuple[Action, ...]

    @property
    def kind(self) -> str:
        """Return the job's type."""
        return self.actions[0].kind if len(self.actions) == 1 else "alter table multi-schema change"

    def as_record(self) -> dict[str, Any]:
        """Give the stored form."""
        actions = [{"action": type(action).__name__, **asdict(action)} for action in self.actions]
        return {"change": "AlterTable", "table": asdict(self.table), "actions": actions}


@dataclass(frozen=True, kw_only=True)
class CreateIndex:
    """CREATE [UNIQUE] INDEX name ON table (…) [WHERE …]; `text` is the whole statement."""

    kind: ClassVar[str] = "add index"
    table: TableName
    name: str
    text: str

    def as_record(self) -> dict[str, Any]:
        """Give the stored form."""
        return {"change": "CreateIndex", **asdict(self)}


@dataclass(frozen=True, kw_only=True)
class DropIndex:
    """DROP INDEX name [ON table]; the table is named where an index has a name only within it."""

    kind: ClassVar[str] = "drop index"
    index: TableName
    table: TableName | None = None

    def as_record(self) -> dict[str, Any]:
        """Give the stored form."""
        return {"change": "DropIndex", "index": asdict(self.index), **({} if self.table is None else {"table": asdict(self.table)})}


@dataclass(frozen=True, kw_only=True)
class Reindex:
    """REINDEX name: one index, or all indexes of a table; `target` is the word before the name, INDEX or TABLE (None: either is meant)."""

    kind: ClassVar[str] = "reindex"
    name: TableName
    target: str | None = None

    def as_record(self) -> dict[str, Any]:
        """Give the stored form."""
        return {"change": "Reindex", **asdict(self)}


@dataclass(frozen=True, kw_only=True)
class AlterObject:
    """ALTER INDEX, ALTER TYPE or ALTER SEQUENCE, as only one kind of database has it; `text` is what stands behind the name."""

    what: str
    name: TableName
    form: str
    text: str

    @property
    def kind(self) -> str:
        """Return the job's type."""
        return f"alter {self.what.lower()}"

    def as_record(self) -> dict[str, Any]:
        """Give the stored form."""
        return {"change": "AlterObject", **asdict(self)}


Change: TypeAlias = AlterTable | CreateIndex | DropIndex | Reindex | AlterObject

_ACTIONS: dict[str, type[Any]] = {
    action.__name__: action
    for action in (
        AddColumn, DropColumn, SetColumnType, SetDefault, SetNotNull, DropNotNull, MoveColumn, AddConstraint, DropConstraint, SetOption,
        RenameColumn, RenameTable, DatabaseForm,
    )
}  # fmt: skip


def change_from_record(record: dict[str, Any]) -> Change:
    """Read the stored form."""
    match record["change"]:
        case "AlterTable":
            return AlterTable(table=TableName(**record["table"]), actions=tuple(_action(one) for one in record["actions"]))
        case "CreateIndex":
            return CreateIndex(table=TableName(**record["table"]), name=record["name"], text=record["text"])
        case "DropIndex":
            return DropIndex(index=TableName(**record["index"]), table=TableName(**record["table"]) if "table" in record else None)
        case "Reindex":
            return Reindex(name=TableName(**record["name"]), target=record.get("target"))
        case "AlterObject":
            return AlterObject(what=record["what"], name=TableName(**record["name"]), form=record["form"], text=record["text"])
    raise ValueError(f"unknown change {record['change']!r}")


def _action(record: dict[str, Any]) -> Action:
    values = {name: value for name, value in record.items() if name != "action"}
    if values.get("position") is not None:
        values["position"] = Position(Place(values["position"]["place"]), values["position"]["column"])
    if values.get("constraint") is not None:
        values["constraint"] = ConstraintKind(values["constraint"])
    if "option" in values:
        values["option"] = TableOption(values["option"])
    made: Action = _ACTIONS[record["action"]](**values)
    return made
