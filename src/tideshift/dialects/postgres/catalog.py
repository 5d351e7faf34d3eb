"""What is in the database, as PostgreSQL's catalogue tells."""

from __future__ import annotations

from tideshift.ddl.change import TableName
from tideshift.ddl.dialect import DoctorFinding, Durability
from tideshift.dialects.postgres import health
from tideshift.dialects.postgres.names import OWN_PATTERN, qualified
from tideshift.dialects.postgres.source import find_table
from tideshift.store.database import Database, Transaction
from tideshift.store.tables import NAMESPACE

__all__ = ["PostgresCatalog"]

_KINDS = {"r": "table", "i": "index", "S": "sequence", "v": "view"}
_OURS = f"""
WITH ours AS (SELECT c.oid, c.relkind::text, nspname::text, relname::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = relnamespace
               WHERE relname ~ '{OWN_PATTERN}' AND nspname NOT IN ('{NAMESPACE}', 'pg_toast') AND relpersistence <> 't')
SELECT relkind, nspname, relname, NULL FROM ours
 WHERE NOT EXISTS (SELECT 1 FROM pg_catalog.pg_index x JOIN ours t ON t.oid = x.indrelid WHERE x.indexrelid = ours.oid)
   AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_depend d JOIN ours t ON t.oid = d.refobjid WHERE d.objid = ours.oid AND ours.relkind = 'S' AND d.deptype IN ('a', 'i'))
UNION ALL SELECT 'function', nspname::text, proname::text, NULL FROM pg_catalog.pg_proc JOIN pg_catalog.pg_namespace n ON n.oid = pronamespace
           WHERE proname ~ '{OWN_PATTERN}'
UNION ALL SELECT 'trigger', nspname::text, relname::text, tgname::text FROM pg_catalog.pg_trigger JOIN pg_catalog.pg_class c ON c.oid = tgrelid
            JOIN pg_catalog.pg_namespace n ON n.oid = relnamespace WHERE tgname ~ '{OWN_PATTERN}' AND NOT tgisinternal
UNION ALL SELECT 'column', nspname::text, relname::text, attname::text FROM pg_catalog.pg_attribute JOIN pg_catalog.pg_class c ON c.oid = attrelid
            JOIN pg_catalog.pg_namespace n ON n.oid = relnamespace WHERE attname ~ '{OWN_PATTERN}' AND NOT attisdropped AND relkind = 'r' AND relname !~ '{OWN_PATTERN}'
UNION ALL SELECT 'constraint', nspname::text, relname::text, conname::text FROM pg_catalog.pg_constraint k JOIN pg_catalog.pg_class c ON c.oid = conrelid
            JOIN pg_catalog.pg_namespace n ON n.oid = relnamespace WHERE conname ~ '{OWN_PATTERN}' AND relname !~ '{OWN_PATTERN}'
"""
"""What has a name of ours, but for what goes with a table of ours."""
_IS_NO_TABLE = """
SELECT coalesce((SELECT relkind NOT IN ('r', 'p') FROM pg_catalog.pg_class WHERE oid = pg_catalog.to_regclass($1)), pg_catalog.to_regtype($1) IS NOT NULL)
"""
_LOSING = ("fsync", "full_page_writes", "synchronous_commit")
"""Settings that decide what a crash can take."""


class PostgresCatalog:
    """What is in the database."""

    def row_estimate(self, tx: Transaction, table: TableName) -> tuple[int, bool]:
        """Return the planner's number of rows; nothing is counted. What is no table (a sequence, a type) has none."""
        other = tx.run_verbatim(_IS_NO_TABLE, (qualified(table.schema or "public", table.name),)).scalar()
        return (0, True) if other else (find_table(tx, table).rows, False)

    def objects(self, tx: Transaction) -> set[tuple[str, str]]:
        """Return what has a name of ours outside our own schema: type and name behind its schema."""
        rows = tx.run_verbatim(_OURS).rows
        return {(_KINDS.get(kind, kind), qualified(*(part for part in path if part is not None))) for kind, *path in rows}

    def durability(self, tx: Transaction) -> Durability:
        """Say what the server's settings can lose, as they are for a session of this role."""
        rows = dict(tx.run_verbatim("SELECT name, coalesce(reset_val, setting) FROM pg_catalog.pg_settings WHERE name = ANY ($1)", (list(_LOSING),)).rows)
        lost = "" if rows["fsync"] == "on" else ": with fsync off, none of it survives a crash of the machine"
        return Durability(
            setting=", ".join(f"{name} = {rows[name]}" for name in sorted(rows)),
            commands=f"commands, states and the last step are committed with synchronous_commit on{lost}",
            rows=f"chunks are committed with their checkpoints and wait for no disk: what a crash takes of them is copied again{lost}",
            application=f"the application's own commits survive what its synchronous_commit ({rows['synchronous_commit']}) lets them{lost}",
        )

    def findings(self, database: Database) -> list[DoctorFinding]:
        """Look at settings, indexes, triggers of ours, transactions, slots and privileges."""
        return database.run(health.findings, write=False)
