"""The service with its real threads and real time: it works, stops in the middle in order, and another one goes on."""

import threading

import pytest

from tests.databases import opened
from tests.dxf.conftest import Rows, empty
from tideshift.dxf import points, tables
from tideshift.dxf.commands import Dxf
from tideshift.dxf.machine import SubtaskState, TaskState
from tideshift.dxf.node import WorkerNode
from tideshift.dxf.owner import Owner
from tideshift.dxf.service import STOP_SECONDS, Service
from tideshift.store import bootstrap
from tideshift.testing.cluster import framework_duties

WAIT_SECONDS = 30


@pytest.fixture
def database(database_url):
    """An open database with system tables that keeps its own time."""
    with opened(database_url) as database:
        if not bootstrap.bootstrap(database):
            empty(database)
        yield database


@pytest.fixture
def rows(database):
    """Sixty rows to copy."""
    return Rows(database, 60)


@pytest.fixture
def make_service(database, registry):
    """Makes services of one node each."""

    def make():
        node = WorkerNode(database, registry, slots=2)
        return Service(database, Owner(database, holder=node.name, duties=framework_duties(database, registry)), node, version="test")

    return make


def test_a_service_carries_a_task_out_and_leaves_in_order(database, rows, make_service, failpoints):
    """Threads for owner, node, heartbeat and subtasks do what the simulation does; afterwards nobody is registered."""
    ending = failpoints.enable(points.BEFORE_TASK_MOVE, "off", where={"event": "succeed"})
    task = rows.submit(parts=4, submit={"threads": 2})

    with make_service() as service:
        ending.wait_hit(timeout_seconds=WAIT_SECONDS)

    assert Dxf(database).show(task.id).state is TaskState.SUCCEED
    assert rows.exactly_once()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("tideshift-")]
    with database.transaction(write=False) as tx:
        assert tables.nodes(tx) == []
    assert service.owner.tenure is None


def test_a_stop_in_the_middle_gives_back_and_another_one_goes_on(database, rows, make_service, failpoints):
    """Subtasks are pending again with their checkpoints and no attempt runs; the successor need not wait for the lease."""
    working = failpoints.enable(points.AFTER_CHUNK, "off")
    task = rows.submit(parts=2, batch_size=1, max_write_speed="60 rows")
    with make_service():
        working.wait_hit(3, timeout_seconds=WAIT_SECONDS)
    left = Dxf(database).subtasks(task.id)
    copied = rows.copied()
    ending = failpoints.enable(points.BEFORE_TASK_MOVE, "off", where={"event": "succeed"})

    Dxf(database).modify(task.id, max_write_speed="none", batch_size=50)
    with make_service():
        ending.wait_hit(timeout_seconds=WAIT_SECONDS)

    assert {s.state for s in left} <= {SubtaskState.PENDING, SubtaskState.SUCCEED}
    assert copied[0] == copied[1] == sum(s.checkpoint["done"] - s.meta["low"] for s in left if s.checkpoint)
    assert Dxf(database).show(task.id).state is TaskState.SUCCEED
    assert rows.exactly_once()


class Noting(WorkerNode):
    """A node that notes how long each write of its end may wait for the database."""

    waits: tuple[float | None, ...] = ()

    def heartbeat(self, *, lock_wait_seconds=None, through=None):
        if self.stopping.is_set():
            self.waits += (lock_wait_seconds,)
        return super().heartbeat(lock_wait_seconds=lock_wait_seconds, through=through)

    def release_all(self, *, lock_wait_seconds=None):
        self.waits += (lock_wait_seconds,)
        super().release_all(lock_wait_seconds=lock_wait_seconds)

    def deregister(self, *, lock_wait_seconds=None):
        self.waits += (lock_wait_seconds,)
        super().deregister(lock_wait_seconds=lock_wait_seconds)


def test_the_writes_of_the_end_wait_within_the_stop_budget(database, registry):
    """A busy database cannot hold a stop up for longer than its budget."""
    node = Noting(database, registry, slots=1)
    with Service(database, Owner(database, holder=node.name, duties=()), node, version="test"):
        pass

    assert len(node.waits) >= 3
    assert all(0 < wait <= STOP_SECONDS for wait in node.waits)
    with database.transaction(write=False) as tx:
        assert tables.nodes(tx) == []
