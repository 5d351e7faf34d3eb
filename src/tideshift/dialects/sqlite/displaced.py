"""How to find, before a statement acts, the rows that it may displace through a unique key.

A REPLACE (of the statement, or of the constraint itself) deletes the rows in its way without telling any trigger, unless
recursive_triggers is on. So triggers that run before the statement look each unique key up and log whoever holds it.
Logging a row too many costs a moment; a row too few would be a stale row in the new table.

A column that is NOT NULL with a default has a trap: REPLACE turns a NULL into the default, so the row that holds the
*default* is the one in the way. The key is looked up with the default put in where NEW has NULL.

Two more traps. Before an INSERT, NEW's rowid is not known yet, so a unique key that is computed from it is refused. And
before an UPDATE, SQLite computes NEW's generated columns from those columns only that some trigger reads: the rest count
as NULL. So every column that a generated one is computed from is read, for nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tideshift.ddl.tokens import replace_spans, same_name, significant
from tideshift.dialects.sqlite.affinity import affinity
from tideshift.dialects.sqlite.create_index import parse_index
from tideshift.dialects.sqlite.create_table import ClauseKind, TableText, identifiers, qualifier_edits
from tideshift.dialects.sqlite.driver import quote
from tideshift.dialects.sqlite.layout import Displaced, KeyColumn
from tideshift.dialects.sqlite.scratch import IndexShape, Shape

__all__ = ["ROW_ALIAS", "Unforeseeable", "displaced_rows"]

ROW_ALIAS = "tideshift_row"
_ROW = quote(ROW_ALIAS)
_NOT_CONSTANT = frozenset("random randomblob last_insert_rowid changes total_changes".split())
_CAST = {"TEXT": "TEXT", "INTEGER": "INTEGER", "NUMERIC": "NUMERIC", "REAL": "REAL"}


class Unforeseeable(Exception):
    """Something of a unique key that cannot be known before the statement acts; the argument says what."""


@dataclass(frozen=True)
class _Source:
    """What the queries are built from."""

    table: TableText
    table_name: str
    shape: Shape
    key: Sequence[KeyColumn]
    rowid_column: str | None

    @property
    def key_list(self) -> str:
        return ", ".join(f"{_ROW}.{quote(column.name)}" for column in self.key)

    @property
    def is_old_row(self) -> str:
        """Return the condition that the row found is the one under update, which is logged anyway."""
        return " AND ".join(
            f"{_ROW}.{quote(column.name)}{_collate(column.collation)} = OLD.{quote(column.name)}" for column in self.key
        )


def displaced_rows(
    table: TableText,
    table_name: str,
    shape: Shape,
    *,
    key: Sequence[KeyColumn],
    rowid_column: str | None,
    index_texts: dict[str, str | None],
) -> list[Displaced]:
    """Return the queries for every unique key but the chunk key itself, whose new value is logged anyway."""
    source = _Source(table, table_name, shape, key, rowid_column)
    found: list[Displaced] = []
    for index in shape.indexes:
        if index.unique and not (index.origin == "pk" and table.without_rowid):
            found += _of_index(source, index, index_texts.get(index.name))
    return found


def _of_index(source: _Source, index: IndexShape, text: str | None) -> list[Displaced]:
    parsed = parse_index(text) if text else None
    where = _where(source, parsed.where) if parsed and parsed.where is not None else None
    expressions = parsed.terms if parsed else ()
    plain = all(cid >= 0 for cid, *_ in index.key_terms)
    found: list[Displaced] = []
    read = _read_for_generated(source, index, expressions)
    for with_defaults in (False, True):
        defaults = _defaults(source, index, expressions) if with_defaults else {}
        if with_defaults and not defaults:
            continue
        equal = [
            f"{_ROW}.{quote(str(name))}{_collate(collation)} = {_new(str(name), defaults)}"
            if cid >= 0
            else f"({expressions[number]}){_collate(collation)} = ({_new_expression(source, expressions[number], defaults)})"
            for number, (cid, name, _, collation, _) in enumerate(index.key_terms)
        ]
        conditions = [*equal, f"({where})"] if where is not None else equal
        changed = _changed(index, defaults) if plain and where is None else []
        found.append(
            Displaced(
                on_insert=_query(source, conditions),
                on_update=_query(source, [*read, *changed, *conditions, f"NOT ({source.is_old_row})"]),
            )
        )
    return found


def _read_for_generated(source: _Source, index: IndexShape, expressions: Sequence[str]) -> list[str]:
    """Return conditions that are always true and read what the key's generated columns are computed from."""
    generated = {name.lower() for name, *_, hidden in source.shape.columns if hidden}
    computed: set[str] = set()
    for number, (cid, name, *_) in enumerate(index.key_terms):
        direct = {word.lower() for word in identifiers(expressions[number])} if cid < 0 else {str(name).lower()}
        computed |= direct if cid < 0 else direct & generated
        if direct & generated:
            computed |= _inputs(source, direct & generated)
    if source.rowid_column is not None and source.rowid_column.lower() in computed:
        raise Unforeseeable(f"a unique key is computed from {source.rowid_column!r}, which is given only with the row itself")
    names = [column[0] for column in source.shape.columns]
    if not computed & generated:
        return []
    return [f"NEW.{quote(name)} IS NEW.{quote(name)}" for name in names if name.lower() in computed - generated]


def _inputs(source: _Source, generated: set[str]) -> set[str]:
    """Return all columns, in lower case, from which some generated columns are computed, through other ones too."""
    texts = {
        column.name.lower(): source.table.text[slice(*clause.expression)]
        for column in source.table.columns
        for clause in column.clauses
        if clause.kind is ClauseKind.GENERATED and clause.expression is not None
    }
    found: set[str] = set()
    waiting = set(generated)
    while waiting:  # Ends: no column is taken twice.
        name = waiting.pop()
        found.add(name)
        if name in texts:
            waiting |= {word.lower() for word in identifiers(texts[name])} - found
    return found


def _query(source: _Source, conditions: list[str]) -> str:
    return f"SELECT {source.key_list} FROM {quote(source.table_name)} AS {_ROW} WHERE {' AND '.join(conditions)}"


def _where(source: _Source, where: str) -> str:
    """Return a partial index's condition with references to the table's name turned to the alias."""
    return replace_spans(where, qualifier_edits(where, source.table_name, _ROW))


def _changed(index: IndexShape, defaults: dict[str, str]) -> list[str]:
    """Return the condition that an update changes the key at all: most updates do not, and then nothing is looked up."""
    differ = [
        f"({_new(str(name), defaults)}) COLLATE BINARY IS NOT OLD.{quote(str(name))}" for _, name, *_ in index.key_terms
    ]
    return [f"({' OR '.join(differ)})"]


def _new(name: str, defaults: dict[str, str]) -> str:
    new = f"NEW.{quote(name)}"
    return f"coalesce({new}, {defaults[name]})" if name in defaults else new


def _new_expression(source: _Source, expression: str, defaults: dict[str, str]) -> str:
    """Return an index's expression over the new row: its text as it stands, over a row of NEW's values by their names.

    Only the columns that it names are given, so that dropping any other column stays possible meanwhile.
    """
    used = {name.lower() for name in identifiers(expression)}
    given = []
    for name, type_text, *_ in source.shape.columns:
        if name.lower() not in used:
            continue
        value = _new(name, defaults)
        if name in defaults:
            cast = _CAST.get(affinity(type_text, strict=source.table.strict))
            value = f"CAST({value} AS {cast})" if cast else value
            value += "".join(_collations(source.table, name))
        given.append(f"{value} AS {quote(name)}")
    if not given:
        return expression
    return f"SELECT {expression} FROM (SELECT {', '.join(given)}) AS {quote(source.table_name)}"


def _collations(table: TableText, column: str) -> list[str]:
    clauses = [clause for clause in table.column(column).clauses if clause.kind is ClauseKind.COLLATE]
    return [" " + table.text[clause.start : clause.end] for clause in clauses[-1:]]


def _defaults(source: _Source, index: IndexShape, expressions: Sequence[str]) -> dict[str, str]:
    """Return the defaults of the key's columns that a REPLACE can put in place of NULL."""
    names = {str(name).lower() for cid, name, *_ in index.key_terms if cid >= 0}
    for number, (cid, *_) in enumerate(index.key_terms):
        if cid < 0:
            names |= {name.lower() for name in identifiers(expressions[number])}
    found: dict[str, str] = {}
    for name, _, not_null, default, position, hidden in source.shape.columns:
        required = not_null or (position and source.table.without_rowid)
        if name.lower() in names and required and default is not None and not hidden:
            found[name] = _default(source.table, name)
    return found


def _default(table: TableText, column: str) -> str:
    """Return a default as an expression with the same value in a trigger; a bare word stands for its own text."""
    clauses = [clause for clause in table.column(column).clauses if clause.kind is ClauseKind.DEFAULT]
    tokens = significant(table.text[clauses[-1].start : clauses[-1].end])[1:]
    text = table.text[clauses[-1].start + tokens[0].start : clauses[-1].start + tokens[-1].end]
    if any(same_name(word, banned) for word in identifiers(text) for banned in _NOT_CONSTANT):
        raise Unforeseeable(f"the default of {column!r} is another value each time")
    word = tokens[0].name if len(tokens) == 1 else None
    if word is not None and word.upper() not in ("TRUE", "FALSE", "NULL", "CURRENT_TIME", "CURRENT_DATE", "CURRENT_TIMESTAMP"):
        return "'" + word.replace("'", "''") + "'"
    return f"({text})"


def _collate(collation: str | None) -> str:
    return "" if collation is None else f" COLLATE {quote(collation)}"
