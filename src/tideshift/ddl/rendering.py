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


def as_statement(change: Change, quote: str = '"') -> str:
    """Write a change as a statement, with `quote` around names; reading it again gives the same change, if its texts are what they are said to be."""
    return _Writer(quote).statement(change)


class _Writer:
    """Writes statements of one spelling."""

    def __init__(self, quote: str) -> None:
        self._quote = quote

    def statement(self, change: Change) -> str:
        match change:
            case AlterTable(table=table, actions=actions):
                return f"ALTER TABLE {self._qualified(table)} {', '.join(map(self._action, actions))}"
            case CreateIndex(text=text):
                return text
            case DropIndex(index=name, table=table):
                return f"DROP INDEX {self._qualified(name)}" + ("" if table is None else f" ON {self._qualified(table)}")
            case AlterObject(what=what, name=name, text=text):
                return f"ALTER {what} {self._qualified(name)} {text}"
            case Reindex(name=name, target=target):
                return f"REINDEX {'' if target is None else f'{target} '}{self._qualified(name)}"

    def _action(self, action: Action) -> str:
        match action:
            case AddColumn(definition=definition, position=position):
                return f"ADD COLUMN {definition}{self._place(position)}"
            case DropColumn(column=column):
                return f"DROP COLUMN {self._quoted(column)}"
            case MoveColumn(column=column, position=position):
                return f"MOVE COLUMN {self._quoted(column)}{self._place(position)}"
            case AddConstraint(text=text):
                return f"ADD {text}"
            case DropConstraint():
                return self._dropped(action)
            case SetOption(option=option):
                return f"SET {option}"
            case RenameColumn(column=column, new_name=new_name):
                return f"RENAME COLUMN {self._quoted(column)} TO {self._quoted(new_name)}"
            case RenameTable(new_name=new_name):
                return f"RENAME TO {self._quoted(new_name)}"
            case DatabaseForm(text=text):
                return text
        return f"ALTER COLUMN {self._quoted(action.column)} {self._of_column(action)}"

    def _of_column(self, action: SetColumnType | SetDefault | SetNotNull | DropNotNull) -> str:
        match action:
            case SetColumnType(type_text=type_text, using=using):
                return f"TYPE {type_text}" + ("" if using is None else f" USING {using}")
            case SetDefault(default=default):
                return "DROP DEFAULT" if default is None else f"SET DEFAULT {default}"
            case SetNotNull(conflict=conflict):
                return "SET NOT NULL" + ("" if conflict is None else f" ON CONFLICT {conflict}")
            case DropNotNull():
                return "DROP NOT NULL"

    def _dropped(self, action: DropConstraint) -> str:
        if action.name is not None:
            return f"DROP CONSTRAINT {self._quoted(action.name)}"
        return f"DROP {action.constraint}" + ("" if action.inner is None else f" ({action.inner})")

    def _place(self, position: Position | None) -> str:
        if position is None:
            return ""
        return f" {position.place}" + ("" if position.column is None else f" {self._quoted(position.column)}")

    def _qualified(self, name: TableName) -> str:
        return self._quoted(name.name) if name.schema is None else f"{self._quoted(name.schema)}.{self._quoted(name.name)}"

    def _quoted(self, name: str) -> str:
        return self._quote + name.replace(self._quote, self._quote * 2) + self._quote
