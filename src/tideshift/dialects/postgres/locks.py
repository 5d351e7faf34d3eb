"""How long a statement may wait for its locks, and who is in the way."""

from __future__ import annotations

from tideshift.errors import LockTimeout
from tideshift.store.database import Transaction

__all__ = ["blockers", "limit_waits", "take"]

_SHORT_MS = 200
_SPREAD_MS = 300
_FURTHER_MS = 100
_LONG_EVERY = 5
"""Each so many tries is longer than deadlock_timeout: only a waiter that long makes an ordinary autovacuum give way."""
_SPREADING = 7919

_BLOCKERS = """
SELECT b.pid, coalesce(extract(epoch FROM now() - b.xact_start), 0)::int, left(coalesce(b.query, ''), 80)
FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_stat_activity b ON b.pid = l.pid
WHERE l.relation = $1 AND l.granted AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
  AND l.pid <> pg_backend_pid() ORDER BY b.xact_start NULLS LAST LIMIT 5
"""


def limit_waits(tx: Transaction, *, job_id: int, tries: int) -> None:
    """Set how long each lock of this transaction may be waited for: moments, spread so that jobs do not meet again and again."""
    if tries % _LONG_EVERY == _LONG_EVERY - 1:
        tx.run_verbatim(
            "SELECT pg_catalog.set_config('lock_timeout', (1000 + (SELECT setting::bigint FROM pg_catalog.pg_settings WHERE name = 'deadlock_timeout'))::text || 'ms', true)"
        )
        return
    wait_ms = _SHORT_MS + (job_id * _SPREADING + tries * 104_729) % _SPREAD_MS
    tx.run_verbatim("SELECT pg_catalog.set_config('lock_timeout', $1, true)", (f"{wait_ms}ms",))


def take(tx: Transaction, tables: dict[int, str], mode: str, *, views: dict[int, str] | None = None) -> None:
    """Lock tables in the order of their oids, so that two jobs never wait for one another; raise `LockTimeout` naming who is in the way.

    `views` are locked with them, each by a statement of its own (`Views.locks`).

    Only the first may be waited for as long as it was said: who waits for a second table holds the first one, and whoever
    has the second and wants the first would be the one that the server ends, after `deadlock_timeout`.
    """
    statements = {oid: (name, f"LOCK TABLE {name} IN {mode} MODE") for oid, name in tables.items()}
    statements |= {oid: (f"a view over it ({text.split(' ')[2]})", text) for oid, text in (views or {}).items()}
    for number, (oid, (name, text)) in enumerate(sorted(statements.items())):
        if number == 1:
            tx.run_verbatim("SELECT pg_catalog.set_config('lock_timeout', $1, true)", (f"{_FURTHER_MS}ms",))
        tx.run_verbatim("SAVEPOINT tideshift_lock")
        try:
            tx.run_verbatim(text)
        except LockTimeout as error:
            tx.run_verbatim("ROLLBACK TO SAVEPOINT tideshift_lock")
            raise LockTimeout(f"{name} is in use: {'; '.join(blockers(tx, oid)) or 'by somebody who may not be seen'}", table=name) from error
        tx.run_verbatim("RELEASE SAVEPOINT tideshift_lock")


def blockers(tx: Transaction, oid: int) -> list[str]:
    """Name the sessions that hold a lock on a table, the oldest first."""
    return [f"process {pid} for {seconds} s: {query}" for pid, seconds, query in tx.run_verbatim(_BLOCKERS, (oid,)).rows]


