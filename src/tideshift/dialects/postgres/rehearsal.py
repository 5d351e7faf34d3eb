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
WITH tree AS (SELECT $1::oid AS oid UNION ALL SELECT inhrelid FROM pg_catalog.pg_inherits WHERE inhparent = $1)
SELECT x.indexrelid::bigint, true, pg_catalog.pg_relation_filenode(x.indexrelid)::bigint FROM tree JOIN pg_catalog.pg_index x ON x.indrelid = tree.oid
UNION ALL SELECT tree.oid::bigint, false, pg_catalog.pg_relation_filenode(tree.oid)::bigint FROM tree
"""
_ABOVE = """
SELECT pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(p.relname), pg_catalog.pg_get_partkeydef(p.oid), pg_catalog.pg_get_expr(c.relpartbound, c.oid),
       pg_catalog.current_setting('server_version_num')::int / 10000
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_inherits i ON i.inhrelid = c.oid JOIN pg_catalog.pg_class p ON p.oid = i.inhparent
JOIN pg_catalog.pg_namespace n ON n.oid = p.relnamespace WHERE c.oid = $1
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
        made = {file for (_, is_index), file in after.items() if is_index} - set(before.values())
        return Touched(heap=any(before[one] != file for one, file in after.items() if not one[1]), indexes=bool(made - {None}))

    def try_statement(self, statement: str, *, fragment: str) -> str | None:
        """Try a statement about the copy, its name in place of `{}`; return why the server does not take it."""
        try:
            attempt(self._tx, statement.replace("{}", f"pg_temp.{PROBE}", 1), fragment=fragment, path=self._path)
        except Refused as error:
            return str(error)
        return None

    def stand_in(self, statement: str) -> None:
        """Run a statement about the copy, its name in place of `{}`, that makes it more like the real table."""
        self._tx.run_verbatim(statement.replace("{}", f"pg_temp.{PROBE}", 1))

    def checks(self) -> dict[str, str]:
        """Return the checks of the copy: what the server calls one after the copy's name, and its whole name."""
        rows = self._tx.run_verbatim("SELECT conname::text FROM pg_catalog.pg_constraint WHERE conrelid = $1 AND contype = 'c'", (self._oid,)).rows
        return {name: name.removeprefix(f"{PROBE}_") for (name,) in rows}

    def shape(self) -> list[list[object]]:
        """Return the columns as they are now: name, type, and what they demand."""
        return [list(row) for row in self._tx.run_verbatim(_SHAPE, (self._oid,)).rows]

    def _files(self) -> dict[tuple[int, bool], int | None]:
        """Return the file of each heap and index, those of the copy's partition too; a partitioned one has none."""
        return {(int(oid), is_index): file for oid, is_index, file in self._tx.run_verbatim(_FILES, (self._oid,)).rows}


def alter(tx: Transaction, table: str, clause: str, *, fragment: str | None, path: str) -> None:
    """Carry one clause out on a temporary table, its names read by the user's search path.

    One that cannot work is taken back alone, so that what follows can still be asked. Raises `Refused`, or `BadStatement` where
    the user's own text in it (`fragment`; None: all of it) is wrong by itself.
    """
    attempt(tx, f"ALTER TABLE {table} {clause}", fragment=clause if fragment is None else fragment, path=path)


def attempt(tx: Transaction, statement: str, *, fragment: str, path: str) -> None:
    """Run a statement; one that cannot work is taken back alone."""
    tx.run_verbatim("SAVEPOINT tideshift_clause")
    try:
        with user_path(tx, path):
            tx.run_verbatim(statement)
    except (DatabaseFailed, ConstraintViolated) as error:
        tx.run_verbatim("ROLLBACK TO SAVEPOINT tideshift_clause")
        point_at(error, statement, fragment)
        raise Refused(error.message.partition("\n")[0]) from error
    tx.run_verbatim("RELEASE SAVEPOINT tideshift_clause")


def _make(tx: Transaction, source: SourceTable) -> None:
    """Make the copy like the table: partitioned as it is, with one partition, and itself the partition of a copy of the table above."""
    above = tx.run_verbatim(_ABOVE, (source.oid,)).rows if source.is_partition else []
    key = tx.run_verbatim("SELECT pg_catalog.pg_get_partkeydef($1)", (source.oid,)).scalar() if source.kind == "p" else None
    without = " EXCLUDING IDENTITY" if above and above[0][3] >= 17 else ""  # it is the parent's there
    parted = "" if key is None else f" PARTITION BY {key}"
    tx.run_verbatim(f"CREATE TEMPORARY TABLE {PROBE} (LIKE {source.quoted} INCLUDING ALL{without}){parted}")
    if key is not None:
        bound = "FOR VALUES WITH (MODULUS 1, REMAINDER 0)" if str(key).startswith("HASH") else "DEFAULT"
        tx.run_verbatim(f"CREATE TEMPORARY TABLE {PROBE}_part PARTITION OF pg_temp.{PROBE} {bound}")
    for parent, parent_key, bound, _ in above:
        tx.run_verbatim(f"CREATE TEMPORARY TABLE {PROBE}_above (LIKE {parent} INCLUDING ALL) PARTITION BY {parent_key}")
        tx.run_verbatim(f"ALTER TABLE pg_temp.{PROBE}_above ATTACH PARTITION pg_temp.{PROBE} {bound}")


@contextmanager
def probe(tx: Transaction, source: SourceTable) -> Iterator[Probe]:
    """Make the copy, and take everything back at the end."""
    tx.run_verbatim("SAVEPOINT tideshift_probe")
    try:
        _make(tx, source)
        oid = int(tx.run_verbatim(f"SELECT 'pg_temp.{PROBE}'::regclass::oid::bigint").scalar())
        yield Probe(tx, oid, own_search_path(tx))
    finally:
        tx.run_verbatim("ROLLBACK TO SAVEPOINT tideshift_probe")
        tx.run_verbatim("RELEASE SAVEPOINT tideshift_probe")
