"""Every move of a job on a real database: allowed or refused, the later of two writers, deposed owners, the history."""

from dataclasses import replace
from itertools import product

import pytest

from tests.ddl.rows import put_job
from tests.dxf.moves import count, end_lease, module_fixtures, moves_of, rolled_back, tenure_of
from tideshift.ddl import tables
from tideshift.ddl.machine import JOB, JobState
from tideshift.errors import MoveNotAllowed, StateChanged
from tideshift.fsm import Actor
from tideshift.store import events

database_url, system = module_fixtures()


@pytest.fixture(autouse=True)
def lease(system):
    """The tenure under which owners move, taken outside any transaction of a test."""
    return tenure_of(system)


def tenure_for(event, lease):
    return lease if JOB.actor(event) is Actor.OWNER else None


@pytest.mark.parametrize(("state", "event"), list(product(JobState, JOB.events)), ids=str)
def test_every_pair(system, lease, state, event):
    """An allowed move leads to its target with the next rev, a refused one leaves the row as it was."""
    with rolled_back(system) as tx:
        seen = put_job(tx, state)
        target = JOB.target(state, event)

        if target is None:
            with pytest.raises(MoveNotAllowed):
                tables.move_job(tx, seen, event, actor="test", tenure=tenure_for(event, lease))
            assert tables.job_by_id(tx, seen.id) == seen
            assert moves_of(tx, job_id=seen.id) == []
        else:
            moved = tables.move_job(tx, seen, event, actor="test", tenure=tenure_for(event, lease))
            assert (moved.state, moved.rev) == (target, seen.rev + 1)
            assert tables.job_by_id(tx, seen.id) == moved
            assert moves_of(tx, job_id=seen.id) == [(state, target)]
            in_history = count(tx, tables.job_history) == 1
            assert in_history == (target in JOB.final) == (count(tx, tables.job) == 0)
            assert (moved.finished_at is not None) == in_history


def test_the_later_of_two_writers_loses(system, lease):
    """An owner that read the job before a person altered it cannot write its stage over the new parameters."""
    with rolled_back(system) as tx:
        seen = put_job(tx, JobState.RUNNING)
        altered = {**seen.parameters, "threads": {"value": 8, "since": 2}}
        tables.move_job(tx, seen, "alter", actor="ann", parameters=altered)

        with pytest.raises(StateChanged):
            tables.move_job(tx, seen, "step", actor="owner", tenure=lease, stage=1, parameters=seen.parameters)

        left = tables.job_by_id(tx, seen.id)
        assert (left.state, left.stage, left.parameters) == (JobState.RUNNING, 0, altered)


def test_a_state_that_came_back_is_not_the_state_that_was_seen(system, lease):
    """Pause and resume behind a slow owner: the state is the same again, the row is not."""
    with rolled_back(system) as tx:
        seen = again = put_job(tx, JobState.RUNNING)
        for event in ("pause", "paused", "resume", "start"):
            again = tables.move_job(tx, again, event, actor="x", tenure=tenure_for(event, lease))
        assert again.state is seen.state

        with pytest.raises(StateChanged):
            tables.move_job(tx, seen, "finish", actor="owner", tenure=lease)


@pytest.mark.parametrize("wrong", [{"number": 99}, {"owner_id": "somebody else"}])
def test_an_owner_move_names_the_tenure_that_holds(system, lease, wrong):
    """A move under any other tenure changes nothing."""
    with rolled_back(system) as tx:
        seen = put_job(tx, JobState.RUNNING)

        with pytest.raises(StateChanged):
            tables.move_job(tx, seen, "finish", actor="owner", tenure=replace(lease, **wrong))

        assert tables.job_by_id(tx, seen.id) == seen


def test_a_deposed_owner_moves_nothing(system):
    """Once the lease ran out the old tenure is refused; a person's command is not."""
    old = tenure_of(system)
    end_lease(system)

    with rolled_back(system) as tx:
        seen = put_job(tx, JobState.RUNNING)
        with pytest.raises(StateChanged):
            tables.move_job(tx, seen, "finish", actor="owner", tenure=old)
        assert tables.move_job(tx, seen, "cancel", actor="ann").state is JobState.CANCELLING


def test_the_final_states_are_those_whose_rows_go_to_the_history(system, lease):
    """Each state that a move can reach puts the row into the history exactly when the machine calls it final."""
    gone = set()
    for one in JOB.moves:
        with rolled_back(system) as tx:
            seen = put_job(tx, one.source)
            tables.move_job(tx, seen, one.event, actor="x", tenure=tenure_for(one.event, lease))
            if count(tx, tables.job_history):
                gone.add(one.target)

    assert gone == JOB.final


@pytest.mark.parametrize(
    ("event", "source", "outcomes"),
    [
        ("sync", JobState.DONE, {"alter": "failed", "pause": "failed"}),
        ("cancelled", JobState.CANCELLING, {"cancel": "applied"}),
        ("undone", JobState.ROLLINGBACK, {"cancel": "applied"}),
        ("undone", JobState.ROLLINGBACK, {"alter": "failed"}),
    ],
)
def test_the_final_move_closes_what_was_still_asked(system, lease, event, source, outcomes):
    """Every open request gets its one outcome with the job's end: a cancel had its effect, the others had none."""
    with rolled_back(system) as tx:
        seen = put_job(tx, source)
        for command in outcomes:
            events.request(tx, actor="ann", command=command, job_id=seen.id)

        tables.move_job(tx, seen, event, actor="owner", tenure=lease)

        assert events.open_requests(tx, job_id=seen.id) == []
        log = events.history(tx, job_id=seen.id)
        commands = {e.request_id: e.detail["command"] for e in log if e.kind == "request"}
        assert {commands[e.request_id]: e.target for e in log if e.kind == "outcome"} == outcomes
        assert all("the job ended" in e.detail["reason"] for e in log if e.kind == "outcome")


def test_live_and_history_tables_have_equal_columns_in_equal_order(system):
    """As declared and as the database has them: names, order, types, and what may be missing."""
    live, history = tables.job, tables.job_history

    shape = [[(c.name, str(c.type), c.nullable, c.primary_key) for c in table.c] for table in (live, history)]
    with system.transaction(write=False) as tx:
        existing = [system.driver.existing_columns(tx.connection, table.name) for table in (live, history)]

    assert shape[0] == shape[1]
    assert existing[0] == existing[1] == [c.name for c in live.c]
