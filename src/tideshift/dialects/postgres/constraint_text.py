"""Reading the text of a constraint as the user wrote it: its name, its kind, its columns and what follows."""

from __future__ import annotations

from dataclasses import dataclass

from tideshift.ddl.change import ConstraintKind
from tideshift.ddl.tokens import STANDARD, Token, significant
from tideshift.dialects.postgres.driver import quote

__all__ = ["ConstraintText", "include_of", "parent_of", "read_constraint"]


@dataclass(frozen=True)
class ConstraintText:
    """A constraint cut into its parts; `columns` are folded names, `inner` is the text in the first parentheses."""

    name: str | None
    kind: ConstraintKind
    inner: str
    columns: tuple[str, ...]
    before: str
    """What stands between the keywords and the parentheses (NULLS NOT DISTINCT)."""
    after: str
    not_valid: bool
    using_index: bool

    @property
    def index_name(self) -> str:
        """Return the name behind USING INDEX."""
        return folded(significant(self.before, STANDARD)[2])

    def named(self, name: str, *, not_valid: bool) -> str:
        """Write it out under a name."""
        valid = " NOT VALID" if not_valid and not self.not_valid else ""
        before = f" {self.before}" if self.before else ""
        after = f" {self.after}" if self.after else ""
        return f"CONSTRAINT {quote(name)} {self.kind}{before} ({self.inner}){after}{valid}"


    def storage_and_deferring(self) -> tuple[str, str]:
        """Cut what follows a key's columns: what belongs to its index, and what to the constraint."""
        tokens = significant(self.after, STANDARD)
        for at, token in enumerate(tokens):
            not_deferrable = token.keyword == "NOT" and at + 1 < len(tokens) and tokens[at + 1].keyword == "DEFERRABLE"
            if token.keyword in ("DEFERRABLE", "INITIALLY") or not_deferrable:
                return _spaced(self.after[: token.start]).replace("USING INDEX TABLESPACE", "TABLESPACE"), _spaced(self.after[token.start :])
        return _spaced(self.after).replace("USING INDEX TABLESPACE", "TABLESPACE"), ""


def include_of(options: str) -> tuple[str, str]:
    """Cut the list of included columns off a key's options."""
    tokens = significant(options, STANDARD)
    if not tokens or tokens[0].keyword != "INCLUDE":
        return "", options
    end = tokens[_closing(tokens, 1)].end
    return _spaced(options[:end]), _spaced(options[end:])


def parent_of(text: ConstraintText) -> str:
    """Return the name of the table that a foreign key refers to, as it is written."""
    tokens = significant(text.after, STANDARD)
    assert tokens[0].keyword == "REFERENCES"
    end = 2
    while end + 1 < len(tokens) and tokens[end].is_operator("."):
        end += 2
    return text.after[tokens[1].start : tokens[end - 1].end]


def read_constraint(text: str, kind: ConstraintKind) -> ConstraintText:
    """Cut a constraint's text, which the statement's reader has found to be one of this kind."""
    tokens = significant(text, STANDARD)
    at = 0
    name = None
    if tokens[0].keyword == "CONSTRAINT":
        name, at = folded(tokens[1]), 2
    at += len(kind.split())
    start = at
    while at < len(tokens) and not tokens[at].is_operator("("):
        at += 1
    using = any(token.keyword == "USING" for token in tokens[start:at])
    if at == len(tokens):
        before = text[tokens[start].start :] if start < at else ""
        not_valid = (tokens[-2].keyword, tokens[-1].keyword) == ("NOT", "VALID")
        one = [folded(tokens[start])] if kind is ConstraintKind.NOT_NULL else []
        return ConstraintText(name, kind, inner="", columns=tuple(one), before=before, after="", not_valid=not_valid, using_index=using)
    close = _closing(tokens, at)
    inner = text[tokens[at].end : tokens[close].start].strip()
    rest = tokens[close + 1 :]
    after = text[rest[0].start : rest[-1].end] if rest else ""
    not_valid = len(rest) >= 2 and (rest[-2].keyword, rest[-1].keyword) == ("NOT", "VALID")
    columns = tuple(folded(token) for token in tokens[at + 1 : close] if token.name is not None and kind is not ConstraintKind.CHECK)
    before = text[tokens[start].start : tokens[at - 1].end] if at > start else ""
    return ConstraintText(name, kind, inner=inner, columns=columns, before=before, after=after, not_valid=not_valid, using_index=using)


def folded(token: Token) -> str:
    """Return the name that a token spells, in lower case where it is not quoted."""
    assert token.name is not None, token
    return token.name if token.text.startswith('"') else token.name.lower()


def _closing(tokens: list[Token], opening: int) -> int:
    depth = 0
    for at in range(opening, len(tokens)):
        depth += tokens[at].is_operator("(") - tokens[at].is_operator(")")
        if depth == 0:
            return at
    raise AssertionError("the statement is balanced")


def _spaced(text: str) -> str:
    stripped = text.strip()
    return f" {stripped}" if stripped else ""
