"""From a statement or a typed operation to a plan, or to a refusal with every reason; writes nothing.

`Proposal` is what a person is shown before anything is made: the plan, the SQL it will run, sizes and estimates.
"""

from __future__ import annotations

from dataclasses import dataclass

from tideshift.ddl.actions.one_transaction import one_transaction_plan
from tideshift.ddl.actions.shadow import shadow_plan
from tideshift.ddl.change import AlterTable, Change, DropColumn, DropIndex
from tideshift.ddl.dialect import Dialect, Reshaping, SqlStep, Strategy
from tideshift.ddl.job import Plan
from tideshift.ddl.statement import parse_statement
from tideshift.store.database import Transaction

__all__ = ["Proposal", "propose", "read_change", "stages_of"]

ROWS_PER_SECOND_GUESS = 4_400
"""What a job copies and compares per second on a small machine with the default lock share (bench/sqlite.py); only for the estimate."""


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

    @property
    def drops(self) -> tuple[str, ...]:
        """Return what the change takes away for good."""
        if isinstance(self.change, DropIndex):
            return (f"index {self.change.index} is dropped",)
        actions = self.change.actions if isinstance(self.change, AlterTable) else ()
        return tuple(f"column {action.column} of {self.plan.reshaping.table} is dropped with its values" for action in actions if isinstance(action, DropColumn))


def read_change(statement: str | Change) -> Change:
    """Parse a statement; a typed operation is taken as it is. Raises `BadStatement`."""
    return parse_statement(statement) if isinstance(statement, str) else statement


def stages_of(reshaping: Reshaping) -> Plan:
    """Return the plan of a reshaping, by its strategy."""
    return shadow_plan(reshaping) if reshaping.strategy is Strategy.SHADOW_TABLE else one_transaction_plan(reshaping)


def propose(tx: Transaction, dialect: Dialect, change: Change, *, strategy: Strategy | None = None) -> Proposal:
    """Work out the plan from the catalogue; raise `PlanRefused` or `NotFound`."""
    reshaping = dialect.design(tx, change, strategy=strategy)
    rows, exact = dialect.catalog.row_estimate(tx, reshaping.table)
    seconds = reshaping.hold_seconds
    if reshaping.strategy is Strategy.SHADOW_TABLE or reshaping.tries_rows_first:
        seconds += rows / ROWS_PER_SECOND_GUESS
    return Proposal(
        change=change,
        plan=stages_of(reshaping),
        sql_steps=reshaping.sql_steps,
        warnings=reshaping.warnings,
        rows=rows,
        rows_exact=exact,
        seconds_estimate=round(seconds, 1),
    )
