"""The clauses of a statement as the server takes them: the user's own texts, and the portable operations written as MODIFY.

A portable operation changes one property of a column, while MODIFY says the whole column: what it does not name is taken
from the server's own text of the column.
"""

from __future__ import annotations

from tideshift.ddl.change import (
    Action,
    AddColumn,
    AddConstraint,
    DatabaseForm,
    DropColumn,
    DropNotNull,
    MoveColumn,
    Place,
    Position,
    RenameColumn,
    SetColumnType,
    SetDefault,
    SetNotNull,
)
from tideshift.ddl.tokens import Token, same_name, significant
from tideshift.dialects.mysql.grammar import SPELLING
from tideshift.dialects.mysql.names import quote
from tideshift.dialects.mysql.source import Source
from tideshift.errors import NotFound

__all__ = ["NotHere", "clause_of"]

_BEHIND_A_TYPE = frozenset(
    "NOT NULL DEFAULT AUTO_INCREMENT COMMENT GENERATED AS CHECK INVISIBLE ON WITH WITHOUT COMPRESSED STORED VIRTUAL PERSISTENT REF_SYSTEM_ID".split()
)


class NotHere(Exception):
    """The server has no such operation, and what to write instead."""


def clause_of(action: Action, source: Source) -> str:
    """Return one action as a clause of ALTER TABLE; raise `NotHere` for what the server does not have."""
    match action:
        case AddColumn(definition=definition, position=position):
            return f"ADD COLUMN {definition}{_place(position)}"
        case DropColumn(column=column):
            return f"DROP COLUMN {quote(column)}"
        case RenameColumn(column=column, new_name=new_name):
            return f"RENAME COLUMN {quote(column)} TO {quote(new_name)}"
        case SetDefault(column=column, default=default):
            return f"ALTER COLUMN {quote(column)} " + ("DROP DEFAULT" if default is None else f"SET DEFAULT {default}")
        case DatabaseForm(text=text):
            return text
        case AddConstraint(text=text):
            return f"ADD {text}"
        case SetColumnType() | SetNotNull() | DropNotNull() | MoveColumn():
            return f"MODIFY {_Column.of(source, action.column).changed(action)}"
    raise NotHere(f"{type(action).__name__} is nothing that this server knows")


class _Column:
    """A column's own text, cut behind its type."""

    def __init__(self, name: str, type_text: str, rest: list[Token], text: str) -> None:
        self.name, self.type_text, self.rest, self.text = name, type_text, rest, text

    @classmethod
    def of(cls, source: Source, name: str) -> _Column:
        """Read the text of a column; raise `NotFound` where there is none."""
        for line in source.shape.columns:
            tokens = significant(line, SPELLING)
            if not same_name(tokens[0].name or "", name):
                continue
            at = next((number for number, token in enumerate(tokens) if number > 1 and token.keyword in _BEHIND_A_TYPE), len(tokens))
            return cls(tokens[0].text, line[tokens[1].start : tokens[at - 1].end], tokens[at:], line)
        raise NotFound(f"{source.name} has no column {name!r}", column=name)

    def changed(self, action: SetColumnType | SetNotNull | DropNotNull | MoveColumn) -> str:
        """Return the column's text with one property changed."""
        match action:
            case SetColumnType(type_text=type_text, using=using):
                if using is not None:
                    raise NotHere("ALTER COLUMN … TYPE … USING: the server converts a value by its own rules only; fill a new column and rename it")
                return f"{self.name} {type_text}{self._rest()}"
            case SetNotNull():
                return f"{self.name} {self.type_text} NOT NULL{self._rest(without=('NOT NULL', 'NULL', 'DEFAULT NULL'))}"
            case DropNotNull():
                return f"{self.name} {self.type_text} NULL{self._rest(without=('NOT NULL', 'NULL'))}"
            case MoveColumn(position=position):
                return f"{self.text}{_place(position)}"

    def _rest(self, *, without: tuple[str, ...] = ()) -> str:
        """Return what stands behind the type, without these properties."""
        words = [token.keyword for token in self.rest]
        gone: set[int] = set()
        for number in range(len(words)):
            for phrase in without:
                parts = phrase.split()
                behind_default = parts == ["NULL"] and number and words[number - 1] in ("DEFAULT", "NOT")
                if words[number : number + len(parts)] == parts and not behind_default:
                    gone.update(range(number, number + len(parts)))
        kept = [token for number, token in enumerate(self.rest) if number not in gone]
        pieces, end = [], None
        for token in kept:  # The text between two tokens stays where both do.
            pieces.append(self.text[end : token.end] if end is not None and self.rest.index(token) - 1 not in gone else f" {token.text}")
            end = token.end
        return "".join(pieces)


def _place(position: Position | None) -> str:
    if position is None:
        return ""
    if position.place is Place.BEFORE:
        raise NotHere("BEFORE: the server knows FIRST and AFTER only")
    return f" {position.place}" + ("" if position.column is None else f" {quote(position.column)}")
