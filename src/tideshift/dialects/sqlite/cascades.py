"""Rows that delete one another by foreign keys, as far as that could keep a change out of the log.

An UPDATE OR REPLACE may displace the very row that the updated one refers to, or a row above that. With ON DELETE CASCADE
the updated row then goes with it: no trigger after the update fires, which would have logged the displaced row. So, when
a row is deleted, the row that it refers to in its own table is looked up in the shadow and logged too. Where the deletion
comes round through other tables nobody can tell it from any other, and the change is refused.
"""

from __future__ import annotations

from tideshift.ddl.tokens import same_name
from tideshift.dialects.sqlite.driver import quote
from tideshift.dialects.sqlite.foreign_keys import Reference, foreign_keys, is_enforced
from tideshift.dialects.sqlite.layout import ROW_ALIAS
from tideshift.store.database import Transaction

__all__ = ["cascade_reasons", "cascading", "parent_conditions"]


def cascading(tx: Transaction) -> list[Reference]:
    """Return the foreign keys by which a deletion goes on to the children."""
    return [one for one in foreign_keys(tx) if one.on_delete == "CASCADE" and is_enforced(tx, one)]


def parent_conditions(references: list[Reference], table: str) -> tuple[str, ...]:
    """Return, for each such foreign key of a table to itself, the condition on the parent of a deleted row."""
    return tuple(
        " AND ".join(f"{ROW_ALIAS}.{quote(parent)} = +OLD.{quote(child)}" for child, parent in one.columns)
        for one in references
        if _is_own(one, table)
    )


def cascade_reasons(references: list[Reference], table: str, converted: tuple[str, ...]) -> list[str]:
    """Return why deletions cannot be followed; `converted` are the columns whose values the shadow may have otherwise."""
    own = [one for one in references if _is_own(one, table)]
    reasons = [
        f"rows of {table!r} are deleted together by {parent!r} (ON DELETE CASCADE to the table itself), whose values change"
        for one in own
        for _, parent in one.columns
        if any(same_name(parent, column) for column in converted)
    ]
    others = [one for one in references if not _is_own(one, table)]
    reached = [table]
    for parent in reached:  # Ends: no table is added twice.
        for one in others:
            if not same_name(one.parent, parent):
                continue
            if same_name(one.child, table):
                return [*reasons, f"a deletion from {table!r} comes back to it by ON DELETE CASCADE through {parent!r}"]
            if not any(same_name(one.child, known) for known in reached):
                reached.append(one.child)
    return reasons


def _is_own(reference: Reference, table: str) -> bool:
    return same_name(reference.child, table) and same_name(reference.parent, table)
