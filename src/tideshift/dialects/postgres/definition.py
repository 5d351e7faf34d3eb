"""A column's definition cut at its clauses, so that what would scan or build under a lock becomes an action of its own."""

from __future__ import annotations

from dataclasses import dataclass

from tideshift.ddl.tokens import STANDARD, Token, significant
from tideshift.dialects.postgres.driver import quote

__all__ = ["Definition", "read_definition"]

_STARTS = frozenset("CONSTRAINT NOT NULL CHECK DEFAULT GENERATED UNIQUE PRIMARY REFERENCES COLLATE STORAGE COMPRESSION".split())


@dataclass(frozen=True)
class Definition:
    """What is left of a definition, and the constraints of the table that say the rest."""

    bare: str
    constraints: tuple[str, ...]


def read_definition(column: str, text: str) -> Definition:
    """Cut CHECK, UNIQUE, PRIMARY KEY and REFERENCES off; everything else stays, letter by letter."""
    tokens = significant(text, STANDARD)
    starts = _clause_starts(tokens)
    bare = text[: tokens[starts[0]].start].rstrip() if starts else text
    constraints: list[str] = []
    for number, start in enumerate(starts):
        end = starts[number + 1] if number + 1 < len(starts) else len(tokens)
        clause = text[tokens[start].start : tokens[end - 1].end]
        named = tokens[start].keyword == "CONSTRAINT"
        word = tokens[start + 2 * named].keyword if start + 2 * named < len(tokens) else ""
        name = text[tokens[start].start : tokens[start + 1].end] + " " if named else ""
        rest = text[tokens[start + 2 * named].start : tokens[end - 1].end] if word else ""
        if word == "CHECK":
            constraints.append(name + rest)
        elif word == "REFERENCES":
            constraints.append(f"{name}FOREIGN KEY ({quote(column)}) {rest}")
        elif word in ("UNIQUE", "PRIMARY"):
            constraints.append(name + _with_columns(rest, word, column))
        else:
            bare = f"{bare} {clause}"
    return Definition(bare, tuple(constraints))


def _with_columns(rest: str, word: str, column: str) -> str:
    """Write the column behind the keywords of a key: before its storage parameters and deferring."""
    tokens = significant(rest, STANDARD)
    number = 1 if word == "UNIQUE" else 2
    if word == "UNIQUE" and len(tokens) > 1 and tokens[1].keyword == "NULLS":
        number = 4 if tokens[2].keyword == "NOT" else 3
    head, tail = rest[: tokens[number - 1].end], rest[tokens[number - 1].end :]
    return f"{head} ({quote(column)}){tail}"


def _clause_starts(tokens: list[Token]) -> list[int]:
    """Find where clauses begin: at a keyword outside parentheses that is not in the middle of another clause."""
    found: list[int] = []
    depth, at = 0, 1
    while at < len(tokens):
        token = tokens[at]
        depth += token.is_operator("(") - token.is_operator(")")
        if depth == 0 and token.keyword in _STARTS and _begins(tokens, at):
            found.append(at)
            at += _words_that_follow(tokens, at)
        at += 1
    return found


def _begins(tokens: list[Token], at: int) -> bool:
    """Whether the word begins a clause here: ON DELETE SET NULL, NOT DEFERRABLE and the like belong to the clause before."""
    if tokens[at - 1].keyword == "SET":
        return False
    return tokens[at].keyword != "NOT" or (at + 1 < len(tokens) and tokens[at + 1].keyword == "NULL")


def _words_that_follow(tokens: list[Token], at: int) -> int:
    """Return how many tokens behind a clause's first word cannot begin another clause."""
    word, following = tokens[at].keyword, tokens[at + 1].keyword if at + 1 < len(tokens) else ""
    if word == "CONSTRAINT":  # its name, and then the first word of what it names
        return 2
    if word == "NOT" and following == "NULL":
        return 1
    if word == "DEFAULT" and following == "NULL":
        return 1
    if word == "UNIQUE" and following == "NULLS":
        return 3 if at + 2 < len(tokens) and tokens[at + 2].keyword == "NOT" else 2
    if word == "GENERATED":  # ALWAYS | BY DEFAULT, AS IDENTITY | AS (…)
        return 3 if following == "BY" else 2
    return 1 if word in ("REFERENCES", "COLLATE", "STORAGE", "COMPRESSION", "DEFAULT") else 0
