"""The task type `ddl.statement`: one long statement of the database's own, run on a node.

A statement inside a transaction commits with its checkpoint. One that commits by itself is run between two looks at the
catalogue: the dialect sees what an earlier try left, finishes or removes it, and only then runs the statement.
"""

from __future__ import annotations

from typing import Any

from tideshift.ddl import points
from tideshift.ddl.dialect import Dialect
from tideshift.ddl.reshaping import Reorg, Reshaping, StepKind
from tideshift.dxf.parameters import apply_to_parameters
from tideshift.dxf.task import DONE, INIT, Subtask, Task
from tideshift.dxf.tasktype import Context, Work
from tideshift.store.database import Transaction

__all__ = ["StatementType", "StatementWork"]


class StatementWork:
    """One statement; it is ended on the server when the subtask is no longer wanted here."""

    interruptible = True

    def __init__(self, dialect: Dialect, reorg: Reorg, number: int) -> None:
        self.dialect = dialect
        self.reorg = reorg
        self.number = number

    def step(self, context: Context) -> bool:
        """Run the statement, or for one that goes on in parts the next part; return whether there is more."""
        if points.BEFORE_LONG_STATEMENT.on:
            points.BEFORE_LONG_STATEMENT.fire(job=self.reorg.job_id, step=self.number)
        if self.reorg.reshaping.native_steps[self.number].kind is StepKind.ALONE:
            with context.alone() as session:
                self.dialect.native.run_alone(session, self.reorg, self.number, gently=context.limits.adaptive)
            if points.AFTER_LONG_STATEMENT.on:
                points.AFTER_LONG_STATEMENT.fire(job=self.reorg.job_id, step=self.number)
            with context.chunk() as chunk:
                chunk.checkpoint = {"done": True}
            return False
        with context.chunk() as chunk:
            left = self.dialect.native.run_long(chunk.tx, self.reorg, self.number, chunk.checkpoint)
            chunk.checkpoint = left or {"done": True}
        return left is not None


class StatementType:
    """Runs one native step of a job."""

    name = "ddl.statement"
    RUN = 1

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    def next_step(self, task: Task) -> int:
        """Return the only step, then done."""
        return {INIT: self.RUN, self.RUN: DONE}[task.step]

    def step_name(self, step: int) -> str:
        """Name a step for people."""
        return "run the statement" if step == self.RUN else ""

    def plan(self, tx: Transaction, task: Task, step: int) -> list[dict[str, Any]]:
        """Plan the one subtask."""
        return [{"step": task.meta["step"]}]

    def open(self, task: Task, subtask: Subtask) -> Work:
        """Open the statement."""
        reorg = Reorg(task.meta["job_id"], Reshaping.from_record(task.meta["reshaping"]))
        return StatementWork(self.dialect, reorg, subtask.meta["step"])

    def modify(self, meta: dict[str, Any], modifications: list[dict[str, Any]]) -> dict[str, Any]:
        """Take over batch size, write speed and lock share."""
        return apply_to_parameters(meta, modifications)

    def revert(self, tx: Transaction, task: Task) -> None:
        """Do nothing: what was made is the job's, and the job undoes it by its artifacts."""
