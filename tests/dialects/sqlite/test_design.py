"""A plan says what will be made and whether rows may be refused; what cannot be done right is refused with its reason."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.dialects.sqlite.reshaping import changing
from tests.servers import sqlite_module
from tideshift.ddl.change import TableName
from tideshift.errors import NotFound, PlanRefused, SchemaChanged

TABLE = "CREATE TABLE t (id INTEGER PRIMARY KEY, c TEXT, d)"
REFUSED = {
    "a view": (("CREATE VIEW t AS SELECT 1 AS c",), "", "it is a view"),
    "a virtual table": (("CREATE VIRTUAL TABLE t USING fts5 (c)",), "", "it is a virtual table"),
    "a virtual table's own table": (
        ("CREATE VIRTUAL TABLE v USING fts5 (c)",),
        "ALTER TABLE v_content ALTER c0 TYPE int",
        "part of a virtual table",
    ),
    "a table of the library": ((TABLE, "ANALYZE"), "ALTER TABLE sqlite_master ALTER sql TYPE int", None),
    "the counter's table": (
        ("CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT)",),
        "ALTER TABLE sqlite_sequence ALTER seq TYPE int",
        "belongs to SQLite",
    ),
    "a table of ours": (("CREATE TABLE tideshift_ddl_job (c)",), "ALTER TABLE tideshift_ddl_job ALTER c TYPE int", "belongs to"),
    "another schema": ((TABLE,), "ALTER TABLE temp.t ALTER c TYPE int", "main database"),
    "the rowid becomes a key of its own": ((TABLE,), "ALTER TABLE t ALTER id TYPE BIGINT", "is the rowid itself"),
    "a key becomes the rowid": (
        ("CREATE TABLE t (c INT PRIMARY KEY)",),
        "ALTER TABLE t ALTER c TYPE INTEGER",
        "is the rowid itself",
    ),
    "USING on the rowid": ((TABLE,), "ALTER TABLE t ALTER id TYPE INTEGER USING id + 1", "USING could change their order"),
    "USING on the key": (
        ("CREATE TABLE t (c TEXT, d, PRIMARY KEY (d, c)) WITHOUT ROWID",),
        "ALTER TABLE t ALTER c TYPE TEXT USING upper(c)",
        "USING could change their order",
    ),
    "another affinity in the key": (
        ("CREATE TABLE t (c TEXT PRIMARY KEY) WITHOUT ROWID",),
        "",
        "orders values otherwise",
    ),
    "USING on a generated column": (
        ("CREATE TABLE t (a, c AS (a + 1))",),
        "ALTER TABLE t ALTER c TYPE INT USING a",
        "generated column",
    ),
    "USING with another table": ((TABLE,), "ALTER TABLE t ALTER c TYPE INT USING (SELECT 1)", "subqueries prohibited"),
    "USING by chance": ((TABLE,), "ALTER TABLE t ALTER c TYPE INT USING random()", "always gives the same value"),
    "USING over many rows": ((TABLE,), "ALTER TABLE t ALTER c TYPE INT USING count(*)", "always gives the same value"),
    "an unknown type in a strict table": (
        ("CREATE TABLE t (c TEXT) STRICT",),
        "ALTER TABLE t ALTER c TYPE VARCHAR(3)",
        "the new shape",
    ),
    "three names of the rowid hidden": (("CREATE TABLE t (c, rowid, oid, _rowid_)",), "", "rowid"),
}


@pytest.mark.parametrize(("schema", "statement", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_done_right_is_refused_with_its_reason(
    schema: tuple[str, ...], statement: str, reason: str | None, sqlite_path: Path
) -> None:
    """Nothing is made, and the error lists why."""
    expected: type[Exception] = PlanRefused if reason else NotFound

    with pytest.raises(expected) as caught, changing(sqlite_path, *schema, statement=statement or "ALTER TABLE t ALTER c TYPE INTEGER"):
        pass

    if reason:
        assert reason in str(caught.value)
        assert caught.value.fields["reasons"]
    with closing(sqlite_module().connect(sqlite_path)) as connection:
        made = "SELECT count(*) FROM sqlite_master WHERE name GLOB 'tideshift_[0-9]*'"
        assert connection.execute(made).fetchone() == (0,)


def test_a_function_that_our_connection_lacks_is_named(sqlite_path: Path) -> None:
    """An index over an application's own function could not be kept by us."""
    with closing(sqlite_module().connect(sqlite_path, isolation_level=None)) as connection:
        connection.create_function("own", 1, lambda value: value, deterministic=True)
        connection.execute(TABLE)
        connection.execute("CREATE INDEX i ON t (own(d))")

    with pytest.raises(PlanRefused, match=r"index 'i'.*no such function: own"), changing(sqlite_path):
        pass


def test_a_collation_that_our_connection_lacks_is_named(sqlite_path: Path) -> None:
    """The same for an order of an application's own."""
    with closing(sqlite_module().connect(sqlite_path, isolation_level=None)) as connection:
        connection.create_collation("own", lambda one, two: (one > two) - (one < two))
        connection.execute("CREATE TABLE t (c TEXT, d TEXT COLLATE own)")

    with pytest.raises(PlanRefused, match="no such collation sequence: own"), changing(sqlite_path):
        pass


@pytest.mark.parametrize(
    ("statement", "hint"),
    [
        ("ALTER TABLE order_item ALTER c TYPE INT", "Did you mean orders or order_items?"),
        ("ALTER TABLE zzz ALTER c TYPE INT", ""),
        ("ALTER TABLE orders ALTER custmer TYPE INT", "Did you mean Customer?"),
    ],
)
def test_an_unknown_name_comes_with_near_ones(statement: str, hint: str, sqlite_path: Path) -> None:
    """Tables of the library and of ours are not proposed."""
    schema = ("CREATE TABLE orders (Customer TEXT)", "CREATE TABLE order_items (a)", "CREATE TABLE tideshift_event (a)")

    with pytest.raises(NotFound) as caught, changing(sqlite_path, *schema, statement=statement):
        pass

    assert set(caught.value.hint.replace("?", "").split()) == set(hint.replace("?", "").split())


def test_names_are_found_in_any_case_and_kept_as_they_are_written(sqlite_path: Path) -> None:
    """The plan speaks of the table by its own name."""
    with changing(sqlite_path, 'CREATE TABLE "My Table" (Col TEXT)', statement='ALTER TABLE main."MY TABLE" ALTER COL TYPE INT') as change:
        assert change.reshaping.table == TableName(None, "My Table")
        assert "Col" in [one["name"] for one in change.reshaping.detail["layout"]["mapped"]]
        assert change.reshaping.key_columns == ("rowid",)


REFUSES_ROWS = {
    "plain": ("CREATE TABLE t (c TEXT NOT NULL, d UNIQUE CHECK (d > 0))", "", False),
    "strict": ("CREATE TABLE t (c TEXT) STRICT", "", True),
    "an expression that may fail": ("CREATE TABLE t (c TEXT)", " USING json(c)", True),
    "an expression that never fails": ("CREATE TABLE t (c TEXT)", " USING c + 1", False),
    "a check on the column": ("CREATE TABLE t (c TEXT, d, CHECK (d > \"c\"))", "", True),
    "a check by a generated column": ("CREATE TABLE t (c TEXT, g AS (c || 'x') CHECK (g <> 'x'))", "", True),
}


@pytest.mark.parametrize(("table", "using", "expected"), REFUSES_ROWS.values(), ids=REFUSES_ROWS)
def test_rows_are_tried_beforehand_where_one_could_be_refused(table: str, using: str, expected: bool, sqlite_path: Path) -> None:
    """Affinity alone refuses nothing; STRICT, an expression that may fail or a check that looks at the column may."""
    with changing(sqlite_path, table, statement=f"ALTER TABLE t ALTER c TYPE INTEGER{using}") as change:
        assert (change.reshaping.may_refuse_rows, change.reshaping.tries_rows_first) == (expected, expected)


def test_the_steps_are_exactly_what_is_made(sqlite_path: Path) -> None:
    """Each text of the capture phase is found in the catalogue after installing, but for the job's id."""
    with changing(sqlite_path, TABLE, "CREATE UNIQUE INDEX i ON t (d)") as change:
        change.install()

        stored = {text for (text,) in change.rows("SELECT sql FROM sqlite_master WHERE name GLOB 'tideshift_*'")}
        planned = {
            step.sql.replace("tideshift_0_", "tideshift_7_") for step in change.reshaping.sql_steps if step.phase == "capture"
        }
    assert planned == stored
    assert {step.phase for step in change.reshaping.sql_steps} >= {"capture", "copy", "catch up", "verify", "cut-over", "purge"}


ALTERED = (
    "ALTER TABLE t ADD COLUMN e",
    "ALTER TABLE t RENAME TO u",
    "ALTER TABLE t RENAME COLUMN d TO e",
    "CREATE INDEX j ON t (c)",
    "DROP INDEX i",
    "DROP TABLE t",
)


@pytest.mark.parametrize("statement", ALTERED)
def test_a_table_that_was_altered_meanwhile_is_noticed(statement: str, sqlite_path: Path) -> None:
    """Before and after installing, every change of the table's own shape is seen."""
    with changing(sqlite_path, TABLE, "CREATE INDEX i ON t (d)") as change:
        change.install()
        change.application.execute(statement)

        with pytest.raises(SchemaChanged), change.reading() as tx:
            change.shadow.check(tx, change.reorg)


def test_installing_on_an_altered_table_makes_nothing(sqlite_path: Path) -> None:
    """The plan is for the table as it was."""
    with changing(sqlite_path, TABLE) as change:
        change.application.execute("ALTER TABLE t ADD COLUMN e")

        with pytest.raises(SchemaChanged):
            change.install()

        assert change.objects() == set()


def test_what_is_attached_may_change_meanwhile(sqlite_path: Path) -> None:
    """Views, the user's older triggers and other tables are none of the check's business."""
    with changing(sqlite_path, TABLE, "CREATE TRIGGER older AFTER INSERT ON t BEGIN SELECT 1; END") as change:
        change.install()
        change.application.execute("CREATE VIEW v AS SELECT c FROM t")
        change.application.execute("DROP TRIGGER older")
        change.application.execute("CREATE TABLE other (t REFERENCES t)")

        with change.reading() as tx:
            change.shadow.check(tx, change.reorg)


@pytest.mark.parametrize(
    ("table", "noticed"),
    [
        ("CREATE TABLE t (c)", True),
        ("CREATE TABLE t (c, d AS (c) STORED, CHECK (c > 0))", True),
        ("CREATE TABLE t (c TEXT PRIMARY KEY)", False),
        ("CREATE TABLE t (id INTEGER PRIMARY KEY, c)", False),
        ("CREATE TABLE t (c INT PRIMARY KEY) WITHOUT ROWID", False),
    ],
)
def test_a_vacuum_that_renumbers_rows_is_noticed_and_any_other_is_not(table: str, noticed: bool, sqlite_path: Path) -> None:
    """The canary moves exactly when the rows do."""
    with changing(sqlite_path, table, statement="ALTER TABLE t ALTER c TYPE blob" if "WITHOUT" not in table else "ALTER TABLE t ALTER c TYPE integer") as change:
        change.install()
        change.application.execute("INSERT INTO t (c) VALUES (1), (2), (3)")
        change.application.execute("DELETE FROM t WHERE c = 1")
        key = "c" if "WITHOUT" in table else "rowid"
        before = change.rows(f"SELECT {key} FROM t ORDER BY 1")
        change.application.execute("VACUUM")

        moved = change.rows(f"SELECT {key} FROM t ORDER BY 1") != before
        assert moved is noticed
        if noticed:
            with pytest.raises(SchemaChanged, match="VACUUM"), change.reading() as tx:
                change.shadow.check(tx, change.reorg)
        else:
            with change.reading() as tx:
                change.shadow.check(tx, change.reorg)
