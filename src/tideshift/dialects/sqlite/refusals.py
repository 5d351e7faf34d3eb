"""Which rows a change could refuse, and whether trying rows one range at a time on the new shape would find them.

A row's own values are tried beforehand: types of a STRICT table, NOT NULL, CHECK, an expression that may fail. What a row
is refused for because of others (a value that two share, a row that it refers to and that is not there) comes out only
when all are there, so trying rows beforehand would be a pass over the table for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from tideshift.ddl.change import (
    AddColumn,
    AddConstraint,
    ConstraintKind,
    SetColumnType,
    SetNotNull,
    SetOption,
    TableOption,
)
from tideshift.ddl.tokens import same_name
from tideshift.dialects.sqlite.create_table import ClauseKind, ColumnText, TableText, identifiers, parse_table
from tideshift.dialects.sqlite.defaults import NOT_CONSTANT
from tideshift.dialects.sqlite.driver import SqliteDriver
from tideshift.dialects.sqlite.foreseen import is_harmless
from tideshift.dialects.sqlite.layout import Layout
from tideshift.dialects.sqlite.reshape import Reshape, Tried
from tideshift.dialects.sqlite.scratch import TextRefused, scratch
from tideshift.dialects.sqlite.unique_keys import UniqueKeys
from tideshift.dialects.sqlite.using import without_double_quotes

__all__ = ["NO_ROW", "Refusals", "row_refusals"]

_RULES = (ClauseKind.NOT_NULL, ClauseKind.CHECK)
_BESIDE_OTHERS = (ClauseKind.UNIQUE, ClauseKind.PRIMARY_KEY, ClauseKind.REFERENCES)
_ROWID_NAMES = ("rowid", "_rowid_", "oid")


@dataclass(frozen=True)
class Refusals:
    """Whether a row may be refused for its own values, and whether one may be because of others."""

    alone: bool
    beside_others: bool

    @property
    def any(self) -> bool:
        """Whether a row can exist that the change refuses."""
        return self.alone or self.beside_others


NO_ROW = Refusals(alone=False, beside_others=False)


def row_refusals(layout: Layout, asked: Reshape, new: Tried, driver: SqliteDriver, *, copied: bool, references: bool) -> Refusals:
    """Judge every action; `copied` when each row is inserted anew, `references` when rows that refer to one another are touched."""
    judge = _Judge(layout, asked, new, driver, copied=copied)
    return Refusals(alone=any(judge.alone()), beside_others=references or any(judge.beside_others()))


class _Judge:
    """One change with its two texts."""

    def __init__(self, layout: Layout, asked: Reshape, new: Tried, driver: SqliteDriver, *, copied: bool) -> None:
        self.layout = layout
        self.actions = asked.actions
        self.driver = driver
        self.copied = copied
        self.old_table, self.new_table = parse_table(layout.old.text), new.table
        self.new = new
        self.added = [column for column in self.new_table.columns if _find(self.old_table, column.name) is None or self._comes_anew(column.name)]

    def _comes_anew(self, name: str) -> bool:
        return any(isinstance(action, AddColumn) and same_name(action.column, name) for action in self.actions)

    def alone(self) -> Iterator[bool]:
        """Yield what each action and each column says about single rows."""
        yield from (self._added_alone(column) for column in self.added)
        for action in self.actions:
            match action:
                case AddConstraint(constraint=ConstraintKind.CHECK | ConstraintKind.PRIMARY_KEY):
                    yield True
                case SetNotNull():
                    yield self._stays(action.column) and self._may_be_null(action.column)
                case SetOption():
                    yield self._option(action.option)
                case SetColumnType():
                    yield self._stays(action.column) and self.new_table.strict
                    yield action.using is not None and self._may_fail(action.column, action.using)
        yield self._looks_at_converted()

    def beside_others(self) -> Iterator[bool]:
        """Yield the same about rows beside others."""
        yield from (self._added_beside(column) for column in self.added)
        yield any(isinstance(action, AddConstraint) and action.constraint is not ConstraintKind.CHECK for action in self.actions)
        yield self._is_unique_over_converted()

    # ── a new column ──────────────────────────────────────────────────────────────────────────────────────────────

    def _added_alone(self, column: ColumnText) -> bool:
        """Whether what rows get in a new column can be refused; what is the same for all of them is tried here, once."""
        kinds = {clause.kind for clause in column.clauses}
        ruled = self.new_table.strict or not kinds.isdisjoint(_RULES)
        if ClauseKind.GENERATED in kinds:
            computed = self.copied or column.name not in self.layout.new.virtual  # an INSERT computes virtual ones too
            return ruled or (computed and not self._is_harmless(column))
        definition = self.new_table.text[column.start : column.end]
        words = {word.lower() for word in identifiers(definition)}
        return ruled and (not words.isdisjoint({*NOT_CONSTANT, *_ROWID_NAMES}) or not self._takes(definition))

    def _is_harmless(self, generated: ColumnText) -> bool:
        """Whether what a column is computed by never fails."""
        spans = [clause.expression for clause in generated.clauses if clause.kind is ClauseKind.GENERATED and clause.expression is not None]
        return all(is_harmless(self.new_table.text[start:end]) for start, end in spans)

    def _takes(self, definition: str) -> bool:
        """Whether a table of this column alone takes its default; where a rule names another column, there is no such table."""
        with scratch(self.driver) as trial:
            try:
                trial.run(f"CREATE TABLE probe ({without_double_quotes(definition)}\n){' STRICT' if self.new_table.strict else ''}")
                trial.run("INSERT INTO probe DEFAULT VALUES")
            except TextRefused:
                return False
        return True

    def _added_beside(self, column: ColumnText) -> bool:
        if all(clause.kind not in _BESIDE_OTHERS for clause in column.clauses):
            return False
        value = next((one.value for one in self.layout.mapped if same_name(one.name, column.name)), None)
        return value != "NULL"

    # ── a column that stays ───────────────────────────────────────────────────────────────────────────────────────

    def _stays(self, name: str) -> bool:
        """Whether a column is there before and after, and not as another one."""
        return all(_find(table, name) is not None for table in (self.old_table, self.new_table)) and not self._comes_anew(name)

    def _may_be_null(self, name: str) -> bool:
        """Whether a column that stays can hold NULL as the table is."""
        number = self.layout.old.rowid_column
        clauses = self.old_table.column(name).clauses
        return not (number is not None and same_name(name, number)) and all(clause.kind is not ClauseKind.NOT_NULL for clause in clauses)

    def _may_fail(self, name: str, using: str) -> bool:
        """Whether a conversion can fail, or give what the column does not take."""
        column = _find(self.new_table, name)
        if column is None:
            return False
        ruled = self.new_table.strict or any(clause.kind in _RULES for clause in column.clauses)
        return ruled or not is_harmless(using)

    def _option(self, option: TableOption) -> bool:
        """Whether another option demands more of the rows: a key without NULL, a number as the rowid, values of the type."""
        match option:
            case TableOption.STRICT:
                return not self.old_table.strict
            case TableOption.WITHOUT_ROWID:
                key = [column[0] for column in self.new.shape.columns if column[4]]
                return not self.old_table.without_rowid and any(not self._stays(name) or self._may_be_null(name) for name in key)
            case TableOption.ROWID:
                return self.layout.new.rowid_column is not None and self.layout.old.rowid_column is None
        return False

    def _looks_at_converted(self) -> bool:
        """Whether a CHECK or a generated column reads what is converted."""
        clauses = [clause for clause in self.new_table.clauses() if clause.kind in (ClauseKind.GENERATED, ClauseKind.CHECK)]
        spans = [clause.expression for clause in clauses if clause.expression is not None]
        words = {word.lower() for start, end in spans for word in identifiers(self.new_table.text[start:end])}
        return not words.isdisjoint(self._converted())

    def _is_unique_over_converted(self) -> bool:
        """Whether two values that differ could become the same one."""
        texts = {index.name: index.text for index in self.layout.new_indexes}
        keys = UniqueKeys(self.new_table, self.layout.table, self.new.shape, (), self.layout.new.rowid_column, texts)
        converted = self._converted()
        return any(index.unique and not keys.names_behind(index).isdisjoint(converted) for index in self.new.shape.indexes)

    def _converted(self) -> set[str]:
        return {name.lower() for name in self.layout.converted}


def _find(table: TableText, name: str) -> ColumnText | None:
    return next((column for column in table.columns if same_name(column.name, name)), None)
