"""Comparing source and shadow in one snapshot, and trying rows on the new shape before anything is made."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tideshift.ddl.dialect import ChunkResult, Comparison
from tideshift.dialects.postgres.driver import PostgresDriver, quote
from tideshift.dialects.postgres.layout import Layout, Names
from tideshift.dialects.postgres.shadow_rows import ROW_REFUSED, equal_keys, first_refused, valued
from tideshift.store.database import Transaction
from tideshift.store.keys import Bound, KeyRange

__all__ = ["HASHED_AS_THEY_ARE", "check_rows", "compare_chunk", "rows_of"]

_DIFFERING_MAX = 100
HASHED_AS_THEY_ARE = frozenset(
    ["smallint", "integer", "bigint", "boolean", "uuid", "date", "timestamp without time zone", "timestamp with time zone", "oid", "bytea"]
)
_EVIDENCE_CHARACTERS = 400


# ── before anything is made ───────────────────────────────────────────────────────────────────────────────────────


def check_rows(tx: Transaction, layout: Layout, names: Names, driver: PostgresDriver, key_range: KeyRange, *, rows_max: int) -> ChunkResult:
    """Put the first rows of the range into a temporary table of the new shape, which goes at once."""
    order = layout.order(driver)
    last = order.next_bound(tx, key_range, rows=rows_max)
    if last is None:
        return ChunkResult(rows=0, size_bytes=0, last=None)
    chunk = KeyRange(key_range.low, last)
    condition, binds = order.where(chunk)
    with _trial_table(tx, layout, names) as trial:
        tx.run_verbatim("SAVEPOINT tideshift_rows")
        try:
            with valued(tx, layout):
                rows = tx.run_verbatim(f"INSERT INTO {trial} {layout.insert} SELECT {layout.values} FROM {layout.source} WHERE {condition}", binds).affected
        except ROW_REFUSED as error:
            tx.run_verbatim("ROLLBACK TO SAVEPOINT tideshift_rows")
            found = first_refused(tx, layout, trial, driver, chunk)
            if found is None:
                raise
            raise found from error
    return ChunkResult(rows=rows, size_bytes=rows * layout.row_bytes, last=last)


@contextmanager
def _trial_table(tx: Transaction, layout: Layout, names: Names) -> Iterator[str]:
    tx.run_verbatim("SAVEPOINT tideshift_trial")
    tx.run_verbatim(f"CREATE TEMPORARY TABLE {quote(names.bare('trial'))} ({layout.create})")
    yield f"pg_temp.{quote(names.bare('trial'))}"
    # After an error the transaction is rolled back, and the table with it.
    tx.run_verbatim("ROLLBACK TO SAVEPOINT tideshift_trial")


# ── after the copy ────────────────────────────────────────────────────────────────────────────────────────────────


def compare_chunk(tx: Transaction, layout: Layout, names: Names, driver: PostgresDriver, key_range: KeyRange, *, rows_max: int) -> Comparison:
    """Compare the first rows of the range, and the shadow's rows between them; keys in the log are left out.

    The number of rows and two sums over hashes of whole rows, by two seeds, tell first whether there is anything to look for.
    """
    order = layout.order(driver)
    full = order.row_number(tx, key_range, rows=rows_max)
    last = full or order.next_bound(tx, key_range, rows=rows_max)
    # Behind the source's last row the shadow may have more: so the last chunk goes to the range's end.
    sides = _Sides(layout, names, driver, KeyRange(key_range.low, full or key_range.high))
    with valued(tx, layout):
        rows, equal = sides.digest(tx)
        differing = [] if equal else sides.differing(tx)
    return Comparison(rows=rows, excluded=sides.excluded(tx), differing=tuple(differing), last=last)


class _Sides:
    """The rows of one range on both sides, as queries that give columns of the same names and types."""

    def __init__(self, layout: Layout, names: Names, driver: PostgresDriver, chunk: KeyRange) -> None:
        self._layout = layout
        self._order = layout.order(driver)
        self._log = names.log
        self._types = {one.name: one.type_text for one in layout.mapped}
        condition, self._binds = self._order.where(chunk)
        self._condition = condition
        new_condition, _ = layout.new_order(driver, names.bare_shadow).where(chunk)  # the same bounds: the same binds
        values = {one.name: f"({one.value})::{one.type_text}" for one in layout.mapped}
        values |= {new: quote(old) for old, new in layout.columns if new not in values}  # generated: compared as it is
        wanted = ", ".join(f"{values[name]} AS {quote(name)}" for name in layout.compared)
        present = ", ".join(f"{names.shadow}.{quote(name)}" for name in layout.compared)
        self.source = f"SELECT {wanted} FROM {layout.source} WHERE {condition} AND NOT ({_logged(layout, names, source=True)})"
        self.shadow = f"SELECT {present} FROM {names.shadow} WHERE {new_condition} AND NOT ({_logged(layout, names, source=False)})"

    def digest(self, tx: Transaction) -> tuple[int, bool]:
        """Return how many rows the source has, and whether both sides have the same sums."""
        row = f"ROW({', '.join(map(self._hashed, self._layout.compared))})"
        sums = [
            f"(SELECT count(*) AS n, coalesce(sum(pg_catalog.hash_record_extended({row}, 0)), 0) AS s,"
            f" coalesce(bit_xor(pg_catalog.hash_record_extended({row}, 1)), 0) AS x FROM ({side}) AS one) AS {name}"
            for name, side in (("a", self.source), ("b", self.shadow))
        ]
        rows, equal = tx.run_verbatim(f"SELECT a.n, (a.n, a.s, a.x) = (b.n, b.s, b.x) FROM {', '.join(sums)}", self._binds).rows[0]
        return int(rows), bool(equal)

    def _hashed(self, name: str) -> str:
        """Write a column as what is hashed: itself where equal values are the same bytes, else its text."""
        column = f"one.{quote(name)}"
        return column if self._types.get(name) in HASHED_AS_THEY_ARE else f'({column}::text COLLATE "C")'

    def excluded(self, tx: Transaction) -> int:
        """Return how many rows of the source are left out."""
        layout = self._layout
        equal = equal_keys(layout.key, [f"{layout.source}.{quote(one.name)}" for one in layout.key], [f"one.{log}" for log in layout.log_columns])
        keys = f"(SELECT DISTINCT {layout.log_key} FROM {self._log}) AS one"
        return int(tx.run_verbatim(f"SELECT count(*) FROM {layout.source} JOIN {keys} ON {equal} WHERE {self._condition}", self._binds).scalar())

    def differing(self, tx: Transaction) -> list[Bound]:
        """Return keys whose rows are only on one side, or not the same on both."""
        layout = self._layout
        ours, theirs = [f"a.{quote(one.new_name)}" for one in layout.key], [f"b.{quote(one.new_name)}" for one in layout.key]
        unequal = " OR ".join(f"a.{column}::text IS DISTINCT FROM b.{column}::text" for column in map(quote, layout.compared))
        key = ", ".join(f"coalesce({one}::{column.type_text}, {other}::{column.type_text})::text" for one, other, column in zip(ours, theirs, layout.key, strict=True))
        sql = (
            f"WITH a AS MATERIALIZED ({self.source}), b AS MATERIALIZED ({self.shadow}) SELECT {key} FROM a FULL JOIN b ON {equal_keys(layout.key, ours, theirs)}"
            f" WHERE {ours[0]} IS NULL OR {theirs[0]} IS NULL OR {unequal} LIMIT {_DIFFERING_MAX}"
        )
        self._order.prepare(tx)
        return [self._order.bound_of(row) for row in tx.run_verbatim(sql, self._binds).rows]


def _logged(layout: Layout, names: Names, *, source: bool) -> str:
    """Write that the log names a row of the source or of the shadow, or says that the whole table was emptied."""
    table = layout.source if source else names.shadow
    columns = [f"{table}.{quote(one.name if source else one.new_name)}" for one in layout.key]
    equal = equal_keys(layout.key, columns, [f"tideshift_log.{one}" for one in layout.log_columns])
    return f"EXISTS (SELECT 1 FROM {names.log} AS tideshift_log WHERE {equal}) OR EXISTS (SELECT 1 FROM {names.log} WHERE reset)"


def rows_of(tx: Transaction, layout: Layout, names: Names, key: Bound) -> dict[str, dict[str, str]]:
    """Return both rows of one key, each value as text of bounded length."""
    found: dict[str, dict[str, str]] = {}
    values = [f"${number}::text::{one.type_text}" for number, one in enumerate(layout.key, start=1)]
    sides = (
        ("source", layout.source, [one.name for one in layout.key], [old for old, _ in layout.columns]),
        ("copy", names.shadow, [one.new_name for one in layout.key], list(layout.compared)),
    )
    for side, table, key_columns, columns in sides:
        texts = ", ".join(f"left({quote(name)}::text, {_EVIDENCE_CHARACTERS})" for name in columns)
        where = equal_keys(layout.key, list(map(quote, key_columns)), values)
        rows = tx.run_verbatim(f"SELECT {texts} FROM {table} WHERE {where}", tuple(text for _, text in key)).rows
        found[side] = dict(zip(columns, map(str, rows[0]), strict=True)) if rows else {}
    return found
