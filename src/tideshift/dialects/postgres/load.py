"""How busy the server is, and who is in a job's way."""

from __future__ import annotations

from tideshift.ddl.dialect import Blocker, DiskRoom, InTheWay, LockHolder
from tideshift.dialects.postgres import snapshots
from tideshift.dialects.postgres.driver import quote
from tideshift.store.database import DatabaseFailed, Transaction

__all__ = ["PostgresLoad"]

_END_WAIT_MS = 2_000
_END = """
SELECT pg_catalog.pg_terminate_backend(b.pid, $4) FROM pg_catalog.pg_stat_activity b
 WHERE b.pid = $1 AND extract(epoch FROM b.backend_start) = $2::numeric
   AND EXISTS (SELECT 1 FROM pg_catalog.pg_locks l WHERE l.pid = b.pid AND l.relation = $3 AND l.granted)
"""
"""Only that very session, and only while it holds what we wait for."""
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

    def moment(self, tx: Transaction) -> str:
        """Name this moment."""
        return snapshots.moment(tx)

    def older_snapshots(self, tx: Transaction, moment: str) -> list[InTheWay]:
        """Return who still looks at the database as it was before that moment."""
        return snapshots.older_than(tx, moment)

    def end(self, tx: Transaction, session: InTheWay) -> str:
        """End a session that is in the way and not among those that are kept; say what became of it."""
        assert not session.kept
        tx.run_verbatim("SAVEPOINT tideshift_end")
        try:
            ended = tx.run_verbatim(_END, (session.process, session.started, session.relation, _END_WAIT_MS)).rows
        except DatabaseFailed as error:
            tx.run_verbatim("ROLLBACK TO SAVEPOINT tideshift_end")
            role = str(tx.run_verbatim("SELECT current_user::text").scalar())
            return f"refused: {error.message.partition(chr(10))[0]} (GRANT pg_signal_backend TO {quote(role)})"
        tx.run_verbatim("RELEASE SAVEPOINT tideshift_end")
        return "gone already" if not ended else "ended" if ended[0][0] else "told to end"
