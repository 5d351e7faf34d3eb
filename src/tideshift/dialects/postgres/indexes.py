"""How an index comes, goes and is made again, with the database's own CONCURRENTLY."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from tideshift.ddl.change import CreateIndex, DropIndex, Reindex
from tideshift.ddl.reshaping import Reshaping
from tideshift.ddl.tokens import STANDARD, significant
from tideshift.dialects.postgres import estimate
from tideshift.dialects.postgres.driver import quote
from tideshift.dialects.postgres.names import own_name, qualified
from tideshift.dialects.postgres.recipe import Recipe
from tideshift.dialects.postgres.source import find_index
from tideshift.errors import PlanRefused

if TYPE_CHECKING:
    from tideshift.dialects.postgres.design import Designer

__all__ = ["create", "drop", "reindex"]


def create(designer: Designer, change: CreateIndex) -> Reshaping:
    """Build it under a name of ours beside the traffic, then give it its name."""
    source = designer.table(change.table)
    recipe = Recipe(source)
    unique, rest = _parts(change.text)
    if designer.exists(source.schema, change.name):
        designer.reasons.append(f"there is something called {change.name} in the schema {source.schema} already")
    word = "UNIQUE INDEX" if unique else "INDEX"
    if source.kind == "p":
        designer.reasons.append("an index on a partitioned table cannot be built CONCURRENTLY: build one on each partition first")
    online = designer.goes_online(estimate.write_seconds(source.bytes))
    designer.cost.may_refuse = unique
    if online:
        index = own_name(0, source.quoted, "index")
        recipe.build_index(index, f"CREATE {word} CONCURRENTLY {quote(index)} ON {source.quoted}{rest}", unique=unique)
        recipe.last.append(f"ALTER INDEX {qualified(source.schema, index)} RENAME TO {quote(change.name)}")
    else:
        recipe.last.append(f"CREATE {word} {quote(change.name)} ON {source.quoted}{rest}")
    return designer.reshaping(recipe, shape=None, wanted={"index": qualified(source.schema, change.name)})


def drop(designer: Designer, change: DropIndex) -> Reshaping:
    """Drop it without waiting for readers under a lock; one that a constraint needs goes with the constraint."""
    source, index = find_index(designer.tx, change.index)
    designer.see_owner(source)
    recipe = Recipe(source)
    if index.constraint is not None:
        designer.reasons.append(f"index {index.name} belongs to the constraint {index.constraint}: ALTER TABLE {source.quoted} DROP CONSTRAINT {quote(index.constraint)}")
    if source.kind == "p":
        designer.reasons.append("an index of a partitioned table cannot be dropped CONCURRENTLY")
    name = qualified(source.schema, index.name)
    recipe.alone("drop the index", "drop the index; readers and writers go on", f"DROP INDEX CONCURRENTLY {name}", revertible=False, dropped=name, oid=index.oid)
    return designer.reshaping(recipe, shape=None, wanted={"no index": index.oid})


def reindex(change: Reindex) -> NoReturn:
    """Refuse it: REINDEX CONCURRENTLY that is interrupted leaves an index under a name that the server chose, which may be somebody else's."""
    reason = "what an interrupted REINDEX CONCURRENTLY leaves behind cannot be told from what somebody else has left"
    hint = "Make a second index by CREATE INDEX and drop the first one, or run REINDEX CONCURRENTLY yourself."
    raise PlanRefused(f"{str(change.name)!r} is not made again: {reason}", reasons=[reason], hint=hint)


def _parts(text: str) -> tuple[bool, str]:
    """Return whether the index is unique, and everything that stands behind the table's name."""
    tokens = significant(text, STANDARD)
    unique = tokens[1].keyword == "UNIQUE"
    at = next(number for number, token in enumerate(tokens) if token.keyword == "ON") + 2
    while at + 1 < len(tokens) and tokens[at].is_operator("."):
        at += 2
    return unique, " " + text[tokens[at].start :]


