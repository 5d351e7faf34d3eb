"""Nothing that is done under the write lock takes longer for a longer table: counted in instructions of the library, not in time."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.proof.engine import application, on_engine
from tideshift.dialects.sqlite.driver import SqliteDriver

ROWS = 20_000
BATCH_ROWS = 100
STEP = 1_000
"""The library tells of itself once in so many instructions of one statement, so short statements cost nothing."""
STEPS_MAX = 30
"""A chunk of `BATCH_ROWS`, and the count of what waits in the log, which ends at 2,000, need 21; reading the table needs 60 and more."""
TABLE = """
CREATE TABLE parent (id INTEGER PRIMARY KEY);
CREATE TABLE items (id INTEGER PRIMARY KEY, owner INTEGER, name TEXT, price TEXT, UNIQUE (id, price));
CREATE INDEX items_price ON items (price);
CREATE INDEX items_name ON items (name);
INSERT INTO parent VALUES (0), (1), (2);
WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < :rows) INSERT INTO items SELECT i, i % 3, 'n' || i, i * 7 % 1000 FROM n;
"""


class Watched:
    """How many steps each writing transaction took, and where the longest was while it took them."""

    def __init__(self) -> None:
        self.steps = 0
        self.writing = False
        self.longest: tuple[int, str] = (0, "")

    def step(self) -> int:
        """Be told of another step."""
        if self.writing:
            self.steps += 1
            if self.steps > self.longest[0]:
                self.longest = (self.steps, "".join(traceback.format_stack(limit=16)[:-1]) if self.steps == STEPS_MAX + 1 else self.longest[1])
        return 0


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Watched]:
    """Watch every connection that is opened meanwhile."""
    found = Watched()
    connect, begin = SqliteDriver.connect, SqliteDriver.begin

    def watched_connect(self: SqliteDriver) -> Any:
        connection = connect(self)
        connection.set_progress_handler(found.step, STEP)
        return connection

    def watched_begin(self: SqliteDriver, connection: Any, *, write: bool, **options: Any) -> None:
        begin(self, connection, write=write, **options)
        found.steps, found.writing = 0, write

    monkeypatch.setattr(SqliteDriver, "connect", watched_connect)
    monkeypatch.setattr(SqliteDriver, "begin", watched_begin)
    yield found


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE items ALTER COLUMN price TYPE INTEGER USING CAST(price AS INTEGER)",
        "ALTER TABLE items ADD FOREIGN KEY (owner) REFERENCES parent",
        "ALTER TABLE items ADD UNIQUE (name)",
        "CREATE INDEX items_owner ON items (owner)",
    ],
)
def test_no_lock_is_held_for_the_whole_table(statement: str, sqlite_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From its submission to the end of its purge, every transaction that keeps writers out is as short as its chunk."""
    with closing(application(sqlite_path)) as connection:
        for text in TABLE.replace(":rows", str(ROWS)).split(";"):
            connection.execute(text)

    with watched(monkeypatch) as found, on_engine(sqlite_path) as engine:
        job_id = engine.submit(statement, batch_size=BATCH_ROWS)
        engine.until_stage(job_id, "copy")
        with closing(application(sqlite_path)) as connection:
            connection.execute("UPDATE items SET owner = 2 - owner")  # The log is as long as the table.
        job = engine.finish(job_id)

    assert str(job.state) == "synced", job.error
    assert found.longest[0] <= STEPS_MAX, f"{found.longest[0]} x {STEP} instructions under the lock\n{found.longest[1]}"
    assert found.longest[0] > 0
