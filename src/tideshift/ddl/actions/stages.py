"""The stages that several strategies share."""

from __future__ import annotations

from tideshift.ddl.job import Stage, StageKind
from tideshift.ddl.machine import SchemaState
from tideshift.ddl.reorg.task import CheckRowsType, ReferencesType

__all__ = ["CHECK_ROWS", "INSPECT", "INSPECT_REFERENCES"]

CHECK_ROWS = Stage(
    name="check rows", kind=StageKind.LONG, schema_state=SchemaState.NONE, chunked=True, revertible=True,
    task_type=CheckRowsType.name, text="try every row on the new shape, reading only",
)  # fmt: skip
INSPECT = Stage(
    name="inspect", kind=StageKind.LAST, schema_state=SchemaState.PUBLIC, chunked=False, revertible=False,
    text="see by another connection that the catalogue is as planned",
)  # fmt: skip
INSPECT_REFERENCES = Stage(
    name="inspect", kind=StageKind.LAST, schema_state=SchemaState.PUBLIC, chunked=True, revertible=False,
    task_type=ReferencesType.name, text="see by another connection that the catalogue is as planned and every reference holds",
)  # fmt: skip
