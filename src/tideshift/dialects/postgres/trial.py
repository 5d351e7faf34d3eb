"""A change tried on an empty temporary table that is called like the real one and has its checks, keys and indexes under their names.

Names that the server gives come out as they would; the savepoint around it all is rolled back. What the catalogue says of
the table at the end is the new shape.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tideshift.dialects.postgres.driver import quote
from tideshift.dialects.postgres.rehearsal import alter
from tideshift.dialects.postgres.shape import Shape, read_shape
from tideshift.dialects.postgres.source import SourceTable, own_search_path
from tideshift.store.database import Transaction

__all__ = ["Trial", "trial_of"]


class Trial:
    """The temporary table."""

    def __init__(self, tx: Transaction, name: str, path: str) -> None:
        self._tx = tx
        self.table = f"pg_temp.{quote(name)}"
        self._path = path
        self.oid = int(tx.run_verbatim("SELECT pg_catalog.to_regclass($1)::oid::bigint", (self.table,)).scalar())

    def run(self, clause: str, *, fragment: str | None = None) -> bool:
        """Carry one clause of an ALTER TABLE out; return whether it would write every row again.

        Raises `Refused`, or `BadStatement` where the user's own text in it is wrong by itself.
        """
        before = self._file()
        alter(self._tx, self.table, clause, fragment=fragment, path=self._path)
        return before != self._file()

    def shape(self) -> Shape:
        """Return what it is like now."""
        return read_shape(self._tx, self.oid)

    def value_of(self, column: str) -> str | None:
        """Return what a column's default gives at this moment, as a constant of its type; None: nothing."""
        text = self._tx.run_verbatim(
            "SELECT pg_catalog.pg_get_expr(adbin, adrelid), pg_catalog.format_type(atttypid, atttypmod) FROM pg_catalog.pg_attribute"
            " JOIN pg_catalog.pg_attrdef ON adrelid = attrelid AND adnum = attnum WHERE attrelid = $1 AND attname = $2", (self.oid, column)
        ).rows  # fmt: skip
        if not text:
            return None
        default, type_text = text[0]
        value = self._tx.run_verbatim(f"SELECT pg_catalog.quote_nullable(({default})::{type_text}::text)").scalar()
        return f"{value}::{type_text}"

    def _file(self) -> int:
        return int(self._tx.run_verbatim("SELECT pg_catalog.pg_relation_filenode($1::oid)::bigint", (self.oid,)).scalar())


@contextmanager
def trial_of(tx: Transaction, source: SourceTable, shape: Shape) -> Iterator[Trial]:
    """Make the table, and take everything back at the end."""
    tx.run_verbatim("SAVEPOINT tideshift_trial")
    try:
        tx.run_verbatim(f"CREATE TEMPORARY TABLE {quote(source.name)} (LIKE {source.quoted} INCLUDING ALL EXCLUDING INDEXES EXCLUDING STATISTICS)")
        trial = Trial(tx, source.name, own_search_path(tx))
        for index in shape.indexes:
            if index.key is not None:
                tx.run_verbatim(f"ALTER TABLE {trial.table} ADD CONSTRAINT {quote(index.name)} {index.key.text}")
                if index.options:
                    tx.run_verbatim(f"ALTER INDEX pg_temp.{quote(index.name)} SET ({', '.join(index.options)})")
            else:
                tx.run_verbatim(f"CREATE {'UNIQUE ' if index.unique else ''}INDEX {quote(index.name)} ON {trial.table} {index.rest}")
        yield trial
    finally:
        tx.run_verbatim("ROLLBACK TO SAVEPOINT tideshift_trial")
        tx.run_verbatim("RELEASE SAVEPOINT tideshift_trial")
