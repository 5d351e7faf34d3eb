"""The default of a column as an expression: what stands in its text, and the value that existing rows get from it."""

from __future__ import annotations

from tideshift.ddl.tokens import same_name, significant
from tideshift.dialects.sqlite.create_table import ClauseKind, TableText, identifiers
from tideshift.dialects.sqlite.scratch import Scratch

__all__ = ["NOT_CONSTANT", "default_expression", "fill_value"]

NOT_CONSTANT = frozenset("random randomblob last_insert_rowid changes total_changes".split())
"""Functions whose value is another one each time."""
_KEYWORDS = ("TRUE", "FALSE", "NULL", "CURRENT_TIME", "CURRENT_DATE", "CURRENT_TIMESTAMP")


def default_expression(table: TableText, column: str) -> str | None:
    """Return a default as an expression with the same value anywhere; a bare word stands for its own text. None without one."""
    clauses = [clause for clause in table.column(column).clauses if clause.kind is ClauseKind.DEFAULT]
    if not clauses:
        return None
    text = table.text[clauses[-1].start : clauses[-1].end]
    tokens = significant(text)[1:]
    word = tokens[0].name if len(tokens) == 1 else None
    if word is not None and word.upper() not in _KEYWORDS:
        return "'" + word.replace("'", "''") + "'"
    return f"({text[tokens[0].start : tokens[-1].end]})"


def fill_value(table: TableText, column: str, trial: Scratch) -> tuple[str, bool]:
    """Return what existing rows get in a new column, as SQL, and whether that is another value for each.

    Anything that is the same for all rows is worked out once, so that a time is that of the change; raises `TextRefused`.
    """
    expression = default_expression(table, column)
    if expression is None:
        return "NULL", False
    if any(same_name(word, function) for word in identifiers(expression) for function in NOT_CONSTANT):
        return expression, True
    ((literal,),) = trial.run(f"SELECT quote({expression})")
    return str(literal), False
