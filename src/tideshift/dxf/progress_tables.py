"""How far a step has come, in counters that are kept up as subtasks end: asking costs a row per node, however many subtasks there are.

One row per task, step and node, which only that node's finishing transactions write, and one without a node that planning
writes with the total. What running subtasks have done so far stands in their own summaries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import BigInteger, Column, Integer, String, Table, delete, func, insert, select, update

from tideshift.dxf.task import Subtask
from tideshift.store.database import Transaction
from tideshift.store.tables import METADATA

__all__ = ["StepProgress", "add_finished", "forget_progress", "insert_total", "progress", "progress_of"]

PLANNED = ""
"""Stands where a node's name would: the row that planning wrote."""

progress = Table(
    "dxf_progress",
    METADATA,
    Column("task_id", BigInteger, primary_key=True, autoincrement=False),
    Column("step", Integer, primary_key=True, autoincrement=False),
    Column("exec_id", String(261), primary_key=True),
    Column("subtasks_total", BigInteger, nullable=False),
    Column("subtasks_done", BigInteger, nullable=False),
    Column("row_count", BigInteger, nullable=False),
    Column("bytes", BigInteger, nullable=False),
)


@dataclass(frozen=True)
class StepProgress:
    """The finished part of one step."""

    step: int
    subtasks_total: int
    subtasks_done: int
    row_count: int
    size_bytes: int


def insert_total(tx: Transaction, *, task_id: int, step: int, total: int) -> None:
    """Note how many subtasks a step has, in the transaction that inserts them."""
    tx.execute(
        insert(progress).values(task_id=task_id, step=step, exec_id=PLANNED, subtasks_total=total, subtasks_done=0, row_count=0, bytes=0)
    )


def add_finished(tx: Transaction, done: Sequence[Subtask], *, exec_id: str) -> None:
    """Count subtasks of one step that succeed in this transaction."""
    if not done:
        return
    task_id, step = done[0].task_id, done[0].step
    assert all((one.task_id, one.step) == (task_id, step) for one in done)
    values = {
        "subtasks_done": len(done), "row_count": sum(one.summary.get("row_count", 0) for one in done),
        "bytes": sum(one.summary.get("bytes", 0) for one in done),
    }  # fmt: skip
    own = (progress.c.task_id == task_id, progress.c.step == step, progress.c.exec_id == exec_id)
    added = {name: progress.c[name] + value for name, value in values.items()}
    if tx.execute(update(progress).where(*own).values(added)).rowcount == 0:
        tx.execute(insert(progress).values(task_id=task_id, step=step, exec_id=exec_id, subtasks_total=0, **values))


def progress_of(tx: Transaction, task_id: int) -> list[StepProgress]:
    """Read the finished part of each step, in order."""
    sums = [func.sum(progress.c[name]).label(name) for name in ("subtasks_total", "subtasks_done", "row_count", "bytes")]
    statement = select(progress.c.step, *sums).where(progress.c.task_id == task_id).group_by(progress.c.step).order_by(progress.c.step)
    return [
        StepProgress(row.step, int(row.subtasks_total), int(row.subtasks_done), int(row.row_count), int(row.bytes)) for row in tx.execute(statement)
    ]


def forget_progress(tx: Transaction, task_ids: Sequence[int]) -> None:
    """Delete the counters of tasks whose history is deleted."""
    tx.execute(delete(progress).where(progress.c.task_id.in_(task_ids)))
