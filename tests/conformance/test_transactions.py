"""What a transaction keeps and takes back, on each database."""

import pytest
from sqlalchemy import insert, select

from tests.databases import in_columns
from tideshift.errors import AmbiguousCommit, Retryable
from tideshift.store import events, points
from tideshift.store.tables import event


@pytest.fixture
def q(system):
    """Makes a user table `t` and writes its name into statements."""
    q = in_columns(system.driver, "t")
    with system.transaction() as tx:
        tx.run_verbatim(q("CREATE TABLE {table} (id integer primary key)"))
    return q


def counts(database, q):
    with database.transaction(write=False) as tx:
        rows = tx.run_verbatim(q("SELECT count(*) FROM {table}")).scalar()
        return rows, len(tx.execute(select(event.c.id)).all())


def write_both(tx, q):
    tx.run_verbatim(q("INSERT INTO {table} VALUES (1)"))
    events.record(tx, actor="test", kind="note", job_id=1)


def test_rows_and_system_tables_commit_together(system, q):
    """A user row and an event written in one transaction are both there afterwards."""
    with system.transaction() as tx:
        write_both(tx, q)

    assert counts(system, q) == (1, 1)


def test_rows_and_system_tables_roll_back_together(system, q):
    """An exception takes both back and comes out as it was."""
    with pytest.raises(KeyError, match="mine"), system.transaction() as tx:  # noqa: PT012
        write_both(tx, q)
        raise KeyError("mine")

    assert counts(system, q) == (0, 0)


@pytest.mark.parametrize("point", [points.AFTER_BEGIN, points.AFTER_STATEMENT, points.BEFORE_COMMIT])
def test_a_fault_before_the_commit_leaves_nothing(system, q, failpoints, point):
    """Wherever it strikes before the commit, nothing is kept."""
    failpoints.enable(point, "1*raise(RuntimeError)")

    with pytest.raises(RuntimeError), system.transaction() as tx:
        write_both(tx, q)

    assert counts(system, q) == (0, 0)


def test_a_lost_answer_to_the_commit_is_ambiguous_and_the_work_is_there(system, q, failpoints):
    """When only the answer is lost the caller is told so, must look, and finds it done."""
    failpoints.enable(points.COMMIT_ANSWER_LOST, "1*return(true)")

    with pytest.raises(AmbiguousCommit), system.transaction() as tx:
        write_both(tx, q)

    assert counts(system, q) == (1, 1)


def test_an_ambiguous_commit_is_not_tried_again(system, q, failpoints):
    """`run` never repeats what may have been done."""
    failpoints.enable(points.COMMIT_ANSWER_LOST, "1*return(true)")
    calls = []

    with pytest.raises(AmbiguousCommit):
        system.run(lambda tx: calls.append(1))

    assert calls == [1]


def test_run_starts_a_new_transaction_when_asked_to_try_again(system, q):
    """What the failed try wrote is gone, and the next try begins from the start."""
    calls = []

    def work(tx):
        write_both(tx, q)
        calls.append(1)
        if len(calls) < 3:
            raise Retryable("once more")
        return len(calls)

    assert system.run(work) == 3
    assert counts(system, q) == (1, 1)


def test_run_gives_up_after_its_tries(system):
    """A conflict that does not pass is raised in the end."""
    calls = []

    def work(tx):
        calls.append(1)
        raise Retryable("for ever")

    with pytest.raises(Retryable):
        system.run(work, tries=3)
    assert len(calls) == 3


def test_a_kept_session_goes_on_after_an_error(system, q):
    """One connection serves the next transaction after the one that failed."""
    with system.session() as session:
        with pytest.raises(ZeroDivisionError), session.transaction():
            raise ZeroDivisionError
        with session.transaction() as tx:
            write_both(tx, q)

    assert counts(system, q) == (1, 1)


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("write", [True, False])
def test_every_kind_of_transaction_works(system, durable, write):
    """Durable or not, reading or writing: each begins and ends."""
    with system.transaction(write=write, durable=durable) as tx:
        if write:
            tx.execute(insert(event).values(at=1, actor="a", kind="k"))
        count = len(tx.execute(select(event.c.id)).all())

    assert count == int(write)
