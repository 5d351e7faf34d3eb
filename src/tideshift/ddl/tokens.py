"""SQL text cut into tokens with positions, so that a statement can be read and edited without being regenerated.

Nothing is lost: the texts of all tokens, joined, are the text that was given. Tokens know nothing of grammar. A quote or
comment that never ends makes one token up to the end of the text, marked as such.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum

__all__ = ["LOOSE", "STANDARD", "Spelling", "Token", "TokenKind", "replace_spans", "same_name", "significant", "tokenize", "unquote"]


class TokenKind(StrEnum):
    """What a token is by its spelling alone."""

    SPACE = "space"
    COMMENT = "comment"
    WORD = "word"
    QUOTED = "quoted name"
    STRING = "string"
    BLOB = "blob"
    NUMBER = "number"
    VARIABLE = "variable"
    OPERATOR = "operator"
    UNFINISHED = "unfinished"


Spelling = re.Pattern[str]
"""How one kind of database spells its tokens: LOOSE takes names in any quotes, STANDARD in double ones only."""

LOOSE: Spelling = re.compile(
    r"""
      (?P<SPACE>[ \t\n\f\r]+)
    | (?P<COMMENT>--[^\n]*|/\*(?:(?!\*/)[\s\S])*\*/)
    | (?P<BLOB>[xX]'[^']*')
    | (?P<STRING>'(?:[^']|'')*')
    | (?P<QUOTED>"(?:[^"]|"")*"|`(?:[^`]|``)*`|\[[^\]]*\])
    | (?P<UNFINISHED>(?:/\*|['"`\[])[\s\S]*)
    | (?P<NUMBER>0[xX][0-9a-fA-F_]+|(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9_]+)?)
    | (?P<VARIABLE>\?[0-9]*|[:@$][A-Za-z0-9_$\u0080-\U0010ffff]+)
    | (?P<WORD>[A-Za-z_\u0080-\U0010ffff][A-Za-z0-9_$\u0080-\U0010ffff]*)
    | (?P<OPERATOR>->>|->|\|\||==|<=|<>|<<|>=|>>|!=|::|[\s\S])
    """,
    re.VERBOSE,
)


STANDARD: Spelling = re.compile(
    r"""
      (?P<SPACE>[ \t\n\f\r\v]+)
    | (?P<COMMENT>--[^\n\r]*|/\*(?:(?!\*/|/\*)[\s\S])*\*/)
    | (?P<BLOB>[xXbB]'[^']*')
    | (?P<STRING>[eE]'(?:[^'\\]|\\[\s\S]|'')*'|(?:[uU]&|[nN])?'(?:[^']|'')*'|\$(?P<tag>(?:[A-Za-z_\u0080-\U0010ffff][A-Za-z0-9_\u0080-\U0010ffff]*)?)\$[\s\S]*?\$(?P=tag)\$)
    | (?P<QUOTED>"(?:[^"]|"")*")
    | (?P<UNFINISHED>(?:/\*|['"]|\$(?:[A-Za-z_][A-Za-z0-9_]*)?\$)[\s\S]*)
    | (?P<NUMBER>0[xXoObB][0-9a-fA-F_]+|(?:[0-9][0-9_]*(?:\.[0-9_]*)?|\.[0-9][0-9_]*)(?:[eE][+-]?[0-9_]+)?)
    | (?P<VARIABLE>\$[0-9]+)
    | (?P<WORD>[A-Za-z_\u0080-\U0010ffff][A-Za-z0-9_$\u0080-\U0010ffff]*)
    | (?P<OPERATOR>::|:=|[\s\S])
    """,
    re.VERBOSE,
)
"""PostgreSQL's: names in double quotes only, strings with escapes or between dollars. A comment inside a comment counts as unfinished."""


@dataclass(frozen=True, slots=True)
class Token:
    """One token: what it is, its exact text, and where it stands (`end` is exclusive)."""

    kind: TokenKind
    text: str
    start: int
    end: int

    @property
    def keyword(self) -> str:
        """Return the word in capitals, or nothing for anything that is not a bare word."""
        return self.text.upper() if self.kind is TokenKind.WORD else ""

    @property
    def name(self) -> str | None:
        """Return the identifier that a bare word or a quoted name spells, or None."""
        if self.kind is TokenKind.WORD:
            return self.text
        return unquote(self.text) if self.kind is TokenKind.QUOTED else None

    @property
    def trivial(self) -> bool:
        """Whether it is only space or a comment."""
        return self.kind in (TokenKind.SPACE, TokenKind.COMMENT)

    def is_operator(self, text: str) -> bool:
        """Whether it is exactly this operator."""
        return self.kind is TokenKind.OPERATOR and self.text == text


def tokenize(text: str, spelling: Spelling = LOOSE) -> Iterator[Token]:
    """Cut a text into tokens, in order and without gaps."""
    position = 0
    while position < len(text):
        match = spelling.match(text, position)
        assert match is not None, "the last alternative takes any character"
        kind = next(name for name, found in match.groupdict().items() if found is not None and name != "tag")
        yield Token(TokenKind[kind], match[0], position, match.end())
        position = match.end()


def significant(text: str, spelling: Spelling = LOOSE) -> list[Token]:
    """Return the tokens that are neither space nor comment."""
    return [token for token in tokenize(text, spelling) if not token.trivial]


def unquote(text: str) -> str:
    """Return what a quoted name or string spells."""
    opening, inner = text[0], text[1:-1]
    return inner if opening == "[" else inner.replace(opening * 2, opening)


def same_name(left: str, right: str) -> bool:
    """Whether two identifiers are the same where only ASCII letters are folded."""
    return left == right or _fold(left) == _fold(right)


def _fold(name: str) -> str:
    return "".join(chr(ord(letter) | 0x20) if "A" <= letter <= "Z" else letter for letter in name)


def replace_spans(text: str, replacements: list[tuple[int, int, str]]) -> str:
    """Put new text in place of the spans `(start, end, new)`, which must not overlap."""
    pieces: list[str] = []
    position = 0
    for start, end, new in sorted(replacements, key=lambda one: (one[0], one[1])):
        assert position <= start <= end <= len(text), (position, start, end)
        pieces += [text[position:start], new]
        position = end
    pieces.append(text[position:])
    return "".join(pieces)
