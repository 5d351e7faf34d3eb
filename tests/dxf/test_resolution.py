"""Tasks that wait for a person, tasks whose undoing fails, and tasks of a type that nobody knows."""

from dataclasses import replace

import pytest

from tideshift.dxf.machine import SubtaskState, TaskState
from tideshift.dxf.scheduler import REVERT_ERROR
from tideshift.dxf.tasktype import Registry
from tideshift.testing.sample import CopyRows

ON_SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
"""For what no database decides."""
T = TaskState


@pytest.fixture
def stuck(cluster, rows):
    """A task that waits for a person, because a row was refused."""
    rows.spoil(30)
    task = rows.submit(submit={"manual_recovery": True})
    cluster.run_until(lambda: cluster.dxf.show(task.id).state is T.AWAITING_RESOLUTION)
    return cluster.dxf.show(task.id)


def test_a_task_that_waits_keeps_what_it_has(cluster, rows, stuck):
    """The error stands on the task, nothing is undone, and nothing goes on by itself."""
    cluster.run(100)  # what was under way ends its chunk and sees that the task waits
    copied = rows.copied()

    cluster.run(100)

    assert stuck.error["code"] == "value_refused"
    assert cluster.dxf.show(stuck.id) == stuck
    assert rows.copied() == copied
    assert copied[0] > 0


def test_a_resolved_task_goes_on(cluster, rows, stuck, outcomes):
    """The row is corrected, the task resumed: only what failed is tried again, and everything arrives once."""
    rows.mend(30)

    cluster.dxf.resume(stuck.id)
    cluster.run_until(lambda: cluster.ended(stuck.id))

    ended = cluster.dxf.show(stuck.id)
    assert (ended.state, ended.error) == (T.SUCCEED, None)
    assert rows.exactly_once()
    assert outcomes(stuck.id) == [("resume", ["applied"])]


@ON_SQLITE
def test_a_task_that_is_resumed_too_early_waits_again(cluster, rows, stuck):
    """The cause is still there: it fails again and waits again."""
    cluster.dxf.resume(stuck.id)
    cluster.run_until(lambda: cluster.dxf.show(stuck.id).state is T.RUNNING)
    cluster.run_until(lambda: cluster.dxf.show(stuck.id).state is T.AWAITING_RESOLUTION)

    assert cluster.dxf.show(stuck.id).error["code"] == "value_refused"


def test_a_task_that_waits_can_be_cancelled(cluster, rows, stuck, outcomes):
    """It is undone, and keeps the error for which it had waited."""
    cluster.dxf.cancel(stuck.id)
    cluster.run_until(lambda: cluster.ended(stuck.id))

    ended = cluster.dxf.show(stuck.id)
    assert (ended.state, ended.error["code"]) == (T.REVERTED, "value_refused")
    assert SubtaskState.FAILED in {s.state for s in cluster.dxf.subtasks(stuck.id)}
    assert rows.copied() == (0, 0)
    assert outcomes(stuck.id) == [("cancel", ["applied"])]


class Sticky(CopyRows):
    """A type whose undoing fails as long as something is in its way."""

    name = "sticky"
    in_the_way = True

    def revert(self, tx, task):
        if self.in_the_way:
            raise ZeroDivisionError("something is in the way")
        super().revert(tx, task)


@ON_SQLITE
def test_undoing_is_tried_again_and_its_error_stands_on_the_row(make_cluster, database, registry, rows, outcomes):
    """The task reverts until it can, says once why it does not end, and keeps no other task from its work."""
    sticky = Sticky()
    registry.add(sticky)
    cluster = make_cluster()
    task = cluster.dxf.submit(Sticky.name, "sticky", {**rows.submit().meta})
    cluster.run_until(lambda: cluster.dxf.show(task.id).state is T.RUNNING)
    cluster.dxf.cancel(task.id)
    cluster.run_until(lambda: REVERT_ERROR in cluster.dxf.show(task.id).extra_params)
    told = cluster.dxf.show(task.id)

    cluster.run(60)
    still = cluster.dxf.show(task.id)
    sticky.in_the_way = False
    cluster.run_until(lambda: cluster.ended(task.id))

    assert still == told
    assert (told.state, told.extra_params[REVERT_ERROR]["message"]) == (T.REVERTING, "ZeroDivisionError('something is in the way')")
    assert cluster.dxf.show(task.id).state is T.REVERTED
    assert outcomes(task.id) == [("cancel", ["applied"])]
    cluster.run_until(lambda: cluster.ended(1))
    assert cluster.dxf.show(1).state is T.SUCCEED


@ON_SQLITE
def test_a_type_that_nobody_knows_is_waited_for_and_then_failed(database, rows, make_cluster):
    """A node of a newer version may still come; after the profile's patience the task fails and says why."""
    database.profile = replace(database.profile, unknown_type_patience_seconds=60)
    cluster = make_cluster()
    task = cluster.dxf.submit("from the future", "key", {})
    cluster.run(100)
    waiting = cluster.dxf.show(task.id)
    good = rows.submit("other")
    cluster.run_until(lambda: cluster.ended(good.id))

    cluster.clock.advance(60)
    cluster.run_until(lambda: cluster.ended(task.id))

    ended = cluster.dxf.show(task.id)
    assert waiting == task
    assert (ended.state, ended.error["code"]) == (T.FAILED, "unknown_type")
    assert "from the future" in ended.error["message"]


@ON_SQLITE
def test_a_node_leaves_alone_what_it_does_not_know(database, rows, make_cluster):
    """An owner without the type neither plans nor fails it; one that knows it carries it out."""
    from tideshift.testing.cluster import Cluster

    with Cluster(database, Registry(), nodes=1) as ignorant:
        task = rows.submit()
        ignorant.run(60)
        assert ignorant.dxf.show(task.id) == task
    cluster = make_cluster()

    cluster.run_until(lambda: cluster.ended(task.id))

    assert rows.exactly_once()
