"""SQLite as the DDL engine needs it."""

from __future__ import annotations

from tideshift.ddl.change import Change
from tideshift.ddl.dialect import Capabilities, InPlace
from tideshift.ddl.grammar import PLAIN
from tideshift.ddl.reshaping import Reshaping, Strategy
from tideshift.dialects.sqlite.catalog import SqliteCatalog
from tideshift.dialects.sqlite.design import Designer
from tideshift.dialects.sqlite.driver import SqliteDriver
from tideshift.dialects.sqlite.estimate import CHUNK_TARGET_SECONDS
from tideshift.dialects.sqlite.load import SqliteLoad
from tideshift.dialects.sqlite.native import SqliteNative
from tideshift.dialects.sqlite.remains import SqliteRemains
from tideshift.dialects.sqlite.shadow import SqliteShadow
from tideshift.store.database import Transaction

__all__ = ["SqliteDialect"]


class SqliteDialect:
    """One SQLite file: one writer, everything transactional."""

    capabilities = Capabilities(
        concurrent_writers=False,
        transactional_swap=True,
        chunk_target_seconds=CHUNK_TARGET_SECONDS,
        keep_old_seconds=0.0,
        indexes_with_shadow=True,
        empties_tables=True,
        copy_log_rows=20_000,
        changes_columns_in_place=False,
    )

    grammar = PLAIN
    committing = None

    def __init__(self, driver: SqliteDriver) -> None:
        self._driver = driver
        self.catalog = SqliteCatalog(driver)
        self.native = SqliteNative(driver)
        self.shadow = SqliteShadow(driver)
        self.remains = SqliteRemains(driver)
        self.load = SqliteLoad(driver)

    @property
    def in_place(self) -> InPlace:
        """There is no such way: the capability says so, and nobody asks."""
        raise AssertionError("this database changes no column in place")

    def design(self, tx: Transaction, change: Change, *, strategy: Strategy | None = None, column_order_may_change: bool = False) -> Reshaping:
        """Work out how a change is carried out; the order of columns is the user's in every way."""
        return Designer(tx, self._driver, self.catalog, strategy).design(change)
