"""The rich table: everything that other tools are known to lose, changed and changed back."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.proof.engine import application, on_engine
from tests.proof.reload import holds
from tests.proof.rich_table import ORDERS, fill


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
