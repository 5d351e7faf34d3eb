"""How the capture triggers find the rows that a statement displaced through a unique key.

A REPLACE (of the statement, or of a constraint) deletes the rows in its way without telling any trigger, unless
recursive_triggers is on. So, after the statement wrote a row, the shadow is asked who holds the new row's unique values
there, and whoever does is logged. That finds every displaced row: the shadow has it as the source had it, and then by
these values; or in another version, and then its change is in the log already; or not at all, and then it is in the log
or the copy has yet to come and reads the source as it will be. A row logged too many costs a moment.

What the source and the shadow hold may be the same value in two types: a change of type converts. The columns that stay
as they are need nothing. The changed column is looked up by every value that the new type can have made of any value
equal to the new one. Where that is not possible (USING, or something computed from the changed column), see `foreseen`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tideshift.dialects.sqlite.driver import quote
from tideshift.dialects.sqlite.foreseen import Unforeseeable, foreseen
from tideshift.dialects.sqlite.layout import ROW_ALIAS, Displaced, LookedUpIn
from tideshift.dialects.sqlite.unique_keys import Term, UniqueKey, UniqueKeys

__all__ = ["Conversion", "displaced_rows"]


@dataclass(frozen=True)
class Conversion:
    """What happens to the changed column's values."""

    column: str
    old_affinity: str
    new_affinity: str
    has_using: bool
    is_generated: bool

    @property
    def keeps_values(self) -> bool:
        """Whether every value stays as it is."""
        return not self.has_using and self.old_affinity == self.new_affinity

    @property
    def is_of_stored_value(self) -> bool:
        """Whether the new value comes from the old one by the new affinity alone."""
        return not self.has_using and not self.is_generated


def displaced_rows(keys: UniqueKeys, conversion: Conversion) -> list[Displaced]:
    """Return the look-ups for every unique key, or raise `Unforeseeable`."""
    found: list[Displaced] = []
    for unique in keys.all():
        if not _touched(keys, unique, conversion):
            found.append(_after(keys, unique, _equal))
        elif conversion.is_of_stored_value and conversion.column.lower() not in keys.computed_from(unique):
            found.append(_after(keys, unique, lambda term: _converted(term, conversion)))
        elif keys.table.strict:
            raise Unforeseeable(_strict(unique, conversion))
        else:
            found += foreseen(keys, unique)
    return found


def _touched(keys: UniqueKeys, unique: UniqueKey, conversion: Conversion) -> bool:
    """Whether the shadow's rows may have another value of the key than the source's."""
    return not conversion.keeps_values and (
        any(term.column == conversion.column for term in unique.terms)
        or conversion.column.lower() in keys.computed_from(unique)
    )


def _after(keys: UniqueKeys, unique: UniqueKey, of_column: Callable[[Term], str]) -> Displaced:
    conditions = [
        of_column(term) if term.column is not None else f"{term.found} IN ({_expression_of_new(keys, unique, term)})"
        for term in unique.terms
    ]
    conditions += [*keys.where_of_found(unique), f"NOT ({keys.is_row(quote(ROW_ALIAS), 'NEW')})"]
    return Displaced(
        place=LookedUpIn.SHADOW,
        on_insert=" AND ".join(conditions),
        on_update=" AND ".join([*keys.changed(unique), *conditions]),
    )


def _equal(term: Term) -> str:
    return f"{term.found} = NEW.{quote(term.column or '')}"


def _converted(term: Term, conversion: Conversion) -> str:
    """Return the condition that the shadow holds what became of a value that equals the new row's.

    IN gives the values on its right the affinity of the column on its left, which is the conversion itself, but for two
    traps: a whole number that REAL rounds, and 1 and 1.0, which are equal until they become text.
    """
    if term.column != conversion.column:
        return _equal(term)
    new = f"NEW.{quote(conversion.column)}"
    if conversion.new_affinity == "BLOB":
        return f"{term.found} = +{new}"
    values = [new, f"CAST({new} AS {'NUMERIC' if conversion.new_affinity == 'INTEGER' else conversion.new_affinity})"]
    if conversion.new_affinity == "TEXT":
        values += [f"CAST(CAST({new} AS {number}) AS TEXT)" for number in ("INTEGER", "REAL")]
    return f"{term.found} IN ({', '.join(values)})"


def _expression_of_new(keys: UniqueKeys, unique: UniqueKey, term: Term) -> str:
    """Return an index's expression over the new row, worked out in two ways.

    Over the row as it stands in the source, where the columns have their affinities and collations; and over a row of NEW's
    values, since another trigger or a cascade may have changed the row in the source already. NEW's values alone have no
    affinity. Of a partial index only where its condition holds, since elsewhere the expression may raise an error. Only
    the columns that the expression names are given, so that dropping any other column stays possible meanwhile.
    """
    where = "" if unique.where is None else f"({unique.where})"
    table = quote(keys.name)
    there = " AND ".join(filter(None, (keys.is_row(table, "NEW"), where)))
    names = keys.columns_in(f"{term.expression} {where}")
    given = ", ".join(f"NEW.{quote(name)}{keys.collation_of(name)} AS {quote(name)}" for name in names)
    row = f"(SELECT {given or '1'}) AS {table}"
    return (
        f"(SELECT {term.expression} FROM {table} WHERE {there}),"
        f" (SELECT {term.expression} FROM {row}{' WHERE ' if where else ''}{where})"
    )


def _strict(unique: UniqueKey, conversion: Conversion) -> str:
    reason = (
        f"{unique.label} depends on {conversion.column!r} in a way that only a trigger before each write could follow,"
        " and on a STRICT table such a trigger changes which error a statement gets; "
    )
    if not unique.is_constraint:
        return reason + f"drop the index, make the change, and create the index again: {unique.index}"
    if conversion.has_using:
        return reason + "make the change without USING, and convert the values by an UPDATE"
    return reason + "SQLite drops no constraint of a table, so this change needs a table made anew"
