"""From one subtask to the next: finished and claimed in one transaction, several at a time where they are quick, and given up where others come first."""

import pytest
from sqlalchemy import update

from tideshift.dxf import points, tables
from tideshift.dxf.handover.batch import Batch
from tideshift.dxf.machine import SubtaskState, TaskState
from tideshift.dxf.node import CLAIMS_PER_SLOT
from tideshift.dxf.task import DONE
from tideshift.errors import Retryable
from tideshift.store import points as store_points
from tideshift.store.database import ConstraintViolated
from tideshift.testing.sample import COUNT

ON_SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
"""For what no database decides."""
ON_SERVER = pytest.mark.parametrize("database_url", ["postgres15"], indirect=True)
"""Where the server may fall while the node lives."""
S = SubtaskState


@pytest.fixture
def cluster(make_cluster):
    """One member with two slots that leads."""
    return make_cluster(nodes=1, slots=2)


@pytest.fixture
def alone(cluster):
    """That member, moved by the test itself while its clock stands still: subtasks then take no time at all."""
    (member,) = cluster.members.values()
    member.owner.tick()
    return member


def begin(member, rows, **submit):
    """Submit a task, plan it, and start what may start."""
    task = rows.submit(**submit)
    member.owner.tick()
    member.node.start_due()
    return task


def current(member):
    """The executors at work."""
    return member.node.running()


def step(member, times=1):
    """Step whoever is at work."""
    for _ in range(times):
        for executor in current(member):
            executor.step()


def in_state(database, task, state):
    with database.transaction(write=False) as tx:
        return [one.ordinal for one in tables.in_states(tx, tables.task_by_id(tx, task.id), (state,))]


def test_quick_subtasks_are_claimed_several_at_a_time(cluster, alone, rows, database, failpoints):
    """The claims grow, never beyond four per slot, and far fewer transactions than subtasks end them."""
    endings = failpoints.enable(points.BEFORE_SUBTASK_MOVE, "off", where={"event": "succeed"})
    commits = failpoints.enable(store_points.BEFORE_COMMIT, "off")
    task = begin(alone, rows, parts=30, batch_size=50)
    running = []

    before = commits.hits
    while in_state(database, task, S.PENDING) or in_state(database, task, S.RUNNING):
        step(alone)
        running.append(len(in_state(database, task, S.RUNNING)))
    written = commits.hits - before - 3 * len(running)  # the looks of this test commit as well

    assert endings.hits == 30
    assert 4 <= max(running) <= CLAIMS_PER_SLOT * alone.node.slots
    assert written < 30 * 2 - 10, "each subtask has its chunk, and shares the rest"
    assert {one.attempt for one in subtasks(database, task)} == {1}
    cluster.run_until(lambda: cluster.ended(task.id))
    assert rows.exactly_once()


def test_who_finished_the_last_piece_says_that_nothing_follows(cluster, alone, rows, database):
    """From step to step the next one is there at once; with the task's end whoever follows it has to look, so the answer is no."""
    task = begin(alone, rows, parts=3, batch_size=50)
    answers = []
    for _ in range(100):
        if cluster.ended(task.id):
            break
        alone.node.start_due()
        step(alone)
        if not in_state(database, task, S.PENDING) and not in_state(database, task, S.RUNNING):
            answers.append((alone.owner.hasten(task.id), cluster.dxf.show(task.id).step))

    assert answers == [(True, COUNT), (False, DONE)]
    assert rows.exactly_once()


def subtasks(database, task):
    with database.transaction(write=False) as tx:
        return tables.subtasks_of(tx, task.id)


def test_slow_commits_do_not_keep_the_claims_small():
    """What counts is how long the subtasks take, not how long the disk does; slow subtasks are claimed one by one."""
    quick, slow = Batch(begun_at=10.0), Batch(begun_at=10.0)

    for batch, seconds in ((quick, 0.001), (slow, 0.2)):
        batch.done.append("a subtask")
        assert not batch.keeps(10.0 + seconds)
        batch.wrote(size_max=16)  # half a second later, by the clock on the wall

    assert (quick.size, slow.size) == (2, 1)


def with_batch(member, database, task):
    """Go on until several subtasks are claimed and one of them is done but not written."""
    for _ in range(100):
        for executor in current(member):
            if executor._batch.done and executor._batch.waiting:
                return executor
        step(member)
    raise AssertionError("no batch came about")


def test_a_pause_takes_the_whole_batch(cluster, alone, rows, database, outcomes):
    """What is done and not written, what runs and what waits are all paused; what was committed is not done again."""
    task = begin(alone, rows, parts=20, batch_size=50)
    executor = with_batch(alone, database, task)
    claimed = executor.claimed_ids

    cluster.dxf.pause(task.id)
    alone.owner.tick()
    step(alone, 5)

    paused = {one.id for one in subtasks(database, task) if one.state is S.PAUSED}
    assert claimed & paused
    assert not current(alone)
    assert not in_state(database, task, S.RUNNING)
    cluster.dxf.resume(task.id)
    cluster.run_until(lambda: cluster.ended(task.id))
    assert rows.exactly_once()
    assert outcomes(task.id) == [("pause", ["applied"]), ("resume", ["applied"])]


def test_one_that_was_taken_from_the_batch_does_not_cost_the_others(cluster, alone, rows, database):
    """Of those that are done one was rescued meanwhile: it is done again from its checkpoint, the others are written once."""
    task = begin(alone, rows, parts=20, batch_size=50)
    executor = with_batch(alone, database, task)
    done = [one.id for one in executor._batch.done]
    with database.transaction() as tx:
        taken = tables.subtask_by_id(tx, done[0])
        tenure = alone.owner.tenure
        tables.move_subtask(tx, taken, "rescue", actor="owner", tenure=tenure, attempt=taken.attempt + 1, exec_id=None, session=None)

    step(alone, 20)

    states = {one.id: one for one in subtasks(database, task)}
    assert states[done[0]].state is not S.RUNNING
    assert all(states[number].state is S.SUCCEED for number in done[1:])
    assert executor.lost or executor.successor is not None
    for _ in range(3):  # what the lost connection had claimed is given back after two looks
        alone.node.start_due()
    cluster.run_until(lambda: cluster.ended(task.id))
    assert rows.exactly_once()


def fall(database, rows, executor, losing):
    """Let the server fall as far as an executor sees it: its session is gone, and so is what these subtasks had committed last."""
    with database.transaction() as tx:
        database.driver.end_session(tx.connection, executor._session.identity)
        for one in losing:
            tx.run_verbatim(f"DELETE FROM {rows.target} WHERE id > {one.meta['low']} AND id <= {one.meta['high']}")
            tx.execute(update(tables.subtask).where(tables.subtask.c.id == one.id).values(checkpoint={}, summary={}))


@ON_SERVER
def test_what_a_fallen_server_did_not_keep_is_done_again(cluster, alone, rows, database):
    """Of a batch that is done and not written one lost its last commit: that one is run again, the others are not."""
    task = begin(alone, rows, parts=20, batch_size=50)
    executor = with_batch(alone, database, task)
    while len(executor._batch.done) < 2:
        executor = with_batch(alone, database, task)
        step(alone)
    done = list(executor._batch.done)

    fall(database, rows, executor, done[:1])
    cluster.run_until(lambda: cluster.ended(task.id))

    attempts = {one.id: one.attempt for one in cluster.dxf.subtasks(task.id)}
    assert [attempts[one.id] for one in done] == [2, *[1] * len(done[1:])]
    assert cluster.dxf.show(task.id).state is TaskState.SUCCEED
    assert rows.exactly_once()


@ON_SERVER
def test_a_server_that_falls_before_the_end_is_written_costs_the_last_chunk_only(cluster, alone, rows, database, failpoints):
    """Everything is done, then the server falls and has not kept the last chunk: nobody believes what only the node remembers."""
    crashed = []

    def crash(subtask, **_):
        (executor,) = [one for one in current(alone) if one.subtask.id == subtask]
        crashed.append(executor.subtask)
        fall(database, rows, executor, [executor.subtask])

    failpoints.enable(points.AFTER_CHUNK, "1*call", call=crash)
    task = begin(alone, rows, parts=1, batch_size=100)
    cluster.run_until(lambda: cluster.ended(task.id))

    (lost,) = crashed
    assert lost.checkpoint == {"done": lost.meta["high"]}
    assert next(one.attempt for one in cluster.dxf.subtasks(task.id) if one.id == lost.id) == 2
    assert rows.exactly_once()


def test_a_node_that_dies_with_a_batch_leaves_nothing_undone(make_cluster, rows, database):
    """All that it had claimed is run by another one; what it had committed is not copied again."""
    cluster = make_cluster(nodes=2)
    dying, other = cluster.members.values()
    other.owner.tick()
    task = rows.submit(parts=20, batch_size=50)
    other.owner.tick()
    dying.node.start_due()
    executor = with_batch(dying, database, task)
    claimed = executor.claimed_ids

    cluster.kill_node(dying.name)
    cluster.run_until(lambda: cluster.ended(task.id))

    assert len(claimed) > 2
    assert cluster.dxf.show(task.id).state is TaskState.SUCCEED
    assert rows.exactly_once()


def test_a_node_that_stops_gives_the_whole_batch_back(alone, rows, database):
    """What is done is written, the rest is pending again with nobody's name on it."""
    task = begin(alone, rows, parts=20, batch_size=50)
    executor = with_batch(alone, database, task)
    done = [one.id for one in executor._batch.done]

    alone.node.stopping.set()
    alone.node.release_all()

    states = {one.id: one for one in subtasks(database, task)}
    assert all(states[number].state is S.SUCCEED for number in done)
    assert not in_state(database, task, S.RUNNING)
    assert all(one.session is None for one in states.values() if one.state is S.PENDING)


def test_a_lost_answer_to_a_hand_over_does_nothing_twice(cluster, alone, rows, database, failpoints):
    """The commit came through and its answer did not: nobody takes the claimed ones for his own, and two looks give them back."""
    task = begin(alone, rows, parts=12, batch_size=50)
    with_batch(alone, database, task)

    with failpoints.enable(store_points.COMMIT_ANSWER_LOST, "1*return(true)"):
        step(alone, 12)

    cluster.run_until(lambda: cluster.ended(task.id))
    assert rows.exactly_once()


def test_an_error_in_a_hand_over_is_tried_again(cluster, alone, rows, database, failpoints):
    """A deadlock while what is done is written costs a try, and nothing else."""
    task = begin(alone, rows, parts=12, batch_size=50)
    hit = failpoints.enable(points.BEFORE_SUBTASK_MOVE, "3*call", call=_deadlock, where={"event": "succeed"})

    step(alone, 3)
    cluster.run_until(lambda: cluster.ended(task.id))

    assert hit.hits >= 3
    assert rows.exactly_once()


def test_two_threads_that_begin_the_same_counters_lose_nothing(cluster, alone, rows, database, failpoints):
    """The second one is refused by the key of the row, writes its end again, and no attempt is lost by that."""
    task = begin(alone, rows, parts=6, batch_size=50)
    hit = failpoints.enable(points.BEFORE_SUBTASK_MOVE, "1*call", call=_taken, where={"event": "succeed"})

    cluster.run_until(lambda: cluster.ended(task.id))

    assert hit.hits >= 1
    assert cluster.dxf.show(task.id).state is TaskState.SUCCEED
    assert {one.attempt for one in subtasks(database, task)} == {1}
    assert rows.exactly_once()


def _taken(**_):
    raise ConstraintViolated("the key is taken")


def _deadlock(**_):
    raise Retryable("deadlock")


@ON_SQLITE
def test_a_slot_that_a_better_rank_waits_for_is_not_claimed_again(make_cluster, rows, database):
    """A node of one slot ends the piece it runs, and then does the more urgent task first."""
    cluster = make_cluster(nodes=1, slots=1)
    (member,) = cluster.members.values()
    lower = rows.submit("lower", parts=8, batch_size=3)
    cluster.run_until(lambda: in_state(database, lower, S.SUCCEED))
    urgent = rows.submit("urgent", parts=2, batch_size=50, submit={"priority": 1})

    cluster.run_until(lambda: member.node.running() and member.node.running()[0].task.id == urgent.id)

    assert in_state(database, lower, S.PENDING)
    cluster.run_until(lambda: cluster.ended(lower.id, urgent.id))


def test_a_lower_rank_in_the_middle_of_its_work_yields(make_cluster, rows, database):
    """A long subtask gives its slot to a better rank between two chunks, and goes on later from its checkpoint."""
    cluster = make_cluster(nodes=1, slots=1)
    (member,) = cluster.members.values()
    lower = rows.submit("lower", parts=1, batch_size=1)
    cluster.run_until(lambda: cluster.dxf.subtasks(lower.id) and cluster.dxf.subtasks(lower.id)[0].checkpoint)
    urgent = rows.submit("urgent", parts=1, batch_size=5, submit={"priority": 1})

    cluster.run_until(lambda: member.node.running() and member.node.running()[0].task.id == urgent.id)

    (yielded,) = cluster.dxf.subtasks(lower.id)
    assert (yielded.state, yielded.session) == (S.PENDING, None)
    assert yielded.checkpoint
    cluster.run_until(lambda: cluster.ended(urgent.id))
    rows.run(f"DELETE FROM {rows.target} WHERE id > {yielded.checkpoint['done']}")  # what the urgent one copied there
    assert cluster.dxf.show(lower.id).state is TaskState.RUNNING
    cluster.run_until(lambda: cluster.ended(lower.id))
    assert cluster.dxf.subtasks(lower.id)[0].attempt == 2


def test_fewer_threads_free_their_slots_within_a_second(make_cluster, rows, database):
    """What runs beyond the threads that a task may use gives back between two chunks."""
    if not database.driver.capabilities.concurrent_writers:
        pytest.skip("a database with one writer runs one subtask of a task on a node anyway")
    cluster = make_cluster(nodes=1, slots=4)
    (member,) = cluster.members.values()
    task = rows.submit(parts=4, batch_size=1, submit={"threads": 4})
    cluster.run_until(lambda: len(member.node.running()) == 4)

    cluster.dxf.modify(task.id, threads=1)
    asked = cluster.clock.monotonic()
    cluster.run_until(lambda: cluster.dxf.show(task.id).concurrency == 1)
    cluster.run_until(lambda: len(member.node.running()) == 1)

    assert cluster.clock.monotonic() - asked < 3, "one tick, one look and one chunk of each, at a tenth of a second per step"
    cluster.run_until(lambda: cluster.ended(task.id))
    assert rows.exactly_once()
