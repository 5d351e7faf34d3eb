"""A change of a column within its table: a new column takes the old one's place.

| stage | schema state | undo |
|---|---|---|
| add the new column, with the trigger that keeps it right | write only | drop trigger, function, column |
| fill it, range by range | write reorganization | as above |
| demand and prove NOT NULL, build its indexes | write reorganization | those too |
| compare every row | write reorganization | as above |
| swap the columns | write reorganization -> public | the swap and the job's move commit together: before it as above, after it none |
| inspect, once constraints are validated | public | none |
"""

from __future__ import annotations

from dataclasses import replace

from tideshift.ddl.actions.native_online import native_stage
from tideshift.ddl.actions.stages import INSPECT
from tideshift.ddl.job import PLAN_VERSION, Plan
from tideshift.ddl.native_task import StatementType
from tideshift.ddl.reorg.fill import CompareType, FillType
from tideshift.ddl.reshaping import Reshaping, StepKind

__all__ = ["in_place_plan"]

_TASK_TYPES = {StepKind.FILL: FillType.name, StepKind.COMPARE: CompareType.name}


def in_place_plan(reshaping: Reshaping) -> Plan:
    """Return a stage for each native step; the last one is what follows the swap, and part of the inspection."""
    *steps, last = reshaping.native_steps
    assert steps[-1].kind is StepKind.SHORT
    stages = [
        replace(native_stage(number, step), task_type=_TASK_TYPES[step.kind], chunked=True, step=None) if step.kind in _TASK_TYPES else native_stage(number, step)
        for number, step in enumerate(steps)
    ]
    inspect = replace(INSPECT, task_type=StatementType.name, step=len(steps), text=f"{last.text}; {INSPECT.text}")
    return Plan(version=PLAN_VERSION, stages=(*stages, inspect), reshaping=reshaping)
