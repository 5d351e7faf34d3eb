"""The one place where tests turn a URL into a Database, and what they need beside it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from tideshift.clock import Clock
from tideshift.config import FAST, Profile
from tideshift.ddl.dialect import Dialect
from tideshift.dialects.mysql.driver import MysqlDriver
from tideshift.dialects.mysql.keys import MysqlKeyOrder
from tideshift.dialects.postgres.dialect import PostgresDialect
from tideshift.dialects.postgres.driver import PostgresDriver
from tideshift.dialects.postgres.keys import PostgresKeyOrder
from tideshift.dialects.sqlite.dialect import SqliteDialect
from tideshift.dialects.sqlite.driver import SqliteDriver
from tideshift.dialects.sqlite.keys import SqliteKeyOrder
from tideshift.store.database import Database, Transaction
from tideshift.store.driver import Driver
from tideshift.store.keys import KeyOrder

SQLITE_SCHEME = "sqlite:///"
DIALECTS: dict[str, Callable[[Any], Dialect]] = {"sqlite": SqliteDialect, "postgres15": PostgresDialect, "postgres18": PostgresDialect}
"""Which of the databases can change schemas, and what makes the dialect of one's driver: a new dialect is added here and nowhere else."""


def make_driver(url: str) -> Driver:
    """Make the driver for a test's URL."""
    if url.startswith(SQLITE_SCHEME):
        return SqliteDriver(url.removeprefix(SQLITE_SCHEME))
    if url.startswith("mariadb"):
        return MysqlDriver(url)
    return PostgresDriver(url)


def open_database(url: str, clock: Clock | None = None, profile: Profile = FAST) -> Database:
    """Open the database of a test's URL; the caller closes it."""
    return Database(make_driver(url), clock=clock, profile=profile)


@contextmanager
def opened(url: str, clock: Clock | None = None, profile: Profile = FAST) -> Iterator[Database]:
    """Open the database of a test's URL and close it at the end."""
    database = open_database(url, clock, profile)
    try:
        yield database
    finally:
        database.close()


def key_order(tx: Transaction, table: str, columns: tuple[str, ...]) -> KeyOrder:
    """Return the key order of a table of this test: by its primary key where there is a choice."""
    driver = tx.driver
    if isinstance(driver, SqliteDriver):
        return SqliteKeyOrder.read(tx, table, driver)
    order: MysqlKeyOrder | PostgresKeyOrder
    if isinstance(driver, MysqlDriver):
        order = MysqlKeyOrder(driver.database, table, columns)
        order.prepare(tx)
        return order
    assert isinstance(driver, PostgresDriver)
    order = PostgresKeyOrder("public", table, columns, driver=driver)
    order.prepare(tx)
    return order


def in_columns(driver: Driver, table: str) -> Callable[[str], str]:
    """Return a function that writes the table's name as statements of this database must; an artifact's name may be written so already."""
    if table.startswith(('"', "`")):
        qualified = table
    else:
        qualified = f"public.{driver.quote(table)}" if isinstance(driver, PostgresDriver) else driver.quote(table)
    return lambda text: text.replace("{table}", qualified)
