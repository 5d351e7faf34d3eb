"""The DDL engine's system tables and every statement on them; `move_job` is the only code that writes a job's state."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Float,
    Index,
    Integer,
    RowMapping,
    String,
    Table,
    Text,
    delete,
    func,
    insert,
    select,
    update,
)

from tideshift.ddl import points
from tideshift.ddl.job import Artifact, Job
from tideshift.ddl.machine import JOB, JobState, SchemaState
from tideshift.ddl.reshaping import SHADOW_INDEX, ArtifactName
from tideshift.dxf.task import from_row
from tideshift.errors import MoveNotAllowed, NotFound, StateChanged
from tideshift.fsm import Actor
from tideshift.store import events
from tideshift.store.bootstrap import next_ids
from tideshift.store.database import Transaction
from tideshift.store.lease import Tenure, tenure_guard
from tideshift.store.tables import METADATA, Json

__all__ = [
    "artifacts_due", "artifacts_of", "hold_job", "insert_artifacts", "is_dropped", "insert_job", "job_by_id", "keep_as_old", "live_artifacts", "live_jobs",
    "mark_dropped", "mark_shadow_indexes_dropped", "move_job", "recent_jobs",
]  # fmt: skip


def _job_columns() -> list[Column[Any]]:
    return [
        Column("id", BigInteger, primary_key=True, autoincrement=False),
        Column("rev", BigInteger, nullable=False),
        Column("type", String(64), nullable=False),
        Column("schema_name", Text),
        Column("table_name", Text, nullable=False),
        Column("objects", Json, nullable=False),
        Column("query", Text, nullable=False),
        Column("change", Json, nullable=False),
        Column("state", String(64), nullable=False),
        Column("schema_state", String(64), nullable=False),
        Column("stage", Integer, nullable=False),
        Column("attempt", Integer, nullable=False),
        Column("plan", Json, nullable=False),
        Column("plan_version", Integer, nullable=False),
        Column("strategy", String(64), nullable=False),
        Column("strategy_wished", String(64)),
        Column("revertible", Boolean, nullable=False),
        Column("parameters", Json, nullable=False),
        Column("keep_old_seconds", Float, nullable=False),
        Column("requested_by", String(261), nullable=False),
        Column("paused_by", String(64)),
        Column("pause_reason", Text),
        Column("error", Json),
        Column("err_count", Integer, nullable=False),
        Column("next_try_at", BigInteger),
        Column("warnings", Json, nullable=False),
        Column("row_total", BigInteger, nullable=False),
        Column("row_total_exact", Boolean, nullable=False),
        Column("created_at", BigInteger, nullable=False),
        Column("started_at", BigInteger),
        Column("updated_at", BigInteger, nullable=False),
        Column("finished_at", BigInteger),
    ]


job = Table("ddl_job", METADATA, *_job_columns(), Index("tideshift_job_state", "state"))
job_history = Table("ddl_job_history", METADATA, *_job_columns(), Index("tideshift_job_history_finished", "finished_at"))
artifact = Table(
    "ddl_artifact",
    METADATA,
    Column("job_id", BigInteger, primary_key=True, autoincrement=False),
    Column("ordinal", Integer, primary_key=True, autoincrement=False),
    Column("kind", String(64), nullable=False),
    Column("name", Text, nullable=False),
    Column("created_at", BigInteger, nullable=False),
    Column("drop_after", BigInteger),
    Column("dropped_at", BigInteger),
    Index("tideshift_artifact_drop", "drop_after"),
)


def _job(row: RowMapping) -> Job:
    seen = from_row(Job, row)
    return replace(seen, state=JobState(seen.state), schema_state=SchemaState(seen.schema_state))


def insert_job(tx: Transaction, *, actor: str, **columns: Any) -> Job:
    """Insert a queueing job under the next id, which the counter's lock makes visible in order."""
    (job_id,) = next_ids(tx, "job", 1)
    now = tx.now_ms()
    row = {
        "id": job_id, "rev": 1, "state": JobState.QUEUEING, "schema_state": SchemaState.NONE, "stage": 0, "attempt": 0, "revertible": True,
        "requested_by": actor, "paused_by": None, "pause_reason": None, "error": None, "err_count": 0, "next_try_at": None,
        "created_at": now, "started_at": None, "updated_at": now, "finished_at": None, "strategy_wished": None, **columns,
    }  # fmt: skip
    tx.execute(insert(job).values(row))
    events.record(tx, actor=actor, kind="move", job_id=job_id, target=JobState.QUEUEING, detail={"event": "submit", "query": row["query"]})
    return Job(**row)


def job_by_id(tx: Transaction, job_id: int) -> Job:
    """Read a job, live or finished; raise `NotFound`."""
    for table in (job, job_history):
        row = tx.execute(select(table).where(table.c.id == job_id)).mappings().first()
        if row is not None:
            return _job(row)
    raise NotFound(f"there is no job {job_id}", job_id=job_id, hint="List them with: tideshift jobs")


def hold_job(tx: Transaction, seen: Job) -> None:
    """Keep a job's row as it was seen until the commit, or raise `StateChanged` when it has moved on already."""
    statement = select(job.c.id).where(job.c.id == seen.id, job.c.rev == seen.rev).with_for_update()
    if tx.execute(statement).first() is None:
        raise StateChanged(f"job {seen.id} has moved on", job_id=seen.id, expected_rev=seen.rev)


def live_jobs(tx: Transaction) -> list[Job]:
    """Read every live job in order of id."""
    return [_job(row) for row in tx.execute(select(job).order_by(job.c.id)).mappings()]


def recent_jobs(tx: Transaction, *, limit: int, before: int | None = None) -> list[Job]:
    """Read finished jobs, newest first."""
    statement = select(job_history).order_by(job_history.c.id.desc()).limit(limit)
    if before is not None:
        statement = statement.where(job_history.c.id < before)
    return [_job(row) for row in tx.execute(statement).mappings()]


def move_job(
    tx: Transaction, seen: Job, event: str, *, actor: str, tenure: Tenure | None = None, detail: dict[str, Any] | None = None,
    request_id: str | None = None, **columns: Any,
) -> Job:  # fmt: skip
    """Take one move from the state that was seen, or raise: not allowed, or the row has moved on.

    A final state is written together with the row's move to the history, and closes the requests that are still open.
    """
    target = JOB.target(seen.state, event)
    if target is None:
        raise MoveNotAllowed(f"job {seen.id} is {seen.state}: {event} is not allowed", job_id=seen.id, state=seen.state, event=event)
    assert "state" not in columns
    assert (JOB.actor(event) is Actor.OWNER) == (tenure is not None), f"{event}: owner moves name the tenure, others do not"
    if points.BEFORE_JOB_MOVE.on:
        points.BEFORE_JOB_MOVE.fire(job=seen.id, event=event)
    now = tx.now_ms()
    if event == "start" and seen.started_at is None:
        columns["started_at"] = now
    if target in JOB.final:
        columns["finished_at"] = now
    moved = replace(seen, state=target, rev=seen.rev + 1, updated_at=now, **columns)
    statement = update(job).where(job.c.id == seen.id, job.c.rev == seen.rev)
    if tenure is not None:
        statement = statement.where(tenure_guard(tenure, tx))
    statement = statement.values(state=target, rev=moved.rev, updated_at=now, **columns)
    if tx.execute(statement).rowcount != 1:
        raise StateChanged(f"job {seen.id} has moved on", job_id=seen.id, expected_rev=seen.rev)
    events.record(
        tx, actor=actor, kind="move", job_id=seen.id, source=seen.state, target=target, request_id=request_id,
        detail={"event": event, "rev": moved.rev, "schema_state": str(moved.schema_state), "stage": moved.stage, **(detail or {})},
    )  # fmt: skip
    if target in JOB.final:
        _close(tx, moved)
    return moved


def _close(tx: Transaction, ended: Job) -> None:
    names = [column.name for column in job.c]
    tx.execute(insert(job_history).from_select(names, select(*(job.c[name] for name in names)).where(job.c.id == ended.id)))
    tx.execute(delete(job).where(job.c.id == ended.id))
    for request in events.open_requests(tx, job_id=ended.id):
        done = request.command == "cancel" and ended.state is not JobState.SYNCED
        outcome = events.Outcome.APPLIED if done else events.Outcome.FAILED
        events.conclude(tx, request.request_id, outcome, reason=f"the job ended: {ended.state}")


def insert_artifacts(tx: Transaction, job_id: int, names: list[ArtifactName]) -> None:
    """Record what is about to be made, in the order of making."""
    now = tx.now_ms()
    made = tx.execute(select(func.max(artifact.c.ordinal)).where(artifact.c.job_id == job_id)).scalar()
    rows = [
        {"job_id": job_id, "ordinal": n, "kind": a.kind, "name": a.name, "created_at": now, "drop_after": None, "dropped_at": None}
        for n, a in enumerate(names, start=0 if made is None else made + 1)
    ]
    tx.execute(insert(artifact), rows)


def artifacts_of(tx: Transaction, job_id: int) -> list[Artifact]:
    """Read a job's artifacts that are not dropped, in the order of making."""
    statement = select(artifact).where(artifact.c.job_id == job_id, artifact.c.dropped_at.is_(None)).order_by(artifact.c.ordinal)
    return [from_row(Artifact, row) for row in tx.execute(statement).mappings()]


def has_made_artifacts(tx: Transaction, job_id: int) -> bool:
    """Whether a job ever made something of ours, dropped by now or not."""
    return bool(tx.execute(select(artifact.c.ordinal).where(artifact.c.job_id == job_id).limit(1)).all())


def live_artifacts(tx: Transaction) -> list[Artifact]:
    """Read every artifact that is not dropped."""
    statement = select(artifact).where(artifact.c.dropped_at.is_(None)).order_by(artifact.c.job_id, artifact.c.ordinal)
    return [from_row(Artifact, row) for row in tx.execute(statement).mappings()]


def artifacts_due(tx: Transaction) -> list[Artifact]:
    """Read the kept tables whose time is over."""
    statement = select(artifact).where(artifact.c.dropped_at.is_(None), artifact.c.drop_after <= tx.now_expression())
    return [from_row(Artifact, row) for row in tx.execute(statement.order_by(artifact.c.job_id)).mappings()]


def is_dropped(tx: Transaction, job_id: int, ordinal: int) -> bool:
    """Whether an artifact is recorded as gone."""
    statement = select(artifact.c.dropped_at).where(artifact.c.job_id == job_id, artifact.c.ordinal == ordinal)
    return tx.execute(statement).scalar() is not None


def mark_shadow_indexes_dropped(tx: Transaction, job_id: int) -> None:
    """Record that the indexes of a job's shadow are gone with it."""
    of_table = artifact.c.kind == SHADOW_INDEX
    statement = update(artifact).where(artifact.c.job_id == job_id, of_table, artifact.c.dropped_at.is_(None))
    tx.execute(statement.values(dropped_at=tx.now_expression()))


def mark_dropped(tx: Transaction, job_id: int, ordinal: int) -> None:
    """Record that an artifact is gone."""
    statement = update(artifact).where(artifact.c.job_id == job_id, artifact.c.ordinal == ordinal).values(dropped_at=tx.now_expression())
    tx.execute(statement)


def hand_over_artifacts(tx: Transaction, job_id: int) -> None:
    """Record that what a job made is the user's from now on: nothing of it is undone or purged any more."""
    statement = update(artifact).where(artifact.c.job_id == job_id, artifact.c.dropped_at.is_(None))
    tx.execute(statement.values(dropped_at=tx.now_expression()))


def keep_as_old(tx: Transaction, job_id: int, *, drop_after: int | None) -> None:
    """Record after a swap that the shadow's artifact holds the old rows, and until when it is kept (None: until a person says)."""
    replaced = artifact.c.kind.in_(("shadow", "old table"))
    kept = update(artifact).where(artifact.c.job_id == job_id, replaced).values(kind="old table", drop_after=drop_after)
    tx.execute(kept)
