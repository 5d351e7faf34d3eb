"""Indexes that a change does not touch stay with their table, page for page, and are right for the new rows; any other is made anew."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from tests.dialects.sqlite.reshaping import Change, changing
from tests.proof.engine import application, on_engine
from tideshift.dialects.sqlite import kept
from tideshift.errors import PlanRefused

INDEXES = {
    "plain": "CREATE INDEX plain ON t (b)",
    "of_changed": "CREATE INDEX of_changed ON t (b, c)",
    "falling": "CREATE INDEX falling ON t (b DESC, d COLLATE NOCASE) WHERE d IS NOT NULL",
    "of_expression": "CREATE INDEX of_expression ON t (lower(d) || b)",
    "of_changed_by_expression": "CREATE INDEX of_changed_by_expression ON t (c + 1)",
    "where_changed": "CREATE INDEX where_changed ON t (b) WHERE c > 5",
    "of_generated": "CREATE INDEX of_generated ON t (g)",
    "of_generated_by_changed": "CREATE INDEX of_generated_by_changed ON t (h)",
    "sole": "CREATE UNIQUE INDEX sole ON t (e)",
}
COLUMNS = "b INT, c TEXT, d TEXT COLLATE NOCASE, e INT, g AS (b * 2) STORED, h AS (c || 'x')"
TABLES = {
    "number": f"CREATE TABLE t (k INTEGER PRIMARY KEY, {COLUMNS})",
    "hidden number": f"CREATE TABLE t (k INT, {COLUMNS})",
    "text key": f"CREATE TABLE t (k TEXT PRIMARY KEY, {COLUMNS})",
    "without rowid": f"CREATE TABLE t (k INT, {COLUMNS}, PRIMARY KEY (k DESC)) WITHOUT ROWID",
    "strict": f"CREATE TABLE t (k INTEGER PRIMARY KEY, {COLUMNS.replace('AS (b', 'INT AS (b').replace('h AS', 'h TEXT AS')}) STRICT",
}
UNTOUCHED_BY_C = {"plain", "falling", "of_expression", "of_generated"}
STATEMENTS = {
    "type": ("ALTER TABLE t ALTER c TYPE INTEGER", UNTOUCHED_BY_C),
    "type by USING": ("ALTER TABLE t ALTER b TYPE INT USING b + 1", {"of_changed_by_expression", "of_generated_by_changed"}),
    "same affinity": ("ALTER TABLE t ALTER b TYPE INTEGER", INDEXES.keys() - {"sole"}),
    "default": ("ALTER TABLE t ALTER b SET DEFAULT 5, ALTER c SET NOT NULL", INDEXES.keys() - {"sole"}),
    "order": ("ALTER TABLE t MOVE COLUMN d FIRST, MOVE COLUMN b AFTER e", INDEXES.keys() - {"sole"}),
    "new column": ("ALTER TABLE t ADD COLUMN n INT DEFAULT (random()) FIRST", INDEXES.keys() - {"sole"}),
}


def _rows(random: Random, first: int, count: int) -> str:
    rows = (f"({k}, {random.randrange(20)}, '{random.randrange(50)}', '{random.choice('aAbBcC')}', {k})" for k in range(first, first + count))
    return f"INSERT INTO t (k, b, c, d, e) VALUES {', '.join(rows)}"


def _write(change: Change, random: Random) -> None:
    """Let the application change and exchange rows, keys and numbers."""
    run = change.application.execute
    run(f"UPDATE t SET b = b + 7, d = upper(d) WHERE e % 3 = {random.randrange(3)}")
    run(f"DELETE FROM t WHERE e % 11 = {random.randrange(11)}")
    run("INSERT OR REPLACE INTO t (k, b, c, d, e) SELECT k + 1000, b + 1, c, d, e FROM t WHERE e % 5 = 2 AND k < 1000")
    run("UPDATE t SET k = k + 5000 WHERE e % 13 = 1 AND k < 1000")


def _roots(change: Change) -> dict[str, int]:
    return dict(change.rows("SELECT name, rootpage FROM sqlite_master WHERE type = 'index' AND tbl_name = 't' AND sql IS NOT NULL"))


@pytest.mark.stdlib_sqlite
@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize(("statement", "untouched"), STATEMENTS.values(), ids=STATEMENTS)
def test_just_what_the_change_does_not_touch_is_kept(table: str, statement: str, untouched: set[str], sqlite_path: Path) -> None:
    """Kept indexes have their pages still, the others new ones; every entry of each leads to its row."""
    random = Random(f"{table} {statement}")
    with changing(sqlite_path, TABLES[table], *INDEXES.values(), _rows(random, 1, 120), statement=statement) as change:
        before, schema = _roots(change), change.schema()
        change.install()
        assert not {name for name in untouched if any(f" {name} " in str(row[4]) for row in change.schema() if row[3] != "t")}
        change.copy(between=lambda: _write(change, random) if random.random() < 0.3 else None)
        _write(change, random)
        change.catch_up()
        assert change.differing() == []

        change.swap()

        after = _roots(change)
        assert {name for name in before if before[name] == after[name]} == untouched
        assert change.rows("PRAGMA integrity_check") == [("ok",)]
        _write(change, random)
        change.purge()
        assert change.rows("PRAGMA integrity_check") == [("ok",)]
        assert [row[:4] for row in change.schema()] == [row[:4] for row in schema]


def test_the_check_finds_an_index_that_is_kept_wrongly(sqlite_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What these tests ask the library for does see entries of old values."""
    monkeypatch.setattr(kept, "_touched", lambda *_: set())
    with changing(sqlite_path, TABLES["number"], INDEXES["of_changed"], _rows(Random(1), 1, 20)) as change:
        change.install()
        change.copy()
        change.swap()

        assert change.rows("PRAGMA integrity_check") != [("ok",)]


NOT_KEPT = {
    "the rows get other numbers": ("CREATE TABLE t (k INT PRIMARY KEY NOT NULL, b INT)", "ALTER TABLE t DROP PRIMARY KEY, ALTER k TYPE INTEGER, ADD PRIMARY KEY (k)"),
    "the rows lose their numbers": ("CREATE TABLE t (k TEXT PRIMARY KEY NOT NULL, b INT)", "ALTER TABLE t SET WITHOUT ROWID"),
    "the rows get numbers": ("CREATE TABLE t (k TEXT PRIMARY KEY NOT NULL, b INT) WITHOUT ROWID", "ALTER TABLE t SET ROWID"),
}


@pytest.mark.parametrize(("table", "statement"), NOT_KEPT.values(), ids=NOT_KEPT)
@pytest.mark.parametrize("strategy", ["shadow_table", "direct"])
def test_an_index_is_not_kept_where_the_rows_have_another_key(table: str, statement: str, strategy: str, sqlite_path: Path) -> None:
    """Its entries lead to rows by keys that are no more."""
    with closing(application(sqlite_path)) as connection:
        connection.execute(table)
        connection.execute("CREATE INDEX i ON t (b)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(k * 7, k) for k in range(30)])
        (before,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'i'").fetchone()

    with on_engine(sqlite_path, strategy=strategy) as engine:
        engine.run(statement)

    with closing(application(sqlite_path)) as connection:
        assert connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'i'").fetchone() != (before,)
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.parametrize("strategy", ["shadow_table", "direct"])
@pytest.mark.parametrize(("statement", "remade"), [("REINDEX i", {"i"}), ("REINDEX t", {"i", "j"}), ("CREATE INDEX n ON t (b DESC)", set())])
def test_what_shall_be_made_again_is(statement: str, remade: set[str], strategy: str, sqlite_path: Path) -> None:
    """REINDEX makes the indexes anew that it names, and no others."""
    with closing(application(sqlite_path)) as connection:
        for text in ("CREATE TABLE t (k INTEGER PRIMARY KEY, b)", "CREATE INDEX i ON t (b)", "CREATE INDEX j ON t (b, k)", "INSERT INTO t VALUES (1, 2)"):
            connection.execute(text)
    query = "SELECT name, rootpage FROM sqlite_master WHERE type = 'index' AND name IN ('i', 'j')"
    with closing(application(sqlite_path)) as connection:
        before = dict(connection.execute(query))

    with on_engine(sqlite_path, strategy=strategy) as engine:
        engine.run(statement)

    with closing(application(sqlite_path)) as connection:
        after = dict(connection.execute(query))
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    if strategy == "shadow_table":
        assert {name for name in before if before[name] != after[name]} == remade
    else:
        assert before == after


@pytest.mark.parametrize("strategy", ["shadow_table", "direct"])
def test_a_word_that_gets_another_meaning_is_no_reason_to_keep(strategy: str, sqlite_path: Path) -> None:
    """`oid` is the row's number until there is a column of that name."""
    with closing(application(sqlite_path)) as connection:
        for text in ("CREATE TABLE t (k INTEGER PRIMARY KEY, b)", "CREATE INDEX i ON t (b) WHERE oid > 5", "CREATE INDEX j ON t (b)"):
            connection.execute(text)
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(k, k * 2) for k in range(20)])
        before = dict(connection.execute("SELECT name, rootpage FROM sqlite_master WHERE type = 'index'"))

    with on_engine(sqlite_path, strategy=strategy) as engine:
        assert str(engine.run("ALTER TABLE t ADD COLUMN oid INT DEFAULT 7 FIRST").state) == "synced"

    with closing(application(sqlite_path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("SELECT count(*) FROM t INDEXED BY i WHERE oid > 5").fetchone() == (20,)
        after = dict(connection.execute("SELECT name, rootpage FROM sqlite_master WHERE type = 'index'"))
        assert (before["i"] == after["i"], before["j"] == after["j"]) == (False, True)


ROUNDED = ("9007199254740993", "'9007199254740993'", "-9223372036854775807", "0x20000000000001")


@pytest.mark.parametrize("default", [*ROUNDED, "1.5", "7"])
def test_a_default_that_a_copy_would_round_is_a_reason_to_make_the_index_anew(default: str, sqlite_path: Path) -> None:
    """A row that does not store the column has the whole number in the index, and a REAL that is written holds another."""
    with closing(application(sqlite_path)) as connection:
        connection.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, c TEXT)")
        connection.execute("INSERT INTO t VALUES (1, '1')")
        connection.execute(f"ALTER TABLE t ADD COLUMN b REAL DEFAULT {default}")
        connection.execute("CREATE INDEX i ON t (b)")
        connection.execute("INSERT INTO t (k, c) VALUES (2, '2')")
        before = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'i'").fetchone()
        # SQLite before 3.41 reads the hexadecimal default of a row that does not store it as text, so that row alone is equal to itself
        equal = connection.execute("SELECT k FROM t NOT INDEXED WHERE b = (SELECT b FROM t WHERE k = 1)").fetchall()

    with on_engine(sqlite_path) as engine:
        assert str(engine.run("ALTER TABLE t ALTER c TYPE INT").state) == "synced"

    with closing(application(sqlite_path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        found = [connection.execute(f"SELECT k FROM t {how} WHERE b = (SELECT b FROM t WHERE k = 1)").fetchall() for how in ("INDEXED BY i", "NOT INDEXED")]
        assert found[0] == found[1] == equal
        assert equal in ([(1,), (2,)], [(1,)])
        assert (connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'i'").fetchone() == before) is (default not in ROUNDED)


@pytest.mark.parametrize("strategy", [None, "shadow_table", "direct"])
@pytest.mark.parametrize(("where", "column"), [("oid > 5", "oid"), ("rowid > 5", "rowid"), ('k <> "foo"', "foo")])
def test_a_new_column_changes_what_a_word_means_in_every_way(where: str, column: str, strategy: str | None, sqlite_path: Path) -> None:
    """SQLite's own ADD COLUMN would leave the index as it was made, so it is not used; a rename to such a word is refused."""
    with closing(application(sqlite_path)) as connection:
        connection.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, b)")
        connection.execute(f"CREATE INDEX i ON t (b) WHERE {where}")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(k, k * 2) for k in range(20)])

    with on_engine(sqlite_path, strategy=strategy) as engine:
        with pytest.raises(PlanRefused, match="another meaning"):
            engine.connected.ddl.plan(f"ALTER TABLE t RENAME COLUMN b TO {column}")
        assert str(engine.run(f"ALTER TABLE t ADD COLUMN {column} TEXT DEFAULT 'x'").state) == "synced"

    with closing(application(sqlite_path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_kept_index_is_no_index_of_the_shadow(sqlite_path: Path) -> None:
    """A unique key that goes is looked up by an index made for it, though the table keeps one over the same column."""
    with closing(application(sqlite_path)) as connection:
        connection.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, b INT, c TEXT, CONSTRAINT ub UNIQUE (b))")
        connection.execute("CREATE INDEX i ON t (b)")
        connection.executemany("INSERT INTO t VALUES (?, ?, 'x')", [(k, k * 2) for k in range(20)])

    with on_engine(sqlite_path) as engine:
        assert str(engine.run("ALTER TABLE t DROP CONSTRAINT ub").state) == "synced"

    with closing(application(sqlite_path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.parametrize("new_name", ["B", "lower", "nocase", "open"])
def test_a_word_that_stays_what_it_is_is_no_reason_to_refuse_a_rename(new_name: str, sqlite_path: Path) -> None:
    """The column itself in other case, a function, a collation and a text in single quotes are no columns; ADD COLUMN stays instant."""
    with closing(application(sqlite_path)) as connection:
        connection.execute("CREATE TABLE t (k INTEGER PRIMARY KEY, b, c)")
        connection.execute("CREATE INDEX i ON t (lower(b), c COLLATE NOCASE) WHERE c = 'open'")
        connection.execute("INSERT INTO t VALUES (1, 'x', 'open')")

    with on_engine(sqlite_path, strategy=None) as engine:
        if new_name != "B":
            assert str(engine.connected.ddl.plan(f"ALTER TABLE t ADD COLUMN {new_name} INT").plan.strategy) == "instant"
        assert str(engine.run(f"ALTER TABLE t RENAME COLUMN b TO {new_name}").state) == "synced"

    with closing(application(sqlite_path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
