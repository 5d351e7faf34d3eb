"""A change by a shadow table: check the rows, capture, reorganize, cut over, inspect.

| stage | schema state | undo |
|---|---|---|
| check rows (only where a row can be refused) | none | nothing was made |
| capture | none -> write only | drop triggers, log, shadow |
| reorganize | write reorganization | as above |
| cut over | write reorganization -> public | the swap and the job's move commit together: before it as above, after it none |
| inspect | public | none |
"""

from __future__ import annotations

from dataclasses import replace

from tideshift.ddl.actions.stages import CHECK_ROWS, INSPECT, INSPECT_REFERENCES
from tideshift.ddl.job import PLAN_VERSION, Plan, Stage, StageKind
from tideshift.ddl.machine import SchemaState
from tideshift.ddl.native_task import StatementType
from tideshift.ddl.reorg.task import ReorgType
from tideshift.ddl.reshaping import Reshaping

__all__ = ["CAPTURE", "CUT_OVER", "REORGANIZE", "shadow_plan"]

CAPTURE = Stage(
    name="capture", kind=StageKind.SHORT, schema_state=SchemaState.WRITE_ONLY, chunked=False, revertible=True,
    text="make the shadow table and the key log; from here every write is recorded",
)  # fmt: skip
REORGANIZE = Stage(
    name="reorganize", kind=StageKind.LONG, schema_state=SchemaState.WRITE_REORGANIZATION, chunked=True, revertible=True,
    task_type=ReorgType.name, text="copy in chunks, catch up with the log, compare every row",
)  # fmt: skip
CUT_OVER = Stage(
    name="cut over", kind=StageKind.SHORT, schema_state=SchemaState.PUBLIC, chunked=False, revertible=True,
    text="drain the rest of the log and swap, in one transaction",
)  # fmt: skip


def shadow_plan(reshaping: Reshaping) -> Plan:
    """Return the stages of a change by a shadow table; a native step, where there is one, is part of the inspection."""
    last = INSPECT_REFERENCES if reshaping.sees_references else INSPECT
    if reshaping.native_steps:
        (step,) = reshaping.native_steps
        last = replace(INSPECT, task_type=StatementType.name, step=0, text=f"{step.text}; {INSPECT.text}")
    stages: tuple[Stage, ...] = (CAPTURE, REORGANIZE, CUT_OVER, last)
    if reshaping.tries_rows_first:
        stages = (CHECK_ROWS, *stages)
    return Plan(version=PLAN_VERSION, stages=stages, reshaping=reshaping)
