"""SQLite as the DDL engine needs it."""

from __future__ import annotations

from tideshift.ddl.change import SetColumnType
from tideshift.ddl.dialect import Capabilities
from tideshift.dialects.sqlite.catalog import SqliteCatalog
from tideshift.dialects.sqlite.driver import SqliteDriver
from tideshift.dialects.sqlite.load import SqliteLoad
from tideshift.dialects.sqlite.scratch import schema_can_be_written
from tideshift.dialects.sqlite.shadow import SqliteShadow

__all__ = ["SqliteDialect"]


class SqliteDialect:
    """One SQLite file: one writer, everything transactional."""

    capabilities = Capabilities(
        concurrent_writers=False,
        transactional_swap=True,
        chunk_target_seconds=0.009,
        keep_old_seconds=0.0,
        indexes_with_shadow=True,
    )

    def __init__(self, driver: SqliteDriver) -> None:
        self._driver = driver
        self.catalog = SqliteCatalog(driver)
        self.shadow = SqliteShadow(driver)
        self.load = SqliteLoad(driver)

    def refusals(self, change: SetColumnType) -> list[str]:
        """Return why no type can be changed with this library."""
        del change
        if schema_can_be_written(self._driver):
            return []
        return ["this SQLite library is built as defensive and does not let its schema table be written"]
