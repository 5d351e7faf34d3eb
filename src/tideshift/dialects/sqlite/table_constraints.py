"""The constraints that stand in a CREATE TABLE, those of a column and those of the table, as something that can be named and cut out."""

from __future__ import annotations

from dataclasses import dataclass

from tideshift.ddl.tokens import Token, same_name, significant
from tideshift.dialects.sqlite.create_table import Clause, ClauseKind, ColumnText, TableText

__all__ = ["TableConstraint", "constraints_of", "matching"]

_CONSTRAINTS = (ClauseKind.CHECK, ClauseKind.UNIQUE, ClauseKind.PRIMARY_KEY, ClauseKind.FOREIGN_KEY, ClauseKind.REFERENCES, ClauseKind.NOT_NULL)


@dataclass(frozen=True)
class TableConstraint:
    """One constraint: its kind (REFERENCES counts as FOREIGN KEY), its name, what is in its parentheses, its text, and what to cut out."""

    kind: ClauseKind
    name: str | None
    inner: tuple[str, ...]
    text: str
    span: tuple[int, int]


def constraints_of(table: TableText) -> list[TableConstraint]:
    """Return every constraint, those of columns first."""
    found: list[TableConstraint] = []
    for column in table.columns:
        found += _of_column(table, column)
    return found + _of_table(table)


def matching(table: TableText, *, name: str | None, kind: ClauseKind | None, inner: str | None) -> list[TableConstraint]:
    """Return the constraints of a name; or those of a kind with the same tokens in their parentheses (any, for `inner` None)."""
    if name is not None:
        return [one for one in constraints_of(table) if one.name is not None and same_name(one.name, name)]
    wanted = None if inner is None else _normal(significant(inner))
    return [one for one in constraints_of(table) if one.kind is kind and (wanted is None or one.inner == wanted)]


def _of_column(table: TableText, column: ColumnText) -> list[TableConstraint]:
    found = []
    for number, clause in enumerate(column.clauses):
        if clause.kind not in _CONSTRAINTS:
            continue
        named = number > 0 and column.clauses[number - 1].kind is ClauseKind.NAME
        first = number - 1 if named else number
        last = number
        while last + 1 < len(column.clauses) and column.clauses[last + 1].kind in (ClauseKind.DEFERRABLE, ClauseKind.AUTOINCREMENT):
            last += 1
        name = significant(table.text[column.clauses[first].start : column.clauses[first].end])[1].name if named else None
        before = column.clauses[first - 1].end if first else column.type_end
        kind = ClauseKind.FOREIGN_KEY if clause.kind is ClauseKind.REFERENCES else clause.kind
        inner = _expression(table, clause) if clause.kind is ClauseKind.CHECK else (_folded(column.name),)
        text = table.text[column.clauses[first].start : column.clauses[last].end]
        found.append(TableConstraint(kind, name, inner, text, (before, column.clauses[last].end)))
    return found


def _of_table(table: TableText) -> list[TableConstraint]:
    found = []
    before = table.columns[-1].end
    for clause in table.constraints:
        if clause.kind is ClauseKind.AUTOINCREMENT:  # a part of the primary key before it
            continue
        text = table.text[clause.start : clause.end]
        tokens = significant(text)
        named = tokens[0].keyword == "CONSTRAINT"
        if clause.kind is not ClauseKind.NAME:
            inner = _expression(table, clause) if clause.kind is ClauseKind.CHECK else _normal(_first_group(tokens))
            found.append(TableConstraint(clause.kind, tokens[1].name if named else None, inner, text, (before, clause.end)))
        before = clause.end
    return found


def _expression(table: TableText, clause: Clause) -> tuple[str, ...]:
    assert clause.expression is not None
    return _normal(significant(table.text[slice(*clause.expression)]))


def _first_group(tokens: list[Token]) -> list[Token]:
    """Return the tokens in the first pair of parentheses."""
    start = next(number for number, token in enumerate(tokens) if token.is_operator("("))
    depth = 0
    for number in range(start, len(tokens)):
        depth += tokens[number].is_operator("(") - tokens[number].is_operator(")")
        if depth == 0:
            return tokens[start + 1 : number]
    return tokens[start + 1 :]


def _normal(tokens: list[Token]) -> tuple[str, ...]:
    """Return tokens as they are compared: names by what they spell, letters folded; everything else as it stands."""
    return tuple(_folded(token.name) if token.name is not None else token.text for token in tokens)


def _folded(name: str) -> str:
    return name.lower()
