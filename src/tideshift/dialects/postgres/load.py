"""How busy the server is."""

from __future__ import annotations

from tideshift.ddl.dialect import Blocker, DiskRoom, LockHolder
from tideshift.store.database import Transaction

__all__ = ["PostgresLoad"]

_WAITS_FOR = """
SELECT b.pid, coalesce(extract(epoch FROM pg_catalog.clock_timestamp() - b.xact_start), 0)::int, left(coalesce(b.query, ''), 200)
FROM unnest(pg_catalog.pg_blocking_pids($1)) blocking (pid) JOIN pg_catalog.pg_stat_activity b ON b.pid = blocking.pid ORDER BY b.xact_start NULLS LAST LIMIT 5
"""


class PostgresLoad:
    """What can be known from a connection alone."""

    def room(self) -> DiskRoom | None:
        """Return nothing: a server does not tell its clients how much of its disk is free."""
        return None

    def lock_holder(self) -> LockHolder | None:
        """Return nobody: there is no lock that every writer needs."""
        return None

    def waits_for(self, tx: Transaction, backend: str) -> list[Blocker]:
        """Ask the server's lock table; CONCURRENTLY waits for older snapshots by locks too."""
        return [Blocker(*row) for row in tx.run_verbatim(_WAITS_FOR, (int(backend),)).rows]
