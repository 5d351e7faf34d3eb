"""Trying rows on the new shape before anything is made, and comparing source and shadow row by row afterwards.

Both use a temporary table of the new shape, which exists on one connection only and takes no lock in the user's file:
the library itself converts the values, and what comes out is compared exactly, type by type and byte by byte.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tideshift.ddl.dialect import ChunkResult, Comparison
from tideshift.dialects.sqlite.driver import SqliteDriver, quote
from tideshift.dialects.sqlite.layout import Layout
from tideshift.dialects.sqlite.names import Names
from tideshift.dialects.sqlite.rows import ROW_REFUSED, insert_rows, refusal
from tideshift.dialects.sqlite.texts import trial_text
from tideshift.store.database import Transaction
from tideshift.store.keys import Bound, KeyRange

__all__ = ["check_rows", "compare_chunk", "differing_text", "not_logged", "only_in_shadow_text"]

_DIFFERING_MAX = 1_000
_EVIDENCE_CHARACTERS = 200


def check_rows(
    tx: Transaction, layout: Layout, names: Names, driver: SqliteDriver, key_range: KeyRange, *, rows_max: int
) -> ChunkResult:
    """Put the first rows of the range into a table of the new shape and throw it away."""
    order = layout.order(driver)
    last = order.next_bound(tx, key_range, rows=rows_max)
    if last is None:
        return ChunkResult(rows=0, size_bytes=0, last=None)
    condition, binds = order.where(KeyRange(key_range.low, last))
    with _trial_table(tx, layout, names):
        try:
            rows = insert_rows(tx, layout, names.trial, condition, binds)
        except ROW_REFUSED as error:
            raise refusal(tx, layout, driver, target=names.trial, where=(condition, binds), error=error) from error
    return ChunkResult(rows=rows, size_bytes=rows * layout.row_bytes, last=last)


@contextmanager
def _trial_table(tx: Transaction, layout: Layout, names: Names) -> Iterator[None]:
    """Have the temporary table, new and empty; an exception ends the transaction and the table with it."""
    tx.run_verbatim(f"DROP TABLE IF EXISTS temp.{quote(names.trial)}")
    tx.run_verbatim(trial_text(layout, names))
    yield
    tx.run_verbatim(f"DROP TABLE temp.{quote(names.trial)}")


def compare_chunk(
    tx: Transaction, layout: Layout, names: Names, driver: SqliteDriver, key_range: KeyRange, *, rows_max: int
) -> Comparison:
    """Compare the first rows of the range, and the shadow's rows between them; keys in the log are left out."""
    source = layout.order(driver)
    last = source.next_bound(tx, key_range, rows=rows_max)
    condition, binds = source.where(KeyRange(key_range.low, last))
    present = 0
    if last is not None:
        present = int(tx.run_verbatim(f"SELECT count(*) FROM {quote(layout.table)} WHERE {condition}", binds).scalar())
    # Behind the source's last row the shadow may have more: so the last chunk goes to the range's end.
    chunk = KeyRange(key_range.low, last if present == rows_max else key_range.high)
    condition, binds = source.where(chunk)
    with _trial_table(tx, layout, names):
        rows = insert_rows(tx, layout, names.trial, not_logged(layout, names, condition), binds)
        differing = _differing(tx, layout, names, driver)
        differing += _only_in_shadow(tx, layout, names, driver, chunk)
    return Comparison(rows=rows, excluded=present - rows, differing=tuple(differing), last=last)


def not_logged(layout: Layout, names: Names, condition: str) -> str:
    """Return a condition on the source's rows, without those whose keys wait in the log."""
    return f"{condition} AND {layout.key_in(_logged(layout, names), negated=True)}"


def _logged(layout: Layout, names: Names) -> str:
    return f"SELECT {', '.join(map(quote, layout.key_marks))} FROM {quote(names.log)}"


def _differing(tx: Transaction, layout: Layout, names: Names, driver: SqliteDriver) -> list[Bound]:
    """Return the keys whose rows the shadow lacks or has otherwise."""
    order = layout.new_order(driver, names.shadow)
    return [order.bound_of(row) for row in tx.run_verbatim(differing_text(layout, names, driver), (_DIFFERING_MAX,)).rows]


def differing_text(layout: Layout, names: Names, driver: SqliteDriver) -> str:
    """Return the query for them, beside the rows that were put into the temporary table."""
    order = layout.new_order(driver, names.shadow)
    unequal = " OR ".join(
        f"typeof(t.{column}) <> typeof(s.{column}) OR t.{column} COLLATE BINARY IS NOT s.{column}"
        for column in map(quote, layout.compared)
    )
    return (
        f"SELECT {order.select_list(qualifier='t')} FROM temp.{quote(names.trial)} AS t"
        f" LEFT JOIN {quote(names.shadow)} AS s ON {layout.new_key_is('s', 't')}"
        f" WHERE s.{quote(layout.key[0].new_name)} IS NULL OR {unequal or '0'} LIMIT ?"
    )


def _only_in_shadow(tx: Transaction, layout: Layout, names: Names, driver: SqliteDriver, chunk: KeyRange) -> list[Bound]:
    """Return the keys that the shadow has and the source does not."""
    order = layout.new_order(driver, names.shadow)
    condition, binds = order.where(chunk, qualifier="s")
    sql = only_in_shadow_text(layout, names, driver, condition)
    return [order.bound_of(row) for row in tx.run_verbatim(sql, (*binds, _DIFFERING_MAX)).rows]


def only_in_shadow_text(layout: Layout, names: Names, driver: SqliteDriver, condition: str) -> str:
    """Return the query for them; the condition is on the shadow's row `s`."""
    order = layout.new_order(driver, names.shadow)
    return (
        f"SELECT {order.select_list(qualifier='s')} FROM {quote(names.shadow)} AS s WHERE {condition}"
        f" AND NOT EXISTS (SELECT 1 FROM temp.{quote(names.trial)} AS t WHERE {layout.new_key_is('t', 's')})"
        f" AND {layout.new_key_in(_logged(layout, names), negated=True, qualifier='s')} LIMIT ?"
    )


def rows_of(tx: Transaction, layout: Layout, names: Names, driver: SqliteDriver, key: Bound) -> dict[str, dict[str, str]]:
    """Return both rows of one key, each value as SQL text of bounded length."""
    found: dict[str, dict[str, str]] = {}
    sides = (
        ("source", layout.table, layout.order(driver), layout.old.columns),
        ("copy", names.shadow, layout.new_order(driver, names.shadow), layout.new.columns),
    )
    for side, table, order, columns in sides:
        texts = ", ".join(f"substr(quote({quote(name)}), 1, {_EVIDENCE_CHARACTERS})" for name in columns)
        values, binds = order.literal(key)
        rows = tx.run_verbatim(f"SELECT {texts} FROM {quote(table)} WHERE ({order.select_list()}) = ({values})", binds).rows
        found[side] = dict(zip(columns, map(str, rows[0]), strict=True)) if rows else {}
    return found
