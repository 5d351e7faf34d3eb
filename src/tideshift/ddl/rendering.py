"""A typed change as the statement that says the same, with the texts inside it as they stand."""

from __future__ import annotations

from tideshift.ddl.change import (
    Action,
    AddColumn,
    AddConstraint,
    AlterObject,
    AlterTable,
    Change,
    CreateIndex,
    DatabaseForm,
    DropColumn,
    DropConstraint,
    DropIndex,
    DropNotNull,
    MoveColumn,
    Position,
    Reindex,
    RenameColumn,
    RenameTable,
    SetColumnType,
    SetDefault,
    SetNotNull,
    SetOption,
    TableName,
)

__all__ = ["as_statement"]


def as_statement(change: Change) -> str:
    """Write a change as a statement; reading it again gives the same change, if its texts are what they are said to be."""
    match change:
        case AlterTable(table=table, actions=actions):
            return f"ALTER TABLE {_qualified(table)} {', '.join(map(_action, actions))}"
        case CreateIndex(text=text):
            return text
        case DropIndex(index=name):
            return f"DROP INDEX {_qualified(name)}"
        case AlterObject(what=what, name=name, text=text):
            return f"ALTER {what} {_qualified(name)} {text}"
        case Reindex(name=name, target=target):
            return f"REINDEX {'' if target is None else f'{target} '}{_qualified(name)}"


def _action(action: Action) -> str:
    match action:
        case AddColumn(definition=definition, position=position):
            return f"ADD COLUMN {definition}{_place(position)}"
        case DropColumn(column=column):
            return f"DROP COLUMN {_quoted(column)}"
        case MoveColumn(column=column, position=position):
            return f"MOVE COLUMN {_quoted(column)}{_place(position)}"
        case AddConstraint(text=text):
            return f"ADD {text}"
        case DropConstraint():
            return _dropped(action)
        case SetOption(option=option):
            return f"SET {option}"
        case RenameColumn(column=column, new_name=new_name):
            return f"RENAME COLUMN {_quoted(column)} TO {_quoted(new_name)}"
        case RenameTable(new_name=new_name):
            return f"RENAME TO {_quoted(new_name)}"
        case DatabaseForm(text=text):
            return text
    return f"ALTER COLUMN {_quoted(action.column)} {_of_column(action)}"


def _of_column(action: SetColumnType | SetDefault | SetNotNull | DropNotNull) -> str:
    match action:
        case SetColumnType(type_text=type_text, using=using):
            return f"TYPE {type_text}" + ("" if using is None else f" USING {using}")
        case SetDefault(default=default):
            return "DROP DEFAULT" if default is None else f"SET DEFAULT {default}"
        case SetNotNull(conflict=conflict):
            return "SET NOT NULL" + ("" if conflict is None else f" ON CONFLICT {conflict}")
        case DropNotNull():
            return "DROP NOT NULL"


def _dropped(action: DropConstraint) -> str:
    if action.name is not None:
        return f"DROP CONSTRAINT {_quoted(action.name)}"
    return f"DROP {action.constraint}" + ("" if action.inner is None else f" ({action.inner})")


def _place(position: Position | None) -> str:
    if position is None:
        return ""
    return f" {position.place}" + ("" if position.column is None else f" {_quoted(position.column)}")


def _qualified(name: TableName) -> str:
    return _quoted(name.name) if name.schema is None else f"{_quoted(name.schema)}.{_quoted(name.name)}"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
