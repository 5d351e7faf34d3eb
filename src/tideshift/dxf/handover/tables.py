"""The statements of a hand-over, each for many subtasks at once: what is done succeeds, and what comes next is claimed.

Each is a compare-and-set over all of its rows: attempt and state for what is finished, `rev` for what is claimed. A row
that somebody else wrote meanwhile makes the whole statement raise `StateChanged`, and its transaction roll back.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any

from sqlalchemy import and_, select, update

from tideshift.dxf import points
from tideshift.dxf.machine import SUBTASK, SubtaskState, TaskState
from tideshift.dxf.ownership import own_row, see_gone
from tideshift.dxf.progress_tables import add_finished
from tideshift.dxf.tables import move_subtask, subtask, task
from tideshift.dxf.task import Subtask, from_row
from tideshift.errors import StateChanged, SubtaskLost
from tideshift.store.database import Transaction
from tideshift.store.driver import SessionIdentity

__all__ = ["due_next", "finish", "move_claimed", "move_finished"]

log = logging.getLogger(__name__)


def due_next(tx: Transaction, *, task_id: int, exec_id: str, limit: int) -> tuple[list[Subtask], int | None]:
    """Read the next pending subtasks of a running task that were given to this node, and the task's `rev` (None without any).

    One whose row still names a session is left out: whoever starts that one must see the session gone first.
    """
    own_step = and_(task.c.id == subtask.c.task_id, task.c.step == subtask.c.step)
    statement = (
        select(subtask, task.c.rev.label("task_rev"))
        .join(task, own_step)
        .where(
            task.c.id == task_id, task.c.state == TaskState.RUNNING, subtask.c.exec_id == exec_id, subtask.c.state == SubtaskState.PENDING,
            subtask.c.session.is_(None),
        )
        .order_by(subtask.c.ordinal)
        .limit(limit)
    )  # fmt: skip
    rows = tx.execute(statement).mappings().all()
    return [from_row(Subtask, row) for row in rows], rows[0]["task_rev"] if rows else None


def move_claimed(tx: Transaction, chosen: Sequence[Subtask], *, actor: str, session: dict[str, str]) -> list[Subtask]:
    """Start these pending subtasks of this node: each has a new attempt, and names the session that will run it."""
    target = SUBTASK.target(SubtaskState.PENDING, "start")
    assert target is not None
    assert all(one.state is SubtaskState.PENDING and one.exec_id == actor and one.session is None for one in chosen)
    _fire(chosen, "start")
    now = tx.stamp_ms()
    for rev, group in groupby(sorted(chosen, key=lambda one: one.rev), key=lambda one: one.rev):
        statement = update(subtask).where(subtask.c.rev == rev, subtask.c.exec_id == actor).values(
            state=target, rev=rev + 1, attempt=subtask.c.attempt + 1, session=session, start_time=now, state_update_time=now
        )  # fmt: skip
        _execute(tx, statement, [one.id for one in group])
    changed: dict[str, Any] = {"state": target, "session": session, "start_time": now, "state_update_time": now}
    return [replace(one, rev=one.rev + 1, attempt=one.attempt + 1, **changed) for one in chosen]


def move_finished(tx: Transaction, done: Sequence[Subtask], *, actor: str) -> None:
    """Let these running attempts of this node succeed, all of them or none."""
    target = SUBTASK.target(SubtaskState.RUNNING, "succeed")
    assert target is not None
    assert all(one.state is SubtaskState.RUNNING for one in done)
    _fire(done, "succeed")
    now = tx.now_expression()
    for attempt, group in groupby(sorted(done, key=lambda one: one.attempt), key=lambda one: one.attempt):
        statement = update(subtask).where(
            subtask.c.attempt == attempt, subtask.c.state == SubtaskState.RUNNING, subtask.c.exec_id == actor
        ).values(state=target, rev=subtask.c.rev + 1, state_update_time=now, end_time=now)  # fmt: skip
        _execute(tx, statement, [one.id for one in group])
    add_finished(tx, done, exec_id=actor)


def finish(tx: Transaction, done: Sequence[Subtask], *, actor: str, session: dict[str, str]) -> None:
    """Let these attempts succeed as far as the database has kept what they did; the others are given back, and go on from their checkpoint.

    A chunk's commit need not be durable: when the server falls, the last ones may be gone although it said yes. Our session
    is then another one than the row names, and the row is looked at. Raises `StateChanged` as `move_finished` does.
    """
    kept = []
    for one in done:
        try:
            row = one if one.session == session else own_row(tx, one)
        except SubtaskLost as error:
            raise StateChanged(error.message, subtask_ids=[one.id]) from error
        if (row.checkpoint, row.summary) == (one.checkpoint, one.summary):
            kept.append(one)
            continue
        log.warning("subtask %s: the database did not keep its last chunk: given back", one.id)
        if row.session is not None:
            see_gone(tx, row, SessionIdentity.from_record(row.session))
        move_subtask(tx, row, "release", actor=actor, exec_id=None, session=None)
    move_finished(tx, kept, actor=actor)


def _execute(tx: Transaction, statement: Any, ids: list[int]) -> None:
    if tx.execute(statement.where(subtask.c.id.in_(ids))).rowcount != len(ids):
        raise StateChanged(f"subtask {', '.join(map(str, ids))}: one of them has moved on", subtask_ids=ids)


def _fire(moved: Sequence[Subtask], event: str) -> None:
    if points.BEFORE_SUBTASK_MOVE.on:
        for one in moved:
            points.BEFORE_SUBTASK_MOVE.fire(task=one.task_id, subtask=one.id, event=event)
