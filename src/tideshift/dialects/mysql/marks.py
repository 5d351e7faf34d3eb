"""Bound values in verbatim text: `?` marks a value, as in the server's own prepared statements, and only outside literals, names and remarks.

The library would format `%s` into the text and stumble over any other `%` in it. The values are written as literals under an
sql_mode that the driver pins, so that a backslash and a double quote mean what they mean here.
"""

from __future__ import annotations

import math
import re
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

from pymysql.converters import escape_string

__all__ = ["literal", "with_values"]

_PIECES = re.compile(
    r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`|--(?=[\s])[^\n]*|\#[^\n]*|/\*.*?\*/|\?""",
    re.DOTALL,
)


def with_values(sql: str, values: tuple[Any, ...]) -> str:
    """Return the text with its marks replaced by the values, in order."""
    left = iter(values)

    def piece(found: re.Match[str]) -> str:
        text = found.group()
        if text != "?":
            return text
        return literal(next(left))

    try:
        filled = _PIECES.sub(piece, sql)
    except StopIteration:
        raise AssertionError(f"fewer values than marks: {sql}") from None
    assert next(left, None) is None, f"more values than marks: {sql}"
    return filled


def literal(value: Any) -> str:
    """Write one value as a literal that is exactly it."""
    match value:
        case None:
            return "NULL"
        case bool():
            return "1" if value else "0"
        case int() | Decimal():
            return str(value)
        case float() if math.isfinite(value):
            return repr(value) if "e" in repr(value) else f"{value!r}e0"
        case str():
            return f"'{escape_string(value)}'"
        case bytes() | bytearray() | memoryview():
            return f"X'{bytes(value).hex()}'"
        case datetime() | date() | timedelta():
            return f"'{value}'"
    raise TypeError(f"no literal for a value of type {type(value).__name__}: {value!r}")
