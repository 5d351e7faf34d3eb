"""How long a statement may wait for its locks, and who is in the way."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from tideshift.errors import ConnectionLost, LockTimeout, Retryable
from tideshift.store.database import Transaction

__all__ = ["EVERYBODY", "READERS_GO_ON", "WRITERS_GO_ON", "Lock", "blockers", "limit_waits", "of_views", "stronger", "take", "take_each", "with_trees"]

EVERYBODY = "ACCESS EXCLUSIVE"
"""Keeps everybody out."""
READERS_GO_ON = "SHARE ROW EXCLUSIVE"
"""Keeps writers out."""
WRITERS_GO_ON = "SHARE UPDATE EXCLUSIVE"
"""Keeps vacuum and other changes out."""
_STRENGTH = ("ACCESS SHARE", "ROW SHARE", "ROW EXCLUSIVE", WRITERS_GO_ON, "SHARE", READERS_GO_ON, "EXCLUSIVE", EVERYBODY)

_SHORT_MS = 200
_SPREAD_MS = 300
_FURTHER_MS = 100
_FURTHER_TOGETHER_MS = 400
_LONG_EVERY = 5
"""Each so many tries is longer than deadlock_timeout: only a waiter that long makes an ordinary autovacuum give way."""
_SPREADING = 7919

_BLOCKERS = """
SELECT b.pid, coalesce(extract(epoch FROM now() - b.xact_start), 0)::int, left(coalesce(b.query, ''), 80)
FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_stat_activity b ON b.pid = l.pid
WHERE l.relation = $1 AND l.granted AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database())
  AND l.pid <> pg_backend_pid() ORDER BY b.xact_start NULLS LAST LIMIT 5
"""
_TREE = """
WITH RECURSIVE tree (oid) AS (SELECT $1::oid UNION SELECT i.inhrelid FROM pg_catalog.pg_inherits i JOIN tree ON i.inhparent = tree.oid)
SELECT c.oid::bigint, pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname)
FROM tree JOIN pg_catalog.pg_class c ON c.oid = tree.oid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.relkind IN ('r', 'p', 'f')
"""


@dataclass(frozen=True)
class Lock:
    """A table to be locked, by its oid and its quoted name; `tree`: with every partition and child that it has by then."""

    oid: int
    table: str
    mode: str
    tree: bool = False
    statement: str | None = None
    """The whole statement where it is not a table's."""


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
    """Lock tables in one mode, and views with them, each by a statement of its own (`Views.locks`); see `take_each`."""
    take_each(tx, [*(Lock(oid, name, mode) for oid, name in tables.items()), *of_views(views or {})])


def of_views(views: dict[int, str]) -> list[Lock]:
    """Return the locks that `Views.locks` writes out."""
    return [Lock(oid, f"a view over it ({text.split(' ')[2]})", EVERYBODY, statement=text) for oid, text in views.items()]


def take_each(tx: Transaction, locks: Sequence[Lock]) -> None:
    """Lock tables in the order of their oids, so that two jobs never wait for one another; raise `LockTimeout` naming who is in the way.

    Only the first may be waited for as long as it was said: who waits for a second table holds the first one, and whoever
    has the second and wants the first would be the one that the server ends, after `deadlock_timeout`. All further ones
    together, the partitions of a table for instance, may take `_FURTHER_TOGETHER_MS`.
    """
    first, *further = sorted(locks, key=lambda one: one.oid)
    _lock(tx, [first])
    if further:
        tx.run_verbatim("SELECT pg_catalog.set_config('lock_timeout', $1, true), pg_catalog.set_config('statement_timeout', $2, true)",
                        (f"{_FURTHER_MS}ms", f"{_FURTHER_TOGETHER_MS}ms"))  # fmt: skip
        # One statement for neighbours of one mode; a table and its hundred partitions are one statement.
        for _, group in itertools.groupby(further, key=lambda one: (one.mode, one.statement)):
            _lock(tx, list(group))
        tx.run_verbatim("SELECT pg_catalog.set_config('statement_timeout', '0', true)")


def _lock(tx: Transaction, group: list[Lock]) -> None:
    tx.run_verbatim("SAVEPOINT tideshift_lock")
    try:
        tx.run_verbatim(group[0].statement or f"LOCK TABLE {', '.join(f'ONLY {one.table}' for one in group)} IN {group[0].mode} MODE")
    except ConnectionLost:
        raise
    except Retryable as error:  # the whole statement's time was up, or one lock's
        tx.run_verbatim("ROLLBACK TO SAVEPOINT tideshift_lock")
        for lock in group:
            who = blockers(tx, lock.oid)
            if who or len(group) == 1:
                break
        name = lock.table if who or len(group) == 1 else f"one of {len(group)} tables"
        raise LockTimeout(f"{name} is in use: {'; '.join(who) or 'by somebody who may not be seen'}", table=name) from error
    tx.run_verbatim("RELEASE SAVEPOINT tideshift_lock")


def with_trees(tx: Transaction, locks: Sequence[Lock]) -> list[Lock]:
    """Return the locks with those of every partition and child that there is now, each table once, in its strongest mode."""
    found: dict[int, Lock] = {}
    for lock in locks:
        members = [(lock.oid, lock.table)]
        if lock.tree:
            members = [(int(oid), name) for oid, name in tx.run_verbatim(_TREE, (lock.oid,)).rows] or members
        for oid, name in members:
            if oid not in found or _STRENGTH.index(found[oid].mode) < _STRENGTH.index(lock.mode):
                found[oid] = Lock(oid, name, lock.mode, statement=lock.statement)
    return list(found.values())


def stronger(one: str, other: str) -> str:
    """Return the stronger of two modes."""
    return max(one, other, key=_STRENGTH.index)


def blockers(tx: Transaction, oid: int) -> list[str]:
    """Name the sessions that hold a lock on a table, the oldest first."""
    return [f"process {pid} for {seconds} s: {query}" for pid, seconds, query in tx.run_verbatim(_BLOCKERS, (oid,)).rows]


