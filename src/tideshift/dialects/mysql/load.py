"""How busy the server is, and who is in a job's way."""

from __future__ import annotations

from tideshift.ddl.dialect import Blocker, DiskRoom, InTheWay, LockHolder
from tideshift.dialects.mysql import blockers
from tideshift.store.database import Transaction

__all__ = ["MysqlLoad"]

_WAITS_FOR = """
SELECT DISTINCT b.trx_mysql_thread_id, timestampdiff(SECOND, b.trx_started, sysdate()), left(coalesce(b.trx_query, ''), 200)
FROM information_schema.INNODB_TRX b JOIN information_schema.PROCESSLIST w ON w.ID = ?
WHERE b.trx_mysql_thread_id <> w.ID AND w.STATE LIKE 'Waiting for table metadata lock%' ORDER BY 2 DESC LIMIT 5
"""


class MysqlLoad:
    """What can be known from a connection alone."""

    def room(self) -> DiskRoom | None:
        """Return nothing: a server does not tell its clients how much of its disk is free."""
        return None

    def lock_holder(self) -> LockHolder | None:
        """Return nobody: there is no lock that every writer needs."""
        return None

    def waits_for(self, tx: Transaction, backend: str) -> list[Blocker]:
        """Return the open transactions, while the session waits for a table."""
        return [Blocker(int(number), int(seconds), str(query)) for number, seconds, query in tx.run_verbatim(_WAITS_FOR, (int(backend.partition(" ")[0]),)).rows]

    def moment(self, tx: Transaction) -> str:
        """Name nothing: the server refuses a transaction that is older than a table, so that nobody looks past a change."""
        return ""

    def older_snapshots(self, tx: Transaction, moment: str) -> list[InTheWay]:
        """Return nobody, for the same reason."""
        return []

    def end(self, tx: Transaction, session: InTheWay) -> str:
        """End a session that is in the way and not among those that are kept; say what became of it."""
        assert not session.kept
        return blockers.end(tx, session)
