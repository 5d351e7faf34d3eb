"""Filling a new column, seeing which rows it refuses, and comparing it, each in the transaction that it is given.

A chunk waits for a row that somebody has locked for less than `deadlock_timeout`: whoever waits for us in turn is let
through before the server would end one of the two. Where others' triggers would fire for it, it is written as replication
writes, which fires only what is always fired: nothing of the row but the new column changes, so nobody has to know.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tideshift.ddl.in_place import ChunkResult, Comparison
from tideshift.ddl.reshaping import Reorg
from tideshift.dialects import points
from tideshift.dialects.postgres import in_place_trigger
from tideshift.dialects.postgres.driver import PostgresDriver, quote
from tideshift.dialects.postgres.in_place_layout import ColumnLayout, ColumnNames
from tideshift.dialects.postgres.keys import PostgresKeyOrder
from tideshift.errors import ValueRefused
from tideshift.store.database import ConstraintViolated, DatabaseFailed, Session, Transaction
from tideshift.store.keys import Bound, KeyRange

__all__ = ["PostgresInPlace", "see_refused"]

ROW_REFUSED = (ConstraintViolated, DatabaseFailed)
_LISTED_MAX = 200
_DIFFERING_MAX = 20
_ROW_WAIT = """
SELECT pg_catalog.set_config('lock_timeout', least(300, setting::int / 3)::text || 'ms', true) FROM pg_catalog.pg_settings WHERE name = 'deadlock_timeout'
"""
_TIDY = {"lock_timeout": "0", "statement_timeout": "0"}


class PostgresInPlace:
    """What `InPlace` asks for."""

    def __init__(self, driver: PostgresDriver) -> None:
        self._driver = driver
        self._last_read: tuple[Reorg, ColumnLayout, ColumnNames] | None = None

    def _read(self, reorg: Reorg) -> tuple[ColumnLayout, ColumnNames]:
        last = self._last_read
        if last is None or last[0] is not reorg:
            layout = ColumnLayout.of(reorg)
            last = self._last_read = (reorg, layout, ColumnNames.of(layout, reorg.job_id))
        return last[1], last[2]

    def key_order(self, reorg: Reorg) -> PostgresKeyOrder:
        """Return the order of the key by which rows are taken."""
        return ColumnLayout.of(reorg).order(self._driver)

    def parts(self, reorg: Reorg) -> int:
        """Return into how many ranges the table is cut, by its size when it was planned for."""
        return self._read(reorg)[0].parts

    def fill_chunk(self, tx: Transaction, reorg: Reorg, key_range: KeyRange, *, rows_max: int) -> ChunkResult:
        """Fill the first rows of the range."""
        layout, names = self._read(reorg)
        tx.run_verbatim(_ROW_WAIT)
        in_place_trigger.check(tx, layout, names)
        order = layout.order(self._driver)
        full = order.row_number(tx, key_range, rows=rows_max)
        last = full or order.next_bound(tx, key_range, rows=rows_max)
        if last is None:
            see_refused(tx, layout, names)
            return ChunkResult(rows=0, size_bytes=0, last=None)
        if points.FILL.on:
            points.FILL.fire(job=reorg.job_id)
        chunk = KeyRange(key_range.low, last)
        with _found_out(tx, lambda part: _fill(tx, layout, names, order, part), layout, order, chunk):
            filled = _fill(tx, layout, names, order, chunk)
        see_refused(tx, layout, names)
        if points.FILLED.on:
            points.FILLED.fire(job=reorg.job_id)
        rows = rows_max if full else filled
        return ChunkResult(rows=rows, size_bytes=rows * layout.row_bytes, last=last)

    def tidy(self, session: Session, reorg: Reorg) -> None:
        """Vacuum the table, unless somebody else does; its end stays as it is, since cutting it off would lock everybody out."""
        layout, _ = self._read(reorg)
        session.run_alone(f"VACUUM (SKIP_LOCKED, TRUNCATE false) {layout.source}", _TIDY)

    def compare_chunk(self, tx: Transaction, reorg: Reorg, key_range: KeyRange, *, rows_max: int) -> Comparison:
        """Compare the first rows of the range."""
        layout, names = self._read(reorg)
        in_place_trigger.check(tx, layout, names)
        see_refused(tx, layout, names, removes=False)
        order = layout.order(self._driver)
        last = order.next_bound(tx, key_range, rows=rows_max)
        if last is None:
            return Comparison(rows=0, excluded=0, differing=(), last=None)
        condition, binds = order.where(KeyRange(key_range.low, last), qualifier=layout.alias)
        source = f"{layout.source} AS {layout.alias} WHERE {condition}"
        wrong = layout.wrong(names.column)
        rows, differing = tx.run_verbatim(f"SELECT count(*), count(*) FILTER (WHERE {wrong}) FROM {source}", binds).rows[0]
        keys: list[Bound] = []
        if differing:
            found = tx.run_verbatim(f"SELECT {order.select_list(qualifier=layout.alias)} FROM {source} AND ({wrong}) LIMIT {_DIFFERING_MAX}", binds).rows
            keys = [order.bound_of(row) for row in found]
        return Comparison(rows=int(rows), excluded=0, differing=tuple(keys), last=last)


def _fill(tx: Transaction, layout: ColumnLayout, names: ColumnNames, order: PostgresKeyOrder, chunk: KeyRange) -> int:
    condition, binds = order.where(chunk, qualifier=layout.alias)
    if layout.owns_itself:
        tx.run_verbatim("SELECT pg_catalog.set_config('session_replication_role', 'replica', true)")
    sql = f"UPDATE {layout.source} AS {layout.alias} SET {quote(names.column)} = {layout.value} WHERE {condition} AND ({layout.wrong(names.column)})"
    filled = tx.run_verbatim(sql, binds).affected
    if layout.owns_itself:
        tx.run_verbatim("SELECT pg_catalog.set_config('session_replication_role', 'origin', true)")
    return filled


# ── rows that are refused ─────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _found_out(tx: Transaction, work: Callable[[KeyRange], int], layout: ColumnLayout, order: PostgresKeyOrder, chunk: KeyRange) -> Iterator[None]:
    """Where a row of a chunk is refused, find out which, with everything of the failed try taken back."""
    tx.run_verbatim("SAVEPOINT tideshift_rows")
    try:
        yield
    except ROW_REFUSED as error:
        tx.run_verbatim("ROLLBACK TO SAVEPOINT tideshift_rows")
        low, high = chunk.low, chunk.high
        condition, binds = order.where(chunk)
        rows = int(tx.run_verbatim(f"SELECT count(*) FROM {layout.source} WHERE {condition}", binds).scalar())
        while rows > 1 and (middle := order.next_bound(tx, KeyRange(low, high), rows=rows // 2)) is not None:
            if _refuses(tx, work, KeyRange(low, middle)) is None:
                low, rows = middle, rows - rows // 2
            else:
                high, rows = middle, rows // 2
        message, key = _refuses(tx, work, KeyRange(low, high)), order.next_bound(tx, KeyRange(low, high), rows=1)
        if message is None or key is None:
            raise
        raise refusal(layout, key, message) from error
    tx.run_verbatim("RELEASE SAVEPOINT tideshift_rows")


def _refuses(tx: Transaction, work: Callable[[KeyRange], int], chunk: KeyRange) -> str | None:
    tx.run_verbatim("SAVEPOINT tideshift_try")
    try:
        work(chunk)
        message = None
    except ROW_REFUSED as error:
        message = error.message
    tx.run_verbatim("ROLLBACK TO SAVEPOINT tideshift_try")
    return message


def see_refused(tx: Transaction, layout: ColumnLayout, names: ColumnNames, *, removes: bool = True) -> None:
    """Raise `ValueRefused` with the key of a listed row that is refused still; take those off the list that are not (any more)."""
    if layout.plain:
        return
    columns = [f"k{number}" for number, _ in enumerate(layout.key, start=1)]
    listed = ", ".join(columns)
    size = int(tx.run_verbatim("SELECT pg_catalog.pg_relation_size(pg_catalog.to_regclass($1))", (names.refused,)).scalar())
    while rows := tx.run_verbatim(f"SELECT {listed}, min(message) FROM {names.refused} GROUP BY {listed} LIMIT {_LISTED_MAX}").rows:
        for *texts, message in rows:
            key: Bound = [[one.type_text, text] for one, text in zip(layout.key, texts, strict=True)]
            if size >= in_place_trigger.LISTED_BYTES_MAX or _is_refused(tx, layout, names, texts):
                raise refusal(layout, key, str(message))
            if removes:
                same = " AND ".join(f"{column} = ${number}" for number, column in enumerate(columns, start=1))
                tx.run_verbatim(f"DELETE FROM {names.refused} WHERE {same}", tuple(texts))
        if not removes:
            return


def _is_refused(tx: Transaction, layout: ColumnLayout, names: ColumnNames, texts: list[str]) -> bool:
    """Whether the row of a key is there and has no value in the new column."""
    signs = ["=" if one.operators == "pg_catalog" else f"OPERATOR({quote(one.operators)}.=)" for one in layout.key]
    equal = [f"{layout.alias}.{quote(one.name)} {sign} ${number}::text::{one.type_text}" for number, (one, sign) in enumerate(zip(layout.key, signs, strict=True), start=1)]
    tx.run_verbatim("SAVEPOINT tideshift_try")
    try:
        found = tx.run_verbatim(f"SELECT {layout.wrong(names.column)} FROM {layout.source} AS {layout.alias} WHERE {' AND '.join(equal)}", tuple(texts)).rows
    except ROW_REFUSED:
        tx.run_verbatim("ROLLBACK TO SAVEPOINT tideshift_try")
        return True
    tx.run_verbatim("RELEASE SAVEPOINT tideshift_try")
    return any(row[0] for row in found)


def refusal(layout: ColumnLayout, key: Bound, message: str) -> ValueRefused:
    written = ", ".join(f"{column.name} = {text}" for column, (_, text) in zip(layout.key, key, strict=True))
    lines = [line for line in message.splitlines() if not line.startswith(("CONTEXT:", "LINE "))]
    return ValueRefused(f"the row with {written} does not fit: {' '.join(lines[:2])}", key=key, table=layout.table)
