"""The task types that know of a new shape: `reorg` copies, builds, catches up, verifies and sees references; others try rows or look again.

Copy and verify have one subtask per key range, a build has one per index, the other steps have one. The task's meta holds the job's id, its reshaping and the parameters; a subtask's meta holds its range.
"""

from __future__ import annotations

from typing import Any

from tideshift.ddl.dialect import BuildGroup, Dialect
from tideshift.ddl.reorg.build import BuildWork, SettleWork
from tideshift.ddl.reorg.catch_up import CatchUpWork
from tideshift.ddl.reorg.check_rows import CheckRowsWork
from tideshift.ddl.reorg.copy import CopyWork
from tideshift.ddl.reorg.references import ReferencesWork
from tideshift.ddl.reorg.verify import VerifyWork
from tideshift.ddl.reshaping import Reorg, Reshaping
from tideshift.dxf.parameters import apply_to_parameters
from tideshift.dxf.ranges import cut_table, range_meta
from tideshift.dxf.task import DONE, INIT, Subtask, Task
from tideshift.dxf.tasktype import Work
from tideshift.store.database import Transaction

__all__ = ["CATCH_UP", "COPY", "SEE_REFERENCES", "VERIFY", "CheckRowsType", "ReferencesType", "ReorgType", "reorg_of"]

COPY, CATCH_UP, VERIFY, SEE_REFERENCES, BUILD, SETTLE, BUILD_ENFORCING, BUILD_LAST, CATCH_UP_AGAIN = range(1, 10)
_BUILDS = {BUILD: (BuildGroup.KEY, BuildGroup.OTHER), BUILD_ENFORCING: (BuildGroup.ENFORCING,), BUILD_LAST: (BuildGroup.LAST,)}
PARTS = 8
"""How many ranges a table is cut into: enough for several nodes and for a picture of the progress."""


def reorg_of(task: Task) -> Reorg:
    """Read what the dialect works on from a task's meta."""
    return Reorg(task.meta["job_id"], Reshaping.from_record(task.meta["reshaping"]))


def _ranges(tx: Transaction, dialect: Dialect, reorg: Reorg, *, both: bool = False) -> list[dict[str, Any]]:
    """Plan one subtask per range of the source (of source and shadow, for `both`); what comes behind the last key later is in the log."""
    beside = dialect.shadow.copied_key_order(reorg) if both else None
    return [range_meta(one) for one in cut_table(tx, dialect.shadow.key_order(reorg), parts=PARTS, beside=beside)]


class ReorgType:
    """Fills the shadow table until it equals the source but for what the log names."""

    name = "ddl.reorg"
    names = {
        COPY: "copy", BUILD: "build indexes", CATCH_UP: "catch up", SETTLE: "settle", BUILD_ENFORCING: "build keys", BUILD_LAST: "statistics",
        CATCH_UP_AGAIN: "catch up again", VERIFY: "verify", SEE_REFERENCES: "see references",
    }  # fmt: skip
    """The steps in their order; what is built stands from the start on some databases, and then these steps are passed by."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect

    def next_step(self, task: Task) -> int:
        """Return the step that follows in the order above."""
        order = [INIT, *self.names, DONE]
        return order[order.index(task.step) + 1]

    def step_name(self, step: int) -> str:
        """Name a step for people."""
        return self.names.get(step, "")

    def plan(self, tx: Transaction, task: Task, step: int) -> list[dict[str, Any]]:
        """Plan one subtask per key range or index, or the one that catches up or looks at references."""
        reorg, shadow = reorg_of(task), self.dialect.shadow
        if step in _BUILDS:
            return [{"build": number} for number in self._builds(reorg, step)]
        if step == CATCH_UP:
            return [{"bucket": 0}]
        if step in (SETTLE, CATCH_UP_AGAIN):
            return [{"bucket": 0}] if shadow.builds(reorg, BuildGroup.ENFORCING) else []
        if step == SEE_REFERENCES:
            return [{"swapped": False}] if reorg.reshaping.sees_references else []
        shadow.check(tx, reorg)
        return _ranges(tx, self.dialect, reorg, both=step == VERIFY)

    def _builds(self, reorg: Reorg, step: int) -> list[int]:
        return [number for group in _BUILDS[step] for number in self.dialect.shadow.builds(reorg, group)]

    def open(self, task: Task, subtask: Subtask) -> Work:
        """Open the work of a subtask by its step."""
        reorg = reorg_of(task)
        if subtask.step == SEE_REFERENCES:
            return ReferencesWork(self.dialect, reorg, swapped=False)
        if subtask.step in _BUILDS:
            return BuildWork(self.dialect, reorg, subtask.meta["build"], of=len(self._builds(reorg, subtask.step)))
        kinds: dict[int, type[CopyWork | CatchUpWork | SettleWork | VerifyWork]]
        kinds = {COPY: CopyWork, CATCH_UP: CatchUpWork, SETTLE: SettleWork, CATCH_UP_AGAIN: CatchUpWork, VERIFY: VerifyWork}
        return kinds[subtask.step](self.dialect, reorg)

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
