"""The same random statements on a table with a job under way and on its twin without: what is missed, and what is seen."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

from tests.dialects.sqlite.shapes import Shape
from tests.dialects.sqlite.statements import random_statement
from tests.servers import sqlite_module
from tideshift.config import FAST
from tideshift.ddl.reshaping import Reorg, Strategy
from tideshift.ddl.statement import parse_statement
from tideshift.dialects.sqlite.dialect import SqliteDialect
from tideshift.dialects.sqlite.driver import SqliteDriver
from tideshift.errors import TideshiftError
from tideshift.store.database import Database
from tideshift.store.keys import Bound, KeyRange

__all__ = ["AFTER_EVENTS", "BEFORE_EVENTS", "Twins", "key_log_faults", "run_batches"]

BATCH_STATEMENTS_MAX = 5
AFTER_EVENTS = ("AFTER INSERT", "AFTER UPDATE", "AFTER DELETE")
BEFORE_EVENTS = ("BEFORE INSERT", "BEFORE UPDATE")
OUR_TABLES = "tideshift_*"


class Twins:
    """The same tables twice: in a file with a job under way, and in memory with triggers that do nothing, or with none.

    That a table has a trigger at all can change what SQLite does: the order in which an UPDATE of many rows meets them, when
    a broken reference is found, and more (see the tests at the end). None of it comes from what capture does.
    """

    def __init__(self, path: Path, shape: Shape, *, idle_triggers: bool = True, look_up: bool = True) -> None:
        self.shape = shape
        module = sqlite_module()
        self.error = module.Error
        self.captured = module.connect(path, isolation_level=None)
        self.plain = module.connect(":memory:", isolation_level=None)
        self.cleaner = module.connect(path, isolation_level=None)
        for connection in (self.captured, self.plain, self.cleaner):
            connection.execute("PRAGMA synchronous = OFF")
        for connection in (self.captured, self.plain):
            for text in shape.schema:
                connection.execute(text)
        driver = SqliteDriver(path)
        self.database = Database(driver, profile=FAST)
        dialect = SqliteDialect(driver)
        self.shadow = dialect.shadow
        with self.database.transaction(write=False) as tx:
            designed = dialect.design(tx, parse_statement(shape.change), strategy=Strategy.SHADOW_TABLE)
        if not look_up:
            designed = replace(designed, detail={"layout": {**designed.detail["layout"], "displaced": []}, "native": None})
        self.reorg = Reorg(1, designed)
        with self.database.transaction() as tx:
            self.shadow.install(tx, self.reorg)
        self.copied_to: Bound | None = None
        self.all_copied = False
        for event in AFTER_EVENTS + BEFORE_EVENTS if idle_triggers else ():
            name = event.replace(" ", "_").lower()
            if any(trigger.endswith(name) for trigger in self.named("trigger")):
                self.plain.execute(f"CREATE TRIGGER idle_{name} {event} ON {shape.table} BEGIN SELECT 1; END")

    def named(self, kind: str) -> list[str]:
        """Return the names of the job's artifacts of one kind."""
        return [made.name for made in self.shadow.artifacts(self.reorg) if made.kind == kind]

    def go_on(self, random: Random) -> list[str]:
        """Copy or apply a little, as a job does; return what the shadow has wrong and the log does not tell."""
        try:
            if random.random() < 0.5:
                self.apply(rows_max=random.randint(1, 6))
            if random.random() < 0.5 and not self.all_copied:
                self.copy(rows_max=random.randint(1, 4))
            wrong = self.differing()
            if self.all_copied and random.random() < 0.1:
                while self.apply(rows_max=5):
                    pass
                wrong += self.differing()
                self.begin_again()
        except TideshiftError as error:  # a stale row that nothing tells of is in the way
            return [f"{type(error).__name__}: {error}"]
        return wrong

    def copy(self, *, rows_max: int) -> None:
        with self.database.transaction() as tx:
            chunk = self.shadow.copy_chunk(tx, self.reorg, KeyRange(self.copied_to, None), rows_max=rows_max)
        self.copied_to = chunk.last or self.copied_to
        self.all_copied = chunk.last is None

    def apply(self, *, rows_max: int) -> int:
        with self.database.transaction() as tx:
            return self.shadow.apply_batch(tx, self.reorg, rows_max=rows_max).log_rows

    def differing(self) -> list[str]:
        """Return the copied keys under which the shadow is not what the change makes of the source, but for those in the log."""
        if self.copied_to is None:
            return []
        copied = KeyRange(None, None if self.all_copied else self.copied_to)
        with self.database.transaction(write=False) as tx:
            comparison = self.shadow.compare_chunk(tx, self.reorg, copied, rows_max=100_000)
        return [f"not logged: {key}" for key in comparison.differing]

    def begin_again(self) -> None:
        """Empty the shadow and the log, as for a new job."""
        for table in (*self.named("shadow"), *self.named("log")):
            self.cleaner.execute(f"DELETE FROM {table}")
        self.copied_to, self.all_copied = None, False

    def close(self) -> None:
        self.database.close()
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


def run_batches(
    twins: Twins, random: Random, statements: int, write: Callable[[Random, Shape], str] = random_statement
) -> tuple[list[str], int]:
    """Run random statements on both; return what was wrong, and how many rows changed in all."""
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
        missed = twins.differing() or twins.go_on(random)
        if missed:
            wrong.append(f"{missed} by {batch}")
        if twins.everything(twins.captured) != twins.everything(twins.plain):
            wrong.append(f"the tables differ after {batch}")
        changed_rows += len(changed)
        done += len(batch)
    ruined = [one for one in (twins.captured, twins.plain) if one.execute("PRAGMA integrity_check").fetchall() != [("ok",)]]
    assert not ruined, "SQLite has ruined an index by itself, so nothing above means anything"
    return wrong, changed_rows


def key_log_faults(path: Path, shape: Shape, seed: int, statements: int) -> tuple[str, ...]:
    """Run so many random statements on a new file; return what was wrong."""
    with closing(sqlite_module().connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = wal").fetchone()
    with closing(Twins(path, shape)) as twins:
        wrong, changed_rows = run_batches(twins, Random(seed), statements)
    return (*wrong, *([] if changed_rows > statements / 4 else ["the statements hardly changed anything"]))
