"""Commands that get in while the worker has read a job and not yet written, or has written and not yet committed.

These are the replays of the fault for which this engine exists: a worker that overwrote an acknowledged command.
"""

import threading

import pytest

from tests.ddl.engine import STAGES
from tideshift.ddl import points
from tideshift.ddl.machine import JobState
from tideshift.ddl.worker import Worker
from tideshift.dxf.commands import Verdict
from tideshift.store import points as store_points

J = JobState
A, R, F = Verdict.APPLIED, Verdict.REFUSED, Verdict.FAILED
JOIN_SECONDS = 30
COMMANDS = {
    "cancel": lambda ddl, job_id: ddl.cancel(job_id)[0],
    "pause": lambda ddl, job_id: ddl.pause(job_id)[0],
    "alter": lambda ddl, job_id: ddl.alter(job_id, {"batch_size": 7}),
}
PLACES = [("queueing", 0), *(("running", stage) for stage in range(3)), ("done", 3)]
PLACE_NAMES = ["queueing", *STAGES[:3], "done"]


def finish(engine, job, command, answer):
    """Run to the end that the command leads to, and see that it is that one."""
    if answer.verdict is R:
        assert any(rule in answer.reason for rule in ("point of no return", "finished", "the job is done"))
        engine.run_to(job.id)
        engine.assert_changed(job.id)
    elif command == "cancel":
        engine.run_to(job.id)
        engine.assert_untouched(job.id)
        assert engine.job(job.id).error["code"] == "cancelled"
        assert engine.outcomes(job.id) == [("cancel", ["applied"])]
    elif command == "pause":
        paused = engine.run_to(job.id, J.PAUSED)
        assert_nothing_happens(engine, paused)
        engine.ddl.resume(job.id)
        engine.run_to(job.id)
        engine.assert_changed(job.id)
        assert engine.outcomes(job.id) == [("pause", ["applied"]), ("resume", ["applied"])]
    else:
        engine.run_to(job.id)
        engine.assert_changed(job.id)
        assert engine.job(job.id).parameters["batch_size"]["value"] == 7
        assert len(engine.outcomes(job.id)[0][1]) == 1


def assert_nothing_happens(engine, paused):
    """A paused job neither moves nor copies."""
    subtasks = [s for task in engine.dxf.tasks() for s in engine.dxf.subtasks(task.id)]

    engine.cluster.run(40)

    assert engine.job(paused.id) == paused
    assert [s for task in engine.dxf.tasks() for s in engine.dxf.subtasks(task.id)] == subtasks


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("state", "stage"), PLACES, ids=PLACE_NAMES)
def test_between_the_workers_look_and_its_transaction(engine, failpoints, state, stage, command):
    """What is acknowledged there is honoured: the worker's move fails and the next look obeys."""
    job = engine.submit()
    answers = []
    where = {"state": state, "stage": stage}
    give = lambda **_: answers.append(COMMANDS[command](engine.ddl, job.id))  # noqa: E731
    failpoints.enable(points.AFTER_JOB_READ, "1*call", call=give, where=where)

    engine.cluster.run_until(lambda: answers)

    (answer,) = answers
    assert answer.verdict is (R if state == "done" else A)
    finish(engine, job, command, answer)


OPEN = [(event, command) for event in ("start", "step", "finish") for command in COMMANDS] + [("sync", "cancel")]


@pytest.mark.parametrize(("event", "command"), OPEN)
def test_while_the_workers_transaction_is_open(engine, failpoints, event, command):
    """A command that comes while a move is being written waits, reads what it became, and is answered by that."""
    job = engine.submit()
    answers = []
    client = threading.Thread(target=lambda: answers.append(COMMANDS[command](engine.ddl, job.id)))
    asking = threading.Event()

    def note_the_client(**_):
        if threading.current_thread() is client:
            asking.set()

    def ask(**_):
        """Go on with the move only when the client stands before a transaction of its own."""
        client.start()
        assert asking.wait(JOIN_SECONDS)

    failpoints.enable(store_points.BEFORE_BEGIN, call=note_the_client)
    failpoints.enable(points.BEFORE_JOB_MOVE, "1*call", call=ask, where={"event": event})

    engine.cluster.run_until(lambda: client.ident is not None)
    client.join(JOIN_SECONDS)

    assert asking.is_set()
    (answer,) = answers
    assert answer.verdict is (R if event in ("finish", "sync") else A)
    finish(engine, job, command, answer)


def test_a_wish_that_the_worker_has_not_seen_is_not_called_fulfilled(engine, failpoints):
    """The worker read the job, then another value was asked for: the task has the old one, so the request stays open."""
    job = engine.submit()
    engine.run_to_stage(job.id, "reorganize")
    engine.cluster.run_until(engine.dxf.tasks)
    (member,) = engine.cluster.members.values()
    failpoints.enable(points.AFTER_JOB_READ, "1*call", call=lambda **_: engine.ddl.alter(job.id, {"batch_size": 3}))

    (worker,) = [duty for duty in member.owner.duties if isinstance(duty, Worker)]
    worker.tick(member.owner.tenure)

    assert engine.outcomes(job.id) == [("alter", [])]
    assert engine.dxf.tasks()[0].meta["parameters"]["batch_size"] == 10
    engine.cluster.run_until(lambda: engine.outcomes(job.id) == [("alter", ["applied"])])
    assert engine.dxf.tasks()[0].meta["parameters"]["batch_size"] == 3
    engine.run_to(job.id)
    engine.assert_changed(job.id)


def test_a_task_that_succeeded_while_the_job_was_paused_is_found(engine, failpoints):
    """The copy is finished when the pause takes effect; resumed, the job goes on from there and copies nothing again."""
    job = engine.submit()
    engine.cluster.run_until(engine.dxf.tasks)
    (task,) = engine.dxf.tasks()
    answers = []

    def pause_what_has_ended(**_):
        if not answers and engine.cluster.ended(task.id):
            answers.extend(engine.ddl.pause(job.id))

    failpoints.enable(points.AFTER_JOB_READ, call=pause_what_has_ended)
    engine.cluster.run_until(lambda: answers)
    subtasks = engine.dxf.subtasks(task.id)
    assert engine.job(job.id).stage == STAGES.index("reorganize")
    engine.run_to(job.id, J.PAUSED)
    engine.ddl.resume(job.id)
    engine.run_to(job.id)

    assert [answer.verdict for answer in answers] == [A]
    engine.assert_changed(job.id)
    assert engine.dxf.subtasks(task.id) == subtasks


@pytest.mark.parametrize("tries", [4, 5])
def test_a_command_that_meets_a_conflict_is_tried_again_and_then_reported(engine, failpoints, tries):
    """Four conflicts in a row are outlasted; after the fifth the answer says so, and the job is as it was."""
    job, other = engine.job(engine.submit().id), engine.submit("u")
    terms = f'{tries}*raise(tideshift.errors.LockTimeout, "locked by somebody")'
    failpoints.enable(points.BEFORE_JOB_MOVE, terms, where={"job": job.id})

    first, second = engine.ddl.pause(job.id, other.id)

    assert second.verdict is A
    assert first.verdict is (A if tries == 4 else F)
    if tries == 5:
        assert "locked by somebody" in first.reason
        assert engine.job(job.id) == job


def test_a_command_whose_answer_is_lost_is_not_given_twice(engine, failpoints):
    """The commit happened, its answer did not come: asked again, it is so already, with one request and one outcome."""
    job = engine.submit()
    failpoints.enable(store_points.COMMIT_ANSWER_LOST, "1*return(true)")

    (answer,) = engine.ddl.cancel(job.id)
    engine.run_to(job.id)

    assert answer.verdict is Verdict.ALREADY
    assert engine.outcomes(job.id) == [("cancel", ["applied"])]
    engine.assert_untouched(job.id, J.CANCELLED)


def test_a_bug_in_a_command_leaves_the_job_alone(engine, failpoints):
    """An exception between reading and writing comes out at the client, and nothing was written."""
    job = engine.job(engine.submit().id)
    failpoints.enable(points.AFTER_COMMAND_READ, "1*raise(ZeroDivisionError)")

    with pytest.raises(ZeroDivisionError):
        engine.ddl.pause(job.id)

    assert engine.job(job.id) == job
    assert engine.outcomes(job.id) == []


@pytest.mark.parametrize(("faults", "ends"), [(2, J.SYNCED), (3, J.CANCELLED)])
def test_a_bug_in_a_step_is_tried_again_a_few_times(engine, failpoints, faults, ends):
    """Two in a row are outlasted; after three the job ends with the reason on its row and nothing made."""
    job = engine.submit()
    failpoints.enable(points.BEFORE_CAPTURE, f"{faults}*raise(ZeroDivisionError, \"a bug\")")

    engine.run_to(job.id)

    if ends is J.SYNCED:
        engine.assert_changed(job.id)
    else:
        engine.assert_untouched(job.id, ends)
        assert "a bug" in engine.job(job.id).error["message"]


def test_a_bug_while_undoing_is_tried_again_until_it_is_undone(engine, failpoints):
    """Undoing never gives up: what the job made does not stay."""
    job = engine.submit()
    engine.run_to_stage(job.id, "reorganize")
    failpoints.enable(points.BEFORE_UNDO, "4*raise(ZeroDivisionError)")

    engine.ddl.cancel(job.id)
    engine.run_to(job.id)

    engine.assert_untouched(job.id, J.ROLLBACK_DONE)
    assert engine.outcomes(job.id) == [("cancel", ["applied"])]
