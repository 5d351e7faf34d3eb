"""Taking away what a job made, when it is undone or when a replaced table is needed no more."""

from __future__ import annotations

import re

from tideshift.ddl.reshaping import UNFINISHED_INDEX, ArtifactName
from tideshift.dialects import points
from tideshift.dialects.postgres import locks, remade
from tideshift.dialects.postgres.driver import quote
from tideshift.dialects.postgres.names import OWN_PATTERN, parts_of, qualified
from tideshift.store.database import Transaction

__all__ = ["PostgresRemains"]

_OURS = ("shadow", "old table", "log", "function", "trigger", "index", "column trigger", "refused rows")
_WHOLE = {"index": "INDEX", "shadow": "TABLE", "old table": "TABLE", "log": "TABLE", "refused rows": "TABLE", "function": "FUNCTION"}
"""What stands in a schema by itself."""
_PARTITIONED = """
SELECT t.oid::bigint, pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(t.relname) FROM pg_catalog.pg_class t
JOIN pg_catalog.pg_namespace n ON n.oid = t.relnamespace WHERE t.relkind = 'p' AND t.oid = coalesce(
    (SELECT indrelid FROM pg_catalog.pg_index WHERE indexrelid = pg_catalog.to_regclass($1)), pg_catalog.to_regclass($1))
"""


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
        if artifact.kind == UNFINISHED_INDEX:
            remade.clean(tx, remade.Remade.of_artifact(artifact.name), tries=tries)
            return
        if artifact.kind in _OURS:
            assert re.match(OWN_PATTERN, parts[-1] if parts else ""), artifact
        if artifact.kind == "index" and _goes_with_another(tx, artifact.name):
            return
        _lock_tree(tx, qualified(*parts[:2]))
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


def _lock_tree(tx: Transaction, name: str) -> None:
    """Lock a partitioned table, or that of an index, with its partitions in our order and with our limit for all; the server has neither."""
    found = tx.run_verbatim(_PARTITIONED, (name,)).rows
    if found:
        locks.take_each(tx, locks.with_trees(tx, [locks.Lock(int(found[0][0]), found[0][1], locks.EVERYBODY, tree=True)]))


def _goes_with_another(tx: Transaction, name: str) -> bool:
    """Whether an index of a partition is joined to the table's own, so that it goes when that goes."""
    return tx.run_verbatim("SELECT relispartition FROM pg_catalog.pg_class WHERE oid = pg_catalog.to_regclass($1)", (name,)).scalar() is True
