"""From the text of a statement to a typed change; the texts inside the change stay the user's own, letter by letter.

Only classified here: whether the table, the column and the type exist is the catalogue's to say.
"""

from __future__ import annotations

from typing import NoReturn

from tideshift.ddl.change import Change, SetColumnType, TableName
from tideshift.ddl.tokens import Token, TokenKind, significant
from tideshift.errors import BadStatement

__all__ = ["parse_statement"]

_SUPPORTED = "Supported: ALTER TABLE name ALTER COLUMN column TYPE type [USING expression]"

_AFTER_A_TYPE = frozenset(
    "AS AUTOINCREMENT CHECK COLLATE CONSTRAINT DEFAULT FOREIGN GENERATED NOT NULL ON PRIMARY REFERENCES STORED UNIQUE VIRTUAL".split()
)
"""Words that begin another property of a column; only its type may be given."""

_TABLE_ACTIONS = frozenset(
    "ADD DROP RENAME MODIFY CHANGE SET RESET OWNER ENABLE DISABLE ATTACH DETACH CLUSTER VALIDATE CONVERT ENGINE INHERIT NO".split()
)
_OTHER_STATEMENTS = frozenset("CREATE DROP TRUNCATE RENAME COMMENT REINDEX GRANT REVOKE VACUUM ANALYZE".split())


def parse_statement(text: str) -> Change:
    """Read one ALTER TABLE statement, or raise `BadStatement` pointing at the token that is not understood."""
    return _Reader(text).statement()


class _Reader:
    """A position in the statement's tokens."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.tokens = significant(text)
        self.at = 0

    def statement(self) -> Change:
        self._balanced()
        self._only_one()
        if not self.tokens:
            self._refuse("there is no statement")
        first = self.tokens[0].keyword
        if first in _OTHER_STATEMENTS or (first == "ALTER" and self._word(1) != "TABLE"):
            self._not_supported(f"{first} {self._word(1)}".strip())
        self._take("ALTER")
        self._take("TABLE")
        table = self._table()
        action = self._word(self.at)
        if action in _TABLE_ACTIONS:
            self._not_supported(f"ALTER TABLE … {action} {self._word(self.at + 1)}".strip())
        self._take("ALTER")
        return self._alter_column(table)

    def _alter_column(self, table: TableName) -> SetColumnType:
        if self._word(self.at) == "COLUMN" and self._more_than_type():
            self.at += 1
        column = self._name("a column name")
        if self._word(self.at) == "SET" and self._word(self.at + 1) == "DATA":
            self.at += 2
        elif self._word(self.at) in ("SET", "DROP", "ADD", "RESTART"):
            self._not_supported(f"ALTER COLUMN … {self._word(self.at)} {self._word(self.at + 1)}".strip())
        self._take("TYPE")
        type_text = self._type_text()
        using = self._using_text() if self._word(self.at) == "USING" else None
        assert self.at == len(self.tokens)
        return SetColumnType(table=table, column=column, type_text=type_text, using=using)

    def _more_than_type(self) -> bool:
        """Whether COLUMN is the keyword here and not a column of that name."""
        return self._word(self.at + 1) not in ("TYPE", "SET") or self._word(self.at + 2) in ("TYPE", "SET")

    def _table(self) -> TableName:
        if self._word(self.at) == "IF" and self._word(self.at + 1) == "EXISTS":
            self._not_supported("IF EXISTS")
        first = self._name("a table name")
        if self.at < len(self.tokens) and self.tokens[self.at].is_operator("."):
            self.at += 1
            return TableName(first, self._name("a table name"))
        return TableName(None, first)

    def _type_text(self) -> str:
        start = self.at
        depth = 0
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            depth += token.is_operator("(") - token.is_operator(")")
            if depth == 0 and token.keyword == "USING":
                break
            if depth == 0 and token.is_operator(","):
                self._refuse("several changes in one statement are not supported yet", form="several changes")
            if token.keyword in _AFTER_A_TYPE:
                self._refuse(f"{token.keyword} is not part of a type, and only the type can be changed", form=token.keyword)
            if not self._fits_type(token):
                self._refuse("this does not belong to a type")
            self.at += 1
        if self.at == start or self.tokens[start].name is None:
            self.at = start
            self._refuse("a type is expected here")
        return self.text[self.tokens[start].start : self.tokens[self.at - 1].end]

    @staticmethod
    def _fits_type(token: Token) -> bool:
        if token.kind is TokenKind.OPERATOR:
            return token.text in "(),.+-"
        return token.kind in (TokenKind.WORD, TokenKind.QUOTED, TokenKind.NUMBER)

    def _using_text(self) -> str:
        self.at += 1
        start = self.at
        depth = 0
        while self.at < len(self.tokens):
            token = self.tokens[self.at]
            depth += token.is_operator("(") - token.is_operator(")")
            if depth == 0 and token.is_operator(","):
                self._refuse("several changes in one statement are not supported yet", form="several changes")
            if token.kind is TokenKind.VARIABLE:
                self._refuse("a USING expression cannot have a parameter")
            self.at += 1
        if self.at == start:
            self._refuse("an expression is expected after USING")
        return self.text[self.tokens[start].start : self.tokens[self.at - 1].end]

    def _balanced(self) -> None:
        opened: list[int] = []
        for index, token in enumerate(self.tokens):
            self.at = index
            if token.kind is TokenKind.UNFINISHED:
                self._refuse("this never ends")
            if token.is_operator("("):
                opened.append(index)
            elif token.is_operator(")"):
                if not opened:
                    self._refuse("this closes nothing")
                opened.pop()
            elif token.is_operator(";") and opened:
                self._refuse("a parenthesis before this is still open")
        if opened:
            self.at = opened[-1]
            self._refuse("this is never closed")
        self.at = 0

    def _only_one(self) -> None:
        """Take the closing semicolon off, and refuse whatever follows it."""
        for index, token in enumerate(self.tokens):
            if not token.is_operator(";"):
                continue
            after = [later for later in range(index, len(self.tokens)) if not self.tokens[later].is_operator(";")]
            if after:
                self.at = after[0]
                self._refuse("several statements at once are not supported yet", form="several statements")
            del self.tokens[index:]
            return

    def _word(self, index: int) -> str:
        return self.tokens[index].keyword if index < len(self.tokens) else ""

    def _take(self, keyword: str) -> None:
        if self._word(self.at) != keyword:
            self._refuse(f"{keyword} is expected here")
        self.at += 1

    def _name(self, what: str) -> str:
        name = self.tokens[self.at].name if self.at < len(self.tokens) else None
        if not name:
            self._refuse(f"{what} is expected here")
        self.at += 1
        return name

    def _not_supported(self, form: str) -> NoReturn:
        self._refuse(f"{form} is not supported yet", form=form)

    def _refuse(self, why: str, **fields: str) -> NoReturn:
        """Raise with the place: the line of the statement, and a caret under the token."""
        behind = self.tokens[-1].end if self.tokens else 0
        position = self.tokens[self.at].start if self.at < len(self.tokens) else behind
        before = self.text[:position]
        line_start = before.rfind("\n") + 1
        line_end = self.text.find("\n", position)
        line = self.text[line_start : len(self.text) if line_end < 0 else line_end].replace("\t", " ")
        raise BadStatement(
            f"{why}\n  {line}\n  {' ' * (position - line_start)}^",
            hint=_SUPPORTED,
            position=position,
            line=before.count("\n") + 1,
            column=position - line_start + 1,
            **fields,
        )
