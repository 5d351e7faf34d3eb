"""Actions of an ALTER TABLE carried out on the text of the CREATE TABLE: what is not asked for remains byte for byte.

Each step edits the text, reads the outcome again and sees that exactly the asked-for part differs, so that a text of the
user's cannot smuggle in more than it says.
"""

from __future__ import annotations

from collections.abc import Sequence

from tideshift.ddl.change import (
    Action,
    AddColumn,
    AddConstraint,
    ConstraintKind,
    DropColumn,
    DropConstraint,
    DropNotNull,
    MoveColumn,
    Place,
    Position,
    SetColumnType,
    SetDefault,
    SetNotNull,
    SetOption,
    TableOption,
)
from tideshift.ddl.tokens import TokenKind, replace_spans, same_name, significant
from tideshift.dialects.sqlite.create_table import ClauseKind, ColumnText, Edit, TableText, parse_table
from tideshift.dialects.sqlite.table_constraints import TableConstraint, constraints_of, matching

__all__ = ["EditRefused", "edited"]

_KIND_OF = {
    ConstraintKind.CHECK: ClauseKind.CHECK,
    ConstraintKind.UNIQUE: ClauseKind.UNIQUE,
    ConstraintKind.PRIMARY_KEY: ClauseKind.PRIMARY_KEY,
    ConstraintKind.FOREIGN_KEY: ClauseKind.FOREIGN_KEY,
}


class EditRefused(Exception):
    """An action that cannot be carried out on this table; the argument says why."""


def edited(text: str, action: Action) -> str:
    """Return the table's text after one action, or raise `EditRefused` or `UnreadableText`."""
    table = parse_table(text)
    match action:
        case AddColumn():
            return _add_column(table, action)
        case DropColumn():
            return _drop_column(table, action.column)
        case SetColumnType():
            return _set_type(table, action)
        case SetDefault():
            return _set_default(table, action)
        case SetNotNull():
            return _set_not_null(table, action)
        case DropNotNull():
            return _without(table, table.column(action.column), ClauseKind.NOT_NULL)
        case MoveColumn():
            return _move(table, action)
        case AddConstraint():
            return _add_constraint(table, action)
        case DropConstraint():
            return _drop_constraint(table, action)
        case SetOption():
            return _set_option(table, action.option)
    raise EditRefused(f"{action.kind} is no edit of a table's text")


# ── columns ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _add_column(table: TableText, action: AddColumn) -> str:
    if any(same_name(column.name, action.column) for column in table.columns):
        raise EditRefused(f"there is a column {action.column!r} already")
    at, before, after = _place(table.columns, action.position)
    text = replace_spans(table.text, [(at, at, f"{before}{action.definition}{after}")])
    new = parse_table(text)
    added = [column for column in new.columns if same_name(column.name, action.column)]
    if len(added) != 1 or new.text[added[0].start : added[0].end] != action.definition or _others(new, action.column) != _others(table):
        raise EditRefused(f"{action.definition!r} is more than the definition of a column")
    return text


def _place(columns: Sequence[ColumnText], position: Position | None) -> tuple[int, str, str]:
    """Return where a definition goes, and what stands before and behind it."""
    if position is None:
        return columns[-1].end, ", ", ""
    if position.place is Place.FIRST:
        return columns[0].start, "", ", "
    beside = _find(columns, position.column or "")
    return (beside.start, "", ", ") if position.place is Place.BEFORE else (beside.end, ", ", "")


def _find(columns: Sequence[ColumnText], name: str) -> ColumnText:
    for column in columns:
        if same_name(column.name, name):
            return column
    raise EditRefused(f"there is no column {name!r}")


def _others(table: TableText, left_out: str | None = None) -> tuple[object, ...]:
    """Return every other column with its text, every constraint, and the options."""
    columns = [table.text[one.start : one.end] for one in table.columns if left_out is None or not same_name(one.name, left_out)]
    constraints = [table.text[clause.start : clause.end] for clause in table.constraints]
    return columns, constraints, table.strict, table.without_rowid


def _drop_column(table: TableText, name: str) -> str:
    column = _find(table.columns, name)
    if len(table.columns) == 1:
        raise EditRefused(f"{name!r} is the only column")
    text = replace_spans(table.text, [(*_span_of(table, column), "")])
    if _others(parse_table(text)) != _others(table, name):
        raise EditRefused(f"{name!r} cannot be cut out of the table's text")
    return text


def _span_of(table: TableText, column: ColumnText) -> tuple[int, int]:
    """Return what is cut out with a column, so that every other line and remark stays as it is.

    What stands behind a column, up to the next element, speaks of that column and goes with it. A column that was put
    behind another one on its line goes with the comma before it instead.
    """
    starts = [start for start in (*(one.start for one in table.columns), *(one.start for one in table.constraints)) if start > column.start]
    ends = [one.end for one in table.columns if one.end <= column.start]
    if not starts:
        return ends[-1], column.end
    before = table.text[ends[-1] : column.start] if ends else "\n"
    behind = table.text[column.end : min(starts)]
    if before.replace(" ", "").replace("\t", "") == "," == behind.strip():
        return ends[-1], column.end
    return column.start, min(starts)


def _set_type(table: TableText, action: SetColumnType) -> str:
    _find(table.columns, action.column)
    text = replace_spans(table.text, table.retype(action.column, action.type_text))
    new = parse_table(text)
    found = new.column(action.column)
    clauses = [[(clause.kind, one.text[clause.start : clause.end]) for clause in one.clauses()] for one in (table, new)]
    if (
        new.text[found.type_start : found.type_end] != action.type_text
        or clauses[0] != clauses[1]
        or _others(table, action.column) != _others(new, action.column)
    ):
        raise EditRefused(f"{action.type_text!r} is more than a type")
    return text


def _move(table: TableText, action: MoveColumn) -> str:
    column = _find(table.columns, action.column)
    if action.position.column is not None and same_name(action.position.column, action.column):
        raise EditRefused("a column cannot be moved beside itself")
    if len(table.columns) == 1:
        return table.text
    definition = table.text[column.start : column.end]
    without = parse_table(_drop_column(table, action.column))
    at, before, after = _place(without.columns, action.position)
    return replace_spans(without.text, [(at, at, f"{before}{definition}{after}")])


# ── clauses of a column ───────────────────────────────────────────────────────────────────────────────────────────


def _set_default(table: TableText, action: SetDefault) -> str:
    column = _find(table.columns, action.column)
    if any(clause.kind is ClauseKind.GENERATED for clause in column.clauses):
        raise EditRefused(f"{column.name!r} is generated and has no default")
    if action.default is None:
        return _without(table, column, ClauseKind.DEFAULT)
    wanted = f"DEFAULT {_as_default(action.default)}"
    present = [clause for clause in column.clauses if clause.kind is ClauseKind.DEFAULT]
    at: Edit = (present[-1].start, present[-1].end, wanted) if present else (column.end, column.end, f" {wanted}")
    return _clause_written(table, column, at, wanted, ClauseKind.DEFAULT)


def _as_default(expression: str) -> str:
    """Return an expression as a DEFAULT takes it: a literal as it stands, anything else in parentheses."""
    tokens = significant(expression)
    words = ("NULL", "TRUE", "FALSE", "CURRENT_TIME", "CURRENT_DATE", "CURRENT_TIMESTAMP")
    literals = (TokenKind.STRING, TokenKind.BLOB, TokenKind.NUMBER)
    signed = len(tokens) == 2 and tokens[0].text in ("+", "-") and tokens[1].kind is TokenKind.NUMBER
    literal = len(tokens) == 1 and (tokens[0].kind in literals or tokens[0].keyword in words)
    return expression if signed or literal or _in_parentheses(expression) else f"({expression})"


def _in_parentheses(expression: str) -> bool:
    """Whether one pair of parentheses holds all of it."""
    depth = 0
    tokens = significant(expression)
    for number, token in enumerate(tokens):
        depth += token.is_operator("(") - token.is_operator(")")
        if depth == 0:
            return number == len(tokens) - 1 and tokens[0].is_operator("(")
    return False


def _set_not_null(table: TableText, action: SetNotNull) -> str:
    column = _find(table.columns, action.column)
    wanted = "NOT NULL" + (f" ON CONFLICT {action.conflict}" if action.conflict else "")
    present = [clause for clause in column.clauses if clause.kind is ClauseKind.NOT_NULL]
    if present and action.conflict is None:
        return table.text
    at: Edit = (present[-1].start, present[-1].end, wanted) if present else (column.end, column.end, f" {wanted}")
    return _clause_written(table, column, at, wanted, ClauseKind.NOT_NULL)


def _clause_written(table: TableText, column: ColumnText, edit: Edit, wanted: str, kind: ClauseKind) -> str:
    """Write one clause and see that it reads as just that, and everything else as before."""
    text = replace_spans(table.text, [edit])
    new = parse_table(text)
    found = new.column(column.name)
    written = [text[clause.start : clause.end] for clause in found.clauses if clause.kind is kind]
    rest = [
        [(clause.kind, one.text[clause.start : clause.end]) for clause in one.column(column.name).clauses if clause.kind is not kind]
        for one in (table, new)
    ]
    if not written or written[-1] != wanted or rest[0] != rest[1] or _others(table, column.name) != _others(new, column.name):
        raise EditRefused(f"{wanted!r} is more than it says")
    return text


def _without(table: TableText, column: ColumnText, kind: ClauseKind) -> str:
    """Take every clause of a kind off a column, with the name that stands before it."""
    edits: list[Edit] = []
    for number, clause in enumerate(column.clauses):
        if clause.kind is kind:
            start, end = _span(column, number)
            edits.append((start, end, " " if table.text[end : end + 1].isalnum() else ""))
    return replace_spans(table.text, edits)


def _span(column: ColumnText, number: int) -> tuple[int, int]:
    """Return where a clause stands with its name and the space before it."""
    first = number - 1 if number and column.clauses[number - 1].kind is ClauseKind.NAME else number
    before = column.clauses[first - 1].end if first else column.type_end
    return before, column.clauses[number].end


# ── constraints and options ───────────────────────────────────────────────────────────────────────────────────────


def _add_constraint(table: TableText, action: AddConstraint) -> str:
    if action.constraint is ConstraintKind.PRIMARY_KEY and any(one.kind is ClauseKind.PRIMARY_KEY for one in constraints_of(table)):
        raise EditRefused("there is a primary key already")
    name = _name_in(action.text)
    if name is not None and any(one.name is not None and same_name(one.name, name) for one in constraints_of(table)):
        raise EditRefused(f"there is a constraint {name!r} already")
    last = max([column.end for column in table.columns] + [clause.end for clause in table.constraints])
    text = replace_spans(table.text, [(last, last, f", {action.text}")])
    new = parse_table(text)
    before = [table.text[clause.start : clause.end] for clause in table.constraints]
    after = [(clause.kind, new.text[clause.start : clause.end]) for clause in new.constraints]
    added = [one for one in after[len(before) :] if one[0] is not ClauseKind.AUTOINCREMENT]
    if [text for _, text in after[: len(before)]] != before or added != [(_KIND_OF[action.constraint], action.text)]:
        raise EditRefused(f"{action.text!r} is more than a constraint")
    if _others(new)[0] != _others(table)[0]:
        raise EditRefused(f"{action.text!r} is more than a constraint")
    return text


def _name_in(text: str) -> str | None:
    tokens = significant(text)
    return tokens[1].name if tokens[0].keyword == "CONSTRAINT" else None


def _drop_constraint(table: TableText, action: DropConstraint) -> str:
    kind = _KIND_OF[action.constraint] if action.constraint is not None else None
    found = matching(table, name=action.name, kind=kind, inner=action.inner)
    what = f"constraint {action.name!r}" if action.name is not None else f"{action.constraint} ({action.inner or ''})".replace(" ()", "")
    if not found:
        names = ", ".join(one.name for one in constraints_of(table) if one.name) or "none has a name"
        raise EditRefused(f"there is no {what} (constraints with a name: {names})")
    if len(found) > 1:
        raise EditRefused(f"{what} stands there {len(found)} times")
    return _cut(table, found[0])


def _cut(table: TableText, constraint: TableConstraint) -> str:
    """Cut one constraint out, with the comma and the space before it."""
    text = replace_spans(table.text, [(*constraint.span, "")])
    new = parse_table(text)
    left = [one.text for one in constraints_of(table) if one.span != constraint.span]
    if [one.text for one in constraints_of(new)] != left or [one.name for one in new.columns] != [one.name for one in table.columns]:
        raise EditRefused(f"{constraint.text!r} cannot be cut out of the table's text")
    return text


def _set_option(table: TableText, option: TableOption) -> str:
    strict = {TableOption.STRICT: True, TableOption.NOT_STRICT: False}.get(option, table.strict)
    without_rowid = {TableOption.WITHOUT_ROWID: True, TableOption.ROWID: False}.get(option, table.without_rowid)
    if (strict, without_rowid) == (table.strict, table.without_rowid):
        return table.text
    options = ", ".join(word for word, wanted in (("WITHOUT ROWID", without_rowid), ("STRICT", strict)) if wanted)
    return table.text[: table.list_end + 1] + (f" {options}" if options else "")
