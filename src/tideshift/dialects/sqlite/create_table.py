"""The text of a CREATE TABLE, cut by token positions into columns and clauses, so that one part changes and the rest stays.

SQLite keeps the user's own text in sqlite_master; whatever is not edited here remains byte for byte. The grammar is the
library's: a type ends at the first word that begins a clause, commas between table constraints are optional, and a
constraint's name stands as an element of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache

from tideshift.ddl.tokens import Token, TokenKind, same_name, significant, tokenize, unquote

__all__ = ["Clause", "ClauseKind", "ColumnText", "Edit", "TableText", "UnreadableText", "identifiers", "parse_table", "qualifier_edits"]

Edit = tuple[int, int, str]


class UnreadableText(ValueError):
    """A schema text that is not built as expected."""


class ClauseKind(StrEnum):
    """The elements behind a column's type, or on their own at the end of the list."""

    NAME = "CONSTRAINT"
    PRIMARY_KEY = "PRIMARY KEY"
    AUTOINCREMENT = "AUTOINCREMENT"
    NOT_NULL = "NOT NULL"
    NULL = "NULL"
    UNIQUE = "UNIQUE"
    CHECK = "CHECK"
    DEFAULT = "DEFAULT"
    COLLATE = "COLLATE"
    REFERENCES = "REFERENCES"
    DEFERRABLE = "DEFERRABLE"
    GENERATED = "GENERATED"
    FOREIGN_KEY = "FOREIGN KEY"


@dataclass(frozen=True)
class Clause:
    """One element: its kind, where its text stands, and where its expression in parentheses stands, if it has one."""

    kind: ClauseKind
    start: int
    end: int
    expression: tuple[int, int] | None = None


@dataclass(frozen=True)
class ColumnText:
    """One column definition; `type_start` equals `type_end` where no type is given."""

    name: str
    start: int
    type_start: int
    type_end: int
    end: int
    clauses: tuple[Clause, ...]


@dataclass(frozen=True)
class TableText:
    """A whole CREATE TABLE."""

    text: str
    name: Token
    columns: tuple[ColumnText, ...]
    constraints: tuple[Clause, ...]
    without_rowid: bool
    strict: bool
    list_end: int
    """Where the parenthesis stands that closes the list."""

    def column(self, name: str) -> ColumnText:
        """Return one column by its name, letters folded as SQLite does."""
        for column in self.columns:
            if same_name(column.name, name):
                return column
        raise UnreadableText(f"no column {name!r} in the text")

    def clauses(self) -> Iterable[Clause]:
        """Yield every clause, those of columns first."""
        for column in self.columns:
            yield from column.clauses
        yield from self.constraints

    def retype(self, column: str, type_text: str) -> list[Edit]:
        """Give the edit that puts another type in place of a column's."""
        found = self.column(column)
        return [(found.type_start, found.type_end, self._spaced(type_text, found.type_start, found.type_end))]

    def _spaced(self, text: str, start: int, end: int) -> str:
        """Put a blank beside a text where it would run into the word before or behind it; quoted words need none there."""
        before = self.text[:start]
        behind = next(tokenize(self.text[end:]), None)
        apart = behind is None or behind.trivial or behind.kind is TokenKind.OPERATOR
        stood_so = start < end and before[-1:] in ("]", '"', "`") and text[:1].isalpha()
        return f"{'' if stood_so or before[-1:].isspace() or before.endswith('*/') else ' '}{text}{'' if apart else ' '}"

    def rename(self, new_name: str) -> list[Edit]:
        """Give the edits that rename the table in its own text, qualified references to itself included."""
        return [(self.name.start, self.name.end, new_name), *qualifier_edits(self.text, _name(self.name), new_name)]

    def strip(self, *kinds: ClauseKind) -> list[Edit]:
        """Give the edits that take all clauses of some kinds out.

        A bare constraint name stays in the place of a table constraint, since a comma may or may not stand beside it.
        """
        edits = [(clause.start, clause.end, "") for column in self.columns for clause in column.clauses if clause.kind in kinds]
        return edits + [
            (clause.start, clause.end, "" if clause.kind is ClauseKind.AUTOINCREMENT else "CONSTRAINT left_out")
            for clause in self.constraints
            if clause.kind in kinds
        ]


def qualifier_edits(text: str, table: str, new_name: str) -> list[Edit]:
    """Give the edits that put another name in `table.column` references."""
    tokens = significant(text)
    return [
        (token.start, token.end, new_name)
        for token, following in itertools.pairwise(tokens)
        if following.is_operator(".") and same_name(_name(token), table)
    ]


def identifiers(text: str) -> list[str]:
    """Return every bare or quoted word of an expression, whatever it stands for."""
    return [_name(token) for token in significant(text) if _name(token)]


def _name(token: Token) -> str:
    """Return what a token spells as a name; SQLite takes a string literal for one too."""
    if token.kind is TokenKind.STRING:
        return unquote(token.text)
    return token.name or ""


@lru_cache(maxsize=64)
def parse_table(text: str) -> TableText:
    """Cut a CREATE TABLE text into its parts, or raise `UnreadableText`."""
    return _Reader(text).table()


_CLAUSE_WORDS = frozenset("CONSTRAINT DEFAULT NULL NOT PRIMARY UNIQUE CHECK REFERENCES COLLATE AS DEFERRABLE".split())
_CONSTRAINT_WORDS = frozenset("CONSTRAINT PRIMARY UNIQUE CHECK FOREIGN".split())


class _Reader:
    """A position in the text's tokens."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = significant(text)
        self.at = 0

    def table(self) -> TableText:
        for word in ("CREATE", "TABLE"):
            self._take(word)
        name = self._next()
        if not _name(name):
            self._fail()
        self._take_operator("(")
        columns = [self._column()]
        constraints: list[Clause] = []
        while not self._is_operator(")"):
            comma = self._accept_operator(",")
            if self._word() in _CONSTRAINT_WORDS:
                constraints += self._constraint()
            elif comma and not constraints:
                columns.append(self._column())
            else:
                self._fail()
        self._take_operator(")")
        list_end = self.tokens[self.at - 1].start
        without_rowid, strict = self._options()
        return TableText(self.text, name, tuple(columns), tuple(constraints), without_rowid, strict, list_end)

    def _options(self) -> tuple[bool, bool]:
        without_rowid = strict = False
        while self.at < len(self.tokens):
            if self._accept("WITHOUT"):
                self._take("ROWID")
                without_rowid = True
            elif self._accept("STRICT"):
                strict = True
            elif not self._accept_operator(","):
                self._fail()
        return without_rowid, strict

    def _column(self) -> ColumnText:
        token = self._next()
        if not _name(token):
            self._fail()
        type_start = type_end = token.end
        if self._in_type():
            type_start = self.tokens[self.at].start
            while self._in_type():
                self.at += 1
            if self._is_operator("("):
                self._group()
            type_end = self._end()
        clauses: list[Clause] = []
        while not self._is_operator(",") and not self._is_operator(")"):
            clauses += self._clause()
        return ColumnText(_name(token), token.start, type_start, type_end, self._end(), tuple(clauses))

    def _in_type(self) -> bool:
        if self.at >= len(self.tokens):
            return False
        token = self.tokens[self.at]
        if token.kind is TokenKind.WORD:
            generated = self._word() == "GENERATED" and self._word(1) == "ALWAYS" and self._word(2) == "AS"
            return not generated and token.keyword not in _CLAUSE_WORDS
        return token.kind in (TokenKind.QUOTED, TokenKind.STRING)

    def _clause(self) -> list[Clause]:
        """Read one element of a column definition."""
        start = self._start()
        word = self._next().keyword
        match word:
            case "CONSTRAINT":
                self._next()
                return [Clause(ClauseKind.NAME, start, self._end())]
            case "DEFAULT":
                return [Clause(ClauseKind.DEFAULT, start, self._default())]
            case "NULL" | "UNIQUE":
                self._on_conflict()
                return [Clause(ClauseKind(word), start, self._end())]
            case "NOT" if self._accept("NULL"):
                self._on_conflict()
                return [Clause(ClauseKind.NOT_NULL, start, self._end())]
            case "NOT" | "DEFERRABLE":
                return [self._deferrable(start, word)]
            case "PRIMARY":
                return self._primary_key(start)
            case "CHECK":
                return [self._check(start)]
            case "REFERENCES":
                self._references()
                return [Clause(ClauseKind.REFERENCES, start, self._end())]
            case "COLLATE":
                self._next()
                return [Clause(ClauseKind.COLLATE, start, self._end())]
            case "GENERATED" | "AS":
                return [self._generated(start, word)]
        self.at -= 1
        return self._fail()

    def _deferrable(self, start: int, word: str) -> Clause:
        if word == "NOT":
            self._take("DEFERRABLE")
        self._initially()
        return Clause(ClauseKind.DEFERRABLE, start, self._end())

    def _default(self) -> int:
        if self._is_operator("("):
            self._group()
            return self._end()
        if self._accept_operator("-") or self._accept_operator("+"):
            pass
        self._next()
        return self._end()

    def _primary_key(self, start: int) -> list[Clause]:
        self._take("KEY")
        _ = self._accept("ASC") or self._accept("DESC")
        self._on_conflict()
        clauses = [Clause(ClauseKind.PRIMARY_KEY, start, self._end())]
        if self._accept("AUTOINCREMENT"):
            clauses.append(Clause(ClauseKind.AUTOINCREMENT, self.tokens[self.at - 1].start, self._end()))
        return clauses

    def _check(self, start: int) -> Clause:
        expression = self._group()
        self._on_conflict()
        return Clause(ClauseKind.CHECK, start, self._end(), expression)

    def _generated(self, start: int, word: str) -> Clause:
        if word == "GENERATED":
            self._take("ALWAYS")
            self._take("AS")
        expression = self._group()
        _ = self._accept("STORED") or self._accept("VIRTUAL")
        return Clause(ClauseKind.GENERATED, start, self._end(), expression)

    def _references(self) -> None:
        self._next()
        if self._is_operator("("):
            self._group()
        while self._word() in ("ON", "MATCH"):
            if self._accept("MATCH"):
                self._next()
                continue
            self.at += 2
            if self._word() in ("SET", "NO"):
                self.at += 1
            self._next()

    def _initially(self) -> None:
        if self._accept("INITIALLY"):
            self._next()

    def _constraint(self) -> list[Clause]:
        """Read one table constraint, its name included; a name alone is allowed too."""
        start = self._start()
        if self._accept("CONSTRAINT"):
            self._next()
            if self._word() not in _CONSTRAINT_WORDS or self._word() == "CONSTRAINT":
                return [Clause(ClauseKind.NAME, start, self._end())]
        match self._next().keyword:
            case "PRIMARY":
                self._take("KEY")
                _, close = self._group()
                inner = [token for token in self.tokens if start <= token.start and token.end <= close]
                self._on_conflict()
                clauses = [Clause(ClauseKind.PRIMARY_KEY, start, self._end())]
                if inner[-1].keyword == "AUTOINCREMENT":
                    clauses.append(Clause(ClauseKind.AUTOINCREMENT, inner[-1].start, inner[-1].end))
                return clauses
            case "UNIQUE":
                self._group()
                self._on_conflict()
                return [Clause(ClauseKind.UNIQUE, start, self._end())]
            case "CHECK":
                return [self._check(start)]
        self._take("KEY")
        self._group()
        self._take("REFERENCES")
        self._references()
        if self._accept("NOT") or self._word() == "DEFERRABLE":
            self._take("DEFERRABLE")
            self._initially()
        return [Clause(ClauseKind.FOREIGN_KEY, start, self._end())]

    def _on_conflict(self) -> None:
        if self._word() == "ON" and self._word(1) == "CONFLICT":
            self.at += 2
            self._next()

    def _group(self) -> tuple[int, int]:
        """Pass a balanced pair of parentheses; return where its inside stands."""
        self._take_operator("(")
        start, depth = self._end(), 1
        while depth:
            token = self._next()
            depth += token.is_operator("(") - token.is_operator(")")
        return start, self.tokens[self.at - 1].start

    def _word(self, ahead: int = 0) -> str:
        index = self.at + ahead
        return self.tokens[index].keyword if index < len(self.tokens) else ""

    def _is_operator(self, text: str) -> bool:
        return self.at < len(self.tokens) and self.tokens[self.at].is_operator(text)

    def _accept(self, keyword: str) -> bool:
        found = self._word() == keyword
        self.at += found
        return found

    def _accept_operator(self, text: str) -> bool:
        found = self._is_operator(text)
        self.at += found
        return found

    def _take(self, keyword: str) -> None:
        if not self._accept(keyword):
            self._fail()

    def _take_operator(self, text: str) -> None:
        if not self._accept_operator(text):
            self._fail()

    def _next(self) -> Token:
        if self.at >= len(self.tokens):
            self._fail()
        self.at += 1
        return self.tokens[self.at - 1]

    def _start(self) -> int:
        return self.tokens[self.at].start if self.at < len(self.tokens) else len(self.text)

    def _end(self) -> int:
        return self.tokens[self.at - 1].end

    def _fail(self) -> list[Clause]:
        rest = self.text[self._start() :][:40]
        raise UnreadableText(f"the table's stored text is not understood at {rest!r}")
