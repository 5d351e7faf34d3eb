"""The order of a PostgreSQL table's chunk key: one column or several, each by its own collation.

A value is written down as the text that the server's output function gives under pinned settings, beside its type, and
read back by that type's input function: lossless for every type that has a btree order. Operators are named with their
schema, because a search path that lacks an extension's schema would quietly pick another `>` for its types.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tideshift.dialects.postgres.driver import PostgresDriver, quote
from tideshift.errors import PlanRefused
from tideshift.store.database import Transaction
from tideshift.store.keys import Bound, KeyRange

__all__ = ["PostgresKeyOrder"]

_SYSTEM_SCHEMA = "pg_catalog"
_WHOLE_NUMBERS = ("smallint", "integer", "bigint")
Sql = tuple[str, tuple[Any, ...]]

_COLUMNS = """
SELECT a.attname::text, format_type(a.atttypid, a.atttypmod),
       (SELECT n.nspname::text
          FROM pg_opclass c
          JOIN pg_am m ON m.oid = c.opcmethod AND m.amname = 'btree'
          JOIN pg_amop o ON o.amopfamily = c.opcfamily AND o.amopstrategy = 5
               AND o.amoplefttype = c.opcintype AND o.amoprighttype = c.opcintype
          JOIN pg_operator p ON p.oid = o.amopopr
          JOIN pg_namespace n ON n.oid = p.oprnamespace
         WHERE c.opcdefault AND c.opcintype = CASE t.typtype WHEN 'd' THEN t.typbasetype ELSE t.oid END)
  FROM pg_attribute a JOIN pg_type t ON t.oid = a.atttypid
 WHERE a.attrelid = to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped
"""
_HISTOGRAM_ROWS_MIN = 200_000
"""Below it counting takes moments."""
_BUCKETS_PER_PART = 4
"""So many buckets of the histogram make a part at least: a part is then off by a quarter at most, and by what was written since."""
_IS_KNOWN = """
SELECT 1 FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attname = $2::text JOIN pg_stat_user_tables s ON s.relid = c.oid
 WHERE c.oid = to_regclass($1) AND a.attcollation = 0 AND c.reltuples >= $3::text::float8 AND s.n_mod_since_analyze <= c.reltuples / 5
   AND greatest(s.last_analyze, s.last_autoanalyze) IS NOT NULL
"""
_HISTOGRAM = """
SELECT u.value::text
  FROM (SELECT histogram_bounds::text::{type}[] AS bounds FROM pg_stats WHERE schemaname = $1::text AND tablename = $2::text AND attname = $3::text AND NOT inherited) AS s,
       unnest(s.bounds) WITH ORDINALITY AS u(value, number)
 WHERE u.value < $4::text::{type} ORDER BY u.number
"""


class PostgresKeyOrder:
    """The key of one table, given by schema, name, and columns in the order of its index."""

    def __init__(
        self, schema: str, table: str, columns: Sequence[str], *, driver: PostgresDriver, types: list[tuple[str, str]] | None = None
    ) -> None:  # fmt: skip
        """`types` are those of the bounds, each with the schema of its operators, where they are not the columns' own."""
        assert columns
        self.columns: tuple[str, ...] = tuple(columns)
        self.driver = driver
        self.name = f"{quote(schema)}.{quote(table)}"
        self._table = (schema, table)
        self._types = types

    def prepare(self, tx: Transaction) -> None:
        """Read the columns' types; every method that has a transaction does it by itself."""
        if self._types is not None:
            return
        rows = tx.run_verbatim(_COLUMNS, (self.name,)).rows
        known = {name: (type_name, schema or _SYSTEM_SCHEMA) for name, type_name, schema in rows}
        if missing := [name for name in self.columns if name not in known]:
            raise PlanRefused(f"{self.name} has no column {', '.join(missing)}", reasons=["no such column"])
        self._types = [known[name] for name in self.columns]

    @property
    def types(self) -> list[tuple[str, str]]:
        """Return the columns' types and the schemas of their operators."""
        return self._known()

    # ── the text of conditions, for whoever builds a statement on this table ───────────────────────────────────────

    def where(self, key_range: KeyRange, *, qualifier: str = "", first_bind: int = 1) -> Sql:
        """Return the condition that a row lies in the range, and its binds; its marks are numbered from `first_bind`."""
        conditions: list[str] = []
        binds: list[str] = []
        for bound, sign in ((key_range.low, ">"), (key_range.high, "<=")):
            if bound is not None:
                text, more = self._beyond(bound, sign, qualifier, first_bind + len(binds))
                conditions.append(text)
                binds += more
        return " AND ".join(conditions) or "true", tuple(binds)

    def literal(self, bound: Bound, *, first_bind: int = 1) -> Sql:
        """Return a bound as SQL: one value, or a row of values."""
        marks = self._marks(bound, first_bind)
        return (marks[0] if len(marks) == 1 else f"({', '.join(marks)})"), tuple(text for _, text in bound)

    def order_by(self, *, qualifier: str = "", reverse: bool = False) -> str:
        """Return the terms of an ORDER BY."""
        return ", ".join(f"{name} DESC" if reverse else name for name in self._names(qualifier))

    def select_list(self, *, qualifier: str = "") -> str:
        """Return the key's columns, in their text form, as a select list."""
        return ", ".join(f"{name}::text" for name in self._names(qualifier))

    def bound_of(self, row: Sequence[str | None]) -> Bound:
        """Write the key of a row that was read, by the list above, as a bound."""
        bound: Bound = []
        for column, (type_name, _), text in zip(self.columns, self._known(), row, strict=True):
            if text is None:
                raise PlanRefused(
                    f"column {column!r} of the key of {self.name} holds NULL", reasons=["NULL in the key"]
                )
            bound.append([type_name, text])
        return bound

    # ── the protocol ──────────────────────────────────────────────────────────────────────────────────────────────

    def first_and_last(self, tx: Transaction) -> tuple[Bound, Bound] | None:
        """Return the ends of the table, and refuse a key that holds NULL."""
        self.prepare(tx)
        for column in self.columns:
            if tx.run_verbatim(f"SELECT 1 FROM {self.name} WHERE {quote(column)} IS NULL LIMIT 1").rows:
                raise PlanRefused(
                    f"column {column!r} of the key of {self.name} holds NULL", reasons=["NULL in the key"]
                )
        whole = KeyRange(None, None)
        first, last = self._end(tx, whole), self._end(tx, whole, reverse=True)
        return None if first is None or last is None else (first, last)

    def split(self, tx: Transaction, key_range: KeyRange, *, parts: int) -> list[KeyRange]:
        """Cut a range by the server's statistics where they say enough of a large table, else by counting along the key's index."""
        assert parts >= 1
        self.prepare(tx)
        if key_range.low is None and key_range.high is not None and (known := self._cuts_known(tx, key_range.high, parts=parts)):
            return [KeyRange(low, high) for low, high in zip([None, *known], [*known, key_range.high], strict=True)]
        condition, binds = self.where(key_range)
        count = int(tx.run_verbatim(f"SELECT count(*) FROM {self.name} WHERE {condition}", binds).scalar())
        parts = max(1, min(parts, count))
        cuts: list[Bound] = []
        done = 0
        for part in range(1, parts):
            step = count * part // parts - done
            bound = self._end(tx, KeyRange(cuts[-1] if cuts else key_range.low, key_range.high), offset=step - 1)
            if bound is None:  # rows went away since they were counted
                break
            cuts.append(bound)
            done += step
        return [KeyRange(low, high) for low, high in zip([key_range.low, *cuts], [*cuts, key_range.high], strict=True)]

    def _cuts_known(self, tx: Transaction, high: Bound, *, parts: int) -> list[Bound]:
        """Return where the key's histogram cuts the table, up to `high`; nothing for a small table, an old histogram, or an order that a collation decides."""
        type_name, schema = self._known()[0]
        if len(self.columns) != 1 or schema != _SYSTEM_SCHEMA or not tx.run_verbatim(_IS_KNOWN, (self.name, self.columns[0], str(_HISTOGRAM_ROWS_MIN))).rows:
            return []
        values = [text for (text,) in tx.run_verbatim(_HISTOGRAM.format(type=type_name), (*self._table, self.columns[0], high[0][1])).rows]
        places = sorted({len(values) * part // parts for part in range(1, parts)} - {0})
        return [[[type_name, values[place]]] for place in places] if len(values) >= parts * _BUCKETS_PER_PART else []

    def next_bound(self, tx: Transaction, key_range: KeyRange, *, rows: int) -> Bound | None:
        """Return the key of the range's row number `rows`, or of its last row."""
        return self.row_number(tx, key_range, rows=rows) or self._end(tx, key_range, reverse=True)

    def row_number(self, tx: Transaction, key_range: KeyRange, *, rows: int) -> Bound | None:
        """Return the key of the range's row number `rows`; None where it has fewer."""
        assert rows >= 1
        self.prepare(tx)
        return self._end(tx, key_range, offset=rows - 1)

    def some_numbers_on(self, tx: Transaction, key_range: KeyRange, *, numbers: int) -> Bound | None:
        """Return the key so many whole numbers behind the range's start, at most its end: no more rows than that lie before it.

        None where the key is no whole number, or the range has no start or no end.
        """
        (type_name, _), low, high = self._known()[0], key_range.low, key_range.high
        if len(self.columns) != 1 or type_name not in _WHOLE_NUMBERS or low is None or high is None:
            return None
        sql = "SELECT least($1::text::numeric + $2::text::numeric, $3::text::numeric)::text"
        return [[type_name, str(tx.run_verbatim(sql, (low[0][1], str(numbers), high[0][1])).scalar())]]

    def compare(self, tx: Transaction, left: Bound, right: Bound) -> int:
        """Let the server compare the values one by one, by the columns' collations; the first difference decides."""
        self.prepare(tx)
        ones, twos = self._marks(left, 1), self._marks(right, 1 + len(left))
        signs = []
        for name, (_, schema), one, two in zip(self._names(""), self._known(), ones, twos, strict=True):
            # The column stands in as an empty SELECT, which gives NULL but brings the column's collation.
            before, after = _operator(schema, "<"), _operator(schema, ">")
            column = f"(SELECT {name} FROM {self.name} LIMIT 0)"
            left_value, right_value = f"coalesce({column}, {one})", f"coalesce({column}, {two})"
            signs.append(
                f"CASE WHEN {left_value} {before} {right_value} THEN -1"
                f" WHEN {left_value} {after} {right_value} THEN 1 ELSE 0 END"
            )
        texts = tuple(text for _, text in [*left, *right])
        row = tx.run_verbatim(f"SELECT {', '.join(signs)}", texts).rows[0]
        return next((int(sign) for sign in row if sign), 0)

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _known(self) -> list[tuple[str, str]]:
        assert self._types is not None, "prepare() comes first"
        return self._types

    def _names(self, qualifier: str) -> list[str]:
        """Return the columns, always qualified: ORDER BY takes a bare name for the output column, which is text."""
        return [f"{qualifier or self.name}.{quote(name)}" for name in self.columns]

    def _marks(self, bound: Bound, first_bind: int) -> list[str]:
        """Return one cast mark per value; a type that changed since the bound was written is not accepted."""
        known = self._known()
        if [tag for tag, _ in bound] != [type_name for type_name, _ in known]:
            raise PlanRefused(
                f"the key of {self.name} has other types than when the bound was written", reasons=["key types changed"]
            )
        return [f"${first_bind + i}::text::{type_name}" for i, (type_name, _) in enumerate(known)]

    def _beyond(self, bound: Bound, sign: str, qualifier: str, first_bind: int) -> Sql:
        """Compare the key with a bound; as a row where one operator does for all columns, else term by term."""
        marks, names = self._marks(bound, first_bind), self._names(qualifier)
        binds = tuple(text for _, text in bound)
        schemas = [schema for _, schema in self._known()]
        if len(set(schemas)) == 1:
            row = names[0] if len(names) == 1 else f"({', '.join(names)})"
            values = marks[0] if len(marks) == 1 else f"({', '.join(marks)})"
            return f"{row} {_operator(schemas[0], sign)} {values}", binds
        return _expanded(names, marks, schemas, sign), binds

    def _end(self, tx: Transaction, key_range: KeyRange, *, offset: int = 0, reverse: bool = False) -> Bound | None:
        """Return the key at one end of the range, or `offset` rows behind its start."""
        condition, binds = self.where(key_range)
        sql = (
            f"SELECT {self.select_list()} FROM {self.name} WHERE {condition}"
            f" ORDER BY {self.order_by(reverse=reverse)} LIMIT 1 OFFSET {offset}"
        )
        rows = tx.run_verbatim(sql, binds).rows
        return self.bound_of(rows[0]) if rows else None


def _operator(schema: str, sign: str) -> str:
    return sign if schema == _SYSTEM_SCHEMA else f"OPERATOR({quote(schema)}.{sign})"


def _expanded(names: Sequence[str], marks: Sequence[str], schemas: Sequence[str], sign: str) -> str:
    """Write the comparison of rows out; the first column alone stands before it, so that an index can find the place."""
    strict = sign[0]
    equals = [
        f"{name} {_operator(schema, '=')} {mark}" for name, mark, schema in zip(names, marks, schemas, strict=True)
    ]
    alternatives = [
        " AND ".join([*equals[:last], f"{names[last]} {_operator(schemas[last], strict)} {marks[last]}"])
        for last in range(len(names))
    ]
    if sign != strict:
        alternatives.append(" AND ".join(equals))
    first = f"{names[0]} {_operator(schemas[0], f'{strict}=')} {marks[0]}"
    return f"{first} AND ({' OR '.join(f'({alternative})' for alternative in alternatives)})"
