"""The key log misses no changed row and changes nothing that an application sees, whatever the statements.

A job goes on meanwhile: chunks are copied and keys applied at random moments, since the look-ups rely on the shadow.

TIDESHIFT_KEY_LOG_STATEMENTS sets how many statements each shape gets; the full proof is 20,000.
"""

from __future__ import annotations

import os
from contextlib import closing, suppress
from pathlib import Path
from random import Random

import pytest

from tests.dialects.sqlite.shapes import SHAPES, Shape
from tests.dialects.sqlite.statements import random_statement_on_one_row
from tests.dialects.sqlite.twins import AFTER_EVENTS, BEFORE_EVENTS, Twins, run_batches
from tests.servers import sqlite_module

STATEMENTS = int(os.environ.get("TIDESHIFT_KEY_LOG_STATEMENTS", "1500"))
DISPLACING = {
    "integer primary key", "composite key without rowid", "partial unique indexes", "unique expressions with collations", "strict",
    "a text key becomes the table, rows have numbers", "unique keys go",
}  # fmt: skip
"""Shapes of which random statements surely displace rows."""
DEPENDS_ON_ANY_TRIGGER = "child and parent with cascades"
LIMITS = {
    "recursive_triggers makes some UPDATE OR REPLACE fail": (
        AFTER_EVENTS,
        ("CREATE TABLE t (id INTEGER PRIMARY KEY, a UNIQUE, b, c)", "CREATE UNIQUE INDEX bc ON t (b, c)"),
        ("PRAGMA recursive_triggers = 1", "INSERT INTO t VALUES (1, 1, 'x', 0), (2, 6, 'y', 2)"),
        "UPDATE OR REPLACE t SET c = 0, a = 6 WHERE id = 1",
        ("[]", "UNIQUE constraint failed: t.b, t.c"),
    ),
    "a deferred reference to the own table is checked in a REPLACE": (
        AFTER_EVENTS,
        ("CREATE TABLE t (id INTEGER PRIMARY KEY, b REFERENCES t ON DELETE SET NULL DEFERRABLE INITIALLY DEFERRED)",),
        ("PRAGMA foreign_keys = 1", "INSERT INTO t VALUES (1, 1)"),
        "REPLACE INTO t VALUES (7, 8)",
        ("[]", "FOREIGN KEY constraint failed"),
    ),
    "the rows of an UPDATE come in another order": (
        AFTER_EVENTS,
        ("CREATE TABLE t (id INTEGER PRIMARY KEY, a UNIQUE, b)", "CREATE INDEX tb ON t (b)"),
        ("INSERT INTO t VALUES (1, 1, 2), (2, 2, 1), (3, 3, 0)",),
        "UPDATE t SET a = a + 1 WHERE b >= 0",
        ("[]", "UNIQUE constraint failed: t.a"),
    ),
    "the rowid of an INSERT that a foreign key refused is remembered": (
        AFTER_EVENTS,
        ("CREATE TABLE t (id INTEGER PRIMARY KEY, b REFERENCES t)",),
        ("INSERT INTO t VALUES (1, 1)", "PRAGMA foreign_keys = 1", "INSERT OR FAIL INTO t VALUES (5, 99)"),
        "SELECT last_insert_rowid()",
        ("[(1,)]", "[(5,)]"),
    ),
    "before a STRICT table's types are looked at, its other constraints were": (
        BEFORE_EVENTS,
        ("CREATE TABLE t (id INTEGER PRIMARY KEY, a INT, b TEXT NOT NULL) STRICT",),
        ("INSERT INTO t VALUES (1, 1, 'x')",),
        "INSERT OR IGNORE INTO t VALUES (1, 'x', NULL)",
        ("[]", "cannot store TEXT value in INT column t.a"),
    ),
}

@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_every_changed_row_is_logged_and_no_statement_sees_the_log(shape: Shape, random: Random, sqlite_path: Path) -> None:
    """Each random statement ends as without capture; wherever the copy has been, the shadow equals the source but for what the log names."""
    with closing(Twins(sqlite_path, shape)) as twins:
        wrong, changed_rows = run_batches(twins, random, STATEMENTS)

    assert wrong == []
    assert changed_rows > STATEMENTS / 4, "the statements hardly changed anything"


@pytest.mark.parametrize("shape", [shape for shape in SHAPES if shape.name in DISPLACING], ids=lambda shape: shape.name)
def test_without_the_look_ups_rows_are_missed(shape: Shape, random: Random, sqlite_path: Path) -> None:
    """The test above finds the mutant that logs only what a trigger is told."""
    with closing(Twins(sqlite_path, shape, look_up=False)) as twins:
        wrong, _ = run_batches(twins, random, STATEMENTS)

    assert any("not logged" in line or "ValueRefused" in line for line in wrong), wrong


@pytest.mark.parametrize(
    "shape", [shape for shape in SHAPES if shape.name != DEPENDS_ON_ANY_TRIGGER], ids=lambda shape: shape.name
)
def test_statements_on_one_row_end_as_on_a_table_without_any_trigger(shape: Shape, random: Random, sqlite_path: Path) -> None:
    """Where neither the order of rows nor references nor recursive_triggers play a part, capture is not to be seen at all."""
    with closing(Twins(sqlite_path, shape, idle_triggers=False)) as twins:
        wrong, _ = run_batches(twins, random, STATEMENTS, write=random_statement_on_one_row)

    assert wrong == []


@pytest.mark.parametrize(("events", "schema", "before", "statement", "seen"), LIMITS.values(), ids=LIMITS)
def test_a_known_limit_is_that_of_any_trigger(
    events: tuple[str, ...], schema: tuple[str, ...], before: tuple[str, ...], statement: str, seen: tuple[str, str]
) -> None:
    """What SQLite does otherwise on a table with triggers, it does for triggers that do nothing too."""
    outcomes = []
    for idle_events in ((), events):
        with closing(sqlite_module().connect(":memory:", isolation_level=None)) as connection:
            for text in (*schema, *(f'CREATE TRIGGER "{event}" {event} ON t BEGIN SELECT 1; END' for event in idle_events)):
                connection.execute(text)
            for text in before:
                with suppress(sqlite_module().IntegrityError):
                    connection.execute(text)
            try:
                outcomes.append(repr(connection.execute(statement).fetchall()))
            except sqlite_module().Error as error:
                outcomes.append(str(error))

    assert tuple(outcomes) == seen
