"""Takes subtasks from dead nodes and gives pending ones to live nodes; also keeps the register and the history tidy.

Whoever takes a running subtask over first ends the session that ran it and sees it gone; only then the attempt is raised,
so that an open transaction of a frozen process cannot commit behind the taker's back.
"""

from __future__ import annotations

import logging

from tideshift import errors
from tideshift.dxf import balancer, points, tables
from tideshift.dxf.machine import TaskState
from tideshift.dxf.task import Node, Placed, Subtask, Task
from tideshift.store.database import Database, DatabaseFailed, Transaction
from tideshift.store.driver import SessionIdentity
from tideshift.store.lease import Tenure

__all__ = ["Cleaner", "Rescuer"]

log = logging.getLogger(__name__)
Work = list[tuple[Task, list[Placed]]]


class Rescuer:
    """The duty that looks at nodes and assignments."""

    def __init__(self, database: Database) -> None:
        self.database = database

    def tick(self, tenure: Tenure) -> bool:
        """Rescue, then assign; return whether anything changed hands."""
        with self.database.transaction(write=False) as tx:
            nodes = tables.nodes(tx)
            now_ms = tx.now_ms()
            running = tables.running_anywhere(tx)
            gone = {node.host for node in nodes if self._is_dead(tx, node, now_ms)}
            alive = [node for node in nodes if node.host not in gone]
            work = self._work(tx, running, limit=balancer.window(alive))
        names = {node.host for node in alive}
        rescued = [self._rescue(subtask, tenure) for subtask in running if subtask.exec_id not in names]
        for node in nodes:
            if node.host in gone:
                self._forget(node)
        return self._assign(work, alive, tenure) or any(rescued)

    def _work(self, tx: Transaction, running: list[Subtask], *, limit: int) -> Work:
        tasks = [task for task in tables.live_tasks(tx) if task.state in (TaskState.RUNNING, TaskState.MODIFYING)]
        return [(task, [*_placed(running, task), *tables.first_pending(tx, task, limit=limit)]) for task in tasks]

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
                    tx, subtask, "rescue", actor=tenure.owner_id, tenure=tenure, attempt=subtask.attempt + 1, exec_id=None, session=None,
                    retries=subtask.retries + 1,
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

    def _assign(self, work: Work, alive: list[Node], tenure: Tenure) -> bool:
        """Write a decision task by task; what somebody else wrote since the look is looked at again at the next tick."""
        threads_max = None if self.database.driver.capabilities.concurrent_writers else 1
        seen = {subtask.id: subtask for _, subtasks in work for subtask in subtasks}
        changed = False
        for task, moves in balancer.balance(work, alive, threads_max=threads_max):
            changed |= bool(moves) and self._hand_out(task, [(seen[number], host) for number, host in moves.items()], tenure)
        return changed

    def _hand_out(self, task: Task, moves: list[tuple[Placed, str]], tenure: Tenure) -> bool:
        try:
            with self.database.transaction() as tx:
                for host in sorted({host for _, host in moves}):
                    tables.assign_subtasks(tx, [subtask for subtask, to in moves if to == host], host, tenure=tenure)
        except (errors.StateChanged, errors.Retryable, errors.AmbiguousCommit) as error:
            log.info("task %s: assignment looked at again after %s", task.id, error)
            return False
        return True


def _placed(running: list[Subtask], task: Task) -> list[Placed]:
    """Return where the running subtasks of a task's present step are."""
    own = [one for one in running if one.task_id == task.id and one.step == task.step]
    return [Placed(id=one.id, ordinal=one.ordinal, state=one.state, exec_id=one.exec_id, rev=one.rev) for one in own]


class Cleaner:
    """The duty that moves subtasks of finished tasks to the history, and deletes what has been there for long, in bounded batches."""

    batch = 200

    def __init__(self, database: Database) -> None:
        self.database = database
        self._pruned_at = float("-inf")

    def tick(self, tenure: Tenure) -> bool:
        """Move one batch, or delete one now and then; return whether there was any."""
        with self.database.transaction(write=False) as tx:
            ids = tables.finished_tasks_with_subtasks(tx, limit=self.batch)
        if not ids:
            return self._prune(tenure)
        with self.database.transaction() as tx:
            tables.subtasks_to_history(tx, ids, tenure=tenure)
        return True

    def _prune(self, tenure: Tenure) -> bool:
        now, profile = self.database.clock.monotonic(), self.database.profile
        if now - self._pruned_at < profile.prune_seconds:
            return False
        with self.database.transaction() as tx:
            pruned = tables.prune_subtask_history(tx, older_than_ms=round(profile.history_seconds * 1000), limit=self.batch, tenure=tenure)
        if pruned < self.batch:
            self._pruned_at = now
        return pruned > 0
