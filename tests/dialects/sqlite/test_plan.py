"""What a plan says beforehand is what happens: to the rows, to the disk, under the lock; which statements; and every reason against it."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection

from tests.dialects.sqlite.reshaping import Change, changing
from tests.proof.engine import on_engine
from tests.servers import sqlite_module
from tideshift.connect import connect
from tideshift.dialects.sqlite import estimate
from tideshift.dialects.sqlite.dialect import SqliteDialect
from tideshift.dialects.sqlite.driver import SqliteDriver
from tideshift.errors import PlanRefused

ROWS = 5_000
TABLE = "CREATE TABLE t (id INTEGER PRIMARY KEY, a INT, b TEXT, c VARCHAR(20) DEFAULT 'q', d INT)"
STRICT = "CREATE TABLE t (id INTEGER PRIMARY KEY, a INT, b TEXT, d INT) STRICT"
LIBRARY = sqlite_module().sqlite_version_info


def _made(path: Path, *texts: str, rows: int = ROWS) -> None:
    with closing(sqlite_module().connect(path, isolation_level=None)) as connection:
        for text in texts:
            connection.execute(text)
        connection.execute(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
            " INSERT INTO t (id, a, b, d) SELECT i, i, 'the name of customer ' || i, i FROM n",
            (rows,),
        )


def _plan(path: Path, statement: str, strategy: str | None = None) -> Any:
    with connect(str(path)) as connected:
        return connected.ddl.plan(statement, strategy=strategy)


# ── rows, room and lock ───────────────────────────────────────────────────────────────────────────────────────────

ROW_WORK = {
    "a column": (TABLE, "ALTER TABLE t ADD COLUMN z INT", None, "none"),
    "a rename": (TABLE, "ALTER TABLE t RENAME COLUMN a TO e", None, "none"),
    "an index goes": (TABLE, "DROP INDEX i", None, "none"),
    "a column in a strict table": (STRICT, "ALTER TABLE t ADD COLUMN z INT", "direct", "scan"),
    "a column with a check": (TABLE, "ALTER TABLE t ADD COLUMN z INT CHECK (z > 0)", "direct", "scan"),
    "an index": (TABLE, "CREATE INDEX j ON t (b)", "direct", "scan"),
    "an index again": (TABLE, "REINDEX i", "direct", "scan"),
    "a column goes": (TABLE, "ALTER TABLE t DROP COLUMN d", "direct", "rewrite"),
    "a column comes and another goes": (TABLE, "ALTER TABLE t ADD COLUMN z INT, DROP COLUMN d", "direct", "rewrite"),
    "a type": (TABLE, "ALTER TABLE t ALTER a TYPE TEXT", "direct", "copy"),
    "a type beside writers": (TABLE, "ALTER TABLE t ALTER a TYPE TEXT", "shadow_table", "copy"),
    "an index beside writers": (TABLE, "CREATE INDEX j ON t (b)", "shadow_table", "copy"),
}


@pytest.mark.parametrize(("table", "statement", "strategy", "row_work"), ROW_WORK.values(), ids=ROW_WORK)
def test_what_happens_to_the_rows_is_told(table: str, statement: str, strategy: str | None, row_work: str, sqlite_path: Path) -> None:
    """A copy is a copy; what the database does in place is said to be so, and what it only reads."""
    _made(sqlite_path, table, "CREATE INDEX i ON t (a)")

    reshaping = _plan(sqlite_path, statement, strategy).plan.reshaping

    assert str(reshaping.row_work) == row_work
    assert bool(reshaping.key_columns) is (row_work == "copy")
    assert (reshaping.detail["native"] is None) is (row_work == "copy")


@pytest.mark.skipif(LIBRARY < (3, 53, 0), reason="the statement is there from SQLite 3.53 on")
def test_a_statement_that_only_scans_is_no_rewrite(sqlite_path: Path) -> None:
    """SET NOT NULL by the database's own statement; the rows are walked by their key only where they are tried first."""
    _made(sqlite_path, TABLE)

    fast, tried = (_plan(sqlite_path, "ALTER TABLE t ALTER a SET NOT NULL", strategy).plan.reshaping for strategy in ("direct", None))

    assert (str(fast.row_work), fast.key_columns, fast.disk_bytes, fast.tries_rows_first) == ("scan", (), 0, False)
    assert (str(tried.row_work), tried.key_columns, tried.disk_bytes, tried.tries_rows_first) == ("scan", ("id",), 0, True)
    assert [step.phase for step in fast.sql_steps] == ["change"]
    assert {step.phase for step in tried.sql_steps} == {"check rows", "change"}


@pytest.mark.parametrize("statement", ["CREATE INDEX j ON t (b)", "CREATE INDEX j ON t (b, a, d)", "CREATE INDEX j ON t (a)", "REINDEX t", "REINDEX i", "ALTER TABLE t DROP COLUMN d"])
def test_the_room_of_the_database_s_own_statement_is_foretold(statement: str, sqlite_path: Path) -> None:
    """Within a factor of two of what file and write-ahead log grow by."""
    _made(sqlite_path, "PRAGMA journal_mode = WAL", TABLE, "CREATE INDEX i ON t (b)", rows=30_000)
    with closing(sqlite_module().connect(sqlite_path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    foretold = _plan(sqlite_path, statement, "direct").plan.reshaping.disk_bytes
    before = sqlite_path.stat().st_size

    with closing(sqlite_module().connect(sqlite_path, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute(statement)
        log_bytes = sqlite_path.with_name(f"{sqlite_path.name}-wal").stat().st_size
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        grown = sqlite_path.stat().st_size - before

    assert 0.5 < foretold / (log_bytes + grown) < 2


def test_an_index_that_cannot_be_computed_for_a_row_is_planned_all_the_same(sqlite_path: Path) -> None:
    """What it will be like is guessed; that a row fails comes out when it is made."""
    _made(sqlite_path, TABLE)

    assert _plan(sqlite_path, "CREATE INDEX j ON t (json(b))", "direct").plan.reshaping.disk_bytes > 0


def test_the_lock_is_held_longer_for_more_columns_and_for_longer_values(sqlite_path: Path) -> None:
    """An index on two columns, one of them a name, took 1.3 s for a million rows where one of a number takes half of it."""
    _made(sqlite_path, TABLE)
    columns = ("a", "a, d", "b", "a, b", "b, a, d")

    held = [_plan(sqlite_path, f"CREATE INDEX j ON t ({listed})", "direct").plan.reshaping.hold_seconds for listed in columns]

    assert held == sorted(held)
    assert 1.0 < estimate.index_seconds(1_000_000, terms=2, entry_bytes=20, row_bytes=80) < 1.6
    assert 0.5 < estimate.index_seconds(1_000_000, terms=1, entry_bytes=6, row_bytes=80) < 0.9
    of_two = estimate.rebuild_seconds(ROWS, index_terms=[2], row_bytes=80)
    assert estimate.rebuild_seconds(ROWS, index_terms=[], row_bytes=80) < estimate.rebuild_seconds(ROWS, index_terms=[1], row_bytes=80) < of_two


# ── the statements ────────────────────────────────────────────────────────────────────────────────────────────────


class Listening(SqliteDriver):
    """Writes down every text on user tables that is executed."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.heard: list[str] = []

    def run_verbatim(self, connection: Connection, sql: str, binds: tuple[Any, ...]) -> tuple[list[tuple[Any, ...]], int]:
        self.heard.append(sql)
        return super().run_verbatim(connection, sql, binds)


TOLD = {
    "by the number": (TABLE, "ALTER TABLE t ALTER a TYPE TEXT USING json(a), ADD UNIQUE (b)"),
    "by a hidden number": ("CREATE TABLE t (id INT, a INT, b TEXT UNIQUE, d INT)", "ALTER TABLE t ALTER a TYPE TEXT USING json(a), DROP UNIQUE (b)"),
    "by a key of two": ("CREATE TABLE t (id, a, b, d, PRIMARY KEY (id, b)) WITHOUT ROWID", "ALTER TABLE t ALTER a TYPE TEXT USING json(a)"),
    "with references": (
        "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT UNIQUE, b TEXT REFERENCES t (a), d)", "ALTER TABLE t ALTER a TYPE INT USING json(a)",
    ),
    "with a counter": ("CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT, a, b, d)", "ALTER TABLE t DROP PRIMARY KEY, ALTER a TYPE INT USING json(a)"),
}  # fmt: skip


@pytest.mark.parametrize(("table", "statement"), TOLD.values(), ids=TOLD)
def test_every_statement_of_a_plan_is_executed_as_it_stands(table: str, statement: str, sqlite_path: Path) -> None:
    """But for the job's id, and for the numbers, pages and texts that stand for a question mark; none is cut short."""
    with changing(sqlite_path, table, "CREATE INDEX i ON t (d)", statement=statement) as change:
        for number in range(40):
            change.application.execute("INSERT INTO t (id, a, b, d) VALUES (?, ?, ?, ?)", (number, str(number), str(number), number))
        steps = change.reshaping.sql_steps
        heard = _carried_out(change)

    texts = [_as_executed(step.sql) for step in steps]
    assert [step.sql for step in steps if "…" in step.sql or step.sql.rstrip().upper().endswith("WHERE")] == []
    assert [text for text in texts if text not in heard] == []
    assert {step.phase for step in steps} >= {"check rows", "capture", "copy", "catch up", "verify", "cut-over", "purge"}


def _carried_out(change: Change) -> set[str]:
    """Do all of it, with a write that has to be caught up, and return what was executed, as plans write it."""
    driver = Listening(Path(change.database.driver.path))
    change.shadow = SqliteDialect(driver).shadow
    change.database.driver = driver
    change.check_rows()
    change.install()
    change.copy()
    change.application.execute("UPDATE t SET d = d + 1 WHERE id = 7")
    change.catch_up()
    assert change.differing() == []
    change.see_references()
    change.swap()
    change.purge()
    return {_as_executed(text) for text in driver.heard}


def _as_executed(text: str) -> str:
    """Return a text with one id for every job, and a question mark for what a plan cannot know, or an execution binds."""
    text = re.sub(r"tideshift_[07]_", "tideshift_N_", text.split(" -- ", maxsplit=1)[0])
    text = re.sub(r'"seq" <= \d+', '"seq" <= ?', text)
    text = re.sub(r"schema_version = \d+", "schema_version = ?", text)
    if text.startswith(("UPDATE sqlite_master", "INSERT INTO sqlite_master")):
        text = re.sub(r"'(?:[^']|'')*'|NULL", "?", text)
    return text


def test_the_new_text_stands_in_the_plan(sqlite_path: Path) -> None:
    """What the schema table will hold can be read beforehand, with whose pages each row gets."""
    _made(sqlite_path, TABLE)

    steps = _plan(sqlite_path, "ALTER TABLE t ALTER a TYPE TEXT, ALTER c SET DEFAULT 'it''s'", "shadow_table").sql_steps

    (swapped,) = [step.sql for step in steps if step.sql.startswith("UPDATE sqlite_master") and "SET name = 't'" in step.sql]
    assert "a TEXT, b TEXT, c VARCHAR(20) DEFAULT ''it''''s''" in swapped
    assert swapped.endswith("_shadow")


def test_a_rebuild_under_one_lock_is_told_as_it_is_done(sqlite_path: Path) -> None:
    """All rows in one statement, and the replaced table dropped as a whole."""
    _made(sqlite_path, TABLE)

    steps = _plan(sqlite_path, "ALTER TABLE t ALTER a TYPE TEXT", "direct").sql_steps

    (copied,) = [step.sql for step in steps if step.sql.startswith("INSERT OR ABORT")]
    assert copied.endswith('FROM "t" WHERE 1')
    assert [step.sql.split('"')[0] for step in steps if step.phase == "purge"] == ["DROP TABLE IF EXISTS "]


# ── what is lost, and why not ─────────────────────────────────────────────────────────────────────────────────────

EVERY_REASON = {
    "index, view and trigger": (
        ("CREATE INDEX i ON t (a)", "CREATE VIEW v AS SELECT b FROM t", "CREATE TRIGGER r AFTER INSERT ON t BEGIN SELECT NEW.d; END"),
        "DROP COLUMN a, DROP COLUMN b, DROP COLUMN d", ("index 'i'", "view v", "trigger r"),
    ),
    "several of a kind": (
        ("CREATE INDEX i ON t (a)", "CREATE INDEX j ON t (d)", "CREATE INDEX k ON t (b) WHERE \"a\" > 1", "CREATE VIEW v AS SELECT a FROM t", "CREATE VIEW w AS SELECT d FROM t"),
        "DROP COLUMN a, DROP COLUMN d", ("index 'i'", "index 'j'", "index k", "view v", "view w"),
    ),
    "what cannot be edited, and what would break": (
        ("CREATE INDEX i ON t (a)", "CREATE VIEW v AS SELECT b FROM t"), "DROP CONSTRAINT nowhere, DROP COLUMN a, DROP CHECK (a > 0), DROP COLUMN b",
        ("no constraint 'nowhere'", "no CHECK (a > 0)", "index 'i'", "view v"),
    ),
    "rules of the shape, and foreign keys": (
        ("CREATE UNIQUE INDEX u ON t (b)", "CREATE TABLE k (x REFERENCES t (b))", "CREATE VIEW v AS SELECT a FROM t"),
        "DROP COLUMN b, DROP COLUMN a, ALTER d TYPE INT USING random()", ("index 'u'", "k refers to b", "view v", "always gives the same value"),
    ),
}  # fmt: skip


@pytest.mark.parametrize(("schema", "actions", "reasons"), EVERY_REASON.values(), ids=EVERY_REASON)
def test_every_reason_is_given_at_once(schema: tuple[str, ...], actions: str, reasons: tuple[str, ...], sqlite_path: Path) -> None:
    """Over all actions, each once; nobody wants to hear of the next only when the one before is mended."""
    _made(sqlite_path, TABLE, *[text for text in schema if "TRIGGER" not in text])
    with closing(sqlite_module().connect(sqlite_path)) as connection:
        for text in schema:
            connection.execute(text) if "TRIGGER" in text else None

    with pytest.raises(PlanRefused) as caught:
        _plan(sqlite_path, f"ALTER TABLE t {actions}")

    given = caught.value.fields["reasons"]
    assert [sum(part in reason for reason in given) for part in reasons] == [1] * len(reasons), given
    assert len(given) == len(reasons), given


def test_what_follows_from_a_column_that_cannot_be_added_is_no_reason(sqlite_path: Path) -> None:
    """Its own reason is the only one; the rest would be noise."""
    _made(sqlite_path, TABLE, "CREATE VIEW v AS SELECT a FROM t")

    with pytest.raises(PlanRefused) as caught:
        _plan(sqlite_path, "ALTER TABLE t ADD COLUMN a INT, ALTER a SET NOT NULL, ADD CHECK (a > 0)")

    assert caught.value.fields["reasons"] == ["there is a column 'a' already"]


FIRED_BY = {
    "of the table": (("CREATE TRIGGER r AFTER UPDATE OF a, d ON t BEGIN SELECT 1; END",), "DROP COLUMN d"),
    "quoted": (("CREATE TRIGGER r BEFORE UPDATE OF \"D\" ON t BEGIN SELECT 1; END",), "DROP COLUMN d"),
    "called as the words are": (("CREATE TRIGGER of AFTER UPDATE OF d ON t BEGIN SELECT 1; END",), "DROP COLUMN d"),
    "of a view": (
        ("CREATE VIEW v AS SELECT * FROM t", "CREATE TRIGGER r INSTEAD OF UPDATE OF d ON v BEGIN SELECT 1; END"), "DROP COLUMN d",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("schema", "action"), FIRED_BY.values(), ids=FIRED_BY)
def test_a_trigger_that_would_never_fire_again_is_a_reason(schema: tuple[str, ...], action: str, sqlite_path: Path) -> None:
    """SQLite keeps a trigger after UPDATE OF a column that is gone, and it stands there dead."""
    _made(sqlite_path, TABLE)
    with closing(sqlite_module().connect(sqlite_path)) as connection:
        for text in schema:
            connection.execute(text)

    with pytest.raises(PlanRefused, match=r"UPDATE OF .* would never happen again"):
        _plan(sqlite_path, f"ALTER TABLE t {action}")


def test_a_trigger_of_other_columns_is_none(sqlite_path: Path) -> None:
    """Nor one that names a column by its new name after a rename."""
    _made(sqlite_path, TABLE)
    with closing(sqlite_module().connect(sqlite_path)) as connection:
        connection.execute("CREATE TRIGGER r AFTER UPDATE OF a ON t BEGIN SELECT 1; END")

    assert [str(_plan(sqlite_path, f"ALTER TABLE t {action}").plan.strategy) for action in ("DROP COLUMN d", "RENAME COLUMN a TO e")] == ["direct", "instant"]


@pytest.mark.parametrize("key", ["INTEGER PRIMARY KEY AUTOINCREMENT", "INTEGER CONSTRAINT k PRIMARY KEY AUTOINCREMENT"])
def test_a_counter_that_goes_with_its_key_is_told(key: str, sqlite_path: Path) -> None:
    """AUTOINCREMENT and its row in sqlite_sequence are dropped by DROP PRIMARY KEY without being named."""
    _made(sqlite_path, f"CREATE TABLE t (id {key}, a, b, d)", rows=17)
    with on_engine(sqlite_path, strategy=None) as engine:
        proposal = engine.connected.ddl.plan("ALTER TABLE t DROP PRIMARY KEY")
        engine.finish(engine.submit("ALTER TABLE t DROP PRIMARY KEY"))

    assert proposal.drops == (
        "AUTOINCREMENT of t is dropped with its row in sqlite_sequence (now 17), so that the numbers of deleted rows may be given again",
    )
    with closing(sqlite_module().connect(sqlite_path)) as connection:
        assert connection.execute("SELECT count(*) FROM sqlite_sequence").fetchall() == [(0,)]
    assert _plan(sqlite_path, "ALTER TABLE t ALTER a TYPE TEXT").drops == ()
