"""A change in one transaction: the database's own statement, or a rebuild of a small table.

| stage | schema state | undo |
|---|---|---|
| check rows (only where a row can be refused) | none | nothing was made |
| change | none -> public | the change and the job's move commit together: before it nothing was made, after it none |
| inspect | public | none |
"""

from __future__ import annotations

from tideshift.ddl.actions.stages import CHECK_ROWS, INSPECT, INSPECT_REFERENCES
from tideshift.ddl.job import PLAN_VERSION, Plan, Stage, StageKind
from tideshift.ddl.machine import SchemaState
from tideshift.ddl.reshaping import Reshaping

__all__ = ["CHANGE", "one_transaction_plan"]

CHANGE = Stage(
    name="change", kind=StageKind.SHORT, schema_state=SchemaState.PUBLIC, chunked=False, revertible=True,
    text="carry the change out, in one transaction",
)  # fmt: skip


def one_transaction_plan(reshaping: Reshaping) -> Plan:
    """Return the stages of a change in one transaction."""
    stages: tuple[Stage, ...] = (CHANGE, INSPECT_REFERENCES if reshaping.sees_references else INSPECT)
    if reshaping.tries_rows_first:
        stages = (CHECK_ROWS, *stages)
    return Plan(version=PLAN_VERSION, stages=stages, reshaping=reshaping)
