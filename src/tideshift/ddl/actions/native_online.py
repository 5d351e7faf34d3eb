"""A change by the database's own statements, several of them, none of which keeps anybody waiting for long.

Each native step is a stage: a short one is a move on the owner, a long one a task. What a step makes is recorded in the
transaction that makes it, or before it where the statement commits by itself; undoing drops it again. The last step
puts the new shape in force, and with it everything that the job made is the user's.
"""

from __future__ import annotations

from tideshift.ddl.actions.stages import INSPECT
from tideshift.ddl.job import PLAN_VERSION, Plan, Stage, StageKind
from tideshift.ddl.machine import SchemaState
from tideshift.ddl.native_task import StatementType
from tideshift.ddl.reshaping import NativeStep, Reshaping, StepKind

__all__ = ["native_online_plan", "native_stage"]


def native_online_plan(reshaping: Reshaping) -> Plan:
    """Return a stage for each native step, then the inspection."""
    names = [step.name for step in reshaping.native_steps]
    assert len(set(names)) == len(names), names
    assert reshaping.native_steps[-1].kind is StepKind.SHORT
    stages = [native_stage(number, step) for number, step in enumerate(reshaping.native_steps)]
    return Plan(version=PLAN_VERSION, stages=(*stages, INSPECT), reshaping=reshaping)


def native_stage(number: int, step: NativeStep) -> Stage:
    """Return the stage of one native step."""
    short = step.kind is StepKind.SHORT
    return Stage(
        name=step.name, kind=StageKind.SHORT if short else StageKind.LONG, schema_state=SchemaState(step.schema_state), chunked=False,
        revertible=step.revertible, task_type=None if short else StatementType.name, step=number, text=step.text,
    )  # fmt: skip
