"""The task type `ddl.purge`: empties a table that a job replaced or gave up, chunk by chunk, then drops it.

The artifact's row is marked dropped in the transaction that drops the table, so a crash leaves either both or none.
"""

from __future__ import annotations

from typing import Any

from tideshift.ddl import points, tables
from tideshift.ddl.dialect import ArtifactName, Dialect
from tideshift.dxf.parameters import apply_to_parameters
from tideshift.dxf.ranges import ChunkControl
from tideshift.dxf.task import DONE, INIT, Subtask, Task
from tideshift.dxf.tasktype import Context, Work
from tideshift.store.database import Transaction

__all__ = ["PurgeType", "purge_key"]


def purge_key(job_id: int, attempt: int = 0) -> str:
    """Return the key of a job's purge task."""
    return f"ddl/{job_id}/purge/{attempt}"


class PurgeWork:
    """The purge of one table."""

    def __init__(self, dialect: Dialect, meta: dict[str, Any]) -> None:
        self.dialect = dialect
        self.artifact = ArtifactName(meta["kind"], meta["name"])
        self.job_id: int = meta["job_id"]
        self.ordinal: int = meta["ordinal"]
        self.control = ChunkControl(target_seconds=dialect.capabilities.chunk_target_seconds)
        self.at_once: bool = meta.get("at_once", False)
        self._warms_up = True

    def step(self, context: Context) -> bool:
        """Delete one chunk of rows, or drop the table once it is empty; one that was rebuilt under one lock is dropped as it is."""
        if points.BEFORE_PURGE_CHUNK.on:
            points.BEFORE_PURGE_CHUNK.fire(job=self.job_id)
        rows_max = self.control.next_rows(rows_max=context.limits.batch_size_rows, seconds_max=context.limits.chunk_seconds_max)
        if self._warms_up:
            with context.database.session() as session:
                with session.transaction(write=False) as tx:
                    self._warms_up = self.dialect.remains.warm_up(tx, self.artifact)
                session.rest()
        with context.chunk() as chunk:
            if tables.is_dropped(chunk.tx, self.job_id, self.ordinal):
                return False  # An attempt before this one has done it, and what has the name now is another table.
            gone = 0 if self.at_once else self.dialect.remains.empty_chunk(chunk.tx, self.artifact, rows_max=rows_max)
            if gone == 0:
                if points.BEFORE_DROP.on:
                    points.BEFORE_DROP.fire(job=self.job_id)
                self.dialect.remains.drop(chunk.tx, self.artifact)
                tables.mark_dropped(chunk.tx, self.job_id, self.ordinal)
                if self.artifact.kind != "log":
                    tables.mark_shadow_indexes_dropped(chunk.tx, self.job_id)
            chunk.counters = {"purged": gone}
        self.control.observe(rows=gone, seconds=chunk.held_seconds)
        return gone > 0


class PurgeType:
    """Empties and drops one table of ours."""

    name = "ddl.purge"
    PURGE = 1

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    def next_step(self, task: Task) -> int:
        """Return the only step, then done."""
        return {INIT: self.PURGE, self.PURGE: DONE}[task.step]

    def step_name(self, step: int) -> str:
        """Name a step for people."""
        return "purge" if step == self.PURGE else ""

    def plan(self, tx: Transaction, task: Task, step: int) -> list[dict[str, Any]]:
        """Plan the one subtask."""
        return [{"name": task.meta["name"]}]

    def open(self, task: Task, subtask: Subtask) -> Work:
        """Open the purge."""
        return PurgeWork(self.dialect, task.meta)

    def modify(self, meta: dict[str, Any], modifications: list[dict[str, Any]]) -> dict[str, Any]:
        """Take over batch size, write speed and lock share."""
        return apply_to_parameters(meta, modifications)

    def revert(self, tx: Transaction, task: Task) -> None:
        """Do nothing: the artifact's row stays, and the purge is submitted again."""
