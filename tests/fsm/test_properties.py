"""Properties of the product's machines that do not read what a table intends, only where its moves lead."""

import pytest

from tideshift.ddl.machine import JOB, JobState
from tideshift.ddl.worker import Worker
from tideshift.dxf.machine import SUBTASK, TASK, SubtaskState, TaskState
from tideshift.dxf.scheduler import Scheduler
from tideshift.dxf.tasktype import Registry
from tideshift.fsm import Actor

MACHINES = [pytest.param(machine, id=machine.name.replace(" ", "_")) for machine in (JOB, TASK, SUBTASK)]
COMMANDED = MACHINES[:2]


def reached(machine, state, *actors):
    """Every state that these actors can lead to from here, this one included."""
    seen, border = {state}, [state]
    while border:
        here = border.pop()
        for move in machine.moves:
            if move.source is here and move.actor in actors and move.target not in seen:
                seen.add(move.target)
                border.append(move.target)
    return seen


@pytest.mark.parametrize("machine", MACHINES)
def test_every_state_can_end(machine):
    """From every state a way leads to a final one."""
    for state in machine.states:
        assert reached(machine, state, *Actor) & machine.final, state


@pytest.mark.parametrize("machine", MACHINES)
def test_only_a_person_leaves_a_final_state(machine):
    """What has ended is not brought back by an owner or a node."""
    for move in machine.moves:
        assert move.source not in machine.final or move.actor is Actor.USER, move


@pytest.mark.parametrize("machine", COMMANDED)
def test_an_owner_completes_what_a_person_asks(machine):
    """Every state that a person's command enters has a move of the owner out of it."""
    entered = {move.target for move in machine.moves if move.actor is Actor.USER and move.source is not move.target}

    for state in entered:
        assert any(m.source is state and m.target is not state and m.actor is Actor.OWNER for m in machine.moves), state


@pytest.mark.parametrize("machine", COMMANDED)
def test_finals_of_a_commanded_machine_stay_final(machine):
    """A finished job or task has no move at all: its row is in the history."""
    assert not [move for move in machine.moves if move.source in machine.final]


@pytest.mark.parametrize(("machine", "undone"), [(JOB, JobState.CANCELLED), (TASK, TaskState.REVERTED)])
def test_an_accepted_cancel_ends_without_another_word(machine, undone):
    """From `cancelling` the owner alone gets to an undone end."""
    (cancelling,) = {move.target for move in machine.moves if move.event == "cancel"}

    assert undone in reached(machine, cancelling, Actor.OWNER)


@pytest.mark.parametrize(
    ("machine", "never"),
    [(JOB, {JobState.RUNNING, JobState.DONE, JobState.SYNCED}), (TASK, {TaskState.RUNNING, TaskState.SUCCEED, TaskState.FAILED})],
)
def test_a_cancelled_one_never_succeeds(machine, never):
    """Whoever moves after an accepted cancel, it neither runs again nor reaches a successful end."""
    (cancelling,) = {move.target for move in machine.moves if move.event == "cancel"}

    assert not reached(machine, cancelling, *Actor) & never


@pytest.mark.parametrize(("machine", "paused", "running"), [(JOB, JobState.PAUSED, JobState.RUNNING), (TASK, TaskState.PAUSED, TaskState.RUNNING)])
def test_a_paused_one_waits_for_a_person(machine, paused, running):
    """Neither owner nor node brings a paused one back to running."""
    assert running not in reached(machine, paused, Actor.OWNER, Actor.NODE)


@pytest.mark.parametrize("machine", COMMANDED)
def test_cancel_is_possible_wherever_undoing_is(machine):
    """A live state from which the owner can still lead to success is one that can be cancelled, but past the swap."""
    success = {JobState.SYNCED, TaskState.SUCCEED}
    for state in set(machine.states) - machine.final - {JobState.DONE}:
        if reached(machine, state, *Actor) & success:
            assert machine.target(state, "cancel") is not None, state


def test_the_subtask_of_a_dead_node_can_be_taken():
    """The owner has a way from running back to pending, and an end for every subtask that is not finished."""
    assert SubtaskState.PENDING in reached(SUBTASK, SubtaskState.RUNNING, Actor.OWNER)
    for state in (SubtaskState.PENDING, SubtaskState.RUNNING, SubtaskState.PAUSED):
        assert SubtaskState.CANCELED in reached(SUBTASK, state, Actor.OWNER)


def test_the_scheduler_knows_what_to_do_in_every_live_state():
    """Its behaviour is keyed by exactly the states that are not final."""
    assert set(Scheduler(None, Registry()).by_state) == set(TaskState) - TASK.final


def test_the_worker_knows_what_to_do_in_every_live_state():
    """Its behaviour is keyed by exactly the states that are not final."""
    assert set(Worker(None, None).by_state) == set(JobState) - JOB.final
