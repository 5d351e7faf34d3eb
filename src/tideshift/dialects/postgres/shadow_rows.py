"""Copying rows into the shadow and applying the log, each in the transaction that it is given.

A chunk holds the fence shared and the applier holds it alone: a change is never consumed while a chunk that may still
carry the older row is under way. The lock is a statement of its own, so that what follows it sees everything that was
committed before it was had.

A batch is one statement, hence one snapshot: it takes log rows, deletes their keys from the shadow and inserts the
source's rows of now. Applied to the whole log it makes the shadow equal the source at one instant.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tideshift.ddl.dialect import AppliedBatch, ChunkResult
from tideshift.dialects import points
from tideshift.dialects.postgres.capture import key_index_stands
from tideshift.dialects.postgres.driver import PostgresDriver, quote
from tideshift.dialects.postgres.layout import KeyColumn, Layout, Names
from tideshift.dialects.postgres.source import user_path
from tideshift.errors import Retryable, ValueRefused
from tideshift.store.database import ConstraintViolated, DatabaseFailed, Transaction
from tideshift.store.keys import Bound, KeyRange

__all__ = ["ROW_REFUSED", "WHOLE_LOG", "apply_batch", "copy_chunk", "equal_keys", "fence", "first_refused", "valued"]

ROW_REFUSED = (ConstraintViolated, DatabaseFailed)
"""What a value that the new shape has no room for is refused with."""
WHOLE_LOG = 1 << 40
_LOOKED_AT_MAX = 5_000
_RESETS_MAX = 5
_BY_INDEX = (
    "SELECT pg_catalog.set_config('enable_seqscan', 'off', true), pg_catalog.set_config('enable_hashjoin', 'off', true),"
    " pg_catalog.set_config('enable_mergejoin', 'off', true)"
)
"""A shadow that was never analyzed is guessed to be small: rows are found by the key's index all the same."""


def fence(tx: Transaction, job_id: int, *, shared: bool) -> None:
    """Wait for the fence of a job, and hold it to the end of the transaction."""
    number = int.from_bytes(hashlib.sha256(f"tideshift fence {job_id}".encode()).digest()[:8], "big", signed=True)
    tx.run_verbatim(f"SELECT pg_catalog.pg_advisory_xact_lock{'_shared' if shared else ''}($1)", (number,))


@contextmanager
def valued(tx: Transaction, layout: Layout) -> Iterator[None]:
    """Read the user's texts by the user's search path, where there are any."""
    if not layout.uses_path:
        yield
        return
    with user_path(tx, layout.search_path):
        yield


def equal_keys(key: tuple[KeyColumn, ...], lefts: list[str], rights: list[str]) -> str:
    """Write that two keys are equal, by the operators of their types whatever the search path."""
    signs = ["=" if one.operators == "pg_catalog" else f"OPERATOR({quote(one.operators)}.=)" for one in key]
    return " AND ".join(f"{left} {sign} {right}" for left, sign, right in zip(lefts, signs, rights, strict=True))


# ── the copy ──────────────────────────────────────────────────────────────────────────────────────────────────────


def copy_chunk(
    tx: Transaction, layout: Layout, names: Names, driver: PostgresDriver, key_range: KeyRange, *, rows_max: int, dense: bool = False
) -> ChunkResult:
    """Copy the first rows of the range; where the shadow has its key's index already, what the log brought there goes first.

    Where the key's numbers are known to lie close together, so many numbers are taken as there may be rows, and nobody counts.
    """
    fence(tx, names.job_id, shared=True)
    order = layout.order(driver)
    last = (order.some_numbers_on(tx, key_range, numbers=rows_max) if dense else None) or order.next_bound(tx, key_range, rows=rows_max)
    if last is None:
        return ChunkResult(rows=0, size_bytes=0, last=None)
    chunk = KeyRange(key_range.low, last)
    if key_index_stands(tx, layout, names):
        if points.COPY_CLEAR.on:
            points.COPY_CLEAR.fire(job=names.job_id)
        condition, binds = layout.new_order(driver, names.bare_shadow).where(chunk)
        tx.run_verbatim(f"DELETE FROM {names.shadow} WHERE {condition}", binds)
    if points.COPY_INSERT.on:
        points.COPY_INSERT.fire(job=names.job_id)
    rows = _tried(tx, lambda: _insert_range(tx, layout, names.shadow, driver, chunk), lambda: first_refused(tx, layout, names.shadow, driver, chunk))
    if points.COPIED.on:
        points.COPIED.fire(job=names.job_id)
    return ChunkResult(rows=rows, size_bytes=rows * layout.row_bytes, last=last)


def _insert_range(tx: Transaction, layout: Layout, target: str, driver: PostgresDriver, chunk: KeyRange) -> int:
    condition, binds = layout.order(driver).where(chunk)
    with valued(tx, layout):
        return tx.run_verbatim(f"INSERT INTO {target} {layout.insert} SELECT {layout.values} FROM {layout.source} WHERE {condition}", binds).affected


def _tried(tx: Transaction, work: Callable[[], int], refused: Callable[[], ValueRefused | None]) -> int:
    """Do the work; where a row is refused, find out which, with everything of the failed try taken back."""
    tx.run_verbatim("SAVEPOINT tideshift_rows")
    try:
        done = work()
    except ROW_REFUSED as error:
        tx.run_verbatim("ROLLBACK TO SAVEPOINT tideshift_rows")
        found = refused()
        if found is None:
            raise
        raise found from error
    tx.run_verbatim("RELEASE SAVEPOINT tideshift_rows")
    return done


def first_refused(tx: Transaction, layout: Layout, target: str, driver: PostgresDriver, chunk: KeyRange) -> ValueRefused | None:
    """Find the first row of a range that the target refuses, by halving; None when it takes every one by now."""
    order = layout.order(driver)
    low, high = chunk.low, chunk.high
    condition, binds = order.where(chunk)
    rows = int(tx.run_verbatim(f"SELECT count(*) FROM {layout.source} WHERE {condition}", binds).scalar())
    while rows > 1:
        middle = order.next_bound(tx, KeyRange(low, high), rows=rows // 2)
        if middle is None:
            return None
        if _refuses(tx, layout, target, driver, KeyRange(low, middle)) is None:
            low, rows = middle, rows - rows // 2
        else:
            high, rows = middle, rows // 2
    message = _refuses(tx, layout, target, driver, KeyRange(low, high))
    key = order.next_bound(tx, KeyRange(low, high), rows=1)
    return None if message is None or key is None else refusal(layout, key, message)


def _refuses(tx: Transaction, layout: Layout, target: str, driver: PostgresDriver, chunk: KeyRange) -> str | None:
    tx.run_verbatim("SAVEPOINT tideshift_try")
    try:
        _insert_range(tx, layout, target, driver, chunk)
        message = None
    except ROW_REFUSED as error:
        message = error.message
    tx.run_verbatim("ROLLBACK TO SAVEPOINT tideshift_try")
    return message


def refusal(layout: Layout, key: Bound, message: str) -> ValueRefused:
    """Make the error that names the row and says why in the server's words."""
    written = ", ".join(f"{column.name} = {text}" for column, (_, text) in zip(layout.key, key, strict=True))
    lines = [line for line in message.splitlines() if not line.startswith(("CONTEXT:", "LINE "))]
    return ValueRefused(f"the row with {written} does not fit: {' '.join(lines[:2])}", key=key, table=layout.table)


# ── catching up ───────────────────────────────────────────────────────────────────────────────────────────────────


def apply_batch(tx: Transaction, layout: Layout, names: Names, driver: PostgresDriver, *, rows_max: int) -> AppliedBatch:
    """Apply some log rows, whichever lie first; on a conflict the whole log, which brings shadow and source to one instant."""
    fence(tx, names.job_id, shared=False)
    tx.run_verbatim(_BY_INDEX)
    tx.run_verbatim("SAVEPOINT tideshift_batch")
    try:
        batch = _apply(tx, layout, names, rows_max)
    except ROW_REFUSED:
        tx.run_verbatim("ROLLBACK TO SAVEPOINT tideshift_batch")
        if points.SETTLE.on:
            points.SETTLE.fire(job=names.job_id)
        try:
            batch = _apply(tx, layout, names, WHOLE_LOG)
        except ROW_REFUSED as error:
            tx.run_verbatim("ROLLBACK TO SAVEPOINT tideshift_batch")
            raise _refused_of_log(tx, layout, names, driver, error.message) from error
    tx.run_verbatim("RELEASE SAVEPOINT tideshift_batch")
    return batch


def _apply(tx: Transaction, layout: Layout, names: Names, rows_max: int) -> AppliedBatch:
    """Apply a batch; when its snapshot sees that the table was emptied, that comes first and the batch is taken anew."""
    sql = _apply_text(layout, names)
    for _ in range(_RESETS_MAX):
        if points.APPLY_DELETE.on:
            points.APPLY_DELETE.fire(job=names.job_id)
        tx.run_verbatim("SAVEPOINT tideshift_apply")
        with valued(tx, layout):
            taken, keys, _, reset = tx.run_verbatim(sql, (rows_max,)).rows[0]
        if not reset:
            tx.run_verbatim("RELEASE SAVEPOINT tideshift_apply")
            if points.APPLY_CONSUME.on:
                points.APPLY_CONSUME.fire(job=names.job_id)
            return AppliedBatch(log_rows=int(taken), keys=int(keys))
        tx.run_verbatim("ROLLBACK TO SAVEPOINT tideshift_apply")
        _reset(tx, names)
    raise Retryable(f"{layout.source} is emptied again and again")


def _reset(tx: Transaction, names: Names) -> None:
    """A TRUNCATE empties the shadow; what was written since is in the log, and what was before is looked up in vain."""
    tx.run_verbatim(f"DELETE FROM {names.log} WHERE reset")
    tx.run_verbatim(f"TRUNCATE {names.shadow}")


def _apply_text(layout: Layout, names: Names) -> str:
    logs = [f"tideshift_keys.{one}" for one in layout.log_columns]
    in_shadow = equal_keys(layout.key, [f"s.{quote(one.new_name)}" for one in layout.key], logs)
    in_source = equal_keys(layout.key, [f"{layout.source}.{quote(one.name)}" for one in layout.key], logs)
    return f"""
WITH tideshift_taken AS (DELETE FROM {names.log} WHERE ctid = ANY (ARRAY(SELECT ctid FROM {names.log} WHERE reset IS NULL LIMIT $1)) RETURNING {layout.log_key}),
     tideshift_keys AS MATERIALIZED (SELECT DISTINCT {layout.log_key} FROM tideshift_taken),
     tideshift_gone AS (DELETE FROM {names.shadow} AS s USING tideshift_keys WHERE {in_shadow} RETURNING 1),
     tideshift_put AS (INSERT INTO {names.shadow} {layout.insert} SELECT {layout.values} FROM tideshift_keys, {layout.source}
                        WHERE (SELECT count(*) FROM tideshift_gone) >= 0 AND {in_source} RETURNING 1)
SELECT (SELECT count(*) FROM tideshift_taken), (SELECT count(*) FROM tideshift_keys), (SELECT count(*) FROM tideshift_put),
       EXISTS (SELECT 1 FROM {names.log} WHERE reset)
"""


def _refused_of_log(tx: Transaction, layout: Layout, names: Names, driver: PostgresDriver, message: str) -> ValueRefused:
    """Name the first logged row that is refused by itself; what only two rows together violate, the server names."""
    order = layout.order(driver)
    logs = [f"keys.{one}" for one in layout.log_columns]
    in_source = equal_keys(layout.key, [f"{layout.source}.{quote(one.name)}" for one in layout.key], logs)
    rows = tx.run_verbatim(
        f"SELECT {order.select_list()} FROM {layout.source} WHERE EXISTS (SELECT 1 FROM {names.log} AS keys WHERE {in_source}) LIMIT {_LOOKED_AT_MAX}"
    ).rows
    for row in rows:
        key = order.bound_of(row)
        values = [f"${number}::text::{one.type_text}" for number, one in enumerate(layout.key, start=1)]
        binds = tuple(text for _, text in key)
        tx.run_verbatim("SAVEPOINT tideshift_try")
        try:
            tx.run_verbatim(f"DELETE FROM {names.shadow} AS s WHERE {equal_keys(layout.key, [f's.{quote(one.new_name)}' for one in layout.key], values)}", binds)
            with valued(tx, layout):
                where = equal_keys(layout.key, [f"{layout.source}.{quote(one.name)}" for one in layout.key], values)
                tx.run_verbatim(f"INSERT INTO {names.shadow} {layout.insert} SELECT {layout.values} FROM {layout.source} WHERE {where}", binds)
        except ROW_REFUSED as error:
            tx.run_verbatim("ROLLBACK TO SAVEPOINT tideshift_try")
            return refusal(layout, key, error.message)
        tx.run_verbatim("ROLLBACK TO SAVEPOINT tideshift_try")
    return ValueRefused(f"the rows of {layout.source} do not fit the new shape: {message.splitlines()[0]}", table=layout.table)
