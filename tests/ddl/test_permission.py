"""What may be asked of a job, and which rule is named when it may not."""

from types import SimpleNamespace

import pytest

from tideshift.ddl.machine import JOB, JobState
from tideshift.ddl.permission import allowed, why_not
from tideshift.fsm import Actor

COMMANDS = [event for event in JOB.events if JOB.actor(event) is Actor.USER]


def job(state, *, revertible=True):
    return SimpleNamespace(state=state, revertible=revertible)


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("state", JobState)
def test_a_command_is_allowed_or_its_rule_is_named(state, command):
    """What the machine allows is allowed; a refusal speaks of the end, the point of no return, or where it is possible."""
    reason = why_not(job(state), command)

    if JOB.target(state, command) is not None:
        assert reason is None
    elif state in JOB.final:
        assert reason == f"the job is finished: {state}"
    elif state is JobState.DONE and command in ("cancel", "pause"):
        assert "point of no return" in reason
    else:
        assert all(source in reason for source in JOB.sources(command))


@pytest.mark.parametrize("state", sorted(set(JobState) - JOB.final))
def test_past_the_point_of_no_return_nothing_is_undone_or_stopped(state):
    """Once a statement that cannot be undone is under way, cancel and pause are refused in every live state."""
    committed = job(state, revertible=False)

    for command in ("cancel", "pause"):
        assert "point of no return" in why_not(committed, command)
    assert not {"cancel", "pause"} & set(allowed(committed))


def test_what_is_allowed_is_named_as_on_the_command_line():
    """A running job may be paused, cancelled and set; a finished one nothing."""
    assert set(allowed(job(JobState.RUNNING))) == {"pause", "cancel", "set"}
    assert set(allowed(job(JobState.PAUSED))) == {"resume", "cancel", "set"}
    assert allowed(job(JobState.RUNNING, revertible=False)) == ["set"]
    for state in JOB.final:
        assert allowed(job(state)) == []
