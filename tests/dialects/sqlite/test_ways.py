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
    "a key that others refer to": (
        (TABLE, "CREATE TABLE k (b TEXT REFERENCES t (b))"), "ALTER TABLE t DROP UNIQUE (b)", "k refers to b, which would be no unique key",
    ),
    "a counter for a table that is there": (
        ("CREATE TABLE t (id INT, a, b)",), "ALTER TABLE t ADD PRIMARY KEY (id AUTOINCREMENT)", "AUTOINCREMENT",
    ),
    "a number that nothing holds unique": (
        ("CREATE TABLE t (id INTEGER, a, b)",), "ALTER TABLE t ADD PRIMARY KEY (id)", "create one first: CREATE UNIQUE INDEX",
    ),
    "neither number nor key": (
        ("CREATE TABLE t (id INT PRIMARY KEY, a, b) WITHOUT ROWID",), "ALTER TABLE t DROP PRIMARY KEY, SET ROWID", "",
    ),
}  # fmt: skip


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
