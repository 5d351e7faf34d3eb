"""The text of a CREATE INDEX, cut by token positions into its names, its terms and its WHERE."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from tideshift.ddl.tokens import Token, TokenKind, replace_spans, same_name, significant
from tideshift.dialects.sqlite.create_table import Edit, UnreadableText, qualifier_edits
from tideshift.dialects.sqlite.layout import SourceIndex

__all__ = ["IndexText", "index_with_word", "parse_index"]


@dataclass(frozen=True)
class IndexText:
    """A whole CREATE INDEX; `terms` are the expressions without their direction, `where` is None without one."""

    text: str
    unique: bool
    name: Token
    table: Token
    terms: tuple[str, ...]
    where: str | None

    def renamed(self, name: str, table: str) -> str:
        """Return the text under another name for another table; both are given as they shall stand."""
        edits: list[Edit] = [(self.name.start, self.name.end, name), (self.table.start, self.table.end, table)]
        edits += [
            edit for edit in qualifier_edits(self.text, self.table.name or "", table) if edit[0] > self.table.end
        ]
        return replace_spans(self.text, edits)


@lru_cache(maxsize=256)
def parse_index(text: str) -> IndexText:
    """Cut a CREATE INDEX text into its parts, or raise `UnreadableText`."""
    tokens = significant(text)
    words = [token.keyword for token in tokens]
    at = 2 if words[1:2] == ["UNIQUE"] else 1
    if len(tokens) < at + 6 or words[0] != "CREATE" or words[at] != "INDEX" or words[at + 2] != "ON":
        raise UnreadableText(f"the index's stored text is not understood: {text[:60]!r}")
    name, table = tokens[at + 1], tokens[at + 3]
    terms, after = _terms(text, tokens, at + 4)
    where = None
    if after < len(tokens):
        if words[after] != "WHERE" or after + 1 == len(tokens):
            raise UnreadableText(f"the index's stored text is not understood at {text[tokens[after].start :][:40]!r}")
        where = text[tokens[after + 1].start : tokens[-1].end]
    return IndexText(text, at == 2, name, table, terms, where)


def _terms(text: str, tokens: list[Token], at: int) -> tuple[tuple[str, ...], int]:
    """Return the terms of the list that opens at `at`, and the position behind its closing parenthesis."""
    if not tokens[at].is_operator("("):
        raise UnreadableText(f"the index's stored text is not understood at {text[tokens[at].start :][:40]!r}")
    terms: list[str] = []
    depth, start = 1, at + 1
    for index in range(at + 1, len(tokens)):
        token = tokens[index]
        depth += token.is_operator("(") - token.is_operator(")")
        if depth == 0 or (depth == 1 and token.is_operator(",")):
            terms.append(_bare(text, tokens[start:index]))
            start = index + 1
        if depth == 0:
            return tuple(terms), index + 1
    raise UnreadableText("the index's stored text never closes its list")


def _bare(text: str, term: list[Token]) -> str:
    """Return a term without its direction. A collation stays: it may belong to the last operand only."""
    if len(term) > 1 and term[-1].keyword in ("ASC", "DESC"):
        term = term[:-1]
    if not term:
        raise UnreadableText("the index's stored text has an empty term")
    return text[term[0].start : term[-1].end]


def index_with_word(indexes: Iterable[SourceIndex], word: str) -> str | None:
    """Return the name of an index whose terms or condition have a word that a column of this name would be taken for."""
    for index in indexes:
        read = parse_index(index.text)
        if any(same_name(found, word) for part in (*read.terms, read.where or "") for found in _columns_named(part)):
            return index.name
    return None


def _columns_named(expression: str) -> Iterator[str]:
    """Yield the words, bare or quoted as names, that are no function, no collation and no text in single quotes."""
    tokens = significant(expression)
    for number, token in enumerate(tokens):
        is_called = number + 1 < len(tokens) and tokens[number + 1].is_operator("(")
        is_collation = number > 0 and tokens[number - 1].keyword == "COLLATE"
        if token.name and token.kind is not TokenKind.STRING and not is_called and not is_collation:
            yield token.name
