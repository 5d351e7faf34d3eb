"""The texts that a statement brings along, each tried alone by the library, so that an error can point at what it means.

Only what is wrong with a text by itself is said here: a word that does not belong there, something missing, a name that
names nothing. Whether the change as a whole can be made is found out later.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tideshift.ddl.change import Action, AddColumn, AddConstraint, CreateIndex, SetColumnType, SetDefault
from tideshift.ddl.tokens import same_name, significant
from tideshift.dialects.sqlite.driver import SqliteDriver, quote
from tideshift.dialects.sqlite.scratch import Scratch, TextRefused, scratch
from tideshift.errors import BadStatement

__all__ = ["see_fragments", "see_index"]

_NEAR = re.compile(r'near "(.*)": syntax error', re.DOTALL)
_NOTHING = re.compile(
    r"no such (column|function): (.+)|table .+ has no column named (.+)|unknown column \"(.+)\" in foreign key definition|no such collation sequence: (.+)"
)


@dataclass(frozen=True)
class _Fragment:
    """A text of the user's and what must stand around it to make a statement of it."""

    before: str
    text: str
    after: str


def see_fragments(driver: SqliteDriver, table: str, columns: Sequence[str], actions: Sequence[Action]) -> None:
    """Try the texts of an ALTER TABLE; raise `BadStatement` with the text and the offset in it of what is wrong."""
    added = [action.column for action in actions if isinstance(action, AddColumn)]
    known = [*(name for name in columns if not any(same_name(name, other) for other in added)), *added]
    for action in actions:
        for fragment in _fragments(action, quote(table), known):
            with scratch(driver) as trial:
                if fragment.before.startswith("SELECT"):
                    trial.run(f"CREATE TABLE {quote(table)} ({', '.join(map(quote, known))})")
                _try(trial, fragment)


def see_index(driver: SqliteDriver, table: str, columns: Sequence[str], change: CreateIndex) -> None:
    """Try the text of a CREATE INDEX in the same way."""
    with scratch(driver) as trial:
        trial.run(f"CREATE TABLE {quote(table)} ({', '.join(map(quote, columns))})")
        _try(trial, _Fragment("", change.text, ""))


def _fragments(action: Action, table: str, known: Sequence[str]) -> Iterator[_Fragment]:
    match action:
        case AddColumn(column=column, definition=definition):
            others = [quote(name) for name in known if not same_name(name, column)]
            yield _Fragment(f"CREATE TABLE {table} ({', '.join(others)}{', ' if others else ''}", definition, ")")
        case AddConstraint(text=text):
            yield _Fragment(f"CREATE TABLE {table} ({', '.join(map(quote, known))}, ", text, ")")
        case SetDefault(default=str() as default):
            yield _Fragment(f"CREATE TABLE {table} (c DEFAULT (", default, "))")
        case SetColumnType(using=str() as using):
            yield _Fragment("SELECT (", using, f") FROM {table}")


def _try(trial: Scratch, fragment: _Fragment) -> None:
    """Run one text; raise what is wrong with it alone, and let everything else pass."""
    message = _refusal(trial, fragment.before + fragment.text + fragment.after)
    if message is None:
        return
    near = _NEAR.match(message)
    if near is not None or message == "incomplete input":
        _refuse_at(fragment, _offset(trial, fragment, "" if near is None else near[1]))
    nothing = _NOTHING.fullmatch(message)
    if nothing is not None:
        name = next(found for found in nothing.groups()[1:] if found)
        what = nothing[1] or ("collation" if "collation" in message else "column")
        places = [token.start for token in significant(fragment.text) if same_name(token.name or token.text, name.rpartition(".")[2])]
        if places:
            raise BadStatement(f"there is no {what} {name}", fragment=fragment.text, offset=places[0])


def _refuse_at(fragment: _Fragment, offset: int) -> None:
    why = "something is missing here" if offset >= len(fragment.text) else "this does not belong here"
    raise BadStatement(why, fragment=fragment.text, offset=offset)


def _offset(trial: Scratch, fragment: _Fragment, word: str) -> int:
    """Find the place of the word that the library stumbled over: the first up to which the text is wrong already."""
    for token in significant(fragment.text):
        if token.text != word:
            continue
        found = _NEAR.match(_refusal(trial, fragment.before + fragment.text[: token.end]) or "")
        if found is not None and found[1] == word:
            return token.start
    return len(fragment.text)


def _refusal(trial: Scratch, text: str) -> str | None:
    try:
        trial.run(text)
    except TextRefused as error:
        return str(error)
    return None
