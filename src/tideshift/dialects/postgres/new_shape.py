"""From a change's actions to the new shape and to what each of its columns holds: every action is tried in its turn."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tideshift.ddl.change import (
    Action,
    AddColumn,
    AddConstraint,
    ConstraintKind,
    DatabaseForm,
    DropColumn,
    DropConstraint,
    DropNotNull,
    MoveColumn,
    Place,
    Position,
    RenameColumn,
    RenameTable,
    SetColumnType,
    SetDefault,
    SetNotNull,
    SetOption,
)
from tideshift.dialects.postgres.definition import read_definition
from tideshift.dialects.postgres.driver import quote
from tideshift.dialects.postgres.rehearsal import Refused
from tideshift.dialects.postgres.shape import Shape, ShapeColumn
from tideshift.dialects.postgres.source import Constraint, SourceTable
from tideshift.dialects.postgres.trial import Trial

__all__ = ["NewShape", "keeps_order", "never_refuses", "widened"]

_WHOLE_NUMBERS = ("smallint", "integer", "bigint")
_ENDS = {name: (-(1 << bits), (1 << bits) - 1) for name, bits in (("smallint", 15), ("integer", 31), ("bigint", 63))}
_VARYING = re.compile(r"character varying(?:\((\d+)\))?$")


@dataclass
class NewShape:
    """The columns of the new shape as the actions make them, each by its number in the trial's table."""

    source: SourceTable
    before: Shape
    trial: Trial
    reasons: list[str]
    find: Callable[[DropConstraint], Constraint | None]
    origin: dict[int, str] = field(default_factory=dict)
    """The source's column that goes on in this one."""
    given: dict[int, str | None] = field(default_factory=dict)
    """A value that is not the source's own column; None: left to the column's default."""
    order: list[int] = field(default_factory=list)
    dropped_constraints: list[str] = field(default_factory=list)
    computed_anew: set[int] = field(default_factory=set)
    """Generated columns whose values are others afterwards."""
    persistence: str | None = None
    tablespace: str | None = None
    may_refuse: bool = False
    refuses_single_rows: bool = False
    """Whether what may be refused is to be seen in one row alone."""
    uses_path: bool = False

    def __post_init__(self) -> None:
        shape = self.trial.shape()
        self.origin = {new.number: old.name for new, old in zip(shape.columns, self.before.columns, strict=True)}
        self.order = [one.number for one in shape.columns]

    def take(self, action: Action) -> None:
        """Carry one action out on the trial's table and keep what it does to the rows."""
        match action:
            case AddColumn():
                self._add_column(action)
            case DropColumn():
                number = self._number(action.column)
                if self._run(f"DROP COLUMN {quote(action.column)}"):
                    self.order.remove(number)
                    self.origin.pop(number, None)
            case SetColumnType():
                self._type(action)
            case SetDefault(default=default):
                self._run(f"ALTER COLUMN {quote(action.column)} {'DROP DEFAULT' if default is None else f'SET DEFAULT {default}'}", default)
            case SetNotNull():
                self.may_refuse = self.refuses_single_rows = True
                self._run(f"ALTER COLUMN {quote(action.column)} SET NOT NULL")
            case DropNotNull():
                self._run(f"ALTER COLUMN {quote(action.column)} DROP NOT NULL")
            case RenameColumn():
                self._run(f"RENAME COLUMN {quote(action.column)} TO {quote(action.new_name)}")
            case MoveColumn():
                self._place(self._number(action.column), action.position)
            case _:
                self._take_other(action)

    def _take_other(self, action: Action) -> None:
        match action:
            case AddConstraint(constraint=ConstraintKind.FOREIGN_KEY):
                self.reasons.append("a foreign key is added by a statement of its own, which copies nothing: ALTER TABLE … ADD FOREIGN KEY …")
            case AddConstraint():
                self.may_refuse = True
                self.refuses_single_rows |= action.constraint is ConstraintKind.CHECK
                self._run(f"ADD {action.text}", action.text)
            case DropConstraint():
                self._drop_constraint(action)
            case RenameTable():
                self.reasons.append("a table is renamed by a statement of its own, which is instant: ALTER TABLE … RENAME TO …")
            case DatabaseForm(form="SET LOGGED" | "SET UNLOGGED"):
                self.persistence = "u" if action.form == "SET UNLOGGED" else "p"
            case DatabaseForm(form="SET TABLESPACE"):
                self.tablespace = action.text.split(None, 2)[2].strip()
            case DatabaseForm(form="SET EXPRESSION", column=str(column)):
                self.may_refuse = True
                if self._run(action.text, action.text):
                    self.computed_anew.add(self._number(column))
            case DatabaseForm():
                self.reasons.append(f"{action.form} is done by a statement of its own: it needs no copy of the table")
            case SetOption():
                self.reasons.append(f"{action.option} is an option of another database's tables")

    def _run(self, clause: str, fragment: str | None = None) -> bool:
        try:
            self.trial.run(clause, fragment=fragment)
        except Refused as error:
            self.reasons.append(f"the server refuses {clause}: {error}")
            return False
        return True

    def _number(self, column: str) -> int:
        return next((one.number for one in self.trial.shape().columns if one.name == column), 0)

    def _add_column(self, action: AddColumn) -> None:
        cut = read_definition(action.column, action.definition)
        if any(one.name == action.column for one in self.trial.shape().columns):
            self.reasons.append(f"{self.source.name} has a column {action.column!r} already")
            return
        if any("REFERENCES" in text.upper().split() for text in cut.constraints):
            self.reasons.append(f"{action.column} comes without REFERENCES: add the foreign key afterwards, by a statement of its own")
            return
        known = {one.number for one in self.trial.shape().columns}
        try:
            rewrites = self.trial.run(f"ADD COLUMN {action.definition}", fragment=action.definition)
        except Refused as error:
            self.reasons.append(f"the server refuses ADD COLUMN {action.definition}: {error}")
            return
        (column,) = (one for one in self.trial.shape().columns if one.number not in known)
        self.order.append(column.number)
        if cut.constraints or (column.not_null and column.default is None and not column.identity):
            self.may_refuse = self.refuses_single_rows = True
        if (column.default or "").startswith("nextval(") and "pg_temp" in (column.default or ""):
            self.reasons.append(f"{action.column}: write GENERATED BY DEFAULT AS IDENTITY instead of a serial type")
        if rewrites or column.default is None or column.identity or column.generated:
            self.given[column.number] = None
        else:  # Read once, as the server does: the same moment in every row.
            self.given[column.number] = self.trial.value_of(column.name)
        if action.position is not None:
            self._place(column.number, action.position)

    def _type(self, action: SetColumnType) -> None:
        number = self._number(action.column)
        before = next((one.type_text for one in self.trial.shape().columns if one.number == number), "")
        using = "" if action.using is None else f" USING {action.using}"
        if not self._run(f"ALTER COLUMN {quote(action.column)} TYPE {action.type_text}{using}", action.using or action.type_text):
            return
        after = next(one for one in self.trial.shape().columns if one.number == number)
        if action.using is not None:
            self.given[number] = f"({action.using})"
            self.uses_path = True
        if action.using is not None or not never_refuses(before, after.type_text):
            self.may_refuse = self.refuses_single_rows = True
        times = {"timestamp without time zone", "timestamp with time zone"}
        if action.using is None and before != after.type_text and {_bare(before), _bare(after.type_text)} == times:
            self.reasons.append(f"what {action.column} means depends on a time zone: say which one, with USING {action.column} AT TIME ZONE '…'")

    def _drop_constraint(self, action: DropConstraint) -> None:
        found = self.find(action)
        if found is None:
            return
        self.dropped_constraints.append(found.name)
        if found.kind != "f":
            self._run(f"DROP CONSTRAINT {quote(found.name)}")

    def _place(self, number: int, position: Position) -> None:
        beside = None if position.column is None else self._number(position.column)
        if beside == 0:
            self.reasons.append(f"{self.source.name} has no column {position.column} to stand beside")
            return
        self.order.remove(number)
        if position.place is Place.FIRST or beside is None:
            self.order.insert(0, number)
        else:
            self.order.insert(self.order.index(beside) + (position.place is Place.AFTER), number)

    def columns(self) -> list[ShapeColumn]:
        """Return the columns in their new order."""
        old = {one.name: one for one in self.before.columns}
        by_number = {one.number: one for one in self.trial.shape().columns}
        for number, name in self.origin.items():  # a temporary copy has everything but these
            column = by_number[number]
            sequence = widened(old[name], column.type_text) if column.identity else None
            by_number[number] = replace(column, statistics=old[name].statistics, options=old[name].options, sequence=sequence)
        return [by_number[number] for number in self.order if number in by_number]

    def value(self, column: ShapeColumn) -> str | None:
        """Return a column's value as SQL over the source's row; None where its default or its expression gives it."""
        if column.generated:
            return None
        if column.number in self.given:
            return self.given[column.number]
        return quote(self.origin[column.number])


def _bare(type_text: str) -> str:
    """Return a type without its precision: timestamp(3) with time zone."""
    return re.sub(r"\(\d+\)", "", type_text)


def widened(old: ShapeColumn, type_text: str) -> str | None:
    """Return the options of an identity's sequence for another type: an end that was the old type's becomes the new type's."""
    if old.sequence is None or old.type_text not in _ENDS or type_text not in _ENDS:
        return old.sequence
    text = old.sequence
    for word, end in zip(("MINVALUE", "MAXVALUE"), range(2), strict=True):
        text = text.replace(f"{word} {_ENDS[old.type_text][end]} ", f"{word} {_ENDS[type_text][end]} ")
    return text


def never_refuses(old: str, new: str) -> bool:
    """Whether every value of a type has one in another type, by the cast of an assignment."""
    if keeps_order(old, new) or new == "text":
        return True
    one, other = _VARYING.match(old), _VARYING.match(new)
    if one and other and other[1] is not None:
        return one[1] is not None and int(one[1]) <= int(other[1])
    return bool(other and one) or (old, new) in {("real", "double precision"), ("date", "timestamp without time zone")} or (old in _WHOLE_NUMBERS and new == "numeric")


def keeps_order(old: str, new: str) -> bool:
    """Whether a key may change from one type to another and stay the same key: the server compares values of both as one order."""
    if old == new:
        return True
    if old in _WHOLE_NUMBERS and new in _WHOLE_NUMBERS:
        return _WHOLE_NUMBERS.index(old) <= _WHOLE_NUMBERS.index(new)
    return bool(_VARYING.match(old)) and new == "text"
