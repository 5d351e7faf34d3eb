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

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tideshift.dialects.sqlite.driver import quote
from tideshift.dialects.sqlite.foreseen import Unforeseeable, foreseen
from tideshift.dialects.sqlite.layout import ROW_ALIAS, Displaced, LookedUpIn
from tideshift.dialects.sqlite.unique_keys import Term, UniqueKey, UniqueKeys

__all__ = ["Conversion", "displaced_rows"]


@dataclass(frozen=True)
class Conversion:
    """What happens to one column's values."""

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


def displaced_rows(keys: UniqueKeys, conversions: Sequence[Conversion], *, hidden_rowid: str | None) -> list[Displaced]:
    """Return the look-ups for every unique key, or raise `Unforeseeable`.

    `hidden_rowid` is the name of the rowid where the rows have one that no column shows and that is not the chunk key.
    """
    changing = [conversion for conversion in conversions if not conversion.keeps_values]
    found: list[Displaced] = [] if hidden_rowid is None else [_by_number(keys, hidden_rowid)]
    for unique in keys.all():
        touching = _touching(keys, unique, changing)
        computed = keys.computed_from(unique)
        if all(one.is_of_stored_value and one.column.lower() not in computed for one in touching):
            found.append(_after(keys, unique, {one.column: one for one in touching}))
        elif keys.table.strict:
            raise Unforeseeable(_strict(unique, touching))
        else:
            found += foreseen(keys, unique)
    return found


def _touching(keys: UniqueKeys, unique: UniqueKey, changing: Sequence[Conversion]) -> list[Conversion]:
    """Return the conversions by which the shadow's rows may have another value of the key than the source's."""
    names = {term.column for term in unique.terms}
    computed = keys.computed_from(unique)
    return [one for one in changing if one.column in names or one.column.lower() in computed]


def _by_number(keys: UniqueKeys, rowid: str) -> Displaced:
    """Return the look-up of a row whose number another one takes; only the source knows the numbers."""
    if keys.table.strict:
        raise Unforeseeable(
            "the rows have numbers (rowid) by which a REPLACE may remove one, and only a trigger before each write could follow that;"
            " on a STRICT table such a trigger changes which error a statement gets; with --strategy direct no trigger is needed"
        )
    same = f"{quote(ROW_ALIAS)}.{quote(rowid)} = NEW.{quote(rowid)}"
    moved = f"NEW.{quote(rowid)} IS NOT OLD.{quote(rowid)}"
    return Displaced(place=LookedUpIn.SOURCE, on_insert=same, on_update=f"{moved} AND {same}")


def _after(keys: UniqueKeys, unique: UniqueKey, conversions: Mapping[str, Conversion]) -> Displaced:
    conditions = [
        _converted(term, conversions) if term.column is not None else f"{term.found} IN ({_expression_of_new(keys, unique, term)})"
        for term in unique.terms
    ]
    conditions += [*keys.where_of_found(unique), f"NOT ({keys.is_copy(quote(ROW_ALIAS), 'NEW')})"]
    return Displaced(
        place=LookedUpIn.SHADOW,
        on_insert=" AND ".join(conditions),
        on_update=" AND ".join([*keys.changed(unique), *conditions]),
    )


def _equal(term: Term) -> str:
    return f"{term.found} = NEW.{quote(term.column or '')}"


def _converted(term: Term, conversions: Mapping[str, Conversion]) -> str:
    """Return the condition that the shadow holds what became of a value that equals the new row's.

    IN gives the values on its right the affinity of the column on its left, which is the conversion itself, but for two
    traps: a whole number that REAL rounds, and 1 and 1.0, which are equal until they become text.
    """
    conversion = conversions.get(term.column or "")
    if conversion is None:
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


def _strict(unique: UniqueKey, touching: Sequence[Conversion]) -> str:
    names = ", ".join(repr(one.column) for one in touching)
    reason = (
        f"{unique.label} depends on {names} in a way that only a trigger before each write could follow,"
        " and on a STRICT table such a trigger changes which error a statement gets; "
    )
    if not unique.is_constraint:
        return reason + f"drop the index, make the change, and create the index again: {unique.index}"
    if any(one.has_using for one in touching):
        return reason + "make the change without USING, and convert the values by an UPDATE"
    return reason + "SQLite drops no constraint of a table, so this change needs a table made anew"
