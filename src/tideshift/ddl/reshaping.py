"""How one change is carried out: what a dialect works out at plan time, what a person is shown of it, and what its job keeps."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any

from tideshift.ddl.change import TableName

__all__ = ["SHADOW_INDEX", "UNFINISHED_INDEX", "ArtifactName", "BuildGroup", "Claim", "NativeStep", "Reorg", "Reshaping", "RowWork", "SqlStep", "StepKind", "Strategy"]


@dataclass(frozen=True)
class SqlStep:
    """One thing that will be executed, for a person to read: phase, exact SQL, the lock, and how long it is held."""

    phase: str
    sql: str
    lock: str
    hold: str


class Strategy(StrEnum):
    """How a change is carried out."""

    INSTANT = "instant"
    DIRECT = "direct"
    NATIVE_ONLINE = "native_online"
    IN_PLACE_COLUMN = "in_place_column"
    SHADOW_TABLE = "shadow_table"


class RowWork(StrEnum):
    """What happens to the rows that are there."""

    NONE = "none"
    """No row is looked at."""
    SCAN = "scan"
    """Each is read; none is written."""
    REWRITE = "rewrite"
    """Each is written again in its place."""
    COPY = "copy"
    """Each is copied into a table that takes the place of the old one, which is purged."""


@dataclass(frozen=True)
class Claim:
    """An object that a job touches, by its folded name: exclusively, or beside others that only share it."""

    name: str
    mode: str = "exclusive"


class BuildGroup(StrEnum):
    """What a copy that was made without indexes gets afterwards; those of a group may be built side by side."""

    KEY = "key"
    """By what rows are found, so that the log can be applied."""
    OTHER = "other"
    """What refuses no row: built beside the key."""
    ENFORCING = "enforcing"
    """What refuses rows: built when copy and source were brought to one instant, and nothing is applied meanwhile."""
    LAST = "last"
    """What is done when everything else stands, such as statistics."""


SHADOW_INDEX = "shadow index"
"""The kind of what goes with the shadow table when that is dropped."""
UNFINISHED_INDEX = "unfinished index"
"""The kind of what a statement that was ended may have left; the finished index is no artifact."""


@dataclass(frozen=True)
class ArtifactName:
    """Something that a job makes: `kind` (shadow, shadow index, log, trigger, index, old table, canary) and its bare name."""

    kind: str
    name: str


class StepKind(StrEnum):
    """How a statement of the database's own is carried out."""

    SHORT = "short"
    """In one short transaction on the owner, together with the job's move."""
    LONG = "long"
    """In one transaction on a node, as long as a scan takes; ended on the server when the job is paused or cancelled."""
    ALONE = "alone"
    """Outside any transaction on a node: it commits by itself, so the catalogue is asked what became of it."""
    FILL = "fill"
    """A new column is filled in chunks, on as many nodes as there are."""
    COMPARE = "compare"
    """A filled column is compared with what it was filled from, in chunks."""


@dataclass(frozen=True, kw_only=True)
class NativeStep:
    """One statement, or a few in one transaction, of a change that the database makes itself; the last one is always short."""

    name: str
    """The stage's name; no other step of the change has it."""
    kind: StepKind
    text: str
    """What it is for, for a person to read."""
    schema_state: str
    makes: tuple[ArtifactName, ...] = ()
    """What it leaves behind that is taken away again when the job is undone."""
    revertible: bool = True
    """Whether the job can be undone once it has begun."""
    detail: dict[str, Any] = field(default_factory=dict)
    """The dialect's own record (JSON)."""

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> NativeStep:
        """Read the stored form."""
        makes = tuple(ArtifactName(**made) for made in record["makes"])
        return cls(**{**record, "kind": StepKind(record["kind"]), "makes": makes})


@dataclass(frozen=True, kw_only=True)
class Reshaping:
    """How a change is carried out, as the dialect worked it out from the catalogue."""

    table: TableName
    strategy: Strategy
    claims: tuple[Claim, ...]
    row_work: RowWork
    key_columns: tuple[str, ...]
    """The chunk key, as shown to a person (`rowid` where the table has no better one; nothing where no rows are taken by it)."""
    may_refuse_rows: bool
    """Whether a row can exist that the change refuses."""
    tries_rows_first: bool = False
    """Whether every row is tried before anything is made: only where a row's own values can be what is refused."""
    sees_references: bool = False
    """Whether a foreign key is touched, so that the rows that refer to one another must be looked at."""
    hold_seconds: float = 0.0
    """The longest that a lock is expected to be held at once."""
    row_seconds: float = 0.0
    """About how long a job takes for each row, pauses included."""
    chunk_rows: int = 200
    """How many rows a range's first chunk holds; then it follows the time that chunks take."""
    disk_bytes: int = 0
    """About how much room it takes while it lasts, beyond what the table has."""
    drops: tuple[str, ...] = ()
    """What goes for good though the statement does not name it, for a person to confirm."""
    sql_steps: tuple[SqlStep, ...]
    native_steps: tuple[NativeStep, ...] = ()
    """The statements of a change that the database makes itself, in order; nothing where one transaction or a shadow does it."""
    warnings: tuple[str, ...] = ()
    column_order_may_change: bool = False
    """Whether whoever asked has allowed that columns change their order, and that one more is seen meanwhile."""
    detail: dict[str, Any] = field(default_factory=dict)
    """The dialect's own record (JSON): texts, column lists, the fingerprint of rows and shape."""

    def as_record(self) -> dict[str, Any]:
        """Give the form stored in the job row; the SQL steps are for reading and are left out."""
        return {
            "table": {"schema": self.table.schema, "name": self.table.name},
            "strategy": str(self.strategy),
            "claims": [asdict(claim) for claim in self.claims],
            "row_work": str(self.row_work),
            "key_columns": list(self.key_columns),
            "may_refuse_rows": self.may_refuse_rows,
            "tries_rows_first": self.tries_rows_first,
            "sees_references": self.sees_references,
            "hold_seconds": self.hold_seconds,
            "row_seconds": self.row_seconds,
            "chunk_rows": self.chunk_rows,
            "disk_bytes": self.disk_bytes,
            "drops": list(self.drops),
            "native_steps": [asdict(step) for step in self.native_steps],
            "warnings": list(self.warnings),
            "column_order_may_change": self.column_order_may_change,
            "detail": self.detail,
        }

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Reshaping:
        """Read the stored form."""
        return cls(
            table=TableName(**record["table"]),
            strategy=Strategy(record["strategy"]),
            claims=tuple(Claim(**claim) for claim in record["claims"]),
            row_work=RowWork(record["row_work"]),
            key_columns=tuple(record["key_columns"]),
            may_refuse_rows=record["may_refuse_rows"],
            tries_rows_first=record["tries_rows_first"],
            sees_references=record["sees_references"],
            hold_seconds=record["hold_seconds"],
            row_seconds=record["row_seconds"],
            chunk_rows=record.get("chunk_rows", 200),
            disk_bytes=record["disk_bytes"],
            sql_steps=(),
            native_steps=tuple(NativeStep.from_record(step) for step in record.get("native_steps", ())),
            drops=tuple(record["drops"]),
            warnings=tuple(record["warnings"]),
            column_order_may_change=record.get("column_order_may_change", False),
            detail=record["detail"],
        )


@dataclass(frozen=True)
class Reorg:
    """One job's reshaping: the id gives the names of everything that is made for it."""

    job_id: int
    reshaping: Reshaping
