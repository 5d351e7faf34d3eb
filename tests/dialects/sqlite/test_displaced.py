"""Rows that a statement displaces are found in the copy, each kind of unique key by its own rule."""

from __future__ import annotations

import re
from itertools import permutations
from pathlib import Path

import pytest

from tests.dialects.sqlite.reshaping import Change, changing
from tideshift.errors import PlanRefused

TABLE = "CREATE TABLE t (id INTEGER PRIMARY KEY, c TEXT, d"
TO_INTEGER = "ALTER TABLE t ALTER c TYPE INTEGER"
ROWS = "(1, '10', 'x'), (2, '20', 'y')"
FOUND = {
    "a key without the changed column": (f"{TABLE} UNIQUE)", (), TO_INTEGER, "VALUES (3, '30', 'x')", False),
    "the changed column itself": (f"{TABLE}, UNIQUE (c, d))", (), TO_INTEGER, "VALUES (3, '10', 'x')", False),
    "the changed column with USING": (f"{TABLE}, UNIQUE (c))", (), f"{TO_INTEGER} USING c * 2", "VALUES (3, '10', 'z')", True),
    "a key beside USING": (f"{TABLE} UNIQUE)", (), f"{TO_INTEGER} USING c * 2", "VALUES (3, '30', 'x')", False),
    "an expression over other columns": (
        f"{TABLE} COLLATE NOCASE, b INT DEFAULT 1)",
        ("CREATE UNIQUE INDEX i ON t (d = 'X', b = '1', id <> 2)",),
        TO_INTEGER,
        "VALUES (3, '30', 'X')",
        False,
    ),
    "an expression over the rowid": (f"{TABLE})", ("CREATE UNIQUE INDEX i ON t (id / 4, d)",), TO_INTEGER, "VALUES (3, '3', 'x')", False),
    "a generated column over the rowid": (f"{TABLE}, g AS (id / 4), UNIQUE (g, d))", (), TO_INTEGER, "VALUES (3, '3', 'x')", False),
    "an expression over the changed column": (
        f"{TABLE})",
        ("CREATE UNIQUE INDEX i ON t (lower(c) || 'x')",),
        TO_INTEGER,
        "VALUES (3, '10', 'z')",
        True,
    ),
    "a condition that names the changed column": (
        f"{TABLE})",
        ("CREATE UNIQUE INDEX i ON t (d) WHERE t.c > '05'",),
        TO_INTEGER,
        "VALUES (3, '30', 'x')",
        True,
    ),
    "a generated column over the changed column": (
        f"{TABLE}, g AS (c || 'x') UNIQUE)",
        (),
        TO_INTEGER,
        "VALUES (3, '10', 'z')",
        True,
    ),
    "a generated column that is itself changed": (
        "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT, d, c INTEGER AS (a) UNIQUE)",
        (),
        "ALTER TABLE t ALTER c TYPE TEXT",
        "VALUES (3, '10.0', 'z')",
        True,
    ),
    "the same affinity by another name": (
        f"{TABLE}, g AS (c || 'x') UNIQUE)",
        (),
        "ALTER TABLE t ALTER c TYPE VARCHAR(9)",
        "VALUES (3, '10', 'z')",
        False,
    ),
    "a default that REPLACE puts in": (
        "CREATE TABLE t (id INTEGER PRIMARY KEY, c TEXT, d NOT NULL DEFAULT x UNIQUE)",
        (),
        TO_INTEGER,
        "VALUES (3, '30', NULL)",
        False,
    ),
    "a default by chance": (
        "CREATE TABLE t (id INTEGER PRIMARY KEY, c TEXT, d NOT NULL DEFAULT (substr(random(), 1, 0) || 'x') UNIQUE)",
        (),
        TO_INTEGER,
        "VALUES (3, '30', NULL)",
        False,
    ),
    "a strict table": (f"{TABLE} TEXT, UNIQUE (c), UNIQUE (d)) STRICT", (), TO_INTEGER, "VALUES (3, '10', 'z')", False),
}


def _written(change: Change) -> str:
    """Return the columns that a statement of the scenarios gives."""
    return "id, a, d" if any(name == "a" for (name,) in change.rows("SELECT name FROM pragma_table_info('t')")) else "id, c, d"


def _before(change: Change) -> bool:
    return any("_before_" in name for name in change.named("trigger"))


@pytest.mark.parametrize(("table", "indexes", "statement", "values", "before"), FOUND.values(), ids=FOUND)
def test_a_displaced_row_goes_from_the_copy_too(
    *, table: str, indexes: tuple[str, ...], statement: str, values: str, before: bool, sqlite_path: Path
) -> None:
    """By INSERT and by UPDATE, row 1 is displaced in the source; only where nothing else helps, by triggers before a statement."""
    with changing(sqlite_path, table, *indexes, statement=statement) as change:
        columns = _written(change)
        change.application.execute(f"INSERT INTO t ({columns}) VALUES {ROWS}")
        change.install()
        assert change.copy() == 2
        change.application.execute(f"INSERT OR REPLACE INTO t ({columns}) {values}")
        assert change.rows("SELECT id FROM t ORDER BY 1") == [(2,), (3,)]
        change.catch_up()
        inserted = change.differing()
        row = values.removeprefix("VALUES ").replace("(3,", "(2,")
        change.application.execute(f"UPDATE OR REPLACE t SET ({columns}) = {row} WHERE id = 2")
        change.catch_up()

        assert (inserted, change.differing()) == ([], [])
        assert _before(change) is before
        change.swap()
        change.purge()
        assert change.objects() == set()


REFUSED = {
    "USING over a column of a constraint": (f"{TABLE} TEXT, UNIQUE (c)) STRICT", (), " USING c + 0", "without USING"),
    "an index with a condition": (
        f"{TABLE} TEXT) STRICT",
        ("CREATE UNIQUE INDEX i ON t (d) WHERE c > '1'",),
        "",
        "unique index 'i' .*create the index again: i",
    ),
    "an index over an expression": (f"{TABLE} TEXT) STRICT", ("CREATE UNIQUE INDEX i ON t (c || d)",), "", "unique index 'i'"),
    "a generated column": (f"{TABLE} TEXT, g TEXT AS (c || d) UNIQUE) STRICT", (), "", r"constraint UNIQUE \(g\)"),
    "an expression that may fail": (
        f"{TABLE})",
        ("CREATE UNIQUE INDEX i ON t (json_extract(c, '$.id'))",),
        "",
        "could fail or compare.*create the index again: i",
    ),
    "an expression that compares": (f"{TABLE})", ("CREATE UNIQUE INDEX i ON t (c = 'x', d)",), "", "could fail or compare"),
    "computed from the rowid": (f"{TABLE})", ("CREATE UNIQUE INDEX i ON t (id || c)",), "", "computed from 'id'"),
    "computed from the rowid by generated columns": (
        f"{TABLE}, h AS (id / 2), g AS (h || c) UNIQUE)",
        (),
        "",
        "computed from 'id'",
    ),
    "a default by chance": (f"{TABLE} INT NOT NULL DEFAULT (random()), UNIQUE (c, d))", (), " USING c + 0", "another value each time"),
}


@pytest.mark.parametrize(("table", "indexes", "using", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_no_trigger_can_follow_is_refused(
    table: str, indexes: tuple[str, ...], using: str, reason: str, sqlite_path: Path
) -> None:
    """The plan names the index and says what to do; the same key is no matter when it does not depend on the column."""
    with pytest.raises(PlanRefused, match=reason), changing(sqlite_path, table, *indexes, statement=TO_INTEGER + using):
        pass


def test_an_expression_is_worked_out_only_where_its_condition_holds(sqlite_path: Path) -> None:
    """A partial index over what may fail elsewhere lets every statement pass that passed without a job."""
    index = "CREATE UNIQUE INDEX i ON t (json_extract(d, '$.id')) WHERE json_valid(d)"
    with changing(sqlite_path, f"{TABLE})", index, statement=TO_INTEGER) as change:
        change.application.execute("INSERT INTO t VALUES (1, '1', '{\"id\": 5}')")
        change.install()
        change.copy()
        change.application.execute("INSERT INTO t VALUES (2, '2', 'no JSON')")
        change.application.execute("INSERT OR REPLACE INTO t VALUES (3, '3', '{\"id\": 5}')")
        change.application.execute("UPDATE t SET d = 'none either' WHERE id = 3")
        change.catch_up()

        assert change.rows("SELECT id FROM t ORDER BY 1") == [(2,), (3,)]
        assert change.differing() == []


def test_another_trigger_may_change_the_new_row_first(sqlite_path: Path) -> None:
    """The look-up goes by what displaced a row, also when the new row is another by now."""
    with changing(sqlite_path, f"{TABLE})", "CREATE UNIQUE INDEX i ON t (lower(d))", statement=TO_INTEGER) as change:
        change.application.execute(f"INSERT INTO t VALUES {ROWS}")
        change.install()
        change.copy()
        change.application.execute(
            "CREATE TEMP TRIGGER own AFTER INSERT ON t BEGIN UPDATE t SET d = 'other' WHERE id = NEW.id; END"
        )
        change.application.execute("INSERT OR REPLACE INTO t VALUES (3, '30', 'X')")
        change.catch_up()

        assert change.rows("SELECT id, d FROM t ORDER BY 1") == [(2, "y"), (3, "other")]
        assert change.differing() == []


VALUES = (
    "NULL 0 1 1.0 -1 '1' '1.0' '01' ' 1' '1 ' '1  ' '+1' '1e0' '1E0' '10e-1' x'31' x'312e30' 5.7 '5.7' '5.70' '5.0' 5"
    " 9007199254740992 9007199254740993 9007199254740992.0 '9007199254740993' '9007199254740993.0' 9223372036854775807"
    " -9223372036854775808 -9223372036854775808.0 '9223372036854775807' '9223372036854775808' 9.2233720368547758e18 9e999 -9e999"
    " '9e999' '1e400' '1e-400' '1e308' 1e308 1e20 '1e20' '100000000000000000000' -0.0 '-0' '0x10' 'a' 'A' 'a ' '' ' ' x'' x'00'"
    " 'Inf' '1_0' 0.1 '0.1' 0.30000000000000004 '.5' '5.' 1e15 '1e15' 123456789012345678 123456789012345680.0 1.5e300"
)
TYPES = ("BLOB", "TEXT", "INTEGER", "NUMERIC", "REAL")


@pytest.mark.parametrize("collation", ["BINARY", "NOCASE", "RTRIM"])
@pytest.mark.parametrize(("old", "new"), list(permutations(TYPES, 2)))
def test_every_value_is_found_by_any_value_that_equals_it(old: str, new: str, collation: str, sqlite_path: Path) -> None:
    """Whatever the new type makes of the displaced row's value, the look-up finds it by the value that displaced it."""
    literals = re.findall(r"x?'[^']*'|\S+", VALUES)
    table = f"CREATE TABLE t (id INTEGER PRIMARY KEY, c {old} COLLATE {collation} UNIQUE)"
    missed, displaced = [], 0
    with changing(sqlite_path, table, statement=f"ALTER TABLE t ALTER c TYPE {new}") as change:
        change.install()
        run, (shadow, log) = change.application.execute, change.named("shadow") + change.named("log")
        for there in literals:
            run("BEGIN")
            run(f"INSERT INTO t VALUES (1, {there})")
            run(f"INSERT INTO {shadow} SELECT * FROM t")
            run(f"DELETE FROM {log}")
            for number, here in enumerate(literals, start=2):
                run("SAVEPOINT s")
                run(f"REPLACE INTO t VALUES ({number}, {here})")
                gone = change.rows("SELECT count(*) FROM t") == [(1,)]
                displaced += gone
                if gone and not change.rows(f"SELECT 1 FROM {log} WHERE k0 = 1"):
                    missed.append((there, here))
                run("ROLLBACK TO s")
                run("RELEASE s")
            run("ROLLBACK")

    assert missed == []
    assert displaced > len(literals)
