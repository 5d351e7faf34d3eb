"""A job as it is read from its row, and a plan as it is stored with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from tideshift.config import PARAMETERS
from tideshift.ddl.change import Change, change_from_record
from tideshift.ddl.machine import JobState, SchemaState
from tideshift.ddl.reshaping import SHADOW_INDEX, Reorg, Reshaping, Strategy

__all__ = ["PLAN_VERSION", "Artifact", "Effect", "Job", "Plan", "Stage", "StageKind", "effect_of"]

PLAN_VERSION = 1
"""A node runs only plans of versions it knows."""


class StageKind(StrEnum):
    """A short stage is one move on the owner; a long one submits a task and waits; a last one follows the swap."""

    SHORT = "short"
    LONG = "long"
    LAST = "last"


class Effect(StrEnum):
    """What a person's command at a stage leads to."""

    UNDONE = "everything is undone"
    PAUSED = "the job rests, and goes on from there when it is resumed"
    REFUSED = "refused: the new shape is in place"
    TAKEN_OVER = "taken over by the chunk that comes next"
    IN_VAIN = "in vain, and its outcome says so: no chunk is left that could take it over"


@dataclass(frozen=True, kw_only=True)
class Stage:
    """One entry of a plan: what is done, the schema state while it is done, and how it may be interrupted."""

    name: str
    kind: StageKind
    schema_state: SchemaState
    chunked: bool
    """Chunked: pause, cancel and modify take effect within a second. Atomic: they end the statement, or wait for it."""
    revertible: bool
    """Whether the job can be undone while this stage is current."""
    task_type: str | None = None
    step: int | None = None
    """Which of the reshaping's native steps it is, where it is one."""
    text: str = ""


def effect_of(stages: Sequence[Stage], stage: Stage, command: str) -> Effect:
    """Return what a command leads to that comes while this one of a plan's stages is current."""
    if not stage.revertible:
        return Effect.REFUSED
    if command == "set":
        to_come = stages[stages.index(stage) :]
        return Effect.TAKEN_OVER if any(one.chunked for one in to_come) else Effect.IN_VAIN
    return Effect.UNDONE if command == "cancel" else Effect.PAUSED


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The stages of a job in order, with the dialect's reshaping."""

    version: int
    stages: tuple[Stage, ...]
    reshaping: Reshaping

    @property
    def strategy(self) -> Strategy:
        """Return how the change is carried out."""
        return self.reshaping.strategy

    def as_record(self) -> dict[str, Any]:
        """Give the stored form."""
        return {
            "version": self.version,
            "stages": [asdict(stage) for stage in self.stages],
            "reshaping": self.reshaping.as_record(),
        }

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Plan:
        """Read the stored form."""
        stages = tuple(
            Stage(**{**stage, "kind": StageKind(stage["kind"]), "schema_state": SchemaState(stage["schema_state"])})
            for stage in record["stages"]
        )
        return cls(
            version=record["version"],
            stages=stages,
            reshaping=Reshaping.from_record(record["reshaping"]),
        )


@dataclass(frozen=True, kw_only=True)
class Job:
    """One DDL request; `rev` is what every write compares, `attempt` how often its copy had to start again."""

    id: int
    rev: int
    type: str
    schema_name: str | None
    table_name: str
    objects: list[dict[str, str]]
    query: str
    change: dict[str, Any]
    state: JobState
    schema_state: SchemaState
    stage: int
    attempt: int
    plan: dict[str, Any]
    plan_version: int
    strategy: str
    strategy_wished: str | None
    revertible: bool
    parameters: dict[str, dict[str, Any]]
    keep_old_seconds: float
    requested_by: str
    paused_by: str | None
    pause_reason: str | None
    error: dict[str, Any] | None
    err_count: int
    next_try_at: int | None
    warnings: list[str]
    row_total: int
    row_total_exact: bool
    created_at: int
    started_at: int | None
    updated_at: int
    finished_at: int | None

    @property
    def current_plan(self) -> Plan:
        """Return the plan."""
        return Plan.from_record(self.plan)

    @property
    def reorg(self) -> Reorg:
        """Return what the dialect works on."""
        return Reorg(self.id, Reshaping.from_record(self.plan["reshaping"]))

    @property
    def the_change(self) -> Change:
        """Return the parsed change."""
        return change_from_record(self.change)

    def task_key(self, stage: Stage, *, attempt: int | None = None) -> str:
        """Return the key of a long stage's task; a copy that starts again is another task."""
        number = self.attempt if attempt is None else attempt
        return f"ddl/{self.id}/{stage.name}" + (f"/{number}" if number else "")

    def wished(self) -> dict[str, Any]:
        """Return the wished values of what tasks take, by name."""
        return {name: entry["value"] for name, entry in self.parameters.items() if not PARAMETERS[name].of_cutover}

    def at_cutover(self, name: str) -> str:
        """Return the value of what the owner itself takes at the cut-over."""
        assert PARAMETERS[name].of_cutover
        return str(self.parameters[name]["value"] if name in self.parameters else PARAMETERS[name].default)


@dataclass(frozen=True, kw_only=True)
class Artifact:
    """Something that a job made, recorded before it was made."""

    job_id: int
    ordinal: int
    kind: str
    name: str
    created_at: int
    drop_after: int | None
    dropped_at: int | None

    @property
    def is_purged(self) -> bool:
        """Whether it is emptied in chunks before it is dropped, or goes with what is; the rest is dropped at once."""
        return self.kind in ("shadow", SHADOW_INDEX, "log")
