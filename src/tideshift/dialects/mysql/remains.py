"""Taking away what a job made, when it is undone."""

from __future__ import annotations

import re

from tideshift.ddl.reshaping import ArtifactName
from tideshift.dialects import points
from tideshift.dialects.mysql.driver import MysqlDriver
from tideshift.dialects.mysql.names import OWN_PATTERN, parts_of, qualified, quote
from tideshift.store.database import Transaction

__all__ = ["MysqlRemains"]

_INDEX = "SELECT 1 FROM information_schema.STATISTICS WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ? AND INDEX_NAME = ? LIMIT 1"


class MysqlRemains:
    """Indexes that jobs have made."""

    def __init__(self, driver: MysqlDriver) -> None:
        self._driver = driver

    def warm_up(self, tx: Transaction, artifact: ArtifactName) -> bool:
        """Read nothing."""
        return False

    def empty_chunk(self, tx: Transaction, artifact: ArtifactName, *, rows_max: int) -> int:
        """Empty nothing: no job keeps a table."""
        return 0

    def drop(self, tx: Transaction, artifact: ArtifactName, *, tries: int = 0) -> None:
        """Drop an index if it is there, under a lock that is tried for a second or two; what the transaction did before is committed with it."""
        schema, table, name = parts_of(artifact.name)
        assert artifact.kind == "index", artifact
        assert re.match(OWN_PATTERN, name), artifact
        if points.DROP.on:
            points.DROP.fire(name=artifact.name)
        if tx.run_verbatim(_INDEX, (schema, table, name)).rows:
            self._driver.limit_lock_wait(tx.connection, 1 + tries % 2)
            tx.run_verbatim(f"ALTER TABLE {qualified(schema, table)} DROP INDEX {quote(name)}, ALGORITHM=NOCOPY, LOCK=NONE")
