"""A position in the tokens of a statement: what is expected next, and an error that points at what stands there instead."""

from __future__ import annotations

from typing import NoReturn

from tideshift.ddl.change import TableName
from tideshift.ddl.grammar import PLAIN, Grammar
from tideshift.ddl.tokens import Token, TokenKind, significant
from tideshift.errors import BadStatement

__all__ = ["StatementReader", "pointing"]

_SUPPORTED = "The grammar is in docs/statements.md: ALTER TABLE, CREATE INDEX, DROP INDEX, REINDEX."


def pointing(text: str, position: int, why: str, **fields: str) -> BadStatement:
    """Make the error that shows the line of a statement and a caret under a place in it."""
    before = text[:position]
    line_start = before.rfind("\n") + 1
    line_end = text.find("\n", position)
    line = text[line_start : len(text) if line_end < 0 else line_end].replace("\t", " ")
    return BadStatement(
        f"{why}\n  {line}\n  {' ' * (position - line_start)}^",
        hint=_SUPPORTED,
        position=position,
        line=before.count("\n") + 1,
        column=position - line_start + 1,
        **fields,
    )


class StatementReader:
    """The tokens of one statement without its semicolon, and how far they have been read."""

    def __init__(self, text: str, grammar: Grammar = PLAIN) -> None:
        self.text = text
        self.grammar = grammar
        self.tokens = significant(text, grammar.spelling)
        self.at = 0
        self._end = len(text)
        self._balanced()
        self._only_one()

    # ── looking and taking ────────────────────────────────────────────────────────────────────────────────────────

    @property
    def ended(self) -> bool:
        """Whether everything was read."""
        return self.at >= len(self.tokens)

    @property
    def token(self) -> Token | None:
        """Return the token that comes next."""
        return None if self.ended else self.tokens[self.at]

    def word(self, ahead: int = 0) -> str:
        """Return the keyword that comes next, or some tokens later; nothing for anything else."""
        index = self.at + ahead
        return self.tokens[index].keyword if index < len(self.tokens) else ""

    def is_operator(self, text: str, ahead: int = 0) -> bool:
        """Whether this operator comes next, or some tokens later."""
        index = self.at + ahead
        return index < len(self.tokens) and self.tokens[index].is_operator(text)

    def accept(self, *keywords: str) -> bool:
        """Take these keywords if they come next."""
        found = all(self.word(ahead) == keyword for ahead, keyword in enumerate(keywords))
        self.at += len(keywords) if found else 0
        return found

    def take(self, *keywords: str) -> None:
        """Take these keywords, or refuse."""
        for keyword in keywords:
            if not self.accept(keyword):
                self.refuse(f"{keyword} is expected here")

    def name(self, what: str) -> str:
        """Take a bare or quoted name."""
        name = None if self.ended else self.tokens[self.at].name
        if not name:
            self.refuse(f"{what} is expected here")
        self.at += 1
        return self.grammar.fold(name) if self.tokens[self.at - 1].kind is TokenKind.WORD else name

    def table(self, what: str = "a table name") -> TableName:
        """Take a name that may have its schema before it."""
        first = self.name(what)
        if self.is_operator("."):
            self.at += 1
            return TableName(first, self.name(what))
        return TableName(None, first)

    def group(self) -> tuple[int, int]:
        """Pass a pair of parentheses; return where its inside stands in the text."""
        if not self.is_operator("("):
            self.refuse("( is expected here")
        self.at += 1
        start, depth = self.tokens[self.at - 1].end, 1
        while depth:  # ends: the statement is balanced
            depth += self.is_operator("(") - self.is_operator(")")
            self.at += 1
        return start, self.tokens[self.at - 1].start

    def until(self, *, stops: frozenset[str] = frozenset()) -> tuple[int, int]:
        """Pass everything up to a comma, one of these words, or the end, outside parentheses; return the first and the last index passed."""
        start, depth = self.at, 0
        while not self.ended:
            token = self.tokens[self.at]
            depth += token.is_operator("(") - token.is_operator(")")
            if depth == 0 and (token.is_operator(",") or token.keyword in stops):
                break
            if token.kind is TokenKind.VARIABLE:
                self.refuse("a statement cannot have a parameter")
            self.at += 1
        return start, self.at - 1

    @property
    def whole(self) -> str:
        """Return the statement as it stands, comments included, without its semicolon."""
        return self.text[self.tokens[0].start : self._end].rstrip()

    def between(self, first: int, last: int) -> str:
        """Return the text from one token to another, both included."""
        return self.text[self.tokens[first].start : self.tokens[last].end]

    # ── refusing ──────────────────────────────────────────────────────────────────────────────────────────────────

    def not_supported(self, form: str) -> NoReturn:
        """Refuse a form that is known and not offered."""
        self.refuse(f"{form.strip()} is not supported", form=form.strip())

    def refuse(self, why: str, **fields: str) -> NoReturn:
        """Raise with the place: the line of the statement, and a caret under the token."""
        behind = self.tokens[-1].end if self.tokens else 0
        raise pointing(self.text, self.tokens[self.at].start if self.at < len(self.tokens) else behind, why, **fields)

    def _balanced(self) -> None:
        opened: list[int] = []
        for index, token in enumerate(self.tokens):
            self.at = index
            if token.kind is TokenKind.UNFINISHED:
                self.refuse("this never ends")
            if token.is_operator("("):
                opened.append(index)
            elif token.is_operator(")"):
                if not opened:
                    self.refuse("this closes nothing")
                opened.pop()
            elif token.is_operator(";") and opened:
                self.refuse("a parenthesis before this is still open")
        if opened:
            self.at = opened[-1]
            self.refuse("this is never closed")
        self.at = 0

    def _only_one(self) -> None:
        """Take the closing semicolon off, and refuse whatever follows it."""
        for index, token in enumerate(self.tokens):
            if not token.is_operator(";"):
                continue
            after = [later for later in range(index, len(self.tokens)) if not self.tokens[later].is_operator(";")]
            if after:
                self.at = after[0]
                self.refuse("several statements at once are not supported: submit one job per statement", form="several statements")
            self._end = self.tokens[index].start
            del self.tokens[index:]
            return
