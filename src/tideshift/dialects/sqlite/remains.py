"""What jobs have made on SQLite and nobody needs any more."""

from __future__ import annotations

from tideshift.ddl.reshaping import ArtifactName
from tideshift.dialects.sqlite import purge
from tideshift.dialects.sqlite.driver import SqliteDriver
from tideshift.store.database import Transaction

__all__ = ["SqliteRemains"]


class SqliteRemains:
    """What `Remains` asks for."""

    def __init__(self, driver: SqliteDriver) -> None:
        self._driver = driver

    def warm_up(self, tx: Transaction, artifact: ArtifactName) -> bool:
        return purge.warm_up(tx, artifact, self._driver)

    def empty_chunk(self, tx: Transaction, artifact: ArtifactName, *, rows_max: int) -> int:
        return purge.empty_chunk(tx, artifact, self._driver, rows_max=rows_max)

    def drop(self, tx: Transaction, artifact: ArtifactName, *, tries: int = 0) -> None:
        purge.drop(tx, artifact)
