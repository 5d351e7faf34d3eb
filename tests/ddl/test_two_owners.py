"""Two processes that both believe that they lead: whatever the deposed one still does changes nothing."""

import pytest

from tests.ddl.engine import ROWS
from tideshift.ddl import points
from tideshift.ddl.machine import JobState
from tideshift.store import events

J = JobState
PLACES = [
    (points.AFTER_JOB_READ, {"state": "queueing"}),
    (points.AFTER_JOB_READ, {"state": "running", "stage": 0}),
    (points.BEFORE_TASK, {}),
    (points.AFTER_JOB_READ, {"state": "running", "stage": 1}),
    (points.BEFORE_CUTOVER, {}),
    (points.BEFORE_INSPECT, {}),
]


@pytest.fixture
def engine(make_engine):
    """The engine with two nodes."""
    return make_engine(nodes=2)


def actors_of_moves(engine, job_id):
    with engine.database.transaction(write=False) as tx:
        return [(event.actor, event.target) for event in events.history(tx, job_id=job_id) if event.kind == "move"]


CASES = [(*place, "the end") for place in PLACES] + [(*place, "one more owner") for place in PLACES[1:4:2]]


@pytest.mark.parametrize(("point", "where", "until"), CASES, ids=lambda value: getattr(value, "name", None))
def test_a_frozen_owner_changes_nothing_any_more(engine, failpoints, point, where, until):
    """It stands still between its look and its write while another one leads on, a little or to the end."""
    job = engine.submit()
    frozen = []

    def stand_still(**_context):
        """The lease passes on while this owner stands here."""
        name = engine.cluster.acting
        member = engine.cluster.members[name]
        failpoints.disable(point)
        member.owner_frozen = True
        frozen.append(name)
        if until == "the end":
            engine.run_to(job.id, J.SYNCED)
        else:
            engine.cluster.run_until(lambda: engine.cluster.owner_name() is not None)
            engine.cluster.run(5)
        member.owner_frozen = False

    failpoints.enable(point, "1*call", call=stand_still, where=where)
    engine.cluster.run_until(lambda: frozen)
    moves_of_the_other = actors_of_moves(engine, job.id)
    engine.run_to(job.id, J.SYNCED)

    engine.assert_changed(job.id)
    if until == "the end":
        assert actors_of_moves(engine, job.id) == moves_of_the_other
    assert len(engine.rows()) == ROWS


def test_an_owner_that_leads_again_does_not_trust_what_it_saw_before(engine, failpoints):
    """A read the job, B led and went on, A leads again: its old look is worth nothing under its new tenure."""
    job = engine.submit()
    tenures = []

    def lose_and_win_back(**_context):
        name = engine.cluster.acting
        member = engine.cluster.members[name]
        failpoints.disable(points.AFTER_JOB_READ)
        tenures.append(member.owner.tenure)
        engine.cluster.change_owner()
        engine.run_to_stage(job.id, "reorganize")
        engine.cluster.change_owner()
        tenures.append(member.owner.tenure)

    failpoints.enable(points.AFTER_JOB_READ, "1*call", call=lose_and_win_back, where={"state": "running", "stage": 0})
    engine.cluster.run_until(lambda: len(tenures) == 2)
    engine.run_to(job.id, J.SYNCED)

    first, again = tenures
    assert first.owner_id == again.owner_id
    assert again.number == first.number + 2
    engine.assert_changed(job.id)


def test_a_deposed_owner_does_not_wake_the_task_of_a_job_that_was_paused(engine, failpoints):
    """It saw the job running with its task paused; meanwhile the job was paused again under another owner: nothing runs."""
    job = engine.submit()
    engine.run_to_stage(job.id, "reorganize")
    engine.cluster.run_until(engine.dxf.tasks)
    (task,) = engine.dxf.tasks()
    engine.ddl.pause(job.id)
    engine.run_to(job.id, J.PAUSED)
    stood = []

    def pause_again(**_context):
        name = engine.cluster.acting
        failpoints.disable(points.AFTER_JOB_READ)
        engine.cluster.members[name].owner_frozen = True
        engine.ddl.pause(job.id)
        engine.run_to(job.id, J.PAUSED)
        engine.cluster.members[name].owner_frozen = False
        stood.append(engine.dxf.show(task.id))

    failpoints.enable(points.AFTER_JOB_READ, "1*call", call=pause_again, where={"state": "running"})
    engine.ddl.resume(job.id)
    engine.cluster.run_until(lambda: stood)
    engine.cluster.run(60)

    assert engine.dxf.show(task.id) == stood[0]
    assert str(stood[0].state) == "paused"
    assert engine.job(job.id).state is J.PAUSED
    engine.ddl.resume(job.id)
    engine.run_to(job.id, J.SYNCED)
    engine.assert_changed(job.id)


@pytest.mark.parametrize("salt", range(2))
def test_owners_nodes_and_commands_in_an_order_of_chance(engine, random, salt):
    """Owners change, nodes die, a person pauses, resumes and alters: in the end the change is there and the log is a path."""
    job = engine.submit()
    acts = [
        lambda: engine.ddl.pause(job.id), lambda: engine.ddl.resume(job.id), engine.cluster.change_owner,
        lambda: engine.ddl.alter(job.id, {"batch_size": random.randrange(3, 30)}), lambda: lose_a_node(engine.cluster, random),
    ]  # fmt: skip

    for _ in range(20 + salt):
        random.choice(acts)()
        engine.cluster.run(random.randrange(1, 25))
    engine.cluster.run_until(lambda: resumed_to_the_end(engine, job.id))
    engine.run_to(job.id)

    engine.assert_changed(job.id)


def lose_a_node(cluster, random):
    cluster.kill_node(random.choice(list(cluster.members)))
    cluster.add_node()


def resumed_to_the_end(engine, job_id):
    """Whether the job has ended; a pause that came last is taken back."""
    state = engine.job(job_id).state
    if state is J.PAUSED:
        engine.ddl.resume(job_id)
    return state is J.SYNCED


LONG_WAYS = [
    pytest.param("direct", points.AFTER_CHANGE, id="direct"),
    pytest.param("shadow_table", points.AFTER_CAPTURE, id="capture"),
    pytest.param("shadow_table", points.AFTER_SWAP, id="swap"),
]


@pytest.mark.parametrize(("strategy", "point"), LONG_WAYS)
def test_a_transaction_that_outlasts_the_lease_is_not_done_again(engine, failpoints, strategy, point):
    """While one transaction keeps every other from writing nobody can renew; what it did counts all the same, the first time."""
    passed = failpoints.enable(point, "call", call=lambda **_context: engine.cluster.clock.advance(100 * engine.database.profile.lease_seconds))
    job = engine.submit(strategy=strategy)

    engine.run_to(job.id, J.SYNCED)

    engine.assert_changed(job.id)
    assert passed.hits == 1
