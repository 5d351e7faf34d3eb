"""What the actions of one statement must be to one another, whatever the database holds."""

from __future__ import annotations

from collections.abc import Sequence

from tideshift.ddl.change import (
    Action,
    AddColumn,
    DatabaseForm,
    DropColumn,
    DropNotNull,
    MoveColumn,
    RenameColumn,
    RenameTable,
    SetColumnType,
    SetDefault,
    SetNotNull,
    SetOption,
)
from tideshift.ddl.tokens import same_name

__all__ = ["ACTIONS_MAX", "contradiction"]

ACTIONS_MAX = 200
"""Each action is tried on the outcome of all before it, which takes a second for so many, and minutes for five times as many."""

_PROPERTY: dict[type[object], str] = {
    SetColumnType: "type",
    SetDefault: "default",
    SetNotNull: "NOT NULL",
    DropNotNull: "NOT NULL",
    MoveColumn: "place",
}


def contradiction(actions: Sequence[Action]) -> tuple[int, str] | None:
    """Return the number of the first action that does not go with the earlier ones, and why; None when all go together.

    A change is one new shape, not a row of steps: what would depend on the order of its actions is refused.
    """
    if len(actions) > ACTIONS_MAX:
        return ACTIONS_MAX, f"one statement may have {ACTIONS_MAX} actions at most, and this has {len(actions)}: make several of it"
    for number, action in enumerate(actions):
        if isinstance(action, (RenameColumn, RenameTable)) and len(actions) > 1:
            return number, "RENAME stands alone in its statement"
        for earlier in actions[:number]:
            why = _why_not_both(earlier, action)
            if why is not None:
                return number, why
    return None


def _why_not_both(earlier: Action, later: Action) -> str | None:
    if isinstance(earlier, SetOption) and isinstance(later, SetOption):
        return "this option is set already" if earlier.option.split()[-1] == later.option.split()[-1] else None
    column, other = getattr(earlier, "column", None), getattr(later, "column", None)
    if column is None or other is None or not same_name(column, other):
        return None
    if isinstance(earlier, DropColumn) and isinstance(later, AddColumn):
        return None  # The new one takes the place of the old one, and none of its values.
    if isinstance(earlier, DropColumn) or isinstance(later, DropColumn):
        return f"{other} is dropped by this statement"
    if isinstance(later, AddColumn):
        return f"{other} is there, or added, before this"
    if isinstance(earlier, AddColumn):
        said_there = isinstance(later, (SetDefault, SetColumnType))
        return f"{other} is added by this statement: say it in that action" if said_there else None
    same = _property(earlier) == _property(later)
    return f"the {_property(later)} of {other} is set by this statement already" if same else None


def _property(action: Action) -> str:
    """Return what an action sets of its column; of a form that only one kind of database has, its words say that."""
    return action.form if isinstance(action, DatabaseForm) else _PROPERTY[type(action)]
