"""Indexes and keys of a partitioned table: built in each partition beside the traffic, then joined under one of the table's own.

An index begins as one on the table alone, which is not valid; each partition's is built CONCURRENTLY and attached in a
moment of its own; with the last one the table's turns valid. A key is made in one short transaction at the end: each
partition's constraint of the index that was built for it, then the table's, for which the server takes those. An index
that a partition has already, of the same definition, is taken as it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tideshift.ddl.reshaping import ArtifactName
from tideshift.dialects.postgres.driver import quote
from tideshift.dialects.postgres.locks import EVERYBODY, Lock
from tideshift.dialects.postgres.names import own_name, qualified
from tideshift.dialects.postgres.partitions import Partition, members
from tideshift.dialects.postgres.recipe import Recipe
from tideshift.dialects.postgres.shape import ShapeIndex, read_shape
from tideshift.dialects.postgres.source import own_search_path, user_path
from tideshift.store.database import ConstraintViolated, DatabaseFailed, Transaction

if TYPE_CHECKING:
    from tideshift.dialects.postgres.design import Designer

__all__ = ["Planned", "add_key", "create_index", "plan_for"]


@dataclass(frozen=True)
class Planned:
    """What a table is to have: the index as the server would make and call it, and one of the same definition that is there already."""

    wished: ShapeIndex
    name: str
    existing: str | None


def plan_for(designer: Designer, schema: str, table: str, making: str, *, key: bool) -> Planned | None:
    """Let the server make it on an empty temporary table of the same name; None where it does not take it, with the reason kept.

    `making` is a clause of ALTER TABLE for a key, and what stands behind the table's name for an index (`UNIQUE ` before it where it is).
    """
    tx = designer.tx
    tx.run_verbatim("SAVEPOINT tideshift_index")
    try:
        tx.run_verbatim(f"CREATE TEMPORARY TABLE {quote(table)} (LIKE {qualified(schema, table)} INCLUDING ALL EXCLUDING INDEXES EXCLUDING IDENTITY)")
        unique = making.startswith("UNIQUE ") and not key
        statement = f"ALTER TABLE pg_temp.{quote(table)} ADD {making}" if key else (
            f"CREATE {'UNIQUE ' if unique else ''}INDEX ON pg_temp.{quote(table)} {making.removeprefix('UNIQUE ')}"
        )  # fmt: skip
        with user_path(tx, own_search_path(tx)):
            tx.run_verbatim(statement)
        oid = int(tx.run_verbatim("SELECT pg_catalog.to_regclass($1)::oid::bigint", (f"pg_temp.{quote(table)}",)).scalar())
        (wished,) = read_shape(tx, oid).indexes
    except (DatabaseFailed, ConstraintViolated) as error:
        designer.reasons.append(f"the server refuses it for {qualified(schema, table)}: {error.message.partition(chr(10))[0]}")
        return None
    finally:
        tx.run_verbatim("ROLLBACK TO SAVEPOINT tideshift_index")
        tx.run_verbatim("RELEASE SAVEPOINT tideshift_index")
    there = int(tx.run_verbatim("SELECT pg_catalog.to_regclass($1)::oid::bigint", (qualified(schema, table),)).scalar())
    existing = next((one.name for one in read_shape(tx, there).indexes if _fits(tx, one, wished, schema, key=key)), None)
    number, name = 0, wished.name
    while designer.exists(schema, name):
        number += 1
        name = f"{wished.name}{number}"
    return Planned(wished, name, existing)


def _fits(tx: Transaction, one: ShapeIndex, wished: ShapeIndex, schema: str, *, key: bool) -> bool:
    if (one.unique, one.rest) != (wished.unique, wished.rest) or (one.key is None) is key:
        return False
    if key and one.key is not None and wished.key is not None and one.key.kind != wished.key.kind:
        return False
    attached = tx.run_verbatim("SELECT relispartition FROM pg_catalog.pg_class WHERE oid = pg_catalog.to_regclass($1)", (qualified(schema, one.name),)).scalar()
    return attached is False


def _tree(designer: Designer, recipe: Recipe) -> list[Partition]:
    found = members(designer.tx, recipe.source.oid)
    designer.reasons += [f"its partition {one.quoted} is a foreign table" for one in found if one.kind not in ("r", "p")]
    return found


def create_index(designer: Designer, recipe: Recipe, name: str, *, unique: bool, rest: str) -> None:
    """Add the steps of CREATE INDEX on a partitioned table."""
    source, word = recipe.source, "UNIQUE INDEX" if unique else "INDEX"
    own = {source.oid: (source.schema, own_name(0, source.quoted, "index"))}
    begin = [f"CREATE {word} {quote(own[source.oid][1])} ON ONLY {source.quoted}{rest}"]
    locks, renames, attaches = [Lock(source.oid, source.quoted, "SHARE")], [(own[source.oid], name)], []
    for number, one in enumerate(_tree(designer, recipe)):
        planned = plan_for(designer, one.schema, one.name, ("UNIQUE" if unique else "") + rest, key=False)
        if planned is None:
            return
        own[one.oid] = (one.schema, planned.existing or own_name(0, source.quoted, f"index_{number}"))
        above, mine = qualified(*own[one.parent]), qualified(*own[one.oid])
        if one.kind == "p":
            locks.append(Lock(one.oid, one.quoted, "SHARE"))
            begin += [f"CREATE {word} {quote(own[one.oid][1])} ON ONLY {one.quoted}{rest}", f"ALTER INDEX {above} ATTACH PARTITION {mine}"]
        else:
            attaches.append((one, f"ALTER INDEX {above} ATTACH PARTITION {mine}", planned.existing is None))
        if planned.existing is None:
            renames.append((own[one.oid], planned.name))
    made = ArtifactName("index", qualified(*own[source.oid]))
    recipe.short("begin the index", "make it on the table alone; it is not valid yet, and a new partition gets it too", begin, makes=(made,), locks=locks)
    for one, _, builds in attaches:
        if builds:
            _build(recipe, one, own[one.oid][1], f"CREATE {word} CONCURRENTLY {quote(own[one.oid][1])} ON {one.quoted}{rest}", unique=unique)
    for number, (one, attach, _) in enumerate(attaches):
        locks = [Lock(one.oid, one.quoted, "ACCESS SHARE")]
        if one.parent != source.oid and designer.version < 18 and all(later.parent != one.parent for later, *_ in attaches[number + 1 :]):
            locks.append(recipe.lock(EVERYBODY, tree=False))  # The server does, when an index between them turns valid.
        recipe.short(f"attach {one.name}", f"join the index of {one.quoted} to the table's", [attach], locks=locks, partitions=[one])
    recipe.joins = qualified(*own[source.oid])
    for (schema, old), new in renames:
        recipe.statement(f"ALTER INDEX {qualified(schema, old)} RENAME TO {quote(new)}", "ACCESS SHARE", recurses=False)


def add_key(designer: Designer, recipe: Recipe, clause: str, kind: str, *, built: str, deferring: str, unnamed: str) -> None:
    """Add the steps of a key: `clause` is the table's own, `built` what stands behind a partition's name for its index, `unnamed` the clause without a name."""
    source = recipe.source
    joined: list[str] = []
    for number, one in enumerate(_tree(designer, recipe)):
        if one.kind == "p":
            continue
        planned = plan_for(designer, one.schema, one.name, unnamed, key=True)
        if planned is None:
            return
        recipe.covers.append([one.oid, one.quoted])
        if planned.existing is not None:
            continue
        index = own_name(0, source.quoted, f"key_{len(recipe.steps)}_{number}")
        _build(recipe, one, index, f"CREATE UNIQUE INDEX CONCURRENTLY {quote(index)} ON {one.quoted} {built}", unique=True)
        joined.append(f"ALTER TABLE {one.quoted} ADD CONSTRAINT {quote(planned.name)} {kind} USING INDEX {quote(index)}{deferring}")
    for statement in joined:  # Behind SET NOT NULL, which the partitions have from the table then.
        recipe.statement(statement)
    recipe.statement(f"ALTER TABLE {source.quoted} ADD {clause}")


def _build(recipe: Recipe, one: Partition, index: str, sql: str, *, unique: bool) -> None:
    recipe.build_index(index, sql, unique=unique, schema=one.schema, where=f" on {one.quoted}", partitions=[one])
