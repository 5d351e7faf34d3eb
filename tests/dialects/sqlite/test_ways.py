"""Which way a change is carried out: the cheapest that does it right, as this library and this schema allow."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.proof.engine import on_engine
from tests.servers import sqlite_module
from tideshift.connect import connect
from tideshift.errors import InvalidParameter, NotFound, PlanRefused

FEW, MANY = 20, 30_000
TABLE = "CREATE TABLE t (id INTEGER PRIMARY KEY, a INT, b TEXT UNIQUE, c)"
LIBRARY = sqlite_module().sqlite_version_info


def _made(path: Path, *texts: str, rows: int = FEW) -> None:
    with closing(sqlite_module().connect(path, isolation_level=None)) as connection:
        for text in texts:
            connection.execute(text)
        connection.execute(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?) INSERT INTO t (id, a, b) SELECT i, i, 'b' || i FROM n",
            (rows,),
        )


def _way(path: Path, statement: str, **wishes) -> str:
    with connect(str(path)) as connected:
        return str(connected.ddl.plan(statement, **wishes).plan.strategy)


WAYS = {
    "ALTER TABLE t ADD COLUMN d INT DEFAULT 5": ("instant", "instant"),
    "ALTER TABLE t ADD COLUMN d INT NOT NULL DEFAULT 5": ("instant", "instant"),
    "ALTER TABLE t ADD COLUMN d DEFAULT CURRENT_TIMESTAMP": ("direct", "shadow_table"),
    "ALTER TABLE t ADD COLUMN d INT UNIQUE": ("direct", "shadow_table"),
    "ALTER TABLE t ADD COLUMN d AS (a + 1) STORED": ("direct", "shadow_table"),
    "ALTER TABLE t ADD COLUMN d INT FIRST": ("direct", "shadow_table"),
    "ALTER TABLE t DROP COLUMN a": ("direct", "shadow_table"),
    "ALTER TABLE t RENAME COLUMN a TO e": ("instant", "instant"),
    "ALTER TABLE t RENAME TO u": ("instant", "instant"),
    "ALTER TABLE t ALTER a TYPE TEXT": ("direct", "shadow_table"),
    "ALTER TABLE t ALTER a SET DEFAULT 5": ("direct", "shadow_table"),
    "ALTER TABLE t SET STRICT, ALTER c TYPE ANY": ("direct", "shadow_table"),
    "CREATE INDEX i ON t (a)": ("direct", "shadow_table"),
    "REINDEX t": ("direct", "shadow_table"),
    "ALTER TABLE t ADD COLUMN d INT, DROP COLUMN a": ("direct", "shadow_table"),
}


@pytest.mark.parametrize(("statement", "ways"), WAYS.items(), ids=WAYS)
def test_the_cheapest_way_is_chosen_by_the_size(statement: str, ways: tuple[str, str], sqlite_path: Path) -> None:
    """What touches no row is instant; the rest is done at once where that is over in a moment, and else by a shadow table."""
    _made(sqlite_path, TABLE, rows=FEW)
    few = _way(sqlite_path, statement)
    with closing(sqlite_module().connect(sqlite_path, isolation_level=None)) as connection:
        connection.execute(
            "WITH RECURSIVE n (i) AS (SELECT 100 UNION ALL SELECT i + 1 FROM n WHERE i < ?) INSERT INTO t (id, a, b) SELECT i, i, 'b' || i FROM n",
            (MANY,),
        )

    assert (few, _way(sqlite_path, statement)) == ways


@pytest.mark.skipif(LIBRARY < (3, 53, 0), reason="the statements are there from SQLite 3.53 on")
def test_a_newer_library_brings_its_own_statements(sqlite_path: Path) -> None:
    """They only look at the rows, so they are the way for tables that are a lot larger."""
    _made(sqlite_path, TABLE, rows=MANY)

    assert _way(sqlite_path, "ALTER TABLE t ALTER a SET NOT NULL") == "direct"


def test_a_check_that_is_neither_true_nor_false_holds(sqlite_path: Path) -> None:
    """Every INSERT takes such a row; SQLite 3.53's own ADD CHECK refuses it, so it is not used."""
    _made(sqlite_path, TABLE, "INSERT INTO t VALUES (-1, NULL, 'x', NULL)")

    with on_engine(sqlite_path, strategy=None) as engine:
        job = engine.finish(engine.submit("ALTER TABLE t ADD CONSTRAINT k CHECK (a < 1000000)"))

    assert (str(job.state), job.error) == ("synced", None)


@pytest.mark.skipif(LIBRARY < (3, 53, 0), reason="the statement is there from SQLite 3.53 on")
def test_a_statement_that_rewrites_more_than_was_asked_is_not_used(sqlite_path: Path) -> None:
    """SQLite 3.53 writes SET NOT NULL over a NOT DEFERRABLE in the same column."""
    _made(
        sqlite_path,
        "CREATE TABLE t (id INTEGER PRIMARY KEY, a INT REFERENCES t ON DELETE SET NULL NOT DEFERRABLE, b)",
        rows=MANY,
    )

    assert _way(sqlite_path, "ALTER TABLE t ALTER a SET NOT NULL") == "shadow_table"


REFUSED = {
    "a trigger's body uses the column": (
        (TABLE, "CREATE TABLE o (x)", "CREATE TRIGGER r AFTER INSERT ON o BEGIN UPDATE t SET a = NEW.x; END"), "ALTER TABLE t DROP COLUMN a",
        "it would break trigger r: no such column: a",
    ),
    "a trigger of its own uses the column": (
        (TABLE, "CREATE TRIGGER r AFTER INSERT ON t BEGIN UPDATE t SET c = NEW.a WHERE id = NEW.id; END"), "ALTER TABLE t DROP COLUMN a",
        "it would break trigger r: no such column: NEW.a",
    ),
    "a view uses the column": ((TABLE, "CREATE VIEW v AS SELECT a FROM t"), "ALTER TABLE t DROP COLUMN a", "it would break view v"),
    "an index uses the column": ((TABLE, "CREATE INDEX i ON t (a)"), "ALTER TABLE t DROP COLUMN a", "the library refuses the new shape (index 'i')"),
    "a unique column": ((TABLE,), "ALTER TABLE t DROP COLUMN b", "drop the constraint first"),
    "another view is broken": ((TABLE, "CREATE VIEW v AS SELECT x FROM nowhere"), "ALTER TABLE t RENAME COLUMN a TO e", "error in view v"),
    "the name is taken": ((TABLE,), "ALTER TABLE t RENAME TO t", "the library refuses it"),
    "an index of that name": ((TABLE, "CREATE INDEX i ON t (a)"), "CREATE INDEX I ON t (b)", "there is an index 'I' already"),
    "an index of a constraint": ((TABLE,), "DROP INDEX sqlite_autoindex_t_1", "belongs to a constraint"),
    "a foreign key to nowhere": ((TABLE,), "ALTER TABLE t ADD FOREIGN KEY (a) REFERENCES nowhere", "no table with a unique key"),
    "a foreign key to a part of a primary key": (
        (TABLE, "CREATE TABLE p (x UNIQUE, y, PRIMARY KEY (x, y))"), "ALTER TABLE t ADD FOREIGN KEY (a) REFERENCES p", "no table with a unique key",
    ),
    "a foreign key to what is unique in another sense": (
        (TABLE, "CREATE TABLE p (x TEXT, UNIQUE (x COLLATE NOCASE))"), "ALTER TABLE t ADD FOREIGN KEY (a) REFERENCES p (x)", "no table with a unique key",
    ),
    "a key that others refer to": (
        (TABLE, "CREATE TABLE k (b TEXT REFERENCES t (b))"), "ALTER TABLE t DROP UNIQUE (b)", "k refers to b, which would be no unique key",
    ),
    "a counter for a table that is there": (
        ("CREATE TABLE t (id INT, a, b)",), "ALTER TABLE t ADD PRIMARY KEY (id AUTOINCREMENT)", "AUTOINCREMENT",
    ),
    "a number that nothing holds unique": (
        ("CREATE TABLE t (id INTEGER, a, b)",), "ALTER TABLE t ADD PRIMARY KEY (id)", "create one first: CREATE UNIQUE INDEX",
    ),
    "a check names the column in double quotes": (
        ("CREATE TABLE t (id INTEGER PRIMARY KEY, a, b, c, CHECK (\"a\" <> 'x'))",), "ALTER TABLE t DROP COLUMN a", "no such column: a",
    ),
    "a generated column names the column in double quotes": (
        ("CREATE TABLE t (id INTEGER PRIMARY KEY, a, b, g AS (\"a\" || 'x') STORED)",), "ALTER TABLE t DROP COLUMN a", "no such column: a",
    ),
    "an index names the column in double quotes": (
        (TABLE, "CREATE INDEX i ON t (b) WHERE \"a\" > 2"), "ALTER TABLE t DROP COLUMN a", "it would break index i: no such column: a",
    ),
    "a view names the column in double quotes": (
        (TABLE, "CREATE VIEW v AS SELECT \"id\", \"a\" FROM t"), "ALTER TABLE t DROP COLUMN a", "it would break view v: no such column: a",
    ),
    "a trigger names the column in double quotes": (
        (TABLE, "CREATE TABLE o (x)", "CREATE TRIGGER r AFTER INSERT ON o BEGIN UPDATE t SET c = \"a\"; END"), "ALTER TABLE t DROP COLUMN a",
        "it would break trigger r: no such column: a",
    ),
    "a misspelt name in a new check": ((TABLE,), "ALTER TABLE t ADD CHECK (\"aa\" > 0)", "a name in double quotes names nothing"),
    "a misspelt name in a new column": ((TABLE,), "ALTER TABLE t ADD COLUMN d AS (\"aa\") STORED", "a name in double quotes names nothing"),
    "a misspelt name in a new index": ((TABLE,), "CREATE INDEX i ON t (\"aa\")", "no such column: aa"),
    "a key that the table itself refers to": (
        ("CREATE TABLE t (id INTEGER PRIMARY KEY, a, b TEXT UNIQUE, p TEXT REFERENCES t (b))",), "ALTER TABLE t DROP UNIQUE (b)",
        "t refers to b, which would be no unique key",
    ),
    "a primary key that the table itself refers to": (
        ("CREATE TABLE t (id INT PRIMARY KEY, a, b UNIQUE, p REFERENCES t)",), "ALTER TABLE t DROP PRIMARY KEY, ADD UNIQUE (id)",
        "t refers to id, which would be no primary key",
    ),
    "an index that others refer by": (
        (TABLE, "CREATE UNIQUE INDEX i ON t (a)", "CREATE TABLE k (x REFERENCES t (a))"), "DROP INDEX i", "k refers to a, which would be no unique key",
    ),
    "the rowid goes with its column": ((TABLE,), "ALTER TABLE t DROP COLUMN id, ADD COLUMN k TEXT", "drop the primary key first"),
    "a key becomes the rowid beside something else": (
        ("CREATE TABLE t (id INT PRIMARY KEY, a, b)",), "ALTER TABLE t ALTER id TYPE INTEGER, ADD COLUMN c", "by a change of type",
    ),
    "a table's name of ours": ((TABLE,), "ALTER TABLE t RENAME TO tideshift_t", "tideshift's own"),
    "an index's name of ours": ((TABLE,), "CREATE INDEX tideshift_1_x ON t (a)", "tideshift's own"),
    "neither number nor key": (
        ("CREATE TABLE t (id INT PRIMARY KEY, a, b) WITHOUT ROWID",), "ALTER TABLE t DROP PRIMARY KEY, SET ROWID", "",
    ),
}  # fmt: skip


MISMATCHED = (
    "CREATE TABLE t (id INT, a TEXT COLLATE NOCASE REFERENCES t, b UNIQUE, PRIMARY KEY (b, id))",
    "CREATE TABLE t (id INT REFERENCES t (a), a TEXT COLLATE NOCASE, b, UNIQUE (a COLLATE BINARY))",
)


@pytest.mark.parametrize("text", MISMATCHED)
def test_a_reference_that_finds_no_key_keeps_nothing_back(text: str, sqlite_path: Path) -> None:
    """The library calls it a mismatch at every write; a change that is not about it neither mends nor worsens that."""
    _made(sqlite_path, text)

    assert _way(sqlite_path, "ALTER TABLE t ADD COLUMN c INT FIRST") == "direct"


@pytest.mark.parametrize(("schema", "statement", "reason"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("rows", [FEW, MANY])
def test_what_cannot_be_done_right_is_refused_in_any_way(
    schema: tuple[str, ...], statement: str, reason: str, rows: int, sqlite_path: Path
) -> None:
    """Also where SQLite itself would do it, and leave something that fails."""
    _made(sqlite_path, *[text for text in schema if not text.startswith("CREATE TRIGGER")], rows=rows)
    with closing(sqlite_module().connect(sqlite_path)) as connection:
        for text in schema:
            if text.startswith("CREATE TRIGGER"):
                connection.execute(text)

    with pytest.raises(PlanRefused) as caught:
        _way(sqlite_path, statement)

    assert reason in str(caught.value)


WISHES = {
    "ALTER TABLE t ALTER a TYPE TEXT": {"instant": None, "direct": "direct", "shadow_table": "shadow_table"},
    "ALTER TABLE t ADD COLUMN d INT": {"instant": "instant", "direct": "instant", "shadow_table": "shadow_table"},
    "ALTER TABLE t RENAME COLUMN a TO e": {"instant": "instant", "direct": "instant", "shadow_table": None},
    "CREATE INDEX i ON t (a)": {"instant": None, "direct": "direct", "shadow_table": "shadow_table"},
}


@pytest.mark.parametrize(
    ("statement", "wish", "way"), [(text, wish, way) for text, ways in WISHES.items() for wish, way in ways.items()]
)
def test_a_wish_is_followed_or_refused(statement: str, wish: str, way: str | None, sqlite_path: Path) -> None:
    """Never another way than the one that was asked for, but for one that is cheaper still."""
    _made(sqlite_path, TABLE)

    if way is None:
        with pytest.raises(PlanRefused):
            _way(sqlite_path, statement, strategy=wish)
    else:
        assert _way(sqlite_path, statement, strategy=wish) == way


def test_a_way_that_is_not_there_is_an_invalid_parameter(sqlite_path: Path) -> None:
    """The error names those that can be asked for."""
    _made(sqlite_path, TABLE)

    with pytest.raises(InvalidParameter, match="cannot be asked for"):
        _way(sqlite_path, "ALTER TABLE t ADD COLUMN d", strategy="native_online")


def test_what_is_so_already_is_done_at_once(sqlite_path: Path) -> None:
    """The plan says so, and nothing is executed."""
    _made(sqlite_path, TABLE.replace("a INT", "a INT NOT NULL"), rows=MANY)

    with connect(str(sqlite_path)) as connected:
        proposal = connected.ddl.plan("ALTER TABLE t ALTER a SET NOT NULL")

    assert (str(proposal.plan.strategy), proposal.sql_steps) == ("instant", ())
    assert proposal.warnings == ("t has what is asked for already",)


@pytest.mark.parametrize(
    ("statement", "hint"),
    [
        ("DROP INDEX by_ab", "Did you mean by_a?"),
        ("REINDEX by_aa", "Did you mean by_a?"),
        ("ALTER TABLE t DROP aa", "Did you mean a?"),
    ],
)
def test_unknown_names_come_with_near_ones(statement: str, hint: str, sqlite_path: Path) -> None:
    """Those of indexes and columns too."""
    _made(sqlite_path, TABLE, "CREATE INDEX by_a ON t (a)")

    with pytest.raises(NotFound) as caught:
        _way(sqlite_path, statement)

    assert caught.value.hint == hint


@pytest.mark.parametrize("strategy", ["direct", "shadow_table"])
@pytest.mark.parametrize(
    ("schema", "statement", "asked", "answer"),
    [
        (
            ("CREATE TABLE t (id INTEGER PRIMARY KEY, a)", "INSERT INTO t VALUES (1, 'x'), (2, 'y')"),
            "ALTER TABLE t ADD COLUMN r TEXT DEFAULT (hex(randomblob(4))), ADD COLUMN v TEXT AS (lower(r)) STORED",
            "SELECT count(*), min(v = lower(r)), count(DISTINCT r) FROM t", [(2, 1, 2)],
        ),
        (
            ("CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT DEFAULT''NOT NULL)", "INSERT INTO t VALUES (1, 'x')"), "ALTER TABLE t ALTER a DROP DEFAULT",
            "SELECT sql FROM sqlite_master WHERE name = 't'", [("CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT NOT NULL)",)],
        ),
        (
            ("CREATE TABLE t (id INTEGER PRIMARY KEY)",), "ALTER TABLE t ADD COLUMN first TEXT, ADD COLUMN before",
            "SELECT name FROM pragma_table_info('t')", [("id",), ("first",), ("before",)],
        ),
    ],
    ids=["a value given once, and one computed from it", "clauses without a blank between", "columns named as places"],
)  # fmt: skip
def test_what_can_be_done_is_done(  # noqa: PLR0917 - parameters come by name
    schema: tuple[str, ...], statement: str, asked: str, answer: list[tuple[object, ...]], strategy: str, sqlite_path: Path
) -> None:
    """In whichever way."""
    with closing(sqlite_module().connect(sqlite_path, isolation_level=None)) as connection:
        for text in schema:
            connection.execute(text)

    with on_engine(sqlite_path, strategy=strategy) as engine:
        job = engine.finish(engine.submit(statement))

    assert (str(job.state), job.error) == ("synced", None)
    with closing(sqlite_module().connect(sqlite_path)) as connection:
        assert connection.execute(asked).fetchall() == answer


FAILING = {
    "a column that refers, in place of another": (
        ("CREATE TABLE p (id INTEGER PRIMARY KEY)", "CREATE TABLE t (id INTEGER PRIMARY KEY, a)", "INSERT INTO t VALUES (1, 'x')"),
        "ALTER TABLE t DROP COLUMN a, ADD COLUMN a INTEGER DEFAULT 7 REFERENCES p", "does not find a row of p", "Correct the row, or add the row",
    ),
    "NULL would become a number": (
        ("CREATE TABLE t (id INTEGER, a)", "CREATE UNIQUE INDEX i ON t (id)", "INSERT INTO t VALUES (NULL, 2), (5, 1)"),
        "ALTER TABLE t ADD PRIMARY KEY (id)", "NULL", "",
    ),
    "NOT NULL without a default": (
        ("CREATE TABLE t (id INTEGER PRIMARY KEY, a)", "INSERT INTO t VALUES (1, 'x')"), "ALTER TABLE t ADD COLUMN z INT NOT NULL", "NOT NULL",
        "Give the new column a DEFAULT",
    ),
    "a unique expression that rows share": (
        ("CREATE TABLE t (id INTEGER PRIMARY KEY, a)", "INSERT INTO t VALUES (1, 'x'), (2, 'X')"), "CREATE UNIQUE INDEX ui ON t (lower(a))", "ui",
        "Correct the row, then",
    ),
}  # fmt: skip


@pytest.mark.parametrize("strategy", ["direct", "shadow_table"])
@pytest.mark.parametrize(("schema", "statement", "reason", "hint"), FAILING.values(), ids=FAILING)
def test_a_row_that_cannot_be_so_ends_the_job(  # noqa: PLR0917 - parameters come by name
    schema: tuple[str, ...], statement: str, reason: str, hint: str, strategy: str, sqlite_path: Path
) -> None:
    """In whichever way, with the reason in the user's words and what to do; the rows are as they were."""
    with closing(sqlite_module().connect(sqlite_path, isolation_level=None)) as connection:
        for text in schema:
            connection.execute(text)
        before = connection.execute("SELECT * FROM t").fetchall()

    with on_engine(sqlite_path, strategy=strategy) as engine:
        job = engine.finish(engine.submit(statement))

    assert job.error is not None, str(job.state)
    assert reason in job.error["message"]
    assert hint in job.error["hint"]
    assert "tideshift_" not in job.error["message"]
    with closing(sqlite_module().connect(sqlite_path)) as connection:
        assert connection.execute("SELECT * FROM t").fetchall() == before


def test_wide_rows_are_reckoned_with(sqlite_path: Path) -> None:
    """What reads or writes every row takes as long as there are bytes in them."""
    _made(sqlite_path, TABLE, rows=5_000)
    narrow = _way(sqlite_path, "ALTER TABLE t DROP COLUMN a")
    with closing(sqlite_module().connect(sqlite_path, isolation_level=None)) as connection:
        connection.execute("UPDATE t SET c = zeroblob(8000)")

    assert (narrow, _way(sqlite_path, "ALTER TABLE t DROP COLUMN a")) == ("direct", "shadow_table")


def test_old_statistics_are_not_relied_on(sqlite_path: Path) -> None:
    """A table that was small when ANALYZE was run may be large by now."""
    _made(sqlite_path, TABLE, rows=FEW)
    with closing(sqlite_module().connect(sqlite_path, isolation_level=None)) as connection:
        connection.execute("ANALYZE")
        connection.execute("WITH RECURSIVE n (i) AS (SELECT 100 UNION ALL SELECT i + 1 FROM n WHERE i < 60000) INSERT INTO t (id) SELECT i FROM n")

    assert _way(sqlite_path, "CREATE INDEX i ON t (a)") == "shadow_table"


def _size_bytes(path: Path) -> int:
    with closing(sqlite_module().connect(path)) as connection:
        return connection.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size").fetchone()[0]


@pytest.mark.parametrize("strategy", ["shadow_table", "direct"])
@pytest.mark.parametrize("statement", ["ALTER TABLE t ALTER a TYPE TEXT", "ALTER TABLE t ADD COLUMN d INT DEFAULT 3 FIRST"])
def test_the_disk_that_is_needed_is_foretold(statement: str, strategy: str, sqlite_path: Path) -> None:
    """Within a factor of two of what the file grows by, beside the log of some megabytes; twice that where all of it goes through the log."""
    wide = TABLE.replace(", c)", ", c DEFAULT 'sixty characters that a row of an application may well have')")
    _made(sqlite_path, wide, "CREATE INDEX i ON t (a)", "CREATE INDEX j ON t (c)", rows=MANY)
    with on_engine(sqlite_path, strategy=strategy) as engine:
        plan = engine.connected.ddl.plan(statement, strategy=strategy)
        job_id = engine.connected.ddl.submit(statement, strategy=strategy, keep_old_seconds=3600).id
        before = _size_bytes(sqlite_path)
        engine.until(job_id, lambda job: str(job.state) == "synced")
        grown = _size_bytes(sqlite_path) - before

    foretold = plan.plan.reshaping.disk_bytes - (8 << 20)
    assert 0.5 < foretold / grown / (2 if strategy == "direct" else 1) < 2
    assert plan.disk_free_bytes > 0
