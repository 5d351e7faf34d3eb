"""The framework's system tables and every statement on them.

`move_task` and `move_subtask` are the only code that writes a state column: compare-and-set on `rev`, the owner's moves
under its tenure as well. A checkpoint is guarded by the attempt instead, so that frequent progress never collides with
a command. Zero rows raise: `StateChanged` for a move, `SubtaskLost` for a checkpoint.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Index,
    Integer,
    String,
    Table,
    UniqueConstraint,
    bindparam,
    delete,
    func,
    insert,
    select,
    update,
)

from tideshift.dxf import points
from tideshift.dxf.machine import SUBTASK, TASK, SubtaskState, TaskState
from tideshift.dxf.task import INIT, Node, Subtask, Task, from_row
from tideshift.errors import MoveNotAllowed, NotFound, StateChanged, SubtaskLost
from tideshift.fsm import Actor
from tideshift.store import events
from tideshift.store.bootstrap import next_ids
from tideshift.store.database import Transaction
from tideshift.store.lease import Tenure, tenure_guard
from tideshift.store.tables import METADATA, Json

__all__ = [
    "active_subtasks", "checkpoint_subtask", "delete_node", "finished_tasks_with_subtasks", "insert_subtasks", "insert_task", "live_tasks",
    "move_subtask", "move_task", "nodes", "put_node", "record_session", "step_counts", "subtask_by_id", "subtasks_of", "subtasks_to_history", "task_by_id",
    "task_by_key", "touch_node",
]  # fmt: skip


def _task_columns() -> list[Column[Any]]:
    return [
        Column("id", BigInteger, primary_key=True, autoincrement=False),
        Column("task_key", String(256), nullable=False, unique=True),
        Column("type", String(256), nullable=False),
        Column("state", String(64), nullable=False),
        Column("priority", Integer, nullable=False),
        Column("create_time", BigInteger, nullable=False),
        Column("start_time", BigInteger),
        Column("state_update_time", BigInteger, nullable=False),
        Column("end_time", BigInteger),
        Column("meta", Json, nullable=False),
        Column("concurrency", Integer, nullable=False),
        Column("step", Integer, nullable=False),
        Column("target_scope", String(256), nullable=False),
        Column("error", Json),
        Column("modify_params", Json),
        Column("max_node_count", Integer, nullable=False),
        Column("extra_params", Json, nullable=False),
        Column("keyspace", String(64), nullable=False),
        Column("rev", BigInteger, nullable=False),
    ]


def _subtask_columns() -> list[Column[Any]]:
    return [
        Column("id", BigInteger, primary_key=True, autoincrement=False),
        Column("step", Integer, nullable=False),
        Column("task_id", BigInteger, nullable=False),
        Column("type", String(256), nullable=False),
        Column("exec_id", String(261)),
        Column("state", String(64), nullable=False),
        Column("checkpoint", Json, nullable=False),
        Column("concurrency", Integer, nullable=False),
        Column("create_time", BigInteger, nullable=False),
        Column("start_time", BigInteger),
        Column("state_update_time", BigInteger, nullable=False),
        Column("end_time", BigInteger),
        Column("meta", Json, nullable=False),
        Column("ordinal", Integer, nullable=False),
        Column("error", Json),
        Column("summary", Json, nullable=False),
        Column("attempt", BigInteger, nullable=False),
        Column("retries", Integer, nullable=False),
        Column("session", Json),
        Column("rev", BigInteger, nullable=False),
    ]


task = Table("dxf_global_task", METADATA, *_task_columns(), Index("tideshift_task_state", "state"))
task_history = Table("dxf_global_task_history", METADATA, *_task_columns())
subtask = Table(
    "dxf_background_subtask",
    METADATA,
    *_subtask_columns(),
    UniqueConstraint("task_id", "step", "ordinal"),
    Index("tideshift_subtask_exec", "exec_id"),
)
subtask_history = Table(
    "dxf_background_subtask_history",
    METADATA,
    *_subtask_columns(),
    Index("tideshift_subtask_history_task", "task_id"),
    Index("tideshift_subtask_history_time", "state_update_time"),
)
node = Table(
    "dist_framework_meta",
    METADATA,
    Column("host", String(261), primary_key=True),
    Column("role", String(64), nullable=False),
    Column("cpu_count", Integer, nullable=False),
    Column("keyspace_id", BigInteger, nullable=False),
    Column("heartbeat_at", BigInteger, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("version", String(64), nullable=False),
    Column("draining", Boolean, nullable=False),
    Column("session", Json),
)


def insert_task(
    tx: Transaction, *, key: str, task_type: str, meta: dict[str, Any], concurrency: int, priority: int = 512,
    max_node_count: int = 0, target_scope: str = "", extra_params: dict[str, Any] | None = None, actor: str,
) -> Task:  # fmt: skip
    """Insert a pending task under the next id; the caller has seen that its key is free."""
    now = tx.now_ms()
    (task_id,) = next_ids(tx, "task", 1)
    row: dict[str, Any] = {
        "id": task_id, "task_key": key, "type": task_type, "state": TaskState.PENDING, "priority": priority, "create_time": now,
        "start_time": None, "state_update_time": now, "end_time": None, "meta": meta, "concurrency": concurrency, "step": INIT,
        "target_scope": target_scope, "error": None, "modify_params": None, "max_node_count": max_node_count,
        "extra_params": extra_params or {}, "keyspace": "", "rev": 1,
    }  # fmt: skip
    tx.execute(insert(task).values(row))
    events.record(tx, actor=actor, kind="move", task_id=task_id, target=TaskState.PENDING, detail={"event": "submit", "key": key})
    return Task(**row)


def task_by_id(tx: Transaction, task_id: int, *, history: bool = True) -> Task:
    """Read a task from the live table, or from the history; raise `NotFound`."""
    for table in (task, task_history) if history else (task,):
        row = tx.execute(select(table).where(table.c.id == task_id)).mappings().first()
        if row is not None:
            return from_row(Task, row)
    raise NotFound(f"there is no task {task_id}", task_id=task_id)


def task_by_key(tx: Transaction, key: str) -> Task | None:
    """Read a task by its key, live or finished."""
    for table in (task, task_history):
        row = tx.execute(select(table).where(table.c.task_key == key)).mappings().first()
        if row is not None:
            return from_row(Task, row)
    return None


def live_tasks(tx: Transaction) -> list[Task]:
    """Read every live task in rank order."""
    order = (task.c.priority, task.c.create_time, task.c.id)
    return [from_row(Task, row) for row in tx.execute(select(task).order_by(*order)).mappings()]


def move_task(
    tx: Transaction, seen: Task, event: str, *, actor: str, tenure: Tenure | None = None, detail: dict[str, Any] | None = None,
    request_id: str | None = None, **columns: Any,
) -> Task:  # fmt: skip
    """Take one move from the state that was seen, or raise: not allowed, or the row has moved on.

    A final state is written together with the row's move to the history.
    """
    target = TASK.target(seen.state, event)
    if target is None:
        raise MoveNotAllowed(f"task {seen.id} is {seen.state}: {event} is not allowed", task_id=seen.id, state=seen.state, event=event)
    assert "state" not in columns
    assert (TASK.actor(event) is Actor.OWNER) == (tenure is not None), f"{event}: owner moves name the tenure, others do not"
    if points.BEFORE_TASK_MOVE.on:
        points.BEFORE_TASK_MOVE.fire(task=seen.id, event=event)
    now = tx.now_ms()
    if target is TaskState.RUNNING and seen.start_time is None:
        columns["start_time"] = now
    if target in TASK.final:
        columns["end_time"] = now
    moved = replace(seen, state=target, rev=seen.rev + 1, state_update_time=now, **columns)
    statement = update(task).where(task.c.id == seen.id, task.c.rev == seen.rev)
    if tenure is not None:
        statement = statement.where(tenure_guard(tenure, tx))
    statement = statement.values(state=target, rev=moved.rev, state_update_time=now, **columns)
    if tx.execute(statement).rowcount != 1:
        raise StateChanged(f"task {seen.id} has moved on", task_id=seen.id, expected_rev=seen.rev)
    events.record(
        tx, actor=actor, kind="move", task_id=seen.id, source=seen.state, target=target, request_id=request_id,
        detail={"event": event, "rev": moved.rev, **(detail or {})},
    )  # fmt: skip
    if target in TASK.final:
        _task_to_history(tx, seen.id)
    return moved


def _task_to_history(tx: Transaction, task_id: int) -> None:
    names = [column.name for column in task.c]
    tx.execute(insert(task_history).from_select(names, select(*(task.c[name] for name in names)).where(task.c.id == task_id)))
    tx.execute(delete(task).where(task.c.id == task_id))


def insert_subtasks(tx: Transaction, owner_task: Task, step: int, metas: list[dict[str, Any]]) -> None:
    """Insert a step's subtasks, numbered from 1, pending and not assigned."""
    if not metas:
        return
    now = tx.now_ms()
    rows = [
        {
            "id": new_id, "step": step, "task_id": owner_task.id, "type": owner_task.type, "exec_id": None,
            "state": SubtaskState.PENDING, "checkpoint": {}, "concurrency": 1, "create_time": now, "start_time": None,
            "state_update_time": now, "end_time": None, "meta": meta, "ordinal": ordinal, "error": None, "summary": {},
            "attempt": 0, "retries": 0, "session": None, "rev": 1,
        }
        for ordinal, (new_id, meta) in enumerate(zip(next_ids(tx, "subtask", len(metas)), metas, strict=True), start=1)
    ]  # fmt: skip
    tx.execute(insert(subtask), rows)


def subtask_by_id(tx: Transaction, subtask_id: int) -> Subtask:
    """Read a live subtask; raise `NotFound`."""
    row = tx.execute(select(subtask).where(subtask.c.id == subtask_id)).mappings().first()
    if row is None:
        raise NotFound(f"there is no live subtask {subtask_id}", subtask_id=subtask_id)
    return from_row(Subtask, row)


def subtasks_of(tx: Transaction, task_id: int, *, step: int | None = None) -> list[Subtask]:
    """Read a task's subtasks, live and from the history, in order of step and ordinal."""
    found: dict[int, Subtask] = {}
    for table in (subtask, subtask_history):
        statement = select(table).where(table.c.task_id == task_id).order_by(table.c.step, table.c.ordinal)
        if step is not None:
            statement = statement.where(table.c.step == step)
        # By id, since one that goes to the history between the two statements is seen in both.
        found |= {row["id"]: from_row(Subtask, row) for row in tx.execute(statement).mappings()}
    return sorted(found.values(), key=lambda s: (s.step, s.ordinal))


def active_subtasks(tx: Transaction, *, exec_id: str | None = None) -> list[Subtask]:
    """Read the subtasks that are pending or running, of every task, or those of one node."""
    statement = select(subtask).where(subtask.c.state.in_((SubtaskState.PENDING, SubtaskState.RUNNING)))
    if exec_id is not None:
        statement = statement.where(subtask.c.exec_id == exec_id)
    statement = statement.order_by(subtask.c.task_id, subtask.c.step, subtask.c.ordinal)
    return [from_row(Subtask, row) for row in tx.execute(statement).mappings()]


def step_counts(tx: Transaction, task_id: int, step: int) -> dict[SubtaskState, int]:
    """Count one step's subtasks by state."""
    statement = (
        select(subtask.c.state, func.count().label("number")).where(subtask.c.task_id == task_id, subtask.c.step == step).group_by(subtask.c.state)
    )
    return {SubtaskState(row.state): row.number for row in tx.execute(statement)}


def move_subtask(
    tx: Transaction, seen: Subtask, event: str, *, actor: str, tenure: Tenure | None = None, **columns: Any
) -> Subtask:
    """Take one move of a subtask from the state that was seen, or raise as `move_task` does."""
    target = SUBTASK.target(seen.state, event)
    if target is None:
        raise MoveNotAllowed(f"subtask {seen.id} is {seen.state}: {event} is not allowed", subtask_id=seen.id, event=event)
    assert "state" not in columns
    assert (SUBTASK.actor(event) is Actor.OWNER) == (tenure is not None), f"{event}: owner moves name the tenure, others do not"
    if points.BEFORE_SUBTASK_MOVE.on:
        points.BEFORE_SUBTASK_MOVE.fire(task=seen.task_id, subtask=seen.id, event=event)
    now = tx.now_ms()
    if target in SUBTASK.final:
        columns["end_time"] = now
    moved = replace(seen, state=target, rev=seen.rev + 1, state_update_time=now, **columns)
    statement = update(subtask).where(subtask.c.id == seen.id, subtask.c.rev == seen.rev)
    if tenure is not None:
        statement = statement.where(tenure_guard(tenure, tx))
    statement = statement.values(state=target, rev=moved.rev, state_update_time=now, **columns)
    if tx.execute(statement).rowcount != 1:
        raise StateChanged(f"subtask {seen.id} has moved on", subtask_id=seen.id, expected_rev=seen.rev)
    if event in ("fail", "rescue", "release"):
        events.record(
            tx, actor=actor, kind="subtask", task_id=seen.task_id, source=seen.state, target=target,
            detail={"event": event, "subtask": seen.id, "attempt": seen.attempt, "error": columns.get("error")},
        )  # fmt: skip
    return moved


def assign_subtask(tx: Transaction, seen: Subtask, exec_id: str | None, *, tenure: Tenure) -> None:
    """Give a pending subtask to a node (the state stays); zero rows raise `StateChanged`."""
    assert seen.state is SubtaskState.PENDING
    statement = (
        update(subtask)
        .where(subtask.c.id == seen.id, subtask.c.rev == seen.rev, tenure_guard(tenure, tx))
        .values(exec_id=exec_id, rev=seen.rev + 1)
    )
    if tx.execute(statement).rowcount != 1:
        raise StateChanged(f"subtask {seen.id} has moved on", subtask_id=seen.id, expected_rev=seen.rev)


_CHECKPOINT = (
    update(subtask)
    .where(
        subtask.c.id == bindparam("seen_id"),
        subtask.c.attempt == bindparam("seen_attempt"),
        subtask.c.state == SubtaskState.RUNNING,
    )
    .values(checkpoint=bindparam("new_checkpoint"), summary=bindparam("new_summary"))
)
"""Made once: this statement is part of every chunk, and runs while its locks are held."""


def checkpoint_subtask(tx: Transaction, seen: Subtask, *, checkpoint: dict[str, Any], summary: dict[str, Any]) -> None:
    """Write progress under the attempt; it is the last statement before the commit of the work it records."""
    values = {"seen_id": seen.id, "seen_attempt": seen.attempt, "new_checkpoint": checkpoint, "new_summary": summary}
    if tx.execute(_CHECKPOINT, values).rowcount != 1:
        raise SubtaskLost(f"subtask {seen.id} is no longer ours (attempt {seen.attempt})", subtask_id=seen.id, attempt=seen.attempt)


def record_session(tx: Transaction, seen: Subtask, session: dict[str, str]) -> None:
    """Write which session works on a subtask from now on, under the attempt."""
    statement = (
        update(subtask)
        .where(subtask.c.id == seen.id, subtask.c.attempt == seen.attempt, subtask.c.state == SubtaskState.RUNNING)
        .values(session=session)
    )
    if tx.execute(statement).rowcount != 1:
        raise SubtaskLost(f"subtask {seen.id} is no longer ours (attempt {seen.attempt})", subtask_id=seen.id, attempt=seen.attempt)


def finished_tasks_with_subtasks(tx: Transaction, *, limit: int) -> list[int]:
    """Return ids of subtasks whose task is in the history, oldest first."""
    statement = (
        select(subtask.c.id).where(subtask.c.task_id.in_(select(task_history.c.id))).order_by(subtask.c.id).limit(limit)
    )
    return [row[0] for row in tx.execute(statement)]


def subtasks_to_history(tx: Transaction, ids: list[int], *, tenure: Tenure) -> None:
    """Move these subtasks to the history; nothing happens once the tenure is over."""
    names = [column.name for column in subtask.c]
    chosen = select(*(subtask.c[name] for name in names)).where(subtask.c.id.in_(ids), tenure_guard(tenure, tx))
    tx.execute(insert(subtask_history).from_select(names, chosen))
    tx.execute(delete(subtask).where(subtask.c.id.in_(ids), subtask.c.id.in_(select(subtask_history.c.id))))


def nodes(tx: Transaction) -> list[Node]:
    """Read the registered nodes, by name."""
    return [from_row(Node, row) for row in tx.execute(select(node).order_by(node.c.host)).mappings()]


def put_node(tx: Transaction, *, host: str, role: str, slots: int, version: str, session: dict[str, str]) -> None:
    """Register a node whose name was never used before."""
    now = tx.now_ms()
    row = {
        "host": host, "role": role, "cpu_count": slots, "keyspace_id": -1, "heartbeat_at": now, "started_at": now,
        "version": version, "draining": False, "session": session,
    }  # fmt: skip
    tx.execute(insert(node).values(row))


def touch_node(tx: Transaction, host: str, *, draining: bool) -> bool:
    """Write a heartbeat; return False when the node is not registered (any more)."""
    statement = update(node).where(node.c.host == host).values(heartbeat_at=tx.now_expression(), draining=draining)
    return tx.execute(statement).rowcount == 1


def delete_node(tx: Transaction, host: str, *, seen_heartbeat_at: int | None = None) -> bool:
    """Take a node off the register, if its heartbeat is still the one that was seen; return whether it was there."""
    statement = delete(node).where(node.c.host == host)
    if seen_heartbeat_at is not None:
        statement = statement.where(node.c.heartbeat_at == seen_heartbeat_at)
    return tx.execute(statement).rowcount == 1
