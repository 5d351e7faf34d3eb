"""The framework's system tables and every statement on them.

`move_task` and `move_subtask` are the only code that writes a state column: compare-and-set on `rev`, the owner's moves
under its tenure as well. A checkpoint is guarded by the attempt instead, so that frequent progress never collides with
a command. Zero rows raise: `StateChanged` for a move, `SubtaskLost` for a checkpoint.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from sqlalchemy import (
    BigInteger,
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
from tideshift.dxf.node_tables import beat_node, delete_node, nodes, put_node, touch_node
from tideshift.dxf.progress_tables import insert_total
from tideshift.dxf.task import INIT, Placed, Subtask, Task, from_row
from tideshift.errors import MoveNotAllowed, NotFound, StateChanged, SubtaskLost
from tideshift.fsm import Actor
from tideshift.store import events
from tideshift.store.bootstrap import next_ids
from tideshift.store.database import Transaction
from tideshift.store.lease import Tenure, tenure_guard
from tideshift.store.tables import METADATA, Json

__all__ = [
    "active_subtasks", "assign_subtasks", "beat_node", "checkpoint_subtask", "delete_node", "finished_tasks", "finished_tasks_with_subtasks", "first_pending", "given_to",
    "in_states", "insert_subtasks", "insert_task", "live_tasks", "move_subtask", "move_task", "nodes", "prune_subtask_history", "put_node", "record_session", "running_anywhere", "step_counts", "subtask_by_id", "subtasks_of", "subtasks_to_history", "task_by_id",
    "task_by_key", "telling_subtasks", "touch_node",
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
    Index("tideshift_subtask_exec", "exec_id", "state", "task_id", "step", "ordinal"),
    Index("tideshift_subtask_state", "state", "task_id", "step", "ordinal"),
)
subtask_history = Table(
    "dxf_background_subtask_history",
    METADATA,
    *_subtask_columns(),
    Index("tideshift_subtask_history_task", "task_id"),
    Index("tideshift_subtask_history_time", "state_update_time"),
)


def insert_task(
    tx: Transaction, *, key: str, task_type: str, meta: dict[str, Any], concurrency: int, priority: int = 512,
    max_node_count: int = 0, target_scope: str = "", extra_params: dict[str, Any] | None = None, actor: str,
) -> Task:  # fmt: skip
    """Insert a pending task under the next id; the caller has seen that its key is free."""
    now = tx.stamp_ms()
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


def finished_tasks(tx: Transaction, *, limit: int) -> list[Task]:
    """Read the last finished tasks, newest first."""
    return [from_row(Task, row) for row in tx.execute(select(task_history).order_by(task_history.c.id.desc()).limit(limit)).mappings()]


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
    now = tx.stamp_ms()
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


def insert_subtasks(tx: Transaction, owner_task: Task, step: int, metas: list[dict[str, Any]], *, nodes: Sequence[str | None] = ()) -> None:
    """Insert a step's subtasks, numbered from 1 and pending; the first ones are given to these nodes, the rest to nobody yet."""
    if not metas:
        return
    now = tx.stamp_ms()
    rows = [
        {
            "id": new_id, "step": step, "task_id": owner_task.id, "type": owner_task.type, "exec_id": exec_id,
            "state": SubtaskState.PENDING, "checkpoint": {}, "concurrency": 1, "create_time": now, "start_time": None,
            "state_update_time": now, "end_time": None, "meta": meta, "ordinal": ordinal, "error": None, "summary": {},
            "attempt": 0, "retries": 0, "session": None, "rev": 1,
        }
        for ordinal, (new_id, meta, exec_id) in enumerate(
            zip(next_ids(tx, "subtask", len(metas)), metas, [*nodes, *[None] * (len(metas) - len(nodes))], strict=True), start=1
        )
    ]  # fmt: skip
    tx.execute(insert(subtask), rows)
    insert_total(tx, task_id=owner_task.id, step=step, total=len(rows))


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


def in_states(tx: Transaction, owner_task: Task, states: Collection[SubtaskState], *, limit: int | None = None) -> list[Subtask]:
    """Read the subtasks of a task's present step that are in one of these states, in order."""
    statement = select(subtask).where(subtask.c.task_id == owner_task.id, subtask.c.step == owner_task.step, subtask.c.state.in_(states))
    return [from_row(Subtask, row) for row in tx.execute(statement.order_by(subtask.c.ordinal).limit(limit)).mappings()]


def telling_subtasks(tx: Transaction, owner_task: Task) -> list[Subtask]:
    """Read one subtask of the present step that failed, if any, and one that is not done, if any: by the index, whatever their number."""
    own = (subtask.c.task_id == owner_task.id, subtask.c.step == owner_task.step)
    kinds = ((SubtaskState.FAILED, SubtaskState.CANCELED), (SubtaskState.PENDING, SubtaskState.RUNNING, SubtaskState.PAUSED))
    first, second = (select(select(subtask.c.id).where(*own, subtask.c.state.in_(kind)).limit(1).subquery()) for kind in kinds)
    return [from_row(Subtask, row) for row in tx.execute(select(subtask).where(subtask.c.id.in_(first.union_all(second)))).mappings()]


def given_to(tx: Transaction, exec_id: str, *, limit: int) -> list[Subtask]:
    """Read what a node was given: all that is running there, and of each task's step the first pending ones."""
    place = func.row_number().over(partition_by=(subtask.c.task_id, subtask.c.step), order_by=subtask.c.ordinal)
    waiting = select(subtask.c.id, place.label("place")).where(subtask.c.exec_id == exec_id, subtask.c.state == SubtaskState.PENDING).subquery()
    first = select(waiting.c.id).where(waiting.c.place <= limit)
    running = select(subtask.c.id).where(subtask.c.exec_id == exec_id, subtask.c.state == SubtaskState.RUNNING)
    return [from_row(Subtask, row) for row in tx.execute(select(subtask).where(subtask.c.id.in_(running.union_all(first)))).mappings()]


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
    now = tx.stamp_ms()
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


def assign_subtasks(tx: Transaction, seen: Sequence[Placed | Subtask], exec_id: str, *, tenure: Tenure) -> None:
    """Give pending subtasks to a node (the state stays), all of them or none: one that has moved on raises `StateChanged`."""
    assert all(one.state is SubtaskState.PENDING for one in seen)
    for rev, group in groupby(sorted(seen, key=lambda one: one.rev), key=lambda one: one.rev):
        ids = [one.id for one in group]
        held = (subtask.c.id.in_(ids), subtask.c.rev == rev, subtask.c.state == SubtaskState.PENDING, tenure_guard(tenure, tx))
        if tx.execute(update(subtask).where(*held).values(exec_id=exec_id, rev=rev + 1)).rowcount != len(ids):
            raise StateChanged(f"one of the subtasks {ids[:5]} … has moved on", expected_rev=rev)


def running_anywhere(tx: Transaction) -> list[Subtask]:
    """Read every running subtask, of whatever task: never more than nodes have claimed."""
    return [from_row(Subtask, row) for row in tx.execute(select(subtask).where(subtask.c.state == SubtaskState.RUNNING)).mappings()]


def first_pending(tx: Transaction, owner_task: Task, *, limit: int) -> list[Placed]:
    """Read where the next pending subtasks of the present step are, in order."""
    statement = (
        select(subtask.c.id, subtask.c.ordinal, subtask.c.state, subtask.c.exec_id, subtask.c.rev)
        .where(subtask.c.state == SubtaskState.PENDING, subtask.c.task_id == owner_task.id, subtask.c.step == owner_task.step)
        .order_by(subtask.c.ordinal)
        .limit(limit)
    )
    return [from_row(Placed, row) for row in tx.execute(statement).mappings()]


_CHECKPOINT = (
    update(subtask)
    .where(
        subtask.c.id == bindparam("seen_id"),
        subtask.c.attempt == bindparam("seen_attempt"),
        subtask.c.state == SubtaskState.RUNNING,
    )
    .values(checkpoint=bindparam("new_checkpoint"), summary=bindparam("new_summary"), retries=0)
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


def prune_subtask_history(tx: Transaction, *, older_than_ms: int, limit: int, tenure: Tenure) -> int:
    """Delete the oldest subtasks of the history, a bounded number, whose last write is that long ago; return how many. Tasks are kept."""
    written = subtask_history.c.state_update_time
    statement = select(subtask_history.c.id).where(written < tx.now_expression() - older_than_ms).order_by(written).limit(limit)
    ids = [row[0] for row in tx.execute(statement)]
    if not ids:
        return 0
    return tx.execute(delete(subtask_history).where(subtask_history.c.id.in_(ids), tenure_guard(tenure, tx))).rowcount


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
