"""The rich table: everything that other tools are known to lose, changed and changed back."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.proof.engine import application, on_engine
from tests.proof.reload import holds

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


def fill(path: Path, *, rows: int = 300) -> None:
    """Make the rich table with its rows and everything beside it."""
    with closing(application(path)) as connection:
        connection.execute("PRAGMA journal_mode = wal").fetchone()
        for text in (ORDERS, *BESIDE):
            connection.execute(text)
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO region VALUES (?, ?)", [(n, f"region {n}") for n in range(1, 6)])
        for n in range(1, rows + 1):
            connection.execute(
                "INSERT INTO orders (customer, amount, state, placed, parent, region, code) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (
                    f"Customer {n % 17} it's", (n * 37 % 1000) / 4, ("new", "sent", "it's lost", None)[n % 4], f"2024-01-{n % 28 + 1:02}",
                    n - 1 or None, n % 6 or None, None if n % 5 == 0 else f"c{n}",
                ),
            )  # fmt: skip
            connection.execute("INSERT INTO line (of, text) VALUES (?, ?)", (n, f"line of {n}"))
        connection.execute(f"DELETE FROM orders WHERE id > {rows - 10}")
        connection.execute("COMMIT")
        connection.execute("ANALYZE")


def orders_rows(path: Path) -> list[Any]:
    """Return the table's rows as they are."""
    return holds(path)["rows"]["orders"]


@pytest.mark.parametrize(
    ("column", "old_type", "new_type"),
    [("customer", "varchar(20)", "VARCHAR(200)"), ("amount", "decimal(10,2)", "NUMERIC"), ("weight", "INT", "BIGINT"), ("placed", "datetime", "TEXT")],
)
def test_only_the_type_changes_and_it_can_be_changed_back(sqlite_path: Path, column: str, old_type: str, new_type: str) -> None:
    """The catalogue is byte-identical but for the type, every row is as it was, and back again all is as at the start."""
    fill(sqlite_path)
    before = holds(sqlite_path)

    with on_engine(sqlite_path) as engine:
        there = engine.run(f"ALTER TABLE orders ALTER COLUMN {column} TYPE {new_type}", batch_size=40)
        between = holds(sqlite_path)
        back = engine.run(f"ALTER TABLE orders ALTER COLUMN {column} TYPE {old_type}", batch_size=40)

    after = holds(sqlite_path)
    text = ORDERS.replace(f"{column} {old_type}", f"{column} {new_type}")
    assert text != ORDERS
    assert (str(there.state), str(back.state)) == ("synced", "synced")
    assert between["schema"] == [
        (kind, name, table, text if (kind, name) == ("table", "orders") else sql) for kind, name, table, sql in before["schema"]
    ]
    assert between["rows"] == before["rows"]
    assert after == before


def test_what_hangs_on_the_table_still_works_afterwards(sqlite_path: Path) -> None:
    """Counter, cascade, triggers, full-text search, view and conflict clauses act as before the change."""
    fill(sqlite_path)
    with on_engine(sqlite_path) as engine:
        assert engine.run("ALTER TABLE orders ALTER amount TYPE REAL USING amount * 2", batch_size=40).error is None

    with closing(application(sqlite_path)) as connection:
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("INSERT INTO orders (customer, amount, code) VALUES ('Newcomer', 7, 'n1')")
        new_id = connection.execute("SELECT last_insert_rowid()").fetchone()[0]
        connection.execute("INSERT INTO orders (customer, amount, code) VALUES ('other', 8, 'n1')")
        ignored = connection.execute("SELECT changes()").fetchone()[0]
        connection.execute("UPDATE orders SET amount = 9 WHERE id = ?", (new_id,))
        lines_before = connection.execute("SELECT count(*) FROM line WHERE of = 10").fetchone()[0]
        connection.execute("DELETE FROM big WHERE id = 10")
        lines = connection.execute("SELECT count(*) FROM line WHERE of = 10").fetchone()[0]
        orphaned = connection.execute("SELECT parent FROM orders WHERE id = 11").fetchone()[0]
        found = connection.execute("SELECT rowid FROM found WHERE found MATCH 'newcomer'").fetchall()
        noted = connection.execute("SELECT what, amount FROM audit ORDER BY at DESC LIMIT 1").fetchone()
        connection.execute("INSERT INTO found(found) VALUES ('integrity-check')")
        with pytest.raises(connection.IntegrityError):
            connection.execute("UPDATE orders SET amount = -1 WHERE id = 3")

    assert new_id == 301
    assert ignored == 0
    assert (found, noted) == ([(301,)], ("amount", 9.0))
    assert (lines_before, lines) == (1, 0)
    assert orphaned is None
