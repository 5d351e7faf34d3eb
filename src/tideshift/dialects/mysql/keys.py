"""The order of a table's chunk key here: one column or several, each by its own type, character set and collation.

A value is written down as a text that is exact for its type, and read back as a literal of that type: characters with their
character set and collation, bytes as bytes, members of an ENUM or SET and bits as the numbers that the server sorts
them by. So a comparison is the column's own, and the key's index finds the place.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tideshift.dialects.mysql.names import quote
from tideshift.errors import PlanRefused
from tideshift.store.database import Transaction
from tideshift.store.keys import Bound, KeyRange

__all__ = ["KeyColumn", "MysqlKeyOrder"]

_WHOLE = frozenset({"tinyint", "smallint", "mediumint", "int", "bigint", "year"})
_NUMBERED = frozenset({"enum", "bit"})
_CHARACTERS = frozenset({"char", "varchar", "tinytext", "text", "mediumtext", "longtext"})
_BYTES = frozenset({"binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"})
_TIMES = {"date": "DATE", "datetime": "DATETIME(6)", "timestamp": "DATETIME(6)", "time": "TIME(6)"}
_ADDRESSES = {"uuid": "UUID", "inet4": "INET4", "inet6": "INET6"}
_UNICODE = ("utf8mb4", "utf8mb3", "utf8", "ascii")
_NUMBER = re.compile(r"-?\d+(\.\d+)?(e[-+]?\d+)?")
_MEMBER = re.compile(r"'(?:[^']|'')*'")
_PLAIN = re.compile(r"[-0-9a-fA-F:. ]*")
Sql = tuple[str, tuple[Any, ...]]

_COLUMNS = """
SELECT COLUMN_NAME, DATA_TYPE, CHARACTER_SET_NAME, COLLATION_NAME, COLUMN_TYPE, IS_NULLABLE = 'YES' FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ?
"""


@dataclass(frozen=True)
class KeyColumn:
    """What a key's column holds and how it sorts."""

    type_name: str
    character_set: str | None
    collation: str | None
    members: tuple[str, ...] = ()
    """Of an ENUM, as literals and in their order."""
    nullable: bool = False

    @classmethod
    def read(cls, row: tuple[Any, ...]) -> KeyColumn:
        """Read a row of the catalogue."""
        _, type_name, characters, collation, column_type, nullable = row
        members = tuple(_MEMBER.findall(column_type)) if type_name.lower() == "enum" else ()
        return cls(type_name.lower(), characters, collation, members, bool(nullable))

    @property
    def tag(self) -> str:
        """Return what stands beside a value that is written down."""
        return " ".join(part for part in (self.type_name, self.character_set, self.collation) if part)

    def text_of(self, name: str) -> str:
        """Return the expression that writes a column's value down."""
        if self.type_name in _NUMBERED:
            return f"CAST({name} + 0 AS CHAR)"
        if self.type_name in _BYTES or (self.type_name in _CHARACTERS and self.character_set not in _UNICODE):
            return f"hex({name})"
        return f"CAST({name} AS CHAR CHARACTER SET utf8mb4)"

    def literal(self, text: str) -> str:
        """Return a value that was written down as a literal of the column's type."""
        if self.type_name in _CHARACTERS:
            content = text.encode().hex() if self.character_set in _UNICODE else _checked_hex(text)
            return f"_{self.character_set} X'{content}' COLLATE {self.collation}"
        if self.type_name in _BYTES:
            return f"X'{_checked_hex(text)}'"
        for types in (_TIMES, _ADDRESSES):
            if self.type_name in types:
                assert _PLAIN.fullmatch(text), text
                return f"CAST('{text}' AS {types[self.type_name]})"
        assert _NUMBER.fullmatch(text), text
        if self.type_name == "enum":
            return self.members[int(text) - 1] if int(text) else "''"
        return f"{text}e0" if self.type_name == "double" and "e" not in text else text


    def comparison(self, name: str, sign: str, text: str) -> str:
        """Return the condition that a column's value stands so to one that was written down.

        The members of an ENUM are named one by one: only so does the server find them in an index, and in their own order.
        """
        if self.type_name != "enum" or sign == "=":
            return f"{name} {sign} {self.literal(text)}"
        compare = {">": int.__gt__, ">=": int.__ge__, "<=": int.__le__, "<": int.__lt__}[sign]
        fitting = [literal for number, literal in enumerate(("''", *self.members)) if compare(number, int(text))]
        return f"{name} IN ({', '.join(fitting)})" if fitting else "false"

    def sortable(self, text: str) -> str:
        """Return a value that was written down as a literal that sorts as the column does, by itself."""
        return text if self.type_name == "enum" else self.literal(text)


class MysqlKeyOrder:
    """The key of one table, given by database, name, and columns in the order of its index."""

    def __init__(self, schema: str, table: str, columns: Sequence[str], *, known: Sequence[KeyColumn] | None = None) -> None:
        """`known` are the columns that bounds were written for, where they are not this table's own."""
        assert columns
        self.columns: tuple[str, ...] = tuple(columns)
        self.schema, self.table = schema, table
        self.name = f"{quote(schema)}.{quote(table)}"
        self._known = None if known is None else list(known)

    def prepare(self, tx: Transaction) -> None:
        """Read the columns' types; every method that has a transaction does it by itself."""
        if self._known is not None:
            return
        rows = tx.run_verbatim(_COLUMNS, (self.schema, self.table)).rows
        found = {row[0].lower(): KeyColumn.read(row) for row in rows}
        if missing := [name for name in self.columns if name.lower() not in found]:
            raise PlanRefused(f"{self.name} has no column {', '.join(missing)}", reasons=["no such column"])
        self._known = [found[name.lower()] for name in self.columns]
        for name, column in zip(self.columns, self._known, strict=True):
            if not _is_ordered(column.type_name) or "''" in column.members:  # an empty member cannot be told from an invalid value
                reason = f"column {name!r} of the key is of type {column.type_name}, whose values cannot be found again exactly"
                raise PlanRefused(f"{self.name} cannot be read in order: {reason}", reasons=[reason])

    @property
    def known(self) -> list[KeyColumn]:
        """Return the columns' types."""
        assert self._known is not None, "prepare() comes first"
        return self._known

    # ── the text of conditions, for whoever builds a statement on this table ───────────────────────────────────────

    def where(self, key_range: KeyRange, *, qualifier: str = "") -> Sql:
        """Return the condition that a row lies in the range; its values stand in it as literals."""
        sides = ((key_range.low, ">"), (key_range.high, "<="))
        conditions = [self._beyond(bound, sign, qualifier) for bound, sign in sides if bound is not None]
        return " AND ".join(conditions) or "true", ()

    def literals(self, bound: Bound) -> list[str]:
        """Return a bound's values as literals."""
        return [column.literal(text) for column, text in self._texts(bound)]

    def _texts(self, bound: Bound) -> list[tuple[KeyColumn, str]]:
        """Return a bound's values as they were written down; a type that changed since is not accepted."""
        if [tag for tag, _ in bound] != [column.tag for column in self.known]:
            raise PlanRefused(
                f"the key of {self.name} has other types than when the bound was written", reasons=["key types changed"]
            )
        return [(column, text) for column, (_, text) in zip(self.known, bound, strict=True)]

    def order_by(self, *, qualifier: str = "", reverse: bool = False) -> str:
        """Return the terms of an ORDER BY."""
        return ", ".join(f"{name} DESC" if reverse else name for name in self.names(qualifier))

    def select_list(self, *, qualifier: str = "") -> str:
        """Return the key's columns, in their text form, as a select list."""
        return ", ".join(column.text_of(name) for column, name in zip(self.known, self.names(qualifier), strict=True))

    def names(self, qualifier: str = "") -> list[str]:
        """Return the key's columns, always qualified."""
        return [f"{qualifier or self.name}.{quote(name)}" for name in self.columns]

    def bound_of(self, row: Sequence[str | None]) -> Bound:
        """Write the key of a row that was read, by the list above, as a bound."""
        bound: Bound = []
        for name, column, text in zip(self.columns, self.known, row, strict=True):
            if text is None:
                raise PlanRefused(f"column {name!r} of the key of {self.name} holds NULL", reasons=["NULL in the key"])
            bound.append([column.tag, text])
        return bound

    # ── the protocol ──────────────────────────────────────────────────────────────────────────────────────────────

    def first_and_last(self, tx: Transaction) -> tuple[Bound, Bound] | None:
        """Return the ends of the table, and refuse a key that holds NULL."""
        self.prepare(tx)
        for name, column in zip(self.columns, self.known, strict=True):
            # Not asked of a column that cannot hold one: there a zero date would count as NULL.
            if column.nullable and tx.run_verbatim(f"SELECT 1 FROM {self.name} WHERE {quote(name)} IS NULL LIMIT 1").rows:
                raise PlanRefused(f"column {name!r} of the key of {self.name} holds NULL", reasons=["NULL in the key"])
        whole = KeyRange(None, None)
        first, last = self._end(tx, whole), self._end(tx, whole, reverse=True)
        return None if first is None or last is None else (first, last)

    def split(self, tx: Transaction, key_range: KeyRange, *, parts: int) -> list[KeyRange]:
        """Cut a range by counting along the key's index."""
        assert parts >= 1
        self.prepare(tx)
        condition, _ = self.where(key_range)
        count = int(tx.run_verbatim(f"SELECT count(*) FROM {self.name} WHERE {condition}").scalar())
        parts = max(1, min(parts, count))
        cuts: list[Bound] = []
        done = 0
        for part in range(1, parts):
            step = count * part // parts - done
            bound = self._end(tx, KeyRange(cuts[-1] if cuts else key_range.low, key_range.high), offset=step - 1)
            if bound is None:  # rows went away since they were counted
                break
            cuts.append(bound)
            done += step
        return [KeyRange(low, high) for low, high in zip([key_range.low, *cuts], [*cuts, key_range.high], strict=True)]

    def next_bound(self, tx: Transaction, key_range: KeyRange, *, rows: int) -> Bound | None:
        """Return the key of the range's row number `rows`, or of its last row."""
        assert rows >= 1
        self.prepare(tx)
        return self._end(tx, key_range, offset=rows - 1) or self._end(tx, key_range, reverse=True)

    def compare(self, tx: Transaction, left: Bound, right: Bound) -> int:
        """Let the server compare the values one by one; the first difference decides."""
        self.prepare(tx)
        ones, twos = ([column.sortable(text) for column, text in self._texts(bound)] for bound in (left, right))
        pairs = zip(ones, twos, strict=True)
        signs = [f"CASE WHEN {one} < {two} THEN -1 WHEN {one} > {two} THEN 1 ELSE 0 END" for one, two in pairs]
        row = tx.run_verbatim(f"SELECT {', '.join(signs)}").rows[0]
        return next((int(sign) for sign in row if sign), 0)

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _beyond(self, bound: Bound, sign: str, qualifier: str) -> str:
        """Compare the key with a bound, written out: the server finds no place in an index by a comparison of rows.

        The first column alone stands before the rest, so that the index can find the place.
        """
        names, strict = self.names(qualifier), sign[0]
        parts = [(name, column, text) for name, (column, text) in zip(names, self._texts(bound), strict=True)]
        if len(parts) == 1:
            return _compared(parts[0], sign)
        equals = [_compared(part, "=") for part in parts]
        last = len(parts) - 1
        alternatives = [" AND ".join([*equals[:at], _compared(parts[at], sign if at == last else strict)]) for at in range(len(parts))]
        return f"{_compared(parts[0], f'{strict}=')} AND ({' OR '.join(f'({one})' for one in alternatives)})"

    def _end(self, tx: Transaction, key_range: KeyRange, *, offset: int = 0, reverse: bool = False) -> Bound | None:
        """Return the key at one end of the range, or `offset` rows behind its start."""
        condition, _ = self.where(key_range)
        sql = (
            f"SELECT {self.select_list()} FROM {self.name} WHERE {condition}"
            f" ORDER BY {self.order_by(reverse=reverse)} LIMIT 1 OFFSET {offset}"
        )
        rows = tx.run_verbatim(sql).rows
        return self.bound_of(rows[0]) if rows else None


def _compared(part: tuple[str, KeyColumn, str], sign: str) -> str:
    name, column, text = part
    return column.comparison(name, sign, text)


def _is_ordered(type_name: str) -> bool:
    kinds = (_WHOLE, _NUMBERED, _CHARACTERS, _BYTES, _TIMES, _ADDRESSES, ("decimal", "double"))
    return any(type_name in kind for kind in kinds)


def _checked_hex(text: str) -> str:
    bytes.fromhex(text)
    return text
