"""How indexes are made again: each by its own REINDEX INDEX CONCURRENTLY, or all of a small table under one lock.

An index of a partitioned table stands for those of its partitions, and a table's for that of its TOAST table too.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tideshift.ddl.change import Reindex
from tideshift.ddl.reshaping import Reshaping
from tideshift.dialects.postgres import estimate
from tideshift.dialects.postgres.locks import Lock
from tideshift.dialects.postgres.names import qualified
from tideshift.dialects.postgres.recipe import Recipe
from tideshift.dialects.postgres.remade import Remade
from tideshift.dialects.postgres.source import SourceTable, class_oid, find_index, find_table
from tideshift.errors import NotFound

if TYPE_CHECKING:
    from tideshift.dialects.postgres.design import Designer

__all__ = ["reindex"]


@dataclass(frozen=True)
class _Index:
    """One index with a file of its own, and the table that it is on."""

    oid: int
    schema: str
    name: str
    table: int
    table_schema: str
    table_name: str
    valid: bool
    excludes: bool
    bytes: int
    table_bytes: int
    left_by: str | None
    """The index that a cut-off REINDEX CONCURRENTLY was about, where this one is what it has left."""

    @property
    def quoted(self) -> str:
        return qualified(self.schema, self.name)


def reindex(designer: Designer, change: Reindex) -> Reshaping:
    """Make an index, or all that a table has, anew beside the traffic."""
    source, oids = _found(designer, change)
    designer.see_owner(source)
    indexes = [_Index(*row) for row in designer.tx.run_verbatim(_INDEXES, (oids,)).rows]
    left = [one for one in indexes if one.left_by is not None and len(oids) != 1]
    made = [one for one in indexes if one not in left]
    if not made:
        designer.reasons.append(f"{change.name} has no index")
    recipe = Recipe(source)
    for one in left:
        name = f"drop {one.name}"
        recipe.alone(name, f"drop what a cut-off REINDEX of {one.left_by} has left", f"DROP INDEX CONCURRENTLY {one.quoted}", does="drop", dropped=one.quoted, oid=one.oid)
        designer.cost.warnings.append(f"{one.name} is dropped: a cut-off REINDEX of {one.left_by} has left it, it is invalid and serves nobody")
    designer.cost.may_refuse = any(not one.valid for one in made)
    if designer.goes_online(sum(estimate.write_seconds(one.bytes) + estimate.scan_seconds(one.table_bytes) for one in made)):
        _online(designer, recipe, made)
    else:
        recipe.last += [f"REINDEX INDEX {one.quoted}" for one in made]
        recipe.others += [Lock(one.table, qualified(one.table_schema, one.table_name), "SHARE") for one in made if one.table != source.oid and one.table_schema != "pg_toast"]
        recipe.mode = "SHARE"
    return designer.reshaping(recipe, shape=None, wanted={"valid": [one.quoted for one in made]})


def _found(designer: Designer, change: Reindex) -> tuple[SourceTable, list[int]]:
    """Return the table, and the oids of all its indexes or of the one that is named, those of partitions with them."""
    tx = designer.tx
    oid = class_oid(tx, change.name)
    kind = None if oid is None else tx.run_verbatim("SELECT relkind::text FROM pg_catalog.pg_class WHERE oid = $1", (oid,)).scalar()
    if kind in ("i", "I") and change.target != "TABLE":
        source, index = find_index(tx, change.name)
        return source, [int(one) for (one,) in tx.run_verbatim(_LEAVES, (index.oid,)).rows]
    if change.target == "INDEX":
        find_index(tx, change.name)  # says what is like it
    if change.target == "TABLE" and kind in ("i", "I"):
        raise NotFound(f"{str(change.name)!r} is an index: REINDEX INDEX {change.name}", index=change.name.name)
    source = find_table(tx, change.name)
    return source, [int(one) for (one,) in tx.run_verbatim(_OF_TABLE, (source.oid,)).rows]


def _online(designer: Designer, recipe: Recipe, indexes: list[_Index]) -> None:
    for one in indexes:
        if one.excludes:
            designer.reasons.append(f"{one.name} serves an exclusion constraint, which the server cannot make again beside the traffic: --strategy direct does it under a lock")
            continue
        table = qualified(one.table_schema, one.table_name)
        known = [int(other) for (other,) in designer.tx.run_verbatim(_HALF_MADE, (one.table,)).rows if int(other) != one.oid]
        remade = Remade(one.schema, one.name, one.oid, tuple(known))
        recipe.alone(
            f"make {one.name} again", f"build {one.quoted} anew beside the old one; readers and writers go on", f"REINDEX INDEX CONCURRENTLY {one.quoted}",
            does="reindex", makes=(remade.artifact,), remade=remade.as_record(), table=table,
        )  # fmt: skip


_LEAVES = """
WITH RECURSIVE tree (oid) AS (SELECT $1::oid UNION SELECT i.inhrelid FROM pg_catalog.pg_inherits i JOIN tree ON i.inhparent = tree.oid)
SELECT c.oid::bigint FROM tree JOIN pg_catalog.pg_class c ON c.oid = tree.oid WHERE c.relkind = 'i'
"""
_OF_TABLE = """
WITH RECURSIVE parts (oid) AS (SELECT $1::oid UNION SELECT i.inhrelid FROM pg_catalog.pg_inherits i JOIN parts ON i.inhparent = parts.oid
                                 JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid AND c.relispartition),
  tables (oid) AS (SELECT oid FROM parts UNION ALL SELECT c.reltoastrelid FROM parts JOIN pg_catalog.pg_class c ON c.oid = parts.oid WHERE c.reltoastrelid <> 0)
SELECT x.indexrelid::bigint FROM tables JOIN pg_catalog.pg_index x ON x.indrelid = tables.oid
  JOIN pg_catalog.pg_class c ON c.oid = x.indexrelid WHERE c.relkind = 'i'
"""
_BARE_TEXT = "pg_catalog.replace(pg_catalog.pg_get_indexdef({0}.oid), ' ' || pg_catalog.quote_ident({0}.relname) || ' ON ', ' ON ')"
_INDEXES = f"""
SELECT c.oid::bigint, n.nspname::text, c.relname::text, t.oid::bigint, tn.nspname::text, t.relname::text, x.indisvalid AND x.indisready, x.indisexclusion,
       pg_catalog.pg_relation_size(c.oid), pg_catalog.pg_relation_size(t.oid),
       (SELECT o.relname::text FROM pg_catalog.pg_index y JOIN pg_catalog.pg_class o ON o.oid = y.indexrelid
         WHERE y.indrelid = x.indrelid AND y.indisvalid AND NOT x.indisvalid AND c.relname ~ '_cc(new|old)[0-9]*$'
           AND o.relname = pg_catalog.regexp_replace(c.relname, '_cc(new|old)[0-9]*$', '') AND {_BARE_TEXT.format("o")} = {_BARE_TEXT.format("c")} LIMIT 1)
FROM pg_catalog.pg_index x JOIN pg_catalog.pg_class c ON c.oid = x.indexrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_class t ON t.oid = x.indrelid JOIN pg_catalog.pg_namespace tn ON tn.oid = t.relnamespace
WHERE x.indexrelid = ANY ($1::bigint[]::oid[]) ORDER BY c.oid
"""
_HALF_MADE = "SELECT indexrelid::bigint FROM pg_catalog.pg_index WHERE indrelid = $1 AND NOT indisvalid"
