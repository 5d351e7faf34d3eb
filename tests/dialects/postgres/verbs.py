"""A shadow table driven verb by verb, as the engine drives it, so that a test may do something between any two of them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import psycopg

from tests.conformance.planned import JOB_ID, Planned
from tests.dialects.postgres.stepping import application
from tideshift.ddl.dialect import BuildGroup, Reorg, Reshaping, Strategy
from tideshift.ddl.reorg.verify import settle
from tideshift.ddl.statement import parse_statement
from tideshift.dialects.postgres.dialect import PostgresDialect
from tideshift.dialects.postgres.driver import PostgresDriver
from tideshift.errors import TideshiftError
from tideshift.store.database import Database

__all__ = ["Begin", "ByVerbs", "by_verbs"]


class ByVerbs(Planned):
    """Any table and any change of it, planned and no more."""

    def __init__(self, url: str, schema: str, statement: str) -> None:
        driver = PostgresDriver(url)
        self.url = url
        self.database = Database(driver)
        self.dialect = PostgresDialect(driver)
        self.catalog, self.shadow, self.native = self.dialect.catalog, self.dialect.shadow, self.dialect.native
        self.app = application(url)
        try:
            self.app.execute(schema.encode())
            with self.reading() as tx:
                self.designed = self.dialect.design(tx, parse_statement(statement), strategy=Strategy.SHADOW_TABLE)
        except (TideshiftError, psycopg.Error):
            self.close()
            raise
        self.stored = Reshaping.from_record(json.loads(json.dumps(self.designed.as_record())))
        self.reorg = Reorg(JOB_ID, self.stored)

    def close(self) -> None:
        """Close every connection."""
        self.app.close()
        self.database.close()

    def execute(self, statement: str) -> list[tuple[Any, ...]]:
        """Let the application do something; return its rows, if there are any."""
        cursor = self.app.execute(statement.encode())
        return [] if cursor.description is None else cursor.fetchall()

    def logged(self) -> list[tuple[Any, ...]]:
        """What the log holds, its keys in their order."""
        return self.execute(f"SELECT * FROM {self.named('log')} ORDER BY 1")

    def copied(self, columns: str = "*") -> list[tuple[Any, ...]]:
        """What the copy holds."""
        return self.execute(f"SELECT {columns} FROM {self.named('shadow')} ORDER BY 1")

    def swap(self) -> None:
        """Drain and swap in one transaction."""
        with self.writing() as tx:
            self.shadow.hold_still(tx, self.reorg, tries=0)
            settle(tx, self.dialect, self.reorg)
            self.shadow.swap(tx, self.reorg)

    def carry_out(self, between: Callable[[], object] = lambda: None, *, rows_max: int = 50) -> None:
        """Do everything, and something of the application's between the copy and the catch-up."""
        self.install()
        self.copy_rows(rows_max=rows_max)
        between()
        self.apply()
        self.build(*BuildGroup)
        assert self.differing() == []
        self.swap()


Begin = Callable[[str, str], ByVerbs]


@contextmanager
def by_verbs(url: str) -> Iterator[Begin]:
    """Give what begins a change; whatever was begun is closed."""
    begun: list[ByVerbs] = []

    def begin(schema: str, statement: str) -> ByVerbs:
        begun.append(ByVerbs(url, schema, statement))
        return begun[-1]

    try:
        yield begin
    finally:
        for one in begun:
            one.close()
