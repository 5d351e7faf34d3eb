"""From a statement or a typed operation to a plan, or to a refusal with every reason; writes nothing.

`Proposal` is what a person is shown before anything is made: the plan, the SQL it will run, sizes and estimates.
"""

from __future__ import annotations

from dataclasses import dataclass

from tideshift.ddl.actions.modify_column import shadow_plan
from tideshift.ddl.change import Change
from tideshift.ddl.dialect import Dialect, SqlStep
from tideshift.ddl.job import Plan
from tideshift.ddl.statement import parse_statement
from tideshift.errors import PlanRefused
from tideshift.store.database import Transaction

__all__ = ["Proposal", "propose", "read_change"]

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


def read_change(statement: str | Change) -> Change:
    """Parse a statement; a typed operation is taken as it is. Raises `BadStatement`."""
    return parse_statement(statement) if isinstance(statement, str) else statement


def propose(tx: Transaction, dialect: Dialect, change: Change) -> Proposal:
    """Work out the plan from the catalogue; raise `PlanRefused` or `NotFound`."""
    reasons = dialect.refusals(change)
    if reasons:
        raise PlanRefused(f"{change.table}: " + "; ".join(reasons), reasons=reasons)
    reshaping = dialect.shadow.design(tx, change)
    rows, exact = dialect.catalog.row_estimate(tx, reshaping.table)
    return Proposal(
        change=change,
        plan=shadow_plan(reshaping),
        sql_steps=reshaping.sql_steps,
        warnings=reshaping.warnings,
        rows=rows,
        rows_exact=exact,
        seconds_estimate=round(rows / ROWS_PER_SECOND_GUESS, 1),
    )
