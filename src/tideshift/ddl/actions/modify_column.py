"""Changing the type of a column: check the rows, capture, reorganize, cut over, inspect.

| stage | schema state | undo |
|---|---|---|
| check rows (only where a row can be refused) | none | nothing was made |
| capture | none -> write only | drop triggers, log, shadow |
| reorganize | write reorganization | as above |
| cut over | write reorganization -> public | the swap and the job's move commit together: before it as above, after it none |
| inspect | public | none |
"""

from __future__ import annotations

from tideshift.ddl.dialect import Reshaping
from tideshift.ddl.job import PLAN_VERSION, Plan, Stage, StageKind, Strategy
from tideshift.ddl.machine import SchemaState
from tideshift.ddl.reorg.task import CheckRowsType, ReorgType

__all__ = ["CAPTURE", "CHECK_ROWS", "CUT_OVER", "INSPECT", "REORGANIZE", "shadow_plan"]

CHECK_ROWS = Stage(
    name="check rows", kind=StageKind.LONG, schema_state=SchemaState.NONE, chunked=True, revertible=True,
    task_type=CheckRowsType.name, text="try every row on the new shape, reading only",
)  # fmt: skip
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
INSPECT = Stage(
    name="inspect", kind=StageKind.LAST, schema_state=SchemaState.PUBLIC, chunked=False, revertible=False,
    text="see by another connection that the catalogue is as planned and references hold",
)  # fmt: skip


def shadow_plan(reshaping: Reshaping) -> Plan:
    """Return the stages of a type change by a shadow table."""
    stages: tuple[Stage, ...] = (CAPTURE, REORGANIZE, CUT_OVER, INSPECT)
    if reshaping.may_refuse_rows:
        stages = (CHECK_ROWS, *stages)
    return Plan(version=PLAN_VERSION, strategy=Strategy.SHADOW_TABLE, stages=stages, reshaping=reshaping)
