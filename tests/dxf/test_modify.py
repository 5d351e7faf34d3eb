"""Parameters that change while work runs: the mailbox, what reaches a running subtask, and what is divided."""

import pytest

from tideshift.dxf import points
from tideshift.dxf.commands import Verdict
from tideshift.dxf.machine import SubtaskState, TaskState
from tideshift.dxf.parameters import apply_to_parameters, pending_mailbox
from tideshift.errors import InvalidParameter
from tideshift.store import points as store_points
from tideshift.testing.sample import CopyRows, sample_meta

ON_SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
"""For what no database decides."""
T = TaskState


def waiting(cluster, task_id):
    """What waits in the mailbox: type and value, in order."""
    return [(m["type"], m["to"]) for m in pending_mailbox(cluster.dxf.show(task_id))]


def paused(cluster, rows):
    task = rows.submit()
    cluster.dxf.pause(task.id)
    cluster.run_until(lambda: cluster.dxf.show(task.id).state is T.PAUSED)
    return cluster.dxf.show(task.id)


@pytest.mark.parametrize("state", ["pending", "running", "paused"])
def test_a_modification_brings_the_task_back_to_where_it_was(cluster, rows, outcomes, state):
    """A pending one stays pending until it is planned, a running one runs on, a paused one stays paused."""
    task = paused(cluster, rows) if state == "paused" else rows.submit()
    if state == "running":
        cluster.run_until(lambda: rows.copied()[0] > 0)
    seen = []

    cluster.dxf.modify(task.id, threads=2, batch_size=7, max_node_count=1, max_write_speed="1000rows", lock_share=55)
    assert cluster.dxf.show(task.id).state is T.MODIFYING
    cluster.run_until(lambda: seen.append(cluster.dxf.show(task.id).state) or seen[-1] is not T.MODIFYING)

    assert seen[-1] == state
    after = cluster.dxf.show(task.id)
    assert (after.concurrency, after.max_node_count, after.modify_params) == (2, 1, None)
    assert after.meta["parameters"] == {"batch_size": 7, "max_write_speed": "1000 rows", "lock_share": 55}
    assert outcomes(task.id)[-1] == ("modify", ["applied"])


@ON_SQLITE
def test_modifications_merge_per_parameter(cluster, rows, outcomes):
    """The later value wins; a request of which nothing is left is superseded, the others are applied."""
    task = rows.submit()

    cluster.dxf.modify(task.id, threads=2, batch_size=10)
    cluster.dxf.modify(task.id, lock_share=30)
    cluster.dxf.modify(task.id, threads=3)
    cluster.dxf.modify(task.id, lock_share=40)
    mailbox = waiting(cluster, task.id)
    cluster.run_until(lambda: cluster.dxf.show(task.id).state is not T.MODIFYING)

    assert sorted(mailbox) == [("modify_batch_size", 10), ("modify_concurrency", 3), ("modify_lock_share", 40)]
    assert outcomes(task.id) == [("modify", ["applied"]), ("modify", ["superseded"]), ("modify", ["applied"]), ("modify", ["applied"])]
    after = cluster.dxf.show(task.id)
    assert (after.concurrency, after.meta["parameters"]["batch_size"], after.meta["parameters"]["lock_share"]) == (3, 10, 40)


@pytest.mark.parametrize("command", ["pausing", "resuming"])
def test_the_mailbox_is_open_while_pausing_and_resuming(cluster, rows, outcomes, command):
    """What is asked then is applied with the move to paused or running, merged like any other."""
    if command == "pausing":
        task = rows.submit()
        cluster.run_until(lambda: rows.copied()[0] > 0)
        cluster.dxf.pause(task.id)
    else:
        task = paused(cluster, rows)
        cluster.dxf.resume(task.id)

    answers = [cluster.dxf.modify(task.id, batch_size=value) for value in (3, 4)]
    state, mailbox = cluster.dxf.show(task.id).state, waiting(cluster, task.id)
    cluster.run_until(lambda: not waiting(cluster, task.id))

    assert {answer.verdict for answer in answers} == {Verdict.APPLIED}
    assert state == command
    assert mailbox == [("modify_batch_size", 4)]
    after = cluster.dxf.show(task.id)
    assert after.state is (T.PAUSED if command == "pausing" else T.RUNNING)
    assert after.meta["parameters"]["batch_size"] == 4
    assert [done for name, done in outcomes(task.id) if name == "modify"] == [["superseded"], ["applied"]]


@pytest.mark.parametrize("then", ["pause", "cancel", "resume"])
def test_a_stronger_command_meets_a_modification(cluster, rows, outcomes, then):
    """Pause and resume carry the parameters along, a cancel supersedes them."""
    task = paused(cluster, rows) if then == "resume" else rows.submit()
    cluster.dxf.modify(task.id, batch_size=3)

    (answer,) = getattr(cluster.dxf, then)(task.id)
    ends = {"pause": T.PAUSED, "cancel": T.REVERTED, "resume": T.SUCCEED}
    cluster.run_until(lambda: cluster.dxf.show(task.id).state is ends[then])

    after = cluster.dxf.show(task.id)
    assert answer.verdict is Verdict.APPLIED
    assert after.modify_params is None
    assert after.meta["parameters"]["batch_size"] == (5 if then == "cancel" else 3)
    assert outcomes(task.id)[-2:] == [("modify", ["superseded" if then == "cancel" else "applied"]), (then, ["applied"])]


def test_a_running_subtask_takes_a_new_value_over_within_a_refresh(make_cluster, rows, clock):
    """The chunk after the next refresh obeys, and the node says so beside its progress, with the time."""
    cluster = make_cluster(nodes=1)
    task = rows.submit(parts=1, batch_size=1)
    cluster.run_until(lambda: cluster.executors() and cluster.executors()[0].subtask.checkpoint)
    (executor,) = cluster.executors()
    before = executor.subtask

    cluster.dxf.modify(task.id, batch_size=4, lock_share=90)
    cluster.run_until(lambda: cluster.dxf.show(task.id).state is T.RUNNING)
    applied = clock.monotonic()
    cluster.run_until(lambda: executor.subtask.summary["effective"]["batch_size"] == 4)
    delay = clock.monotonic() - applied
    rows_before = executor.subtask.checkpoint["done"]
    chunks = executor.subtask.summary["chunks"]
    cluster.run_until(lambda: executor.subtask.summary["chunks"] == chunks + 1)

    (row,) = cluster.dxf.subtasks(task.id)
    assert before.summary["effective"] == {"threads": 1, "batch_size": 1, "max_write_speed": None, "lock_share": 100, "adaptive": "off"}
    assert row.summary["effective"] == {"threads": 1, "batch_size": 4, "max_write_speed": None, "lock_share": 90, "adaptive": "off"}
    assert row.summary["since"] > before.summary["since"]
    assert row.checkpoint["done"] == rows_before + 4
    assert row.attempt == before.attempt
    assert delay <= cluster.database.profile.refresh_seconds + 1


def test_a_write_speed_is_divided_among_those_who_share_it(make_cluster, rows, database):
    """Each of the running subtasks, on whatever node, takes its part of the ceiling from its first chunk on."""
    cluster = make_cluster(nodes=2, slots=2)
    rows.submit(parts=4, batch_size=1, max_write_speed="40 rows", submit={"threads": 2})
    sharers = 4 if database.driver.capabilities.concurrent_writers else 2

    cluster.run_until(lambda: len(cluster.executors()) == sharers)
    cluster.run_until(lambda: all(e.limits.write_rows_per_second_max == 40 // sharers for e in cluster.executors()))
    latest = max(cluster.executors(), key=lambda e: e.subtask.start_time)

    assert latest._sharers == sharers
    cluster.run_until(lambda: "effective" in latest.subtask.summary)
    assert latest.subtask.summary["effective"]["max_write_speed"] == "40 rows", "what is in force is over all of them"


@ON_SQLITE
def test_a_write_speed_is_kept_over_all_nodes(make_cluster, rows, clock):
    """Thirty rows at ten a second take about three seconds, however many share them; lifted, the rest is quick."""
    cluster = make_cluster(nodes=2)
    task = rows.submit(parts=4, batch_size=2, max_write_speed="10 rows")
    cluster.run_until(lambda: rows.copied()[0] > 0)
    begun = clock.monotonic()

    cluster.run_until(lambda: rows.copied()[0] >= 30)
    slow_seconds = clock.monotonic() - begun
    cluster.dxf.modify(task.id, max_write_speed="none", batch_size=30)
    cluster.run_until(lambda: rows.copied()[0] == 60)
    lifted_seconds = clock.monotonic() - begun - slow_seconds

    assert 2 <= slow_seconds <= 8
    assert lifted_seconds < slow_seconds / 2


def test_more_threads_are_used_from_the_next_start_on(make_cluster, rows, database):
    """A change of threads changes how many are started, never a running one; a database with one writer takes one."""
    threads = 3 if database.driver.capabilities.concurrent_writers else 1
    cluster = make_cluster(nodes=1, slots=4)
    task = rows.submit(parts=4, batch_size=1)
    cluster.run_until(cluster.executors)
    (running,) = cluster.executors()

    cluster.dxf.modify(task.id, threads=3)
    cluster.run_until(lambda: cluster.dxf.show(task.id).concurrency == 3 and len(cluster.executors()) == threads)

    assert not running.ended
    assert running.subtask.attempt == 1
    assert next(iter(cluster.members.values())).node.threads_of(cluster.dxf.show(task.id)) == threads


@ON_SQLITE
def test_a_value_that_the_type_refuses_fails_its_own_request_only(make_cluster, registry, rows, outcomes):
    """A request is applied as a whole or not at all; what others asked for in the same mailbox is applied."""
    registry.add(Picky())
    cluster = make_cluster()
    meta = sample_meta(rows.source, rows.target, parts=2, batch_size=10, lock_share=100)
    task = cluster.dxf.submit(Picky.name, "picky", meta)

    cluster.dxf.modify(task.id, batch_size=666, threads=9)
    cluster.dxf.modify(task.id, lock_share=50)
    cluster.dxf.modify(task.id, max_node_count=1)
    cluster.dxf.modify(task.id, max_write_speed="13rows")
    cluster.run_until(lambda: cluster.dxf.show(task.id).state is not T.MODIFYING)

    after = cluster.dxf.show(task.id)
    assert outcomes(task.id) == [("modify", ["failed"]), ("modify", ["applied"]), ("modify", ["applied"]), ("modify", ["failed"])]
    assert (after.concurrency, after.max_node_count) == (1, 1)
    assert after.meta["parameters"] == {"batch_size": 10, "lock_share": 50}
    cluster.run_until(lambda: cluster.ended(task.id))
    assert cluster.dxf.show(task.id).state is T.SUCCEED


class Picky(CopyRows):
    """A type that refuses one value in the documented way, and has a bug for another one."""

    name = "picky"

    def modify(self, meta, modifications):
        for modification in modifications:
            if modification["to"] == 666:
                raise InvalidParameter("666 rows are too many of the beast")
            if modification["to"] == "13 rows":
                raise ZeroDivisionError("a bug")
        return apply_to_parameters(meta, modifications)


@pytest.mark.parametrize("point", [store_points.BEFORE_COMMIT, store_points.COMMIT_ANSWER_LOST], ids=lambda point: point.name)
@ON_SQLITE
def test_a_modification_survives_the_owner(make_cluster, rows, outcomes, failpoints, point):
    """The owner dies while it applies it, before or after the commit: the next one does it, or finds it done."""
    from tests.dxf.faults import at_step_hit, die, run_with_deaths

    cluster = make_cluster(nodes=2)
    task = rows.submit(batch_size=2)
    cluster.run_until(lambda: rows.copied()[0] > 0)
    cluster.dxf.modify(task.id, batch_size=9)
    applying = []
    failpoints.enable(points.BEFORE_TASK_MOVE, "call", call=lambda **_: applying.append(1), where={"event": "modified_running"})
    act = at_step_hit(cluster, 1, die)
    failpoints.enable(point, "call", call=lambda **_: act() if applying else None)

    died = run_with_deaths(cluster, lambda: cluster.ended(task.id))

    assert len(died) == 1
    assert outcomes(task.id) == [("modify", ["applied"])]
    assert cluster.dxf.show(task.id).meta["parameters"]["batch_size"] == 9
    assert {s.state for s in cluster.dxf.subtasks(task.id)} == {SubtaskState.SUCCEED}
    assert rows.exactly_once()
