"""Which queued jobs may start: a pure decision, compared with the rule said in another way."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tideshift.ddl.machine import JOB, JobState
from tideshift.ddl.queue import Claims, runnable

LIVE = sorted(set(JobState) - JOB.final)


def job(number, state=JobState.QUEUEING, objects="a", started=False):
    """A job as the queue sees it; upper-case letters are exclusive claims, lower-case ones shared."""
    claims = [{"name": letter.lower(), "mode": "exclusive" if letter.isupper() else "shared"} for letter in objects]
    return SimpleNamespace(id=number, state=state, objects=claims, started_at=1 if started else None)


def meets(left, right):
    """Whether two jobs touch one object and at least one of them wants it for itself."""
    return any(
        a["name"] == b["name"] and "exclusive" in (a["mode"], b["mode"]) for a in left.objects for b in right.objects
    )


def ids(jobs):
    return [job.id for job in jobs]


@pytest.mark.parametrize("state", LIVE)
def test_a_live_job_keeps_its_table(state):
    """Whatever a started job is doing, paused included, no other job on its table starts; on another table it does."""
    live = [job(1, state, "A", started=True), job(2, objects="A"), job(3, objects="B")]

    started = ids(runnable(live))

    assert 2 not in started
    assert 3 in started


def test_the_oldest_goes_first():
    """Of two queued jobs on one table the earlier one starts, in whatever order they are read."""
    assert ids(runnable([job(2, objects="A"), job(1, objects="A")])) == [1]


def test_nobody_overtakes():
    """A job that would meet only a waiting one waits too."""
    live = [job(1, JobState.RUNNING, "A", started=True), job(2, objects="AB"), job(3, objects="B"), job(4, objects="C")]

    assert ids(runnable(live)) == [4]


def test_shared_claims_live_together():
    """Two readers of one object start together, a writer waits for both."""
    assert ids(runnable([job(1, objects="a"), job(2, objects="a"), job(3, objects="A"), job(4, objects="a")])) == [1, 2]


def test_a_resumed_job_goes_on_with_what_it_holds():
    """A job that was resumed is queued again, but its table is still its own, also against an earlier id."""
    live = [job(1, objects="A"), job(2, JobState.QUEUEING, "A", started=True)]

    assert ids(runnable(live)) == [2]


def test_a_job_that_was_paused_before_it_started_keeps_its_place():
    """Paused while queued: later jobs on its table wait; resumed, it comes before them."""
    assert ids(runnable([job(1, JobState.PAUSED, "A"), job(2, objects="A")])) == []
    assert ids(runnable([job(1, objects="A"), job(2, objects="A")])) == [1]


def test_a_paused_job_that_has_nothing_yet_lets_earlier_ones_pass():
    """Paused before it started, a later job on the same table does not keep an earlier one from starting."""
    assert ids(runnable([job(1, objects="A"), job(2, JobState.PAUSED, "A"), job(3, objects="A")])) == [1]


def test_a_claim_stays_exclusive():
    """A shared claim beside an exclusive one does not make it shared."""
    claims = Claims()
    claims.add([{"name": "a", "mode": "exclusive"}])
    claims.add([{"name": "a", "mode": "shared"}])

    assert not claims.admits([{"name": "a", "mode": "shared"}])
    assert claims.admits([{"name": "b", "mode": "exclusive"}])


@st.composite
def queues(draw):
    """Live jobs as the engine can have them: whoever has started did so without a meeting."""
    jobs = []
    for number in range(1, draw(st.integers(1, 7)) + 1):
        objects = draw(st.text("aAbBcC", min_size=1, max_size=2))
        started = draw(st.booleans())
        one = job(number, draw(st.sampled_from(LIVE)), objects, started)
        if started and any(meets(one, other) for other in jobs if other.started_at):
            one = job(number, objects=objects)
        jobs.append(one)
    return draw(st.permutations(jobs))


@given(queues())
def test_the_rule_said_in_another_way(jobs):
    """A job starts exactly when it is queued and either started before, or meets no started job and no earlier one."""

    def may_start(one):
        if one.state is not JobState.QUEUEING:
            return False
        others = [other for other in jobs if other is not one and meets(one, other)]
        return bool(one.started_at) or not any(other.started_at or other.id < one.id for other in others)

    assert ids(runnable(jobs)) == sorted(one.id for one in jobs if may_start(one))


@given(queues())
def test_jobs_that_run_together_never_meet(jobs):
    """Whatever starts now meets neither what holds its objects nor each other."""
    started = runnable(jobs)
    holding = [one for one in jobs if one.started_at and one not in started]

    for number, one in enumerate(started):
        assert not any(meets(one, other) for other in started[number + 1 :] + holding)
