"""What is in the database, as the server's catalogue tells."""

from __future__ import annotations

from tideshift.ddl.change import TableName
from tideshift.ddl.dialect import DoctorFinding, Durability
from tideshift.dialects.mysql import health
from tideshift.dialects.mysql.driver import MysqlDriver
from tideshift.dialects.mysql.names import OWN_PATTERN, qualified
from tideshift.dialects.mysql.source import find_table
from tideshift.store.database import Database, Transaction
from tideshift.store.tables import NAMESPACE

__all__ = ["MysqlCatalog"]

_OURS = f"""
SELECT 'table', TABLE_SCHEMA, TABLE_NAME, NULL FROM information_schema.TABLES
 WHERE TABLE_NAME LIKE '{NAMESPACE}\\_%' AND TABLE_NAME REGEXP '{OWN_PATTERN}' AND TABLE_SCHEMA NOT IN ('{NAMESPACE}', 'information_schema', 'performance_schema', 'mysql', 'sys')
   AND NOT (TABLE_NAME REGEXP '_trial_[0-9]+$' AND EXISTS (SELECT 1 FROM information_schema.PROCESSLIST WHERE ID = substring_index(TABLE_NAME, '_', -1)))
UNION ALL SELECT 'trigger', TRIGGER_SCHEMA, TRIGGER_NAME, NULL FROM information_schema.TRIGGERS WHERE TRIGGER_NAME REGEXP '{OWN_PATTERN}'
UNION ALL SELECT DISTINCT 'index', TABLE_SCHEMA, TABLE_NAME, INDEX_NAME FROM information_schema.STATISTICS
 WHERE INDEX_NAME REGEXP '{OWN_PATTERN}' AND TABLE_NAME NOT REGEXP '{OWN_PATTERN}'
"""
"""What has a name of ours, but for what goes with a table of ours, and for the copy on which a plan tries something at this moment."""


class MysqlCatalog:
    """What is in the database."""

    def __init__(self, driver: MysqlDriver) -> None:
        self._driver = driver

    def row_estimate(self, tx: Transaction, table: TableName) -> tuple[int, bool]:
        """Return the server's own estimate; nothing is counted."""
        return find_table(tx, table, self._driver.database).rows, False

    def objects(self, tx: Transaction) -> set[tuple[str, str]]:
        """Return what has a name of ours outside our own database: type and name behind its database."""
        return {(kind, qualified(*(part for part in path if part is not None))) for kind, *path in tx.run_verbatim(_OURS).rows}

    def durability(self, tx: Transaction) -> Durability:
        """Say what the server's settings can lose: they are the whole server's, for our commits as for the application's."""
        flush = int(tx.run_verbatim("SELECT @@GLOBAL.innodb_flush_log_at_trx_commit").scalar())
        binlog, sync = tx.run_verbatim("SELECT @@GLOBAL.log_bin, @@GLOBAL.sync_binlog").rows[0]
        lost = {
            1: "survive a crash of the server and of its machine", 3: "survive a crash of the server and of its machine",
            2: "survive a crash of the server; a crash of its machine takes the last second of them",
            0: "a crash of the server takes the last second of them",
        }[flush]  # fmt: skip
        settings = [f"innodb_flush_log_at_trx_commit = {flush}", *([f"sync_binlog = {sync}"] if binlog else [])]
        return Durability(
            setting=", ".join(settings),
            commands=f"commands and states: {lost}; a statement of the server's own is there as a whole or not at all, and the catalogue is asked",
            rows=f"chunks are committed with their checkpoints: {lost}",
            application=f"the application's own commits: {lost}",
        )

    def findings(self, database: Database) -> list[DoctorFinding]:
        """Look at settings, transactions and privileges."""
        return database.run(health.findings, write=False)
