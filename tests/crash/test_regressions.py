"""Errors that pass, refused values, old tables and locks that are waited for: each as the smallest run that shows the rule."""

from __future__ import annotations

from contextlib import closing

import pytest

from tests.crash.faults import FAULTS, fail
from tests.crash.outcome import read_ending
from tests.crash.scenarios import CANCELLED, PLAIN, REFUSED, STRICT
from tests.crash.stepper import Life
from tests.crash.strikes import golden, scratch
from tideshift import failpoint
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
                held.extend(executor._last[1] for executor in life.node.executors if verifying([executor]))

            with failpoint.enable("store.before_begin", call=wait_for_the_lock), failpoint.enable("dxf.after_chunk", call=remember):
                while life.observer.look().state != "synced":
                    assert life.rounds < 400, life._why()
                    life.round()

    assert held
    assert max(held) < 0.5


def verifying(executors: list[Executor]) -> bool:
    """Whether one of these compares rows."""
    return any(executor.subtask.type == "ddl.reorg" and executor.subtask.step == 3 for executor in executors)
