"""Rows and their checkpoint commit together: deaths, lost answers and broken connections leave each row copied once."""

from dataclasses import replace
from itertools import pairwise

import pytest

from tests.dxf.faults import ambiguous, at_step_hit, die, run_with_deaths
from tideshift.dxf import points, tables
from tideshift.dxf.machine import SubtaskState, TaskState
from tideshift.errors import Retryable
from tideshift.store import points as store_points

AROUND_A_CHUNK = [
    points.BEFORE_START, points.BEFORE_CHUNK, points.AFTER_CHUNK_WORK, points.AFTER_CHECKPOINT, points.AFTER_CHUNK,
    points.BEFORE_SUBTASK_MOVE,
]  # fmt: skip
SAMPLED = [("sqlite", nth) for nth in (3, 11, 19, 27, 35)] + [("postgres15", nth) for nth in (6, 24)]
ON_SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
"""For what no database decides."""
AMBIGUOUS = "1*raise(tideshift.errors.AmbiguousCommit)"


@pytest.fixture
def task(rows):
    """A task of two subtasks of a few chunks each."""
    return rows.submit(parts=2, batch_size=10)


def succeeded(cluster, task):
    ended = cluster.dxf.show(task.id)
    return (ended.state, ended.error) == (TaskState.SUCCEED, None)


@pytest.mark.parametrize("point", AROUND_A_CHUNK, ids=lambda point: point.name)
def test_a_death_around_a_chunk_costs_no_row_and_doubles_none(cluster, rows, task, failpoints, point):
    """The subtask runs again from its checkpoint on another node, whatever of the chunk was written before."""
    failpoints.enable(point, "skip(2) 1*call", call=die)

    died = run_with_deaths(cluster, lambda: cluster.ended(task.id))

    assert len(died) == 1
    assert succeeded(cluster, task)
    assert rows.exactly_once()


@pytest.mark.parametrize("point", [store_points.BEFORE_COMMIT, store_points.AFTER_COMMIT], ids=lambda point: point.name)
@pytest.mark.parametrize(("database_url", "nth"), SAMPLED, indirect=["database_url"])
def test_a_death_at_any_commit_costs_no_row_and_doubles_none(cluster, rows, task, failpoints, point, nth):  # noqa: PLR0917 - fixtures come by name
    """Whoever dies at the n-th commit of the run, owner or node, before or after it, the task succeeds exactly once."""
    failpoints.enable(point, "call", call=at_step_hit(cluster, nth, die))

    died = run_with_deaths(cluster, lambda: cluster.ended(task.id))

    assert len(died) == 1
    assert succeeded(cluster, task)
    assert rows.exactly_once()


@ON_SQLITE
def test_a_checkpoint_says_what_is_committed(make_cluster, rows, task):
    """At every moment the rows that arrived are those below the checkpoints."""
    cluster = make_cluster()
    while not cluster.ended(task.id):
        cluster.step()
        covered = sum(s.checkpoint["done"] - s.meta["low"] for s in cluster.dxf.subtasks(task.id) if s.step == 1 and s.checkpoint)

        assert rows.copied() == (covered, covered)


@pytest.mark.parametrize(("database_url", "nth"), SAMPLED, indirect=["database_url"])
def test_a_lost_answer_to_any_commit_is_read_back(cluster, rows, task, failpoints, nth):
    """The n-th commit happens but its answer is lost: it is looked up, never assumed and never done twice."""
    lost = []

    def lose(**context):
        lost.append(cluster.acting)
        ambiguous(**context)

    failpoints.enable(store_points.COMMIT_ANSWER_LOST, "call", call=at_step_hit(cluster, nth, lose))

    cluster.run_until(lambda: cluster.ended(task.id))

    assert len(lost) == 1
    assert succeeded(cluster, task)
    assert rows.exactly_once()


@pytest.mark.parametrize("point", [points.AFTER_CHECKPOINT, points.BEFORE_START], ids=lambda point: point.name)
def test_an_unclear_commit_that_did_not_happen_is_done_again(cluster, rows, task, failpoints, point):
    """The error is the same as that of a lost answer, but nothing was written: the work is repeated."""
    failpoints.enable(point, AMBIGUOUS)

    cluster.run_until(lambda: cluster.ended(task.id))

    assert succeeded(cluster, task)
    assert rows.exactly_once()


def test_a_start_without_an_answer_is_given_back_and_started_again(make_cluster, rows, database, failpoints):
    """A row that says that a node runs it, though nothing does, is not left lying on a living node."""
    cluster = make_cluster(nodes=1)
    task = rows.submit(parts=1)
    (node,) = (member.node for member in cluster.members.values())
    cluster.run_until(lambda: [s for s in cluster.dxf.subtasks(task.id) if s.exec_id])
    failpoints.enable(store_points.AFTER_COMMIT, AMBIGUOUS, where={"write": True})

    assert node.start_due() == []
    (stray,) = cluster.dxf.subtasks(task.id)
    cluster.run_until(lambda: cluster.ended(task.id))

    assert (stray.state, stray.attempt, stray.exec_id) == (SubtaskState.RUNNING, 1, node.name)
    assert succeeded(cluster, task)
    assert cluster.dxf.subtasks(task.id)[0].attempt == 2


def test_a_broken_connection_is_replaced_and_named_in_the_row(make_cluster, rows, database):
    """The server ends a session between two chunks: the next one works only after the row names it."""
    if not database.driver.capabilities.ends_sessions:
        pytest.skip("this database has no sessions that can be ended")
    cluster = make_cluster(nodes=1)
    task = rows.submit(parts=1)
    cluster.run_until(lambda: cluster.executors() and cluster.executors()[0].subtask.checkpoint)
    (executor,) = cluster.executors()
    before = executor.subtask.session
    with database.transaction() as tx:
        database.driver.end_session(tx.connection, executor._session.identity)
    chunks = executor.subtask.summary["chunks"]

    cluster.run_until(lambda: executor.ended or executor.subtask.summary["chunks"] > chunks)
    with database.transaction(write=False) as tx:
        row = tables.subtask_by_id(tx, executor.subtask.id)
    cluster.run_until(lambda: cluster.ended(task.id))

    assert row.session not in (None, before)
    assert row.attempt == 1
    assert rows.exactly_once()


@ON_SQLITE
def test_a_passing_error_is_retried_with_back_off(make_cluster, rows, failpoints, clock):
    """A few conflicts in a row cost time, each more than the one before, not the subtask."""
    cluster = make_cluster(nodes=1)
    task = rows.submit(parts=1)
    tried_at = []

    def conflict(**_):
        tried_at.append(clock.monotonic())
        raise Retryable("a deadlock")

    failpoints.enable(points.AFTER_CHUNK_WORK, "6*call", call=conflict)

    cluster.run_until(lambda: cluster.ended(task.id))

    gaps = [later - earlier for earlier, later in pairwise(tried_at)]
    assert len(gaps) == 5
    assert [gap > 0.099 * 2**n for n, gap in enumerate(gaps)] == [True] * 5
    assert gaps == sorted(gaps)
    assert succeeded(cluster, task)
    assert rows.exactly_once()


@ON_SQLITE
def test_a_full_disk_is_said_on_the_row_and_waited_for(make_cluster, rows, database, failpoints, caplog):
    """After a few tries the row and the log say that the disk is full; once there is room the row says it no more."""
    cluster = make_cluster(nodes=1)
    task = rows.submit(parts=1)
    failpoints.enable(points.AFTER_CHUNK_WORK, "6*raise(tideshift.errors.DiskFull)")

    def reason():
        return [(s.summary.get("throttle") or {}).get("reason") for s in cluster.dxf.subtasks(task.id) if s.step == 1]

    cluster.run_until(lambda: reason() == ["disk_full"])
    cluster.run_until(lambda: cluster.ended(task.id))

    assert reason() != ["disk_full"]
    assert succeeded(cluster, task)
    assert rows.exactly_once()
    assert len([record for record in caplog.records if "waits for room on the disk" in record.message]) == 1


@ON_SQLITE
def test_an_error_that_never_passes_uses_up_the_budget(make_cluster, rows, database, failpoints):
    """After as many tries as the profile allows the subtask fails with the error, and the task reverts."""
    database.profile = replace(database.profile, error_count_limit=4)
    cluster = make_cluster(nodes=1)
    task = rows.submit(parts=1)
    enabled = failpoints.enable(points.AFTER_CHUNK_WORK, 'raise(tideshift.errors.Retryable, "always a deadlock")')

    cluster.run_until(lambda: cluster.ended(task.id))

    (failed,) = cluster.dxf.subtasks(task.id)
    assert enabled.hits == 4
    assert (failed.state, failed.retries, failed.error["code"]) == (SubtaskState.FAILED, 4, "retryable")
    assert cluster.dxf.show(task.id).state is TaskState.REVERTED
    assert rows.copied() == (0, 0)


@ON_SQLITE
@pytest.mark.parametrize("fault", ["CannotReach", "LockTimeout", "DiskFull"])
def test_what_is_no_fault_of_the_subtask_is_waited_for(make_cluster, rows, database, failpoints, fault):
    """However often the database cannot be reached, is locked or is full, the subtask does not fail for it."""
    database.profile = replace(database.profile, error_count_limit=4, retry_seconds_max=0.2)
    cluster = make_cluster(nodes=1)
    task = rows.submit(parts=1)
    failpoints.enable(points.BEFORE_CHUNK, f'12*raise(tideshift.errors.{fault}, "not now")')

    cluster.run_until(lambda: cluster.ended(task.id))

    assert succeeded(cluster, task)
    assert rows.exactly_once()


@ON_SQLITE
def test_the_end_of_a_subtask_is_written_until_it_is_answered(make_cluster, rows, failpoints):
    """A last move that meets conflicts for a while is not given up: nobody else would end the subtask."""
    cluster = make_cluster(nodes=1)
    task = rows.submit(parts=1)
    terms = "7*raise(tideshift.errors.LockTimeout)"
    failpoints.enable(points.BEFORE_SUBTASK_MOVE, terms, where={"event": "succeed"})

    cluster.run_until(lambda: cluster.ended(task.id))

    assert succeeded(cluster, task)
    assert rows.exactly_once()
    assert {s.attempt for s in cluster.dxf.subtasks(task.id)} == {1}


@pytest.mark.parametrize("parts", [1, 3])
def test_a_refused_row_fails_its_subtask_and_the_task_reverts(cluster, rows, parts):
    """The error of the row stands on subtask and task, the other subtasks are cancelled, and nothing is left."""
    rows.spoil(30)
    task = rows.submit(parts=parts)

    cluster.run_until(lambda: cluster.ended(task.id))

    ended, subtasks = cluster.dxf.show(task.id), cluster.dxf.subtasks(task.id)
    assert (ended.state, ended.error["code"]) == (TaskState.REVERTED, "value_refused")
    assert [s.error for s in subtasks if s.state is SubtaskState.FAILED] == [ended.error]
    assert {s.state for s in subtasks} <= {SubtaskState.FAILED, SubtaskState.CANCELED, SubtaskState.SUCCEED}
    assert rows.copied() == (0, 0)


@pytest.mark.parametrize("where", ["next_step", "plan", "open", "step"])
@ON_SQLITE
def test_a_bug_in_a_task_type_fails_its_task_and_no_other(cluster, registry, rows, where):
    """An exception that nobody foresaw stands on the row; other tasks on the same nodes go on."""
    registry.add(Buggy(where))
    good = rows.submit()
    bad = cluster.dxf.submit("buggy", "bad", {})

    cluster.run_until(lambda: cluster.ended(good.id, bad.id))

    ended = cluster.dxf.show(bad.id)
    assert (ended.state, ended.error["code"]) == (TaskState.REVERTED, "internal")
    assert f"a bug in {where}" in ended.error["message"]
    assert succeeded(cluster, good)
    assert rows.exactly_once()


@ON_SQLITE
def test_a_task_that_cannot_be_driven_keeps_no_other_from_its_work(cluster, rows, failpoints):
    """The owner meets an error that nobody foresaw with the first task of every look, and still moves the others."""
    first, second = rows.submit("a"), rows.submit("b")
    failpoints.enable(points.BEFORE_TASK_MOVE, "raise(ZeroDivisionError)", where={"task": first.id})

    cluster.run_until(lambda: cluster.ended(second.id))

    assert succeeded(cluster, second)
    assert cluster.dxf.show(first.id) == first


class Buggy:
    """A task type that raises what no author meant to raise."""

    name = "buggy"

    def __init__(self, where):
        self.where = where

    def _maybe(self, where):
        if where == self.where:
            raise ZeroDivisionError(f"a bug in {where}")

    def next_step(self, task):
        self._maybe("next_step")
        return {-1: 1, 1: -2}[task.step]

    def step_name(self, step):
        return "only"

    def plan(self, tx, task, step):
        self._maybe("plan")
        return [{"n": 1}]

    def open(self, task, subtask):
        self._maybe("open")
        return self

    def step(self, context):
        self._maybe("step")
        return False

    def modify(self, meta, modifications):
        self._maybe("modify")
        return meta

    def revert(self, tx, task):
        self._maybe("revert")
