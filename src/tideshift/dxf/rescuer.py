"""Takes subtasks from dead nodes and gives pending ones to live nodes; also keeps the register and the history tidy.

Whoever takes a running subtask over first ends the session that ran it and sees it gone; only then the attempt is raised,
so that an open transaction of a frozen process cannot commit behind the taker's back.
"""

from __future__ import annotations

import logging

from tideshift import errors
from tideshift.dxf import balancer, points, tables
from tideshift.dxf.machine import SubtaskState, TaskState
from tideshift.dxf.task import Node, Subtask
from tideshift.store.database import Database, DatabaseFailed, Transaction
from tideshift.store.driver import SessionIdentity
from tideshift.store.lease import Tenure

__all__ = ["Cleaner", "Rescuer"]

log = logging.getLogger(__name__)


class Rescuer:
    """The duty that looks at nodes and assignments."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def tick(self, tenure: Tenure) -> bool:
        """Rescue, then assign; return whether anything changed hands."""
        with self.database.transaction(write=False) as tx:
            nodes = tables.nodes(tx)
            now_ms = tx.now_ms()
            active = tables.active_subtasks(tx)
            gone = {node.host for node in nodes if self._is_dead(tx, node, now_ms)}
        alive = [node for node in nodes if node.host not in gone]
        names = {node.host for node in alive}
        changed = False
        for subtask in active:
            if subtask.state is SubtaskState.RUNNING and subtask.exec_id not in names:
                changed |= self._rescue(subtask, tenure)
        for node in nodes:
            if node.host in gone:
                self._forget(node)
        return self._assign(alive, tenure) or changed

    def _is_dead(self, tx: Transaction, node: Node, now_ms: int) -> bool:
        """Whether a node's heartbeat is too old, or its process is known to be gone."""
        if now_ms - node.heartbeat_at > self.database.profile.node_dead_after_seconds * 1000:
            return True
        driver = self.database.driver
        if not driver.capabilities.session_is_process or node.session is None:
            return False
        return driver.session_gone(tx.connection, SessionIdentity.from_record(node.session))

    def _rescue(self, subtask: Subtask, tenure: Tenure) -> bool:
        if points.BEFORE_RESCUE.on:
            points.BEFORE_RESCUE.fire(task=subtask.task_id, subtask=subtask.id)
        try:
            if not self._session_ended(subtask):
                log.warning("subtask %s: the session of attempt %s is not gone yet", subtask.id, subtask.attempt)
                return False
            with self.database.transaction() as tx:
                tables.move_subtask(
                    tx, subtask, "rescue", actor=tenure.owner_id, tenure=tenure, attempt=subtask.attempt + 1, exec_id=None, session=None
                )  # fmt: skip
        except (errors.StateChanged, errors.Retryable, errors.AmbiguousCommit, DatabaseFailed) as error:
            log.warning("subtask %s: rescue looked at again after %s", subtask.id, error)
            return False
        return True

    def _session_ended(self, subtask: Subtask) -> bool:
        """End the session that ran the subtask; where none can be ended, the attempt alone fences it."""
        driver = self.database.driver
        if subtask.session is None or not driver.capabilities.ends_sessions:
            return True
        identity = SessionIdentity.from_record(subtask.session)
        with self.database.transaction(write=False) as tx:
            driver.end_session(tx.connection, identity)
            return driver.session_gone(tx.connection, identity)

    def _forget(self, dead: Node) -> None:
        """Take a dead node off the register, unless it has come back meanwhile."""
        with self.database.transaction() as tx:
            if tables.delete_node(tx, dead.host, seen_heartbeat_at=dead.heartbeat_at):
                log.warning("node %s is dead: taken off the register", dead.host)

    def _assign(self, alive: list[Node], tenure: Tenure) -> bool:
        with self.database.transaction(write=False) as tx:
            tasks = [task for task in tables.live_tasks(tx) if task.state in (TaskState.RUNNING, TaskState.MODIFYING)]
            active = tables.active_subtasks(tx)
        changed = False
        for task in tasks:
            own = [subtask for subtask in active if subtask.task_id == task.id and subtask.step == task.step]
            moves = balancer.assign(task, own, alive)
            if not moves:
                continue
            try:
                with self.database.transaction() as tx:
                    for subtask in own:
                        if subtask.id in moves:
                            tables.assign_subtask(tx, subtask, moves[subtask.id], tenure=tenure)
            except (errors.StateChanged, errors.Retryable, errors.AmbiguousCommit) as error:
                log.info("task %s: assignment looked at again after %s", task.id, error)
            else:
                changed = True
        return changed


class Cleaner:
    """The duty that moves subtasks of finished tasks to the history, in bounded batches."""

    batch = 200

    def __init__(self, database: Database) -> None:
        self.database = database

    def tick(self, tenure: Tenure) -> bool:
        """Move one batch; return whether there was one."""
        with self.database.transaction(write=False) as tx:
            ids = tables.finished_tasks_with_subtasks(tx, limit=self.batch)
        if not ids:
            return False
        with self.database.transaction() as tx:
            tables.subtasks_to_history(tx, ids, tenure=tenure)
        return True
