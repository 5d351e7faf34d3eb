"""Whether an attempt still owns its subtask, and seeing a lost session gone before anybody goes on."""

from __future__ import annotations

from tideshift import errors
from tideshift.dxf import tables
from tideshift.dxf.machine import SubtaskState
from tideshift.dxf.task import Subtask
from tideshift.store.database import Transaction
from tideshift.store.driver import SessionIdentity

__all__ = ["own_row", "see_gone"]


def own_row(tx: Transaction, attempt: Subtask) -> Subtask:
    """Read the subtask's row while this attempt runs it; raise `SubtaskLost` when it does not any more."""
    try:
        row = tables.subtask_by_id(tx, attempt.id)
    except errors.NotFound as error:
        raise errors.SubtaskLost(f"subtask {attempt.id} is finished") from error
    if (row.attempt, row.exec_id, row.state) != (attempt.attempt, attempt.exec_id, SubtaskState.RUNNING):
        raise errors.SubtaskLost(f"subtask {row.id} was taken from us", subtask_id=row.id, attempt=attempt.attempt)
    return row


def see_gone(tx: Transaction, subtask: Subtask, lost: SessionIdentity) -> None:
    """End the session that worked on a subtask before; raise `ConnectionLost` while it is still there."""
    driver = tx.driver
    if not driver.capabilities.ends_sessions:
        return
    driver.end_session(tx.connection, lost)
    if not driver.session_gone(tx.connection, lost):
        raise errors.ConnectionLost(f"the lost session of subtask {subtask.id} is not gone yet")
