"""ATTACH and DETACH PARTITION without a scan under a lock.

A table is proven to fit its bounds by a CHECK that is added NOT VALID and validated beside the traffic, and so is the default
partition not to hold its rows; its missing indexes, keys and foreign keys are made before. ATTACH then has nothing to
look at, and the checks go in the same transaction. DETACH goes CONCURRENTLY, which the server does not take while there
is a default partition: then it is one short transaction.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tideshift.ddl.change import DatabaseForm, TableName
from tideshift.ddl.reshaping import ArtifactName
from tideshift.ddl.tokens import STANDARD, significant
from tideshift.dialects.postgres import estimate
from tideshift.dialects.postgres.driver import quote
from tideshift.dialects.postgres.locks import EVERYBODY, READERS_GO_ON, WRITERS_GO_ON, Lock
from tideshift.dialects.postgres.names import own_name, qualified
from tideshift.dialects.postgres.partitioned_indexes import plan_for
from tideshift.dialects.postgres.recipe import Recipe
from tideshift.dialects.postgres.shape import read_shape
from tideshift.dialects.postgres.source import SourceTable, find_table, own_search_path, user_path
from tideshift.errors import NotFound
from tideshift.store.database import ConstraintViolated, DatabaseFailed

if TYPE_CHECKING:
    from tideshift.dialects.postgres.design import Designer

__all__ = ["take"]

_BOUNDS, _NEW = "tideshift_bounds", "tideshift_new"


def take(designer: Designer, recipe: Recipe, action: DatabaseForm) -> None:
    """Add the steps of either."""
    if recipe.source.kind != "p":
        designer.reasons.append(f"{recipe.source.name} is not partitioned")
        return
    words = significant(action.text, STANDARD)
    end = next((at for at, word in enumerate(words[2:], 2) if at > 2 and word.keyword in ("FOR", "DEFAULT", "CONCURRENTLY", "FINALIZE")), len(words))
    text = action.text[words[2].start : words[end - 1].end]
    oid = designer.oid_by_path(text)
    if oid is None:
        raise NotFound(f"there is no table {text}")
    child = find_table(designer.tx, TableName(*designer.name_of(oid)))
    designer.see_owner(child)
    rest = action.text[words[end].start :] if end < len(words) else ""
    recipe.exclusive.append(child.quoted)
    if action.form == "ATTACH PARTITION":
        _attach(designer, recipe, child, rest)
    else:
        _detach(designer, recipe, child, finalize=rest.upper() == "FINALIZE")


@dataclass(frozen=True)
class _Proof:
    """What every row of the new partition must be, and every row of the default partition must not be."""

    whole: str | None
    own: str | None


def _attach(designer: Designer, recipe: Recipe, child: SourceTable, bound: str) -> None:
    if child.is_partition:
        designer.reasons.append(f"{child.name} is a partition already")
        return
    proof = _tried(designer, recipe.source, child, bound)
    if proof is None or designer.reasons:
        return
    default = None if bound.upper() == "DEFAULT" else _default_of(designer, recipe.source)
    recipe.others.append(Lock(child.oid, child.quoted, EVERYBODY, tree=True))
    if default is not None:
        recipe.others.append(Lock(default.oid, default.quoted, EVERYBODY, tree=True))
        recipe.exclusive.append(default.quoted)
    recipe.others += [Lock(int(oid), name, READERS_GO_ON, tree=True) for oid, name in designer.tx.run_verbatim(_REFERENCES, (recipe.source.oid,)).rows]
    clause = f"ATTACH PARTITION {child.quoted} {bound}"
    if not designer.goes_online(estimate.scan_seconds(child.bytes) + (0.0 if default is None else estimate.scan_seconds(default.bytes))):
        recipe.clause(clause, WRITERS_GO_ON, recurses=False)
        return
    checks = [(child, "bounds", proof.whole), *([] if default is None or proof.own is None else [(default, "not_bounds", f"NOT ({proof.own})")])]
    for table, what, condition in checks:
        if condition is not None:
            told = _REFUSED_BY_IT if table is child else _REFUSED_BY_DEFAULT
            _prove(recipe, table, own_name(0, recipe.source.quoted, what), condition, told)
    _make_alike(designer, recipe, child)
    recipe.clause(clause, WRITERS_GO_ON, recurses=False)
    for table, what, condition in checks:
        if condition is not None:
            recipe.statement(f"ALTER TABLE {table.quoted} DROP CONSTRAINT {quote(own_name(0, recipe.source.quoted, what))}", WRITERS_GO_ON, recurses=False)


_REFUSED_BY_IT = "from here on it takes no row that is outside its bounds to come"
_REFUSED_BY_DEFAULT = "from here on the default partition takes no row of the new one: such a write is refused until that is attached"


def _prove(recipe: Recipe, table: SourceTable, check: str, condition: str, told: str) -> None:
    made = ArtifactName("constraint", qualified(table.schema, table.name, check))
    added = f"ALTER TABLE {table.quoted} ADD CONSTRAINT {quote(check)} CHECK ({condition}) NOT VALID"
    recipe.short(f"bound {table.name}", told, [added], makes=(made,), locks=[Lock(table.oid, table.quoted, EVERYBODY, tree=True)])
    recipe.validate(check, table=table.quoted)


def _make_alike(designer: Designer, recipe: Recipe, child: SourceTable) -> None:
    """Give the table the indexes, keys and foreign keys of the one it goes to, beside the traffic: ATTACH would make them under its lock."""
    source = recipe.source
    for number, index in enumerate(read_shape(designer.tx, source.oid).indexes):
        making = index.key.text if index.key is not None else ("UNIQUE " if index.unique else "") + index.rest
        planned = plan_for(designer, child.schema, child.name, making, key=index.key is not None)
        if planned is None or planned.existing is not None:
            continue
        if child.kind == "p" or (index.key is not None and index.key.kind == "x"):
            designer.reasons.append(f"{child.name} has no index like {index.name}: make it first, by a statement of its own")
            continue
        own = own_name(0, source.quoted, f"index_{number}")
        recipe.build_index(own, f"CREATE {'UNIQUE ' if index.unique else ''}INDEX CONCURRENTLY {quote(own)} ON {child.quoted} {index.rest}",
                           unique=index.unique, schema=child.schema, where=f" like {index.name}")  # fmt: skip
        if index.key is None:
            recipe.before_last.append(f"ALTER INDEX {qualified(child.schema, own)} RENAME TO {quote(planned.name)}")
        else:
            kind = "PRIMARY KEY" if index.key.kind == "p" else "UNIQUE"
            deferring = " DEFERRABLE INITIALLY DEFERRED" if index.key.deferred else " DEFERRABLE" if index.key.deferrable else ""
            recipe.before_last.append(f"ALTER TABLE {child.quoted} ADD CONSTRAINT {quote(planned.name)} {kind} USING INDEX {quote(own)}{deferring}")
    theirs = {one.text for one in child.constraints if one.kind == "f" and one.validated}
    for key in (one for one in source.constraints if one.kind == "f" and one.text not in theirs):
        if any(one.name == key.name for one in child.constraints):
            designer.reasons.append(f"{child.name} has another constraint called {key.name}")
            continue
        made = ArtifactName("constraint", qualified(child.schema, child.name, key.name))
        parent = Lock(key.parent, qualified(*designer.name_of(key.parent)), READERS_GO_ON, tree=True)
        recipe.others.append(replace(parent, mode=EVERYBODY))  # The server drops the triggers there that the partition's own key had.
        added = f"ALTER TABLE {child.quoted} ADD CONSTRAINT {quote(key.name)} {key.text.removesuffix(' NOT VALID')} NOT VALID"
        recipe.short(f"add {key.name}", "from here on every write is held against it", [added], makes=(made,),
                     locks=[Lock(child.oid, child.quoted, READERS_GO_ON, tree=True), parent])  # fmt: skip
        recipe.validate(key.name, table=child.quoted)


def _tried(designer: Designer, source: SourceTable, child: SourceTable, bound: str) -> _Proof | None:
    """Let the server attach an empty copy to an empty copy that has all the bounds; it says what the rows must be, or why it does not take it."""
    tx = designer.tx
    tx.run_verbatim("SAVEPOINT tideshift_attach")
    try:
        ((key, upper),) = tx.run_verbatim("SELECT pg_catalog.pg_get_partkeydef(oid), pg_catalog.pg_get_partition_constraintdef(oid) FROM pg_catalog.pg_class WHERE oid = $1", (source.oid,)).rows
        tx.run_verbatim(f"CREATE TEMPORARY TABLE {_BOUNDS} (LIKE {source.quoted} INCLUDING ALL) PARTITION BY {key}")
        for number, (other,) in enumerate(tx.run_verbatim(_BOUNDS_OF, (source.oid,)).rows):
            if other != "DEFAULT" or bound.upper() == "DEFAULT":
                tx.run_verbatim(f"CREATE TEMPORARY TABLE {_BOUNDS}_{number} PARTITION OF pg_temp.{_BOUNDS} {other}")
        tx.run_verbatim(f"CREATE TEMPORARY TABLE {_NEW} (LIKE {child.quoted} INCLUDING ALL)")
        with user_path(tx, own_search_path(tx)):
            tx.run_verbatim(f"ALTER TABLE pg_temp.{_BOUNDS} ATTACH PARTITION pg_temp.{_NEW} {bound}")
        own, oid = tx.run_verbatim(
            "SELECT pg_catalog.pg_get_partition_constraintdef($1::regclass), $2::regclass::oid::bigint", (f"pg_temp.{_NEW}", f"pg_temp.{_BOUNDS}")
        ).rows[0]
    except (DatabaseFailed, ConstraintViolated) as error:
        said = error.message.partition("\n")[0].replace(_NEW, child.name).replace(_BOUNDS, source.name)
        designer.reasons.append(f"the server refuses it: {said}")
        return None
    finally:
        tx.run_verbatim("ROLLBACK TO SAVEPOINT tideshift_attach")
        tx.run_verbatim("RELEASE SAVEPOINT tideshift_attach")
    own = None if own is None else str(own).replace(f"'{oid}'::oid", f"'{source.oid}'::oid")
    both = [text for text in (upper, own) if text is not None]
    return _Proof(" AND ".join(f"({text})" for text in both) or None, own)


def _default_of(designer: Designer, source: SourceTable) -> SourceTable | None:
    found = designer.tx.run_verbatim("SELECT partdefid::bigint FROM pg_catalog.pg_partitioned_table WHERE partrelid = $1", (source.oid,)).scalar()
    return find_table(designer.tx, TableName(*designer.name_of(int(found)))) if found else None


def _detach(designer: Designer, recipe: Recipe, child: SourceTable, *, finalize: bool) -> None:
    source, tx = recipe.source, designer.tx
    pending = {int(oid): bool(leaving) for oid, leaving in tx.run_verbatim("SELECT inhrelid::bigint, inhdetachpending FROM pg_catalog.pg_inherits WHERE inhparent = $1", (source.oid,)).rows}
    if child.oid not in pending:
        designer.reasons.append(f"{child.name} is no partition of {source.name}")
        return
    for oid in (oid for oid, leaving in pending.items() if leaving and oid != child.oid):
        other = qualified(*designer.name_of(oid))
        designer.reasons.append(f"{other} is half detached: ALTER TABLE {source.quoted} DETACH PARTITION {other} FINALIZE comes first")
    if finalize and not pending[child.oid]:
        designer.reasons.append(f"{child.name} is not half detached")
    for (size,) in tx.run_verbatim(_REFERRING, (source.oid,)).rows:  # The server sees that no row refers to the partition.
        designer.add_cost(estimate.scan_seconds(int(size)))
        designer.cost.may_refuse = True
    default = _default_of(designer, source)
    if default is None or pending[child.oid]:
        recipe.alone(
            f"detach {child.name}", "detach it; readers and writers go on", f"ALTER TABLE {source.quoted} DETACH PARTITION {child.quoted} CONCURRENTLY",
            does="detach", revertible=False, child=[child.oid, child.quoted], parent=[source.oid, source.quoted],
        )  # fmt: skip
        return
    recipe.others.append(Lock(child.oid, child.quoted, EVERYBODY, tree=True))
    if default.oid != child.oid:
        recipe.others.append(Lock(default.oid, default.quoted, EVERYBODY))
    recipe.clause(f"DETACH PARTITION {child.quoted}", EVERYBODY, recurses=False)


_BOUNDS_OF = """
SELECT pg_catalog.pg_get_expr(c.relpartbound, c.oid) FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = $1
"""
_REFERENCES = """
SELECT DISTINCT c.oid::bigint, pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname) FROM pg_catalog.pg_constraint f
JOIN pg_catalog.pg_class c ON c.oid = CASE WHEN f.conrelid = $1 THEN f.confrelid ELSE f.conrelid END JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE f.contype = 'f' AND f.conparentid = 0 AND (f.conrelid = $1 OR f.confrelid = $1) AND c.oid <> $1
"""
_REFERRING = """
SELECT pg_catalog.pg_table_size(conrelid) FROM pg_catalog.pg_constraint WHERE contype = 'f' AND confrelid = $1 AND conparentid = 0
"""
