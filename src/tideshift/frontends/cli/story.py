"""A job's story: its events from the first to the last."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tideshift.connect import Connected
    from tideshift.store.database import Transaction
    from tideshift.store.events import Event

__all__ = ["story_of"]


def story_of(connected: Connected, job_id: int) -> list[Event]:
    """Read every event of a job, oldest first, in one snapshot."""
    from tideshift.store import events

    def read(tx: Transaction) -> list[Event]:
        story: list[Event] = []
        while page := events.history(tx, job_id=job_id, after_id=story[-1].id if story else 0):  # ends: a page begins behind the last
            story += page
        return story

    return connected.database.run(read, write=False)
