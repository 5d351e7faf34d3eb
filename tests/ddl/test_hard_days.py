"""What a job does on a hard day: a bulk update at the worst moment, a full disk, a copied database, a broken purge."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest
from sqlalchemy import update

from tests.ddl.engine import ROWS
from tests.proof.play import second_write_transaction
from tests.servers import sqlite_module
from tideshift.ddl import points
from tideshift.ddl.machine import JobState as J
from tideshift.ddl.reorg.catch_up import CUTOVER_ROWS
from tideshift.ddl.worker import DISK_FULL, DISK_FULL_TRIES
from tideshift.dxf import tables as dxf_tables
from tideshift.dxf.commands import Verdict
from tideshift.errors import InvalidParameter
from tideshift.store import bootstrap
from tideshift.store import points as store_points
from tideshift.store.tables import system_version

pytestmark = pytest.mark.stdlib_sqlite


def write(engine, *texts):
    """Do what an application does, in one transaction."""
    with closing(sqlite_module().connect(engine.path)) as user:
        for text in texts:
            user.execute(text)
        user.commit()


def test_a_bulk_update_before_the_swap_is_not_applied_under_the_lock(engine, failpoints):
    """The look under the lock finds a long log, so this attempt is given up, the log is drained outside, and then it is swapped."""
    job = engine.submit()
    bulk = [f"UPDATE t SET d = d || '{n}'" for n in range(CUTOVER_ROWS // 40 + 1)] + ["UPDATE t SET d = 'row ' || id"]
    swapping = failpoints.enable(points.IN_CUTOVER, "off")
    struck = []

    def strike():
        struck.append(True)
        write(engine, *bulk)

    def prepare(**_):
        failpoints.enable(store_points.BEFORE_BEGIN, call=second_write_transaction(strike))

    looked = failpoints.enable(points.BEFORE_CUTOVER, "1*call", call=prepare)
    engine.run_to(job.id)

    assert struck
    assert (looked.hits, swapping.hits) == (2, 1)
    engine.assert_changed(job.id)


def test_the_old_rows_are_kept_for_their_time_and_no_longer(engine):
    """They are there until the time that was asked for is over, and then they are dropped."""
    job = engine.submit(keep_old_seconds=60)
    clock = engine.cluster.clock
    engine.cluster.run_until(lambda: engine.job(job.id).state is J.SYNCED)
    kept_since = clock.monotonic()

    engine.cluster.run_until(lambda: clock.monotonic() > kept_since + 55)
    kept = engine.user_sql(f"SELECT count(*), max(typeof(c)) FROM {old_rows(engine)}")
    engine.cluster.run_until(lambda: clock.monotonic() > kept_since + 65)

    assert kept == [(ROWS, "integer")]
    engine.assert_changed(job.id)


def old_rows(engine):
    """The table that holds the rows as they were before the swap."""
    return next(name for kind, name, _ in engine.left_behind() if kind == "table" and name.endswith("_shadow"))


def test_a_full_disk_holds_the_job_until_a_person_says_go_on(engine, failpoints):
    """It is paused by the system with the reason, keeps what it has done, and a resume carries it to its end."""
    job = engine.submit()
    failpoints.enable(points.BEFORE_CUTOVER, f'{DISK_FULL_TRIES}*raise(tideshift.errors.DiskFull, "no room")')

    held = engine.run_to(job.id, J.PAUSED)
    (answer,) = engine.ddl.resume(job.id)
    engine.run_to(job.id)

    assert (held.paused_by, held.pause_reason) == ("system", DISK_FULL)
    assert answer.verdict is Verdict.APPLIED
    assert engine.outcomes(job.id) == [("resume", ["applied"])]
    engine.assert_changed(job.id)


def test_a_disk_that_is_full_for_a_moment_holds_nobody(engine, failpoints):
    """It is tried again like a lock that somebody holds."""
    job = engine.submit()
    failpoints.enable(points.BEFORE_CUTOVER, f'{DISK_FULL_TRIES - 1}*raise(tideshift.errors.DiskFull, "no room")')

    engine.run_to(job.id)

    assert engine.outcomes(job.id) == []
    engine.assert_changed(job.id)


def test_the_jobs_of_a_copy_rest_and_are_told_apart(engine):
    """Job and task stand still, commands are refused with what to do, and after the copy is adopted a resume goes on."""
    job = engine.submit()
    engine.cluster.run_until(lambda: [task for task in engine.dxf.tasks() if task.state == "running"])
    with engine.database.transaction() as tx:
        tx.execute(update(system_version).values(installation={"file": "another"}))

    engine.run_to(job.id, J.PAUSED)
    engine.cluster.run(40)
    copied = [task.state for task in engine.dxf.tasks()]
    (refused,) = engine.ddl.resume(job.id)
    bootstrap.adopt(engine.database)
    (answer,) = engine.ddl.resume(job.id)
    engine.run_to(job.id)

    assert copied == ["paused"]
    assert refused.verdict is Verdict.REFUSED
    assert "doctor --adopt" in refused.reason
    assert answer.verdict is Verdict.APPLIED
    assert engine.outcomes(job.id) == [("resume", ["applied"])]
    engine.assert_changed(job.id)


def test_a_purge_that_fails_is_submitted_again_later(engine, failpoints):
    """However often it fails, the table of a job that is given up goes in the end, and only then the job ends."""
    engine.database.profile = replace(engine.database.profile, retry_seconds_max=0.05)
    job = engine.submit()
    engine.run_to_stage(job.id, "cut over")
    engine.ddl.cancel(job.id)
    broken = failpoints.enable(points.BEFORE_PURGE_CHUNK, '7*raise(ZeroDivisionError, "a bug")')

    engine.cluster.run_until(lambda: engine.job(job.id).state is J.ROLLBACK_DONE, steps_max=200_000)
    engine.run_to(job.id)

    assert broken.hits > 7
    engine.assert_untouched(job.id, J.ROLLBACK_DONE)


def test_a_paused_job_whose_capture_is_broken_undoes_itself(engine):
    """While it rests somebody drops one of our triggers: the job fails with the reason instead of going on half blind."""
    job = engine.submit()
    engine.run_to_stage(job.id, "reorganize")
    engine.ddl.pause(job.id)
    engine.run_to(job.id, J.PAUSED)
    (trigger,) = engine.user_sql("SELECT name FROM sqlite_master WHERE type = 'trigger' AND name LIKE '%after_delete'")[0]
    write(engine, "UPDATE t SET d = d WHERE id = 1", f'DROP TRIGGER "{trigger}"')

    ended = engine.run_to(job.id)

    assert ended.error["code"] == "schema_changed"
    engine.assert_untouched(job.id, J.ROLLBACK_DONE)


@pytest.mark.parametrize("seconds", [-1.0, float("inf"), float("nan"), 1e12])
def test_a_senseless_time_to_keep_the_old_table_is_refused(engine, seconds):
    """It is refused before anything is written."""
    with pytest.raises(InvalidParameter):
        engine.submit(keep_old_seconds=seconds)

    assert engine.ddl.jobs() == ([], None)


def test_an_owner_that_stood_still_keeps_a_lease_that_is_not_over(engine):
    """Its belief is over but the lease is not: it renews and goes on under the same tenure instead of waiting for the expiry."""
    engine.cluster.run(2)
    (member,) = engine.cluster.members.values()
    before = member.owner.tenure
    profile = engine.database.profile
    engine.cluster.clock.advance((profile.trust_seconds + profile.lease_seconds) / 2)

    member.owner.tick()

    assert before is not None
    assert member.owner.tenure == before
    assert member.owner.lease.holds(before)


def test_a_task_whose_type_this_owner_does_not_know_goes_on(engine):
    """Another program's running task is left alone however long its step takes; one that never began can be cancelled."""
    with engine.database.transaction() as tx:
        waiting = dxf_tables.insert_task(tx, key="k", task_type="somebody's", meta={}, concurrency=1, actor="test")

    engine.dxf.cancel(waiting.id)
    engine.cluster.run_until(lambda: engine.dxf.show(waiting.id).state == "reverted")

    assert engine.dxf.subtasks(waiting.id) == []
