"""What a change is made of on PostgreSQL: clauses of one last ALTER TABLE, and the steps that make that one short.

A scan or a build that would keep writers out is taken out of the last statement: a constraint is added NOT VALID and
validated afterwards, an index is built CONCURRENTLY under a name of ours and only given its own name at the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import astuple, dataclass, field

from tideshift.ddl.machine import SchemaState
from tideshift.ddl.reshaping import ArtifactName, NativeStep, StepKind
from tideshift.dialects.postgres.driver import quote
from tideshift.dialects.postgres.locks import EVERYBODY, Lock, stronger
from tideshift.dialects.postgres.names import qualified
from tideshift.dialects.postgres.partitions import Partition
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
    mode: str = "ACCESS SHARE"
    """The strongest lock on the table that one of them needs."""
    others: list[Lock] = field(default_factory=list)
    """Other tables that the last transaction locks."""
    recurses: bool = False
    """Whether the last transaction changes the table's partitions, and locks them too."""
    before_last: list[str] = field(default_factory=list)
    """Whole statements before the last ALTER TABLE, in the same transaction."""
    covers: list[list[object]] = field(default_factory=list)
    """The partitions, by oid and name, that were worked on before the last transaction: there must be no others by then."""
    joins: str | None = None
    """An index of ours that must be valid by the last transaction, since every partition's was joined to it."""
    dropped: list[str] = field(default_factory=list)
    """What the server drops together with a column."""
    exclusive: list[str] = field(default_factory=list)
    """Other tables that no other job may touch meanwhile."""

    def clause(self, text: str, mode: str = EVERYBODY, *, recurses: bool = True) -> None:
        """Add a clause of the last ALTER TABLE, the lock that the server takes for it, and whether on partitions too."""
        self.clauses.append(text)
        self._needs(mode, recurses=recurses)

    def statement(self, sql: str, mode: str = EVERYBODY, *, recurses: bool = True) -> None:
        """Add a whole statement behind the last ALTER TABLE, and the lock on the table that it needs."""
        self.last.append(sql)
        self._needs(mode, recurses=recurses)

    def _needs(self, mode: str, *, recurses: bool) -> None:
        self.mode = stronger(self.mode, mode)
        self.recurses |= recurses

    def lock(self, mode: str, *, tree: bool = True) -> Lock:
        """Return the lock of the table with all its partitions."""
        return Lock(self.source.oid, self.source.quoted, mode, tree=tree)

    def short(
        self, name: str, text: str, sql: list[str], *, makes: tuple[ArtifactName, ...] = (), locks: Sequence[Lock] | None = None,
        demands: tuple[str, ...] = (), partitions: Sequence[Partition] = (), schema_state: str = _MAKING,
    ) -> None:  # fmt: skip
        """Add a step in one short transaction; without locks of its own it keeps everybody from the table. `demands`: columns that are NOT NULL from then on."""
        detail = {"sql": sql, "locks": _stored([self.lock(EVERYBODY)] if locks is None else locks), "demands": list(demands), **_of(partitions)}
        self.steps.append(NativeStep(name=self._free(name), kind=StepKind.SHORT, text=text, schema_state=schema_state, makes=makes, detail=detail))

    def validate(self, constraint: str, *, table: str | None = None) -> None:
        """Add the scan that proves a constraint on the rows that are there, of the table or of one of its partitions."""
        of = self.source.quoted if table is None else table
        sql = f"ALTER TABLE {of} VALIDATE CONSTRAINT {quote(constraint)}"
        where = "" if table is None else f" in {table}"
        text = f"look at every row{where} for the constraint {constraint}; writers go on"
        self.steps.append(NativeStep(
            name=self._free(f"validate {constraint}{where}"), kind=StepKind.LONG, text=text, schema_state=_LOOKING,
            detail={"sql": [sql], "constraint": constraint, "of": of},
        ))  # fmt: skip

    def long(self, name: str, kind: StepKind, text: str, sql: list[str], *, schema_state: str = _LOOKING, revertible: bool = True) -> None:
        """Add a step that takes as long as it takes, beside the traffic."""
        self.steps.append(NativeStep(name=self._free(name), kind=kind, text=text, schema_state=schema_state, revertible=revertible, detail={"sql": sql}))

    def build_index(
        self, name: str, sql: str, *, unique: bool, schema: str | None = None, where: str = "", partitions: Sequence[Partition] = ()
    ) -> None:
        """Add an index that is built beside the traffic, under a name of ours."""
        made = ArtifactName("index", qualified(schema or self.source.schema, name))
        self.steps.append(NativeStep(
            name=self._free(f"build an index{where}"), kind=StepKind.ALONE, text="build the index; writers go on", schema_state=_LOOKING, makes=(made,),
            detail={"does": "build", "sql": [sql], "index": made.name, "unique": unique, **_of(partitions)},
        ))  # fmt: skip

    def alone(
        self, name: str, text: str, sql: str, *, does: str, revertible: bool = True, makes: tuple[ArtifactName, ...] = (), **detail: object
    ) -> None:
        """Add another statement that commits by itself; `does` says how what became of it is seen in the catalogue."""
        self.steps.append(NativeStep(
            name=self._free(name), kind=StepKind.ALONE, text=text, schema_state=_LOOKING, revertible=revertible, makes=makes,
            detail={"does": does, "sql": [sql], **detail},
        ))  # fmt: skip

    def finished(self) -> tuple[NativeStep, ...]:
        """Return all steps, with the last short one that puts the new shape in force."""
        sql = [f"ALTER TABLE {self.source.quoted} {', '.join(self.clauses)}"] if self.clauses else []
        sql = [*self.before_last, *sql, *self.last]
        locks = [self.lock(self.mode, tree=self.recurses), *self.others] if sql else []
        text = "put the new shape in force" if sql else "see that it is in force"
        detail = {"sql": sql, "locks": _stored(locks), "covers": self.covers, "joins": self.joins}
        return (*self.steps, NativeStep(name=self._free("change"), kind=StepKind.SHORT, text=text, schema_state=_THERE, detail=detail))

    def _free(self, name: str) -> str:
        taken = {step.name for step in self.steps}
        number = 2
        free = name
        while free in taken:
            free, number = f"{name} ({number})", number + 1
        return free


def _of(partitions: Sequence[Partition]) -> dict[str, object]:
    """Return the part of a step's record that says which partitions it is about."""
    return {"partitions": [[one.oid, one.quoted] for one in partitions]} if partitions else {}


def _stored(locks: Sequence[Lock]) -> list[list[object]]:
    return [list(astuple(lock)) for lock in locks]
