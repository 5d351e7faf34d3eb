"""Carrying source rows into a table of the new shape, and finding the row that does not fit.

Always INSERT OR ABORT: the statement's own clause overrides whatever ON CONFLICT stands in a constraint, so that nothing
is ever replaced or skipped silently. A statement that fails leaves the transaction as it was before that statement.
"""

from __future__ import annotations

import re
from typing import Any

from tideshift.dialects.sqlite.driver import SqliteDriver, quote
from tideshift.dialects.sqlite.layout import Layout
from tideshift.errors import TideshiftError, ValueRefused
from tideshift.store.database import ConstraintViolated, DatabaseFailed, Transaction
from tideshift.store.keys import Bound, decode_value

__all__ = ["ROW_REFUSED", "insert_rows", "insert_text", "refusal"]

ROW_REFUSED = (ConstraintViolated, DatabaseFailed)
"""What a row can cause: a constraint of the new shape, or an error inside an expression."""

_SAVEPOINT = "tideshift_try"
_SHOWN_CHARACTERS = 60


def insert_rows(tx: Transaction, layout: Layout, target: str, condition: str, binds: tuple[Any, ...], *, tail: str = "") -> int:
    """Insert the source rows of a condition, mapped, into a table; return how many."""
    return tx.run_verbatim(insert_text(layout, target, condition) + tail, binds).affected


def insert_text(layout: Layout, target: str, condition: str) -> str:
    """Return the statement that does so."""
    return f"INSERT OR ABORT INTO {quote(target)} ({layout.written_list}) SELECT {layout.mapped_list} FROM {quote(layout.table)} WHERE {condition}"


def refusal(
    tx: Transaction,
    layout: Layout,
    driver: SqliteDriver,
    *,
    target: str,
    where: tuple[str, tuple[Any, ...]],
    error: TideshiftError,
) -> TideshiftError:
    """Find the first row, in key order, that the target refuses: the error that names it, or the one given if none does."""
    condition, binds = where
    order = layout.order(driver)
    source = quote(layout.table)
    rows = int(tx.run_verbatim(f"SELECT count(*) FROM {source} WHERE {condition}", binds).scalar())

    def fits(count: int) -> TideshiftError | None:
        tail = f" ORDER BY {order.order_by()} LIMIT {count}"
        tx.run_verbatim(f"SAVEPOINT {_SAVEPOINT}")
        try:
            insert_rows(tx, layout, target, condition, binds, tail=tail)
        except ROW_REFUSED as refused:
            return refused
        finally:
            tx.run_verbatim(f"ROLLBACK TO {_SAVEPOINT}")
            tx.run_verbatim(f"RELEASE {_SAVEPOINT}")
        return None

    found = fits(rows)
    if found is None or fits(0) is not None:
        return error
    accepted, refused = 0, rows
    # Ends: the distance halves.
    while refused - accepted > 1:
        middle = (accepted + refused) // 2
        reason = fits(middle)
        if reason is None:
            accepted = middle
        else:
            refused, found = middle, reason
    sql = f"SELECT {order.select_list()} FROM {source} WHERE {condition} ORDER BY {order.order_by()} LIMIT 1 OFFSET ?"
    key = order.bound_of(tx.run_verbatim(sql, (*binds, refused - 1)).rows[0])
    return _value_refused(layout, target, key, found)


def _value_refused(layout: Layout, target: str, key: Bound, error: TideshiftError) -> ValueRefused:
    reason = _in_the_users_words(layout, target, error.message)
    shown = ", ".join(
        f"{name} = {_shown(decode_value(pair))}" for name, pair in zip(layout.shown_key, key, strict=True)
    )
    return ValueRefused(
        f"the row of {layout.table} with {shown} does not fit the new shape: {reason}",
        table=layout.table,
        column=layout.changed[0] if layout.changed else None,
        key=key,
        reason=reason,
        **_hint(layout, reason),
    )


def _hint(layout: Layout, reason: str) -> dict[str, str]:
    """Say what to do where a USING expression is of no help: no column's values are converted."""
    if "NOT NULL" in reason and not any(reason.endswith(f".{name}") for name in layout.old.columns):
        return {"hint": "Give the new column a DEFAULT, or add it without NOT NULL; then submit the change again."}
    return {} if layout.converted else {"hint": "Correct the row, then submit the change again."}


def _in_the_users_words(layout: Layout, target: str, text: str) -> str:
    """Put the names of the user's table and indexes where the library names ours."""
    prefix = target.rpartition("_")[0]

    def index_name(found: re.Match[str]) -> str:
        number = int(found[1])
        return layout.made_indexes[number - 1].name if 1 <= number <= len(layout.made_indexes) else found[0]

    return re.sub(rf"{re.escape(prefix)}_index_([0-9]+)", index_name, text).replace(target, layout.table)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN_CHARACTERS else text[: _SHOWN_CHARACTERS - 1] + "…"
