"""Sessions that still look at the database as it was before a moment.

Who reads a table for the first time only after a swap, by such a snapshot, finds none of the rows that were copied later.
A snapshot alone does not say how old it is: one that was just taken reaches back to the oldest transaction that writes. So
a session counts when its snapshot reaches back behind the moment and its transaction began before it. A prepared
transaction reads nothing any more, and what a standby's readers hold is not known here in time.
"""

from __future__ import annotations

from tideshift.ddl.dialect import InTheWay
from tideshift.dialects.postgres.locks import SESSION, in_the_way
from tideshift.store.database import Transaction

__all__ = ["moment", "older_than"]

_MOMENT = "SELECT pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text, extract(epoch FROM pg_catalog.clock_timestamp())::text"
_OLDER = f"""
SELECT {SESSION} FROM pg_catalog.pg_stat_activity b
 WHERE b.datname = current_database() AND b.pid <> pg_catalog.pg_backend_pid() AND b.backend_type = 'client backend' AND b.backend_xmin IS NOT NULL
   AND extract(epoch FROM b.xact_start) < $2::numeric
   AND pg_catalog.age(b.backend_xmin) > pg_catalog.age(($1::numeric % 4294967296)::text::xid)
   AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_stat_progress_vacuum v WHERE v.pid = b.pid) ORDER BY b.xact_start LIMIT 10
"""


def moment(tx: Transaction) -> str:
    """Return this moment: the next transaction's number, and the time."""
    number, at = tx.run_verbatim(_MOMENT).rows[0]
    return f"{number} {at}"


def older_than(tx: Transaction, when: str) -> list[InTheWay]:
    """Return the sessions with a snapshot older than that moment, the oldest first."""
    number, at = when.split()
    return in_the_way(tx, _OLDER, (number, at))
