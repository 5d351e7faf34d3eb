"""The event log, and that every request has exactly one outcome, on each database."""

import pytest

from tideshift.errors import LockTimeout
from tideshift.store import events
from tideshift.store.events import Outcome, RequestMisused


def ask(database, command="pause", **about):
    with database.transaction() as tx:
        return events.request(tx, actor="ann", command=command, **(about or {"job_id": 1}))


def test_an_event_comes_back_as_written(system):
    """Every field of an event, text of any kind and nested detail, is read as it was written."""
    detail = {"text": "it's 100% “ok” :x \u0000\udcff", "list": [1, 2.5, None, True], "big": 2**63}

    with system.transaction() as tx:
        written = events.record(
            tx, actor="ann", kind="move", job_id=3, source="running", target="paused", request_id="r", detail=detail
        )
        (read,) = events.history(tx, job_id=3)

    assert read.id == written
    assert (read.actor, read.kind, read.job_id, read.task_id) == ("ann", "move", 3, None)
    assert (read.source, read.target, read.request_id, read.detail) == ("running", "paused", "r", detail)


def test_history_pages_in_order(system):
    """The events of one task come oldest first, page after page, and no other task's among them."""
    with system.transaction() as tx:
        for i in range(10):
            events.record(tx, actor="a", kind=f"k{i}", task_id=1 + i % 2)

    with system.transaction(write=False) as tx:
        first = events.history(tx, task_id=1, limit=3)
        rest = events.history(tx, task_id=1, after_id=first[-1].id)

    assert [event.kind for event in first + rest] == ["k0", "k2", "k4", "k6", "k8"]


def test_a_request_is_open_until_its_outcome(system):
    """An acknowledged command is found with its detail until it is concluded."""
    with system.transaction() as tx:
        request_id = events.request(tx, actor="ann", command="modify", task_id=5, detail={"threads": 4})
        (found,) = events.open_requests(tx, task_id=5)

    assert (found.request_id, found.command, found.actor, found.detail) == (request_id, "modify", "ann", {"threads": 4})
    with system.transaction() as tx:
        events.conclude(tx, request_id, Outcome.APPLIED)
        assert events.open_requests(tx, task_id=5) == []
        outcome = events.history(tx, task_id=5)[-1]
    assert (outcome.kind, outcome.target, outcome.request_id) == ("outcome", "applied", request_id)


def test_open_requests_are_chosen_by_command_and_kept_apart(system):
    """Requests come oldest first, by command if asked, and those of other jobs and of tasks are not among them."""
    pause, cancel = ask(system, "pause"), ask(system, "cancel")
    ask(system, "pause", job_id=2)
    ask(system, "pause", task_id=1)

    with system.transaction(write=False) as tx:
        everything = events.open_requests(tx, job_id=1)
        cancels = events.open_requests(tx, job_id=1, commands={"cancel"})

    assert [one.request_id for one in everything] == [pause, cancel]
    assert [one.request_id for one in cancels] == [cancel]


def test_an_outcome_says_why_and_by_which_request(system):
    """A superseded request names the stronger one, a failed one its reason."""
    weak, strong = ask(system, "pause"), ask(system, "cancel")

    with system.transaction() as tx:
        events.conclude(tx, weak, Outcome.SUPERSEDED, actor="node-1", by=strong)
        events.conclude(tx, strong, Outcome.FAILED, reason="past the point of no return")
        first, second = events.history(tx, job_id=1)[-2:]

    assert (first.target, first.detail, first.actor) == ("superseded", {"by": strong}, "node-1")
    assert (second.target, second.detail) == ("failed", {"reason": "past the point of no return"})


def test_a_second_outcome_is_refused(system):
    """A request has one outcome; another is a bug of ours and writes nothing."""
    request_id = ask(system)
    with system.transaction() as tx:
        events.conclude(tx, request_id, Outcome.APPLIED)

    with pytest.raises(RequestMisused, match="already concluded"), system.transaction() as tx:
        events.conclude(tx, request_id, Outcome.FAILED)

    with system.transaction() as tx:
        assert [event.kind for event in events.history(tx, job_id=1)] == ["request", "outcome"]


def test_an_outcome_needs_a_request(system):
    """Nothing can be concluded that was not asked."""
    with pytest.raises(RequestMisused, match="no request"), system.transaction() as tx:
        events.conclude(tx, "f" * 32, Outcome.APPLIED)


def test_of_two_outcomes_at_once_one_is_written(system):
    """While one transaction concludes a request no other can; afterwards the other finds it concluded."""
    request_id = ask(system)

    with system.transaction() as first:
        events.conclude(first, request_id, Outcome.APPLIED)
        with pytest.raises(LockTimeout), system.transaction(lock_wait_seconds=0.02) as second:
            events.conclude(second, request_id, Outcome.FAILED)
    with pytest.raises(RequestMisused), system.transaction() as second:
        events.conclude(second, request_id, Outcome.FAILED)

    with system.transaction() as tx:
        assert [event.kind for event in events.history(tx, job_id=1)] == ["request", "outcome"]


def test_an_event_of_a_rolled_back_transaction_was_never_there(system):
    """The log tells only what was committed."""
    with pytest.raises(ZeroDivisionError), system.transaction() as tx:  # noqa: PT012
        events.record(tx, actor="a", kind="k", job_id=1)
        raise ZeroDivisionError

    with system.transaction() as tx:
        assert events.history(tx, job_id=1) == []
