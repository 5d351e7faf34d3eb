"""MariaDB and MySQL as the DDL engine needs them."""

from __future__ import annotations

from tideshift.ddl.change import Change
from tideshift.ddl.dialect import Capabilities, InPlace, Shadow
from tideshift.ddl.reshaping import Reshaping, Strategy
from tideshift.dialects.mysql.catalog import MysqlCatalog
from tideshift.dialects.mysql.design import Designer
from tideshift.dialects.mysql.driver import MysqlDriver
from tideshift.dialects.mysql.grammar import GRAMMAR
from tideshift.dialects.mysql.load import MysqlLoad
from tideshift.dialects.mysql.native import MysqlNative
from tideshift.dialects.mysql.remains import MysqlRemains
from tideshift.store.database import Transaction

__all__ = ["MysqlDialect"]


class MysqlDialect:
    """One database of a server: MariaDB 10.11 or later, or MySQL 8.0 or later."""

    capabilities = Capabilities(
        concurrent_writers=True,
        transactional_swap=False,
        chunk_target_seconds=0.1,
        keep_old_seconds=86_400.0,
        indexes_with_shadow=True,
        empties_tables=False,
        copy_log_rows=20_000,
        changes_columns_in_place=False,
    )
    grammar = GRAMMAR

    def __init__(self, driver: MysqlDriver) -> None:
        self._driver = driver
        self.catalog = MysqlCatalog(driver)
        self.native = self.committing = MysqlNative(driver)
        self.remains = MysqlRemains(driver)
        self.load = MysqlLoad()

    @property
    def shadow(self) -> Shadow:
        """There is no such way yet: no plan takes it, and nobody asks."""
        raise AssertionError("this database has no shadow tables")

    @property
    def in_place(self) -> InPlace:
        """There is no such way: the capability says so, and nobody asks."""
        raise AssertionError("this database changes no column in place")

    def design(self, tx: Transaction, change: Change, *, strategy: Strategy | None = None, column_order_may_change: bool = False) -> Reshaping:
        """Work out how a change is carried out."""
        return Designer(tx, self._driver, strategy).design(change)
