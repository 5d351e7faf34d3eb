"""What the DDL engine asks of a database: outcomes, never names.

A dialect works out once, at plan time, how a change is carried out (`Dialect.design`); everything after that takes the
job's `Reorg` (that design plus the job's id) and one open transaction. The dialect never commits, never writes a system
table, and keeps no state of its own between calls, so that any node can go on where another one died.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import Any, Protocol

from tideshift.ddl.change import Change, TableName
from tideshift.store.database import Database, Session, Transaction
from tideshift.store.keys import Bound, KeyOrder, KeyRange

__all__ = [
    "AppliedBatch",
    "ArtifactName",
    "Capabilities",
    "Catalog",
    "ChunkResult",
    "Claim",
    "Comparison",
    "DoctorFinding",
    "Dialect",
    "Load",
    "LoadSignal",
    "Native",
    "Reorg",
    "Reshaping",
    "Shadow",
    "SqlStep",
    "Strategy",
    "Weight",
]


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What this database can do for a schema change; the docs print the matrix from these."""

    concurrent_writers: bool
    transactional_swap: bool
    """Whether the swap of a shadow table and the job's own move commit together."""
    chunk_target_seconds: float
    """How long one chunk should hold its locks."""
    keep_old_seconds: float
    """How long a replaced table is kept when nobody says otherwise."""
    indexes_with_shadow: bool
    """Whether secondary indexes stand on the empty shadow instead of being built after the copy."""


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


@dataclass(frozen=True)
class Claim:
    """An object that a job touches, by its folded name: exclusively, or beside others that only share it."""

    name: str
    mode: str = "exclusive"


@dataclass(frozen=True, kw_only=True)
class Reshaping:
    """How a change is carried out, as the dialect worked it out from the catalogue."""

    table: TableName
    strategy: Strategy
    claims: tuple[Claim, ...]
    key_columns: tuple[str, ...]
    """The chunk key, as shown to a person (`rowid` where the table has no better one; nothing where no row is copied)."""
    may_refuse_rows: bool
    """Whether a row can exist that the change refuses."""
    tries_rows_first: bool = False
    """Whether every row is tried before anything is made."""
    sees_references: bool = False
    """Whether a foreign key is touched, so that the rows that refer to one another must be looked at."""
    hold_seconds: float = 0.0
    """The longest that a lock is expected to be held at once."""
    sql_steps: tuple[SqlStep, ...]
    warnings: tuple[str, ...] = ()
    detail: dict[str, Any] = field(default_factory=dict)
    """The dialect's own record (JSON): texts, column lists, the fingerprint of rows and shape."""

    def as_record(self) -> dict[str, Any]:
        """Give the form stored in the job row; the SQL steps are for reading and are left out."""
        return {
            "table": {"schema": self.table.schema, "name": self.table.name},
            "strategy": str(self.strategy),
            "claims": [asdict(claim) for claim in self.claims],
            "key_columns": list(self.key_columns),
            "may_refuse_rows": self.may_refuse_rows,
            "tries_rows_first": self.tries_rows_first,
            "sees_references": self.sees_references,
            "hold_seconds": self.hold_seconds,
            "warnings": list(self.warnings),
            "detail": self.detail,
        }

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> Reshaping:
        """Read the stored form."""
        return cls(
            table=TableName(**record["table"]),
            strategy=Strategy(record["strategy"]),
            claims=tuple(Claim(**claim) for claim in record["claims"]),
            key_columns=tuple(record["key_columns"]),
            may_refuse_rows=record["may_refuse_rows"],
            tries_rows_first=record["tries_rows_first"],
            sees_references=record["sees_references"],
            hold_seconds=record["hold_seconds"],
            sql_steps=(),
            warnings=tuple(record["warnings"]),
            detail=record["detail"],
        )


@dataclass(frozen=True)
class Reorg:
    """One job's reshaping: the id gives the names of everything that is made for it."""

    job_id: int
    reshaping: Reshaping


@dataclass(frozen=True)
class ArtifactName:
    """Something that a job makes: `kind` (shadow, log, trigger, index, old table, canary) and its bare name."""

    kind: str
    name: str


@dataclass(frozen=True, kw_only=True)
class ChunkResult:
    """What one chunk did: rows, their approximate size, and the last key (None when the range held no more rows)."""

    rows: int
    size_bytes: int
    last: Bound | None


@dataclass(frozen=True, kw_only=True)
class AppliedBatch:
    """What one catch-up batch consumed: log rows, and the distinct keys that were applied."""

    log_rows: int
    keys: int


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What comparing one range found: rows compared, keys left out because the log names them, keys that differ."""

    rows: int
    excluded: int
    differing: tuple[Bound, ...]
    last: Bound | None


@dataclass(frozen=True, kw_only=True)
class LoadSignal:
    """One measure of outside load: its name, present value, and the limit that would slow a job (None: none)."""

    name: str
    value: float
    limit: float | None


class Weight(StrEnum):
    """How much a finding weighs: a choice of the user's that is only told, a fault, or one so grave that every run says it."""

    NOTE = "note"
    FINDING = "finding"
    EVERY_RUN = "every run"


@dataclass(frozen=True, kw_only=True)
class DoctorFinding:
    """One thing worth a person's attention: a stable code, what is so, and what to do."""

    code: str
    message: str
    hint: str
    weight: Weight = Weight.FINDING


class Catalog(Protocol):
    """What is in the database, as its own catalogue tells."""

    def row_estimate(self, tx: Transaction, table: TableName) -> tuple[int, bool]:
        """Return the number of rows and whether it is exact; fast whatever the table's size."""
        ...

    def objects(self, tx: Transaction) -> set[tuple[str, str]]:
        """Return (type, name) of everything in the user's schema whose name is in our namespace but no system table."""
        ...

    def findings(self, database: Database) -> list[DoctorFinding]:
        """Return what about this database or its library is worth a warning."""
        ...


class Shadow(Protocol):
    """The shadow table's whole life. Each verb runs inside the transaction it is given, and only there."""

    def artifacts(self, reorg: Reorg) -> list[ArtifactName]:
        """Name everything that `install` will make, in the order of making."""
        ...

    def key_order(self, reorg: Reorg) -> KeyOrder:
        """Return the order of the source's chunk key."""
        ...

    def copied_key_order(self, reorg: Reorg) -> KeyOrder:
        """Return the same order of the same key, in the shadow."""
        ...

    def check_rows(self, tx: Transaction, reorg: Reorg, key_range: KeyRange, *, rows_max: int) -> ChunkResult:
        """Try the rows of the range on the new shape without making anything in the user's database.

        Raises `ValueRefused` with the key of a row that does not fit.
        """
        ...

    def install(self, tx: Transaction, reorg: Reorg) -> None:
        """Make the shadow, its indexes, the key log and the capture triggers, and see in the catalogue that they are in force.

        Raises `SchemaChanged` when the table is no longer the one that was planned for.
        """
        ...

    def check(self, tx: Transaction, reorg: Reorg) -> None:
        """Assert, cheaply, that source, shadow, log and triggers are the recorded ones; raise `SchemaChanged` if not."""
        ...

    def copy_chunk(self, tx: Transaction, reorg: Reorg, key_range: KeyRange, *, rows_max: int) -> ChunkResult:
        """Copy the first `rows_max` rows of the range into the shadow; doing it twice is the same as once.

        Raises `ValueRefused` with the key of a row that the new shape refuses.
        """
        ...

    def backlog(self, tx: Transaction, reorg: Reorg, *, limit: int) -> int:
        """Return how many log rows wait; past `limit` it need not count on, and says `limit + 1`."""
        ...

    def apply_batch(self, tx: Transaction, reorg: Reorg, *, rows_max: int) -> AppliedBatch:
        """Apply the oldest log rows by re-reading the source's current rows, and remove them from the log.

        May widen the batch, at most to the whole log, when a unique value moved between rows. Raises `ValueRefused`.
        """
        ...

    def compare_chunk(self, tx: Transaction, reorg: Reorg, key_range: KeyRange, *, rows_max: int) -> Comparison:
        """Compare source and shadow in the transaction's snapshot, both ways, leaving out keys in the log."""
        ...

    def request_repair(self, tx: Transaction, reorg: Reorg, keys: tuple[Bound, ...]) -> None:
        """Write these keys into the log, so that catch-up repairs them."""
        ...

    def rows_of(self, tx: Transaction, reorg: Reorg, key: Bound) -> dict[str, Any]:
        """Return both rows of one key as text, for a person to compare: `{"source": {column: text}, "copy": {…}}`."""
        ...

    def see_references(
        self, tx: Transaction, reorg: Reorg, seen: dict[str, Any] | None, *, rows_max: int, swapped: bool
    ) -> dict[str, Any] | None:
        """See that the next rows behind `seen` (None: from the start) find the rows that they refer to in the new shape.

        Returns how far it came (JSON), None when there is no more. Raises `ValueRefused` with the key of a row that would
        lose the row that it refers to, or after the swap `SchemaChanged`.
        """
        ...

    def swap(self, tx: Transaction, reorg: Reorg) -> None:
        """Let the new shape take the table's place, with everything attached kept; remove capture.

        Asserts that the log is empty and that `check` holds. Afterwards the artifact `shadow` holds the old rows.
        Raises `SchemaChanged`.
        """
        ...

    def inspect_swapped(self, session: Session, reorg: Reorg) -> None:
        """See with a connection that did not swap that the catalogue is what was planned; raise `SchemaChanged`."""
        ...

    def empty_chunk(self, tx: Transaction, artifact: ArtifactName, *, rows_max: int) -> int:
        """Delete up to `rows_max` rows of a table of ours; return how many went (0: it is empty or gone)."""
        ...

    def drop(self, tx: Transaction, artifact: ArtifactName) -> None:
        """Drop one artifact; one that is already gone is fine."""
        ...


class Native(Protocol):
    """Changes in one short transaction: the database's own statements, or a rebuild of a small table."""

    def artifacts(self, reorg: Reorg) -> list[ArtifactName]:
        """Name what `change` leaves behind for a purge: the replaced table (kind `shadow`), or nothing."""
        ...

    def change(self, tx: Transaction, reorg: Reorg) -> None:
        """Carry the change out as a whole, and see that it did what was planned and nothing else.

        Raises `SchemaChanged` when something is no longer as it was planned for, or `ValueRefused` with a row's key or values.
        """
        ...

    def inspect(self, session: Session, reorg: Reorg) -> None:
        """See with a connection that did not change anything that the catalogue is what was planned; raise `SchemaChanged`."""
        ...


class Load(Protocol):
    """How busy the database is."""

    def signals(self, database: Database) -> list[LoadSignal]:
        """Measure now."""
        ...


class Dialect(Protocol):
    """One kind of database, as the DDL engine needs it."""

    capabilities: Capabilities
    catalog: Catalog
    native: Native
    shadow: Shadow
    load: Load

    def design(self, tx: Transaction, change: Change, *, strategy: Strategy | None = None) -> Reshaping:
        """Work out the cheapest way that does a change right, or the one that is asked for; makes nothing.

        Raises `NotFound`, or `PlanRefused` with every reason.
        """
        ...
