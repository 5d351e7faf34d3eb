"""The event log: what happened to jobs and tasks, and what became of every command that was acknowledged.

A command that cannot be answered at once is a *request*: one event of kind `request`, and later exactly one of kind
`outcome` with the same request id. Every event is written in the transaction of what it tells.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from sqlalchemy import ColumnElement, Row, exists, insert, select

from tideshift.store.database import Transaction
from tideshift.store.tables import event

__all__ = [
    "Event",
    "OpenRequest",
    "Outcome",
    "RequestMisused",
    "conclude",
    "history",
    "latest",
    "open_requests",
    "record",
    "request",
]

_REQUEST, _OUTCOME = "request", "outcome"


class Outcome(StrEnum):
    """What became of a request."""

    APPLIED = "applied"
    SUPERSEDED = "superseded"
    FAILED = "failed"


class RequestMisused(AssertionError):
    """A request was concluded twice, or was never made: a bug of ours."""


@dataclass(frozen=True, kw_only=True)
class Event:
    """One row of the log."""

    id: int
    at: int
    actor: str
    job_id: int | None
    task_id: int | None
    kind: str
    source: str | None
    target: str | None
    request_id: str | None
    detail: Any


@dataclass(frozen=True, kw_only=True)
class OpenRequest:
    """A command that was acknowledged and has no outcome yet."""

    request_id: str
    command: str
    actor: str
    detail: dict[str, Any]
    at: int


def record(
    tx: Transaction,
    *,
    actor: str,
    kind: str,
    job_id: int | None = None,
    task_id: int | None = None,
    source: str | None = None,
    target: str | None = None,
    request_id: str | None = None,
    detail: Any = None,
) -> int:
    """Write one event and return its id."""
    assert actor, "an event names who did it"
    values = {
        "at": tx.now_expression(),
        "actor": actor,
        "kind": kind,
        "job_id": job_id,
        "task_id": task_id,
        "from": source,
        "to": target,
        "request_id": request_id,
        "detail": detail,
    }
    result = tx.execute(insert(event).values(values))
    key = result.inserted_primary_key
    assert key is not None
    return int(key[0])


def request(
    tx: Transaction,
    *,
    actor: str,
    command: str,
    job_id: int | None = None,
    task_id: int | None = None,
    detail: dict[str, Any] | None = None,
) -> str:
    """Write down a command that is to be carried out, and return the id under which its outcome will be found."""
    assert (job_id is None) != (task_id is None), "a request concerns one job or one task"
    assert "command" not in (detail or {})
    request_id = uuid.uuid4().hex
    record(
        tx,
        actor=actor,
        kind=_REQUEST,
        job_id=job_id,
        task_id=task_id,
        request_id=request_id,
        detail={**(detail or {}), "command": command},
    )
    return request_id


def conclude(
    tx: Transaction,
    request_id: str,
    outcome: Outcome,
    *,
    actor: str = "owner",
    reason: str | None = None,
    by: str | None = None,
) -> None:
    """Write the one outcome of a request: with the reason, or the request `by` which it was superseded.

    The request's own row is locked first, so that of two transactions the later one sees the earlier one's outcome.
    """
    made = tx.execute(
        select(event.c.job_id, event.c.task_id)
        .where(event.c.request_id == request_id, event.c.kind == _REQUEST)
        .with_for_update()
    ).one_or_none()
    if made is None:
        raise RequestMisused(f"there is no request {request_id}")
    earlier = tx.execute(
        select(event.c.to).where(event.c.request_id == request_id, event.c.kind == _OUTCOME)
    ).scalar_one_or_none()
    if earlier is not None:
        raise RequestMisused(f"request {request_id} was already concluded: {earlier}")
    detail = {name: value for name, value in (("reason", reason), ("by", by)) if value is not None}
    record(
        tx,
        actor=actor,
        kind=_OUTCOME,
        job_id=made.job_id,
        task_id=made.task_id,
        target=Outcome(outcome),
        request_id=request_id,
        detail=detail or None,
    )


def open_requests(
    tx: Transaction, *, job_id: int | None = None, task_id: int | None = None, commands: Iterable[str] | None = None
) -> list[OpenRequest]:
    """Return the requests for this job or task that have no outcome yet, oldest first."""
    concluded = event.alias("concluded")
    rows = tx.execute(
        select(event)
        .where(
            _about(job_id, task_id),
            event.c.kind == _REQUEST,
            ~exists().where(concluded.c.request_id == event.c.request_id, concluded.c.kind == _OUTCOME),
        )
        .order_by(event.c.id)
    )
    found = [_open_request(row) for row in rows]
    wanted = None if commands is None else set(commands)
    return [one for one in found if wanted is None or one.command in wanted]


def history(
    tx: Transaction, *, job_id: int | None = None, task_id: int | None = None, after_id: int = 0, limit: int = 1000
) -> list[Event]:
    """Return the events of this job or task with an id above `after_id`, oldest first."""
    assert limit >= 1
    rows = tx.execute(
        select(event).where(_about(job_id, task_id), event.c.id > after_id).order_by(event.c.id).limit(limit)
    )
    return [_event(row) for row in rows]


def latest(tx: Transaction, *, job_id: int, kind: str, limit: int) -> list[Event]:
    """Return the last events of a kind about a job, newest first."""
    rows = tx.execute(select(event).where(event.c.job_id == job_id, event.c.kind == kind).order_by(event.c.id.desc()).limit(limit))
    return [_event(row) for row in rows]


def _about(job_id: int | None, task_id: int | None) -> ColumnElement[bool]:
    assert (job_id is None) != (task_id is None), "ask for one job or one task"
    return event.c.job_id == job_id if task_id is None else event.c.task_id == task_id


def _open_request(row: Row[Any]) -> OpenRequest:
    detail = dict(row.detail)
    return OpenRequest(
        request_id=row.request_id, command=detail.pop("command"), actor=row.actor, detail=detail, at=row.at
    )


def _event(row: Row[Any]) -> Event:
    fields = dict(row._mapping)
    return Event(source=fields.pop("from"), target=fields.pop("to"), **fields)
