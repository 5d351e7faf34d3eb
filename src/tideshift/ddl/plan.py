"""From a statement or a typed operation to a plan, or to a refusal with every reason; writes nothing.

`Proposal` is what a person is shown before anything is made: the plan, the SQL it will run, sizes and estimates.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from tideshift.ddl.actions.in_place import in_place_plan
from tideshift.ddl.actions.native_online import native_online_plan
from tideshift.ddl.actions.one_transaction import one_transaction_plan
from tideshift.ddl.actions.shadow import shadow_plan
from tideshift.ddl.change import AlterTable, Change, DropColumn, DropIndex
from tideshift.ddl.dialect import Dialect, DiskRoom, Durability, Reshaping, SqlStep, Strategy
from tideshift.ddl.grammar import PLAIN, Grammar
from tideshift.ddl.job import Plan
from tideshift.ddl.reader import pointing
from tideshift.ddl.rendering import as_statement
from tideshift.ddl.statement import parse_statement
from tideshift.errors import BadStatement, PlanRefused
from tideshift.store.database import Transaction

__all__ = ["Proposal", "located", "propose", "read_change", "stages_of"]


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """A plan with what a person wants to know before saying yes."""

    change: Change
    plan: Plan
    sql_steps: tuple[SqlStep, ...]
    warnings: tuple[str, ...]
    rows: int
    rows_exact: bool
    seconds_estimate: float
    disk_free_bytes: int | None
    durability: Durability

    @property
    def drops(self) -> tuple[str, ...]:
        """Return what the change takes away for good, named by the statement or not."""
        if isinstance(self.change, DropIndex):
            return (f"index {self.change.index} is dropped",)
        actions = self.change.actions if isinstance(self.change, AlterTable) else ()
        table = self.plan.reshaping.table
        columns = [f"column {action.column} of {table} is dropped with its values" for action in actions if isinstance(action, DropColumn)]
        return (*columns, *self.plan.reshaping.drops)


def read_change(statement: str | Change, grammar: Grammar = PLAIN) -> Change:
    """Read a statement; a typed operation must say the same as the statement that is made of it. Raises `BadStatement`."""
    if isinstance(statement, str):
        return parse_statement(statement, grammar)
    if isinstance(statement, AlterTable) and not statement.actions:
        raise BadStatement("an ALTER TABLE has at least one action")
    text = as_statement(statement, grammar.name_quote)
    if parse_statement(text, grammar) != statement:
        raise BadStatement(f"a text in {statement!r} is not what it is said to be: as a statement it reads {text!r}")
    return statement


@contextmanager
def located(statement: str | Change, grammar: Grammar = PLAIN) -> Iterator[None]:
    """Let an error that names a place in a text of the change point at that place in the statement."""
    try:
        yield
    except BadStatement as error:
        fragment, offset = error.fields.get("fragment"), error.fields.get("offset")
        if fragment is None or offset is None:
            raise
        text = statement if isinstance(statement, str) else as_statement(statement, grammar.name_quote)
        start = text.find(fragment)
        raise pointing(text if start >= 0 else fragment, max(start, 0) + offset, error.message) from error


def stages_of(reshaping: Reshaping) -> Plan:
    """Return the plan of a reshaping, by its strategy."""
    if reshaping.strategy is Strategy.SHADOW_TABLE:
        return shadow_plan(reshaping)
    if reshaping.strategy is Strategy.IN_PLACE_COLUMN:
        return in_place_plan(reshaping)
    return native_online_plan(reshaping) if reshaping.native_steps else one_transaction_plan(reshaping)


def propose(
    tx: Transaction, dialect: Dialect, change: Change, *, strategy: Strategy | None = None, column_order_may_change: bool = False
) -> Proposal:  # fmt: skip
    """Work out the plan from the catalogue; raise `PlanRefused` or `NotFound`."""
    if strategy is Strategy.IN_PLACE_COLUMN and not dialect.capabilities.changes_columns_in_place:
        raise PlanRefused("a column cannot be changed in place on this database", reasons=["this database has no way to change a column within its table"])
    designed = dialect.design(tx, change, strategy=strategy, column_order_may_change=column_order_may_change)
    reshaping = replace(designed, column_order_may_change=column_order_may_change)
    rows, exact = dialect.catalog.row_estimate(tx, reshaping.table)
    room = dialect.load.room()
    return Proposal(
        change=change,
        plan=stages_of(reshaping),
        sql_steps=reshaping.sql_steps,
        warnings=(*reshaping.warnings, *_short_of_room(reshaping, room)),
        rows=rows,
        rows_exact=exact,
        seconds_estimate=round(reshaping.hold_seconds + rows * reshaping.row_seconds, 1),
        disk_free_bytes=None if room is None else room.free_bytes,
        durability=dialect.catalog.durability(tx),
    )


def _short_of_room(reshaping: Reshaping, room: DiskRoom | None) -> tuple[str, ...]:
    if room is None or reshaping.disk_bytes <= max(0, room.free_bytes - room.reserve_bytes):
        return ()
    needed, free, kept = (f"{number / (1 << 20):,.0f} MiB" for number in (reshaping.disk_bytes, room.free_bytes, room.reserve_bytes))
    return (f"it takes about {needed} of the disk, {free} are free, and {kept} of them are left alone: it would stop for want of room",)
