"""Clauses of an ALTER TABLE tried on an empty copy of the table, which shows what the server would do with the real one.

The copy is a temporary table inside a savepoint that is rolled back. A clause that gives the empty heap or an index a new
file would write the real one again; one that the server refuses there is refused before anything is made.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tideshift.dialects.postgres.pointing import point_at
from tideshift.dialects.postgres.source import SourceTable, own_search_path, user_path
from tideshift.store.database import ConstraintViolated, DatabaseFailed, Transaction

__all__ = ["PROBE", "Probe", "Refused", "Touched", "alter", "probe"]

PROBE = "tideshift_probe"
"""What the copy is called."""
_FILES = """
SELECT coalesce(x.indexrelid, 0)::bigint, pg_catalog.pg_relation_filenode(coalesce(x.indexrelid, c.oid))::bigint
FROM pg_catalog.pg_class c LEFT JOIN LATERAL (SELECT NULL::oid AS indexrelid UNION ALL SELECT indexrelid FROM pg_catalog.pg_index WHERE indrelid = c.oid) x ON true
WHERE c.oid = $1
"""
_SHAPE = """
SELECT attname::text, pg_catalog.format_type(atttypid, atttypmod), attnotnull, atthasdef, attidentity::text, attgenerated::text
FROM pg_catalog.pg_attribute WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""


class Refused(Exception):
    """The server does not take a clause; the argument says why, in its words."""


@dataclass(frozen=True)
class Touched:
    """What a clause would write again."""

    heap: bool
    indexes: bool


class Probe:
    """The empty copy."""

    def __init__(self, tx: Transaction, oid: int, path: str) -> None:
        self._tx = tx
        self._oid = oid
        self._path = path

    def run(self, clause: str, *, fragment: str | None = None) -> Touched:
        """Carry one clause out on the copy; raise `Refused`, or `BadStatement` where the user's own text in it is wrong by itself."""
        before = self._files()
        alter(self._tx, f"pg_temp.{PROBE}", clause, fragment=fragment, path=self._path)
        after = self._files()
        # An index whose storage is kept may stand there under another oid.
        made = {file for one, file in after.items() if one} - set(before.values())
        return Touched(heap=before[0] != after[0], indexes=bool(made))

    def checks(self) -> dict[str, str]:
        """Return the checks of the copy: what the server calls one after the copy's name, and its whole name."""
        rows = self._tx.run_verbatim("SELECT conname::text FROM pg_catalog.pg_constraint WHERE conrelid = $1 AND contype = 'c'", (self._oid,)).rows
        return {name: name.removeprefix(f"{PROBE}_") for (name,) in rows}

    def shape(self) -> list[list[object]]:
        """Return the columns as they are now: name, type, and what they demand."""
        return [list(row) for row in self._tx.run_verbatim(_SHAPE, (self._oid,)).rows]

    def _files(self) -> dict[int, int]:
        return {int(row[0]): int(row[1]) for row in self._tx.run_verbatim(_FILES, (self._oid,)).rows}


def alter(tx: Transaction, table: str, clause: str, *, fragment: str | None, path: str) -> None:
    """Carry one clause out on a temporary table, its names read by the user's search path.

    One that cannot work is taken back alone, so that what follows can still be asked. Raises `Refused`, or `BadStatement` where
    the user's own text in it (`fragment`; None: all of it) is wrong by itself.
    """
    statement = f"ALTER TABLE {table} {clause}"
    tx.run_verbatim("SAVEPOINT tideshift_clause")
    try:
        with user_path(tx, path):
            tx.run_verbatim(statement)
    except (DatabaseFailed, ConstraintViolated) as error:
        tx.run_verbatim("ROLLBACK TO SAVEPOINT tideshift_clause")
        point_at(error, statement, clause if fragment is None else fragment)
        raise Refused(error.message.partition("\n")[0]) from error
    tx.run_verbatim("RELEASE SAVEPOINT tideshift_clause")


@contextmanager
def probe(tx: Transaction, source: SourceTable) -> Iterator[Probe]:
    """Make the copy, and take everything back at the end."""
    tx.run_verbatim("SAVEPOINT tideshift_probe")
    try:
        tx.run_verbatim(f"CREATE TEMPORARY TABLE {PROBE} (LIKE {source.quoted} INCLUDING ALL)")
        oid = int(tx.run_verbatim(f"SELECT 'pg_temp.{PROBE}'::regclass::oid::bigint").scalar())
        yield Probe(tx, oid, own_search_path(tx))
    finally:
        tx.run_verbatim("ROLLBACK TO SAVEPOINT tideshift_probe")
        tx.run_verbatim("RELEASE SAVEPOINT tideshift_probe")
