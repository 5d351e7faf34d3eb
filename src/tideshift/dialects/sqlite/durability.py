"""What a power failure can take, by the journal mode of a file and by how our connections commit (`SqliteDriver.begin`)."""

from __future__ import annotations

from tideshift.ddl.dialect import Durability

__all__ = ["durability_in"]

_ITS_OWN = "what the application commits is kept as its own PRAGMA synchronous says"
_UNDONE = "is done again from its checkpoint, and no row of yours is lost by it"


def durability_in(journal_mode: str) -> Durability:
    """Say it for a journal mode, as our connections find it."""
    if journal_mode == "wal":
        return Durability(
            setting="journal mode wal",
            commands="commands, states and the swap are synced before they are acknowledged (synchronous = FULL)",
            rows=f"copied rows are not synced (NORMAL): what a power failure takes of them {_UNDONE}",
            application=f"{_ITS_OWN}: below FULL a power failure may take its last commits",
        )
    return Durability(
        setting=f"journal mode {journal_mode}",
        commands="commands, states and the swap are synced before they are acknowledged (synchronous = EXTRA)",
        rows=f"copied rows are synced (FULL), but for the journal's removal: at most the last chunk {_UNDONE}",
        application=f"{_ITS_OWN}, and its journal mode: below EXTRA a power failure may take its last commit, and with OFF or MEMORY the whole file",
    )
