"""Which rows a plan says could be refused, and when every row is tried for it: only where one really can be, and where trying finds it."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.proof.engine import on_engine
from tests.servers import sqlite_module
from tideshift.connect import connect
from tideshift.ddl.change import Action, AddColumn, AlterTable, DropColumn, SetColumnType, SetNotNull, TableName
from tideshift.ddl.dialect import Strategy

PLAIN = "CREATE TABLE t (id INTEGER PRIMARY KEY, a INT, b TEXT, c VARCHAR(20) DEFAULT 'q', d INT NOT NULL DEFAULT 1)"
STRICT = "CREATE TABLE t (id INTEGER PRIMARY KEY, a INT, b TEXT) STRICT"
NEVER, TRIED, SEEN_LATER = (False, False), (True, True), (True, False)

ASKED = {
    "a constant": (PLAIN, "ADD COLUMN z INT NOT NULL DEFAULT 3", NEVER),
    "no value": (PLAIN, "ADD COLUMN z INT NOT NULL", TRIED),
    "an expression that is the same for all": (PLAIN, "ADD COLUMN z INT NOT NULL DEFAULT (abs(-3))", NEVER),
    "another value for each": (PLAIN, "ADD COLUMN z INT NOT NULL DEFAULT (nullif(random() % 2, 0))", TRIED),
    "a check that the default holds": (PLAIN, "ADD COLUMN z INT DEFAULT 3 CHECK (z > 0)", NEVER),
    "a check that nothing is said of": (PLAIN, "ADD COLUMN z INT CHECK (z > 0)", NEVER),
    "a check that the default breaks": (PLAIN, "ADD COLUMN z INT DEFAULT -3 CHECK (z > 0)", TRIED),
    "a check beside another column": (PLAIN, "ADD COLUMN z INT DEFAULT 3 CHECK (z > a)", TRIED),
    "a check beside another column in double quotes": (PLAIN, "ADD COLUMN z INT DEFAULT 3 CHECK (z > \"a\")", TRIED),
    "a check beside the row's number": (PLAIN, "ADD COLUMN z INT DEFAULT 3 CHECK (z > rowid)", TRIED),
    "a unique column of NULLs": (PLAIN, "ADD COLUMN z INT UNIQUE", NEVER),
    "a unique column of one value": (PLAIN, "ADD COLUMN z INT UNIQUE DEFAULT 3", SEEN_LATER),
    "a reference of NULLs": (PLAIN, "ADD COLUMN z INT REFERENCES t", NEVER),
    "a reference to a row": (PLAIN, "ADD COLUMN z INT REFERENCES t DEFAULT 1", SEEN_LATER),
    "virtual": (PLAIN, "ADD COLUMN z AS (a + 1)", NEVER),
    "virtual, and only a reader of it would fail": (PLAIN, "ADD COLUMN z AS (json(b))", NEVER),
    "virtual, and a copy would fail": (PLAIN, "ADD COLUMN z AS (json(b)) FIRST", TRIED),
    "virtual with a rule": (PLAIN, "ADD COLUMN z AS (json(b)) NOT NULL", TRIED),
    "virtual and unique": (PLAIN, "ADD COLUMN z AS (a + 1) UNIQUE", SEEN_LATER),
    "stored": (PLAIN, "ADD COLUMN z AS (a + 1) STORED", NEVER),
    "stored, and may fail": (PLAIN, "ADD COLUMN z AS (json(b)) STORED", TRIED),
    "not null": (PLAIN, "ALTER a SET NOT NULL", TRIED),
    "not null, and so it is": (PLAIN, "ALTER d SET NOT NULL ON CONFLICT IGNORE", NEVER),
    "not null of the number": (PLAIN, "ALTER id SET NOT NULL", NEVER),
    "not null of a column that comes with a value": (PLAIN, "ADD COLUMN z INT DEFAULT 3, ALTER z SET NOT NULL", NEVER),
    "a check": (PLAIN, "ADD CHECK (a > 0)", TRIED),
    "a unique key": (PLAIN, "ADD UNIQUE (b)", SEEN_LATER),
    "a foreign key": (PLAIN, "ADD FOREIGN KEY (a) REFERENCES t", SEEN_LATER),
    "strict": (PLAIN, "SET STRICT, ALTER c TYPE TEXT", TRIED),
    "no longer strict": (STRICT, "SET NOT STRICT", NEVER),
    "no longer strict, with values that become alike": ("CREATE TABLE t (a ANY UNIQUE) STRICT", "SET NOT STRICT", SEEN_LATER),
    "a key that may be NULL": ("CREATE TABLE t (a TEXT PRIMARY KEY, b)", "SET WITHOUT ROWID", TRIED),
    "a key that is never NULL": (PLAIN, "SET WITHOUT ROWID", NEVER),
    "a type": (PLAIN, "ALTER a TYPE TEXT", NEVER),
    "a type of a unique column": ("CREATE TABLE t (a TEXT UNIQUE, b)", "ALTER a TYPE INTEGER", SEEN_LATER),
    "a type beside a unique column": ("CREATE TABLE t (a TEXT UNIQUE, b)", "ALTER b TYPE INTEGER", NEVER),
    "a type of a column that refers": ("CREATE TABLE t (id TEXT PRIMARY KEY, a TEXT REFERENCES t)", "ALTER a TYPE INTEGER", SEEN_LATER),
    "a conversion that never fails": (PLAIN, "ALTER b TYPE INT USING CAST(round(b * 100) AS INTEGER)", NEVER),
    "a conversion that may fail": (PLAIN, "ALTER b TYPE INT USING json_extract(b, '$.n')", TRIED),
    "a conversion of what must not be NULL": (PLAIN, "ALTER d TYPE TEXT USING d / a", TRIED),
    "in a strict table": (STRICT, "ADD COLUMN z INT NOT NULL DEFAULT 3", NEVER),
    "in a strict table, of another type": (STRICT, "ADD COLUMN z INT DEFAULT 'x'", TRIED),
    "virtual in a strict table": (STRICT, "ADD COLUMN z INT AS (b)", TRIED),
    "less": (PLAIN, "ALTER d DROP NOT NULL, ALTER c DROP DEFAULT, DROP COLUMN b, MOVE a FIRST", NEVER),
}  # fmt: skip


CARRIED = {name: one for name, one in ASKED.items() if one[2] == NEVER and "only a reader" not in name}


@pytest.mark.parametrize(("table", "actions", "expected"), ASKED.values(), ids=ASKED)
def test_rows_are_tried_where_one_can_be_refused_and_only_there(table: str, actions: str, expected: tuple[bool, bool], sqlite_path: Path) -> None:
    """What no row can be refused for takes neither a pass over the table nor a confirmation; what is between rows only the latter."""
    with closing(sqlite_module().connect(sqlite_path, isolation_level=None)) as connection:
        connection.execute(table)
        connection.execute("INSERT INTO t DEFAULT VALUES")

    with connect(str(sqlite_path)) as connected:
        reshaping = connected.ddl.plan(f"ALTER TABLE t {actions}").plan.reshaping

    assert (reshaping.may_refuse_rows, reshaping.tries_rows_first) == expected


@pytest.mark.parametrize("strategy", ["direct", "shadow_table"])
@pytest.mark.parametrize(("table", "actions"), [one[:2] for one in CARRIED.values()], ids=CARRIED)
def test_a_row_is_not_refused_where_the_plan_says_so(table: str, actions: str, strategy: str, sqlite_path: Path) -> None:
    """Rows with NULLs, with texts where numbers are wont to be, and with equal values are carried by all of them."""
    with closing(sqlite_module().connect(sqlite_path, isolation_level=None)) as connection:
        connection.execute(table)
        columns = [name for name, kind in connection.execute("SELECT name, type FROM pragma_table_info('t')") if name in ("a", "b") and kind in ("INT", "TEXT")]
        for values in ("NULL, NULL", "1, 'x'", "1, '{'") if columns == ["a", "b"] else ():
            connection.execute(f"INSERT INTO t (a, b) VALUES ({values})")

    with on_engine(sqlite_path, strategy=strategy) as engine:
        job = engine.finish(engine.submit(f"ALTER TABLE t {actions}"))

    assert (str(job.state), job.error) == ("synced", None)


COMING_AND_GOING = {
    "added and dropped": (AddColumn(column="z", definition="z INT"), DropColumn(column="z"), AddColumn(column="y", definition="y INT")),
    "added with a rule, and dropped": (
        AddColumn(column="z", definition="z INT NOT NULL"), SetNotNull(column="z"), DropColumn(column="z"), AddColumn(column="y", definition="y INT"),
    ),
    "added as a key, and dropped": (AddColumn(column="z", definition="z INT PRIMARY KEY"), DropColumn(column="z"), AddColumn(column="y", definition="y INT")),
    "demanded and dropped": (SetNotNull(column="b"), DropColumn(column="b"), AddColumn(column="y", definition="y INT")),
    "converted and dropped": (SetColumnType(column="b", type_text="INT", using="json(b)"), DropColumn(column="b"), AddColumn(column="y", definition="y INT")),
    "dropped and added": (DropColumn(column="b"), AddColumn(column="b", definition="b TEXT"), AddColumn(column="y", definition="y INT")),
}  # fmt: skip


@pytest.mark.parametrize("strategy", [None, Strategy.DIRECT, Strategy.SHADOW_TABLE])
@pytest.mark.parametrize("actions", COMING_AND_GOING.values(), ids=COMING_AND_GOING)
def test_a_column_may_come_and_go_in_one_change(actions: tuple[Action, ...], strategy: Strategy | None, sqlite_path: Path) -> None:
    """Nothing is looked up that is not there in the end; as a statement most of these are refused before they come here."""
    with closing(sqlite_module().connect(sqlite_path, isolation_level=None)) as connection:
        connection.execute("CREATE TABLE t (id INTEGER, a INT, b TEXT)")
        connection.execute("INSERT INTO t VALUES (1, 2, 'x')")

    with connect(str(sqlite_path)) as connected, connected.database.transaction(write=False) as tx:
        designed = connected.dialect.design(tx, AlterTable(table=TableName(None, "t"), actions=actions), strategy=strategy)

    assert not designed.may_refuse_rows
    assert designed.detail["layout"]["new"]["columns"][-1] == "y"
