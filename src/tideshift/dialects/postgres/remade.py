"""An index that is made again by REINDEX CONCURRENTLY, and what a cut-off one has left under a name that the server chose.

The server builds a second index, `name_ccnew`, then lets the two change names in one transaction, so that the old one is
`name_ccold`, and drops that. What is left is known by more than its name: the old index by its oid; a new one by being
invalid, of the same definition on the same table, called `…_ccnew`, and not there when the job was planned.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tideshift.ddl.reshaping import UNFINISHED_INDEX, ArtifactName
from tideshift.dialects.postgres import locks
from tideshift.dialects.postgres.names import parts_of, qualified
from tideshift.errors import SchemaChanged
from tideshift.store.database import Transaction

__all__ = ["Remade", "clean", "look"]


@dataclass(frozen=True)
class Remade:
    """The index as it was when the job was planned, and its neighbours that were half made even then, by their oids."""

    schema: str
    name: str
    oid: int
    known: tuple[int, ...] = ()

    @property
    def quoted(self) -> str:
        """Return its name behind its schema."""
        return qualified(self.schema, self.name)

    @property
    def artifact(self) -> ArtifactName:
        """Name what may be left of it; all that is needed to find it again."""
        return ArtifactName(UNFINISHED_INDEX, f'{self.quoted}."{self.oid}"."{" ".join(map(str, self.known))}"')

    def as_record(self) -> dict[str, Any]:
        """Give the stored form."""
        return asdict(self)

    @classmethod
    def of(cls, record: dict[str, Any]) -> Remade:
        """Read the stored form."""
        return cls(**{**record, "known": tuple(record["known"])})

    @classmethod
    def of_artifact(cls, name: str) -> Remade:
        """Read an artifact's name."""
        schema, index, oid, known = parts_of(name)
        return cls(schema, index, int(oid), tuple(map(int, known.split())))


def look(tx: Transaction, index: Remade) -> tuple[bool, list[str]]:
    """Return whether it has been made again, and the quoted names of what is left beside it; raise `SchemaChanged` when it is gone."""
    now = tx.run_verbatim(_NOW, (index.quoted,)).rows
    if not now:
        raise SchemaChanged(f"the index {index.quoted} is gone")
    oid, valid = now[0]
    return oid != index.oid and bool(valid), _left(tx, index)


def clean(tx: Transaction, index: Remade, *, tries: int = 0) -> None:
    """Drop what is left, in the transaction that is given, under locks that are waited for only for moments."""
    locks.limit_waits(tx, job_id=0, tries=tries)
    for name in _left(tx, index):
        tx.run_verbatim(f"DROP INDEX IF EXISTS {name}")


def _left(tx: Transaction, index: Remade) -> list[str]:
    rows = tx.run_verbatim(_LEFT, (index.quoted, index.oid, list(index.known))).rows
    return [name for (name,) in rows]


_NOW = "SELECT x.indexrelid::bigint, x.indisvalid AND x.indisready FROM pg_catalog.pg_index x WHERE x.indexrelid = pg_catalog.to_regclass($1)"
_LEFT = """
WITH now AS (SELECT x.indexrelid, x.indrelid, c.relname, pg_catalog.replace(pg_catalog.pg_get_indexdef(c.oid), ' ' || pg_catalog.quote_ident(c.relname) || ' ON ', ' ON ') AS text
               FROM pg_catalog.pg_index x JOIN pg_catalog.pg_class c ON c.oid = x.indexrelid WHERE x.indexrelid = pg_catalog.to_regclass($1))
SELECT pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname)
  FROM now JOIN pg_catalog.pg_index x ON x.indrelid = now.indrelid AND x.indexrelid <> now.indexrelid
  JOIN pg_catalog.pg_class c ON c.oid = x.indexrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
 WHERE NOT x.indisvalid AND (x.indexrelid = $2 OR (
           c.relname ~ '_ccnew[0-9]*$' AND (pg_catalog.regexp_replace(c.relname, '_ccnew[0-9]*$', '') = now.relname OR (pg_catalog.octet_length(c.relname::text) > 59
               AND pg_catalog.starts_with(now.relname::text, pg_catalog.regexp_replace(c.relname, '_ccnew[0-9]*$', ''))))
           AND NOT x.indexrelid = ANY ($3::oid[])
           AND pg_catalog.replace(pg_catalog.pg_get_indexdef(c.oid), ' ' || pg_catalog.quote_ident(c.relname) || ' ON ', ' ON ') = now.text))
"""
