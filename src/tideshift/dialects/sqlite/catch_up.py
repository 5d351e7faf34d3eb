"""Applying the key log: delete the keys from the shadow, insert the source's current rows, forget those log rows.

Idempotent and free of order, since a key says only *that* a row changed. A key that the copy has not reached yet may be
applied early: the copy empties its range first.
"""

from __future__ import annotations

from tideshift.ddl.dialect import AppliedBatch
from tideshift.dialects import points
from tideshift.dialects.sqlite.driver import SqliteDriver, quote
from tideshift.dialects.sqlite.layout import Layout
from tideshift.dialects.sqlite.names import Names
from tideshift.dialects.sqlite.rows import ROW_REFUSED, insert_rows, insert_text, refusal
from tideshift.store.database import Transaction

__all__ = ["apply_batch", "apply_statements", "apply_texts", "settle"]


def apply_batch(tx: Transaction, layout: Layout, names: Names, driver: SqliteDriver, *, rows_max: int) -> AppliedBatch:
    """Apply the oldest log rows, or all of them when a unique value has moved between rows of different batches."""
    last = tx.run_verbatim(_oldest_text(names), (rows_max,)).scalar()
    if last is None:
        return AppliedBatch(log_rows=0, keys=0)
    try:
        _apply(tx, layout, names, int(last))
    except ROW_REFUSED:
        return settle(tx, layout, names, driver)
    return _consume(tx, layout, names, int(last))


def settle(tx: Transaction, layout: Layout, names: Names, driver: SqliteDriver) -> AppliedBatch:
    """Apply the whole log; a conflict that is left is one of the source's own rows, and is raised with its key."""
    if points.SETTLE.on:
        points.SETTLE.fire(job=names.job_id)
    last = tx.run_verbatim(f"SELECT max(\"seq\") FROM {quote(names.log)}").scalar()
    if last is None:
        return AppliedBatch(log_rows=0, keys=0)
    try:
        _apply(tx, layout, names, int(last))
    except ROW_REFUSED as error:
        condition = layout.key_in(_logged(layout, names, int(last)))
        raise refusal(tx, layout, driver, target=names.shadow, where=(condition, ()), error=error) from error
    return _consume(tx, layout, names, int(last))


def apply_texts(layout: Layout, names: Names, last: int | str) -> list[str]:
    """Return every statement that one batch takes, up to the log row `last`."""
    delete, _ = apply_statements(layout, names, last)
    insert = insert_text(layout, names.shadow, layout.key_in(_logged(layout, names, last)))
    return [_oldest_text(names), delete, insert, _consume_text(names)]


def _oldest_text(names: Names) -> str:
    return f"SELECT max(\"seq\") FROM (SELECT \"seq\" FROM {quote(names.log)} ORDER BY \"seq\" LIMIT ?)"


def _consume_text(names: Names) -> str:
    return f"DELETE FROM {quote(names.log)} WHERE \"seq\" <= ?"


def _logged(layout: Layout, names: Names, last: int | str) -> str:
    """Return the query for the keys of the first log rows."""
    marks = ", ".join(map(quote, layout.key_marks))
    return f"SELECT {marks} FROM {quote(names.log)} WHERE \"seq\" <= {last}"


def apply_statements(layout: Layout, names: Names, last: int | str) -> tuple[str, str]:
    """Return the two statements that do the work, for whoever wants to see how they are planned."""
    keys = _logged(layout, names, last)
    return (
        f"DELETE FROM {quote(names.shadow)} WHERE {layout.new_key_in(keys)}",
        f"SELECT {layout.mapped_list} FROM {quote(layout.table)} WHERE {layout.key_in(keys)}",
    )


def _apply(tx: Transaction, layout: Layout, names: Names, last: int) -> None:
    if points.APPLY_DELETE.on:
        points.APPLY_DELETE.fire(job=names.job_id)
    delete, _ = apply_statements(layout, names, last)
    tx.run_verbatim(delete)
    if points.APPLY_INSERT.on:
        points.APPLY_INSERT.fire(job=names.job_id)
    insert_rows(tx, layout, names.shadow, layout.key_in(_logged(layout, names, last)), ())


def _consume(tx: Transaction, layout: Layout, names: Names, last: int) -> AppliedBatch:
    if points.APPLY_CONSUME.on:
        points.APPLY_CONSUME.fire(job=names.job_id)
    keys = _logged(layout, names, last)
    distinct = tx.run_verbatim(f"SELECT count(*) FROM (SELECT DISTINCT * FROM ({keys}))").scalar()
    removed = tx.run_verbatim(_consume_text(names), (last,)).affected
    return AppliedBatch(log_rows=removed, keys=int(distinct))
