"""Cases that went wrong once: each is a small scenario that must end as it says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.dialects.sqlite.reshaping import changing
from tests.proof.engine import application, on_engine
from tideshift.ddl.machine import JobState
from tideshift.errors import PlanRefused, SchemaChanged, ValueRefused

TABLE = "CREATE TABLE t (id INTEGER PRIMARY KEY, c TEXT, d)"
TO_INTEGER = "ALTER TABLE t ALTER c TYPE INTEGER"


def _made(path: Path, *schema: str) -> None:
    connection = application(path)
    for text in schema:
        connection.execute(text)
    connection.close()


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
    assert application(sqlite_path).execute("SELECT c FROM t").fetchall() == [("8",), ("007",), ("nobody",)]


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

        with change.database.session() as session:
            change.shadow.see_references(session, change.reorg)
        change.application.execute("INSERT INTO t VALUES (4, '40', '1')")
        change.application.execute("INSERT INTO k VALUES (3, '40')")
        change.catch_up()
        with change.database.session() as session, pytest.raises(ValueRefused, match="a row of k .*id = 3"):
            change.shadow.see_references(session, change.reorg)


DANGLING = {
    "a parent that is not there": ("CREATE TABLE t (id INTEGER PRIMARY KEY, c TEXT REFERENCES missing (x))",),
    "a parent column that is not there": (
        "CREATE TABLE t (id INTEGER PRIMARY KEY, c TEXT UNIQUE)",
        "CREATE TABLE k (x TEXT, y, FOREIGN KEY (x, y) REFERENCES t (c, nothing))",
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

    assert (job.state, job.error, job.warnings) == (JobState.SYNCED, None, [])
    assert application(sqlite_path).execute("SELECT c FROM t").fetchall() == [(1,), (2,)]


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
        assert change.reshaping.detail["using"] == expression


SPACELESS = {
    "a quoted type": ('CREATE TABLE t(id INTEGER PRIMARY KEY,c"TEXT"NOT NULL)', "c INTEGER NOT NULL)"),
    "a quoted name without a type": ('CREATE TABLE t(id INTEGER PRIMARY KEY,"c"NOT NULL)', '"c" INTEGER NOT NULL)'),
    "a bracketed name and a default": ("CREATE TABLE t(id INTEGER PRIMARY KEY,[c]TEXT DEFAULT'x')", "[c] INTEGER DEFAULT'x')"),
    "a comment between": ("CREATE TABLE t(id INTEGER PRIMARY KEY,c/**/TEXT/**/NOT NULL)", "c/**/INTEGER/**/NOT NULL)"),
    "no type and a comment": ("CREATE TABLE t(id INTEGER PRIMARY KEY,c/**/,d)", "c INTEGER/**/,d)"),
}


@pytest.mark.parametrize(("text", "end"), SPACELESS.values(), ids=SPACELESS)
def test_a_type_never_runs_into_the_words_beside_it(text: str, end: str, sqlite_path: Path) -> None:
    """Blanks are put where the text had none, and nowhere else."""
    with changing(sqlite_path, text, statement=TO_INTEGER) as change:
        assert change.reshaping.detail["new_text"] == f"CREATE TABLE t(id INTEGER PRIMARY KEY,{end}"


def test_a_very_wide_table_is_refused_with_the_reason(sqlite_path: Path) -> None:
    """The library could not compare its rows in one expression."""
    columns = ", ".join(f"c{number}" for number in range(451))

    with pytest.raises(PlanRefused, match="452 columns"), changing(sqlite_path, f"CREATE TABLE t ({columns}, c TEXT)"):
        pass
