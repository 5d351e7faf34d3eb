"""Every reason against a new shape of a table, over all actions: what the library refuses, what would break, what must not be."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tideshift.ddl.change import Action, AddColumn, AddConstraint, DropColumn
from tideshift.ddl.tokens import same_name
from tideshift.dialects.sqlite.catalog import SourceTable, shape_of
from tideshift.dialects.sqlite.create_table import UnreadableText
from tideshift.dialects.sqlite.driver import SqliteDriver
from tideshift.dialects.sqlite.foreign_keys import foreign_key_reasons
from tideshift.dialects.sqlite.rehearsal import what_breaks
from tideshift.dialects.sqlite.reshape import Reshape, Tried, made_shapes
from tideshift.dialects.sqlite.scratch import Shape, TextRefused, scratch
from tideshift.dialects.sqlite.shape_rules import shape_reasons, using_reasons
from tideshift.dialects.sqlite.table_edits import EditRefused, edited
from tideshift.dialects.sqlite.using import without_double_quotes
from tideshift.errors import PlanRefused
from tideshift.store.database import Transaction

__all__ = ["edited_by_all", "objections"]


def edited_by_all(source: SourceTable, actions: Sequence[Action]) -> tuple[Reshape, list[str]]:
    """Return the text after all actions, and the reason against each that cannot be carried out; the others are still looked at.

    What is said of a column that could not be added is left out: its only fault is that it is not there.
    """
    text, taken, reasons = source.text, [], []
    missing: list[str] = []
    for action in actions:
        column: str | None = getattr(action, "column", None)
        if column is not None and any(same_name(column, name) for name in missing):
            continue
        try:
            text = edited(text, action)
        except (EditRefused, UnreadableText) as error:
            reasons.append(str(error))
            missing += [action.column] if isinstance(action, AddColumn) else []
        else:
            taken.append(action)
    return Reshape(source=source, new_text=text, actions=tuple(taken)), list(dict.fromkeys(reasons))


def objections(tx: Transaction, asked: Reshape, driver: SqliteDriver) -> list[str]:
    """Return every reason against the new shape; where the library does not take the table itself, there is only that one."""
    source = asked.source
    try:
        old, new = made_shapes(asked, driver)
    except PlanRefused as error:
        return list(error.fields["reasons"])
    if old.refused:
        return list(old.refused.values())
    reasons = list(new.refused.values()) + _misquoted(asked, driver)
    dropped = [action.column for action in asked.actions if isinstance(action, DropColumn)]
    broken = what_breaks(tx, driver, source.name, asked.new_text, dropped=dropped)
    reasons += [f"it would break {what}" for what in broken if not any(what.startswith(f"index {name}:") for name in new.refused)]
    real = shape_of(tx, source.name)
    shapes = (_without(old.shape, new), new.shape)
    reasons += shape_reasons(source, _without(real, new), shapes, (old.table, new.table), asked.actions)
    reasons += using_reasons(source, old.table, driver, real, asked.actions)
    return reasons + foreign_key_reasons(tx, source.name, new.shape, asked.new_text, driver)


def _without(shape: Shape, new: Tried) -> Shape:
    """Return a shape without the indexes that the new one has lost, of which there is a reason already."""
    return replace(shape, indexes=tuple(index for index in shape.indexes if index.name not in new.refused))


def _misquoted(asked: Reshape, driver: SqliteDriver) -> list[str]:
    """Return the reason against a name in double quotes that names nothing: to the library it would be a string, in every row."""
    requoted, _ = edited_by_all(asked.source, [_in_other_quotes(action) for action in asked.actions])
    with scratch(driver) as trial:
        try:
            trial.run(requoted.new_text)
        except TextRefused as error:
            return [f"a name in double quotes names nothing, and a string stands in single quotes: {error}"]
    return []


def _in_other_quotes(action: Action) -> Action:
    match action:
        case AddColumn():
            return replace(action, definition=without_double_quotes(action.definition))
        case AddConstraint():
            return replace(action, text=without_double_quotes(action.text))
    return action
