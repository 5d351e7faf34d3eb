"""A table's shape: its own text as the server writes it, taken apart, so that two of them can be compared and one predicted.

The server's text holds everything that a table is but for its rows, its triggers and where its counter stands.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["Shape"]

_COUNTER = re.compile(r" AUTO_INCREMENT=\d+")
_KEY = re.compile(r"(?:UNIQUE |PRIMARY |FULLTEXT |SPATIAL )?KEY\b")
_NAMED_KEY = re.compile(r"(?P<kind>(?:UNIQUE |FULLTEXT |SPATIAL )?KEY) (?P<name>`(?:[^`]|``)*`) (?P<rest>.*)", re.DOTALL)
_FOREIGN = re.compile(r"CONSTRAINT (?P<name>`(?:[^`]|``)*`) FOREIGN KEY")


@dataclass(frozen=True, kw_only=True)
class Shape:
    """The lines of a table's text: columns in their order, the rest sorted; `options` is what stands behind them."""

    columns: tuple[str, ...]
    keys: tuple[str, ...]
    foreign_keys: tuple[str, ...]
    checks: tuple[str, ...]
    options: str

    @classmethod
    def of(cls, text: str) -> Shape:
        """Take a table's text apart."""
        first, *lines = text.split("\n")
        assert first.endswith("("), text
        closing = next(number for number, line in enumerate(lines) if line.startswith(")"))
        parts: dict[str, list[str]] = {"columns": [], "keys": [], "foreign_keys": [], "checks": []}
        for line in (one.strip().removesuffix(",") for one in lines[:closing]):
            kind = "columns" if line.startswith("`") else "keys" if _KEY.match(line) else "foreign_keys" if _FOREIGN.match(line) else "checks"
            parts[kind].append(line)
        options = _COUNTER.sub("", "\n".join(lines[closing:]), count=1)
        return cls(
            columns=tuple(parts["columns"]), keys=tuple(sorted(parts["keys"])), foreign_keys=tuple(sorted(parts["foreign_keys"])),
            checks=tuple(sorted(parts["checks"])), options=options,
        )  # fmt: skip

    def as_record(self) -> dict[str, Any]:
        """Give the stored form."""
        return {
            "columns": list(self.columns), "keys": list(self.keys), "foreign_keys": list(self.foreign_keys), "checks": list(self.checks),
            "options": self.options,
        }  # fmt: skip

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Shape:
        """Read the stored form."""
        lists = {name: tuple(record[name] if name == "columns" else sorted(record[name])) for name in ("columns", "keys", "foreign_keys", "checks")}
        return cls(**lists, options=record["options"])

    def with_foreign_keys(self, other: Shape) -> Shape:
        """Return this shape with the foreign keys of another, which an empty copy does not get."""
        return replace(self, foreign_keys=other.foreign_keys)

    def without_foreign_key(self, name: str) -> Shape:
        """Return this shape without a foreign key, by its quoted name."""
        kept = tuple(line for line in self.foreign_keys if (found := _FOREIGN.match(line)) is None or found["name"].lower() != name.lower())
        return replace(self, foreign_keys=kept)

    def added_keys(self, before: Shape) -> list[tuple[str, str, str]]:
        """Return the keys that this shape has and the other has not: kind, quoted name, and the rest of the line."""
        lines = [line for line in self.keys if line not in before.keys]
        return [(found["kind"], found["name"], found["rest"]) for line in lines if (found := _NAMED_KEY.match(line)) is not None]

    def only_adds_keys(self, before: Shape) -> bool:
        """Whether keys with names are all that this shape has beyond the other."""
        more = [line for line in self.keys if line not in before.keys]
        kept = replace(self, keys=tuple(line for line in self.keys if line not in more))
        return bool(more) and kept == before and len(self.added_keys(before)) == len(more)

    def key_named(self, name: str) -> str | None:
        """Return the line of a key, by its quoted name."""
        return next((line for line in self.keys if (found := _NAMED_KEY.match(line)) is not None and found["name"].lower() == name.lower()), None)
