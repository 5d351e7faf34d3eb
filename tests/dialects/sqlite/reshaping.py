"""One change by a shadow table, verb by verb as the engine calls them, for tests that stop in between."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.servers import sqlite_module
from tideshift.config import FAST
from tideshift.ddl.dialect import Comparison
from tideshift.ddl.reshaping import Reorg, Reshaping, Strategy
from tideshift.ddl.statement import parse_statement
from tideshift.dialects.sqlite.dialect import SqliteDialect
from tideshift.dialects.sqlite.driver import SqliteDriver
from tideshift.store.database import Database, Transaction
from tideshift.store.keys import Bound, KeyRange

WHOLE = KeyRange(None, None)


class Change:
    """A change under way on one file, with an application's connection beside it."""

    def __init__(self, path: Path, schema: tuple[str, ...], statement: str) -> None:
        self.application = sqlite_module().connect(path, isolation_level=None)
        for text in schema:
            self.application.execute(text)
        driver = SqliteDriver(path)
        self.database = Database(driver, profile=FAST)
        self.dialect = SqliteDialect(driver)
        self.shadow = self.dialect.shadow
        with self.reading() as tx:
            designed = self.dialect.design(tx, parse_statement(statement), strategy=Strategy.SHADOW_TABLE)
        self.reshaping = designed
        # The engine reads the design back from the job's row.
        self.reorg = Reorg(7, Reshaping.from_record(json.loads(json.dumps(designed.as_record()))))

    def close(self) -> None:
        self.database.close()
        self.application.close()

    def reading(self):
        return self.database.transaction(write=False)

    def writing(self):
        return self.database.transaction()

    def named(self, kind: str) -> list[str]:
        """Return the names of the artifacts of one kind."""
        return [made.name for made in self.shadow.artifacts(self.reorg) if made.kind == kind]

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self.application.execute(sql).fetchall()

    def schema(self) -> list[tuple[Any, ...]]:
        """Return sqlite_master as it stands, without the pages."""
        return self.rows("SELECT rowid, type, name, tbl_name, sql FROM sqlite_master")

    def install(self) -> None:
        with self.writing() as tx:
            self.shadow.install(tx, self.reorg)

    def copy(self, rows_max: int = 10, between: Callable[[], None] = lambda: None) -> int:
        """Copy everything up to the last key of now."""
        with self.reading() as tx:
            ends = self.shadow.key_order(self.reorg).first_and_last(tx)
        low, copied = None, 0
        while ends is not None:
            with self.writing() as tx:
                self.shadow.check(tx, self.reorg)
                chunk = self.shadow.copy_chunk(tx, self.reorg, KeyRange(low, ends[1]), rows_max=rows_max)
            if chunk.last is None:
                break
            low, copied = chunk.last, copied + chunk.rows
            between()
        return copied

    def catch_up(self, rows_max: int = 10) -> int:
        """Apply the log until it is empty; return the number of keys."""
        keys = 0
        while True:
            with self.writing() as tx:
                batch = self.shadow.apply_batch(tx, self.reorg, rows_max=rows_max)
            if batch.log_rows == 0:
                return keys
            keys += batch.keys

    def compare(self, rows_max: int = 10) -> list[Comparison]:
        """Compare everything."""
        found: list[Comparison] = []
        low: Bound | None = None
        while True:
            with self.reading() as tx:
                comparison = self.shadow.compare_chunk(tx, self.reorg, KeyRange(low, None), rows_max=rows_max)
            found.append(comparison)
            if comparison.last is None:
                return found
            low = comparison.last

    def differing(self) -> list[Bound]:
        return [key for comparison in self.compare() for key in comparison.differing]

    def check_rows(self, rows_max: int = 10) -> int:
        low, rows = None, 0
        while True:
            with self.reading() as tx:
                chunk = self.shadow.check_rows(tx, self.reorg, KeyRange(low, None), rows_max=rows_max)
            if chunk.last is None:
                return rows
            low, rows = chunk.last, rows + chunk.rows

    def see_references(self, *, swapped: bool = False, rows_max: int = 2) -> None:
        """Look at every reference that the change touches."""
        seen = None
        while True:
            with self.reading() as tx:
                seen = self.shadow.see_references(tx, self.reorg, seen, rows_max=rows_max, swapped=swapped)
            if seen is None:
                return

    def swap(self) -> None:
        with self.writing() as tx:
            self.shadow.swap(tx, self.reorg)
        with self.database.session() as session:
            self.shadow.inspect_swapped(session, self.reorg)
        self.see_references(swapped=True)

    def purge(self, rows_max: int = 7) -> int:
        """Empty and drop what is left; return the number of rows that went."""
        artifacts = self.shadow.artifacts(self.reorg)
        rows = 0
        while True:
            with self.writing() as tx:
                emptied = self.dialect.remains.empty_chunk(tx, artifacts[0], rows_max=rows_max)
            rows += emptied
            if not emptied:
                break
        with self.writing() as tx:
            for artifact in reversed(artifacts):
                self.dialect.remains.drop(tx, artifact)
        return rows

    def whole(self, between: Callable[[], None] = lambda: None) -> None:
        """Do all of it."""
        self.check_rows()
        self.install()
        self.copy(between=between)
        self.catch_up()
        assert self.differing() == []
        self.swap()
        self.purge()

    def objects(self) -> set[tuple[str, str]]:
        with self.reading() as tx:
            return self.dialect.catalog.objects(tx)


@contextmanager
def changing(path: Path, *schema: str, statement: str = "ALTER TABLE t ALTER c TYPE INTEGER") -> Iterator[Change]:
    """Begin a change on tables made by these texts, and close everything at the end."""
    change = Change(path, schema, statement)
    try:
        yield change
    finally:
        change.close()


def run_in(tx: Transaction, sql: str) -> list[tuple[Any, ...]]:
    """Execute one text in a transaction of ours."""
    return tx.run_verbatim(sql).rows
