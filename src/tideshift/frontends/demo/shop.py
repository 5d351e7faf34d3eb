"""The shop: its schema, and rows that follow from their number, so that anybody can work them out again."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

from tideshift.dialects.sqlite.library import sqlite_library

__all__ = [
    "CHANGE", "CUSTOMERS", "PRODUCTS", "STATUSES", "Order", "build", "first_order_ids", "largest_amounts", "open_shop", "schema",
    "schema_expected", "seeded_order", "seeded_payment", "seeded_stock",
]  # fmt: skip

CUSTOMERS = 2_000
PRODUCTS = 500
STATUSES = ("new", "paid", "packed", "shipped", "returned")
STOCK = 1_000_000
PAID_EVERY = 4
"""Each fourth of the first orders has a payment."""
FIRST_ORDER_AT = 1_700_000_000

CHANGE = "ALTER TABLE orders ALTER COLUMN amount_cents TYPE INTEGER USING CAST(amount_cents AS INTEGER)"

TABLES = """
CREATE TABLE customers (
    id    INTEGER PRIMARY KEY,
    name  TEXT NOT NULL,
    email TEXT NOT NULL UNIQUE COLLATE NOCASE
);
CREATE TABLE products (
    id          INTEGER PRIMARY KEY,
    name        TEXT NOT NULL,
    price_cents INTEGER NOT NULL,
    stock       INTEGER NOT NULL
);
CREATE TABLE orders (
    id           INTEGER PRIMARY KEY,
    customer_id  INTEGER NOT NULL REFERENCES customers (id),
    product_id   INTEGER NOT NULL REFERENCES products (id),
    quantity     INTEGER NOT NULL CHECK (quantity > 0),
    amount_cents TEXT NOT NULL,  -- of the whole order
    status       TEXT NOT NULL DEFAULT 'new' CHECK (status IN ('new', 'paid', 'packed', 'shipped', 'returned')),
    placed_at    INTEGER NOT NULL
);
CREATE TABLE payments (
    id       INTEGER PRIMARY KEY,
    order_id INTEGER NOT NULL UNIQUE REFERENCES orders (id) ON DELETE CASCADE ON UPDATE CASCADE
);
"""
ATTACHED = """
CREATE INDEX orders_by_customer ON orders (customer_id, placed_at DESC);
CREATE INDEX orders_by_amount ON orders (amount_cents);
CREATE TRIGGER orders_take_stock AFTER INSERT ON orders BEGIN
    UPDATE products SET stock = stock - new.quantity WHERE id = new.product_id;
END;
CREATE VIEW revenue AS
    SELECT status, count(*) AS orders, sum(amount_cents) / 100.0 AS amount FROM orders GROUP BY status;
"""


class Order(NamedTuple):
    """One order without its number; the amount is a number here, whatever the table's column holds."""

    customer_id: int
    product_id: int
    quantity: int
    amount_cents: int
    status: str
    placed_at: int


def open_shop(path: Path, *, wait_seconds: float = 60.0) -> Any:
    """Open the shop as an application does: autocommit, references checked, commits as is usual in WAL mode."""
    module, _ = sqlite_library()
    connection = module.connect(str(path), timeout=wait_seconds, isolation_level=None, check_same_thread=False)
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute("PRAGMA synchronous = NORMAL")
    return connection


def seeded_order(order_id: int) -> Order:
    """Work out one of the first orders."""
    mixed = order_id * 2_654_435_761 % 4_294_967_296
    quantity = 1 + mixed % 5
    return Order(
        customer_id=1 + mixed % CUSTOMERS,
        product_id=1 + mixed // 7 % PRODUCTS,
        quantity=quantity,
        amount_cents=quantity * (95 + mixed // 31 % 49_900),
        status=STATUSES[mixed // 11 % len(STATUSES)],
        placed_at=FIRST_ORDER_AT + order_id * 60,
    )


def seeded_payment(order_id: int) -> int | None:
    """Return the number of the payment of one of the first orders, if it has one."""
    return order_id if order_id % PAID_EVERY == 0 else None


def seeded_stock() -> dict[int, int]:
    """Return the stock of each product before the first writer starts."""
    return dict.fromkeys(range(1, PRODUCTS + 1), STOCK)


def first_order_ids(rows: int, *, writer: int, writers: int) -> range:
    """Return the first orders that one writer owns: each order belongs to one writer, so that each log stands alone."""
    return range(writer + 1, rows + 1, writers)


def build(path: Path, rows: int) -> None:
    """Make the shop in a new file in WAL mode, with `rows` orders."""
    module, _ = sqlite_library()
    with closing(module.connect(str(path), isolation_level=None)) as connection:
        for setting in ("journal_mode = WAL", "synchronous = OFF", "temp_store = MEMORY", "cache_size = -65536"):
            connection.execute(f"PRAGMA {setting}").fetchall()
        connection.executescript(TABLES)
        connection.execute("BEGIN")
        connection.executemany(
            "INSERT INTO customers VALUES (?, ?, ?)",
            ((number, f"Customer {number}", f"customer{number}@shop.example") for number in range(1, CUSTOMERS + 1)),
        )
        connection.executemany(
            "INSERT INTO products VALUES (?, ?, ?, ?)",
            ((number, f"Product {number}", 100 + number * 7, stock) for number, stock in seeded_stock().items()),
        )
        connection.executemany("INSERT INTO orders VALUES (?, ?, ?, ?, ?, ?, ?)", _order_rows(rows))
        connection.executemany(
            "INSERT INTO payments VALUES (?, ?)",
            ((number, number) for number in range(1, rows + 1) if seeded_payment(number) is not None),
        )
        connection.execute("COMMIT")
        connection.executescript(ATTACHED)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


def _order_rows(rows: int) -> Iterator[tuple[int, int, int, int, str, str, int]]:
    for number in range(1, rows + 1):
        order = seeded_order(number)
        yield (number, *order[:3], str(order.amount_cents), *order[4:])


def schema(connection: Any, *, ours: str = "tideshift") -> dict[tuple[str, str], str | None]:
    """Return the text of everything in the user's schema, without the system tables."""
    found = connection.execute("SELECT type, name, sql FROM sqlite_master").fetchall()
    return {(kind, name): sql for kind, name, sql in found if not name.lower().startswith((ours, f"sqlite_autoindex_{ours}"))}


def schema_expected(before: dict[tuple[str, str], str | None]) -> dict[tuple[str, str], str | None]:
    """Return the schema after the change: everything as before, but for one word."""
    after = dict(before)
    text, number = re.subn(r"(amount_cents\s+)TEXT", r"\1INTEGER", before["table", "orders"] or "")
    assert number == 1, "the type stands in the text once"
    after["table", "orders"] = text
    return after


def largest_amounts(connection: Any, *, limit: int = 4) -> list[str]:
    """Return the amounts that the database itself takes for the largest, by its index."""
    return [str(row[0]) for row in connection.execute("SELECT amount_cents FROM orders ORDER BY amount_cents DESC LIMIT ?", (limit,))]
