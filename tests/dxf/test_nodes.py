"""Nodes: a heartbeat that nothing starves, leaving in order, what is planned beside the tick, and budgets and history that are bounded."""

import threading
from dataclasses import replace

import pytest
from sqlalchemy import exc, func, select

from tests.databases import opened
from tests.dxf.conftest import Rows, empty
from tests.waiting import until
from tideshift.dxf import tables
from tideshift.dxf.machine import SubtaskState, TaskState
from tideshift.dxf.node import WorkerNode
from tideshift.dxf.owner import Owner
from tideshift.dxf.service import Service
from tideshift.store import bootstrap
from tideshift.testing.cluster import framework_duties
from tideshift.testing.sample import CopyRows, sample_meta

ON_SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
"""For what no database decides."""


# ── on the stepped clock ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_draining_node_gives_back_between_two_chunks(make_cluster, rows):
    """It begins nothing new, what it ran goes on elsewhere from its checkpoint, and it is done when nothing runs there."""
    cluster = make_cluster(nodes=2)
    task = rows.submit(parts=2, batch_size=1)
    cluster.run_until(lambda: any(executor.subtask.checkpoint for executor in cluster.executors()))
    leaving = cluster.executors()[0].node

    cluster.dxf.drain(leaving)
    cluster.run_until(lambda: cluster.members[leaving].node.is_drained)
    left = [s for s in cluster.dxf.subtasks(task.id) if s.state is not SubtaskState.SUCCEED]
    cluster.run_until(lambda: cluster.ended(task.id))

    assert left
    assert cluster.members[leaving].node.is_drained
    assert cluster.dxf.show(task.id).state is TaskState.SUCCEED
    assert rows.exactly_once()
    assert leaving not in {s.exec_id for s in cluster.dxf.subtasks(task.id) if s.id in {one.id for one in left}}


@ON_SQLITE
def test_a_wish_to_drain_outlives_the_register(make_cluster, database):
    """A draining node that was taken for dead registers again as draining."""
    cluster = make_cluster(nodes=1)
    (member,) = cluster.members.values()
    cluster.dxf.drain(member.name)
    member.node.heartbeat()
    with database.transaction() as tx:
        tables.delete_node(tx, member.name)

    assert not member.node.heartbeat()
    member.node.register("test")

    assert [node.draining for node in cluster.dxf.nodes()] == [True]


def test_a_subtask_that_ends_its_nodes_is_given_up(make_cluster, rows, database, monkeypatch):
    """Rescued again and again without any progress it fails, instead of taking one node after the other with it."""
    monkeypatch.setattr(database, "profile", replace(database.profile, error_count_limit=3))
    cluster = make_cluster(nodes=2)
    task = rows.submit(parts=1)
    for _ in range(3):
        cluster.run_until(cluster.executors)
        cluster.kill_node(cluster.executors()[0].node)
        cluster.add_node()
    cluster.run_until(lambda: cluster.ended(task.id))

    (poison,) = cluster.dxf.subtasks(task.id)
    assert (poison.state, poison.error["code"]) == (SubtaskState.FAILED, "subtask_abandoned")
    assert cluster.dxf.show(task.id).state is TaskState.REVERTED


def test_progress_gives_the_budget_back(make_cluster, rows, database):
    """A chunk that commits takes the rescues off the row: a long subtask may outlive any number of nodes."""
    cluster = make_cluster(nodes=2)
    task = rows.submit(parts=1, batch_size=1)
    cluster.run_until(cluster.executors)
    cluster.kill_node(cluster.executors()[0].node)
    cluster.run_until(lambda: cluster.dxf.subtasks(task.id)[0].retries == 1)

    cluster.run_until(lambda: cluster.dxf.subtasks(task.id)[0].checkpoint)

    assert cluster.dxf.subtasks(task.id)[0].retries == 0


def test_old_subtasks_leave_the_history_in_batches(make_cluster, rows, database):
    """What is older than the history is kept goes, a bounded number at a time; the task itself stays, and its key is still taken."""
    cluster = make_cluster()
    task = rows.submit(parts=4)
    cluster.run_until(lambda: cluster.ended(task.id) and _count(database, tables.subtask_history) == 8)

    cluster.run(50)
    kept = _count(database, tables.subtask_history)
    cluster.clock.advance(database.profile.history_seconds + 1)
    cluster.run_until(lambda: _count(database, tables.subtask_history) == 0)

    assert kept == 8
    assert cluster.dxf.show(task.id).state is TaskState.SUCCEED
    with database.transaction(write=False) as tx:
        assert tables.task_by_key(tx, task.task_key) is not None


def _count(database, table):
    with database.transaction(write=False) as tx:
        return tx.execute(select(func.count()).select_from(table)).scalar_one()


def test_progress_is_kept_in_counters(make_cluster, rows, database):
    """The sums over the nodes are what the subtasks say, at the end and after a node has died on the way."""
    from tideshift.dxf.progress_tables import progress_of

    cluster = make_cluster(nodes=3)
    task = rows.submit(parts=6, batch_size=3)
    cluster.run_until(lambda: any(s.state is SubtaskState.SUCCEED for s in cluster.dxf.subtasks(task.id)) and cluster.executors())
    cluster.kill_node(cluster.executors()[0].node)

    cluster.run_until(lambda: cluster.ended(task.id))

    with database.transaction(write=False) as tx:
        steps = [(one.subtasks_total, one.subtasks_done, one.row_count) for one in progress_of(tx, task.id)]
    assert steps == [(6, 6, rows.number), (6, 6, 0)]


# ── with real threads ─────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def alive(database_url):
    """An open database with system tables that keeps its own time."""
    with opened(database_url) as database:
        if not bootstrap.bootstrap(database):
            empty(database)
        yield database


def service_of(database, registry, **options):
    node = WorkerNode(database, registry, slots=2, **options)
    return Service(database, Owner(database, holder=node.name, duties=framework_duties(database, registry)), node, version="test")


def beats_of(database, name):
    with database.transaction(write=False) as tx:
        return [node.heartbeat_at for node in tables.nodes(tx) if node.host == name]


def test_an_exhausted_pool_does_not_stop_the_heart(alive, registry, monkeypatch, database_url):
    """When nobody gets a connection any more, the heart goes on beating and the lease is renewed, through their own."""
    with service_of(alive, registry) as service, opened(database_url) as looking:
        until(lambda: service.owner.tenure is not None, "an owner")
        tenure = service.owner.tenure
        monkeypatch.setattr(alive.engine, "connect", _nothing_left)
        (before,) = beats_of(looking, service.node.name)

        until(lambda: beats_of(looking, service.node.name)[0] > before + 1000 * looking.profile.node_dead_after_seconds, "beats for longer than a dead node has")

        assert service.owner.tenure == tenure
        assert service.owner.lease.holds(tenure)
        monkeypatch.undo()


def _nothing_left():
    raise exc.TimeoutError("the pool is exhausted")


class Busy(CopyRows):
    """A type whose body is plain Python that never waits, until it is told to end."""

    name = "test.busy"

    def __init__(self):
        self.over = threading.Event()
        self.begun = threading.Event()

    def next_step(self, task):
        return {-1: 1, 1: -2}[task.step]

    def plan(self, tx, task, step):
        return [{"number": 1}]

    def open(self, task, subtask):
        return self

    def step(self, context):
        self.begun.set()
        while not self.over.is_set():  # ends: the test sets it
            sum(range(1000))
        return False


def test_a_body_that_never_waits_does_not_stop_the_heart(alive, registry):
    """Python of the user's that takes all of the processor leaves the heart its turn."""
    from tideshift.dxf.commands import Dxf

    busy = Busy()
    registry.add(busy)
    with service_of(alive, registry) as service:
        task = Dxf(alive).submit(Busy.name, "busy", {})
        until(busy.begun.is_set, "at work")
        (before,) = beats_of(alive, service.node.name)
        try:
            until(lambda: beats_of(alive, service.node.name)[0] > before + 1000 * alive.profile.node_dead_after_seconds, "beats beside the work")
        finally:
            busy.over.set()
        until(lambda: Dxf(alive).show(task.id).state is TaskState.SUCCEED, "the end of the work")


class Thinking(CopyRows):
    """A type whose planning takes as long as the test wants."""

    name = "test.thinking"

    def __init__(self):
        self.thinking = threading.Event()
        self.over = threading.Event()

    def plan(self, tx, task, step):
        self.thinking.set()
        until(self.over.is_set, "told to go on")
        return super().plan(tx, task, step)


def test_planning_keeps_nobody_waiting(alive, registry):
    """While one task is being planned another one runs to its end, and the one that is planned can be cancelled."""
    from tideshift.dxf.commands import Dxf

    thinking = Thinking()
    registry.add(thinking)
    rows, dxf = Rows(alive, 60), Dxf(alive)
    with service_of(alive, registry):
        slow = dxf.submit(Thinking.name, "slow", sample_meta(rows.source, rows.target, parts=2))
        until(thinking.thinking.is_set, "planning")
        quick = rows.submit(parts=2)
        try:
            until(lambda: dxf.show(quick.id).state is TaskState.SUCCEED, "the end of the quick one")
            dxf.cancel(slow.id)
            until(lambda: dxf.show(slow.id).state is TaskState.REVERTED, "the end of the slow one")
        finally:
            thinking.over.set()

    assert rows.exactly_once()


def test_a_long_planning_statement_is_ended(alive, registry):
    """On a database that can end a statement, the one that plans for a task which was cancelled does not run on."""
    if not alive.driver.capabilities.ends_sessions:
        pytest.skip("a statement of this database is ended by its own process alone")
    from tideshift.dxf.commands import Dxf

    begun, ended = threading.Event(), threading.Event()

    class Sleeping(CopyRows):
        name = "test.sleeping"

        def plan(self, tx, task, step):
            begun.set()
            try:
                tx.run_verbatim("SELECT pg_sleep(300)")
            finally:
                ended.set()
            return []

    registry.add(Sleeping())
    dxf = Dxf(alive)
    with service_of(alive, registry):
        task = dxf.submit(Sleeping.name, "sleeping", {})
        until(begun.is_set, "planning")
        dxf.cancel(task.id)

        until(ended.is_set, "the end of the statement")
        until(lambda: dxf.show(task.id).state is TaskState.REVERTED, "the end of the task")
