"""How to find, before a statement acts, the rows that it may displace: the way that is left where the shadow cannot tell.

With USING, or a key that is computed from the changed column, the shadow's values do not follow from the new row's without
working out expressions that could fail inside the application's statement. So such a key alone is looked up in the source,
by a trigger that runs before the statement. That has traps:

- REPLACE turns a NULL into the default of a NOT NULL column, so the row that holds the *default* is the one in the way.
  The key is looked up with the default put in where NEW has NULL.
- Before an INSERT, NEW's rowid is not known yet, so a key that is computed from it is refused.
- Before an UPDATE, SQLite computes all of NEW's generated columns from those columns only that some trigger reads: the
  rest count as NULL, of which an expression may fail. So every column that any generated one is computed from is read,
  for nothing else.
- The row may yet be refused, and NEW's values have no affinity or collation: so an expression is worked out only if it
  can neither fail nor compare.
"""

from __future__ import annotations

from dataclasses import replace

from tideshift.ddl.tokens import TokenKind, same_name, significant
from tideshift.dialects.sqlite.affinity import affinity
from tideshift.dialects.sqlite.create_table import TableText, identifiers
from tideshift.dialects.sqlite.defaults import NOT_CONSTANT, default_expression
from tideshift.dialects.sqlite.driver import quote
from tideshift.dialects.sqlite.layout import ROW_ALIAS, Displaced, LookedUpIn
from tideshift.dialects.sqlite.unique_keys import Term, UniqueKey, UniqueKeys

__all__ = ["Unforeseeable", "foreseen", "is_harmless"]

_CAST = {"TEXT": "TEXT", "INTEGER": "INTEGER", "NUMERIC": "NUMERIC", "REAL": "REAL"}
_NEVER_FAIL = frozenset(
    "cast coalesce hex ifnull instr length lower ltrim quote replace round rtrim substr substring trim typeof unicode upper".split()
)
_OPERATORS = frozenset("( ) , || + - * / % & | << >> ~ .".split())
_COMPARING = frozenset("AND OR NOT IS IN LIKE GLOB MATCH REGEXP BETWEEN CASE ISNULL NOTNULL EXISTS SELECT ESCAPE".split())


class Unforeseeable(Exception):
    """Something of a unique key that a trigger cannot know or do; the argument says what."""


def foreseen(keys: UniqueKeys, unique: UniqueKey) -> list[Displaced]:
    """Return the look-ups for one unique key in the source, or raise `Unforeseeable`."""
    computed = keys.computed_from(replace(unique, where=None))
    if keys.rowid_column is not None and keys.rowid_column.lower() in computed:
        raise Unforeseeable(f"{unique.label} is computed from {keys.rowid_column!r}, which is given only with the row itself")
    for term in unique.terms:
        if term.column is None and not is_harmless(term.expression):
            raise Unforeseeable(
                f"{unique.label} is computed in a way that could fail or compare, while its values change;"
                f" drop the index, make the change, and create the index again: {unique.index}"
            )
    defaults = _defaults(keys, unique)
    return [_before(keys, unique, {})] + ([_before(keys, unique, defaults)] if defaults else [])


def _before(keys: UniqueKeys, unique: UniqueKey, defaults: dict[str, str]) -> Displaced:
    conditions = [
        f"{term.found} = {_new(term.column, defaults)}"
        if term.column is not None
        else f"{term.found} = ({_expression_of_new(keys, term, defaults)})"
        for term in unique.terms
    ]
    conditions += keys.where_of_found(unique)
    changed = keys.changed(unique) if not defaults else []
    not_itself = f"NOT ({keys.is_row(quote(ROW_ALIAS), 'OLD')})"
    return Displaced(
        place=LookedUpIn.SOURCE,
        on_insert=" AND ".join(conditions),
        on_update=" AND ".join([*_read_for_generated(keys), *changed, *conditions, not_itself]),
    )


def _words(text: str) -> set[str]:
    return {word.lower() for word in identifiers(text)}


def is_harmless(expression: str) -> bool:
    """Whether an expression consists of what never fails and never compares."""
    tokens = significant(expression)
    for number, token in enumerate(tokens):
        called = number + 1 < len(tokens) and tokens[number + 1].is_operator("(") and bool(token.name)
        if called and (token.name or "").lower() not in _NEVER_FAIL:
            return False
        if token.kind is TokenKind.OPERATOR and token.text not in _OPERATORS:
            return False
        if token.keyword in _COMPARING:
            return False
    return True


def _read_for_generated(keys: UniqueKeys) -> list[str]:
    """Return conditions that are always true and read what the table's generated columns are computed from."""
    return [f"NEW.{quote(name)} IS NEW.{quote(name)}" for name in keys.inputs_of_generated()]


def _new(name: str, defaults: dict[str, str]) -> str:
    new = f"NEW.{quote(name)}"
    return f"coalesce({new}, {defaults[name]})" if name in defaults else new


def _expression_of_new(keys: UniqueKeys, term: Term, defaults: dict[str, str]) -> str:
    """Return an index's expression over the new row: its text as it stands, over a row of NEW's values by their names."""
    types = {name: type_text for name, type_text, *_ in keys.shape.columns}
    given = []
    for name in keys.columns_in(term.expression):
        value = _new(name, defaults)
        cast = _CAST.get(affinity(types[name], strict=keys.table.strict)) if name in defaults else None
        given.append(f"{f'CAST({value} AS {cast})' if cast else value}{keys.collation_of(name)} AS {quote(name)}")
    if not given:
        return term.expression
    return f"SELECT {term.expression} FROM (SELECT {', '.join(given)}) AS {quote(keys.name)}"


def _defaults(keys: UniqueKeys, unique: UniqueKey) -> dict[str, str]:
    """Return the defaults of the key's columns that a REPLACE can put in place of NULL."""
    names = {(term.column or "").lower() for term in unique.terms}
    for term in unique.terms:
        names |= _words(term.expression) if term.column is None else set()
    found: dict[str, str] = {}
    for name, _, not_null, default, position, hidden in keys.shape.columns:
        required = not_null or (position and keys.table.without_rowid)
        if name.lower() in names and required and default is not None and not hidden:
            found[name] = _default(keys.table, name)
    return found


def _default(table: TableText, column: str) -> str:
    """Return a default as an expression with the same value in a trigger."""
    expression = default_expression(table, column)
    assert expression is not None
    if any(same_name(word, banned) for word in identifiers(expression) for banned in NOT_CONSTANT):
        raise Unforeseeable(f"the default of {column!r} is another value each time")
    return expression
