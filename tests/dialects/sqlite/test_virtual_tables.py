"""A full-text index over a table of the user's is never left pointing at something that is gone."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.proof.engine import application, on_engine
from tideshift.errors import PlanRefused

TABLES = (
    "CREATE TABLE pages (k INTEGER PRIMARY KEY, title TEXT, body TEXT, extra TEXT)",
    "CREATE VIRTUAL TABLE five USING fts5(title, body, content='pages', content_rowid='k')",
    "CREATE VIRTUAL TABLE four USING fts4(title, body, content=\"pages\")",
    "INSERT INTO pages VALUES (1, 'sea', 'tide', 'x')",
    "INSERT INTO five (rowid, title, body) VALUES (1, 'sea', 'tide')",
    "INSERT INTO four (docid, title, body) VALUES (1, 'sea', 'tide')",
)
BREAKING = ("RENAME TO sheets", "RENAME COLUMN title TO heading", "DROP COLUMN body", "RENAME COLUMN k TO key")
HARMLESS = ("RENAME COLUMN extra TO more", "DROP COLUMN extra", "ADD COLUMN late TEXT DEFAULT 'y' FIRST", "ALTER extra TYPE INT", "MOVE body FIRST")


@pytest.fixture
def indexed(sqlite_path: Path) -> Path:
    """Return a file with two full-text indexes over one table."""
    with closing(application(sqlite_path)) as connection:
        for text in TABLES:
            connection.execute(text)
    return sqlite_path


@pytest.mark.parametrize("strategy", [None, "direct", "shadow_table"])
@pytest.mark.parametrize("action", BREAKING)
def test_a_change_that_would_break_the_index_is_refused(action: str, strategy: str | None, indexed: Path) -> None:
    """SQLite itself lets it happen, and the next MATCH fails."""
    with on_engine(indexed, strategy=strategy) as engine, pytest.raises(PlanRefused, match=r"virtual table f|no shadow table is needed"):
        engine.submit(f"ALTER TABLE pages {action}")


@pytest.mark.parametrize("strategy", [None, "shadow_table"])
@pytest.mark.parametrize("action", HARMLESS)
def test_any_other_change_leaves_it_working(action: str, strategy: str | None, indexed: Path) -> None:
    """The rows that it finds are read from the table."""
    if strategy is not None and action.startswith("RENAME"):
        strategy = None  # A rename has one way only.
    with on_engine(indexed, strategy=strategy) as engine:
        assert str(engine.run(f"ALTER TABLE pages {action}").state) == "synced"

    with closing(application(indexed)) as connection:
        for name in ("five", "four"):
            assert connection.execute(f"SELECT title, body FROM {name} WHERE {name} MATCH 'tide'").fetchall() == [("sea", "tide")]
