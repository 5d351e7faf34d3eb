"""References, plans, the log and cascades at their edges: each is a small scenario that must end as it says."""

from __future__ import annotations

from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

import pytest

from tests.dialects.sqlite.reshaping import changing
from tests.proof.engine import application, library, on_engine
from tideshift.ddl import points
from tideshift.ddl.machine import JobState
from tideshift.ddl.reorg.verify import LOG_ROWS_SOFT
from tideshift.dialects import points as dialect_points
from tideshift.dialects.sqlite import rowids
from tideshift.dialects.sqlite.keys import SqliteKeyOrder
from tideshift.errors import PlanRefused, SchemaChanged, ValueRefused
from tideshift.failpoint.pytest_plugin import Failpoints
from tideshift.store.keys import KeyRange

TABLE = "CREATE TABLE t (id INTEGER PRIMARY KEY, c TEXT, d)"
TO_INTEGER = "ALTER TABLE t ALTER c TYPE INTEGER"


def _made(path: Path, *schema: str) -> None:
    with closing(application(path)) as connection:
        for text in schema:
            connection.execute(text)


def _read(path: Path, sql: str) -> list[Any]:
    with closing(application(path)) as connection:
        return connection.execute(sql).fetchall()


# ── references ────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_reference_that_the_change_breaks_rolls_the_job_back(sqlite_path: Path) -> None:
    """It is found before the swap: the table stays as it was, and the error names the key."""
    _made(
        sqlite_path,
        "CREATE TABLE p (k TEXT PRIMARY KEY)",
        "INSERT INTO p VALUES ('8'), ('007')",
        "CREATE TABLE t (id INTEGER PRIMARY KEY, c TEXT REFERENCES p (k))",
        "INSERT INTO t VALUES (1, '8'), (2, '007'), (3, 'nobody')",
    )

    with on_engine(sqlite_path) as engine:
        job = engine.run(TO_INTEGER)

    assert job.state is JobState.ROLLBACK_DONE
    assert job.error is not None
    assert job.error["code"] == ValueRefused.code
    assert "id = 2" in job.error["message"]
    assert _read(sqlite_path, "SELECT c FROM t") == [("8",), ("007",), ("nobody",)]


def test_a_reference_to_the_changed_column_is_looked_at_before_the_swap(sqlite_path: Path) -> None:
    """The child of another table counts too; a key that waits in the log is not taken for a broken one."""
    schema = (
        "CREATE TABLE t (id INTEGER PRIMARY KEY, c TEXT UNIQUE, own TEXT REFERENCES t (c))",
        "CREATE TABLE k (id INTEGER PRIMARY KEY, c TEXT REFERENCES t (c))",
        "INSERT INTO t VALUES (1, '1', '1'), (2, '2', '1')",
        "INSERT INTO k VALUES (1, '1')",
    )
    with changing(sqlite_path, *schema, statement="ALTER TABLE t ALTER c TYPE TEXT USING replace(c, '0', '')") as change:
        change.install()
        change.copy()
        change.application.execute("INSERT INTO t VALUES (3, '3', '3')")
        change.application.execute("INSERT INTO k VALUES (2, '3')")

        change.see_references()
        change.application.execute("INSERT INTO t VALUES (4, '40', '1')")
        change.application.execute("INSERT INTO k VALUES (3, '40')")
        change.catch_up()
        with pytest.raises(ValueRefused, match=r"a row of k .*id = 3"):
            change.see_references()


DANGLING = {
    "a parent that is not there": ("CREATE TABLE t (id INTEGER PRIMARY KEY, c TEXT REFERENCES missing (x))",),
    "a parent column that is not there": (
        "CREATE TABLE t (id INTEGER PRIMARY KEY, c TEXT UNIQUE)",
        "CREATE TABLE k (x TEXT, y, FOREIGN KEY (x, y) REFERENCES t (c, absent))",
        "INSERT INTO k VALUES ('1', 1)",
    ),
    "more columns than the parent's key has": (
        "CREATE TABLE t (id INTEGER PRIMARY KEY, c TEXT UNIQUE)",
        "CREATE TABLE k (x TEXT, y, FOREIGN KEY (x, y) REFERENCES t)",
    ),
    "a parent that is a view": ("CREATE VIEW v AS SELECT 1 AS a", "CREATE TABLE t (id INTEGER PRIMARY KEY, c TEXT REFERENCES v (a))"),
    "a child whose rowid is hidden": (
        "CREATE TABLE t (id INTEGER PRIMARY KEY, c TEXT UNIQUE)",
        "CREATE TABLE k (rowid, oid, _rowid_, x TEXT REFERENCES t (c))",
        "INSERT INTO k VALUES (1, 1, 1, '1')",
    ),
    "a parent by letters of another case": (
        "CREATE TABLE T (id INTEGER PRIMARY KEY, c TEXT UNIQUE)",
        "CREATE TABLE k (x TEXT REFERENCES t (C))",
        "INSERT INTO k VALUES ('1')",
    ),
}


@pytest.mark.parametrize("schema", DANGLING.values(), ids=DANGLING)
def test_a_reference_that_leads_nowhere_stops_no_job(schema: tuple[str, ...], sqlite_path: Path) -> None:
    """SQLite lets such schemas be, and nobody can rely on them."""
    _made(sqlite_path, *schema, "INSERT INTO t (id, c) VALUES (1, '1'), (2, '2')")

    with on_engine(sqlite_path) as engine:
        job = engine.run(TO_INTEGER)

    assert (job.state, job.error) == (JobState.SYNCED, None)
    assert all("no trigger yet" in warning for warning in job.warnings)
    assert _read(sqlite_path, "SELECT c FROM t") == [(1,), (2,)]


# ── plans ─────────────────────────────────────────────────────────────────────────────────────────────────────────

USING_REFUSED = {
    "a double-quoted word that is no column": ('"totl"', "no such column"),
    "a double-quoted rowid of another name": ('"row_id" + c', "no such column"),
    "the time of now": ("strftime('%f', 'now')", "non-deterministic"),
    "the time of now as a word": ("CURRENT_TIMESTAMP", "non-deterministic"),
    "the time of now for some rows": ("CASE WHEN c IS NULL THEN 0 WHEN typeof(c) = 'text' THEN date('now') END", "non-deterministic"),
}


@pytest.mark.parametrize(("expression", "reason"), USING_REFUSED.values(), ids=USING_REFUSED)
def test_a_using_that_would_go_wrong_silently_is_refused(expression: str, reason: str, sqlite_path: Path) -> None:
    """A misspelt name is no string here, and what is another value each time cannot be compared."""
    with pytest.raises(PlanRefused, match=reason), changing(sqlite_path, TABLE, statement=f"{TO_INTEGER} USING {expression}"):
        pass


@pytest.mark.parametrize(
    "expression",
    ['"c" || "rowid"', '"abs"("t"."c") COLLATE "nocase"', "date(c)", "strftime('%Y', c)", "CAST(c AS \"INTEGER\")", "'a\"b' || c"],
)
def test_names_in_double_quotes_and_dates_of_a_row_stay_allowed(expression: str, sqlite_path: Path) -> None:
    """Only what names nothing, or looks at the clock, is refused."""
    with changing(sqlite_path, TABLE, statement=f"{TO_INTEGER} USING {expression}") as change:
        assert [one["value"] for one in change.reshaping.detail["layout"]["mapped"] if one["name"] == "c"] == [f"({expression})"]


SPACELESS = {
    "a quoted type": ('CREATE TABLE t(id INTEGER PRIMARY KEY,c"TEXT"NOT NULL)', "c INTEGER NOT NULL)"),
    "a quoted name without a type": ('CREATE TABLE t(id INTEGER PRIMARY KEY,"c"NOT NULL)', '"c" INTEGER NOT NULL)'),
    "a bracketed name and a default": ("CREATE TABLE t(id INTEGER PRIMARY KEY,[c]TEXT DEFAULT'x')", "[c]INTEGER DEFAULT'x')"),
    "a comment between": ("CREATE TABLE t(id INTEGER PRIMARY KEY,c/**/TEXT/**/NOT NULL)", "c/**/INTEGER/**/NOT NULL)"),
    "no type and a comment": ("CREATE TABLE t(id INTEGER PRIMARY KEY,c/**/,d)", "c INTEGER/**/,d)"),
}


@pytest.mark.parametrize(("text", "end"), SPACELESS.values(), ids=SPACELESS)
def test_a_type_never_runs_into_the_words_beside_it(text: str, end: str, sqlite_path: Path) -> None:
    """Blanks are put where the text had none and needs one, and nowhere else."""
    with changing(sqlite_path, text, statement=TO_INTEGER) as change:
        assert change.reshaping.detail["layout"]["new"]["text"] == f"CREATE TABLE t(id INTEGER PRIMARY KEY,{end}"


def test_a_very_wide_table_is_refused_with_the_reason(sqlite_path: Path) -> None:
    """The library could not compare its rows in one expression."""
    columns = ", ".join(f"c{number}" for number in range(451))

    with pytest.raises(PlanRefused, match="452 columns"), changing(sqlite_path, f"CREATE TABLE t ({columns}, c TEXT)"):
        pass


def test_a_row_that_does_not_fit_is_found_before_anything_is_made(sqlite_path: Path, failpoints: Failpoints) -> None:
    """The job tries its rows first: it ends cancelled, names the key, and has made nothing in the file."""
    _made(sqlite_path, "CREATE TABLE t (id INTEGER PRIMARY KEY, c TEXT) STRICT", "INSERT INTO t VALUES (1, '1'), (2, 'x'), (3, '3')")
    making = failpoints.enable(dialect_points.INSTALL_TABLE, "off", may_miss=True)

    with on_engine(sqlite_path) as engine:
        job = engine.run(TO_INTEGER)

    assert job.state is JobState.CANCELLED
    assert job.error is not None
    assert job.error["code"] == ValueRefused.code
    assert "id = 2" in job.error["message"]
    assert making.hits == 0


# ── the log ───────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("event", ["BEFORE INSERT", "AFTER UPDATE", "AFTER DELETE"])
def test_a_trigger_made_while_changes_are_logged_is_noticed(event: str, sqlite_path: Path) -> None:
    """It fires before ours; its table's name may be spelt in any case."""
    with changing(sqlite_path, TABLE, "INSERT INTO t VALUES (1, '1', 1)") as change:
        change.install()
        change.application.execute(f"CREATE TRIGGER late {event} ON T BEGIN SELECT RAISE(IGNORE); END")

        with pytest.raises(SchemaChanged, match=r"a trigger was made on t .*: late"):
            change.copy()


@pytest.mark.parametrize("what", ["IGNORE", "FAIL, 'no'"])
@pytest.mark.parametrize("statement", ["INSERT INTO t VALUES (2, '2', 2)", "UPDATE t SET d = 9", "DELETE FROM t"])
def test_an_older_trigger_keeps_no_write_out_of_the_log(what: str, statement: str, sqlite_path: Path) -> None:
    """Ours are newer and fire first, also on a connection that reads the schema from the file."""
    old = [f"CREATE TRIGGER old_{event} AFTER {event} ON t BEGIN SELECT RAISE({what}); END" for event in ("INSERT", "UPDATE", "DELETE")]
    with changing(sqlite_path, TABLE, "INSERT INTO t VALUES (1, '1', 1)", *old) as change:
        change.install()
        change.copy()
        with closing(application(sqlite_path)) as connection:
            fails = pytest.raises(library().Error, match=r"^no$") if what.startswith("FAIL") else nullcontext()
            with fails:
                connection.execute(statement)

        assert change.catch_up() == 1
        assert change.differing() == []


def test_nothing_is_compared_while_the_log_is_long(sqlite_path: Path, failpoints: Failpoints) -> None:
    """However much is written before and between comparisons, each looks its keys up in a short log."""
    _made(
        sqlite_path,
        TABLE,
        "INSERT INTO t WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 900) SELECT i, i, 0 FROM n",
    )
    waiting = []
    with on_engine(sqlite_path) as engine, closing(application(sqlite_path)) as writer:
        job_id = engine.submit(TO_INTEGER, batch_size=100)
        engine.until_stage(job_id, "verify")
        log = writer.execute("SELECT name FROM sqlite_master WHERE name GLOB 'tideshift_[0-9]*_log'").fetchone()[0]

        def look(**_: object) -> None:
            waiting.append(writer.execute(f"SELECT count(*) FROM {log}").fetchone()[0])
            if len(waiting) < 4:
                writer.execute("UPDATE t SET d = d + 1")

        failpoints.enable(points.AFTER_COMPARE, call=look)
        writer.execute("UPDATE t SET d = d + 1")
        job = engine.finish(job_id)

    assert job.state is JobState.SYNCED
    assert len(waiting) >= 4
    assert max(waiting) < LOG_ROWS_SOFT


def test_a_big_table_without_rowid_is_not_read_to_be_cut(sqlite_path: Path) -> None:
    """A read that takes long shuts writers out where there is a rollback journal; so it stays one range."""
    rows = rowids.COUNTED_ROWS_MAX + 10
    schema = (
        "CREATE TABLE t (k INT PRIMARY KEY, c TEXT) WITHOUT ROWID",
        f"INSERT INTO t WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {rows}) SELECT i, i FROM n",
    )
    with changing(sqlite_path, *schema) as change, change.reading() as tx:
        order = SqliteKeyOrder.read(tx, "t", change.database.driver)

        assert order.split(tx, KeyRange(None, None), parts=8) == [KeyRange(None, None)]
        assert len(order.split(tx, KeyRange(None, [["int", "1000"]]), parts=8)) == 8


# ── deletions that go on ──────────────────────────────────────────────────────────────────────────────────────────

SELF = "CREATE TABLE t (id INTEGER PRIMARY KEY, p INT REFERENCES t (id) ON DELETE {}, u INT UNIQUE, c TEXT)"
DISPLACING = {
    "a parent": "UPDATE OR REPLACE t SET u = 10 WHERE id = 2",
    "a parent by its key": "UPDATE OR REPLACE t SET id = 1 WHERE id = 2",
    "a parent's parent": "UPDATE OR REPLACE t SET u = 10 WHERE id = 3",
    "many": "UPDATE OR REPLACE t SET u = 10",
}


@pytest.mark.parametrize("action", ["CASCADE", "CASCADE ON UPDATE CASCADE", "SET NULL ON UPDATE CASCADE", "SET DEFAULT ON UPDATE CASCADE"])
@pytest.mark.parametrize("statement", DISPLACING.values(), ids=DISPLACING)
@pytest.mark.parametrize("copied", ["before", "after"])
def test_a_row_that_goes_with_the_row_that_it_displaced_leaves_both_in_the_log(
    action: str, statement: str, copied: str, sqlite_path: Path
) -> None:
    """The library deletes the displaced row silently, and by the cascade the updated one, which no trigger is told of."""
    rows = "INSERT INTO t VALUES (1, NULL, 10, '1'), (2, 1, 20, '2'), (3, 2, 30, '3'), (4, NULL, 40, '4'), (5, 4, 50, '5')"
    with changing(sqlite_path, SELF.format(action), rows) as change:
        change.install()
        change.copy(rows_max=2)
        change.application.execute("PRAGMA foreign_keys = 1")
        change.application.execute(statement)
        if copied == "after":
            change.copy(rows_max=2)
        change.catch_up()

        assert change.differing() == []
        assert change.rows(f"SELECT id FROM {change.named('shadow')[0]}") == change.rows("SELECT id FROM t")


def test_deletions_that_cannot_be_followed_are_refused(tmp_path: Path) -> None:
    """Where they come round through another table, or by the changed column itself."""
    round_about = (
        "CREATE TABLE t (id INTEGER PRIMARY KEY, k INT REFERENCES k (id) ON DELETE CASCADE, c TEXT)",
        "CREATE TABLE k (id INTEGER PRIMARY KEY, m REFERENCES m ON DELETE CASCADE)",
        "CREATE TABLE m (id INTEGER PRIMARY KEY, t REFERENCES T (id) ON DELETE CASCADE)",
    )
    with pytest.raises(PlanRefused, match="comes back to it by ON DELETE CASCADE"), changing(tmp_path / "1.db", *round_about):
        pass
    by_itself = "CREATE TABLE t (id INTEGER PRIMARY KEY, c TEXT UNIQUE, p TEXT REFERENCES t (c) ON DELETE CASCADE)"
    with pytest.raises(PlanRefused, match="are deleted together by 'c'"), changing(tmp_path / "2.db", by_itself):
        pass
    with changing(tmp_path / "3.db", by_itself, statement="ALTER TABLE t ALTER c TYPE VARCHAR(9)"):
        pass
    open_ended = round_about[2].replace("ON DELETE CASCADE", "ON DELETE SET NULL")
    with changing(tmp_path / "4.db", *round_about[:2], open_ended):
        pass


def test_generated_columns_are_never_computed_from_nothing(sqlite_path: Path) -> None:
    """A trigger before the statement makes the library compute all of them, from the columns that triggers read."""
    schema = (
        "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT NOT NULL, c TEXT UNIQUE, g AS (json_extract(ifnull(a, ''), '$.k')))",
        """INSERT INTO t (id, a, c) VALUES (1, '{"k": 1}', '5')""",
    )
    with changing(sqlite_path, *schema, statement=f"{TO_INTEGER} USING c + 0") as change:
        change.install()
        change.copy()

        assert change.application.execute("UPDATE t SET c = '7' WHERE id = 1").rowcount == 1
        assert change.application.execute("UPDATE t SET a = '{}' WHERE id = 1").rowcount == 1
        change.catch_up()
        assert change.differing() == []


@pytest.mark.parametrize(("column", "warned"), [("d", True), ("d BLOB", True), ("d TEXT", False), ("d INT", False), ("d AS (c)", False)])
def test_a_plan_warns_of_writes_that_no_trigger_sees(column: str, warned: bool, sqlite_path: Path) -> None:
    """Where a column can hold BLOBs, an application may write into them without a statement."""
    with changing(sqlite_path, f"CREATE TABLE t (id INTEGER PRIMARY KEY, c TEXT, {column})") as change:
        assert any("can hold BLOBs" in warning for warning in change.reshaping.warnings) is warned


@pytest.mark.parametrize(
    ("column", "trigger", "warned"), [("d TEXT UNIQUE", "", True), ("d TEXT", "", False), ("d TEXT UNIQUE", "CREATE TRIGGER own AFTER DELETE ON T BEGIN SELECT 1; END", False)]
)
def test_a_plan_warns_where_the_first_trigger_of_a_table_could_be_felt(column: str, trigger: str, warned: bool, sqlite_path: Path) -> None:
    """SQLite takes the rows of an UPDATE otherwise once a table has a trigger."""
    with changing(sqlite_path, f"CREATE TABLE t (id INTEGER PRIMARY KEY, c TEXT, {column})", *([trigger] if trigger else [])) as change:
        assert any("no trigger yet" in warning for warning in change.reshaping.warnings) is warned


def test_a_reference_broken_at_the_last_moment_leaves_a_warning_and_no_job_behind(sqlite_path: Path, failpoints: Failpoints) -> None:
    """After the swap nothing can be undone: whatever the inspection meets, the job ends and keeps the old rows."""
    _made(
        sqlite_path,
        "CREATE TABLE p (k TEXT PRIMARY KEY)",
        "INSERT INTO p VALUES ('8'), ('007')",
        "CREATE TABLE t (id INTEGER PRIMARY KEY, c TEXT REFERENCES p (k))",
        "INSERT INTO t VALUES (1, '8')",
    )
    with on_engine(sqlite_path) as engine, closing(application(sqlite_path)) as writer:
        job_id = engine.submit(TO_INTEGER)
        failpoints.enable(points.BEFORE_CUTOVER, "1*call", call=lambda **_: writer.execute("INSERT INTO t VALUES (2, '007')"))
        job = engine.finish(job_id)

    assert job.state is JobState.SYNCED
    assert any("id = 2" in warning and "the old rows are kept" in warning for warning in job.warnings)


def test_a_failed_inspection_leaves_a_warning(sqlite_path: Path, failpoints: Failpoints) -> None:
    """A table that was dropped after the swap cannot be inspected; the job ends all the same."""
    _made(sqlite_path, "CREATE TABLE t (id INTEGER PRIMARY KEY, c TEXT UNIQUE)", "CREATE TABLE k (c REFERENCES t (c))", "INSERT INTO k VALUES ('1')")
    with on_engine(sqlite_path) as engine, closing(application(sqlite_path)) as writer:
        job_id = engine.submit(TO_INTEGER)
        failpoints.enable(points.BEFORE_INSPECT, "1*call", call=lambda **_: writer.execute("DROP TABLE t"))
        job = engine.finish(job_id)

    assert job.state is JobState.SYNCED
    assert any("the old rows are kept" in warning for warning in job.warnings)
