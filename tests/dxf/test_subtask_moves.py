"""Every move of a subtask on a real database, and the attempt that guards its progress."""

from dataclasses import replace
from itertools import product

import pytest

from tests.dxf.moves import count, end_lease, module_fixtures, put_subtask, put_task, rolled_back, tenure_of
from tideshift.dxf import tables
from tideshift.dxf.machine import SUBTASK, SubtaskState, TaskState
from tideshift.errors import MoveNotAllowed, NotFound, StateChanged, SubtaskLost
from tideshift.fsm import Actor

database_url, system = module_fixtures()


@pytest.fixture(autouse=True)
def lease(system):
    """The tenure under which owners move, taken outside any transaction of a test."""
    return tenure_of(system)


def tenure_for(event, lease):
    return lease if SUBTASK.actor(event) is Actor.OWNER else None


@pytest.mark.parametrize(("state", "event"), list(product(SubtaskState, SUBTASK.events)), ids=str)
def test_every_pair(system, lease, state, event):
    """An allowed move leads to its target with the next rev, a refused one leaves the row as it was."""
    with rolled_back(system) as tx:
        seen = put_subtask(tx, state)
        target = SUBTASK.target(state, event)

        if target is None:
            with pytest.raises(MoveNotAllowed):
                tables.move_subtask(tx, seen, event, actor="test", tenure=tenure_for(event, lease))
            assert tables.subtask_by_id(tx, seen.id) == seen
        else:
            moved = tables.move_subtask(tx, seen, event, actor="test", tenure=tenure_for(event, lease))
            assert (moved.state, moved.rev, moved.checkpoint) == (target, seen.rev + 1, seen.checkpoint)
            assert tables.subtask_by_id(tx, seen.id) == moved
            assert (moved.end_time is not None) == (target in SUBTASK.final)


def test_the_later_of_two_writers_loses_and_progress_stays(system, lease):
    """The owner pauses what a node has just given back: the second move is refused, the checkpoint is kept."""
    with rolled_back(system) as tx:
        seen = put_subtask(tx, SubtaskState.RUNNING)
        tables.checkpoint_subtask(tx, seen, checkpoint={"done": 9}, summary={"row_count": 9})
        tables.move_subtask(tx, seen, "release", actor="node-1", exec_id=None, session=None)

        with pytest.raises(StateChanged):
            tables.move_subtask(tx, seen, "pause", actor="owner", tenure=lease)

        left = tables.subtask_by_id(tx, seen.id)
        assert (left.state, left.checkpoint) == (SubtaskState.PENDING, {"done": 9})


def test_progress_never_collides_with_a_move(system, lease):
    """A checkpoint leaves `rev` alone: whoever saw the row before it can still move it."""
    with rolled_back(system) as tx:
        seen = put_subtask(tx, SubtaskState.RUNNING)
        tables.checkpoint_subtask(tx, seen, checkpoint={"done": 9}, summary={})

        moved = tables.move_subtask(tx, seen, "pause", actor="owner", tenure=lease)

        assert moved.state is SubtaskState.PAUSED
        assert tables.subtask_by_id(tx, seen.id).checkpoint == {"done": 9}


def test_a_deposed_owner_moves_nothing(system):
    """A tenure that ran out neither pauses nor assigns."""
    old = tenure_of(system)
    end_lease(system)
    with rolled_back(system) as tx:
        running, pending = put_subtask(tx, SubtaskState.RUNNING), put_subtask(tx, SubtaskState.PENDING, subtask_id=2)

        with pytest.raises(StateChanged):
            tables.move_subtask(tx, running, "pause", actor="owner", tenure=old)
        with pytest.raises(StateChanged):
            tables.assign_subtasks(tx, [pending], "node-2", tenure=old)

        assert [tables.subtask_by_id(tx, s.id) for s in (running, pending)] == [running, pending]
    tenure_of(system, "another")


@pytest.mark.parametrize("state", SubtaskState)
def test_only_the_running_attempt_writes_progress(system, state):
    """A checkpoint is taken while the subtask runs, and in no other state."""
    with rolled_back(system) as tx:
        seen = put_subtask(tx, state)

        if state is SubtaskState.RUNNING:
            tables.checkpoint_subtask(tx, seen, checkpoint={"done": 9}, summary={"row_count": 9})
            assert tables.subtask_by_id(tx, seen.id).checkpoint == {"done": 9}
        else:
            with pytest.raises(SubtaskLost):
                tables.checkpoint_subtask(tx, seen, checkpoint={"done": 9}, summary={})
            assert tables.subtask_by_id(tx, seen.id) == seen


@pytest.mark.parametrize("difference", [-1, 1])
def test_another_attempt_writes_nothing(system, difference):
    """A checkpoint or a session under an older or a newer attempt raises and changes nothing."""
    with rolled_back(system) as tx:
        seen = put_subtask(tx, SubtaskState.RUNNING)
        stale = replace(seen, attempt=seen.attempt + difference)

        with pytest.raises(SubtaskLost):
            tables.checkpoint_subtask(tx, stale, checkpoint={"done": 9}, summary={})
        with pytest.raises(SubtaskLost):
            tables.record_session(tx, stale, {"server": "s", "backend": "1", "started": "now"})

        assert tables.subtask_by_id(tx, seen.id) == seen


def test_an_assignment_is_a_compare_and_set_too(system):
    """Two owners' looks at one pending subtask: the second assignment is refused, and so is a start on the old look."""
    lease = tenure_of(system)
    with rolled_back(system) as tx:
        seen = put_subtask(tx, SubtaskState.PENDING, exec_id=None)
        tables.assign_subtasks(tx, [seen], "node-2", tenure=lease)

        with pytest.raises(StateChanged):
            tables.assign_subtasks(tx, [seen], "node-3", tenure=lease)
        with pytest.raises(StateChanged):
            tables.move_subtask(tx, seen, "start", actor="node-3")

        assert tables.subtask_by_id(tx, seen.id).exec_id == "node-2"


def test_history_takes_subtasks_of_finished_tasks_only(system):
    """A batch moves whole rows to the history, under a tenure that holds; subtasks of a live task stay."""
    lease = tenure_of(system)
    stale = replace(lease, number=lease.number - 1)
    with rolled_back(system) as tx:
        live, ended = put_task(tx, TaskState.RUNNING, task_id=1), put_task(tx, TaskState.RUNNING, task_id=2)
        kept = put_subtask(tx, SubtaskState.SUCCEED, subtask_id=1, task_id=live.id)
        gone = [put_subtask(tx, state, subtask_id=n, task_id=ended.id) for n, state in ((2, SubtaskState.SUCCEED), (3, SubtaskState.CANCELED))]
        tables.move_task(tx, ended, "succeed", actor="owner", tenure=lease)

        ids = tables.finished_tasks_with_subtasks(tx, limit=10)
        tables.subtasks_to_history(tx, ids, tenure=stale)
        untouched = count(tx, tables.subtask_history)
        tables.subtasks_to_history(tx, ids, tenure=lease)

        assert (ids, untouched) == ([2, 3], 0)
        assert tables.subtask_by_id(tx, kept.id) == kept
        assert tables.subtasks_of(tx, ended.id) == gone
        with pytest.raises(NotFound):
            tables.subtask_by_id(tx, 2)
