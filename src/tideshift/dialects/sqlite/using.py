"""What the library would take without a word in a USING expression, and what must not stand there all the same.

A double-quoted word that names nothing is a string to SQLite, so that a misspelt column would give every row the same
text. And a function such as `date('now')` is refused in an index only once it is computed for a row.
"""

from __future__ import annotations

from collections.abc import Sequence

from tideshift.ddl.tokens import TokenKind, replace_spans, same_name, significant, unquote
from tideshift.dialects.sqlite.driver import SqliteDriver, quote
from tideshift.dialects.sqlite.scratch import Shape, TextRefused, scratch

__all__ = ["depends_on_time", "without_double_quotes"]

_PROBES = (None, 0, 1, 1.5, "", "x", "2020-01-01", b"x")
"""Values that every column has in turn, so that most branches of an expression are taken."""


def without_double_quotes(expression: str, names: Sequence[str] | None = None) -> str:
    """Return a text with other quotes about its names, or about those given, in which the library sees names only and no strings."""
    return replace_spans(
        expression,
        [
            (token.start, token.end, "`" + unquote(token.text).replace("`", "``") + "`")
            for token in significant(expression)
            if token.kind is TokenKind.QUOTED and token.text.startswith('"')
            and (names is None or any(same_name(unquote(token.text), name) for name in names))
        ],
    )


def depends_on_time(driver: SqliteDriver, table: str, shape: Shape, expression: str) -> list[str]:
    """Return the reason against an expression that gives another value each time it is computed (none: it does not)."""
    columns = ", ".join(quote(column[0]) for column in shape.columns)
    with scratch(driver) as trial:
        trial.run(f"CREATE TABLE {quote(table)} ({columns})")
        for value in _PROBES:
            trial.run(f"DELETE FROM {quote(table)}")
            trial.run(f"INSERT INTO {quote(table)} VALUES ({', '.join(['?'] * len(shape.columns))})", (value,) * len(shape.columns))
            try:
                trial.run(f"CREATE INDEX probe ON {quote(table)} (({expression}))")
                trial.run("DROP INDEX probe")
            except TextRefused as error:
                if "non-deterministic" in str(error):
                    return [f"USING must be an expression over the row's own columns that always gives the same value: {error}"]
    return []
