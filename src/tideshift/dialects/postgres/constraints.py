"""How a constraint comes and goes: added NOT VALID and validated beside the traffic, or over an index that is built before."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tideshift.ddl.change import AddConstraint, ConstraintKind, DropConstraint
from tideshift.ddl.reshaping import ArtifactName
from tideshift.dialects.postgres import estimate, partitioned_indexes
from tideshift.dialects.postgres.constraint_text import ConstraintText, include_of, parent_of, read_constraint
from tideshift.dialects.postgres.driver import quote
from tideshift.dialects.postgres.locks import EVERYBODY, READERS_GO_ON, Lock
from tideshift.dialects.postgres.names import own_name, qualified
from tideshift.dialects.postgres.partitions import leaves
from tideshift.dialects.postgres.recipe import Recipe
from tideshift.dialects.postgres.rehearsal import Probe, Refused
from tideshift.dialects.postgres.shape import read_shape
from tideshift.dialects.postgres.source import Constraint, SourceTable, near, own_search_path, user_path
from tideshift.errors import NotFound

if TYPE_CHECKING:
    from tideshift.dialects.postgres.design import Designer

__all__ = ["add", "add_text", "drop", "find"]

_LETTER = {ConstraintKind.CHECK: "c", ConstraintKind.UNIQUE: "u", ConstraintKind.PRIMARY_KEY: "p", ConstraintKind.FOREIGN_KEY: "f"}
_SUFFIX = {ConstraintKind.UNIQUE: "key", ConstraintKind.PRIMARY_KEY: "pkey", ConstraintKind.FOREIGN_KEY: "fkey"}
_NAME_BYTES_MAX = 63


def add(designer: Designer, recipe: Recipe, trial: Probe, action: AddConstraint) -> None:
    """Add an ADD CONSTRAINT of the user's."""
    _add(designer, recipe, trial, read_constraint(action.text, action.constraint), action.text)


def add_text(designer: Designer, recipe: Recipe, trial: Probe, text: str) -> None:
    """Add a constraint that stood in a column's definition."""
    words = text.upper().split()
    start = 2 if words[0] == "CONSTRAINT" else 0
    kind = next(one for one in ConstraintKind if text_begins(words[start:], one))
    _add(designer, recipe, trial, read_constraint(text, kind), text)


def text_begins(words: list[str], kind: ConstraintKind) -> bool:
    """Whether these words begin a constraint of this kind."""
    return words[0].startswith(kind.split()[0])


def _add(designer: Designer, recipe: Recipe, trial: Probe, text: ConstraintText, whole: str) -> None:
    if text.name is not None and any(one.name == text.name for one in recipe.source.constraints):
        designer.reasons.append(f"{recipe.source.name} has a constraint {text.name} already")
        return
    match text.kind:
        case ConstraintKind.CHECK:
            _add_check(designer, recipe, trial, text)
        case ConstraintKind.FOREIGN_KEY:
            _add_foreign_key(designer, recipe, trial, text)
        case ConstraintKind.EXCLUDE:
            _add_exclusion(designer, recipe, trial, text, whole)
        case ConstraintKind.NOT_NULL:
            _add_not_null(designer, recipe, trial, text, whole)
        case _:
            _add_key(designer, recipe, trial, text)


def _add_check(designer: Designer, recipe: Recipe, trial: Probe, text: ConstraintText) -> None:
    source = recipe.source
    before = trial.checks()
    try:
        trial.run(f"ADD CHECK ({text.inner})", fragment=text.inner)
    except Refused as error:
        designer.reasons.append(f"the server refuses CHECK ({text.inner}): {error}")
        return
    (ending,) = (end for whole, end in trial.checks().items() if whole not in before)
    name = text.name or _free_name(designer, recipe, text, f"{source.name}_{ending}")
    if text.not_valid or not designer.goes_online(estimate.scan_seconds(source.bytes)):
        recipe.clause(f"ADD {text.named(name, not_valid=False)}")
        return
    made = ArtifactName("constraint", qualified(source.schema, source.name, name))
    added = f"ALTER TABLE {source.quoted} ADD {text.named(name, not_valid=True)}"
    recipe.short(f"add {name}", "from here on every write is held against it", [added], makes=(made,))
    designer.validate(recipe, name)


def _add_foreign_key(designer: Designer, recipe: Recipe, trial: Probe, text: ConstraintText) -> None:
    source = recipe.source
    known = {column[0] for column in trial.shape()}
    designer.reasons += [f"{source.name} has no column {column}" for column in text.columns if column not in known]
    with user_path(designer.tx, own_search_path(designer.tx)):
        found = designer.tx.run_verbatim(
            "SELECT c.oid::bigint, n.nspname::text, c.relname::text, pg_catalog.has_table_privilege(c.oid, 'REFERENCES'), pg_catalog.pg_table_size(c.oid)"
            " FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = pg_catalog.to_regclass($1)",
            (parent_of(text),),
        ).rows
    if not found:
        designer.reasons.append(f"there is no table {parent_of(text)} to refer to")
        return
    oid, schema, parent, allowed, _ = found[0]
    if not allowed:
        role = designer.tx.run_verbatim("SELECT current_user::text").scalar()
        designer.reasons.append(f"a privilege is missing: GRANT REFERENCES ON {qualified(schema, parent)} TO {quote(str(role))}")
    name = text.name or _free_name(designer, recipe, text)
    referred = Lock(int(oid), qualified(schema, parent), READERS_GO_ON, tree=True)
    if text.not_valid or not designer.goes_online(estimate.scan_seconds(source.bytes)):
        recipe.clause(f"ADD {text.named(name, not_valid=False)}", READERS_GO_ON)
        recipe.others.append(referred)
        return
    if source.kind == "p" and designer.version < 18:
        _add_key_by_partitions(designer, recipe, text, name, referred)
        return
    made = ArtifactName("constraint", qualified(source.schema, source.name, name))
    added = f"ALTER TABLE {source.quoted} ADD {text.named(name, not_valid=True)}"
    recipe.short(f"add {name}", "from here on every write is held against it", [added], makes=(made,), locks=[recipe.lock(READERS_GO_ON), referred])
    designer.validate(recipe, name)


def _add_key_by_partitions(designer: Designer, recipe: Recipe, text: ConstraintText, name: str, referred: Lock) -> None:
    """Before PostgreSQL 18 a partitioned table takes no foreign key that is not valid: each partition gets it first, and the table's takes those over."""
    source = recipe.source
    for one in leaves(designer.tx, source.oid):
        taken = designer.tx.run_verbatim("SELECT 1 FROM pg_catalog.pg_constraint WHERE conrelid = $1 AND conname = $2", (one.oid, name)).rows
        if taken:
            designer.reasons.append(f"{one.quoted} has a constraint {name} already")
            continue
        made = ArtifactName("constraint", qualified(one.schema, one.name, name))
        added = f"ALTER TABLE {one.quoted} ADD {text.named(name, not_valid=True)}"
        recipe.short(f"add {name} to {one.name}", "from here on every write is held against it", [added], makes=(made,),
                     locks=[Lock(one.oid, one.quoted, READERS_GO_ON), referred], partitions=[one])  # fmt: skip
        recipe.validate(name, table=one.quoted)
        recipe.covers.append([one.oid, one.quoted])
    recipe.clause(f"ADD {text.named(name, not_valid=False)}", READERS_GO_ON)
    recipe.others.append(replace(referred, mode=EVERYBODY))  # The server drops the triggers there that the partitions' own keys had.


def _add_key(designer: Designer, recipe: Recipe, trial: Probe, text: ConstraintText) -> None:
    source = recipe.source
    primary = text.kind is ConstraintKind.PRIMARY_KEY
    if primary and any(one.kind == "p" for one in source.constraints):
        designer.reasons.append(f"{source.name} has a primary key already")
        return
    if text.using_index:
        _add_key_using(designer, recipe, trial, text)
        return
    try:
        trial.run(f"ADD {text.kind} {text.before} ({text.inner}) {text.after}", fragment=text.inner)
    except Refused as error:
        designer.reasons.append(f"the server refuses {text.kind} ({text.inner}): {error}")
        return
    name = text.name or _free_name(designer, recipe, text)
    if not designer.goes_online(estimate.write_seconds(source.bytes)):
        recipe.clause(f"ADD {text.named(name, not_valid=False)}")
        return
    for column in text.columns if primary else ():
        designer.not_null(recipe, trial, column)
    index = own_name(0, source.quoted, f"key_{len(recipe.steps)}")
    nulls = f" {text.before}" if text.before else ""
    options, deferring = text.storage_and_deferring()
    included, options = include_of(options)
    if source.kind == "p":
        unnamed = f"{text.kind}{nulls} ({text.inner}) {text.after}"
        partitioned_indexes.add_key(
            designer, recipe, text.named(name, not_valid=False), str(text.kind), built=f"({text.inner}){included}{nulls}{options}", deferring=deferring, unnamed=unnamed,
        )  # fmt: skip
        return
    built = f"CREATE UNIQUE INDEX CONCURRENTLY {quote(index)} ON {source.quoted} ({text.inner}){included}{nulls}{options}"
    recipe.build_index(index, built, unique=True)
    recipe.clause(f"ADD CONSTRAINT {quote(name)} {text.kind} USING INDEX {quote(index)}{deferring}")


def _add_key_using(designer: Designer, recipe: Recipe, trial: Probe, text: ConstraintText) -> None:
    """Make a constraint of an index that is there; for a primary key its columns are proven to be NOT NULL first."""
    source = recipe.source
    name = text.index_name
    known = [one.name for one in read_shape(designer.tx, source.oid).indexes if one.key is None]
    if name not in known:
        raise NotFound(f"{source.name} has no valid index {name!r} that serves no constraint yet", hint=near(name, known), table=source.name, index=name)
    (index,) = (one for one in read_shape(designer.tx, source.oid).indexes if one.name == name)
    if index.unique and index.plain:
        columns = {one.number: one for one in source.columns}
        for number in index.columns if text.kind is ConstraintKind.PRIMARY_KEY else ():
            designer.not_null(recipe, trial, columns[number].name)
    named = "" if text.name is None else f"CONSTRAINT {quote(text.name)} "
    clause = f"ADD {named}{text.kind} {text.before}"
    trial.stand_in(f"CREATE {'UNIQUE ' if index.unique else ''}INDEX {quote(name)} ON {{}} {index.rest}")
    designer.clause(recipe, trial, clause)
    if text.name not in (None, name) and designer.exists(source.schema, str(text.name)):
        designer.reasons.append(f"there is something called {text.name} in the schema {source.schema} already")


def _add_exclusion(designer: Designer, recipe: Recipe, trial: Probe, text: ConstraintText, whole: str) -> None:
    """There is neither NOT VALID nor USING INDEX for it: built under a lock where the table is small, else by a copy."""
    source = recipe.source
    designer.clause(recipe, trial, f"ADD {whole}", fragment=whole)
    designer.cost.may_refuse = designer.cost.needs_copy = True
    if designer.goes_online(estimate.write_seconds(source.bytes)):
        designer.add_cost(estimate.write_seconds(source.bytes))
    if text.name is not None and designer.exists(source.schema, text.name):
        designer.reasons.append(f"there is something called {text.name} in the schema {source.schema} already")


def _add_not_null(designer: Designer, recipe: Recipe, trial: Probe, text: ConstraintText, whole: str) -> None:
    """A NOT NULL with a name of its own, from PostgreSQL 18 on: not valid at first where the table is large."""
    source = recipe.source
    if designer.version < 18:
        designer.reasons.append("a NOT NULL constraint that has a name needs PostgreSQL 18: say ALTER COLUMN … SET NOT NULL")
        return
    (name_of_column,) = text.columns
    column = source.column(name_of_column)
    if column.not_null:
        designer.reasons.append(f"{column.name} is NOT NULL already")
        return
    name = text.name or _free_name(designer, recipe, text, f"{source.name}_{column.name}_not_null")
    designer.try_clause(trial, f"ADD {whole}", fragment=whole)
    if text.not_valid or not designer.goes_online(estimate.scan_seconds(source.bytes)):
        recipe.clause(f"ADD CONSTRAINT {quote(name)} NOT NULL {text.before}")
        return
    made = ArtifactName("constraint", qualified(source.schema, source.name, name))
    added = f"ALTER TABLE {source.quoted} ADD CONSTRAINT {quote(name)} NOT NULL {text.before} NOT VALID"
    recipe.short(f"add {name}", "from here on every write is held against it", [added], makes=(made,), demands=(column.name,))
    designer.validate(recipe, name)


def drop(designer: Designer, recipe: Recipe, action: DropConstraint) -> None:
    """Drop one; what refers to a key is told before."""
    found = find(designer, recipe.source, action)
    if found is None:
        return
    if designer.tx.run_verbatim("SELECT coninhcount > 0 FROM pg_catalog.pg_constraint WHERE conrelid = $1 AND conname = $2", (recipe.source.oid, found.name)).scalar():
        designer.reasons.append(f"the server refuses it: cannot drop inherited constraint {found.name}: it goes with that of the table above")
    if found.parent:
        recipe.others.append(Lock(found.parent, qualified(*designer.name_of(found.parent)), EVERYBODY, tree=True))
    recipe.clause(f"DROP CONSTRAINT {quote(found.name)}")


def find(designer: Designer, source: SourceTable, action: DropConstraint) -> Constraint | None:
    """Find the constraint that is to be dropped; keep the reason where it cannot be, as when another table refers to it."""
    found = _named(designer, source, action)
    if found is not None and found.kind in ("p", "u"):
        rows = designer.tx.run_verbatim(
            "SELECT f.conname::text, f.conrelid::regclass::text FROM pg_catalog.pg_constraint f JOIN pg_catalog.pg_constraint k ON k.conindid = f.conindid"
            " WHERE f.contype = 'f' AND k.conrelid = $1 AND k.conname = $2",
            (source.oid, found.name),
        ).rows
        designer.reasons += [f"{table} refers to it by {name}: drop that first" for name, table in rows]
    return found


def _named(designer: Designer, source: SourceTable, action: DropConstraint) -> Constraint | None:
    if action.name is not None:
        return source.constraint(action.name)
    assert action.constraint is not None
    fitting = [one for one in source.constraints if one.kind == _LETTER[action.constraint] and (action.inner is None or _same_columns(source, one, action.inner))]
    if len(fitting) == 1:
        return fitting[0]
    what = f"{action.constraint}{'' if action.inner is None else f' ({action.inner})'}"
    designer.reasons.append(f"{source.name} has {'no' if not fitting else 'more than one'} constraint {what}: name it, DROP CONSTRAINT …")
    return None


def _same_columns(source: SourceTable, constraint: Constraint, inner: str) -> bool:
    numbers = {column.number: column.name for column in source.columns}
    wanted = [part.strip().strip('"') for part in inner.split(",")]
    return [numbers.get(number) for number in constraint.columns] == wanted


def _free_name(designer: Designer, recipe: Recipe, text: ConstraintText, wished: str | None = None) -> str:
    """Return a name in PostgreSQL's manner that no constraint, index or table there has."""
    columns = () if text.kind is ConstraintKind.PRIMARY_KEY else text.columns
    wished = wished or "_".join([recipe.source.name, *columns, _SUFFIX[text.kind]])
    if len(wished.encode()) > _NAME_BYTES_MAX - 2:
        designer.reasons.append(f"the constraint's name would be too long: name it, ADD CONSTRAINT name {text.kind} …")
        return wished[:40]
    taken = {one.name for one in recipe.source.constraints} | {one.name for one in recipe.source.indexes}
    number, name = 0, wished
    while name in taken or designer.exists(recipe.source.schema, name):
        number += 1
        name = f"{wished}{number}"
    return name
