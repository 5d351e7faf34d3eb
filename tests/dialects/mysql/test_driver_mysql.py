"""What is special about the driver of MariaDB: addresses, settings, isolation, values in statements, and system tables where DDL commits by itself."""

import os
import signal
import socket
import threading
from contextlib import closing

import pymysql
import pytest
from sqlalchemy import select

from tests.databases import opened
from tests.mariadb_server import MariaServer
from tests.waiting import until
from tideshift.ddl import tables
from tideshift.dialects.mysql.driver import SQL_MODE, MysqlDriver
from tideshift.dialects.mysql.marks import literal, with_values
from tideshift.errors import CannotReach, ConnectionLost
from tideshift.store import bootstrap, events, points
from tideshift.store.bootstrap import SystemState
from tideshift.store.database import Database, DatabaseFailed
from tideshift.store.tables import event

# ── connecting and settings ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("rest", ["absent?unix_socket={socket}", "x?unix_socket=/no/such/socket", "x?host=nowhere.invalid&unix_socket=/no"])
def test_what_cannot_be_reached_is_said_so(mariadb_server, rest):
    """A wrong database or socket, or an unknown option, is an error that says the database cannot be reached."""
    url = "mariadb://tideshift@/" + rest.format(socket=mariadb_server.socket)

    with pytest.raises(CannotReach), opened(url) as database, database.transaction():
        pass


def test_a_host_that_does_not_answer_cannot_be_reached():
    """Over a network as well, and nothing is left open."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"mysql://me:secret@127.0.0.1:{unused.getsockname()[1]}/x?connect_timeout=2"

        with pytest.raises(CannotReach) as caught, closing(Database(MysqlDriver(url))) as database, database.transaction():
            pass

    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("url", ["mysql://me@host", "mysql://me@host/x?nonsense=1", "mysql://me@host/x?ssl_disabled=perhaps"])
def test_an_address_that_is_not_understood_is_refused(url):
    """Without a database, with an unknown option, or one that is neither true nor false."""
    with pytest.raises(CannotReach, match="address"):
        MysqlDriver(url)


def test_sessions_are_pinned_whatever_the_server_says(mariadb_server, mariadb_url):
    """Settings of the server that would change a value's text, a statement's meaning or end our work do not reach our sessions."""
    ours = {"sql_mode": "ANSI", "time_zone": "'+05:00'", "max_statement_time": "3", "tx_isolation": "'SERIALIZABLE'", "foreign_key_checks": "0",
            "unique_checks": "0", "sql_select_limit": "1", "div_precision_increment": "9", "idle_transaction_timeout": "3"}  # fmt: skip
    names = list(ours)
    before = dict(zip(names, mariadb_server.execute(f"SELECT {', '.join(f'@@GLOBAL.{name}' for name in names)}")[0], strict=True))
    try:
        for name, value in ours.items():
            mariadb_server.execute(f"SET GLOBAL {name} = {value}")
        with opened(mariadb_url) as database, database.transaction() as tx:
            row = tx.run_verbatim(f"SELECT {', '.join(f'@@SESSION.{name}' for name in names)}").rows[0]
    finally:
        for name, value in before.items():
            mariadb_server.execute(f"SET GLOBAL {name} = {literal(value)}")

    found = dict(zip(names, row, strict=True))
    assert set(found.pop("sql_mode").split(",")) == set(SQL_MODE.split(","))
    assert found == {
        "time_zone": "+00:00", "max_statement_time": 0, "tx_isolation": "READ-COMMITTED", "foreign_key_checks": 1, "unique_checks": 1,
        "sql_select_limit": 18446744073709551615, "div_precision_increment": 4, "idle_transaction_timeout": 0,
    }  # fmt: skip


def test_an_account_without_rights_can_connect(account, mariadb_url):
    """Nothing at the start asks for more than an ordinary account may do; sessions of others count as there, since it does not see them."""
    url = account("plain", "ALL ON {database}.*")

    with (
        opened(mariadb_url) as other,
        other.session() as theirs,
        opened(url) as database,
        database.session() as session,
        session.transaction() as tx,
    ):
        assert not database.driver.session_gone(tx.connection, session.identity)
        assert not database.driver.session_gone(tx.connection, theirs.identity)
        assert database.driver.installation(tx.connection)["server"]
        assert tx.others_at_work()
        with pytest.raises(pymysql.OperationalError):
            database.driver.end_session(tx.connection, theirs.identity)


# ── transactions ──────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_writer_sees_what_others_committed_and_a_reader_does_not(database, table):
    """A later statement of a writing transaction sees what was committed meanwhile; one that only reads sees one moment."""
    with database.transaction() as writer, database.transaction(write=False) as reader:
        before = [tx.run_verbatim(f"SELECT v FROM {table} WHERE id = 1").scalar() for tx in (writer, reader)]
        with database.transaction() as other:
            other.run_verbatim(f"UPDATE {table} SET v = 5 WHERE id = 1")
        after = [tx.run_verbatim(f"SELECT v FROM {table} WHERE id = 1").scalar() for tx in (writer, reader)]

    assert (before, after) == ([0, 0], [5, 0])


def test_a_reader_sees_the_moment_of_its_beginning(database, table):
    """The snapshot is taken when the transaction begins, not with its first statement."""
    with database.transaction(write=False) as reader:
        with database.transaction() as other:
            other.run_verbatim(f"UPDATE {table} SET v = 5 WHERE id = 1")

        assert reader.run_verbatim(f"SELECT v FROM {table} WHERE id = 1").scalar() == 0


def test_time_behind_a_wait_is_later(database, table):
    """The expression for the time is worked out when the row is reached, not before the wait for its lock."""
    now = str(database.driver.now())
    with database.transaction() as tx:
        tx.run_verbatim("ALTER TABLE t ADD COLUMN at bigint")
    with database.session() as holder:
        with holder.transaction() as tx:
            tx.run_verbatim(f"UPDATE {table} SET v = 1")
            waiting = threading.Thread(target=lambda: database.run(lambda other: other.run_verbatim(f"UPDATE {table} SET at = {now}")))
            waiting.start()
            seen = "SELECT count(*) FROM information_schema.processlist WHERE state = 'Updating' AND id <> connection_id()"
            until(lambda: tx.run_verbatim(seen).scalar(), "somebody who waits for the row")
            let_go = tx.now_ms()
        waiting.join()

    with database.transaction() as tx:
        assert tx.run_verbatim(f"SELECT min(at) FROM {table}").scalar() >= let_go


def test_others_at_work_are_seen(application, database):
    """A session of an application's that did something of late; none of this driver's, and none that rested for long."""

    def others():
        with database.transaction(write=False) as tx:
            return tx.others_at_work()

    with database.transaction(write=False):
        before = others()
        with application().cursor() as cursor:
            cursor.execute("SELECT 1")
            of_late = others()
            until(lambda: not others(), "two seconds in which the application does nothing")

    assert (before, of_late) == (False, True)


# ── values in statements ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("text", ["'a?b'", '"?"', "`?`", "-- ?\n", "# ?\n", "/* ? */", r"'\'?'", "'it''s ?'", "`a``?`"])
def test_a_mark_inside_a_literal_a_name_or_a_remark_is_none(text):
    """Only a mark that stands by itself takes a value."""
    assert with_values(f"SELECT {text} , ?", (7,)) == f"SELECT {text} , 7"


@pytest.mark.parametrize(
    "value", ["", "it's", 'a"b', "back\\slash", "\0", "line\nend", "日本", "😀", "%s", "?", b"", b"\0\xff'", 0, -(2**63), 2**64 - 1, 1.5, 5e-324, None]
)
def test_a_value_comes_back_as_it_was_bound(database, value):
    """Every kind of value is read as what it is."""
    with database.transaction() as tx:
        (row,) = tx.run_verbatim("SELECT ?, 'a?b'", (value,)).rows

    assert repr(row[0]) == repr(value)


def test_a_number_of_values_that_does_not_fit_is_a_mistake_of_ours():
    """Neither too few nor too many, and nothing that has no exact literal."""
    for sql, values in (("SELECT ?, ?", (1,)), ("SELECT ?", (1, 2))):
        with pytest.raises(AssertionError, match="values than marks"):
            with_values(sql, values)
    for value in (float("nan"), float("inf"), object()):
        with pytest.raises(TypeError):
            literal(value)


# ── the system tables ─────────────────────────────────────────────────────────────────────────────────────────────


def test_system_tables_stand_in_their_database(mariadb_server, database):
    """Tables with their indexes are in the database tideshift, and compare byte by byte; uninstall removes it."""
    bootstrap.bootstrap(database)
    kinds = mariadb_server.execute("SELECT DISTINCT engine, table_collation FROM information_schema.tables WHERE table_schema = 'tideshift'")
    indexes = mariadb_server.execute("SELECT DISTINCT index_name FROM information_schema.statistics WHERE table_schema = 'tideshift' AND table_name = 'event'")
    bootstrap.uninstall(database)

    assert kinds == [("InnoDB", "utf8mb4_nopad_bin")]
    assert {name for (name,) in indexes} == {"PRIMARY", "tideshift_event_job", "tideshift_event_task", "tideshift_event_request"}
    assert mariadb_server.execute("SHOW DATABASES LIKE 'tideshift'") == []


def test_a_database_with_something_of_the_users_stays(mariadb_server, database):
    """Uninstall drops our tables but no database in which somebody put a function of his own."""
    bootstrap.bootstrap(database)
    mariadb_server.execute("CREATE FUNCTION tideshift.mine() RETURNS int RETURN 1")

    bootstrap.uninstall(database)

    assert mariadb_server.execute("SELECT tideshift.mine()") == [(1,)]
    assert bootstrap.state(database) is SystemState.ABSENT


def test_a_user_of_system_tables_needs_no_right_to_make_databases(account, database):
    """Where the database exists, another account finds it without the right to create one."""
    bootstrap.bootstrap(database)
    url = account("second", "SELECT ON {database}.*", "SELECT, INSERT, UPDATE, DELETE ON tideshift.*")

    with opened(url) as theirs:
        assert bootstrap.bootstrap(theirs) is False
        with theirs.transaction() as tx:
            events.record(tx, actor="second", kind="k", job_id=1)
            assert tx.execute(select(event.c.actor)).scalar_one() == "second"


@pytest.mark.parametrize("cut_off", [1, 3, 5])
def test_an_installation_that_was_cut_off_is_finished(database, failpoints, cut_off):
    """DDL commits by itself, so a first start that dies leaves some tables; the next one makes the rest, each with all of its indexes."""
    failpoints.enable(points.BEFORE_STATEMENT, f"{cut_off}*off->1*raise(RuntimeError)")
    with pytest.raises(RuntimeError):
        bootstrap.bootstrap(database)

    bootstrap.bootstrap(database)

    bootstrap.require(database)
    assert tables.job.name == "ddl_job"
    with database.transaction() as tx:
        counted = "SELECT count(DISTINCT index_name) FROM information_schema.statistics WHERE table_schema = 'tideshift'"
        found = tx.run_verbatim(counted).scalar()
        tx.run_verbatim("DROP DATABASE tideshift")
    bootstrap.bootstrap(database)
    with database.transaction() as tx:
        assert tx.run_verbatim(counted).scalar() == found


def test_many_first_starts_at_once_make_one_installation(mariadb_url):
    """Eight processes' worth of first starts: one creates, the others find it, and none fails."""
    barrier, created = threading.Barrier(8, timeout=30), []

    def install():
        with opened(mariadb_url) as database:
            barrier.wait()
            created.append(bootstrap.bootstrap(database))

    threads = [threading.Thread(target=install) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(created) == [False] * 7 + [True]


def test_an_unknown_statement_names_itself(database):
    """The error of a broken statement carries its text."""
    with pytest.raises(DatabaseFailed) as caught, database.transaction() as tx:
        tx.run_verbatim("SELECT nonsense(%s)")

    assert caught.value.fields["statement"] == "SELECT nonsense(%s)"


# ── a server of its own ───────────────────────────────────────────────────────────────────────────────────────────


def test_what_was_committed_survives_the_death_of_the_server(mariadb_server):
    """The server is killed with SIGKILL: what was committed is there, what was not is not, and its sessions are gone, not new ones of their numbers."""
    server = MariaServer(durable=True)
    try:
        server.start()
        name = server.create_database()
        with opened(server.url(name)) as database:
            bootstrap.bootstrap(database)
            with database.transaction() as tx:
                tx.run_verbatim("CREATE TABLE t (id integer PRIMARY KEY)")
                events.record(tx, actor="a", kind="kept", job_id=1)
            with pytest.raises(ConnectionLost), database.session() as session:  # noqa: PT012
                old = session.identity
                with session.transaction() as tx:
                    tx.run_verbatim("INSERT INTO t VALUES (1)")
                    os.kill(server.pid, signal.SIGKILL)
                    server.stop(signal.SIGKILL)
                    server.start()
                    tx.run_verbatim("INSERT INTO t VALUES (2)")

            with database.transaction() as tx:
                assert tx.run_verbatim("SELECT count(*) FROM t").scalar() == 0
                assert [one.kind for one in events.history(tx, job_id=1)] == ["kept"]
                assert database.driver.session_gone(tx.connection, old)
    finally:
        server.remove()
