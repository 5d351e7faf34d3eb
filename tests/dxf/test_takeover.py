"""Work of the dead and the frozen is taken over: sessions end first, late commits leave nothing, owners give way."""

import itertools

import pytest

from tests.dxf.faults import frozen_in
from tideshift.dxf import points, tables
from tideshift.dxf.machine import TaskState
from tideshift.store.driver import SessionIdentity

ON_SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
"""For what no database decides."""


def working(cluster, task_id):
    """Step until somebody has copied something, and return that executor."""
    cluster.run_until(lambda: any(e.subtask.checkpoint for e in cluster.executors() if e.task.id == task_id))
    return next(e for e in cluster.executors() if e.subtask.checkpoint)


def subtask(database, subtask_id):
    with database.transaction(write=False) as tx:
        return tables.subtask_by_id(tx, subtask_id)


def registered(database):
    with database.transaction(write=False) as tx:
        return {node.host for node in tables.nodes(tx)}


def test_a_dead_node_is_replaced(make_cluster, rows, database):
    """What it ran goes on elsewhere from the checkpoint, under a higher attempt, and it leaves the register."""
    cluster = make_cluster(nodes=3)
    task = rows.submit()
    taken = working(cluster, task.id).subtask

    cluster.kill_node(taken.exec_id)
    cluster.run_until(lambda: cluster.ended(task.id))

    again = next(s for s in cluster.dxf.subtasks(task.id) if s.id == taken.id)
    assert rows.exactly_once()
    assert cluster.dxf.show(task.id).state is TaskState.SUCCEED
    assert again.exec_id != taken.exec_id
    assert again.attempt >= taken.attempt + 2
    assert taken.exec_id not in registered(database)


@pytest.mark.parametrize("point", [points.BEFORE_CHUNK, points.AFTER_CHUNK], ids=lambda point: point.name)
def test_a_late_commit_of_a_frozen_node_leaves_nothing(make_cluster, rows, failpoints, point):
    """A process that stood still outside a transaction while its work was taken over and finished is told that it lost it."""
    cluster = make_cluster(nodes=3)
    task = rows.submit(parts=2)
    executor = working(cluster, task.id)

    with frozen_in(failpoints, point, cluster, executor):
        cluster.run_until(lambda: cluster.ended(task.id))
    if not executor.ended:
        cluster.run_until(lambda: executor.ended)

    assert executor.lost
    assert cluster.dxf.show(task.id).state is TaskState.SUCCEED
    assert rows.exactly_once()


@pytest.mark.parametrize("point", [points.AFTER_CHUNK_WORK, points.AFTER_CHECKPOINT], ids=lambda point: point.name)
def test_an_open_transaction_is_ended_before_its_work_is_taken(make_cluster, rows, database, failpoints, point):
    """A process frozen inside its transaction holds rows: its session is ended and seen gone before the attempt is raised."""
    if not database.driver.capabilities.ends_sessions:
        pytest.skip("this database has no sessions that can be ended: whoever holds the lock is named, never killed")
    cluster = make_cluster(nodes=3)
    task = rows.submit(parts=2)
    executor = working(cluster, task.id)
    gone = []
    failpoints.enable(points.BEFORE_SUBTASK_MOVE, "call", call=lambda **_: gone.append(session_gone(database, identity)), where={"event": "rescue"})
    identity = SessionIdentity.from_record(subtask(database, executor.subtask.id).session)
    assert not session_gone(database, identity)

    with frozen_in(failpoints, point, cluster, executor):
        cluster.run_until(lambda: cluster.ended(task.id))
    cluster.run_until(lambda: executor.ended)

    assert gone
    assert all(gone)
    assert cluster.dxf.show(task.id).state is TaskState.SUCCEED
    assert rows.exactly_once()


def session_gone(database, identity):
    with database.transaction(write=False) as tx:
        return database.driver.session_gone(tx.connection, identity)


def test_a_node_that_was_taken_for_dead_comes_back(make_cluster, rows, database):
    """A node that stood still for a while registers again, loses what was taken, and is given other work."""
    cluster = make_cluster(nodes=2)
    task = rows.submit(parts=8, batch_size=1, max_write_speed="4 rows")
    taken = working(cluster, task.id)
    frozen = taken.node
    before = [executor for executor in cluster.executors() if executor.node == frozen]
    cluster.freeze_node(frozen)
    cluster.run_until(lambda: frozen not in registered(database))

    cluster.thaw_node(frozen)
    cluster.run_until(lambda: frozen in registered(database))
    cluster.run_until(lambda: [e for e in cluster.executors() if e.node == frozen and e not in before])
    cluster.dxf.modify(task.id, max_write_speed="none", batch_size=10)
    cluster.run_until(lambda: cluster.ended(task.id))

    assert taken.lost
    assert cluster.dxf.show(task.id).state is TaskState.SUCCEED
    assert rows.exactly_once()


@ON_SQLITE
def test_a_heartbeat_in_the_last_moment_keeps_a_node_on_the_register(make_cluster, database):
    """The owner saw it dead, it beat, the owner takes it off the register: only if nothing has changed."""
    cluster = make_cluster(nodes=1)
    (member,) = cluster.members.values()
    with database.transaction(write=False) as tx:
        (seen,) = tables.nodes(tx)
    cluster.clock.advance(1)
    member.node.heartbeat()

    with database.transaction() as tx:
        assert not tables.delete_node(tx, seen.host, seen_heartbeat_at=seen.heartbeat_at)

    assert registered(database) == {member.name}


def test_an_owner_that_gives_way_in_the_middle_costs_nothing(make_cluster, rows):
    """The lease changes hands again and again while the task runs."""
    cluster = make_cluster(nodes=3)
    task = rows.submit(parts=6, batch_size=4)
    owners = []

    while not cluster.ended(task.id):
        owners.append(cluster.change_owner())
        cluster.run(5)

    assert len(owners) >= 2
    assert all(one != other for one, other in itertools.pairwise(owners))
    assert cluster.dxf.show(task.id).state is TaskState.SUCCEED
    assert rows.exactly_once()


@pytest.mark.parametrize("point", [points.AFTER_TASK_READ, points.AFTER_PLANNING], ids=lambda point: point.name)
def test_of_two_owners_only_one_writes(make_cluster, rows, failpoints, point):
    """An owner stands still after it read and decided; another one leads on; the late move of the first one fails."""
    cluster = make_cluster(nodes=2)
    old, new = cluster.members.values()
    old.owner.tick()
    task = rows.submit(parts=2)
    tenures = []

    def stand_still(**_context):
        """While the old owner stands here, the lease runs out and the new owner does the same move."""
        cluster.clock.advance(cluster.database.profile.lease_seconds + 0.1)
        failpoints.disable(point)
        new.owner.tick()
        tenures.extend([old.owner.tenure, new.owner.tenure])

    failpoints.enable(point, "1*call", call=stand_still)
    old.owner.tick()

    first, second = tenures
    assert second.number == first.number + 1
    running = cluster.dxf.show(task.id)
    assert (running.state, running.rev) == (TaskState.RUNNING, task.rev + 1)
    assert len(cluster.dxf.subtasks(task.id)) == 2
    cluster.run_until(lambda: cluster.ended(task.id))
    assert rows.exactly_once()


def test_a_deposed_owner_does_not_rescue(make_cluster, rows, database, failpoints):
    """The rescue of an owner whose lease ran out behind its back changes nothing; the next tenure does it."""
    cluster = make_cluster(nodes=2)
    alive, dying = cluster.members.values()
    alive.owner.tick()
    task = rows.submit(parts=2)
    cluster.run_until(lambda: any(e.subtask.checkpoint and not e.ended for e in dying.node.executors))
    before = subtask(database, dying.node.executors[0].subtask.id)
    cluster.kill_node(dying.name)
    for _ in range(6):
        cluster.clock.advance(0.4)
        alive.owner.renew()

    lease_ends = lambda **_: cluster.clock.advance(cluster.database.profile.lease_seconds)  # noqa: E731
    failpoints.enable(points.BEFORE_RESCUE, "1*call", call=lease_ends)
    alive.owner.tick()

    assert subtask(database, before.id) == before
    cluster.run_until(lambda: cluster.ended(task.id))
    assert rows.exactly_once()


@ON_SQLITE
def test_one_broken_duty_does_not_stop_the_others(make_cluster, rows):
    """An owner whose first duty always fails still schedules, rescues and keeps its lease."""
    from tideshift.testing.cluster import framework_duties

    class Broken:
        ticks = 0

        def tick(self, tenure):
            self.ticks += 1
            raise ZeroDivisionError("a bug in a duty")

    broken = Broken()
    cluster = make_cluster(duties=lambda database, registry: (broken, *framework_duties(database, registry)))
    task = rows.submit()

    cluster.run_until(lambda: cluster.ended(task.id))

    assert broken.ticks > 1
    assert rows.exactly_once()


SALTED = [("sqlite", salt) for salt in range(6)] + [("postgres15", 0)]


@pytest.mark.parametrize(("database_url", "salt"), SALTED, indirect=["database_url"])
def test_chaos(make_cluster, rows, random, salt):
    """Nodes die, freeze, thaw, join, leave and lead in an order of chance, and every row is still copied once."""
    cluster = make_cluster(nodes=3)
    task = rows.submit(parts=5, batch_size=4)
    acts = [cluster.kill_node, cluster.freeze_node, cluster.stop_node, lambda _: cluster.change_owner(), lambda _: thaw_all(cluster)]

    for _ in range(60):
        if cluster.ended(task.id):
            break
        cluster.run(random.randrange(1, 12))
        awake = [name for name, member in cluster.members.items() if not member.frozen]
        random.choice(acts)(random.choice(awake))
        while sum(not member.frozen for member in cluster.members.values()) < 2:
            cluster.add_node()
    thaw_all(cluster)
    cluster.run_until(lambda: cluster.ended(task.id))

    assert cluster.dxf.show(task.id).state is TaskState.SUCCEED
    assert rows.exactly_once()


def thaw_all(cluster):
    for name in cluster.members:
        cluster.thaw_node(name)


def test_a_session_whose_subtask_was_taken_serves_nobody_else(make_cluster, rows, database):
    """Its connection is closed for good, so that whoever ends it later by the row's word hits no innocent."""
    if not database.driver.capabilities.ends_sessions:
        pytest.skip("this database has no sessions that can be ended")
    cluster = make_cluster(nodes=1, slots=1)
    task = rows.submit(parts=1)
    executor = working(cluster, task.id)
    identity = executor._session.identity

    cluster.dxf.pause(task.id)
    cluster.run_until(lambda: executor.ended and not cluster.executors())
    cluster.run_until(lambda: session_gone(database, identity))
    cluster.dxf.resume(task.id)
    cluster.run_until(lambda: cluster.ended(task.id))

    assert executor.lost
    assert rows.exactly_once()
