"""Pause, resume, cancel and alter in every state of a job: the documented answer, and what is written for it."""

from types import SimpleNamespace

import pytest

from tests.databases import opened
from tests.ddl.rows import put_job
from tideshift.clock import SteppedClock
from tideshift.ddl import tables
from tideshift.ddl.commands import Ddl
from tideshift.ddl.machine import JOB, JobState
from tideshift.dxf.commands import Verdict
from tideshift.errors import InvalidParameter, NotFound
from tideshift.store import bootstrap, events

A, S, R, J = Verdict.APPLIED, Verdict.ALREADY, Verdict.REFUSED, JobState
COMMANDS = ("pause", "resume", "cancel", "alter")
ANSWERS = {
    # state, revertible: pause, resume, cancel, alter
    (J.QUEUEING, True): (A, S, A, A),
    (J.RUNNING, True): (A, S, A, A),
    (J.RUNNING, False): (R, S, R, A),
    (J.PAUSING, True): (S, R, A, A),
    (J.PAUSED, True): (S, A, A, A),
    (J.CANCELLING, True): (R, R, S, R),
    (J.ROLLINGBACK, True): (R, R, S, R),
    (J.ROLLBACK_DONE, True): (R, R, S, R),
    (J.CANCELLED, True): (R, R, S, R),
    (J.DONE, False): (R, R, R, R),
    (J.SYNCED, False): (R, R, R, R),
}
CASES = [(*place, answers) for place, answers in ANSWERS.items()]


@pytest.fixture
def ddl(database_url):
    """The commands on jobs of a database with system tables; what they need of a dialect is its name for nothing."""
    with opened(database_url, SteppedClock()) as database:
        bootstrap.bootstrap(database)
        yield Ddl(database, SimpleNamespace(capabilities=SimpleNamespace(concurrent_writers=True)), actor="ann")


def put(ddl, state, **columns):
    """Put a job into a state; a final one into the history."""
    with ddl.database.transaction() as tx:
        job = put_job(tx, state, **columns)
        if state in JOB.final:
            names = [column.name for column in tables.job.c]
            tx.execute(tables.job_history.insert().from_select(names, tables.job.select()))
            tx.execute(tables.job.delete())
    return job


def give(ddl, command, job_id):
    return ddl.alter(job_id, {"threads": 4}) if command == "alter" else getattr(ddl, command)(job_id)[0]


def log(ddl, job_id):
    with ddl.database.transaction(write=False) as tx:
        return events.history(tx, job_id=job_id)


def outcomes(ddl, job_id):
    return {event.request_id: (event.target, event.detail) for event in log(ddl, job_id) if event.kind == "outcome"}


@pytest.mark.parametrize(("state", "revertible", "answers"), CASES, ids=[f"{state}-{revertible}" for state, revertible, _ in CASES])
def test_every_command_in_every_state(ddl, state, revertible, answers):
    """An accepted command moves the row and is in the log with its request; anything else writes nothing and says why."""
    for number, (command, verdict) in enumerate(zip(COMMANDS, answers, strict=True), start=1):
        seen = put(ddl, state, job_id=number, revertible=revertible, started_at=1)

        answer = give(ddl, command, number)

        after = ddl.job(number)
        assert (answer.id, answer.verdict, answer.rev) == (number, verdict, after.rev), (command, answer)
        if verdict is A:
            assert (after.state, after.rev) == (JOB.target(state, command), seen.rev + 1)
            request, move = log(ddl, number)
            assert (request.kind, request.detail["command"], request.actor) == ("request", command, "ann")
            assert request.request_id == move.request_id == answer.request_id
        else:
            assert after == seen
            assert log(ddl, number) == []
            assert answer.request_id is None
            assert str(state) in answer.reason or "point of no return" in answer.reason


def test_an_alter_of_a_job_that_has_not_started_is_in_force_at_once(ddl):
    """There is nothing that it would have to reach; wish, time and outcome are on record."""
    job = put(ddl, J.QUEUEING)

    answer = ddl.alter(job.id, {"threads": 4, "max_write_speed": "20MiB"})

    after = ddl.job(job.id)
    assert after.wished() == {**job.wished(), "threads": 4, "max_write_speed": "20971520 bytes"}
    assert after.parameters["threads"]["since"] > 1
    assert after.parameters["batch_size"] == job.parameters["batch_size"]
    assert outcomes(ddl, job.id) == {answer.request_id: ("applied", None)}


def test_a_later_alter_supersedes_what_it_covers(ddl):
    """A request of which every parameter is asked for again is superseded, with the number of the later one."""
    job = put(ddl, J.RUNNING, started_at=1)

    both = ddl.alter(job.id, {"threads": 2, "batch_size": 5})
    one = ddl.alter(job.id, {"threads": 3})
    again = ddl.alter(job.id, {"threads": 4})

    assert outcomes(ddl, job.id) == {one.request_id: ("superseded", {"reason": "by set", "by": again.request_id})}
    with ddl.database.transaction(write=False) as tx:
        assert [request.request_id for request in events.open_requests(tx, job_id=job.id)] == [both.request_id, again.request_id]
    assert ddl.job(job.id).wished()["threads"] == 4


def test_a_cancel_supersedes_everything_that_waits(ddl):
    """Alter and pause are answered by the cancel that came after them."""
    job = put(ddl, J.RUNNING, started_at=1)
    weaker = [ddl.alter(job.id, {"threads": 2}), ddl.pause(job.id)[0]]

    (cancel,) = ddl.cancel(job.id)

    assert outcomes(ddl, job.id) == {w.request_id: ("superseded", {"reason": "by cancel", "by": cancel.request_id}) for w in weaker}


def test_a_pause_supersedes_a_resume(ddl):
    """Resumed and paused again before the owner looked."""
    job = put(ddl, J.PAUSED, started_at=1)
    (resume,) = ddl.resume(job.id)

    (pause,) = ddl.pause(job.id)

    assert outcomes(ddl, job.id) == {resume.request_id: ("superseded", {"reason": "by pause", "by": pause.request_id})}
    assert ddl.job(job.id).state is J.PAUSING


def test_several_ids_are_answered_each_for_itself(ddl):
    """Unknown, refused and applied, in the order of asking."""
    put(ddl, J.SYNCED, job_id=1)
    put(ddl, J.RUNNING, job_id=2)

    answers = ddl.cancel(404, 1, 2)

    assert [(answer.id, answer.verdict) for answer in answers] == [(404, Verdict.NOT_FOUND), (1, R), (2, A)]


def test_an_alter_may_ask_for_the_rev_that_was_seen(ddl):
    """With `if_rev` it is refused once somebody else was there."""
    job = put(ddl, J.RUNNING, started_at=1)

    first = ddl.alter(job.id, {"threads": 2}, if_rev=job.rev)
    second = ddl.alter(job.id, {"threads": 3}, if_rev=job.rev)

    assert (first.verdict, second.verdict) == (A, R)
    assert f"rev {first.rev}, not {job.rev}" in second.reason
    assert ddl.job(job.id).wished()["threads"] == 2


@pytest.mark.parametrize("wrong", [{}, {"thread": 1}, {"threads": 0}, {"batch_size": "x"}, {"max_write_speed": "quick"}, {"lock_share": 101}])
def test_what_makes_no_sense_is_refused_before_anything_is_written(ddl, wrong):
    """Nothing to set, unknown names, values out of range."""
    job = put(ddl, J.RUNNING)

    with pytest.raises(InvalidParameter):
        ddl.alter(job.id, wrong)

    assert ddl.job(job.id) == job


def test_an_unknown_job_is_not_found(ddl):
    """Looking raises, asking answers."""
    with pytest.raises(NotFound):
        ddl.job(7)

    assert ddl.alter(7, {"threads": 2}).verdict is Verdict.NOT_FOUND
