"""What goes wrong on MariaDB and what it means, and sessions that are ended."""

import threading
from contextlib import closing

import pymysql
import pytest

from tests.waiting import until
from tideshift.dialects.mysql.driver import MysqlDriver
from tideshift.errors import AmbiguousCommit, ConnectionLost, LockTimeout
from tideshift.store.database import ConstraintViolated, Database
from tideshift.store.driver import Failure, SessionIdentity

# ── errors, made for real ─────────────────────────────────────────────────────────────────────────────────────────


def test_a_deadlock_asks_to_try_again_and_ends_well(database, table):
    """Two transactions that wait for each other: one is told to try again, and both succeed in the end."""
    barrier = threading.Barrier(2, timeout=20)
    tries = []

    def cross(first, second):
        def work(tx):
            tries.append(first)
            tx.run_verbatim(f"UPDATE {table} SET v = v + 1 WHERE id = {first}")
            if tries.count(first) == 1:
                barrier.wait()
            tx.run_verbatim(f"UPDATE {table} SET v = v + 1 WHERE id = {second}")

        database.run(work)

    threads = [threading.Thread(target=cross, args=pair) for pair in ((1, 2), (2, 1))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(tries) >= 3
    with database.transaction() as tx:
        assert tx.run_verbatim(f"SELECT sum(v) FROM {table}").scalar() == 4


def test_a_lock_of_a_table_is_waited_for_as_long_as_told(database, table):
    """DDL that meets an open transaction gives up in time, and the next one gets through."""
    with database.transaction() as holder:
        holder.run_verbatim(f"SELECT * FROM {table}")
        with pytest.raises(LockTimeout), database.transaction(lock_wait_seconds=0) as tx:
            tx.run_verbatim(f"ALTER TABLE {table} ADD COLUMN w integer, ALGORITHM=INSTANT")

    with database.transaction(lock_wait_seconds=0) as tx:
        tx.run_verbatim(f"ALTER TABLE {table} ADD COLUMN w integer, ALGORITHM=INSTANT")


@pytest.mark.parametrize(
    "statement",
    ["INSERT INTO s VALUES (1, 'abcdef')", "INSERT INTO s VALUES (300, 'a')", "INSERT INTO s VALUES (1, NULL)", "INSERT INTO s VALUES (7, 'a')",
     "INSERT INTO s VALUES (-1, 'a')", "INSERT INTO s VALUES ('x', 'a')", "INSERT INTO s (n) VALUES (1)", "INSERT INTO s VALUES (99, 'a')"],
)  # fmt: skip
def test_a_value_that_does_not_fit_is_a_constraint(database, statement):
    """Too long, too large, NULL, a duplicate, a CHECK, not a number, no default, no parent: none is stored changed."""
    with database.transaction() as tx:
        tx.run_verbatim("CREATE TABLE parent (id tinyint PRIMARY KEY)")
        tx.run_verbatim("INSERT INTO parent VALUES (1), (7)")
        tx.run_verbatim("CREATE TABLE s (n tinyint UNIQUE CHECK (n >= 0), v varchar(5) NOT NULL, FOREIGN KEY (n) REFERENCES parent (id))")
        tx.run_verbatim("INSERT INTO s VALUES (7, 'a')")

    with pytest.raises(ConstraintViolated), database.transaction() as tx:
        tx.run_verbatim(statement)


def test_a_statement_that_is_interrupted_asks_to_try_again(database):
    """Another thread ends what a connection runs, and the connection goes on."""
    with database.session() as session:
        failed = []

        def sleep():
            try:
                with session.transaction() as tx:
                    tx.run_verbatim("SELECT sum(a.seq * b.seq) FROM seq_1_to_1000000 a, seq_1_to_1000000 b")
            except Exception as error:  # noqa: BLE001 - looked at below
                failed.append(error)

        with database.transaction() as tx:
            long = threading.Thread(target=sleep)
            long.start()
            seen = "SELECT count(*) FROM information_schema.processlist WHERE info LIKE 'SELECT sum(a.seq%' AND id <> connection_id()"
            until(lambda: tx.run_verbatim(seen).scalar(), "the long statement")
        database.driver.interrupt(session.connection)
        long.join()

        assert database.driver.classify(failed[0].__cause__, committing=False) is Failure.RETRYABLE
        with session.transaction() as tx:
            assert tx.run_verbatim("SELECT 1").scalar() == 1


def test_a_full_disk_is_one(tmp_path):
    """What finds no room is told from other trouble, by the number or by what the system said."""
    driver = MysqlDriver("mysql://me@host/x")
    full = [(1114, "The table 't' is full"), (1021, "Disk full (/tmp); waiting"), (3, 'Error writing file (Errcode: 28 "No space left on device")'),
            (1030, 'Got error 28 "No space left on device" from storage engine InnoDB')]  # fmt: skip

    assert {driver.classify(pymysql.OperationalError(*one), committing=False) for one in full} == {Failure.DISK_FULL}
    assert driver.classify(pymysql.OperationalError(1030, "Got error 168"), committing=False) is Failure.FATAL


@pytest.mark.parametrize(
    ("number", "committing", "failure"),
    [(1213, False, Failure.RETRYABLE), (1205, False, Failure.LOCK_TIMEOUT), (1317, False, Failure.RETRYABLE), (2013, False, Failure.LOST),
     (2013, True, Failure.AMBIGUOUS_COMMIT), (1927, True, Failure.AMBIGUOUS_COMMIT), (1053, False, Failure.LOST), (1062, True, Failure.CONSTRAINT),
     (4025, False, Failure.CONSTRAINT), (1064, False, Failure.FATAL), (1290, False, Failure.FATAL), (1146, False, Failure.FATAL)],
)  # fmt: skip
def test_each_number_has_its_meaning(number, committing, failure):
    """A lost connection is ambiguous only while committing; a server that is read-only is nothing that passes."""
    error = pymysql.OperationalError(number, "text")

    assert MysqlDriver("mysql://me@host/x").classify(error, committing=committing) is failure


# ── sessions ──────────────────────────────────────────────────────────────────────────────────────────────────────


def end(database, session):
    with database.transaction(write=False) as tx:
        database.driver.end_session(tx.connection, session.identity)
        assert database.driver.session_gone(tx.connection, session.identity)


def test_a_session_that_is_ended_is_lost_and_replaced(database, table):
    """Ended before its next statement, a session is lost, rolled back, and then another one with another identity."""
    with database.session() as session:
        old = session.identity
        with pytest.raises(ConnectionLost), session.transaction() as tx:  # noqa: PT012
            tx.run_verbatim(f"UPDATE {table} SET v = 9")
            end(database, session)
            tx.run_verbatim("SELECT 1")
        with session.transaction() as tx:
            assert tx.run_verbatim(f"SELECT max(v) FROM {table}").scalar() == 0
        new = session.identity

    assert new.server == old.server
    assert new != old


def test_a_session_that_is_ended_before_its_commit_leaves_it_open(database, table):
    """From the outside an end at the commit cannot be told from one after it."""
    with pytest.raises(AmbiguousCommit), database.session() as session, session.transaction() as tx:  # noqa: PT012
        tx.run_verbatim(f"UPDATE {table} SET v = 9")
        end(database, session)

    with database.transaction() as tx:
        assert tx.run_verbatim(f"SELECT max(v) FROM {table}").scalar() == 0


def test_a_frozen_transaction_is_ended_by_the_server_itself(mariadb_url, application, table):
    """The session carries the lease as its limit for standing idle in a transaction that has written, in case nobody can end it."""
    with closing(Database(MysqlDriver(mariadb_url, idle_write_transaction_seconds=1))) as database, application().cursor() as cursor:

        def is_gone(number):
            return not cursor.execute("SELECT 1 FROM information_schema.processlist WHERE id = %s", (number,))

        with pytest.raises((ConnectionLost, AmbiguousCommit)), database.session() as session, session.transaction() as tx:  # noqa: PT012
            tx.run_verbatim(f"UPDATE {table} SET v = 9")
            number = session.identity.backend.partition(" ")[0]
            until(lambda: is_gone(number), "a session that the server has ended")
            tx.run_verbatim("SELECT 1")


def test_another_session_of_the_same_number_is_left_alone(database):
    """The number alone does not make a session: with another start or server it is gone, and nobody is ended for it."""
    with database.session() as session, database.transaction() as tx:
        mine = session.identity
        others = [
            SessionIdentity(server=mine.server, backend=mine.backend, started="1"),
            SessionIdentity(server="elsewhere", backend=mine.backend, started=mine.started),
        ]
        for other in others:
            assert database.driver.session_gone(tx.connection, other)
            database.driver.end_session(tx.connection, other)

        assert not database.driver.session_gone(tx.connection, mine)
