"""The order of an SQLite table's chunk key: the rowid, or the primary key of a WITHOUT ROWID table.

SQLite compares everything itself: numbers before text before blobs, text by the collation of the primary key's index.
Two traps are avoided. A bound must bring no affinity of its own, or it would change what the column's values compare
as: a plain parameter has none, and a cast loses it again by a unary plus. And the driver cannot bind text that is not
UTF-8, so its bytes are bound and cast.

Known gap: a key whose columns have mixed directions, or another collation in the index than in the column, is walked
by its first column only; right, but slow when that column has few values.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from tideshift.dialects.sqlite import rowids
from tideshift.dialects.sqlite.driver import SqliteDriver, quote
from tideshift.errors import PlanRefused
from tideshift.store.database import Transaction
from tideshift.store.keys import Bound, KeyRange, decode_value, encode_value

__all__ = ["SqliteKeyOrder", "rowid_alias"]

_ALIASES = ("rowid", "_rowid_", "oid")
Sql = tuple[str, tuple[Any, ...]]


def rowid_alias(columns: Iterable[str]) -> str:
    """Choose the name by which the rowid can be reached although columns may hide some of its names."""
    hidden = {name.lower() for name in columns}
    for alias in _ALIASES:
        if alias not in hidden:
            return alias
    raise PlanRefused(
        "columns named rowid, _rowid_ and oid hide the table's rowid",
        reasons=["the rowid cannot be reached by any name"],
    )


class SqliteKeyOrder:
    """The key of one table; `read` finds it in the catalogue.

    With `rowid` the columns given are all of the table's, and the key is the rowid by a name that none of them hides.
    """

    def __init__(
        self,
        table: str,
        columns: Sequence[str],
        *,
        rowid: bool,
        driver: SqliteDriver,
        collations: Sequence[str | None] | None = None,
        descending: Sequence[bool] | None = None,
        utf8: bool = True,
    ) -> None:
        assert columns
        self.table = table
        self.rowid = rowid
        self.driver = driver
        self.columns: tuple[str, ...] = (rowid_alias(columns),) if rowid else tuple(columns)
        self.collations = tuple(collations or [None] * len(self.columns))
        directions = tuple(descending or [False] * len(self.columns))
        # One direction throughout is walked forwards; an index serves both ways.
        self.descending = directions if len(set(directions)) > 1 else tuple(False for _ in directions)
        self._utf8 = utf8
        assert len(self.columns) == len(self.collations) == len(self.descending)

    @classmethod
    def read(cls, tx: Transaction, table: str, driver: SqliteDriver) -> SqliteKeyOrder:
        """Find the key of a table in the catalogue."""
        columns = tx.run_verbatim("SELECT name, pk, hidden FROM pragma_table_xinfo(?) ORDER BY cid", (table,)).rows
        if not columns:
            raise PlanRefused(f"there is no table {table!r}", reasons=["no such table"])
        utf8 = tx.run_verbatim("PRAGMA encoding").scalar() == "UTF-8"
        names = [name for name, _, _ in columns]
        if not _without_rowid(tx, table):
            return cls(table, names, rowid=True, driver=driver, utf8=utf8)
        index = tx.run_verbatim("SELECT name FROM pragma_index_list(?) WHERE origin = 'pk'", (table,)).scalar()
        parts = tx.run_verbatim(
            'SELECT name, coll, "desc" FROM pragma_index_xinfo(?) WHERE key ORDER BY seqno', (index,)
        ).rows
        key = [name for name, _, _ in parts][: sum(1 for _, pk, _ in columns if pk)]
        order = cls(
            table,
            key,
            rowid=False,
            driver=driver,
            descending=[bool(falling) for _, _, falling in parts[: len(key)]],
            utf8=utf8,
        )
        if order.needs_collations(tx):
            order.collations = tuple(collation for _, collation, _ in parts[: len(key)])
        return order

    # ── the text of conditions, for whoever builds a statement on this table ───────────────────────────────────────

    def where(self, key_range: KeyRange, *, qualifier: str = "") -> Sql:
        """Return the condition that a row lies in the range, and its binds; `qualifier` is a quoted table or alias."""
        conditions = []
        if key_range.low is not None:
            conditions.append(self._beyond(key_range.low, qualifier))
        if key_range.high is not None:
            conditions.append(self._beyond(key_range.high, qualifier, reverse=True))
        if not conditions:
            return "1", ()
        return " AND ".join(text for text, _ in conditions), sum((binds for _, binds in conditions), ())

    def literal(self, bound: Bound) -> Sql:
        """Return a bound as SQL: one value, or a row of values."""
        values = self._values(bound)
        text = ", ".join(text for text, _ in values)
        return (text if len(values) == 1 else f"({text})"), tuple(bind for _, bind in values)

    def order_by(self, *, qualifier: str = "", reverse: bool = False) -> str:
        """Return the terms of an ORDER BY."""
        terms = zip(self._terms(qualifier), self.descending, strict=True)
        return ", ".join(f"{term} DESC" if falling != reverse else term for term, falling in terms)

    def end_text(self, condition: str, *, reverse: bool = False) -> str:
        """Return the query for the key of a row so many rows behind the start of a range."""
        return f"SELECT {self.select_list()} FROM {quote(self.table)} WHERE {condition} ORDER BY {self.order_by(reverse=reverse)} LIMIT 1 OFFSET ?"

    def select_list(self, *, qualifier: str = "") -> str:
        """Return the key's columns as a select list."""
        return ", ".join(self._names(qualifier))

    def bound_of(self, row: Sequence[Any]) -> Bound:
        """Write the key of a row that was read, by the list above, as a bound."""
        for name, value in zip(self.columns, row, strict=True):
            if value is None:
                raise PlanRefused(
                    f"column {name!r} of the key of {self.table!r} holds NULL", reasons=["NULL in the key"]
                )
        return [encode_value(value) for value in row]

    # ── the protocol ──────────────────────────────────────────────────────────────────────────────────────────────

    def first_and_last(self, tx: Transaction) -> tuple[Bound, Bound] | None:
        """Return the ends of the table, and refuse a key that holds NULL."""
        self._refuse_null(tx)
        whole = KeyRange(None, None)
        first = self._end(tx, whole)
        last = self._end(tx, whole, reverse=True)
        return None if first is None or last is None else (first, last)

    def split(self, tx: Transaction, key_range: KeyRange, *, parts: int) -> list[KeyRange]:
        """Cut a range: by counting, or for a big table with a rowid by estimates from short probes.

        A big range of any other key stays whole: to cut it, all of it would have to be read under one read lock, which
        shuts writers out where there is a rollback journal.
        """
        assert parts >= 1
        if parts == 1:
            return [key_range]
        count = self._count(tx, key_range, limit=rowids.COUNTED_ROWS_MAX)
        if count < rowids.COUNTED_ROWS_MAX:
            cuts = self._counted_cuts(tx, key_range, count=count, parts=parts)
        elif self.rowid:
            cuts = self._estimated_cuts(tx, key_range, parts=parts)
        else:
            return [key_range]
        lows = [key_range.low, *cuts]
        highs = [*cuts, key_range.high]
        return [KeyRange(low, high) for low, high in zip(lows, highs, strict=True)]

    def next_bound(self, tx: Transaction, key_range: KeyRange, *, rows: int) -> Bound | None:
        """Return the key of the range's row number `rows`, or of its last row."""
        assert rows >= 1
        return self._end(tx, key_range, offset=rows - 1) or self._end(tx, key_range, reverse=True)

    def compare(self, tx: Transaction, left: Bound, right: Bound) -> int:
        """Let SQLite compare the values one by one, by the key's collations; the first difference decides."""
        signs, binds = [], []
        collations = self._all_collations(tx)
        for (one, one_bind), (two, two_bind), collation in zip(
            self._values(left), self._values(right), collations, strict=True
        ):
            by = f" COLLATE {quote(collation)}" if collation else ""
            signs.append(f"CASE WHEN {one} < {two}{by} THEN -1 WHEN {one} > {two}{by} THEN 1 ELSE 0 END")
            binds += [one_bind, two_bind] * 2
        row = tx.run_verbatim(f"SELECT {', '.join(signs)}", tuple(binds)).rows[0]
        for sign, falling in zip(row, self.descending, strict=True):
            if sign:
                return -int(sign) if falling else int(sign)
        return 0

    # ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _names(self, qualifier: str) -> list[str]:
        dot = f"{qualifier}." if qualifier else ""
        return [f"{dot}{quote(name)}" for name in self.columns]

    def _terms(self, qualifier: str) -> list[str]:
        names = zip(self._names(qualifier), self.collations, strict=True)
        return [f"{name} COLLATE {quote(collation)}" if collation else name for name, collation in names]

    def _values(self, bound: Bound) -> list[tuple[str, Any]]:
        """Return a mark and a bind per value."""
        assert len(bound) == len(self.columns)
        return [self._value(name, decode_value(pair)) for name, pair in zip(self.columns, bound, strict=True)]

    def _value(self, name: str, value: Any) -> tuple[str, Any]:
        if value is None:
            raise PlanRefused(f"column {name!r} of the key of {self.table!r} holds NULL", reasons=["NULL in the key"])
        if not isinstance(value, str) or value.isascii():
            return "?", value
        try:
            value.encode()
        except UnicodeEncodeError:
            if not self._utf8:
                raise PlanRefused(
                    f"column {name!r} of the key of {self.table!r} holds text that is not valid UTF-16",
                    reasons=["invalid text in the key of a UTF-16 database"],
                ) from None
            return "+CAST(? AS TEXT)", value.encode("utf-8", "surrogateescape")
        return "?", value

    def _beyond(self, bound: Bound, qualifier: str, *, reverse: bool = False) -> Sql:
        """Return "after the bound", or with `reverse` "not after it"."""
        values, terms = self._values(bound), self._terms(qualifier)
        if not any(self.descending) and (len(terms) == 1 or not any(self.collations)):
            left = terms[0] if len(terms) == 1 else f"({', '.join(terms)})"
            text, binds = self.literal(bound)
            return f"{left} {'<=' if reverse else '>'} {text}", binds
        return _expanded(terms, values, self.descending, reverse=reverse)

    def _end(self, tx: Transaction, key_range: KeyRange, *, offset: int = 0, reverse: bool = False) -> Bound | None:
        """Return the key at one end of the range, or `offset` rows behind its start."""
        condition, binds = self.where(key_range)
        rows = tx.run_verbatim(self.end_text(condition, reverse=reverse), (*binds, offset)).rows
        return self.bound_of(rows[0]) if rows else None

    def _count(self, tx: Transaction, key_range: KeyRange, *, limit: int) -> int:
        condition, binds = self.where(key_range)
        inner = f"SELECT 1 FROM {quote(self.table)} WHERE {condition} LIMIT ?"
        return int(tx.run_verbatim(f"SELECT count(*) FROM ({inner})", (*binds, limit)).scalar())

    def _counted_cuts(self, tx: Transaction, key_range: KeyRange, *, count: int, parts: int) -> list[Bound]:
        """Return the keys between parts of equal row counts; one walk over the range in all."""
        cuts: list[Bound] = []
        done = 0
        for part in range(1, min(parts, count)):
            step = count * part // min(parts, count) - done
            bound = self._end(tx, KeyRange(cuts[-1] if cuts else key_range.low, key_range.high), offset=step - 1)
            assert bound is not None
            cuts.append(bound)
            done += step
        return cuts

    def _estimated_cuts(self, tx: Transaction, key_range: KeyRange, *, parts: int) -> list[Bound]:
        first, last = self._end(tx, key_range), self._end(tx, key_range, reverse=True)
        assert first is not None
        assert last is not None
        probe = rowids.Probe(tx, table=quote(self.table), rowid=quote(self.columns[0]))
        found = rowids.cuts(probe, first=int(first[0][1]), last=int(last[0][1]), parts=parts)
        return [[["int", str(rowid)]] for rowid in found]

    def _refuse_null(self, tx: Transaction) -> None:
        if self.rowid:
            return
        for column in self.columns:
            sql = f"SELECT 1 FROM {quote(self.table)} WHERE {quote(column)} IS NULL LIMIT 1"
            if tx.run_verbatim(sql).rows:
                raise PlanRefused(
                    f"column {column!r} of the key of {self.table!r} holds NULL", reasons=["NULL in the key"]
                )

    def needs_collations(self, tx: Transaction) -> bool:
        """Whether the index is ordered by other collations than the columns: then the plain order needs a sort."""
        sql = f"EXPLAIN QUERY PLAN SELECT 1 FROM {quote(self.table)} ORDER BY {self.order_by()}"
        return any("TEMP B-TREE" in str(row[-1]).upper() for row in tx.run_verbatim(sql).rows)

    def _all_collations(self, tx: Transaction) -> Sequence[str | None]:
        if self.rowid:
            return (None,)
        index = tx.run_verbatim("SELECT name FROM pragma_index_list(?) WHERE origin = 'pk'", (self.table,)).scalar()
        parts = tx.run_verbatim("SELECT name, coll FROM pragma_index_xinfo(?) WHERE key", (index,)).rows
        collations = dict(parts)
        return [collations.get(name) for name in self.columns]


def _without_rowid(tx: Transaction, table: str) -> bool:
    rows = tx.run_verbatim(
        "SELECT wr FROM pragma_table_list WHERE lower(name) = lower(?) AND schema = 'main'", (table,)
    )
    return bool(rows.scalar())


def _expanded(
    terms: Sequence[str], values: Sequence[tuple[str, Any]], descending: Sequence[bool], *, reverse: bool
) -> Sql:
    """Write the comparison of rows out, term by term, for a key that SQLite cannot compare as one row value.

    The condition on the first column alone stands before it, so that an index can find the place.
    """
    first_mark, first_bind = values[0]
    first = "<=" if reverse != descending[0] else ">="
    alternatives: list[str] = []
    binds: list[Any] = [first_bind]
    for last in range(len(terms)):
        equal = [f"{terms[i]} = {values[i][0]}" for i in range(last)]
        sign = "<" if reverse != descending[last] else ">"
        alternatives.append(" AND ".join([*equal, f"{terms[last]} {sign} {values[last][0]}"]))
        binds += [bind for _, bind in values[: last + 1]]
    if reverse:
        alternatives.append(" AND ".join(f"{term} = {mark}" for term, (mark, _) in zip(terms, values, strict=True)))
        binds += [bind for _, bind in values]
    inner = " OR ".join(f"({alternative})" for alternative in alternatives)
    return f"{terms[0]} {first} {first_mark} AND ({inner})", tuple(binds)
