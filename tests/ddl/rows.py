"""Job rows in any state, for the tests of moves, queue and commands."""

from __future__ import annotations

from sqlalchemy import insert

from tideshift.config import PARAMETERS
from tideshift.ddl import tables
from tideshift.ddl.actions.shadow import shadow_plan
from tideshift.ddl.change import AlterTable, SetColumnType, TableName
from tideshift.ddl.dialect import Claim, Reshaping, RowWork, Strategy
from tideshift.ddl.job import Job
from tideshift.ddl.machine import JobState
from tideshift.store.database import Transaction


def job_columns(*, table: str = "t", **columns):
    """The columns of a job that changes a column of one table, without its id and state."""
    change = AlterTable(table=TableName(None, table), actions=(SetColumnType(column="c", type_text="text"),))
    reshaping = Reshaping(
        table=change.table, strategy=Strategy.SHADOW_TABLE, claims=(Claim(table),), row_work=RowWork.COPY, key_columns=("id",),
        may_refuse_rows=False, sql_steps=(),
    )  # fmt: skip
    plan = shadow_plan(reshaping)
    return {
        "type": change.kind, "schema_name": None, "table_name": table, "objects": [{"name": table, "mode": "exclusive"}],
        "query": f"ALTER TABLE {table} ALTER COLUMN c TYPE text", "change": change.as_record(), "plan": plan.as_record(),
        "plan_version": plan.version, "strategy": str(plan.strategy), "strategy_wished": None, "keep_old_seconds": 0.0, "warnings": [],
        "parameters": {name: {"value": parameter.default, "since": 1} for name, parameter in PARAMETERS.items()},
        "row_total": 100, "row_total_exact": True, **columns,
    }  # fmt: skip


def put_job(tx: Transaction, state: JobState, *, job_id: int = 1, **columns) -> Job:
    """Insert a job in any state, and read it."""
    row = {
        "id": job_id, "rev": 5, "state": state, "schema_state": "none", "stage": 0, "attempt": 0, "revertible": True,
        "requested_by": "ann", "paused_by": None, "pause_reason": None, "error": None, "err_count": 0, "next_try_at": None,
        "created_at": 1, "started_at": None, "updated_at": 1, "finished_at": None, **job_columns(), **columns,
    }  # fmt: skip
    tx.execute(insert(tables.job).values(row))
    return tables.job_by_id(tx, job_id)
