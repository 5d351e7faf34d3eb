"""What a change is made of on PostgreSQL: clauses of one last ALTER TABLE, and the steps that make that one short.

A scan or a build that would keep writers out is taken out of the last statement: a constraint is added NOT VALID and
validated afterwards, an index is built CONCURRENTLY under a name of ours and only given its own name at the end.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tideshift.ddl.machine import SchemaState
from tideshift.ddl.reshaping import ArtifactName, NativeStep, StepKind
from tideshift.dialects.postgres.driver import quote
from tideshift.dialects.postgres.names import qualified
from tideshift.dialects.postgres.source import SourceTable

__all__ = ["Recipe"]

_MAKING, _LOOKING, _THERE = SchemaState.WRITE_ONLY.value, SchemaState.WRITE_REORGANIZATION.value, SchemaState.PUBLIC.value


@dataclass
class Recipe:
    """The parts of one change, as the actions add them."""

    source: SourceTable
    steps: list[NativeStep] = field(default_factory=list)
    clauses: list[str] = field(default_factory=list)
    """Of the last ALTER TABLE, by the user's order."""
    last: list[str] = field(default_factory=list)
    """Whole statements behind it, in the same transaction."""
    locked: dict[int, str] = field(default_factory=dict)
    """Other tables that the last transaction locks, by their oids."""
    dropped: list[str] = field(default_factory=list)
    """What the server drops together with a column."""

    def short(
        self, name: str, text: str, sql: list[str], *, makes: tuple[ArtifactName, ...] = (), locked: dict[int, str] | None = None, schema_state: str = _MAKING
    ) -> None:  # fmt: skip
        """Add a step in one short transaction."""
        detail = {"sql": sql, "locked": {str(oid): table for oid, table in (locked or {}).items()}}
        self.steps.append(NativeStep(name=self._free(name), kind=StepKind.SHORT, text=text, schema_state=schema_state, makes=makes, detail=detail))

    def validate(self, constraint: str) -> None:
        """Add the scan that proves a constraint on the rows that are there."""
        sql = f"ALTER TABLE {self.source.quoted} VALIDATE CONSTRAINT {quote(constraint)}"
        text = f"look at every row for the constraint {constraint}; writers go on"
        self.steps.append(NativeStep(
            name=self._free(f"validate {constraint}"), kind=StepKind.LONG, text=text, schema_state=_LOOKING, detail={"sql": [sql], "constraint": constraint},
        ))  # fmt: skip

    def long(self, name: str, kind: StepKind, text: str, sql: list[str], *, schema_state: str = _LOOKING, revertible: bool = True) -> None:
        """Add a step that takes as long as it takes, beside the traffic."""
        self.steps.append(NativeStep(name=self._free(name), kind=kind, text=text, schema_state=schema_state, revertible=revertible, detail={"sql": sql}))

    def build_index(self, name: str, sql: str, *, unique: bool) -> None:
        """Add an index that is built beside the traffic, under a name of ours."""
        made = ArtifactName("index", qualified(self.source.schema, name))
        self.steps.append(NativeStep(
            name=self._free("build an index"), kind=StepKind.ALONE, text="build the index; writers go on", schema_state=_LOOKING, makes=(made,),
            detail={"sql": [sql], "index": made.name, "unique": unique},
        ))  # fmt: skip

    def alone(self, name: str, text: str, sql: str, *, revertible: bool, **detail: object) -> None:
        """Add another statement that commits by itself."""
        self.steps.append(NativeStep(
            name=self._free(name), kind=StepKind.ALONE, text=text, schema_state=_LOOKING, revertible=revertible, detail={"sql": [sql], **detail},
        ))  # fmt: skip

    def finished(self) -> tuple[NativeStep, ...]:
        """Return all steps, with the last short one that puts the new shape in force."""
        sql = [f"ALTER TABLE {self.source.quoted} {', '.join(self.clauses)}"] if self.clauses else []
        detail = {"sql": [*sql, *self.last], "locked": {str(oid): table for oid, table in self.locked.items()}}
        text = "put the new shape in force" if sql or self.last else "see that it is in force"
        name = self._free("change")
        return (*self.steps, NativeStep(name=name, kind=StepKind.SHORT, text=text, schema_state=_THERE, detail=detail))

    def _free(self, name: str) -> str:
        taken = {step.name for step in self.steps}
        number = 2
        free = name
        while free in taken:
            free, number = f"{name} ({number})", number + 1
        return free
