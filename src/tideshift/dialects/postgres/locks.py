"""How long a statement may wait for its locks, and who is in the way."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from tideshift.ddl.dialect import InTheWay
from tideshift.errors import ConnectionLost, LockTimeout, Retryable
from tideshift.store.database import Transaction

__all__ = ["EVERYBODY", "READERS_GO_ON", "SESSION", "WRITERS_GO_ON", "Lock", "blockers", "in_the_way", "limit_waits", "of_views", "stronger", "take", "take_each", "with_trees"]

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
WRITER_SECONDS_MAX, READER_SECONDS_MAX = 60, 600
"""A transaction that is older is never ended: what it has written, or read, would be lost. How much that is, a server does not tell."""
_KEPT = ("pg_dump", "pg_basebackup", "pg_restore", "tideshift")

_CONFLICTS = {
    "ACCESS SHARE": "AccessExclusive",
    "ROW SHARE": "Exclusive AccessExclusive",
    "ROW EXCLUSIVE": "Share ShareRowExclusive Exclusive AccessExclusive",
    "SHARE UPDATE EXCLUSIVE": "ShareUpdateExclusive Share ShareRowExclusive Exclusive AccessExclusive",
    "SHARE": "RowExclusive ShareUpdateExclusive ShareRowExclusive Exclusive AccessExclusive",
    "SHARE ROW EXCLUSIVE": "RowExclusive ShareUpdateExclusive Share ShareRowExclusive Exclusive AccessExclusive",
    "EXCLUSIVE": "RowShare RowExclusive ShareUpdateExclusive Share ShareRowExclusive Exclusive AccessExclusive",
    "ACCESS EXCLUSIVE": "AccessShare RowShare RowExclusive ShareUpdateExclusive Share ShareRowExclusive Exclusive AccessExclusive",
}
"""Beside what a lock of each mode cannot be had."""
SESSION = """
b.pid, extract(epoch FROM b.backend_start)::text, coalesce(extract(epoch FROM pg_catalog.clock_timestamp() - b.xact_start), 0)::int, coalesce(b.usename::text, ''),
coalesce(b.application_name, ''), left(coalesce(b.query, ''), 80), b.backend_xid IS NOT NULL, coalesce(b.backend_type, ''), ''
"""
"""What is told of a session `b` of pg_stat_activity; a role that may not see it is told its number alone."""
_BLOCKERS = f"""
SELECT {SESSION} FROM pg_catalog.pg_stat_activity b WHERE b.pid IN (
    SELECT l.pid FROM pg_catalog.pg_locks l WHERE l.locktype = 'relation' AND l.relation = $1 AND l.granted AND l.mode = ANY ($2) AND l.pid <> pg_catalog.pg_backend_pid()
       AND l.database = (SELECT oid FROM pg_catalog.pg_database WHERE datname = current_database()))
UNION ALL
SELECT 0, NULL, extract(epoch FROM pg_catalog.clock_timestamp() - p.prepared)::int, p.owner::text, '', '', true, '', p.gid FROM pg_catalog.pg_prepared_xacts p
 WHERE p.database = current_database() AND EXISTS (
    SELECT 1 FROM pg_catalog.pg_locks l JOIN pg_catalog.pg_locks own ON own.locktype = 'transactionid' AND own.pid IS NULL AND own.virtualtransaction = l.virtualtransaction
     WHERE l.locktype = 'relation' AND l.relation = $1 AND l.mode = ANY ($2) AND l.pid IS NULL AND own.transactionid = p.transaction)
ORDER BY 3 DESC LIMIT 10
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
    began = _elapsed_ms(tx)
    _lock(tx, [first], began)
    if further:
        tx.run_verbatim("SELECT pg_catalog.set_config('lock_timeout', $1, true), pg_catalog.set_config('statement_timeout', $2, true)",
                        (f"{_FURTHER_MS}ms", f"{_FURTHER_TOGETHER_MS}ms"))  # fmt: skip
        # One statement for neighbours of one mode; a table and its hundred partitions are one statement.
        for _, group in itertools.groupby(further, key=lambda one: (one.mode, one.statement)):
            _lock(tx, list(group), began)
        tx.run_verbatim("SELECT pg_catalog.set_config('statement_timeout', '0', true)")


def _lock(tx: Transaction, group: list[Lock], began: int) -> None:
    tx.run_verbatim("SAVEPOINT tideshift_lock")
    try:
        tx.run_verbatim(group[0].statement or f"LOCK TABLE {', '.join(f'ONLY {one.table}' for one in group)} IN {group[0].mode} MODE")
    except ConnectionLost:
        raise
    except Retryable as error:  # the whole statement's time was up, or one lock's
        tx.run_verbatim("ROLLBACK TO SAVEPOINT tideshift_lock")
        waited_ms = _elapsed_ms(tx) - began
        for lock in group:
            who = blockers(tx, lock.oid, lock.mode)
            if who or len(group) == 1:
                break
        name = lock.table if who or len(group) == 1 else f"one of {len(group)} tables"
        told = "; ".join(one.text for one in who) or "by somebody who may not be seen"
        raise LockTimeout(f"{name} is in use: {told}", table=name, waited_ms=waited_ms, sessions=[asdict(one) for one in who]) from error
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


def _elapsed_ms(tx: Transaction) -> int:
    return int(tx.run_verbatim("SELECT (extract(epoch FROM pg_catalog.clock_timestamp() - pg_catalog.transaction_timestamp()) * 1000)::bigint").scalar())


def blockers(tx: Transaction, oid: int, mode: str = "ACCESS EXCLUSIVE") -> list[InTheWay]:
    """Name the sessions and prepared transactions that hold a lock on a relation which ours cannot be had beside, the oldest first."""
    return in_the_way(tx, _BLOCKERS, (oid, [f"{one}Lock" for one in _CONFLICTS[mode].split()]), relation=oid)


def in_the_way(tx: Transaction, query: str, binds: tuple[Any, ...], *, relation: int = 0) -> list[InTheWay]:
    """Read sessions, each with the reason why it is never ended."""
    found = []
    for pid, started, seconds, user, application, text, writes, kind, prepared in tx.run_verbatim(query, binds).rows:
        kept = _kept(seconds, application, kind, prepared, writes=writes)
        found.append(InTheWay(process=pid, started=started or "", seconds=seconds, user=user, query=text, prepared=prepared, relation=relation, kept=kept))
    return found


def _kept(seconds: int, application: str, kind: str, prepared: str, *, writes: bool) -> str:
    """Say why a session is never ended; nothing where it may be."""
    if prepared:
        return "it is prepared: it ends by COMMIT PREPARED or ROLLBACK PREPARED"
    if kind != "client backend":
        return f"it is no client's: {kind or 'it may not be seen'}"
    if application in _KEPT:
        return f"it is {application}"
    longest = WRITER_SECONDS_MAX if writes else READER_SECONDS_MAX
    return "" if seconds <= longest else f"it has {'written' if writes else 'read'} for more than {longest} s"
