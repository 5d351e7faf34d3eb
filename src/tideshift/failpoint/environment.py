"""Enabling points of a whole process from the environment: TIDESHIFT_FAILPOINTS="a.b=2*off->exit(9);c.d@node=n2=sleep(50)".

    variable := entry (";" entry)*
    entry    := name [ "@" key "=" value ("," key "=" value)* ] "=" terms

Quotes are respected, so that `;`, `,` and `=` may stand inside quoted values. A variable alone changes nothing: the program
must have been started with its own flag for fault injection as well.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, TextIO

from tideshift.failpoint.errors import EnvironmentEntryRefused, FailpointError
from tideshift.failpoint.registry import Enabled, Status, current_registry

VARIABLE: Final = "TIDESHIFT_FAILPOINTS"

_HEAD = re.compile(r"\s*([^@=\s]+)\s*([@=])")
_KEY = re.compile(r"\s*([A-Za-z_][A-Za-z_0-9]*)\s*=\s*")
_VALUE = re.compile(r'("(?:[^"\\]|\\.)*"|[^",=\s]+)\s*([,=])')


@dataclass(frozen=True, slots=True)
class Entry:
    """One entry of the variable, taken apart."""

    name: str
    where: Mapping[str, str]
    terms: str


def activate_from_environment(
    *, enabled: bool, stream: TextIO, environment: Mapping[str, str] | None = None
) -> tuple[Enabled, ...]:
    """Enable what the variable asks for, if the program's flag allows it, and say on one line what was done.

    Call it after the modules that declare the points are imported. A bad entry is an error, and then none is enabled.
    """
    text = (os.environ if environment is None else environment).get(VARIABLE, "").strip()
    if not text:
        return ()
    if not enabled:
        print(f"warning: {VARIABLE} is set but ignored: this process was not started with fault injection", file=stream)
        return ()
    prepared = _prepare(text)
    for one in prepared:
        one.registry.switch_on(one)
    told = " ".join("; ".join(_told(one.status) for one in prepared).split())  # one line, whatever the terms hold
    print(f"warning: fault injection is on, this process will fail on purpose: {told}", file=stream, flush=True)
    return prepared


def parse_entry(text: str) -> Entry:
    """Take one entry apart; ValueError tells what does not fit."""
    head = _HEAD.match(text)
    if head is None:
        raise ValueError("expected name=terms or name@key=value=terms")
    position = head.end()
    where: dict[str, str] = {}
    more = head[2] == "@"
    while more:  # ends: each round consumes a key and a value or fails
        key = _KEY.match(text, position)
        value = _VALUE.match(text, key.end()) if key is not None else None
        if key is None or value is None:
            raise ValueError(f"expected key=value and then ',' or '=' at character {position + 1}")
        if key[1] in where:
            raise ValueError(f"the filter names {key[1]!r} twice")
        where[key[1]] = json.loads(value[1]) if value[1].startswith('"') else value[1]
        position = value.end()
        more = value[2] == ","
    return Entry(head[1], where, text[position:])


def _prepare(text: str) -> tuple[Enabled, ...]:
    registry = current_registry()
    prepared: dict[str, Enabled] = {}
    for part in split_entries(text):
        try:
            entry = parse_entry(part)
            if entry.name in prepared:
                raise ValueError(f"an earlier entry already enables {entry.name!r}")
            prepared[entry.name] = registry.prepare(entry.name, entry.terms, where=entry.where)
        except (ValueError, FailpointError) as error:
            raise EnvironmentEntryRefused(VARIABLE, part.strip(), str(error)) from error
    return tuple(prepared.values())


def split_entries(text: str) -> Iterator[str]:
    """The parts between semicolons that stand outside quotes; empty parts are left out."""
    start, quoted, escaped = 0, False, False
    for position, character in enumerate(text):
        if escaped:
            escaped = False
        elif quoted and character == "\\":
            escaped = True
        elif character == '"':
            quoted = not quoted
        elif character == ";" and not quoted:
            if text[start:position].strip():
                yield text[start:position]
            start = position + 1
    if text[start:].strip():
        yield text[start:]


def _told(status: Status) -> str:
    where = "".join(f" {key}={value}" for key, value in status.where.items())
    seed = "" if status.seed is None else f" (seed {status.seed})"
    return f"{status.name}{' at' + where if where else ''}: {status.terms}{seed}"
