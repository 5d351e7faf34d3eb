"""The key log misses no changed row and changes nothing that an application sees, whatever the statements.

TIDESHIFT_KEY_LOG_STATEMENTS sets how many statements each shape gets; the full proof is 20,000.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.dialects.sqlite.shapes import SHAPES, Shape
from tests.dialects.sqlite.statements import random_statement, random_statement_on_one_row
from tests.servers import sqlite_module
from tideshift.ddl.dialect import Reorg
from tideshift.ddl.statement import parse_statement
from tideshift.dialects.sqlite.dialect import SqliteDialect
from tideshift.dialects.sqlite.driver import SqliteDriver
from tideshift.store.database import Database

STATEMENTS = int(os.environ.get("TIDESHIFT_KEY_LOG_STATEMENTS", "1500"))
BATCH_STATEMENTS_MAX = 5
IDLE_EVENTS = ("BEFORE INSERT", "BEFORE UPDATE", "AFTER INSERT", "AFTER UPDATE", "AFTER DELETE")
"""What the table without capture has triggers for that do nothing. That a table has a trigger at all can change what
SQLite does: the order in which an UPDATE of many rows meets them, when a broken reference is found, and more (see the
tests at the end). None of it is promised by SQLite, and none of it comes from what capture does."""
DEPEND_ON_ANY_TRIGGER = ("child and parent with cascades", "strict")
LIMITS = {
    "recursive_triggers makes some UPDATE OR REPLACE fail": (
        "PRAGMA recursive_triggers = 1",
        ("CREATE TABLE t (id INTEGER PRIMARY KEY, a UNIQUE, b, c)", "CREATE UNIQUE INDEX bc ON t (b, c)"),
        "INSERT INTO t VALUES (1, 1, 'x', 0), (2, 6, 'y', 2)",
        "UPDATE OR REPLACE t SET c = 0, a = 6 WHERE id = 1",
        ("ok", "UNIQUE constraint failed: t.b, t.c"),
    ),
    "a deferred reference to the own table is checked in a REPLACE": (
        "PRAGMA foreign_keys = 1",
        ("CREATE TABLE t (id INTEGER PRIMARY KEY, b REFERENCES t ON DELETE SET NULL DEFERRABLE INITIALLY DEFERRED)",),
        "INSERT INTO t VALUES (1, 1)",
        "REPLACE INTO t VALUES (7, 8)",
        ("ok", "FOREIGN KEY constraint failed"),
    ),
    "a STRICT table's types are looked at before its other constraints": (
        "PRAGMA user_version = 0",
        ("CREATE TABLE t (id INTEGER PRIMARY KEY, a INT, b TEXT NOT NULL) STRICT",),
        "INSERT INTO t VALUES (1, 1, 'x')",
        "INSERT OR IGNORE INTO t VALUES (1, 'x', NULL)",
        ("ok", "cannot store TEXT value in INT column t.a"),
    ),
}
OUR_TABLES = "tideshift_*"


class Twins:
    """The same tables twice: in a file with capture, and in memory with triggers that do nothing."""

    def __init__(self, path: Path, shape: Shape, *, idle_triggers: bool = True) -> None:
        self.shape = shape
        module = sqlite_module()
        self.error = module.Error
        self.captured = module.connect(path, isolation_level=None)
        self.plain = module.connect(":memory:", isolation_level=None)
        self.cleaner = module.connect(path, isolation_level=None)
        for connection in (self.captured, self.plain):
            connection.execute("PRAGMA synchronous = OFF")
            for text in shape.schema:
                connection.execute(text)
        for event in IDLE_EVENTS if idle_triggers else ():
            name = event.replace(" ", "_").lower()
            self.plain.execute(f"CREATE TRIGGER idle_{name} {event} ON {shape.table} BEGIN SELECT 1; END")
        driver = SqliteDriver(path)
        database = Database(driver)
        shadow = SqliteDialect(driver).shadow
        with database.transaction(write=False) as tx:
            self.reorg = Reorg(1, shadow.design(tx, parse_statement(shape.change)))
        with database.transaction() as tx:
            shadow.install(tx, self.reorg)
        database.close()
        self.log = next(made.name for made in shadow.artifacts(self.reorg) if made.kind == "log")
        self.triggers = [made.name for made in shadow.artifacts(self.reorg) if made.kind == "trigger"]

    def close(self) -> None:
        for connection in (self.captured, self.plain, self.cleaner):
            connection.close()

    def outcome(self, connection: Any, sql: str) -> tuple[Any, ...]:
        """Execute one statement and return all that an application can see of it."""
        try:
            rows = connection.execute(sql).fetchall()
        except self.error as error:
            rows = [(type(error).__name__, str(error))]
        counts = connection.execute("SELECT changes(), last_insert_rowid()").fetchone()
        return [tuple(map(repr, row)) for row in rows], counts, connection.in_transaction

    def rows(self, connection: Any) -> dict[tuple[Any, ...], tuple[str, ...]]:
        """Return the table under change by its key."""
        width = len(self.shape.key.split(","))
        found = connection.execute(f"SELECT {self.shape.key}, * FROM {self.shape.table}").fetchall()
        return {self.folded(row[:width]): tuple(map(repr, row)) for row in found}

    def folded(self, key: tuple[Any, ...]) -> tuple[Any, ...]:
        return tuple(part.lower() if self.shape.folded_key and isinstance(part, str) else part for part in key)

    def everything(self, connection: Any) -> dict[str, list[str]]:
        """Return the rows of all tables but ours."""
        tables = connection.execute(f"SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT GLOB '{OUR_TABLES}'")
        quoted = ['"' + name.replace('"', '""') + '"' for (name,) in tables.fetchall()]
        return {table: sorted(map(repr, connection.execute(f"SELECT * FROM {table}").fetchall())) for table in quoted}

    def logged(self) -> set[tuple[Any, ...]]:
        """Return the keys in the log, and empty it."""
        rows = self.cleaner.execute(f"SELECT * FROM {self.log}").fetchall()
        self.cleaner.execute(f"DELETE FROM {self.log}")
        return {self.folded(row[1:]) for row in rows}


def run_batches(
    twins: Twins, seed: int, statements: int, write: Callable[[Random, Shape], str] = random_statement
) -> tuple[list[str], int]:
    """Run random statements on both; return what was wrong, and how many rows changed in all."""
    random = Random(seed)
    wrong: list[str] = []
    changed_rows = 0
    done = 0
    while done < statements and not wrong:
        before = twins.rows(twins.captured)
        batch = [write(random, twins.shape) for _ in range(random.randint(1, BATCH_STATEMENTS_MAX))]
        for sql in [*batch, "COMMIT"]:
            seen = [twins.outcome(connection, sql) for connection in (twins.captured, twins.plain)]
            if seen[0] != seen[1]:
                wrong.append(f"{sql}: with capture {seen[0]}, without {seen[1]}")
        for connection in (twins.captured, twins.plain):
            if connection.in_transaction:  # a deferred reference is broken
                connection.execute("ROLLBACK")
        after = twins.rows(twins.captured)
        changed = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
        missed = changed - twins.logged()
        if missed:
            wrong.append(f"not logged: {missed} by {batch}")
        if twins.everything(twins.captured) != twins.everything(twins.plain):
            wrong.append(f"the tables differ after {batch}")
        changed_rows += len(changed)
        done += len(batch)
    ruined = [one for one in (twins.captured, twins.plain) if one.execute("PRAGMA integrity_check").fetchall() != [("ok",)]]
    assert not ruined, "SQLite has ruined an index by itself, so nothing above means anything"
    return wrong, changed_rows


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_every_changed_row_is_logged_and_no_statement_sees_the_log(shape: Shape, sqlite_path: Path) -> None:
    """Each random statement ends as without capture, and each row that it changed is in the log."""
    with closing(Twins(sqlite_path, shape)) as twins:
        wrong, changed_rows = run_batches(twins, seed=20261130, statements=STATEMENTS)

    assert wrong == []
    assert changed_rows > STATEMENTS / 4, "the statements hardly changed anything"


@pytest.mark.parametrize("shape", [SHAPES[0], SHAPES[4], SHAPES[6], SHAPES[7]], ids=lambda shape: shape.name)
def test_without_the_triggers_before_a_statement_rows_are_missed(shape: Shape, sqlite_path: Path) -> None:
    """The test above finds the mutant that logs only after statements."""
    with closing(Twins(sqlite_path, shape)) as twins:
        for trigger in twins.triggers:
            if "before" in trigger:
                twins.captured.execute(f"DROP TRIGGER {trigger}")
        wrong, _ = run_batches(twins, seed=20261130, statements=STATEMENTS)

    assert any(line.startswith("not logged") for line in wrong), wrong


@pytest.mark.parametrize(
    "shape", [shape for shape in SHAPES if shape.name not in DEPEND_ON_ANY_TRIGGER], ids=lambda shape: shape.name
)
def test_statements_on_one_row_end_as_on_a_table_without_any_trigger(shape: Shape, sqlite_path: Path) -> None:
    """Where neither the order of rows nor references nor recursive_triggers play a part, capture is not to be seen at all."""
    with closing(Twins(sqlite_path, shape, idle_triggers=False)) as twins:
        wrong, _ = run_batches(twins, seed=7, statements=STATEMENTS, write=random_statement_on_one_row)

    assert wrong == []


@pytest.mark.parametrize(("setting", "schema", "rows", "statement", "seen"), LIMITS.values(), ids=LIMITS)
def test_a_known_limit_is_that_of_any_trigger(setting, schema, rows, statement, seen) -> None:
    """What SQLite does otherwise on a table with triggers, it does for triggers that do nothing too."""
    outcomes = []
    for idle_events in ((), IDLE_EVENTS):
        with closing(sqlite_module().connect(":memory:", isolation_level=None)) as connection:
            for text in (setting, *schema, *(f"CREATE TRIGGER \"{e}\" {e} ON t BEGIN SELECT 1; END" for e in idle_events), rows):
                connection.execute(text)
            try:
                connection.execute(statement)
                outcomes.append("ok")
            except sqlite_module().Error as error:
                outcomes.append(str(error))

    assert tuple(outcomes) == seen
