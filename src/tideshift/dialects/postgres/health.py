"""What about a server is worth a person's attention: what hinders jobs and upkeep, what is left over, and what its settings can lose."""

from __future__ import annotations

from collections.abc import Iterator

from tideshift.ddl.dialect import DoctorFinding, Weight
from tideshift.dialects.postgres.names import OWN_PATTERN
from tideshift.store.database import Transaction
from tideshift.store.tables import NAMESPACE

__all__ = ["ADVISED", "findings"]

LONG_SECONDS = 300
HELD_BACK_XIDS = 10_000_000
ADVISED = {
    "fsync": ("on", "a crash of the server's machine may destroy the database"),
    "full_page_writes": ("on", "a crash of the server's machine may destroy pages"),
    "synchronous_commit": ("on", "the application's last commits may be lost in a crash; ours are made durable each by itself"),
    "autovacuum": ("on", "logs of changes and the tables of jobs are never cleaned up, nor is anything else"),
    "track_counts": ("on", "autovacuum does not know what there is to do"),
}
"""Settings that lose something when they are off."""


def findings(tx: Transaction) -> list[DoctorFinding]:
    """Look at everything once."""
    return [*_settings(tx), *_indexes(tx), *_triggers(tx), *_sessions(tx), *_prepared(tx), *_slots(tx), *_privileges(tx)]


def _settings(tx: Transaction) -> Iterator[DoctorFinding]:
    rows = tx.run_verbatim("SELECT name, coalesce(reset_val, setting) FROM pg_catalog.pg_settings WHERE name = ANY ($1)", (list(ADVISED),)).rows
    for name, value in sorted(rows):
        if value == "off":
            yield DoctorFinding(code=f"setting_{name}", message=f"{name} is {value}: {ADVISED[name][1]}", hint=f"{name} = {ADVISED[name][0]}", weight=Weight.NOTE)


def _indexes(tx: Transaction) -> Iterator[DoctorFinding]:
    for name, ready, building in tx.run_verbatim(_INVALID, (OWN_PATTERN,)).rows:
        if not building:
            costs = "slows every write down and serves no query" if ready else "serves nobody"
            hint = f"Drop it, or build it again: REINDEX INDEX CONCURRENTLY {name}"
            yield DoctorFinding(code="invalid_index", message=f"the index {name} is invalid: a build of it was cut off, and it {costs}", hint=hint)


def _triggers(tx: Transaction) -> Iterator[DoctorFinding]:
    for trigger, table in tx.run_verbatim(_DISABLED, (OWN_PATTERN,)).rows:
        message = f"the trigger {trigger} on {table}, which records changes for a job, is switched off: the job will end, since it misses what is written"
        yield DoctorFinding(code="capture_disabled", message=message, hint="Let the job end by itself, or cancel it, and submit the change again.")


def _sessions(tx: Transaction) -> Iterator[DoctorFinding]:
    for pid, user, seconds, state, query in tx.run_verbatim(_LONG, (LONG_SECONDS,)).rows:
        message = f"process {pid} of {user} has had a transaction open for {seconds} s ({state}): {query}"
        hint = "Vacuum cleans up nothing that it might still see, CONCURRENTLY waits for it, and a cut-over of a table that it has used too."
        yield DoctorFinding(code="long_transaction", message=message, hint=hint, weight=Weight.NOTE)


def _prepared(tx: Transaction) -> Iterator[DoctorFinding]:
    for gid, owner, seconds in tx.run_verbatim(_PREPARED).rows:
        message = f"the transaction {gid!r} of {owner} has been prepared for {seconds} s: it keeps its locks, and vacuum from cleaning up, until somebody ends it"
        yield DoctorFinding(code="prepared_transaction", message=message, hint="COMMIT PREPARED or ROLLBACK PREPARED, whichever it is meant to be.", weight=Weight.FINDING if seconds > LONG_SECONDS else Weight.NOTE)


def _slots(tx: Transaction) -> Iterator[DoctorFinding]:
    for name, active, age, kept in tx.run_verbatim(_SLOTS, (HELD_BACK_XIDS,)).rows:
        state = "in use" if active else "used by nobody"
        message = f"the replication slot {name} ({state}) holds vacuum back by {age} transactions and keeps {kept} of the log"
        yield DoctorFinding(code="slot_holds_back", message=message, hint=f"Let its reader catch up, or drop it: SELECT pg_drop_replication_slot('{name}')", weight=Weight.NOTE if active else Weight.FINDING)


def _privileges(tx: Transaction) -> Iterator[DoctorFinding]:
    role, sees, ends = tx.run_verbatim(_MAY).rows[0]
    if not sees:
        yield DoctorFinding(
            code="sees_no_others", message="this role does not see what sessions of other roles do: whom a job waits for is told by number alone, and their snapshots are not waited for",
            hint=f"GRANT pg_read_all_stats TO {role}", weight=Weight.NOTE,
        )  # fmt: skip
    if not ends:
        message = "this role may not end sessions of other roles, which end_blockers would ask of it"
        yield DoctorFinding(code="ends_no_others", message=message, hint=f"GRANT pg_signal_backend TO {role}", weight=Weight.NOTE)


_INVALID = f"""
SELECT x.indexrelid::regclass::text, x.indisready,
       EXISTS (SELECT 1 FROM pg_catalog.pg_stat_progress_create_index p WHERE p.index_relid = x.indexrelid)
FROM pg_catalog.pg_index x JOIN pg_catalog.pg_class c ON c.oid = x.indexrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE NOT x.indisvalid AND c.relkind = 'i' AND c.relname !~ $1 AND n.nspname NOT IN ('pg_toast', '{NAMESPACE}') ORDER BY 1
"""
_DISABLED = """
SELECT t.tgname::text, t.tgrelid::regclass::text FROM pg_catalog.pg_trigger t WHERE t.tgname ~ $1 AND t.tgenabled <> 'A' AND NOT t.tgisinternal ORDER BY 1
"""
_LONG = """
SELECT pid, coalesce(usename::text, '?'), extract(epoch FROM pg_catalog.clock_timestamp() - xact_start)::int, coalesce(state, '?'), left(coalesce(query, ''), 80)
FROM pg_catalog.pg_stat_activity WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_catalog.pg_backend_pid()
 AND xact_start < pg_catalog.clock_timestamp() - pg_catalog.make_interval(secs => $1) ORDER BY xact_start LIMIT 10
"""
_PREPARED = """
SELECT gid, owner::text, extract(epoch FROM pg_catalog.clock_timestamp() - prepared)::int FROM pg_catalog.pg_prepared_xacts WHERE database = current_database() ORDER BY prepared
"""
_SLOTS = """
SELECT * FROM (SELECT slot_name::text, active, greatest(coalesce(pg_catalog.age(xmin), 0), coalesce(pg_catalog.age(catalog_xmin), 0)) AS age,
       CASE WHEN restart_lsn IS NULL OR pg_catalog.pg_is_in_recovery() THEN 'nothing'
            ELSE pg_catalog.pg_size_pretty(pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_lsn(), restart_lsn)) END AS kept FROM pg_catalog.pg_replication_slots) one
 WHERE age > $1 OR (NOT active AND kept <> 'nothing') ORDER BY 1
"""
_MAY = """
SELECT pg_catalog.quote_ident(current_user), r.rolsuper OR pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE'), r.rolsuper OR pg_catalog.pg_has_role('pg_signal_backend', 'USAGE')
FROM pg_catalog.pg_roles r WHERE r.rolname = current_user
"""
