"""The classic way, for comparison: the twelve steps of SQLite's manual, in one transaction, on a copy of the shop.

Run as a process it writes into a file how many seconds the write lock was held.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from tideshift.frontends.demo.shop import open_shop, schema, schema_expected

__all__ = ["main", "rebuild"]


def rebuild(connection: Any) -> float:
    """Rebuild `orders` with its new type; return how long the write lock was held."""
    before = schema(connection)
    text = schema_expected(before)["table", "orders"]
    assert text is not None
    connection.execute("PRAGMA foreign_keys = OFF")
    connection.execute("BEGIN IMMEDIATE")
    begun = time.monotonic()
    # A view on the table stands in the way of its renaming, so it goes first and comes back last.
    connection.execute("DROP VIEW revenue")
    connection.execute(text.replace("CREATE TABLE orders", "CREATE TABLE orders_new", 1))
    connection.execute(
        "INSERT INTO orders_new SELECT id, customer_id, product_id, quantity, CAST(amount_cents AS INTEGER), status, placed_at FROM orders"
    )
    connection.execute("DROP TABLE orders")
    connection.execute("ALTER TABLE orders_new RENAME TO orders")
    for name in ("orders_by_customer", "orders_by_amount"):
        connection.execute(before["index", name])
    connection.execute(before["trigger", "orders_take_stock"])
    connection.execute(before["view", "revenue"])
    broken = connection.execute("PRAGMA foreign_key_check").fetchall()
    connection.execute("COMMIT")
    held_seconds = time.monotonic() - begun
    if broken:
        raise LookupError(f"the rebuild left broken references: {broken[:3]}")
    connection.execute("PRAGMA foreign_keys = ON")
    return held_seconds


def main(arguments: Sequence[str]) -> int:
    """Rebuild the table of the shop: PATH RESULT_PATH."""
    path, result_path = arguments
    with closing(open_shop(Path(path))) as connection:
        Path(result_path).write_text(str(rebuild(connection)))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
