"""Copy, catch-up, comparison and trial carry each row exactly, and name the row that does not fit."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.dialects.sqlite.reshaping import WHOLE, Change, changing
from tests.dialects.sqlite.shapes import SHAPES, Shape
from tests.dialects.sqlite.statements import random_statement
from tests.servers import sqlite_module
from tideshift.dialects import points
from tideshift.dialects.sqlite.catch_up import apply_statements
from tideshift.dialects.sqlite.driver import quote
from tideshift.dialects.sqlite.layout import Layout
from tideshift.errors import ValueRefused
from tideshift.failpoint import enable
from tideshift.store.keys import KeyRange

TABLE = "CREATE TABLE t (id INTEGER PRIMARY KEY, c TEXT, u INT UNIQUE)"
ROWS = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 50) INSERT INTO t SELECT i, i || '', i * 2 FROM n"


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_random_writers_between_every_step_lose_nothing(shape: Shape, random: Random, sqlite_path: Path) -> None:
    """With writes of every kind between chunks and batches, the table holds at the end what its rows are as the new type."""
    with changing(sqlite_path, *shape.schema, statement=shape.change) as change:

        def write() -> None:
            for _ in range(3):
                try:
                    change.application.execute(random_statement(random, shape)).fetchall()
                except sqlite_module().Error:
                    continue  # an application's statement may fail; only what it changed counts
            if change.application.in_transaction:
                change.application.execute("ROLLBACK")

        for _ in range(30):
            write()
        change.install()
        for _ in range(4):
            change.copy(rows_max=2, between=write)
            write()
            with change.writing() as tx:
                change.shadow.apply_batch(tx, change.reorg, rows_max=2)
        change.catch_up(rows_max=3)
        assert change.differing() == []
        columns = [name for (name,) in change.rows(f"SELECT name FROM {_columns_of(shape)}")]
        rows = change.rows(f"SELECT {shape.key}, * FROM {shape.table} ORDER BY {shape.key}")

        change.swap()

        changed = change.rows(f"SELECT {shape.key}, * FROM {shape.table} ORDER BY {shape.key}")
        assert list(map(repr, changed)) == list(map(repr, _loaded_anew(change, shape, columns, rows)))
        assert change.rows("PRAGMA integrity_check") == [("ok",)]


def _columns_of(shape: Shape) -> str:
    return f"pragma_table_xinfo(trim('{shape.table}', '\"'))"


def _loaded_anew(change: Change, shape: Shape, old_columns: list[str], rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Return rows as an empty database with the table as it is now gives them back, once they are written into it."""
    text = change.rows(f"SELECT sql FROM sqlite_master WHERE type = 'table' AND name = trim('{shape.table}', '\"')")[0][0]
    columns = [name for name, hidden in change.rows(f"SELECT name, hidden FROM {_columns_of(shape)}") if not hidden and name in old_columns]
    width = len(shape.key.split(","))
    hidden_key = [shape.key] if width == 1 and shape.key in ("rowid", "_rowid_") and "WITHOUT ROWID" not in text else []
    written = hidden_key + [quote(name) for name in columns]
    places = list(range(len(hidden_key))) + [width + old_columns.index(name) for name in columns]
    with closing(sqlite_module().connect(":memory:", isolation_level=None)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = 1")
        connection.execute(text)
        marks = ", ".join("?" * len(written))
        values = [[row[place] for place in places] for row in rows]
        connection.executemany(f"INSERT OR ABORT INTO {shape.table} ({', '.join(written)}) VALUES ({marks})", values)
        return connection.execute(f"SELECT {shape.key}, * FROM {shape.table} ORDER BY {shape.key}").fetchall()


VALUES = "NULL 1 -1 9223372036854775807 -9223372036854775808 1.5 1e300 -0.0 9e999 '1' ' 1' '1.0' '1e2' 'x' '' x'' x'31' x'ff'".split()
TYPES = ("INTEGER", "REAL", "TEXT", "BLOB", "NUMERIC", "")


@pytest.mark.parametrize("new_type", [one for one in TYPES if one])
@pytest.mark.parametrize("old_type", TYPES)
def test_every_value_becomes_what_the_library_makes_of_it(old_type: str, new_type: str, sqlite_path: Path) -> None:
    """The result equals that of an INSERT … SELECT into a table of the new type, in type and bytes."""
    schema = (
        f"CREATE TABLE t (id INTEGER PRIMARY KEY, c {old_type})",
        f"CREATE TABLE expected (id INTEGER PRIMARY KEY, c {new_type})",
        *(f"INSERT INTO t (c) VALUES ({value.replace('_', ' ')})" for value in VALUES if value not in ("'", "1'")),
    )
    with changing(sqlite_path, *schema, statement=f"ALTER TABLE t ALTER c TYPE {new_type}") as change:
        change.application.execute("INSERT INTO expected SELECT * FROM t")

        change.whole()

        compared = "SELECT id, typeof(c), quote(c), CAST(c AS BLOB) FROM {}"
        assert change.rows(compared.format("t")) == change.rows(compared.format("expected"))


def test_using_is_applied_to_each_row_with_its_old_values(sqlite_path: Path) -> None:
    """It may look at other columns, and at the column itself by the table's name."""
    statement = "ALTER TABLE t ALTER c TYPE TEXT USING printf('%03d', t.c) || ':' || u"
    with changing(sqlite_path, TABLE, ROWS, statement=statement) as change:
        change.whole(between=lambda: change.application.execute("UPDATE t SET c = 7 WHERE id = 7"))

        assert change.rows("SELECT c FROM t WHERE id IN (7, 9)") == [("007:14",), ("009:18",)]


def test_a_chunk_copied_twice_is_the_same_as_once(sqlite_path: Path) -> None:
    """A range is emptied before it is filled, and rows beyond it are left alone."""
    with changing(sqlite_path, TABLE, ROWS) as change:
        change.install()
        with change.writing() as tx:
            first = change.shadow.copy_chunk(tx, change.reorg, WHOLE, rows_max=20)
            again = change.shadow.copy_chunk(tx, change.reorg, WHOLE, rows_max=30)

        assert (first.rows, first.last) == (20, [["int", "20"]])
        assert (again.rows, again.last) == (30, [["int", "30"]])
        assert again.size_bytes > 30 * 3
        shadow = change.named("shadow")[0]
        assert change.rows(f"SELECT count(*), sum(id), count(DISTINCT typeof(c)) FROM {shadow}") == [(30, 465, 1)]


REFUSED = {
    "a type": ("CREATE TABLE t (id INTEGER PRIMARY KEY, c TEXT) STRICT", "INTEGER", "cannot store TEXT value in INTEGER column t.c"),
    "a check": ("CREATE TABLE t (id INTEGER PRIMARY KEY, c TEXT, CHECK (typeof(c) <> 'text' OR c < 'v'))", "INTEGER", "CHECK constraint failed"),
    "NOT NULL": ("CREATE TABLE t (id INTEGER PRIMARY KEY, c TEXT NOT NULL)", "INT USING nullif(c, 'value')", "NOT NULL constraint failed: t.c"),
    "an expression": ("CREATE TABLE t (id INTEGER PRIMARY KEY, c TEXT)", "TEXT USING json(c)", "malformed JSON"),
}  # fmt: skip


@pytest.mark.parametrize(("table", "new_type", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_row_that_does_not_fit_is_named_in_trial_copy_and_catch_up(
    table: str, new_type: str, reason: str, sqlite_path: Path
) -> None:
    """The error has the row's key and the library's reason, in the words of the user's own table."""
    schema = (table, *(f"INSERT INTO t VALUES ({i}, '{i}')" for i in range(1, 31)), "CREATE TABLE later AS SELECT * FROM t")
    if reason.startswith("CHECK"):
        schema = (table.replace("c < 'v'", "c > 'v' OR c < 'a'"), *schema[1:])
        new_type = "INTEGER USING iif(c = 'value', 'b', c)"
    with changing(sqlite_path, *schema, statement=f"ALTER TABLE t ALTER c TYPE {new_type}") as change:
        change.application.execute("UPDATE t SET c = 'value' WHERE id IN (17, 23)")
        tried = [_refused(change.check_rows)]
        change.install()
        tried.append(_refused(change.copy))
        change.application.execute("UPDATE t SET c = '1' WHERE id IN (17, 23)")
        change.copy()
        change.catch_up()
        change.application.execute("UPDATE t SET c = 'value' WHERE id IN (17, 23)")
        tried.append(_refused(change.catch_up))

    for error in tried:
        assert error.fields["key"] == [["int", "17"]]
        assert reason in error.fields["reason"]
        assert "id = 17" in error.message
        assert "tideshift_" not in error.message


def _refused(verb) -> ValueRefused:
    with pytest.raises(ValueRefused) as caught:
        verb()
    return caught.value


def test_two_values_that_become_equal_are_refused_with_the_later_key(sqlite_path: Path) -> None:
    """A unique column whose text differs and whose number does not is the source's own conflict."""
    rows = "INSERT INTO t VALUES (1, '1'), (2, '2'), (3, '01'), (4, '4')"
    with changing(sqlite_path, "CREATE TABLE t (id INTEGER PRIMARY KEY, c TEXT UNIQUE)", rows) as change:
        change.install()

        error = _refused(change.copy)

        assert error.fields["key"] == [["int", "3"]]
        assert "UNIQUE constraint failed: t.c" in error.fields["reason"]


def test_an_index_over_an_expression_that_refuses_is_named_as_the_user_named_it(sqlite_path: Path) -> None:
    """The library names the index of the copy; the user knows only their own."""
    schema = ("CREATE TABLE t (id INTEGER PRIMARY KEY, c TEXT)", "CREATE INDEX plain ON t (c)", "CREATE UNIQUE INDEX by_c ON t (c || '')")
    with changing(sqlite_path, *schema, "INSERT INTO t VALUES (1, '1'), (2, '01')") as change:
        change.install()

        error = _refused(change.copy)

        assert error.fields["key"] == [["int", "2"]]
        assert "index 'by_c'" in error.message
        assert "tideshift_" not in error.message


def test_a_unique_value_that_moved_on_settles_the_copy(sqlite_path: Path) -> None:
    """A row copied before it gave its value away is brought up to date, and the chunk goes in."""
    with changing(sqlite_path, TABLE, ROWS) as change:
        change.install()
        with change.writing() as tx:
            chunk = change.shadow.copy_chunk(tx, change.reorg, WHOLE, rows_max=25)
        change.application.execute("UPDATE t SET u = NULL WHERE id = 3")
        change.application.execute("UPDATE t SET u = 6 WHERE id = 40")

        with enable(points.SETTLE, "off") as settled, change.writing() as tx:
            change.shadow.copy_chunk(tx, change.reorg, KeyRange(chunk.last, None), rows_max=25)
            assert settled.hits == 1
            assert change.shadow.backlog(tx, change.reorg, limit=10**9) == 0

        assert change.differing() == []


def test_a_unique_value_that_moved_between_batches_widens_the_batch(sqlite_path: Path) -> None:
    """The first batch meets the old holder of the value, whose own log row comes later."""
    with changing(sqlite_path, TABLE, ROWS) as change:
        change.install()
        change.copy()
        change.application.execute("UPDATE t SET u = -1 WHERE id = 30")
        for filler in range(1, 20):
            change.application.execute("UPDATE t SET c = c + 1 WHERE id = ?", (filler,))
        change.application.execute("UPDATE t SET u = NULL WHERE id = 31")
        change.application.execute("UPDATE t SET u = 62 WHERE id = 30")

        with change.writing() as tx:
            batch = change.shadow.apply_batch(tx, change.reorg, rows_max=1)

        assert batch.log_rows > 20
        assert batch.keys == 21
        assert change.differing() == []


def test_a_batch_takes_the_oldest_rows_and_counts_distinct_keys(sqlite_path: Path) -> None:
    """Ten writes to one row are one key; what is not taken stays."""
    with changing(sqlite_path, TABLE, ROWS) as change:
        change.install()
        change.copy()
        for _ in range(10):
            change.application.execute("UPDATE t SET c = c + 1 WHERE id = 5")
        change.application.execute("UPDATE t SET id = 500 WHERE id = 6")

        with change.writing() as tx:
            batch = change.shadow.apply_batch(tx, change.reorg, rows_max=10)
            left = change.shadow.backlog(tx, change.reorg, limit=10**9)

        assert (batch.log_rows, batch.keys, left) == (10, 1, 2)
        assert change.catch_up() == 2
        assert change.differing() == []


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_catch_up_seeks_each_key_in_both_tables(shape: Shape, sqlite_path: Path) -> None:
    """No batch reads a whole table, whatever the key."""
    with changing(sqlite_path, *shape.schema, statement=shape.change) as change:
        change.install()
        layout = Layout.of(change.reorg)
        shadow = change.named("shadow")[0]

        for sql in apply_statements(layout, layout.names(change.reorg), 1):
            plan = [str(step[-1]) for step in change.application.execute(f"EXPLAIN QUERY PLAN {sql}").fetchall()]
            assert not any(line.startswith(("SCAN t", f"SCAN {shadow}", "SCAN new")) for line in plan), plan
            assert any(line.startswith("SEARCH") and "KEY" in line for line in plan), plan


DAMAGE = {
    "another value": "UPDATE {} SET c = 99 WHERE id = 7",
    "the same number as a real": "UPDATE {} SET d = 7.0 WHERE id = 7",
    "another case": "UPDATE {} SET n = 'A' WHERE id = 7",
    "text for a blob": "UPDATE {} SET d = CAST(7 AS TEXT) WHERE id = 7",
    "NULL": "UPDATE {} SET d = NULL WHERE id = 7",
    "a row that is missing": "DELETE FROM {} WHERE id = 7",
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_a_comparison_finds_one_damaged_row_and_repair_mends_it(damage: str, sqlite_path: Path) -> None:
    """Types and bytes count, not what compares as equal."""
    table = "CREATE TABLE t (id INTEGER PRIMARY KEY, c TEXT, n TEXT COLLATE NOCASE, d)"
    rows = "WITH RECURSIVE x (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM x WHERE i < 50) INSERT INTO t SELECT i, i || '', 'a', i FROM x"
    with changing(sqlite_path, table, rows) as change:
        change.install()
        change.copy()
        change.application.execute(damage.format(change.named("shadow")[0]))

        keys = change.differing()
        assert keys == [[["int", "7"]]]
        with change.writing() as tx:
            change.shadow.request_repair(tx, change.reorg, tuple(keys))
        assert change.differing() == [], "a key in the log is left out"
        assert change.catch_up() == 1
        assert change.differing() == []


def test_a_comparison_finds_rows_that_only_the_shadow_has(sqlite_path: Path) -> None:
    """Between the source's rows, before the first and behind the last."""
    with changing(sqlite_path, TABLE, "INSERT INTO t VALUES (10, '1', 1), (20, '2', 2)") as change:
        change.install()
        change.copy()
        shadow = change.named("shadow")[0]
        change.application.execute(f"INSERT INTO {shadow} VALUES (5, 1, 7), (15, 1, 8), (25, 1, 9)")

        assert {key[0][1] for key in change.differing()} == {"5", "15", "25"}


def test_a_comparison_says_what_it_compared_and_left_out(sqlite_path: Path) -> None:
    """Rows and excluded keys add up to the table."""
    with changing(sqlite_path, TABLE, ROWS) as change:
        change.install()
        change.copy()
        change.application.execute("UPDATE t SET c = 'x' WHERE id <= 8")
        change.application.execute("DELETE FROM t WHERE id = 1")

        found = change.compare()

        assert sum(one.rows for one in found) == 42
        assert sum(one.excluded for one in found) == 7
        assert all(one.differing == () for one in found)


def test_trying_rows_makes_nothing_in_the_file(sqlite_path: Path) -> None:
    """The trial lives in a temporary table of one connection, and the writer is not kept waiting."""
    table = "CREATE TABLE t (id INTEGER PRIMARY KEY, c TEXT) STRICT"
    with changing(sqlite_path, table, "INSERT INTO t VALUES (1, '1'), (2, '2')") as change:
        before = change.schema()

        with change.reading() as tx:
            tried = change.shadow.check_rows(tx, change.reorg, WHOLE, rows_max=5)
            change.application.execute("PRAGMA busy_timeout = 0")
            change.application.execute("INSERT INTO t VALUES (3, '3')")

        assert (tried.rows, tried.last) == (2, [["int", "2"]])
        assert change.schema() == before


def test_an_empty_table_changes_too(sqlite_path: Path) -> None:
    """No rows, no ends, nothing to compare: the shape changes."""
    with changing(sqlite_path, TABLE) as change:
        change.whole()

        assert change.rows("SELECT type FROM pragma_table_info('t') WHERE name = 'c'") == [("INTEGER",)]
