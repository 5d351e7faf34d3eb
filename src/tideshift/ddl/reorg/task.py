"""The task types that know of a new shape: `reorg` copies, catches up, verifies and sees references; others try rows or look again.

Copy and verify have one subtask per key range, the other steps have one. The task's meta holds the job's id, its reshaping and the parameters; a subtask's meta holds its range.
"""

from __future__ import annotations

from typing import Any

from tideshift.ddl.dialect import Dialect, Reorg, Reshaping
from tideshift.ddl.reorg.catch_up import CatchUpWork
from tideshift.ddl.reorg.check_rows import CheckRowsWork
from tideshift.ddl.reorg.copy import CopyWork
from tideshift.ddl.reorg.references import ReferencesWork
from tideshift.ddl.reorg.verify import VerifyWork
from tideshift.dxf.parameters import apply_to_parameters
from tideshift.dxf.task import DONE, INIT, Subtask, Task
from tideshift.dxf.tasktype import Work
from tideshift.store.database import Transaction
from tideshift.store.keys import KeyRange

__all__ = ["CATCH_UP", "COPY", "SEE_REFERENCES", "VERIFY", "CheckRowsType", "ReferencesType", "ReorgType", "reorg_of"]

COPY, CATCH_UP, VERIFY, SEE_REFERENCES = 1, 2, 3, 4
PARTS = 8
"""How many ranges a table is cut into: enough for several nodes and for a picture of the progress."""


def reorg_of(task: Task) -> Reorg:
    """Read what the dialect works on from a task's meta."""
    return Reorg(task.meta["job_id"], Reshaping.from_record(task.meta["reshaping"]))


def _ranges(tx: Transaction, dialect: Dialect, reorg: Reorg, *, both: bool = False) -> list[dict[str, Any]]:
    """Cut the table at this moment into ranges, up to the last key (of source and shadow, for `both`); what comes later is in the log."""
    order = dialect.shadow.key_order(reorg)
    orders = [order, dialect.shadow.copied_key_order(reorg)] if both else [order]
    lasts = [ends[1] for ends in (one.first_and_last(tx) for one in orders) if ends is not None]
    if not lasts:
        return []
    last = lasts[-1] if order.compare(tx, lasts[0], lasts[-1]) < 0 else lasts[0]
    ranges = order.split(tx, KeyRange(None, last), parts=PARTS) or [KeyRange(None, last)]
    return [{"range": key_range.as_record()} for key_range in ranges]


class ReorgType:
    """Fills the shadow table until it equals the source but for what the log names."""

    name = "ddl.reorg"
    names = {COPY: "copy", CATCH_UP: "catch up", VERIFY: "verify", SEE_REFERENCES: "see references"}

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    def next_step(self, task: Task) -> int:
        """Return copy, catch up, verify, see references, in this order."""
        return {INIT: COPY, COPY: CATCH_UP, CATCH_UP: VERIFY, VERIFY: SEE_REFERENCES, SEE_REFERENCES: DONE}[task.step]

    def step_name(self, step: int) -> str:
        """Name a step for people."""
        return self.names.get(step, "")

    def plan(self, tx: Transaction, task: Task, step: int) -> list[dict[str, Any]]:
        """Plan one subtask per key range, or the one that catches up or looks at references."""
        if step == CATCH_UP:
            return [{"bucket": 0}]
        reorg = reorg_of(task)
        if step == SEE_REFERENCES:
            return [{"swapped": False}] if reorg.reshaping.sees_references else []
        self.dialect.shadow.check(tx, reorg)
        return _ranges(tx, self.dialect, reorg, both=step == VERIFY)

    def open(self, task: Task, subtask: Subtask) -> Work:
        """Open the work of a subtask by its step."""
        if subtask.step == SEE_REFERENCES:
            return ReferencesWork(self.dialect, reorg_of(task), swapped=False)
        kinds: dict[int, type[CopyWork | CatchUpWork | VerifyWork]]
        kinds = {COPY: CopyWork, CATCH_UP: CatchUpWork, VERIFY: VerifyWork}
        return kinds[subtask.step](self.dialect, reorg_of(task))

    def modify(self, meta: dict[str, Any], modifications: list[dict[str, Any]]) -> dict[str, Any]:
        """Take over batch size, write speed and lock share."""
        return apply_to_parameters(meta, modifications)

    def revert(self, tx: Transaction, task: Task) -> None:
        """Do nothing: what was made is the job's, and the job undoes it by its artifacts."""


class CheckRowsType:
    """Tries every row on the new shape before anything is made."""

    name = "ddl.check_rows"
    CHECK = 1

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    def next_step(self, task: Task) -> int:
        """Return the only step, then done."""
        return {INIT: self.CHECK, self.CHECK: DONE}[task.step]

    def step_name(self, step: int) -> str:
        """Name a step for people."""
        return "check rows" if step == self.CHECK else ""

    def plan(self, tx: Transaction, task: Task, step: int) -> list[dict[str, Any]]:
        """Plan one subtask per key range."""
        return _ranges(tx, self.dialect, reorg_of(task))

    def open(self, task: Task, subtask: Subtask) -> Work:
        """Open the check of one range."""
        return CheckRowsWork(self.dialect, reorg_of(task))

    def modify(self, meta: dict[str, Any], modifications: list[dict[str, Any]]) -> dict[str, Any]:
        """Take over batch size, write speed and lock share."""
        return apply_to_parameters(meta, modifications)

    def revert(self, tx: Transaction, task: Task) -> None:
        """Do nothing: it made nothing."""


class ReferencesType:
    """Looks once more, after the swap, whether every reference that the change touched holds."""

    name = "ddl.see_references"
    LOOK = 1

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    def next_step(self, task: Task) -> int:
        """Return the only step, then done."""
        return {INIT: self.LOOK, self.LOOK: DONE}[task.step]

    def step_name(self, step: int) -> str:
        """Name a step for people."""
        return "see references" if step == self.LOOK else ""

    def plan(self, tx: Transaction, task: Task, step: int) -> list[dict[str, Any]]:
        """Plan the one subtask."""
        return [{"swapped": True}]

    def open(self, task: Task, subtask: Subtask) -> Work:
        """Open the walk."""
        return ReferencesWork(self.dialect, reorg_of(task), swapped=True)

    def modify(self, meta: dict[str, Any], modifications: list[dict[str, Any]]) -> dict[str, Any]:
        """Take over batch size, write speed and lock share."""
        return apply_to_parameters(meta, modifications)

    def revert(self, tx: Transaction, task: Task) -> None:
        """Do nothing: it made nothing."""
