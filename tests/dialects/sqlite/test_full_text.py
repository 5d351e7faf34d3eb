"""A full-text index that keeps its rows in a table of the user's: what it could not read afterwards is refused."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.servers import sqlite_module
from tideshift.connect import connect
from tideshift.errors import PlanRefused

TABLE = "CREATE TABLE t (id INTEGER PRIMARY KEY, a INT, b TEXT UNIQUE, c)"
UNNUMBERED = "CREATE TABLE t (id INTEGER NOT NULL UNIQUE, a, b, c)"
BY_COLUMN = "CREATE VIRTUAL TABLE found USING fts5(c, content='t', content_rowid='id')"
BY_NUMBER = "CREATE VIRTUAL TABLE found USING fts5(c, content='t')"
REFUSED = {
    "its table gets another name": ((TABLE, BY_COLUMN), "RENAME TO u", "no such table: main.t"),
    "its column gets another name": ((TABLE, BY_COLUMN), "RENAME COLUMN c TO d", "no such column: T.c"),
    "its column goes": ((TABLE, BY_COLUMN), "DROP COLUMN c", "no such column: T.c"),
    "the rows get other numbers": ((UNNUMBERED, BY_NUMBER), "ADD PRIMARY KEY (id)", "knows the rows by their numbers"),
    "the numbers go": ((TABLE, BY_NUMBER), "SET WITHOUT ROWID", "no such column: T.rowid"),
}


def _planned(path: Path, texts: tuple[str, ...], action: str) -> None:
    with closing(sqlite_module().connect(path, isolation_level=None)) as connection:
        for text in texts:
            connection.execute(text)
    with connect(str(path)) as connected:
        connected.ddl.plan(f"ALTER TABLE t {action}")


@pytest.mark.parametrize(("texts", "action", "reason"), REFUSED.values(), ids=REFUSED)
def test_what_it_could_not_read_is_refused(texts: tuple[str, ...], action: str, reason: str, sqlite_path: Path) -> None:
    """SQLite makes such a change without a word, and only the next search fails."""
    with pytest.raises(PlanRefused) as refusal:
        _planned(sqlite_path, texts, action)

    assert "it would break virtual table found" in refusal.value.message
    assert reason in refusal.value.message


@pytest.mark.parametrize("action", ["ADD PRIMARY KEY (id)", "DROP COLUMN a", "RENAME COLUMN a TO d"])
def test_what_it_does_not_ask_for_may_change(action: str, sqlite_path: Path) -> None:
    """Rows that it knows by a column may get other numbers, and what it does not index may go."""
    _planned(sqlite_path, (UNNUMBERED, BY_COLUMN), action)
