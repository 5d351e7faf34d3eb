"""After the swap everything is as it was but the one type, whatever hangs on the table."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.dialects.sqlite.reshaping import Change, changing, run_in
from tests.servers import sqlite_module
from tideshift.dialects import points
from tideshift.errors import SchemaChanged
from tideshift.failpoint import InjectedFault, enable
from tideshift.store.database import ConstraintViolated

RICH = (
    "CREATE TABLE p (id INTEGER PRIMARY KEY)",
    "INSERT INTO p VALUES (1), (2)",
    ("CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT, /* kept */ c TEXT NOT NULL DEFAULT 'dd', b INT CHECK (t.b > 0),"
    " u TEXT COLLATE NOCASE UNIQUE ON CONFLICT REPLACE, p REFERENCES p (id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED,"
    " e DEFAULT (1 + 1), g TEXT GENERATED ALWAYS AS (c || b) STORED, h AS (b * 2), -- kept too\n UNIQUE (c, b) ON CONFLICT IGNORE)"),
    "CREATE INDEX i1 ON t (c DESC) WHERE t.b > 3",
    "CREATE UNIQUE INDEX i2 ON t (lower(u), e COLLATE RTRIM, id)",
    "CREATE VIEW v AS SELECT id, t.c FROM t",
    "CREATE VIEW broken AS SELECT a FROM nowhere",
    "CREATE TABLE audit (x)",
    "CREATE TRIGGER own AFTER INSERT ON t BEGIN INSERT INTO audit VALUES (NEW.id); END",
    "CREATE TRIGGER of_another AFTER INSERT ON p BEGIN UPDATE t SET b = b + 1 WHERE id = NEW.id; END",
    "CREATE TRIGGER of_a_view INSTEAD OF INSERT ON v BEGIN INSERT INTO t (c) VALUES (NEW.c); END",
    "CREATE TABLE child (id INTEGER PRIMARY KEY, t REFERENCES t (id) ON DELETE CASCADE)",
    "CREATE TABLE child_by_name (u TEXT REFERENCES t (u) ON UPDATE CASCADE ON DELETE CASCADE)",
    "CREATE VIRTUAL TABLE f USING fts5 (c, content = 't', content_rowid = 'id')",
    "CREATE TRIGGER searched AFTER INSERT ON t BEGIN INSERT INTO f (rowid, c) VALUES (NEW.id, NEW.c); END",
    ("WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 60)"
    " INSERT INTO t (c, b, u, p) SELECT i || '', i, 'u' || i, 1 FROM n"),
    "INSERT INTO child SELECT id, id FROM t",
    "INSERT INTO child_by_name SELECT u FROM t",
    "DELETE FROM t WHERE id = 60",
    "ANALYZE",
)
MODES = {"wal": ("PRAGMA journal_mode = wal",), "rollback journal, auto_vacuum": ("PRAGMA journal_mode = delete", "VACUUM")}


@pytest.mark.parametrize("mode", MODES)
def test_a_rich_table_keeps_everything_but_the_type(mode: str, tmp_path: Path) -> None:
    """sqlite_master, statistics and counter are the same byte for byte, and every part still works."""
    path = tmp_path / "rich.db"
    with closing(sqlite_module().connect(path, isolation_level=None)) as connection:
        if "auto_vacuum" in mode:
            connection.execute("PRAGMA auto_vacuum = FULL")
        for text in MODES[mode]:
            connection.execute(text)

    with changing(path, *RICH) as change:
        schema, rows = change.schema(), change.rows("SELECT * FROM t")
        kept = [change.rows(f"SELECT rowid, * FROM {table}") for table in ("sqlite_sequence", "sqlite_stat1", "child", "p")]

        change.whole()

        expected = [(*row[:4], row[4].replace("c TEXT NOT NULL", "c INTEGER NOT NULL") if row[2] == "t" else row[4]) for row in schema]
        assert change.schema() == expected
        assert [change.rows(f"SELECT rowid, * FROM {table}") for table in ("sqlite_sequence", "sqlite_stat1", "child", "p")] == kept
        assert change.rows("SELECT * FROM t") == [(row[0], int(row[1]), *row[2:]) for row in rows]
        assert change.rows("PRAGMA integrity_check") == [("ok",)]
        assert change.rows("PRAGMA auto_vacuum") == [(int("auto_vacuum" in mode),)]
        _see_every_part_work(change)


def _see_every_part_work(change: Change) -> None:
    execute = change.application.execute
    execute("PRAGMA foreign_keys = 1")
    execute("INSERT INTO t (c, b, u, p) VALUES ('77', 100, 'U1', 2)")
    assert change.rows("SELECT id, typeof(c), e, g, h FROM t WHERE u = 'u1'") == [(61, "integer", 2, "77100", 200)]
    assert change.rows("SELECT x FROM audit ORDER BY rowid DESC LIMIT 1") == [(61,)]
    assert change.rows("SELECT rowid FROM f WHERE f MATCH '77'") == [(61,)]
    assert change.rows("SELECT c FROM t INDEXED BY i1 WHERE b > 3 AND c = 50") == [(50,)]
    execute("DELETE FROM t WHERE id = 5")
    assert change.rows("SELECT count(*) FROM child WHERE id = 5") == [(0,)]
    execute("DELETE FROM p WHERE id = 1")
    assert change.rows("SELECT count(*) FROM t") == [(1,)]
    for refused in ("INSERT INTO t (c, b) VALUES (1, -1)", "INSERT INTO t (c, p) VALUES (1, 9)"):
        with pytest.raises(sqlite_module().IntegrityError):
            execute(refused)


SHAPES = {
    "without rowid": ("CREATE TABLE t (k TEXT COLLATE NOCASE, n INT, c TEXT UNIQUE, PRIMARY KEY (n DESC, k)) WITHOUT ROWID", 'n, "k"'),
    "text key": ("CREATE TABLE t (k TEXT PRIMARY KEY, n INT, c TEXT)", "k"),
    "no key": ("CREATE TABLE t (k, n, c TEXT)", "rowid"),
    "strict": ("CREATE TABLE t (k ANY, n INT NOT NULL, c TEXT NOT NULL, UNIQUE (c, n)) STRICT", "rowid"),
    "renamed once": ("CREATE TABLE s (k, n, c TEXT, UNIQUE (k), UNIQUE (n))", "rowid"),
}


@pytest.mark.parametrize(("table", "key"), SHAPES.values(), ids=SHAPES)
def test_each_kind_of_table_takes_its_new_shape(table: str, key: str, sqlite_path: Path) -> None:
    """Rows keep their key, values take the new type, names and order of everything stay."""
    schema = (table, *(("ALTER TABLE s RENAME TO t",) if "TABLE s" in table else ()), "CREATE INDEX after ON t (n)", "CREATE TABLE z (a)")
    rows = "INSERT INTO t (k, n, c) VALUES " + ", ".join(f"('k{i}', {i * 3}, '{i}')" for i in range(40))
    with changing(sqlite_path, *schema, rows, "DELETE FROM t WHERE n = 33") as change:
        schema_before, rows_before = change.schema(), change.rows(f"SELECT {key}, k, n, c FROM t ORDER BY {key}")

        change.whole()

        assert [row[:4] for row in change.schema()] == [row[:4] for row in schema_before]
        assert [row[4] for row in change.schema() if row[2] != "t"] == [row[4] for row in schema_before if row[2] != "t"]
        expected = [(*row[:-1], int(row[-1])) for row in rows_before]
        assert list(map(repr, change.rows(f"SELECT {key}, k, n, c FROM t ORDER BY {key}"))) == list(map(repr, expected))
        assert change.rows("PRAGMA integrity_check") == [("ok",)]


@pytest.mark.parametrize(
    "point", [points.SWAP_BEGIN, points.DROP_TRIGGER, points.SWAP_EXCHANGE, points.SWAP_EXCHANGED, points.SWAPPED], ids=lambda point: point.name
)
def test_a_swap_that_fails_in_the_middle_leaves_nothing(point, sqlite_path: Path) -> None:
    """The transaction rolls back, the same connections go on, and the next try succeeds."""
    with changing(sqlite_path, *RICH) as change:
        change.install()
        change.copy()
        before = change.schema()

        with enable(point, "1*raise"), pytest.raises(InjectedFault):
            change.swap()

        assert change.schema() == before
        with change.writing() as tx:
            assert run_in(tx, "PRAGMA writable_schema") == [(0,)]
            assert run_in(tx, "SELECT DISTINCT typeof(c) FROM t") == [("text",)]
        change.application.execute("UPDATE t SET c = '99' WHERE id = 9")
        assert change.catch_up() == 1
        change.swap()
        assert change.rows("SELECT typeof(c), c FROM t WHERE id = 9") == [("integer", 99)]
        change.purge()
        assert change.rows("PRAGMA integrity_check") == [("ok",)]
        assert change.objects() == set()


def test_a_reader_goes_on_through_the_swap(sqlite_path: Path) -> None:
    """A statement that began before sees the old rows to its end, the next one the new rows."""
    with changing(sqlite_path, *RICH) as change:
        change.install()
        change.copy()
        reader = change.application.execute("SELECT typeof(c) FROM t")
        first = reader.fetchone()

        change.swap()

        assert {first, *reader.fetchall()} == {("text",)}
        assert change.rows("SELECT DISTINCT typeof(c) FROM t") == [("integer",)]


def test_a_swap_with_a_waiting_log_is_a_fault_of_the_caller(sqlite_path: Path) -> None:
    """Nothing is exchanged while a change is not applied."""
    with changing(sqlite_path, *RICH) as change:
        change.install()
        change.copy()
        change.application.execute("DELETE FROM t WHERE id = 3")

        with pytest.raises(AssertionError, match="1 log rows"):
            change.swap()

        assert change.rows("SELECT DISTINCT typeof(c) FROM t") == [("text",)]


def test_a_table_altered_before_the_swap_is_not_swapped(sqlite_path: Path) -> None:
    """The check is part of the swap's own transaction."""
    with changing(sqlite_path, *RICH) as change:
        change.install()
        change.copy()
        change.application.execute("CREATE INDEX late ON t (b)")

        with pytest.raises(SchemaChanged, match="late"):
            change.swap()


def test_the_old_rows_disturb_nobody_until_they_are_purged(sqlite_path: Path) -> None:
    """They are kept under our name without references, and go a few at a time."""
    with changing(sqlite_path, *RICH) as change:
        change.install()
        change.copy()
        change.swap()
        old = change.named("shadow")[0]

        assert change.rows(f"SELECT count(*), min(typeof(c)) FROM {old}") == [(59, "text")]
        assert change.rows(f"SELECT * FROM pragma_foreign_key_list('{old}')") == []
        change.application.execute("PRAGMA foreign_keys = 1")
        change.application.execute("DELETE FROM p")
        assert change.rows(f"SELECT count(*) FROM {old}") == [(59,)]
        assert change.purge() >= 59  # an index that goes first counts too
        assert change.objects() == set()


def test_a_reference_that_the_change_broke_is_found_and_an_older_one_is_not(sqlite_path: Path) -> None:
    """Text '03' becomes the number 3, which no parent is called; the child of 'x' had no parent before."""
    schema = (
        "CREATE TABLE p (k TEXT PRIMARY KEY)",
        "CREATE TABLE t (id INTEGER PRIMARY KEY, c TEXT REFERENCES p)",
        "INSERT INTO p VALUES ('1'), ('03'), ('2')",
        "INSERT INTO t (c) VALUES ('1'), ('2'), ('x'), (NULL)",
    )
    with changing(sqlite_path, *schema) as change:
        change.whole()  # 'x' referred to nothing before

    other = sqlite_path.with_name("other.db")
    with changing(other, *schema, "INSERT INTO t (c) VALUES ('03')") as change:
        change.install()
        change.copy()

        with pytest.raises(SchemaChanged, match="no longer finds the row of p") as caught:
            change.swap()

        assert caught.value.fields["values"] == ["3"]


def test_a_child_whose_parent_key_changed_is_found(sqlite_path: Path) -> None:
    """The same from the parent's side."""
    schema = (
        "CREATE TABLE t (id INTEGER PRIMARY KEY, c TEXT UNIQUE)",
        "CREATE TABLE k (id INTEGER PRIMARY KEY, c TEXT REFERENCES t (c))",
        "INSERT INTO t (c) VALUES ('1'), ('02')",
        "INSERT INTO k (c) VALUES ('1'), ('02')",
    )
    with changing(sqlite_path, *schema, statement="ALTER TABLE t ALTER c TYPE TEXT USING c || 'x'") as change:
        change.install()
        change.copy()

        with pytest.raises(SchemaChanged, match="a row of k no longer finds the row of t"):
            change.swap()


def test_a_file_of_ours_with_foreign_keys_on_is_not_purged(sqlite_path: Path) -> None:
    """Dropping a table would then delete row by row and look at others."""
    with changing(sqlite_path, *RICH) as change:
        change.install()
        with change.database.session() as session:
            session.connection.exec_driver_sql("PRAGMA foreign_keys = 1")
            session.connection.rollback()
            try:
                with pytest.raises(AssertionError), session.transaction() as tx:
                    change.dialect.remains.drop(tx, change.shadow.artifacts(change.reorg)[0])
            finally:
                session.connection.exec_driver_sql("PRAGMA foreign_keys = 0")


def test_a_constraint_error_keeps_its_meaning(sqlite_path: Path) -> None:
    """What the swap builds on: a failed INSERT OR ABORT leaves the transaction's earlier work."""
    with changing(sqlite_path, "CREATE TABLE t (c UNIQUE)") as change, change.writing() as tx:
        run_in(tx, "INSERT INTO t VALUES (1)")
        with pytest.raises(ConstraintViolated):
            run_in(tx, "INSERT OR ABORT INTO t SELECT 2 UNION ALL SELECT 1")
        assert run_in(tx, "SELECT c FROM t") == [(1,)]


def test_a_file_in_utf16_changes_too(tmp_path: Path) -> None:
    """Texts of the schema and keys of a table are written in the file's own encoding."""
    path = tmp_path / "wide.db"
    with closing(sqlite_module().connect(path)) as connection:
        connection.execute("PRAGMA encoding = 'UTF-16le'")
        connection.execute("CREATE TABLE é (ключ TEXT PRIMARY KEY, c TEXT DEFAULT 'ü') WITHOUT ROWID")
        connection.execute("INSERT INTO é VALUES ('ж', '1'), ('😀', '2')")
        connection.commit()
    with changing(path, statement="ALTER TABLE é ALTER c TYPE INTEGER") as change:
        change.whole()

        assert change.rows("SELECT * FROM é") == [("ж", 1), ("😀", 2)]
        assert change.rows("SELECT sql FROM sqlite_master WHERE name = 'é'") == [
            ("CREATE TABLE é (ключ TEXT PRIMARY KEY, c INTEGER DEFAULT 'ü') WITHOUT ROWID",)
        ]
        assert change.rows("PRAGMA integrity_check") == [("ok",)]
