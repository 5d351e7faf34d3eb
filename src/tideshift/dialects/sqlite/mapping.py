"""From the actions of a change to the value of each column in the new shape, and to what happens to the values on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tideshift.ddl.change import Action, AddColumn, DropColumn, SetColumnType
from tideshift.ddl.tokens import same_name
from tideshift.dialects.sqlite.affinity import affinity
from tideshift.dialects.sqlite.create_table import TableText
from tideshift.dialects.sqlite.defaults import fill_value
from tideshift.dialects.sqlite.displaced import Conversion
from tideshift.dialects.sqlite.driver import SqliteDriver, quote
from tideshift.dialects.sqlite.layout import Mapped, Side
from tideshift.dialects.sqlite.scratch import scratch

__all__ = ["Origin", "conversions", "converted_columns", "mapped_columns", "origins"]


@dataclass(frozen=True)
class Origin:
    """Where a column of the new shape comes from: a column of the source (None: it is new), and the USING expression on the way."""

    name: str
    source: str | None
    using: str | None = None


def origins(columns: Sequence[str], actions: Sequence[Action]) -> list[Origin]:
    """Follow the columns through the actions; the order is of no meaning."""
    found = [Origin(name, name) for name in columns]
    for action in actions:
        match action:
            case AddColumn():
                found.append(Origin(action.column, None))
            case DropColumn():
                found = [one for one in found if not same_name(one.name, action.column)]
            case SetColumnType(using=str()):
                found = [Origin(one.name, one.source, action.using) if same_name(one.name, action.column) else one for one in found]
    return found


def mapped_columns(old: Side, new: Side, new_text: TableText, origin_of: Sequence[Origin], driver: SqliteDriver) -> tuple[Mapped, ...]:
    """Return what a copy of a row writes; a number that no column shows comes first. Raises `TextRefused` for a default."""
    written: list[Mapped] = []
    if new.has_hidden_rowid and old.rowid is not None:
        assert new.rowid is not None
        written.append(Mapped(new.rowid, quote(old.rowid)))
    with scratch(driver) as trial:
        for name in new.columns:
            if name in new.generated:
                continue
            origin = next(one for one in origin_of if same_name(one.name, name))
            if origin.using is not None:
                written.append(Mapped(name, f"({origin.using})"))
            elif origin.source is not None:
                written.append(Mapped(name, quote(origin.source)))
            else:
                value, given_once = fill_value(new_text, name, trial)
                written.append(Mapped(name, value, given_once))
    return tuple(written)


def conversions(old: TableText, new: TableText, sides: tuple[Side, Side], origin_of: Sequence[Origin]) -> list[Conversion]:
    """Return what happens to the values of each column that stays."""
    found = []
    for origin in origin_of:
        if origin.source is None:
            continue
        types = [old.column(origin.source), new.column(origin.name)]
        found.append(
            Conversion(
                column=origin.source,
                old_affinity=affinity(old.text[types[0].type_start : types[0].type_end], strict=old.strict),
                new_affinity=affinity(new.text[types[1].type_start : types[1].type_end], strict=new.strict),
                has_using=origin.using is not None,
                is_generated=origin.source in sides[0].generated or origin.name in sides[1].generated,
            )
        )
    return found


def converted_columns(found: Sequence[Conversion], sides: tuple[Side, Side]) -> tuple[str, ...]:
    """Return the columns whose values may differ from the source's, with the generated ones, which may be computed from them."""
    changing = [one.column for one in found if not one.keeps_values]
    return tuple(dict.fromkeys([*changing, *sides[0].generated, *sides[1].generated])) if changing else ()
