"""What the DDL engine asks of a database: outcomes, never names.

A dialect works out once, at plan time, how a change is carried out (`Dialect.design`); everything after that takes the
job's `Reorg` (that design plus the job's id) and one open transaction. The dialect never commits, never writes a system
table, and keeps nothing between calls but what it may forget, so that any node can go on where another one died.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

from tideshift.ddl.change import Change, TableName
from tideshift.ddl.grammar import Grammar
from tideshift.ddl.in_place import ChunkResult, Comparison, InPlace
from tideshift.ddl.load import Blocker, DiskRoom, InTheWay, Load, LockHolder
from tideshift.ddl.reshaping import (
    SHADOW_INDEX,
    ArtifactName,
    BuildGroup,
    Claim,
    NativeStep,
    Reorg,
    Reshaping,
    RowWork,
    SqlStep,
    StepKind,
    Strategy,
)
from tideshift.store.database import Database, Session, Transaction
from tideshift.store.keys import Bound, KeyOrder, KeyRange

__all__ = [
    "SHADOW_INDEX", "AppliedBatch", "ArtifactName", "Blocker", "BuildGroup", "Capabilities", "Catalog", "ChunkResult", "Claim", "Committing", "Comparison",
    "DiskRoom", "DoctorFinding", "Dialect", "Durability", "InPlace", "InTheWay", "Load", "LockHolder", "Native", "NativeStep", "Remains", "Reorg", "Reshaping", "RowWork",
    "Shadow", "SqlStep", "StepKind", "Strategy", "Weight",
]  # fmt: skip


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
    empties_tables: bool
    """Whether a large table is emptied in chunks before it is dropped, since dropping it as it is would keep writers waiting."""
    copy_log_rows: int
    """From how many log rows on the log is drained while rows are copied."""
    changes_columns_in_place: bool
    """Whether a column can be given another type within its table, by a new one that takes its place."""


@dataclass(frozen=True, kw_only=True)
class AppliedBatch:
    """What one catch-up batch consumed: log rows, and the distinct keys that were applied."""

    log_rows: int
    keys: int


class Weight(StrEnum):
    """How much a finding weighs: a choice of the user's that is only told, a fault, or one so grave that every run says it."""

    NOTE = "note"
    FINDING = "finding"
    EVERY_RUN = "every run"


@dataclass(frozen=True, kw_only=True)
class Durability:
    """What survives a power failure by this database's own settings, in a sentence each."""

    setting: str
    """The setting that decides, as it is now."""
    commands: str
    """Commands, states and the swap."""
    rows: str
    """What a job copies."""
    application: str
    """What the application commits itself."""


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

    def durability(self, tx: Transaction) -> Durability:
        """Return what this database's settings can lose."""
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
        """Copy the first `rows_max` rows of the range into the shadow; where that has its key's index, doing it twice is the same as once.

        Raises `ValueRefused` with the key of a row that the new shape refuses.
        """
        ...

    def backlog(self, tx: Transaction, reorg: Reorg, *, limit: int) -> int:
        """Return how many log rows wait; past `limit` it need not count on, and says `limit + 1`."""
        ...

    def log_bytes(self, tx: Transaction, reorg: Reorg) -> int:
        """Return about how much room the log's rows take; fast however many there are."""
        ...

    def apply_batch(self, tx: Transaction, reorg: Reorg, *, rows_max: int) -> AppliedBatch:
        """Apply the oldest log rows by re-reading the source's current rows, and remove them from the log.

        May widen the batch, at most to the whole log, when a unique value moved between rows. A copy that has no index of
        its key yet applies nothing while the log is short, and gets that index when it has become long. Raises `ValueRefused`.
        """
        ...

    def builds(self, reorg: Reorg, group: BuildGroup) -> list[int]:
        """Number what is built of a group after the copy; nothing where it stands from the start."""
        ...

    def build(self, tx: Transaction, reorg: Reorg, number: int, *, side_by_side: int = 1, gently: bool = False) -> None:
        """Build one of them, unless it stands already. Raises `ValueRefused` when the source's own rows violate it.

        `side_by_side` is how many are built here at the same time; `gently`: without helpers of the server's that would take more of the machine.
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

    def hold_still(self, tx: Transaction, reorg: Reorg, *, tries: int) -> None:
        """Take every lock that the swap needs, so that nothing is written any more; `tries` is how often that failed, for the wait.

        Raises `LockTimeout` naming who is in the way.
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


class Remains(Protocol):
    """What jobs have made and nobody needs any more."""

    def warm_up(self, tx: Transaction, artifact: ArtifactName) -> bool:
        """Read, without any lock that keeps a writer out, what the next `empty_chunk` would read under one; return whether there was such."""
        ...

    def empty_chunk(self, tx: Transaction, artifact: ArtifactName, *, rows_max: int) -> int:
        """Delete up to `rows_max` rows of a table of ours; return how many went (0: it is empty or gone)."""
        ...

    def drop(self, tx: Transaction, artifact: ArtifactName, *, tries: int = 0) -> None:
        """Drop one artifact; one that is already gone is fine. `tries` is how often it failed, for the wait for its lock."""
        ...


class Native(Protocol):
    """Changes by the database's own statements, or by a rebuild of a small table: one short transaction, or a few steps."""

    def artifacts(self, reorg: Reorg) -> list[ArtifactName]:
        """Name what `change` leaves behind for a purge: the replaced table (kind `shadow`), or nothing."""
        ...

    def made_by(self, reorg: Reorg, step: int) -> list[ArtifactName]:
        """Name what a native step leaves behind that is dropped again when the job is undone."""
        ...

    def change(self, tx: Transaction, reorg: Reorg, *, step: int = 0, tries: int = 0) -> None:
        """Carry the change, or one short step of it, out as a whole, and see that it did what was planned and nothing else.

        `tries` is how often the step failed so far, for the wait for its locks. Raises `SchemaChanged` when something is no
        longer as it was planned for, or `ValueRefused` with a row's key or values.
        """
        ...

    def run_long(self, tx: Transaction, reorg: Reorg, step: int, checkpoint: dict[str, Any]) -> dict[str, Any] | None:
        """Run a long step, or the part of it behind the checkpoint ({}: from the start); return how far it came, None when it is done.

        Raises as `change` does.
        """
        ...

    def run_alone(self, session: Session, reorg: Reorg, step: int, *, gently: bool = False) -> None:
        """Run a step that commits by itself: see what an earlier try left, then finish it or do it anew. Raises as `change` does."""
        ...

    def inspect(self, session: Session, reorg: Reorg) -> None:
        """See with a connection that did not change anything that the catalogue is what was planned; raise `SchemaChanged`."""
        ...


class Committing(Protocol):
    """Changes by statements that commit by themselves whatever transaction they stand in, run by the owner in attempts."""

    def attempt(self, session: Session, reorg: Reorg, step: int, *, tries: int) -> None:
        """Run the statement of a short step once, unless it has got through already; its locks are waited for only for moments.

        `tries` is how often the step failed so far. Raises `LockTimeout` naming who is in the way, `SchemaChanged` when
        something is no longer as it was planned for, or `ValueRefused`.
        """
        ...

    def has_happened(self, session: Session, reorg: Reorg, step: int) -> bool:
        """Whether the statement of a step got through, as the catalogue tells; asked when no session can run it any more."""
        ...


class Dialect(Protocol):
    """One kind of database, as the DDL engine needs it."""

    @property
    def capabilities(self) -> Capabilities:
        """What it can do."""
        ...

    @property
    def grammar(self) -> Grammar:
        """How its statements are spelt."""
        ...

    @property
    def catalog(self) -> Catalog:
        """What is in it."""
        ...

    @property
    def native(self) -> Native:
        """Changes by its own statements."""
        ...

    @property
    def committing(self) -> Committing | None:
        """The short steps of changes where DDL commits by itself; None where it is part of its transaction."""
        ...

    @property
    def shadow(self) -> Shadow:
        """Changes by a shadow table."""
        ...

    @property
    def in_place(self) -> InPlace:
        """Changes of a column within its table, where the capability is there."""
        ...

    @property
    def remains(self) -> Remains:
        """What is left of jobs."""
        ...

    @property
    def load(self) -> Load:
        """How busy it is."""
        ...

    def design(self, tx: Transaction, change: Change, *, strategy: Strategy | None = None, column_order_may_change: bool = False) -> Reshaping:
        """Work out the cheapest way that does a change right, or the one that is asked for; makes nothing.

        Raises `NotFound`, `BadStatement` with the text of the change that is wrong by itself and the offset in it, or
        `PlanRefused` with every reason.
        """
        ...
