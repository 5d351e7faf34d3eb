"""Every move of a task on a real database: allowed or refused, the later of two writers, deposed owners, the history."""

from dataclasses import replace
from itertools import product

import pytest

from tests.dxf.moves import count, end_lease, module_fixtures, moves_of, put_task, rolled_back, tenure_of
from tideshift.dxf import tables
from tideshift.dxf.machine import TASK, TaskState
from tideshift.errors import MoveNotAllowed, NotFound, StateChanged
from tideshift.fsm import Actor

database_url, system = module_fixtures()


@pytest.fixture(autouse=True)
def lease(system):
    """Nobody takes the lease inside a transaction that is open."""
    return tenure_of(system)


@pytest.mark.parametrize(("state", "event"), list(product(TaskState, TASK.events)), ids=str)
def test_every_pair(system, lease, state, event):
    """An allowed move leads to its target with the next rev, a refused one leaves the row as it was."""
    tenure = lease if TASK.actor(event) is Actor.OWNER else None
    with rolled_back(system) as tx:
        seen = put_task(tx, state)
        target = TASK.target(state, event)

        if target is None:
            with pytest.raises(MoveNotAllowed):
                tables.move_task(tx, seen, event, actor="test", tenure=tenure)
            assert tables.task_by_id(tx, seen.id) == seen
            assert moves_of(tx, task_id=seen.id) == []
        else:
            moved = tables.move_task(tx, seen, event, actor="test", tenure=tenure)
            assert (moved.state, moved.rev) == (target, seen.rev + 1)
            assert tables.task_by_id(tx, seen.id) == moved
            assert moves_of(tx, task_id=seen.id) == [(state, target)]
            in_history = count(tx, tables.task_history) == 1
            assert in_history == (target in TASK.final) == (count(tx, tables.task) == 0)
            assert (moved.end_time is not None) == in_history


def test_the_later_of_two_writers_loses(system, lease):
    """Both read the same row; the second one is told that it moved on, and the first one's columns stay."""
    with rolled_back(system) as tx:
        seen = put_task(tx, TaskState.RUNNING)
        tables.move_task(tx, seen, "modify", actor="ann", modify_params={"prev_state": "running", "modifications": []})

        with pytest.raises(StateChanged):
            tables.move_task(tx, seen, "advance", actor="owner", tenure=lease, step=2, meta={})

        left = tables.task_by_id(tx, seen.id)
        assert (left.state, left.step, left.meta) == (TaskState.MODIFYING, 1, seen.meta)


def test_a_state_that_came_back_is_not_the_state_that_was_seen(system, lease):
    """Pause and resume behind a slow writer: the state is the same again, the row is not."""
    with rolled_back(system) as tx:
        seen = put_task(tx, TaskState.RUNNING)
        again = seen
        for event in ("pause", "paused", "resume", "resumed"):
            again = tables.move_task(tx, again, event, actor="x", tenure=lease if TASK.actor(event) is Actor.OWNER else None)
        assert again.state is seen.state

        with pytest.raises(StateChanged):
            tables.move_task(tx, seen, "succeed", actor="owner", tenure=lease)


@pytest.mark.parametrize("wrong", [{"number": 99}, {"owner_id": "somebody else"}, {"name": "another lease"}])
def test_an_owner_move_names_the_tenure_that_holds(system, lease, wrong):
    """A move under any other tenure changes nothing."""
    with rolled_back(system) as tx:
        seen = put_task(tx, TaskState.RUNNING)

        with pytest.raises(StateChanged):
            tables.move_task(tx, seen, "succeed", actor="owner", tenure=replace(lease, **wrong))

        assert tables.task_by_id(tx, seen.id) == seen


def test_a_deposed_owner_moves_nothing(system):
    """Once the lease ran out, and after somebody else took it, the old tenure is refused; a person's move is not."""
    old = tenure_of(system)
    end_lease(system)
    with rolled_back(system) as tx:
        seen = put_task(tx, TaskState.RUNNING)
        with pytest.raises(StateChanged):
            tables.move_task(tx, seen, "succeed", actor="owner", tenure=old)
        assert tables.move_task(tx, seen, "cancel", actor="ann").state is TaskState.CANCELLING

    new = tenure_of(system, "another")
    with rolled_back(system) as tx:
        seen = put_task(tx, TaskState.RUNNING)
        with pytest.raises(StateChanged):
            tables.move_task(tx, seen, "succeed", actor="owner", tenure=old)
        assert tables.move_task(tx, seen, "succeed", actor="another", tenure=new).state is TaskState.SUCCEED
    assert new.number == old.number + 1


@pytest.mark.parametrize("event", ["succeed", "fail"])
def test_a_final_move_takes_the_row_to_the_history_or_does_nothing(system, event):
    """Until the transaction commits the row is live; a rollback leaves it live and the history empty."""
    tenure = tenure_of(system)
    with system.transaction() as tx:
        seen = put_task(tx, TaskState.RUNNING, task_id=77)

    with rolled_back(system) as tx:
        tables.move_task(tx, seen, event, actor="owner", tenure=tenure)
    with system.transaction(write=False) as tx:
        assert tables.task_by_id(tx, 77, history=False) == seen
        assert count(tx, tables.task_history) == 0
    with system.transaction() as tx:
        moved = tables.move_task(tx, seen, event, actor="owner", tenure=tenure)

    with system.transaction() as tx:
        assert tables.task_by_id(tx, 77) == tables.task_by_key(tx, "key 77") == moved
        with pytest.raises(NotFound):
            tables.task_by_id(tx, 77, history=False)
        tx.execute(tables.task_history.delete())


def test_the_final_states_are_those_whose_rows_go_to_the_history(system, lease):
    """Each state that a move can reach puts the row into the history exactly when the machine calls it final."""
    gone = set()
    for one in TASK.moves:
        with rolled_back(system) as tx:
            seen = put_task(tx, one.source)
            tables.move_task(tx, seen, one.event, actor="x", tenure=tenure_of(system) if one.actor is Actor.OWNER else None)
            if count(tx, tables.task_history):
                gone.add(one.target)

    assert gone == TASK.final


def test_live_and_history_tables_have_equal_columns_in_equal_order(system):
    """As declared and as the database has them: names, order, types, and what may be missing."""
    assert_equal_columns(system, tables.task, tables.task_history)
    assert_equal_columns(system, tables.subtask, tables.subtask_history)


def assert_equal_columns(system, live, history):
    shape = [[(c.name, str(c.type), c.nullable, c.primary_key) for c in table.c] for table in (live, history)]
    assert shape[0] == shape[1]
    with system.transaction(write=False) as tx:
        existing = [system.driver.existing_columns(tx.connection, table.name) for table in (live, history)]
    assert existing[0] == existing[1] == [c.name for c in live.c]
