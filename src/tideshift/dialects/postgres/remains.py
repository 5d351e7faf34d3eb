"""Taking away what a job made, when it is undone or when a replaced table is needed no more."""

from __future__ import annotations

import re

from tideshift.ddl.reshaping import ArtifactName
from tideshift.dialects import points
from tideshift.dialects.postgres import locks
from tideshift.dialects.postgres.driver import quote
from tideshift.dialects.postgres.names import OWN_PATTERN, parts_of, qualified
from tideshift.store.database import Transaction

__all__ = ["PostgresRemains"]

_OURS = ("shadow", "old table", "log", "function", "trigger", "index", "column trigger", "refused rows")
_WHOLE = {"index": "INDEX", "shadow": "TABLE", "old table": "TABLE", "log": "TABLE", "refused rows": "TABLE", "function": "FUNCTION"}
"""What stands in a schema by itself."""


class PostgresRemains:
    """Tables, triggers, constraints, columns and indexes that jobs have made."""

    def warm_up(self, tx: Transaction, artifact: ArtifactName) -> bool:
        """Read nothing."""
        return False

    def empty_chunk(self, tx: Transaction, artifact: ArtifactName, *, rows_max: int) -> int:
        """Empty nothing: a table is dropped in a moment, however large it is."""
        parts = parts_of(artifact.name)
        assert re.match(OWN_PATTERN, parts[-1] if parts else ""), artifact
        return 0

    def drop(self, tx: Transaction, artifact: ArtifactName, *, tries: int = 0) -> None:
        """Drop it if it is there, under a lock that is waited for only for moments."""
        parts = parts_of(artifact.name)
        if points.DROP.on:
            points.DROP.fire(name=artifact.name)
        locks.limit_waits(tx, job_id=0, tries=tries)
        if artifact.kind in _OURS:
            assert re.match(OWN_PATTERN, parts[-1] if parts else ""), artifact
        if artifact.kind in _WHOLE:
            tx.run_verbatim(f"DROP {_WHOLE[artifact.kind]} IF EXISTS {artifact.name}")
            return
        table = qualified(*parts[:2])
        if not tx.run_verbatim("SELECT pg_catalog.to_regclass($1) IS NOT NULL", (table,)).scalar():
            return
        if artifact.kind in ("trigger", "column trigger"):
            tx.run_verbatim(f"DROP TRIGGER IF EXISTS {quote(parts[2])} ON {table}")
            return
        tx.run_verbatim(f"ALTER TABLE {table} DROP {'COLUMN' if artifact.kind == 'column' else 'CONSTRAINT'} IF EXISTS {quote(parts[2])}")
