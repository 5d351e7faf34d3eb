"""Jobs beside one another: paused ones block their table only, duplicates are undone without harm, commands in any order."""

from contextlib import closing

import pytest

from tests.ddl.engine import ROWS
from tests.servers import sqlite_module
from tideshift.ddl.machine import JobState
from tideshift.dxf.commands import Verdict

J = JobState
A, S, R = Verdict.APPLIED, Verdict.ALREADY, Verdict.REFUSED


def test_a_paused_job_blocks_its_table_and_no_other(engine):
    """A second job on the table waits, one on another table runs to its end; resumed, both go on in order."""
    first = engine.submit()
    engine.run_to_stage(first.id, "reorganize")
    engine.ddl.pause(first.id)
    engine.run_to(first.id, J.PAUSED)
    second, other = engine.submit(), engine.submit("u")

    engine.run_to(other.id, J.SYNCED)
    waiting = engine.job(second.id)
    engine.ddl.resume(first.id)
    engine.run_to(first.id, J.SYNCED)
    engine.cluster.run_until(lambda: engine.job(second.id).state is not J.QUEUEING)

    assert (waiting.state, waiting.started_at) == (J.QUEUEING, None)
    assert engine.job(second.id).started_at is not None
    assert engine.job(second.id).started_at >= engine.job(first.id).finished_at


@pytest.mark.parametrize("when", ["while the first one runs", "after the first one has succeeded"])
def test_a_queued_duplicate_is_cancelled_without_harm(engine, when):
    """Undoing it touches nothing of the table or of the job that did the same before."""
    first, duplicate = engine.submit(), engine.submit()
    if when == "while the first one runs":
        engine.run_to_stage(first.id, "reorganize")
        engine.ddl.cancel(duplicate.id)
        engine.run_to(duplicate.id, J.CANCELLED)
    else:
        engine.ddl.pause(duplicate.id)
        engine.run_to(duplicate.id, J.PAUSED)
        engine.run_to(first.id, J.SYNCED)
        engine.ddl.cancel(duplicate.id)

    engine.run_to(duplicate.id, J.CANCELLED)
    engine.run_to(first.id, J.SYNCED)

    engine.assert_changed(first.id)
    ended = engine.job(duplicate.id)
    assert (ended.state, ended.error["code"]) == (J.CANCELLED, "cancelled")
    assert engine.outcomes(duplicate.id)[-1] == ("cancel", ["applied"])


def test_commands_that_come_too_late_or_twice(engine):
    """Cancelled twice, paused while it is undone, resumed without having been paused: one effect and one outcome each."""
    job = engine.submit()
    engine.run_to_stage(job.id, "reorganize")

    answers = [engine.ddl.resume(job.id)[0], engine.ddl.cancel(job.id)[0], engine.ddl.cancel(job.id)[0], engine.ddl.pause(job.id)[0]]
    engine.run_to(job.id, J.ROLLINGBACK)
    answers += [engine.ddl.cancel(job.id)[0], engine.ddl.resume(job.id)[0], engine.ddl.alter(job.id, {"threads": 2})]
    engine.run_to(job.id)
    answers += [engine.ddl.cancel(job.id)[0]]

    assert [answer.verdict for answer in answers] == [S, A, S, R, S, R, R, S]
    engine.assert_untouched(job.id, J.ROLLBACK_DONE)
    assert engine.outcomes(job.id) == [("cancel", ["applied"])]


@pytest.mark.parametrize("stage", ["queueing", "reorganize"])
def test_a_paused_job_can_be_cancelled(engine, stage):
    """Before it started or in the middle of the copy, it ends undone without being resumed."""
    job = engine.submit()
    if stage != "queueing":
        engine.run_to_stage(job.id, stage)
    engine.ddl.pause(job.id)
    engine.run_to(job.id, J.PAUSED)

    engine.ddl.cancel(job.id)
    engine.run_to(job.id)

    engine.assert_untouched(job.id, J.CANCELLED if stage == "queueing" else J.ROLLBACK_DONE)
    assert engine.outcomes(job.id) == [("pause", ["applied"]), ("cancel", ["applied"])]


def test_a_task_never_outlives_its_job(engine):
    """The job is final only after its tasks are: no subtask runs on behind a cancelled job."""
    job = engine.submit()
    engine.run_to_stage(job.id, "reorganize")
    engine.cluster.run_until(engine.cluster.executors)

    executors = engine.cluster.executors()
    assert executors

    engine.ddl.cancel(job.id)
    engine.run_to(job.id, J.ROLLBACK_DONE)

    assert engine.dxf.tasks() == []
    assert all(executor.ended or not executor.step() for executor in executors)
    engine.assert_untouched(job.id, J.ROLLBACK_DONE)


def test_parameters_survive_pause_and_a_change_of_owner(make_engine):
    """What was wished while paused is in force after the resume, under whatever owner, and acknowledged by the subtask."""
    engine = make_engine(nodes=2)
    job = engine.submit()
    engine.run_to_stage(job.id, "reorganize")
    engine.cluster.run_until(engine.dxf.tasks)
    engine.ddl.pause(job.id)
    engine.run_to(job.id, J.PAUSED)

    engine.ddl.alter(job.id, {"batch_size": 2, "lock_share": 77, "adaptive": "off"})
    engine.cluster.change_owner()
    engine.cluster.run_until(lambda: engine.outcomes(job.id)[-1] == ("alter", ["applied"]))
    engine.ddl.resume(job.id)
    engine.run_to(job.id)

    engine.assert_changed(job.id)
    effective = [s.summary["effective"] for s in engine.dxf.subtasks(1) if s.summary.get("effective")]
    assert effective[-1] == {"threads": 1, "batch_size": 2, "max_write_speed": None, "lock_share": 77, "adaptive": "off"}


def test_writers_lose_nothing_while_the_job_is_stopped_and_started(engine):
    """Rows that change between any two commands are in the table at the end."""
    job = engine.submit()
    engine.run_to_stage(job.id, "reorganize")
    engine.cluster.run_until(engine.dxf.tasks)
    for number in range(3):
        engine.ddl.pause(job.id)
        engine.run_to(job.id, J.PAUSED)
        with closing(sqlite_module().connect(engine.path, isolation_level=None)) as user:
            user.execute("UPDATE t SET c = c + 1000 WHERE id % 3 = ?", (number,))
            user.execute("DELETE FROM t WHERE id = ?", (number + 1,))
            user.execute("INSERT INTO t VALUES (?, 7, ?)", (1000 + number, f"new {number}"))
        engine.ddl.resume(job.id)
        engine.cluster.run(6)

    engine.run_to(job.id, J.SYNCED)

    kept = [(n, str(n * n + 1000), f"row {n}") for n in range(4, ROWS + 1)]
    assert engine.rows() == [*kept, (1000, "1007", "new 0"), (1001, "1007", "new 1"), (1002, "7", "new 2")]
