"""Random rows: NULLs, mixed types, huge numbers, blobs, text with quotes, NUL and broken encodings."""

from __future__ import annotations

from random import Random

from tests.proof.schema import Insertion, Table, Value

__all__ = ["rows_for"]

TEXTS = ("", "abc", "ABC", "abc ", "it's", '"', "12", " 12 ", "1e3", "0x10", "1.0", "é", "a\0b", '{"a": 1}', "[1]", "9007199254740993",
         "9223372036854775808", "-0", "NULL", "zz", "refused", "no", "%s", ":n", "inf", "日本語")  # fmt: skip
NUMBERS = (0, 1, 2, 3, 5, 7, 12, -1, -5, 2**31, 2**53 + 1, 2**63 - 1, -(2**63), 0.0, -0.0, 1.0, 1.5, 12.0, 1e300, -2.5, float("inf"), 1e18)
BLOBS = (b"", b"\x00\xff", b"12", b"abc")
BROKEN = (b"\xff\xfe", b"a\xc3", b"\xed\xa0\x80")
ROWIDS = (-(2**63), -5, -1, 0, 3, 2**40, 2**63 - 1)


def rows_for(random: Random, table: Table, encoding: str) -> list[Insertion]:
    """Make up to 30 rows to try."""
    columns = tuple(column.name for column in table.written())
    made = []
    alias = table.rowid_alias()
    counted = any("AUTOINCREMENT" in column.rest for column in table.columns)
    for _ in range(random.choice((0, 1, 3, 8, 20, 30))):
        names, values = columns, tuple(_value(random, encoding) for _ in columns)
        if table.rowid_column is not None:
            at = columns.index(table.rowid_column)
            values = (*values[:at], _key(random, highest=not counted), *values[at + 1 :])
        elif alias is not None and random.random() < 0.2:
            names, values = (alias, *columns), (_key(random, highest=True), *values)
        made.append(Insertion(table.name, names, values))
    return made


def _key(random: Random, *, highest: bool) -> Value:
    """Make a rowid; after the highest one a counter can give no more, and the library ends the transaction."""
    if random.random() < 0.3:
        return ("null", None)
    return ("integer", random.choice(ROWIDS[: None if highest else -1]) if random.random() < 0.2 else random.randint(1, 60))


def _value(random: Random, encoding: str) -> Value:
    kind = random.random()
    if kind < 0.15:
        return ("null", None)
    if kind < 0.3:
        return ("integer", random.randint(0, 20))
    if kind < 0.55:
        number = random.choice(NUMBERS)
        return ("real" if isinstance(number, float) else "integer", number)
    if kind < 0.6:
        return ("blob", random.choice(BLOBS))
    if kind < 0.63 and encoding == "UTF-8":
        return ("text", random.choice(BROKEN))
    if kind < 0.75:
        return ("text", _encoded(f"v{random.randint(0, 99)}", encoding))
    return ("text", _encoded(random.choice(TEXTS), encoding))


def _encoded(text: str, encoding: str) -> bytes:
    return text.encode("utf-8" if encoding == "UTF-8" else "utf-16-le")
