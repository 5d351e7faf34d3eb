"""Statements that commit by themselves: tried for moments, given up, seen through by whoever comes next, and never sent late."""

import contextlib
import threading
from contextlib import closing

import pytest
from sqlalchemy import select

from tests.databases import opened
from tests.dialects.mysql.stepping import application, execute, on_engine, shape
from tideshift.config import FAST
from tideshift.ddl import points as ddl_points
from tideshift.ddl import tables
from tideshift.ddl.changing import Changes
from tideshift.ddl.machine import JobState
from tideshift.dialects import points
from tideshift.dialects.mysql.dialect import MysqlDialect
from tideshift.dxf.commands import Verdict
from tideshift.errors import AmbiguousCommit, StateChanged
from tideshift.store import events
from tideshift.store import points as store_points
from tideshift.store.lease import Lease, Tenure
from tideshift.store.tables import owner_lease

INSTANT = "ALTER TABLE t ADD COLUMN z int DEFAULT 5"
INDEX = "CREATE UNIQUE INDEX i ON t (a)"


@pytest.fixture
def engine(mariadb_url):
    """The engine on a database with a table of some rows."""
    execute(mariadb_url, "CREATE TABLE t (id int PRIMARY KEY, a int)", "INSERT INTO t SELECT seq, seq FROM seq_1_to_100")
    with on_engine(mariadb_url) as engine:
        yield engine


def columns(url):
    return [row[0] for row in execute(url, "SHOW COLUMNS FROM t")]


def moves(engine, job_id):
    with engine.connected.database.transaction(write=False) as tx:
        return [one.detail["event"] for one in events.history(tx, job_id=job_id) if one.kind == "move"]


# ── locks ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_lock_that_is_not_had_is_given_up_and_tried_again(engine, mariadb_url):
    """Behind an open transaction an attempt gives up within a second or two (F7); the job can be cancelled, and otherwise goes on when the way is free."""
    job = engine.ddl.submit(INSTANT)
    with closing(application(mariadb_url, autocommit=False)) as reader, reader.cursor() as cursor:
        cursor.execute("SELECT * FROM t")
        waiting = engine.until(job.id, lambda job: job.err_count == 2)
        assert (waiting.state, waiting.revertible, waiting.error["code"]) == (JobState.RUNNING, True, "lock_timeout")
        assert "in the way: process" in waiting.error["message"]
        assert execute(mariadb_url, "SELECT count(*) FROM t") == [(100,)], "nobody is kept waiting between two attempts"

    assert engine.finish(job.id).state is JobState.SYNCED
    assert moves(engine, job.id).count("commit_to") == 3
    assert moves(engine, job.id).count("give_up") == 2


def test_a_job_that_waits_for_its_lock_is_cancelled(engine, mariadb_url):
    """Between two attempts a cancel wins, and nothing was made."""
    job = engine.ddl.submit(INSTANT)
    with closing(application(mariadb_url, autocommit=False)) as reader, reader.cursor() as cursor:
        cursor.execute("SELECT * FROM t")
        engine.until(job.id, lambda job: job.err_count == 1)

        assert engine.ddl.cancel(job.id)[0].verdict is Verdict.APPLIED
        assert engine.finish(job.id).state is JobState.CANCELLED
    assert columns(mariadb_url) == ["id", "a"]


def test_who_is_in_the_way_is_ended_on_request(engine, mariadb_server, mariadb_url):
    """Where the server tells who holds the table, that session is ended, and recorded; without the wish nobody is."""
    mariadb_server.execute("INSTALL SONAME 'metadata_lock_info'")
    try:
        with closing(application(mariadb_url, autocommit=False)) as reader, reader.cursor() as cursor:
            cursor.execute("SELECT * FROM t")
            job = engine.ddl.submit(INSTANT)
            engine.until(job.id, lambda job: job.err_count == 1)
            engine.ddl.alter(job.id, {"end_blockers": "on"})

            assert engine.finish(job.id).state is JobState.SYNCED
            with pytest.raises(Exception, match=r"(?i)lost|gone|killed"):
                cursor.execute("SELECT 1")
    finally:
        mariadb_server.execute("UNINSTALL SONAME 'metadata_lock_info'")
    with engine.connected.database.transaction(write=False) as tx:
        outcomes = [one.detail["outcome"] for one in events.history(tx, job_id=job.id) if one.kind == "blocker" and "outcome" in one.detail]
    assert "told to end" in outcomes


def test_without_certainty_nobody_is_ended(engine, mariadb_url):
    """Where the server tells only that a transaction is open, and not what it holds, it is named and left alone."""
    with closing(application(mariadb_url, autocommit=False)) as reader, reader.cursor() as cursor:
        cursor.execute("SELECT * FROM t")
        job = engine.ddl.submit(INSTANT, parameters={"end_blockers": "on"})
        engine.until(job.id, lambda job: job.err_count == 2)
        cursor.execute("SELECT 1")

    assert engine.finish(job.id).state is JobState.SYNCED


# ── deaths ────────────────────────────────────────────────────────────────────────────────────────────────────────

DEATHS = {
    "before it is announced": (ddl_points.BEFORE_CHANGE, INSTANT),
    "before it is sent": (points.CHANGE, INSTANT),
    "when it got through": (points.CHANGED, INSTANT),
    "before that is written down": (ddl_points.AFTER_CHANGE, INSTANT),
    "before an index is built": (ddl_points.BEFORE_LONG_STATEMENT, INDEX),
    "when it is built": (points.CHANGED, INDEX),
    "before its checkpoint": (ddl_points.AFTER_LONG_STATEMENT, INDEX),
    "before it has its name": (ddl_points.BEFORE_CHANGE, INDEX),
}


class Died(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("place", DEATHS)
def test_an_owner_that_dies_is_followed_by_one_that_finishes(mariadb_url, failpoints, place):
    """Whether the statement got through is read in the catalogue: it is neither lost nor done twice, and nothing of ours is left."""
    point, statement = DEATHS[place]
    execute(mariadb_url, "CREATE TABLE t (id int PRIMARY KEY, a int)", "INSERT INTO t SELECT seq, seq FROM seq_1_to_100")

    def die(**_):
        raise Died

    with on_engine(mariadb_url) as first:
        job_id = first.ddl.submit(statement).id
        failpoints.enable(point, "1*call", call=die)
        with pytest.raises(Died):
            first.finish(job_id)
        later = first.clock.database_now_ms() + 60_000

        with on_engine(mariadb_url, start_ms=later) as second:
            assert second.finish(job_id).state is JobState.SYNCED
            assert second.left_behind() == set()
            assert second.artifacts(job_id) == []
    if statement == INSTANT:
        assert columns(mariadb_url) == ["id", "a", "z"]
    else:
        assert shape(mariadb_url, "t").key_named("`i`")


@pytest.mark.parametrize("statement", [INSTANT, INDEX])
def test_an_answer_that_is_lost_is_looked_up(engine, mariadb_url, failpoints, statement):
    """The commit of each move of ours is answered by nothing, one after another: the job ends once and as planned."""
    failpoints.enable(store_points.COMMIT_ANSWER_LOST, "30%return(true)")
    with contextlib.suppress(AmbiguousCommit):
        engine.ddl.submit(statement)
    ((job, *others), _) = engine.ddl.jobs()

    assert others == []
    assert engine.finish(job["id"]).state is JobState.SYNCED
    failpoints.disable(store_points.COMMIT_ANSWER_LOST)
    assert engine.left_behind() == set()


# ── an owner that stood still ─────────────────────────────────────────────────────────────────────────────────────


def take_step(url, clock, job_id, outcome):
    """Another process's owner takes the job's next step."""
    with opened(url, clock, FAST) as database:
        job = database.run(lambda tx: tables.job_by_id(tx, job_id), write=False)
        tenure = Lease(database, holder=threading.current_thread().name).acquire() or current(database)
        try:
            outcome.append(Changes(database, MysqlDialect(database.driver)).make(job, job.current_plan.stages[job.stage], tenure))
        except Exception as error:  # noqa: BLE001 - looked at by the test
            outcome.append(error)


def current(database):
    with database.transaction(write=False) as tx:
        row = tx.execute(select(owner_lease)).one()
    return Tenure(row.name, row.owner_id, row.tenure)


def test_a_statement_of_an_owner_that_stood_still_comes_too_late(engine, mariadb_url, failpoints):
    """It stands still between its announcement and the statement; a successor ends that session, gives the attempt up, and a cancel wins. Nothing comes later."""
    job = engine.ddl.submit(INSTANT)
    engine.until(job.id, lambda job: job.state is JobState.RUNNING)
    stands_still, may_go_on = threading.Event(), threading.Event()

    def stand_still(**_):
        stands_still.set()
        assert may_go_on.wait(30)

    failpoints.enable(points.CHANGE, "1*call", call=stand_still)
    late = []
    frozen = threading.Thread(target=take_step, args=(mariadb_url, engine.clock, job.id, late), name="frozen")
    frozen.start()
    assert stands_still.wait(30)
    assert engine.ddl.cancel(job.id)[0].verdict is Verdict.REFUSED
    engine.clock.advance(60)

    settled = engine.until(job.id, lambda job: job.revertible and "give_up" in moves(engine, job.id))
    assert settled.state is JobState.RUNNING
    assert engine.ddl.cancel(job.id)[0].verdict is Verdict.APPLIED
    assert engine.finish(job.id).state is JobState.CANCELLED
    may_go_on.set()
    frozen.join()

    assert isinstance(late[0], StateChanged) or late[0] is None or late[0].error is not None
    assert columns(mariadb_url) == ["id", "a"]


def test_a_build_that_is_cancelled_leaves_no_index(engine, mariadb_url, failpoints):
    """Cancelled when the index stands under our name: it is dropped again, beside the traffic."""
    job = engine.ddl.submit(INDEX)
    engine.until(job.id, lambda job: job.stage == 1)
    assert engine.left_behind() != set()

    assert engine.ddl.cancel(job.id)[0].verdict is Verdict.APPLIED
    assert engine.finish(job.id).state is JobState.ROLLBACK_DONE
    assert engine.left_behind() == set()
    assert shape(mariadb_url, "t").keys == ("PRIMARY KEY (`id`)",)
