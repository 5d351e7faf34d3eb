"""The whole life of a task on a cluster: steps, shares, history, and that a seed decides everything."""

import pytest

from tideshift import errors
from tideshift.dxf import tables
from tideshift.dxf.commands import Verdict
from tideshift.dxf.machine import SubtaskState, TaskState
from tideshift.dxf.task import DONE
from tideshift.store import events
from tideshift.testing.cluster import Cluster
from tideshift.testing.sample import COPY, COUNT

ON_SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
"""For what no database decides."""


def test_a_task_goes_through_its_steps_and_succeeds(cluster, rows):
    """Every row arrives once, every step's subtasks succeed, and the second step saw what the first one did."""
    task = rows.submit()

    cluster.run_until(lambda: cluster.ended(task.id))

    ended, subtasks = cluster.dxf.show(task.id), cluster.dxf.subtasks(task.id)
    assert (ended.state, ended.step, ended.error) == (TaskState.SUCCEED, DONE, None)
    assert rows.exactly_once()
    assert [(s.step, s.ordinal) for s in subtasks] == [(step, n) for step in (COPY, COUNT) for n in (1, 2, 3, 4)]
    assert {s.state for s in subtasks} == {SubtaskState.SUCCEED}
    assert sum(s.summary["counted"] for s in subtasks if s.step == COUNT) == rows.number


@ON_SQLITE
def test_the_log_tells_every_move_of_the_task(cluster, rows, database):
    """From submission to success, each with the actor, and rev by rev."""
    task = rows.submit()

    cluster.run_until(lambda: cluster.ended(task.id))

    with database.transaction(write=False) as tx:
        moves = [event for event in events.history(tx, task_id=task.id) if event.kind == "move"]
    assert [event.target for event in moves] == ["pending", "running", "running", "succeed"]
    assert [event.detail["event"] for event in moves] == ["submit", "start", "advance", "succeed"]
    assert [event.detail.get("rev") for event in moves] == [None, 2, 3, 4]
    assert moves[0].actor == "test"
    assert {event.actor for event in moves[1:]} <= {"node-1", "node-2"}


def test_two_nodes_share_the_subtasks(cluster, rows):
    """Each of two equal nodes is given half of a step; one that comes on faster may take over what still waits on the other."""
    task = rows.submit()

    cluster.run_until(lambda: cluster.dxf.subtasks(task.id))
    given = [s.exec_id for s in cluster.dxf.subtasks(task.id)]
    cluster.run_until(lambda: cluster.ended(task.id))

    assert given == ["node-1", "node-2", "node-1", "node-2"]
    assert {s.exec_id for s in cluster.dxf.subtasks(task.id) if s.step == COPY} == {"node-1", "node-2"}


@ON_SQLITE
def test_a_node_that_joins_late_gets_work(make_cluster, rows):
    """What is pending on a busy node is given to one that came later."""
    cluster = make_cluster(nodes=1, slots=1)
    task = rows.submit(parts=6)
    cluster.run_until(cluster.executors)

    late = cluster.add_node()
    cluster.run_until(lambda: cluster.ended(task.id))

    assert rows.exactly_once()
    assert late in {s.exec_id for s in cluster.dxf.subtasks(task.id) if s.step == COPY}


@ON_SQLITE
def test_the_number_of_nodes_can_be_bounded(make_cluster, rows):
    """A task that may use one node is run by one, though there are three."""
    cluster = make_cluster(nodes=3)
    task = rows.submit(submit={"max_node_count": 1})

    cluster.run_until(lambda: cluster.ended(task.id))

    assert len({s.exec_id for s in cluster.dxf.subtasks(task.id)}) == 1


@ON_SQLITE
def test_a_task_stays_in_its_scope(make_cluster, rows):
    """Subtasks of a scoped task run on nodes of that scope only."""
    cluster = make_cluster(nodes=2)
    scoped = cluster.add_node(scope="reports")
    task = rows.submit(submit={"target_scope": "reports"})

    cluster.run_until(lambda: cluster.ended(task.id))

    assert {s.exec_id for s in cluster.dxf.subtasks(task.id)} == {scoped}


@ON_SQLITE
def test_an_empty_plan_skips_the_step(cluster, rows):
    """A source without rows has nothing to copy and nothing to count."""
    rows.run(f"DELETE FROM {rows.source}")
    task = rows.submit()

    cluster.run_until(lambda: cluster.ended(task.id))

    assert cluster.dxf.show(task.id).state is TaskState.SUCCEED
    assert cluster.dxf.subtasks(task.id) == []


@ON_SQLITE
def test_a_more_urgent_task_is_started_first(make_cluster, rows, database):
    """With one slot the task of better rank gets it, though it was submitted later."""
    cluster = make_cluster(nodes=1, slots=1)
    later, first = (rows.submit(key, parts=1, submit={"priority": priority}) for key, priority in (("a", 512), ("b", 1)))
    cluster.run_until(lambda: {s.task_id for s in active(database)} == {later.id, first.id})

    cluster.run_until(cluster.executors)

    assert [executor.task.id for executor in cluster.executors()] == [first.id]


def active(database):
    with database.transaction(write=False) as tx:
        return tables.active_subtasks(tx)


def test_threads_cap_what_a_node_runs_of_a_task(make_cluster, rows, database):
    """A node runs as many subtasks of a task as its threads say, and one where the database has one writer."""
    cluster = make_cluster(nodes=1, slots=4)
    rows.submit(parts=4, batch_size=1, submit={"threads": 3})
    most = 0

    for _ in range(60):
        cluster.step()
        most = max(most, len(cluster.executors()))

    assert most == (3 if database.driver.capabilities.concurrent_writers else 1)


@ON_SQLITE
def test_a_node_never_runs_more_than_its_slots(make_cluster, rows):
    """Two tasks with many threads still share the slots of the node."""
    cluster = make_cluster(nodes=1, slots=2)
    tasks = [rows.submit(f"key {n}", parts=4, batch_size=2, submit={"threads": 8}) for n in range(2)]
    most = 0

    while not cluster.ended(*(task.id for task in tasks)):
        cluster.step()
        most = max(most, len(cluster.executors()))

    assert most == 2


def test_the_subtasks_of_a_finished_task_follow_it_to_the_history(cluster, rows, database):
    """The cleaner moves them in batches; they are read as before, each once."""
    task = rows.submit()
    cluster.run_until(lambda: cluster.ended(task.id))
    before = cluster.dxf.subtasks(task.id)

    cluster.run_until(lambda: live_subtasks(database) == 0)

    assert cluster.dxf.subtasks(task.id) == before


def live_subtasks(database):
    with database.transaction(write=False) as tx:
        return len(tx.execute(tables.subtask.select()).all())


@ON_SQLITE
def test_a_key_is_used_once(cluster, rows):
    """A second task with the same key is refused while the first one lives and when it has ended."""
    task = rows.submit("the key")

    with pytest.raises(errors.CommandRefused, match=f"belongs to task {task.id}"):
        rows.submit("the key")
    cluster.run_until(lambda: cluster.ended(task.id))
    with pytest.raises(errors.CommandRefused, match=f"belongs to task {task.id}"):
        rows.submit("the key")


def test_a_node_that_stops_gives_everything_back(make_cluster, rows, database):
    """Its subtasks are pending again with their checkpoints, the lease is free at once, and it is off the register."""
    cluster = make_cluster(nodes=1)
    task = rows.submit(parts=2)
    cluster.run_until(lambda: any(s.checkpoint for s in cluster.dxf.subtasks(task.id)))
    (name,) = cluster.members

    cluster.stop_node(name)

    subtasks = cluster.dxf.subtasks(task.id)
    assert {s.state for s in subtasks} <= {SubtaskState.PENDING, SubtaskState.SUCCEED}
    assert any(s.checkpoint for s in subtasks)
    assert all(s.session is None for s in subtasks if s.state is SubtaskState.PENDING)
    with database.transaction(write=False) as tx:
        assert tables.nodes(tx) == []
    successor = cluster.add_node()
    cluster.members[successor].owner.tick()
    assert cluster.owner_name() == successor
    cluster.run_until(lambda: cluster.ended(task.id))
    assert rows.exactly_once()


@ON_SQLITE
def test_an_unknown_id_is_answered_for_itself(cluster, rows):
    """Of several ids each has its own answer, in the order of asking."""
    task = rows.submit()

    answers = cluster.dxf.pause(404, task.id)

    assert [(answer.id, answer.verdict) for answer in answers] == [(404, Verdict.NOT_FOUND), (task.id, Verdict.APPLIED)]


def test_the_seed_decides_everything(sqlite_url, tmp_path):
    """The same seed gives the same log, event by event; another seed another order."""
    logs = [trace(sqlite_url, tmp_path / f"{n}.db", seed) for n, seed in enumerate((3, 3, 4))]

    assert logs[0] == logs[1]
    assert logs[0] != logs[2]


def trace(url, copy, seed):
    """Run one task with pauses and a lost node on a copy of an empty file; return its log."""
    from tests.databases import SQLITE_SCHEME, opened
    from tests.dxf.conftest import Rows
    from tideshift.clock import SteppedClock
    from tideshift.dxf.tasktype import Registry
    from tideshift.store import bootstrap
    from tideshift.testing.sample import CopyRows

    copy.write_bytes((copy.parent / url.rsplit("/", 1)[1]).read_bytes())
    with opened(f"{SQLITE_SCHEME}{copy}", SteppedClock()) as database:
        bootstrap.bootstrap(database)
        rows = Rows(database, 30)
        with Cluster(database, Registry(CopyRows()), nodes=3, seed=seed) as cluster:
            task = rows.submit()
            cluster.run(60)
            cluster.kill_node("node-2")
            cluster.run_until(lambda: cluster.ended(task.id))
            with database.transaction(write=False) as tx:
                log = events.history(tx, task_id=task.id)
            return [(e.at, e.kind, e.actor, e.source, e.target) for e in log], cluster.steps
