"""The term language: what an enabled failpoint does, as text.

    chain    := term ("->" term)*
    term     := modifier* action [ "(" [argument ("," argument)*] ")" ]
    modifier := number "%" | integer "*" | "skip(" integer ")" | "every(" integer ")"
    argument := any JSON value, and for the first argument of raise also the dotted path of an exception class

A pass of the point scans the chain from the left; the first term whose modifiers all allow runs, and if none does nothing
happens. The order in which modifiers are written has no meaning. They are tested as skip, every, percent, count, so that
`50%2*x` and `2*50%x` both mean: at most two firings, each with an even chance. Each stands at most once in a term.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, NoReturn

from tideshift.failpoint.errors import TermSyntaxError, did_you_mean, near_matches

WAIT_SECONDS_MAX: Final = 86_400.0
EXIT_CODE_MAX: Final = 255


class Action(StrEnum):
    """What a term does; only `return` hands a value to the site."""

    OFF = "off"
    RETURN = "return"
    RAISE = "raise"
    SLEEP = "sleep"
    PAUSE = "pause"
    PRINT = "print"
    EXIT = "exit"
    KILL = "kill"
    STOP = "stop"
    YIELD = "yield"
    CALL = "call"


@dataclass(frozen=True, slots=True)
class JsonValue:
    """A value kept as JSON text, so that each reader gets a copy of its own and the term stays immutable."""

    text: str

    def decoded(self) -> Any:
        """A fresh copy of the value."""
        return json.loads(self.text)


@dataclass(frozen=True, slots=True)
class ClassPath:
    """The dotted path of an exception class, not looked up yet."""

    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Modifiers:
    """When a term that is reached may run."""

    skip_passes: int = 0
    every_passes: int = 1
    percent: float | None = None
    firings_max: int | None = None

    @property
    def conditional(self) -> bool:
        """Whether the term can ever let a pass through to the next one."""
        return self != Modifiers()


@dataclass(frozen=True, slots=True, kw_only=True)
class Term:
    """One clause of a chain."""

    action: Action
    arguments: tuple[JsonValue | ClassPath, ...] = ()
    modifiers: Modifiers = Modifiers()

    def argument(self, default: Any = None) -> Any:
        """The first argument as a value, or the default when there is none."""
        first = self.arguments[0] if self.arguments else None
        return first.decoded() if isinstance(first, JsonValue) else default

    @property
    def wait_seconds(self) -> float | None:
        """How long sleep or pause waits; None means until released."""
        return duration_seconds(self.argument()) if self.arguments else None


@dataclass(frozen=True, slots=True)
class Chain:
    """All terms of one activation, in the order in which they are tried."""

    text: str
    terms: tuple[Term, ...]


def parse(text: str) -> Chain:
    """Read terms, or raise TermSyntaxError with the place that does not fit."""
    cursor = _Cursor(text)
    terms = [_term(cursor)]
    while cursor.take("->"):  # ends: each round consumes at least the arrow
        if not terms[-1].modifiers.conditional:
            cursor.fail("this term can never run, because the one before it always does")
        terms.append(_term(cursor))
    if not cursor.at_end():
        cursor.fail("expected '->' or the end")
    return Chain(text.strip(), tuple(terms))


def duration_seconds(value: object) -> float:
    """A wait in seconds from milliseconds as a number or from a text such as "100ms", "2s" or "1.5m"."""
    match = _DURATION.fullmatch(value) if isinstance(value, str) else None
    if match is not None:
        seconds = float(match[1]) * _UNIT_SECONDS[match[2]]
    elif isinstance(value, int | float) and not isinstance(value, bool):
        seconds = value / 1000
    else:
        raise ValueError('a wait is a number of milliseconds or a text such as "100ms", "2s" or "1.5m"')
    if not 0 <= seconds <= WAIT_SECONDS_MAX:
        raise ValueError(f"a wait is between 0 and {WAIT_SECONDS_MAX:.0f} seconds")
    return seconds


_DURATION = re.compile(r"([0-9]+(?:\.[0-9]+)?)(ms|s|m)")
_UNIT_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0}
_BLANKS = re.compile(r"[ \t\r\n]*")
_NUMBER_MODIFIER = re.compile(r"(-?[0-9]+(?:\.[0-9]+)?)[ \t]*([%*])")
_WORD_MODIFIER = re.compile(r"(skip|every)[ \t]*\([ \t]*(-?[0-9]+)[ \t]*\)")
_WORD = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
_DOTTED = re.compile(r"[A-Za-z_][A-Za-z_0-9]*(?:\.[A-Za-z_][A-Za-z_0-9]*)*")
_NOT_CLASSES = ("true", "false", "null")
_ARGUMENTS_MAX = {
    Action.RETURN: 1,
    Action.RAISE: 2,
    Action.SLEEP: 1,
    Action.PAUSE: 1,
    Action.PRINT: 1,
    Action.EXIT: 1,
}


class _Cursor:
    """The text and how far it has been read."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.position = 0

    def skip_blanks(self) -> int:
        blanks = _BLANKS.match(self.text, self.position)
        assert blanks is not None  # the pattern matches the empty text
        self.position = blanks.end()
        return self.position

    def at_end(self) -> bool:
        return self.skip_blanks() == len(self.text)

    def take(self, token: str) -> bool:
        found = self.text.startswith(token, self.skip_blanks())
        self.position += len(token) if found else 0
        return found

    def match(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        found = pattern.match(self.text, self.skip_blanks())
        if found is not None:
            self.position = found.end()
        return found

    def json_value(self) -> JsonValue:
        start = self.skip_blanks()
        try:
            value, self.position = _DECODER.raw_decode(self.text, start)
            return JsonValue(json.dumps(value, ensure_ascii=False))
        except json.JSONDecodeError as error:
            self.fail(f"expected a JSON value ({error.msg})", error.pos)
        except RecursionError:
            self.fail("the JSON value is nested too deeply", start)
        except ValueError as error:
            self.fail(f"the JSON value cannot be read ({error})", start)

    def fail(self, reason: str, position: int | None = None) -> NoReturn:
        raise TermSyntaxError(self.text, self.skip_blanks() if position is None else position, reason)


def _refuse_constant(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_refuse_constant)


def _term(cursor: _Cursor) -> Term:
    modifiers = _modifiers(cursor)
    start = cursor.skip_blanks()
    action = _action(cursor)
    arguments = _arguments(cursor, action) if cursor.take("(") else ()
    if (complaint := _complaint(action, arguments)) is not None:
        cursor.fail(complaint, start)
    return Term(action=action, arguments=arguments, modifiers=modifiers)


def _modifiers(cursor: _Cursor) -> Modifiers:
    found: dict[str, float] = {}
    while True:  # ends: each round consumes a modifier, and each kind is accepted once
        start = cursor.skip_blanks()
        if (number := cursor.match(_NUMBER_MODIFIER)) is not None:
            kind, value_text = ("percent" if number[2] == "%" else "count"), number[1]
        elif (word := cursor.match(_WORD_MODIFIER)) is not None:
            kind, value_text = word[1], word[2]
        else:
            break
        if kind in found:
            cursor.fail(f"{kind} stands twice in one term", start)
        check, complaint = _MODIFIER_RULES[kind]
        if not check(value_text):
            cursor.fail(complaint, start)
        found[kind] = float(value_text) if kind == "percent" else int(value_text)
    return Modifiers(
        skip_passes=int(found.get("skip", 0)),
        every_passes=int(found.get("every", 1)),
        percent=found.get("percent"),
        firings_max=int(found["count"]) if "count" in found else None,
    )


_MODIFIER_RULES: dict[str, tuple[Callable[[str], bool], str]] = {
    "percent": (lambda text: 0 <= float(text) <= 100, "a percentage is between 0 and 100"),
    "count": (lambda text: "." not in text and int(text) >= 1, "a count is a whole number of at least 1"),
    "skip": (lambda text: int(text) >= 0, "skip takes a whole number of at least 0"),
    "every": (lambda text: int(text) >= 1, "every takes a whole number of at least 1"),
}


def _action(cursor: _Cursor) -> Action:
    start = cursor.skip_blanks()
    word = cursor.match(_WORD)
    if word is None:
        cursor.fail(f"expected an action ({', '.join(Action)})")
    if word[0] in ("skip", "every"):
        cursor.fail(f"{word[0]} takes a whole number, as in {word[0]}(2)", start)
    if word[0] not in tuple(Action):
        cursor.fail(f"{word[0]!r} is not an action{did_you_mean(near_matches(word[0], Action))}", start)
    return Action(word[0])


def _arguments(cursor: _Cursor, action: Action) -> tuple[JsonValue | ClassPath, ...]:
    arguments: list[JsonValue | ClassPath] = []
    if cursor.take(")"):
        return ()
    while True:  # ends: each round consumes an argument or fails
        arguments.append(_class_path(cursor, action, first=not arguments) or cursor.json_value())
        if cursor.take(")"):
            return tuple(arguments)
        if not cursor.take(","):
            cursor.fail("expected ',' or ')'")


def _class_path(cursor: _Cursor, action: Action, *, first: bool) -> ClassPath | None:
    start = cursor.skip_blanks()
    dotted = cursor.match(_DOTTED) if first and action is Action.RAISE else None
    if dotted is None or dotted[0] in _NOT_CLASSES:
        cursor.position = start
        return None
    return ClassPath(dotted[0])


def _complaint(action: Action, arguments: tuple[JsonValue | ClassPath, ...]) -> str | None:
    """What is wrong with the arguments of an action, or None."""
    allowed = _ARGUMENTS_MAX.get(action, 0)
    if len(arguments) > allowed:
        return f"{action} takes at most {allowed} argument(s)" if allowed else f"{action} takes no argument"
    values = [argument.decoded() for argument in arguments if isinstance(argument, JsonValue)]
    if action is Action.SLEEP and not values:
        return 'sleep takes a time, as in sleep(50) or sleep("2s")'
    if action is Action.RAISE and not all(isinstance(value, str) for value in values):
        return "raise takes a name in quotes or the path of a class, and a message in quotes"
    if action in (Action.SLEEP, Action.PAUSE) and values:
        return _wait_complaint(values[0])
    if action is Action.EXIT and values and not (type(values[0]) is int and 0 <= values[0] <= EXIT_CODE_MAX):
        return f"exit takes a whole number from 0 to {EXIT_CODE_MAX}"
    return None


def _wait_complaint(value: object) -> str | None:
    try:
        duration_seconds(value)
    except ValueError as error:
        return str(error)
    return None
