"""The one table of options: what may be set, its default and unit, whether it may change while work runs, and by whom.

Job parameters are wishes of a person that the owner turns into modifications of a task; settings belong to a process.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tideshift.errors import InvalidParameter

__all__ = ["FAST", "NORMAL", "PARAMETERS", "SLOTS", "Parameter", "Profile", "parse_bytes_or_rows", "parse_duration_seconds", "parse_old_snapshots", "parse_parameters", "snapshot_wait_seconds"]


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """One parameter of a job that may change while it runs."""

    name: str
    default: int | str | None
    unit: str
    minimum: int
    maximum: int
    applied_by: str
    effective_within: str
    text: str
    values: str = ""
    """What may be said, where that is no whole number."""

    @property
    def of_cutover(self) -> bool:
        """Whether the owner reads it from the job at each try of the cut-over, so that no task need be told."""
        return self.applied_by == OWNER


OWNER = "the owner"
WAIT, PROCEED = "wait", "proceed"
PARAMETERS: Mapping[str, Parameter] = {
    parameter.name: parameter
    for parameter in (
        Parameter(
            name="threads",
            default=1,
            unit="subtasks per node",
            minimum=1,
            maximum=256,
            applied_by="every node",
            effective_within="the next start of a subtask",
            text="How many subtasks a node runs at once; a database with one writer takes 1 whatever is wished.",
        ),
        Parameter(
            name="batch_size",
            default=10_000,
            unit="rows",
            minimum=1,
            maximum=1_000_000,
            applied_by="the running subtask",
            effective_within="the next chunk",
            text="The most rows that one chunk may hold; below it the size follows the time target.",
        ),
        Parameter(
            name="max_write_speed",
            default=None,
            unit="bytes or rows per second over all nodes",
            minimum=0,
            maximum=1 << 50,
            applied_by="the running subtask",
            effective_within="the next chunk",
            text="A ceiling such as 20MiB or 5000rows; 0 or none lifts it.",
        ),
        Parameter(
            name="lock_share",
            default=25,
            unit="percent of time",
            minimum=1,
            maximum=100,
            applied_by="the running subtask",
            effective_within="the next chunk",
            text="How much of the time the job may hold the lock of a database with one writer: more is faster, and writers wait more often.",
        ),
        Parameter(
            name="adaptive",
            default="off",
            unit="",
            minimum=0,
            maximum=0,
            applied_by="the running subtask",
            effective_within="the next chunk",
            text="Whether the work rests so much that the 99th percentile of an application's small commits stays within 1.5 times of what it is at rest; not on a database with one writer, where lock_share does that.",
            values="`on` or `off`",
        ),
        Parameter(
            name="old_snapshots",
            default="wait 30s",
            unit="",
            minimum=0,
            maximum=86_400,
            applied_by=OWNER,
            effective_within="the next try of the cut-over",
            text="How long the cut-over waits, without any lock, for transactions that began before it and would find a table empty which they read afterwards for the first time.",
            values="`wait DURATION` (up to a day) or `proceed`",
        ),
        Parameter(
            name="end_blockers",
            default="off",
            unit="",
            minimum=0,
            maximum=0,
            applied_by=OWNER,
            effective_within="the next try of the cut-over",
            text="Whether a session that keeps the cut-over from its locks is ended, within the limits that the database's page names.",
            values="`on` or `off`",
        ),
    )
}


@dataclass(frozen=True, kw_only=True)
class Profile:
    """How often the loops look, and how long a lease and a lock may last."""

    heartbeat_seconds: float = 1.0
    lease_seconds: float = 5.0
    trust_seconds: float = 3.0
    scan_seconds: float = 0.5
    node_dead_after_seconds: float = 5.0
    system_lock_wait_seconds: float = 10.0
    error_count_limit: int = 20
    retry_seconds_max: float = 30.0
    refresh_seconds: float = 0.25
    unknown_type_patience_seconds: float = 3600.0
    history_seconds: float = 14 * 86_400.0
    prune_seconds: float = 600.0

    def __post_init__(self) -> None:
        """Hold the order that keeps a deposed owner from believing in its lease."""
        assert self.heartbeat_seconds < self.trust_seconds < self.lease_seconds


NORMAL = Profile()
SLOTS = 4
"""How many subtasks a node runs at once when nobody says otherwise."""
FAST = Profile(heartbeat_seconds=0.5, lease_seconds=2.0, trust_seconds=1.2, scan_seconds=0.5, node_dead_after_seconds=2.0)

_UNITS = {"b": 1, "kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "kb": 10**3, "mb": 10**6, "gb": 10**9, "rows": 1}
_SPEED = re.compile(r"(?ia)^\s*(\d+(?:\.\d+)?)\s*((?:[kmg]i?)?b|rows)?(?:/s)?\s*$")
_DURATION = re.compile(r"(?i)^\s*(\d+(?:\.\d+)?)\s*(ms|s|m|h|d)?\s*$")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def parse_bytes_or_rows(text: str) -> str | None:
    """Turn `20MiB`, `5000rows`, `0` or `none` into its stored form: `20971520 bytes`, `5000 rows` or None."""
    if text.strip().lower() == "none":
        return None
    match = _SPEED.match(text)
    if match is None:
        raise InvalidParameter(f"max_write_speed: {text!r} is not understood", hint="Write 20MiB, 5000rows, or none.")
    unit = (match[2] or "b").lower()
    counted = "rows" if unit == "rows" else "bytes"
    if not match[1].strip("0."):
        return None
    amount = float(match[1]) * _UNITS[unit]
    if amount > PARAMETERS["max_write_speed"].maximum:
        most = "1 PiB" if counted == "bytes" else f"{PARAMETERS['max_write_speed'].maximum} rows"
        raise InvalidParameter(f"max_write_speed: {_short(text)} is more than {most} per second")
    if amount < 1:
        raise InvalidParameter(f"max_write_speed: {_short(text)} is less than one of the {counted} per second", hint="0 or none lifts the ceiling.")
    return f"{int(amount)} {counted}"


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else f"{text[:40]}…")


def parse_duration_seconds(text: str) -> float:
    """Turn `90s`, `5m`, `24h` or `250ms` into seconds; a bare number is seconds."""
    match = _DURATION.match(text)
    if match is None:
        raise InvalidParameter(f"{text!r} is not a duration", hint="Write 90s, 5m, 24h or 2d.")
    return float(match[1]) * _SECONDS[(match[2] or "s").lower()]


def parse_old_snapshots(text: str) -> str:
    """Turn `wait 90s` or `proceed` into its stored form: `wait 90s`, `proceed`."""
    words = text.split()
    if [word.lower() for word in words] == [PROCEED]:
        return PROCEED
    if len(words) != 2 or words[0].lower() != WAIT:
        raise InvalidParameter(f"old_snapshots: {_short(text)} is not understood", hint="Write wait 30s, or proceed.")
    seconds = parse_duration_seconds(words[1])
    if seconds > PARAMETERS["old_snapshots"].maximum:
        raise InvalidParameter(f"old_snapshots: {_short(text)} is more than a day", hint="Write wait 30s, or proceed.")
    return f"{WAIT} {seconds:g}s"


def snapshot_wait_seconds(value: str) -> float:
    """Return how long the stored form says to wait."""
    return 0.0 if value == PROCEED else parse_duration_seconds(value.removeprefix(WAIT))


def parse_on_or_off(name: str, value: Any) -> str:
    """Turn `on`, `off` or a truth value into its stored form."""
    text = ("on" if value else "off") if isinstance(value, bool) else str(value).strip().lower()
    if text not in ("on", "off"):
        raise InvalidParameter(f"{name}: {_short(str(value))} is neither on nor off")
    return text


def parse_parameters(wished: Mapping[str, Any]) -> dict[str, Any]:
    """Check names and values, and give each value its stored form; raise `InvalidParameter` saying what would be right."""
    parsed: dict[str, Any] = {}
    for name, value in wished.items():
        parameter = PARAMETERS.get(name)
        if parameter is None:
            raise InvalidParameter(f"there is no parameter {name!r}", hint="There are: " + ", ".join(PARAMETERS))
        if name == "max_write_speed":
            parsed[name] = None if value is None else parse_bytes_or_rows(str(value))
            continue
        if name == "old_snapshots":
            parsed[name] = parse_old_snapshots(str(value))
            continue
        if name in ("adaptive", "end_blockers"):
            parsed[name] = parse_on_or_off(name, value)
            continue
        try:
            number = int(str(value))
        except ValueError as error:
            raise InvalidParameter(f"{name}: {value!r} is not a whole number of {parameter.unit}") from error
        if not parameter.minimum <= number <= parameter.maximum:
            raise InvalidParameter(f"{name}: {number} is outside {parameter.minimum} to {parameter.maximum} {parameter.unit}")
        parsed[name] = number
    return parsed
