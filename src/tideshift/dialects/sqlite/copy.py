"""Copying one range of rows into the shadow, inside the transaction that also writes the checkpoint."""

from __future__ import annotations

from tideshift.ddl.dialect import ChunkResult
from tideshift.dialects import points
from tideshift.dialects.sqlite.catch_up import settle
from tideshift.dialects.sqlite.driver import SqliteDriver, quote
from tideshift.dialects.sqlite.layout import Layout
from tideshift.dialects.sqlite.names import Names
from tideshift.dialects.sqlite.rows import ROW_REFUSED, insert_rows, refusal
from tideshift.store.database import Transaction
from tideshift.store.keys import KeyRange

__all__ = ["clear_text", "copy_chunk"]


def copy_chunk(
    tx: Transaction, layout: Layout, names: Names, driver: SqliteDriver, key_range: KeyRange, *, rows_max: int
) -> ChunkResult:
    """Copy the first rows of the range.

    A conflict may come from rows in the shadow that are behind the source: then the whole log is applied, which brings
    the shadow and the source to one instant, and the chunk is tried again. What conflicts still is the source's own.
    """
    order = layout.order(driver)
    last = order.next_bound(tx, key_range, rows=rows_max)
    if last is None:
        return ChunkResult(rows=0, size_bytes=0, last=None)
    chunk = KeyRange(key_range.low, last)
    try:
        rows = _copy(tx, layout, names, driver, chunk)
    except ROW_REFUSED:
        settle(tx, layout, names, driver)
        try:
            rows = _copy(tx, layout, names, driver, chunk)
        except ROW_REFUSED as error:
            raise refusal(tx, layout, driver, target=names.shadow, where=order.where(chunk), error=error) from error
    if points.COPIED.on:
        points.COPIED.fire(job=names.job_id)
    return ChunkResult(rows=rows, size_bytes=rows * layout.row_bytes, last=last)


def _copy(tx: Transaction, layout: Layout, names: Names, driver: SqliteDriver, chunk: KeyRange) -> int:
    if points.COPY_CLEAR.on:
        points.COPY_CLEAR.fire(job=names.job_id)
    condition, binds = layout.new_order(driver, names.shadow).where(chunk)
    tx.run_verbatim(clear_text(names, condition), binds)
    if points.COPY_INSERT.on:
        points.COPY_INSERT.fire(job=names.job_id)
    return insert_rows(tx, layout, names.shadow, *layout.order(driver).where(chunk))


def clear_text(names: Names, condition: str) -> str:
    """Return the statement that empties a range of the shadow, so that copying it twice is the same as once."""
    return f"DELETE FROM {quote(names.shadow)} WHERE {condition}"
