"""The partitions of a table, as the catalogue tells: those that hold rows, and the partitioned ones between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tideshift.dialects.postgres.names import qualified
from tideshift.errors import SchemaChanged
from tideshift.store.database import Transaction

__all__ = ["Partition", "leaves", "members", "owned_by_others", "see_partitions"]

_VALID = "SELECT indisvalid FROM pg_catalog.pg_index WHERE indexrelid = pg_catalog.to_regclass($1)"


@dataclass(frozen=True)
class Partition:
    """A table in a tree of partitions: `kind` is `p` where it is partitioned itself, `parent` the oid of the table above it."""

    oid: int
    schema: str
    name: str
    kind: str
    parent: int
    bytes: int

    @property
    def quoted(self) -> str:
        """Return its name behind its schema, quoted."""
        return qualified(self.schema, self.name)


def members(tx: Transaction, oid: int) -> list[Partition]:
    """Return every table below a partitioned one, each behind the one above it."""
    return [Partition(*row) for row in tx.run_verbatim(_MEMBERS, (oid,)).rows]


def owned_by_others(tx: Transaction, oid: int) -> list[tuple[str, str]]:
    """Return the partitions whose owner this role is not, with their owners: it may not change those."""
    return [(name, owner) for name, owner in tx.run_verbatim(_OTHERS, ([one.oid for one in members(tx, oid)],)).rows]


def see_partitions(tx: Transaction, table: int, detail: dict[str, Any]) -> None:
    """See that what a step is about is still there as it was planned for; raise `SchemaChanged` where a partition came or went."""
    now = None
    if detail.get("partitions") or detail.get("covers"):
        now = {one.oid: one.quoted for one in members(tx, table)}
        gone = [name for oid, name in [*detail.get("partitions", ()), *detail.get("covers", ())] if oid not in now]
        if gone:
            raise SchemaChanged(f"{gone[0]} is no partition any more")
    if detail.get("covers"):
        known = {oid for oid, _ in detail["covers"]}
        new = [one.quoted for one in leaves(tx, table) if one.oid not in known]
        if new:
            raise SchemaChanged(f"the partition {new[0]} has come since the plan was made, and nothing is prepared in it: submit the change again")
    if detail.get("joins") and tx.run_verbatim(_VALID, (detail["joins"],)).scalar() is not True:
        raise SchemaChanged("a partition has come or gone since the plan was made, and the table's index is not in all of them: submit the change again")


def leaves(tx: Transaction, oid: int) -> list[Partition]:
    """Return the partitions that hold rows."""
    return [one for one in members(tx, oid) if one.kind != "p"]


_OTHERS = """
SELECT c.oid::regclass::text, pg_catalog.pg_get_userbyid(c.relowner)::text FROM pg_catalog.pg_class c
WHERE c.oid = ANY ($1::bigint[]::oid[]) AND NOT pg_catalog.pg_has_role(c.relowner, 'USAGE') ORDER BY 1
"""
_MEMBERS = """
WITH RECURSIVE tree (oid, parent, depth) AS (
    SELECT inhrelid, inhparent, 1 FROM pg_catalog.pg_inherits WHERE inhparent = $1
    UNION ALL SELECT i.inhrelid, i.inhparent, depth + 1 FROM pg_catalog.pg_inherits i JOIN tree ON i.inhparent = tree.oid)
SELECT c.oid::bigint, n.nspname::text, c.relname::text, c.relkind::text, tree.parent::bigint, pg_catalog.pg_total_relation_size(c.oid)
FROM tree JOIN pg_catalog.pg_class c ON c.oid = tree.oid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE c.relispartition ORDER BY depth, c.oid
"""
