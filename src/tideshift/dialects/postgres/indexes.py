"""How an index comes and goes, with the database's own CONCURRENTLY."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tideshift.ddl.change import CreateIndex, DropIndex
from tideshift.ddl.reshaping import Reshaping
from tideshift.ddl.tokens import STANDARD, significant
from tideshift.dialects.postgres import estimate, partitioned_indexes
from tideshift.dialects.postgres.driver import quote
from tideshift.dialects.postgres.names import own_name, qualified
from tideshift.dialects.postgres.recipe import Recipe
from tideshift.dialects.postgres.rehearsal import probe
from tideshift.dialects.postgres.source import find_index

if TYPE_CHECKING:
    from tideshift.dialects.postgres.design import Designer

__all__ = ["create", "drop"]


def create(designer: Designer, change: CreateIndex) -> Reshaping:
    """Build it under a name of ours beside the traffic, then give it its name."""
    source = designer.table(change.table)
    recipe = Recipe(source)
    unique, rest = _parts(change.text)
    if designer.exists(source.schema, change.name):
        designer.reasons.append(f"there is something called {change.name} in the schema {source.schema} already")
    word = "UNIQUE INDEX" if unique else "INDEX"
    online = designer.goes_online(estimate.write_seconds(source.bytes))
    designer.cost.may_refuse = unique
    with probe(designer.tx, source) as trial:
        refusal = trial.try_statement(f"CREATE {word} ON {{}}{rest}", fragment=rest)
    if refusal is not None:
        designer.reasons.append(f"the server refuses it: {refusal}")
    elif online and source.kind == "p":
        partitioned_indexes.create_index(designer, recipe, change.name, unique=unique, rest=rest)
    elif online:
        index = own_name(0, source.quoted, "index")
        recipe.build_index(index, f"CREATE {word} CONCURRENTLY {quote(index)} ON {source.quoted}{rest}", unique=unique)
        recipe.statement(f"ALTER INDEX {qualified(source.schema, index)} RENAME TO {quote(change.name)}", "ACCESS SHARE", recurses=False)
    else:
        recipe.statement(f"CREATE {word} {quote(change.name)} ON {source.quoted}{rest}", "SHARE")
    return designer.reshaping(recipe, shape=None, wanted={"index": qualified(source.schema, change.name)})


def drop(designer: Designer, change: DropIndex) -> Reshaping:
    """Drop it without waiting for readers under a lock; one that a constraint needs goes with the constraint."""
    source, index = find_index(designer.tx, change.index)
    designer.see_owner(source)
    recipe = Recipe(source)
    if index.constraint is not None:
        designer.reasons.append(f"index {index.name} belongs to the constraint {index.constraint}: ALTER TABLE {source.quoted} DROP CONSTRAINT {quote(index.constraint)}")
    if index.parent is not None:
        designer.reasons.append(f"{index.name} is part of the index {index.parent} of the table that it belongs to, and goes with that")
    name = qualified(source.schema, index.name)
    if source.kind == "p":  # There is no CONCURRENTLY for it; nothing but the catalogue is written.
        recipe.statement(f"DROP INDEX {name}")
        return designer.reshaping(recipe, shape=None, wanted={"no index": index.oid})
    text = "drop the index; readers and writers go on"
    recipe.alone("drop the index", text, f"DROP INDEX CONCURRENTLY {name}", does="drop", revertible=False, dropped=name, oid=index.oid)
    return designer.reshaping(recipe, shape=None, wanted={"no index": index.oid})


def _parts(text: str) -> tuple[bool, str]:
    """Return whether the index is unique, and everything that stands behind the table's name."""
    tokens = significant(text, STANDARD)
    unique = tokens[1].keyword == "UNIQUE"
    at = next(number for number, token in enumerate(tokens) if token.keyword == "ON") + 2
    while at + 1 < len(tokens) and tokens[at].is_operator("."):
        at += 2
    return unique, " " + text[tokens[at].start :]


