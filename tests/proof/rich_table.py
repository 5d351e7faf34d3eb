"""The rich table: one with everything that other tools are known to lose, and everything that may hang on it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from tests.proof.engine import application

__all__ = ["BESIDE", "ORDERS", "fill"]

ORDERS = """CREATE TABLE "orders" ( -- what was ordered, (and when)
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  customer varchar(20) NOT NULL COLLATE NOCASE,
  amount decimal(10,2) /* in euro, ( gross */ NOT NULL DEFAULT 0 CHECK (amount >= 0),
  state TEXT DEFAULT 'new' CONSTRAINT known_state CHECK (state IN ('new', 'sent', 'it''s lost')),
  weight INT DEFAULT (1 + 1),
  placed datetime DEFAULT CURRENT_TIMESTAMP,
  net AS (amount / 1.19),
  label TEXT GENERATED ALWAYS AS (customer || '#' || id) STORED,
  parent REFERENCES orders(id) ON DELETE SET NULL,
  region INTEGER,
  code TEXT UNIQUE ON CONFLICT IGNORE,
  CONSTRAINT "one of each" UNIQUE (customer, code) ON CONFLICT REPLACE,
  CONSTRAINT in_region FOREIGN KEY (region) REFERENCES region (id) ON UPDATE CASCADE DEFERRABLE INITIALLY DEFERRED
)"""

BESIDE = (
    "CREATE TABLE region (id INTEGER PRIMARY KEY, name TEXT UNIQUE)",
    "CREATE TABLE line (id INTEGER PRIMARY KEY, of INTEGER NOT NULL REFERENCES orders ON DELETE CASCADE, text TEXT)",
    "CREATE TABLE audit (at INTEGER PRIMARY KEY, what TEXT, amount)",
    "CREATE INDEX open_orders ON orders(customer) WHERE state = 'new' -- few",
    "CREATE INDEX by_label ON orders(lower(label), amount DESC)",
    "CREATE INDEX [by amount] ON \"orders\" (amount DESC, customer COLLATE RTRIM)",
    "CREATE UNIQUE INDEX by_placed ON orders(placed, id DESC) WHERE placed > '2020'",
    "CREATE TRIGGER noted AFTER UPDATE OF amount ON orders BEGIN INSERT INTO audit (what, amount) VALUES ('amount', NEW.amount); END",
    "CREATE TRIGGER region_gone AFTER DELETE ON region BEGIN UPDATE orders SET weight = 0 WHERE region = OLD.id; END",
    "CREATE VIEW big AS SELECT id, amount, net FROM orders WHERE amount > 50",
    "CREATE VIEW bigger AS SELECT o.*, r.name FROM big b JOIN \"orders\" o USING (id) LEFT JOIN region r ON r.id = o.region",
    "CREATE TRIGGER big_gone INSTEAD OF DELETE ON big BEGIN DELETE FROM orders WHERE id = OLD.id; END",
    "CREATE VIRTUAL TABLE found USING fts5(customer, label, content='orders', content_rowid='id')",
    "CREATE TRIGGER found_in AFTER INSERT ON orders BEGIN INSERT INTO found(rowid, customer, label) VALUES (NEW.id, NEW.customer, NEW.label); END",
    ("CREATE TRIGGER found_out AFTER DELETE ON orders BEGIN INSERT INTO found(found, rowid, customer, label)"
    " VALUES ('delete', OLD.id, OLD.customer, OLD.label); END"),
    ("CREATE TRIGGER found_new AFTER UPDATE ON orders BEGIN INSERT INTO found(found, rowid, customer, label)"
    " VALUES ('delete', OLD.id, OLD.customer, OLD.label); INSERT INTO found(rowid, customer, label) VALUES (NEW.id, NEW.customer, NEW.label); END"),
)


def fill(path: Path, *, orders: str = ORDERS, rows: int = 300) -> None:
    """Make the rich table with its rows and everything beside it, or a variant of it."""
    with closing(application(path)) as connection:
        connection.execute("PRAGMA journal_mode = wal").fetchone()
        for text in (orders, *BESIDE):
            # Without a word it is the primary key that is referred to, which some variants do not have, or lose.
            connection.execute(text.replace("REFERENCES orders ON", "REFERENCES orders (id) ON") if "id INTEGER NOT NULL" in orders else text)
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO region VALUES (?, ?)", [(n, f"region {n}") for n in range(1, 6)])
        for n in range(1, rows + 1):
            connection.execute(
                "INSERT INTO orders (id, customer, amount, state, placed, parent, region, code) VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (
                    n, f"Customer {n % 17} it's", (n * 37 % 1000) / 4, ("new", "sent", "it's lost", None)[n % 4], f"2024-01-{n % 28 + 1:02}",
                    n - 1 or None, n % 6 or None, None if n % 5 == 0 else f"c{n}",
                ),
            )  # fmt: skip
            connection.execute("INSERT INTO line (of, text) VALUES (?, ?)", (n, f"line of {n}"))
        connection.execute(f"DELETE FROM orders WHERE id > {rows - 10}")
        connection.execute("COMMIT")
        connection.execute("ANALYZE")
