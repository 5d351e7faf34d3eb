"""Where in a text of the user's the server has found something wrong."""

from __future__ import annotations

from tideshift.errors import BadStatement, TideshiftError

__all__ = ["point_at"]

_WRONG_BY_ITSELF = frozenset({"42601", "42703", "42883", "42704", "42P01", "42P02", "42P18", "3F000"})
"""Syntax, and names of columns, functions, types, tables and schemas that are not there."""


def point_at(error: TideshiftError, statement: str, fragment: str) -> None:
    """Raise `BadStatement` with the fragment and the offset in it when the server points into it; do nothing otherwise."""
    diagnosis = getattr(error.__cause__, "diag", None)
    position = getattr(diagnosis, "statement_position", None)
    if diagnosis is None or position is None or diagnosis.sqlstate not in _WRONG_BY_ITSELF:
        return
    offset = int(position) - 1 - statement.find(fragment)
    if fragment in statement and 0 <= offset < len(fragment):
        raise BadStatement(str(diagnosis.message_primary), fragment=fragment, offset=offset) from error
