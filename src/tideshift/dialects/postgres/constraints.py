"""How a constraint comes and goes: added NOT VALID and validated beside the traffic, or over an index that is built before."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tideshift.ddl.change import AddConstraint, ConstraintKind, DropConstraint
from tideshift.ddl.reshaping import ArtifactName
from tideshift.dialects.postgres import estimate
from tideshift.dialects.postgres.constraint_text import ConstraintText, include_of, parent_of, read_constraint
from tideshift.dialects.postgres.driver import quote
from tideshift.dialects.postgres.names import own_name, qualified
from tideshift.dialects.postgres.recipe import Recipe
from tideshift.dialects.postgres.rehearsal import Probe, Refused
from tideshift.dialects.postgres.source import Constraint, SourceTable, own_search_path, user_path

if TYPE_CHECKING:
    from tideshift.dialects.postgres.design import Designer

__all__ = ["add", "add_text", "drop", "find"]

_LETTER = {ConstraintKind.CHECK: "c", ConstraintKind.UNIQUE: "u", ConstraintKind.PRIMARY_KEY: "p", ConstraintKind.FOREIGN_KEY: "f"}
_SUFFIX = {ConstraintKind.UNIQUE: "key", ConstraintKind.PRIMARY_KEY: "pkey", ConstraintKind.FOREIGN_KEY: "fkey"}
_NAME_BYTES_MAX = 63


def add(designer: Designer, recipe: Recipe, trial: Probe, action: AddConstraint) -> None:
    """Add an ADD CONSTRAINT of the user's."""
    _add(designer, recipe, trial, read_constraint(action.text, action.constraint))


def add_text(designer: Designer, recipe: Recipe, trial: Probe, text: str) -> None:
    """Add a constraint that stood in a column's definition."""
    words = text.upper().split()
    start = 2 if words[0] == "CONSTRAINT" else 0
    kind = next(one for one in ConstraintKind if text_begins(words[start:], one))
    _add(designer, recipe, trial, read_constraint(text, kind))


def text_begins(words: list[str], kind: ConstraintKind) -> bool:
    """Whether these words begin a constraint of this kind."""
    return words[0].startswith(kind.split()[0])


def _add(designer: Designer, recipe: Recipe, trial: Probe, text: ConstraintText) -> None:
    if text.name is not None and any(one.name == text.name for one in recipe.source.constraints):
        designer.reasons.append(f"{recipe.source.name} has a constraint {text.name} already")
        return
    match text.kind:
        case ConstraintKind.CHECK:
            _add_check(designer, recipe, trial, text)
        case ConstraintKind.FOREIGN_KEY:
            _add_foreign_key(designer, recipe, trial, text)
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
        recipe.clauses.append(f"ADD {text.named(name, not_valid=False)}")
        return
    made = ArtifactName("constraint", qualified(source.schema, source.name, name))
    added = f"ALTER TABLE {source.quoted} ADD {text.named(name, not_valid=True)}"
    recipe.short(f"add {name}", "from here on every write is held against it", [added], makes=(made,))
    recipe.validate(name)


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
    locked = {int(oid): qualified(schema, parent)}
    if text.not_valid or not designer.goes_online(estimate.scan_seconds(source.bytes)):
        recipe.clauses.append(f"ADD {text.named(name, not_valid=False)}")
        recipe.locked |= locked
        return
    if source.kind == "p" and designer.version < 18:
        designer.reasons.append("a foreign key of a partitioned table cannot be added NOT VALID before PostgreSQL 18: add it to each partition")
        return
    made = ArtifactName("constraint", qualified(source.schema, source.name, name))
    added = f"ALTER TABLE {source.quoted} ADD {text.named(name, not_valid=True)}"
    recipe.short(f"add {name}", "from here on every write is held against it", [added], makes=(made,), locked=locked)
    recipe.validate(name)


def _add_key(designer: Designer, recipe: Recipe, trial: Probe, text: ConstraintText) -> None:
    source = recipe.source
    primary = text.kind is ConstraintKind.PRIMARY_KEY
    if primary and any(one.kind == "p" for one in source.constraints):
        designer.reasons.append(f"{source.name} has a primary key already")
        return
    if text.using_index and primary:
        designer.reasons.append("PRIMARY KEY USING INDEX may look at every row under a lock that keeps everybody out: say ADD PRIMARY KEY (columns)")
        return
    if text.using_index:
        recipe.clauses.append(f"ADD {'' if text.name is None else f'CONSTRAINT {quote(text.name)} '}{text.kind} {text.before}")
        return
    try:
        trial.run(f"ADD {text.kind} {text.before} ({text.inner}) {text.after}", fragment=text.inner)
    except Refused as error:
        designer.reasons.append(f"the server refuses {text.kind} ({text.inner}): {error}")
        return
    name = text.name or _free_name(designer, recipe, text)
    if not designer.goes_online(estimate.write_seconds(source.bytes)):
        recipe.clauses.append(f"ADD {text.named(name, not_valid=False)}")
        return
    if source.kind == "p":
        designer.reasons.append("an index on a partitioned table cannot be built CONCURRENTLY: build one on each partition first")
        return
    for column in text.columns if primary else ():
        designer.not_null(recipe, trial, column)
    index = own_name(0, source.quoted, f"key_{len(recipe.steps)}")
    options, deferring = text.storage_and_deferring()
    included, options = include_of(options)
    nulls = f" {text.before}" if text.before else ""
    built = f"CREATE UNIQUE INDEX CONCURRENTLY {quote(index)} ON {source.quoted} ({text.inner}){included}{nulls}{options}"
    recipe.build_index(index, built, unique=True)
    recipe.clauses.append(f"ADD CONSTRAINT {quote(name)} {text.kind} USING INDEX {quote(index)}{deferring}")


def drop(designer: Designer, recipe: Recipe, action: DropConstraint) -> None:
    """Drop one; what refers to a key is told before."""
    found = find(designer, recipe.source, action)
    if found is None:
        return
    if found.parent:
        name = designer.tx.run_verbatim(
            "SELECT nspname::text, relname::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = $1", (found.parent,)
        ).rows[0]  # fmt: skip
        recipe.locked[found.parent] = qualified(*name)
    recipe.clauses.append(f"DROP CONSTRAINT {quote(found.name)}")


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
