"""What the tests of moves share: one database per module, rows in any state, and transactions that leave nothing."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest
from sqlalchemy import func, insert, select

from tests.conftest import DATABASES, SERVER_FIXTURES, give_up
from tests.databases import open_database
from tests.servers import sqlite_module
from tideshift.clock import SteppedClock
from tideshift.dxf import tables
from tideshift.dxf.machine import SubtaskState, TaskState
from tideshift.store import bootstrap, events
from tideshift.store.database import Database, Transaction
from tideshift.store.lease import Lease, Tenure
from tideshift.store.tables import owner_lease


class RolledBack(Exception):
    """Ends a transaction whose effects are not wanted."""


@contextmanager
def shared_url(request, folder) -> Iterator[str]:
    """The URL of a database that all tests of a module share."""
    if request.param == "sqlite":
        path = folder / "shared.db"
        with closing(sqlite_module().connect(path)) as connection:
            connection.execute("PRAGMA journal_mode = wal")
        yield f"sqlite:///{path}"
        return
    server = request.getfixturevalue(SERVER_FIXTURES[request.param])
    if isinstance(server, str):
        give_up(request.param, server)
    name = server.create_database()
    yield server.url(name)
    server.drop_database(name)


@contextmanager
def shared_system(url: str) -> Iterator[Database]:
    """The open database of a module, with system tables and a time that stands still."""
    with closing(open_database(url, SteppedClock())) as database:
        bootstrap.bootstrap(database)
        yield database


@contextmanager
def rolled_back(database: Database) -> Iterator[Transaction]:
    """A transaction that is rolled back at its end."""
    try:
        with database.transaction() as tx:
            yield tx
            raise RolledBack
    except RolledBack:
        return


def tenure_of(database: Database, holder: str = "owner") -> Tenure:
    """Take the lease for an owner of this test, or go on with the one that is held."""
    taken = Lease(database, holder=holder).acquire()
    if taken is not None:
        return taken
    with database.transaction(write=False) as tx:
        row = tx.execute(select(owner_lease)).one()
    return Tenure(row.name, row.owner_id, row.tenure)


def end_lease(database: Database) -> None:
    """Let the lease run out."""
    assert isinstance(database.clock, SteppedClock)
    database.clock.advance(database.profile.lease_seconds + 1)


def put_task(tx: Transaction, state: TaskState, *, task_id: int = 1, **columns):
    """Insert a task in any state, and read it."""
    row = {
        "id": task_id, "task_key": f"key {task_id}", "type": "test", "state": state, "priority": 512, "create_time": 1,
        "start_time": None, "state_update_time": 1, "end_time": None, "meta": {"parameters": {"batch_size": 7}},
        "concurrency": 2, "step": 1, "target_scope": "", "error": None, "modify_params": None, "max_node_count": 0,
        "extra_params": {}, "keyspace": "", "rev": 5, **columns,
    }  # fmt: skip
    tx.execute(insert(tables.task).values(row))
    return tables.task_by_id(tx, task_id)


def put_subtask(tx: Transaction, state: SubtaskState, *, subtask_id: int = 1, **columns):
    """Insert a subtask in any state, and read it."""
    row = {
        "id": subtask_id, "step": 1, "task_id": 1, "type": "test", "exec_id": "node-1", "state": state,
        "checkpoint": {"done": 3}, "concurrency": 1, "create_time": 1, "start_time": 1, "state_update_time": 1,
        "end_time": None, "meta": {"low": 0}, "ordinal": subtask_id, "error": None, "summary": {"row_count": 3},
        "attempt": 4, "retries": 0, "session": None, "rev": 5, **columns,
    }  # fmt: skip
    tx.execute(insert(tables.subtask).values(row))
    return tables.subtask_by_id(tx, subtask_id)


def count(tx: Transaction, table) -> int:
    """Count a table's rows."""
    return tx.execute(select(func.count()).select_from(table)).scalar_one()


def moves_of(tx: Transaction, **about) -> list[tuple[str, str]]:
    """The moves that the event log tells of a job or a task: from, to."""
    return [(event.source, event.target) for event in events.history(tx, **about) if event.kind == "move"]


def module_fixtures():
    """Make the two fixtures of a module of moves: its database's URL, and the open database."""

    @pytest.fixture(scope="module", params=DATABASES)
    def database_url(request, tmp_path_factory):
        """The URL of the module's database, on every database that the project speaks."""
        with shared_url(request, tmp_path_factory.mktemp("moves")) as url:
            yield url

    @pytest.fixture(scope="module")
    def system(database_url):
        """The open database of this module."""
        with shared_system(database_url) as database:
            yield database

    return database_url, system
