"""What a change may do to a table's shape, as the library made it: only what was asked for, and nothing that nobody could carry out."""

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
    SetColumnType,
    SetDefault,
    SetNotNull,
    SetOption,
)
from tideshift.ddl.tokens import same_name
from tideshift.dialects.sqlite.catalog import SourceTable
from tideshift.dialects.sqlite.create_table import ClauseKind, TableText
from tideshift.dialects.sqlite.driver import SqliteDriver, quote
from tideshift.dialects.sqlite.scratch import Shape, TextRefused, scratch
from tideshift.dialects.sqlite.using import depends_on_time, without_double_quotes

__all__ = ["shape_reasons", "using_reasons"]

_GENERATED = (2, 3)
Column = tuple[str, str, int, str | None, int, int]


def shape_reasons(
    source: SourceTable, real: Shape, shapes: tuple[Shape, Shape], tables: tuple[TableText, TableText], actions: Sequence[Action]
) -> list[str]:
    """Return why the new shape is not just what was asked for (none: it is)."""
    old, new = shapes
    if real != old:
        return ["the catalogue does not show the table as its own text makes it"]
    reasons = _autoincrement_reasons(tables)
    if _rowid_key(old) != _rowid_key(new) and not _is_about_the_primary_key(actions, tables[1]):
        by = "with its column: drop the primary key first" if any(isinstance(action, DropColumn) for action in actions) else "by a change of type"
        reasons.append(f"INTEGER PRIMARY KEY is the rowid itself; it cannot become or stop being that {by}")
    elif not any(_about_keys(action) for action in actions) and _indexes(old) - _indexes(new):
        reasons.append(f"a unique key of {source.name!r} would go with a column: drop the constraint first")
    before = {column[0].lower(): _comparable(column, actions) for column in old.columns if not _goes(column[0], actions)}
    after = {column[0].lower(): _comparable(column, actions) for column in new.columns if not _comes(column[0], actions)}
    if before != after:
        reasons.append(f"the change would do more to {source.name!r} than was asked for")
    return reasons


def _autoincrement_reasons(tables: tuple[TableText, TableText]) -> list[str]:
    had, has = (any(clause.kind is ClauseKind.AUTOINCREMENT for clause in table.clauses()) for table in tables)
    return ["AUTOINCREMENT cannot be added to a table that is there"] if has and not had else []


def _is_about_the_primary_key(actions: Sequence[Action], new: TableText) -> bool:
    """Whether what is the rowid was asked to change."""
    for action in actions:
        match action:
            case SetOption():
                return True
            case AddConstraint(constraint=kind) | DropConstraint(constraint=kind) if kind in (ConstraintKind.PRIMARY_KEY, None):
                return True
            case AddColumn() if any(clause.kind is ClauseKind.PRIMARY_KEY for clause in new.column(action.column).clauses):
                return True
    return False


def _about_keys(action: Action) -> bool:
    kinds = (ConstraintKind.PRIMARY_KEY, ConstraintKind.UNIQUE, None)
    return isinstance(action, (SetOption, AddConstraint, AddColumn)) or (isinstance(action, DropConstraint) and action.constraint in kinds)


def _rowid_key(shape: Shape) -> str | None:
    key = [column for column in shape.columns if column[4]]
    if len(key) != 1 or key[0][1].upper() != "INTEGER" or any(index.origin == "pk" for index in shape.indexes):
        return None
    return key[0][0]


def _indexes(shape: Shape) -> set[tuple[object, ...]]:
    return {(index.unique, index.origin, index.partial, tuple(term[1:] for term in index.key_terms)) for index in shape.indexes}


def _goes(column: str, actions: Sequence[Action]) -> bool:
    return any(isinstance(action, DropColumn) and same_name(action.column, column) for action in actions)


def _comes(column: str, actions: Sequence[Action]) -> bool:
    return any(isinstance(action, AddColumn) and same_name(action.column, column) for action in actions)


def _comparable(column: Column, actions: Sequence[Action]) -> tuple[object, ...]:
    """Return a column without what the actions are about."""
    name, type_text, not_null, default, position, hidden = column
    own = [action for action in actions if same_name(getattr(action, "column", "") or "", name)]
    if any(isinstance(action, SetColumnType) for action in own):
        type_text = ""
    if any(isinstance(action, SetDefault) for action in own):
        default = None
    keys = any(_about_keys(action) for action in actions)
    if keys or any(isinstance(action, (SetNotNull, DropNotNull)) for action in own) or any(isinstance(action, DropConstraint) for action in actions):
        not_null = 0
    return name, type_text, not_null, default, 0 if keys or _constraint_goes(actions) else position, hidden


def _constraint_goes(actions: Sequence[Action]) -> bool:
    return any(isinstance(action, DropConstraint) for action in actions)


# ── USING ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def using_reasons(source: SourceTable, old: TableText, driver: SqliteDriver, shape: Shape, actions: Sequence[Action]) -> list[str]:
    """Return why a USING expression cannot be used (none: it can)."""
    reasons: list[str] = []
    for action in actions:
        if isinstance(action, SetColumnType) and action.using is not None:
            reasons += _using(source, old, driver, shape, column=action.column, using=action.using)
    return reasons


def _using(source: SourceTable, old: TableText, driver: SqliteDriver, shape: Shape, *, column: str, using: str) -> list[str]:
    if any(same_name(name, column) and hidden in _GENERATED for name, *_, hidden in shape.columns):
        return ["a generated column has no value of its own for USING to convert"]
    with scratch(driver) as trial:
        try:
            trial.run(source.text)
            # The condition of a partial index takes exactly what gives the same value whenever it is computed again.
            trial.run(f"CREATE INDEX probe ON {quote(source.name)} ({quote(old.columns[0].name)}) WHERE ({using})")
            trial.run(f"SELECT ({without_double_quotes(using)}) FROM {quote(source.name)}")
        except TextRefused as error:
            return [f"USING must be an expression over the row's own columns that always gives the same value: {error}"]
    return depends_on_time(driver, source.name, shape, using)
