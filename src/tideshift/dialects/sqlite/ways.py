"""The ways of carrying a change out, each put together as what a person is shown and a job keeps.

Tried in this order: the database's own statement where it touches no row or is over within the lock's budget; a rebuild in
one transaction where that is; a shadow table. A person may ask for one of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from tideshift.ddl.change import TableName
from tideshift.ddl.dialect import Claim, Reshaping, RowWork, Strategy
from tideshift.dialects.sqlite import estimate, explain
from tideshift.dialects.sqlite.catalog import SourceTable
from tideshift.dialects.sqlite.create_index import parse_index
from tideshift.dialects.sqlite.create_table import ClauseKind, parse_table
from tideshift.dialects.sqlite.driver import SqliteDriver
from tideshift.dialects.sqlite.layout import Layout
from tideshift.dialects.sqlite.native import NativeChange
from tideshift.dialects.sqlite.references import are_touched
from tideshift.dialects.sqlite.refusals import NO_ROW, Refusals, row_refusals
from tideshift.dialects.sqlite.reshape import Reshape, lay_out, refused, try_shapes
from tideshift.dialects.sqlite.scratch import schema_can_be_written
from tideshift.errors import PlanRefused
from tideshift.store.database import Transaction
from tideshift.store.tables import NAMESPACE

__all__ = ["Own", "Ways", "see_name"]

_DEFENSIVE = (
    "this SQLite library does not let its schema table be written (it is built as defensive); "
    "use another one: pip install 'tideshift[sqlite]'"
)
_FOREIGN_KEYS = (
    "this SQLite library turns foreign_keys on by itself, which would look at every row that is purged; "
    "use another one: pip install 'tideshift[sqlite]'"
)


@dataclass(frozen=True, kw_only=True)
class Own:
    """The database's own way: statements, the longest hold that is expected, what happens to rows, the room that it takes."""

    change: NativeChange
    hold_seconds: float
    row_work: RowWork
    instant: bool
    disk_bytes: int = 0


class Ways:
    """What can be done in the transaction that is given, and which way is wished."""

    def __init__(self, tx: Transaction, driver: SqliteDriver, wished: Strategy | None) -> None:
        self.tx = tx
        self.driver = driver
        self.wished = wished

    def allows(self, own: Own) -> bool:
        """Whether the database's own statements are the way to go."""
        if self.wished is None:
            return own.instant or own.hold_seconds <= estimate.LOCK_BUDGET_SECONDS
        return self.wished is Strategy.DIRECT or (self.wished is Strategy.INSTANT and own.instant)

    def native(
        self,
        source: SourceTable,
        own: Own,
        *,
        laid_out: tuple[Layout, Reshape] | None = None,
        new_name: str | None = None,
        may_refuse: bool = False,
        told: tuple[str, ...] = (),
    ) -> Reshaping:
        """Take the database's own statements; with a layout, rows that they could refuse are tried before."""
        if self.wished is Strategy.INSTANT and not own.instant:
            raise refused(source, ["rows must be read or written for it"])
        layout, refusals = (None, NO_ROW) if laid_out is None else (laid_out[0], self._refusals(*laid_out))
        tried = layout if refusals.alone and self.wished is not Strategy.DIRECT else None
        claims = [Claim(str(row.table).lower()) for row in own.change.before]
        claims += [Claim(source.name.lower())] + ([Claim(new_name.lower())] if new_name is not None else [])
        return Reshaping(
            table=TableName(None, source.name),
            strategy=Strategy.INSTANT if own.instant else Strategy.DIRECT,
            claims=tuple(dict.fromkeys(claims)),
            row_work=own.row_work,
            key_columns=() if tried is None else tried.shown_key,
            may_refuse_rows=may_refuse or refusals.any,
            tries_rows_first=tried is not None,
            sees_references=False,
            hold_seconds=own.hold_seconds,
            row_seconds=0.0 if tried is None else estimate.TRIED_ROW_SECONDS,
            disk_bytes=own.disk_bytes,
            drops=() if layout is None else self._counter_dropped(layout),
            sql_steps=explain.native_steps(self.tx, own.change.statements, estimate.hold_text(own.hold_seconds), tried, self.driver),
            warnings=(*told, *explain.waits(own.hold_seconds)),
            detail={"layout": None if layout is None else layout.as_record(), "native": own.change.as_record()},
        )

    def rebuilt(self, asked: Reshape, rows: int) -> Reshaping:
        """Rebuild the table: in one transaction where it is small or this is wished for, else by a shadow table."""
        layout = self._laid_out(asked)
        _, new = try_shapes(asked, self.driver)
        terms = [len(parse_index(index.text).terms) for index in layout.made_indexes]
        terms += [len(index.key_terms) for index in new.shape.indexes if index.name in layout.new.automatic_indexes]
        hold = estimate.rebuild_seconds(rows, index_terms=terms, row_bytes=layout.row_bytes)
        direct = self.wished is Strategy.DIRECT or (self.wished is None and hold <= estimate.LOCK_BUDGET_SECONDS)
        if not direct:
            layout = lay_out(self.tx, asked, self.driver, captured=True)
        sees_references = are_touched(self.tx, layout)
        refusals = row_refusals(layout, asked, new, self.driver, copied=True, references=sees_references)
        tried_first = refusals.alone and self.wished is not Strategy.DIRECT  # who wants it fast has it tried once, by the change itself
        told = explain.Told(self.tx, layout, self.driver, tried_first=tried_first)
        warned = explain.warnings(self.tx, layout, asked.actions, captured=not direct) + (explain.waits(hold) if direct else [])
        return Reshaping(
            table=TableName(None, asked.source.name),
            strategy=Strategy.DIRECT if direct else Strategy.SHADOW_TABLE,
            claims=(Claim(asked.source.name.lower()),),
            row_work=RowWork.COPY,
            key_columns=layout.shown_key,
            may_refuse_rows=refusals.any or any(parse_index(index.text).unique for index in asked.added_indexes),
            tries_rows_first=tried_first,
            sees_references=sees_references,
            hold_seconds=hold if direct else estimate.CHUNK_TARGET_SECONDS,
            row_seconds=estimate.TRIED_ROW_SECONDS * tried_first if direct else estimate.row_seconds(indexes=len(terms)),
            disk_bytes=estimate.disk_bytes(rows, indexes=len(terms), row_bytes=layout.row_bytes, at_once=direct),
            drops=self._counter_dropped(layout),
            sql_steps=told.direct_steps(estimate.hold_text(hold)) if direct else told.shadow_steps(),
            warnings=tuple(warned),
            detail={"layout": layout.as_record(), "native": None},
        )

    def _refusals(self, layout: Layout, asked: Reshape) -> Refusals:
        _, new = try_shapes(asked, self.driver)
        return row_refusals(layout, asked, new, self.driver, copied=False, references=False)

    def _laid_out(self, asked: Reshape) -> Layout:
        """Lay a rebuild out, or raise `PlanRefused` with the reasons against any rebuild as well."""
        reasons = [] if schema_can_be_written(self.driver) else [_DEFENSIVE]
        if self.tx.run_verbatim("PRAGMA foreign_keys").scalar():
            reasons.append(_FOREIGN_KEYS)
        if self.wished is Strategy.INSTANT:
            reasons.append("every row must be written again")
        try:
            layout = lay_out(self.tx, asked, self.driver, captured=False)
        except PlanRefused as error:
            reasons += error.fields["reasons"]
            raise refused(asked.source, reasons) from error
        if reasons:
            raise refused(asked.source, reasons)
        return layout

    def _counter_dropped(self, layout: Layout) -> tuple[str, ...]:
        """Say that an AUTOINCREMENT counter goes with the key that is dropped."""
        had, has = (any(clause.kind is ClauseKind.AUTOINCREMENT for clause in parse_table(side.text).clauses()) for side in (layout.old, layout.new))
        if not had or has:
            return ()
        last = self.tx.run_verbatim("SELECT seq FROM sqlite_sequence WHERE name = ?", (layout.table,)).scalar()
        counter = "its row in sqlite_sequence" + ("" if last is None else f" (now {last})")
        return (f"AUTOINCREMENT of {layout.table} is dropped with {counter}, so that the numbers of deleted rows may be given again",)


def see_name(source: SourceTable, name: str) -> None:
    """Refuse a new name that would be taken for one of ours."""
    if name.lower().startswith(f"{NAMESPACE}_"):
        raise refused(source, [f"names that begin with {NAMESPACE}_ are tideshift's own"])
