"""Errors that pass, refused values, old tables and locks that are waited for: each as the smallest run that shows the rule."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from tests.crash import stepper
from tests.crash.faults import FAULTS, MARK, Fault, fail
from tests.crash.kinds import EVERY
from tests.crash.outcome import read_ending
from tests.crash.scenarios import CANCELLED, PLAIN, REFUSED, STRICT
from tests.crash.stepper import Life, NotSettled
from tests.crash.strikes import golden, scratch
from tideshift import failpoint
from tideshift.ddl.inspection import TRIES_MAX
from tideshift.dxf.executor import Executor


def statements_between(hits, first, last):
    """Return the ordinals of the statements between the first pass of one point and the next one of another."""
    names = [hit.name for hit in hits]
    begin = names.index(first)
    end = names.index(last, begin)
    before = names[:begin].count("store.before_statement")
    return range(before + 1, before + names[begin:end].count("store.before_statement") + 1)


def test_replaced_table_is_purged_when_its_time_is_over():
    """The old rows go after the time for which they are kept; the swap had recorded that nobody would ever drop them."""
    ending, _ = golden(PLAIN)

    assert ending.problems == ()


def test_full_disk_while_planning_is_waited_for():
    """A disk that is full for a moment while a step is planned does not end the job."""
    twin, hits = golden(PLAIN)
    planning = statements_between(hits, "dxf.after_task_read", "dxf.after_planning")
    assert len(planning) > 0

    verdicts = [fail(PLAIN, twin, twin, FAULTS["disk full"], ordinal) for ordinal in planning]

    assert not [str(verdict) for verdict in verdicts if verdict.differences]
    assert all(verdict.struck == 1 for verdict in verdicts)


@pytest.mark.parametrize("scenario", [CANCELLED, REFUSED], ids=lambda scenario: scenario.name)
def test_reason_of_a_rollback_outlives_later_errors(scenario):
    """What made a job roll back stays on its row when an error that passes meets the undoing."""
    twin, hits = golden(scenario)
    undoing = statements_between(hits, "ddl.before_undo", "store.after_commit")
    middle = undoing[len(undoing) // 2]

    verdict = fail(scenario, twin, twin, FAULTS["busy"], middle)

    assert (verdict.struck, verdict.differences) == (1, ())


def test_error_that_passed_is_no_reason_of_a_later_cancel():
    """A job that met a passing error, went on and was cancelled says that it was cancelled."""
    twin, hits = golden(CANCELLED)
    capturing = statements_between(hits, "ddl.before_capture", "ddl.after_capture")

    verdict = fail(CANCELLED, twin, twin, FAULTS["busy"], capturing[0])

    assert (verdict.struck, verdict.differences) == (1, ())


def test_refused_value_is_named():
    """A value that cannot be carried makes the job roll back, with the key of the row on the job."""
    with scratch() as folder:
        path = folder / "refused.db"
        REFUSED.application.create(path, REFUSED.seed)
        with closing(Life(path, REFUSED)) as life, failpoint.enable("store.before_begin", call=life.writer.pulse):
            life.run()
            job = life.connected.ddl.job(1)
        ending = read_ending(path, [])

    assert ending.job["state"] == "rollback done"
    assert job.error["code"] == "value_refused"
    assert "1000" in str(job.error["fields"])


def test_waiting_for_the_write_lock_is_not_holding_it():
    """A chunk that only reads, and then waits for the lock to record itself, need not rest for the time it waited."""
    with scratch() as folder:
        path = folder / "waiting.db"
        STRICT.application.create(path, STRICT.seed)
        held: list[float] = []
        with closing(Life(path, STRICT)) as life:

            def wait_for_the_lock(*, write):
                running = [executor for executor in life.node.executors if not executor.ended]
                if write and verifying(running):
                    life.clock.advance(1.0)

            def remember(**_):
                held.extend(executor._pace.last.held_seconds for executor in life.node.executors if verifying([executor]))

            with failpoint.enable("store.before_begin", call=wait_for_the_lock), failpoint.enable("dxf.after_chunk", call=remember):
                while life.observer.look().state != "synced":
                    assert life.rounds < 400, life._why()
                    life.round()

    assert held
    assert max(held) < 0.5


def verifying(executors: list[Executor]) -> bool:
    """Whether one of these compares rows."""
    return any(executor.subtask.type == "ddl.reorg" and executor.subtask.step == 3 for executor in executors)


UNFORESEEN = Fault("raise", "", f'1*raise(RuntimeError,"{MARK}")', may_fail=True)


def test_a_resumed_job_that_meets_the_unforeseen_goes_on():
    """What it has made stays, and so does the job: it is started again at the next look."""
    twin, hits = golden(EVERY["paused"])
    moves = [hit for hit in hits if hit.name == "ddl.before_job_move"]
    (*_, resumed) = [n for n, hit in enumerate(moves, start=1) if hit.context.get("event") == "start"]

    verdict = fail(EVERY["paused"], twin, twin, replace(UNFORESEEN, point="ddl.before_job_move"), resumed)

    assert (verdict.struck, verdict.differences) == (1, ())


def test_a_resumed_job_that_cannot_start_is_held_with_the_reason(monkeypatch):
    """Not thrown away with what it has made, and not tried without an end: a person sees why, and says what shall become of it."""
    _, hits = golden(EVERY["paused"])
    moves = [hit for hit in hits if hit.name == "ddl.before_job_move"]
    (*_, resumed) = [n for n, hit in enumerate(moves, start=1) if hit.context.get("event") == "start"]
    monkeypatch.setattr(stepper, "ROUNDS_MAX", resumed * 40)
    with scratch() as folder:
        path = folder / "resumed.db"
        EVERY["paused"].application.create(path, EVERY["paused"].seed)
        with closing(Life(path, EVERY["paused"])) as life, failpoint.enable("store.before_begin", call=life.writer.pulse), failpoint.enable(
            "ddl.before_job_move", f'skip({resumed - 1}) {TRIES_MAX}*raise(tideshift.store.database.DatabaseFailed,"{MARK}")'
        ):  # fmt: skip
            with pytest.raises(NotSettled):
                life.run()
            (job,) = life.observer.rows("SELECT state, paused_by, pause_reason FROM tideshift_ddl_job")

    assert job == ("paused", "system", f"it could not be resumed: {MARK}")


def test_a_last_look_that_meets_the_unforeseen_is_taken_again():
    """It has not seen that anything is wrong, so the old rows are not kept for good."""
    twin, hits = golden(EVERY["many-actions"])
    names = [hit.name for hit in hits]
    swapped = names.index("ddl.after_swap")
    ordinal = names[:swapped].count("dxf.after_checkpoint") + 1

    verdict = fail(EVERY["many-actions"], twin, twin, replace(UNFORESEEN, point="dxf.after_checkpoint"), ordinal)

    assert (verdict.struck, verdict.differences) == (1, ())
