"""Typed key values: how a position in a table is written down losslessly, and the protocol that orders them.

A bound is a list of `[type tag, text]` pairs, one per key column. It is only ever compared by the database. Ranges are
half-open: after `low` (exclusive, None for the start) up to `high` (inclusive, None for the end), since a checkpoint
names the last row that is done.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from tideshift.store.database import Transaction

__all__ = ["Bound", "KeyOrder", "KeyRange", "decode_value", "encode_value"]

Bound: TypeAlias = list[list[str]]


@dataclass(frozen=True)
class KeyRange:
    """The keys after `low` up to and including `high`; None stands for the table's own end."""

    low: Bound | None
    high: Bound | None

    def as_record(self) -> dict[str, Any]:
        """Give the form stored as a subtask's meta."""
        return {"low": self.low, "high": self.high}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> KeyRange:
        """Read the stored form."""
        return cls(record["low"], record["high"])


def encode_value(value: Any) -> list[str]:
    """Write one value that the driver gave as a tagged text: null, int, real (hexadecimal float), text or blob."""
    if value is None:
        return ["null", ""]
    if isinstance(value, bool):
        return ["bool", "1" if value else "0"]
    if isinstance(value, int):
        return ["int", str(value)]
    if isinstance(value, float):
        return ["real", value.hex()]
    if isinstance(value, (bytes, bytearray, memoryview)):
        return ["blob", bytes(value).hex()]
    if isinstance(value, str):
        return ["text", value]
    raise TypeError(f"no lossless text form for a key value of type {type(value).__name__}")


def decode_value(pair: list[str]) -> Any:
    """Read a tagged text back into the value that the driver binds."""
    tag, text = pair
    match tag:
        case "null":
            return None
        case "bool":
            return text == "1"
        case "int":
            return int(text)
        case "real":
            return float.fromhex(text)
        case "blob":
            return bytes.fromhex(text)
        case "text":
            return text
    raise ValueError(f"unknown key type tag {tag!r}")


class KeyOrder(Protocol):
    """The order of one table's chunk key; every comparison is the database's."""

    columns: tuple[str, ...]

    def first_and_last(self, tx: Transaction) -> tuple[Bound, Bound] | None:
        """Return the least and the greatest key, or None for an empty table."""
        ...

    def split(self, tx: Transaction, key_range: KeyRange, *, parts: int) -> list[KeyRange]:
        """Cut a range into at most `parts` adjoining ranges of about equal row counts; deterministic for a given table."""
        ...

    def next_bound(self, tx: Transaction, key_range: KeyRange, *, rows: int) -> Bound | None:
        """Return the key of the `rows`-th row of the range (or of its last row when there are fewer), None without rows."""
        ...

    def compare(self, tx: Transaction, left: Bound, right: Bound) -> int:
        """Return -1, 0 or 1, as the database orders the two keys."""
        ...

    def where(self, key_range: KeyRange) -> tuple[str, tuple[Any, ...]]:
        """Return the condition that a row of the table lies in the range, with its binds, for a statement of one's own."""
        ...
