"""What is special about the driver of PostgreSQL: sessions, settings, isolation, SQLSTATEs, the schema."""

import threading

import psycopg
import pytest
from sqlalchemy import select

from tests.databases import opened
from tests.waiting import until
from tideshift.dialects.postgres.driver import PostgresDriver
from tideshift.errors import AmbiguousCommit, CannotReach, ConnectionLost, LockTimeout, Retryable
from tideshift.store import bootstrap, events
from tideshift.store.database import ConstraintViolated, Database, DatabaseFailed
from tideshift.store.driver import Failure, SessionIdentity
from tideshift.store.tables import event


@pytest.fixture
def database(postgres_url):
    """An open, empty database."""
    with opened(postgres_url) as database:
        yield database


@pytest.fixture
def table(database):
    """A user table with two rows."""
    with database.transaction() as tx:
        tx.run_verbatim("CREATE TABLE public.t (id integer PRIMARY KEY, v integer)")
        tx.run_verbatim("INSERT INTO public.t VALUES (1, 0), (2, 0)")
    return "public.t"


def libpq(url):
    return url.replace("+psycopg", "")


# ── connecting and settings ───────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("rest", ["absent_database?host={folder}", "x?host=/no/such/folder", "x?nonsense=1"])
def test_what_cannot_be_reached_is_said_so(postgres_server, rest):
    """A wrong database, folder or option is an error that says the database cannot be reached."""
    url = "postgresql://tideshift@/" + rest.format(folder=postgres_server.folder / "socket")

    with opened(url) as database, pytest.raises(CannotReach), database.transaction():
        pass


def test_sessions_are_pinned_whatever_the_role_says(postgres_url, database):
    """Settings of a role that would change a value's text or end our work do not reach our sessions."""
    with psycopg.connect(libpq(postgres_url), autocommit=True) as other:
        for setting in (
            "TimeZone = 'Asia/Tokyo'", "DateStyle = 'SQL, DMY'", "IntervalStyle = 'sql_standard'", "bytea_output = 'escape'",
            "extra_float_digits = 0", "statement_timeout = '1s'", "default_transaction_isolation = 'serializable'",
            "search_path = 'public'", "synchronous_commit = 'off'",
        ):  # fmt: skip
            other.execute(f"ALTER ROLE tideshift IN DATABASE {other.info.dbname} SET {setting}")
    sql = (
        "SELECT timestamptz '2024-01-02 03:04:05+00'::text, interval '1 mon -2 days'::text, '\\x00ff'::bytea::text,"
        " (0.1::float8 + 0.2::float8)::text, current_setting('statement_timeout'), current_setting('transaction_isolation'),"
        " current_setting('search_path'), current_setting('synchronous_commit'), current_setting('application_name')"
    )

    with opened(postgres_url) as fresh:
        with fresh.transaction() as tx:
            pinned = tx.run_verbatim(sql).rows[0]
        with fresh.transaction(durable=False) as tx:
            weak = tx.run_verbatim("SELECT current_setting('synchronous_commit')").scalar()

    assert pinned == (
        "2024-01-02 03:04:05+00", "1 mon -2 days", "\\x00ff", "0.30000000000000004", "0", "read committed", "", "on",
        "tideshift",
    )  # fmt: skip
    assert weak == "off"


def test_pinned_settings_survive_a_roll_back(database):
    """A transaction that fails takes no setting of the session with it."""
    with database.session() as session:
        with pytest.raises(ZeroDivisionError), session.transaction():
            raise ZeroDivisionError
        with session.transaction() as tx:
            assert tx.run_verbatim("SHOW TimeZone").scalar() == "UTC"


def test_a_stronger_default_is_not_weakened(postgres_url):
    """Whoever waits for the standbys to apply goes on doing so."""
    with psycopg.connect(libpq(postgres_url), autocommit=True) as other:
        other.execute(f"ALTER DATABASE {other.info.dbname} SET synchronous_commit = 'remote_apply'")

    with opened(postgres_url) as database, database.transaction() as tx:
        assert tx.run_verbatim("SHOW synchronous_commit").scalar() == "remote_apply"


def test_what_need_not_be_durable_waits_for_no_disk(postgres_url):
    """A chunk and its checkpoint are lost together or not at all, and whatever is durable later has them on the disk before it."""
    with opened(postgres_url) as database:
        with database.transaction(durable=False) as tx:
            assert tx.run_verbatim("SHOW synchronous_commit").scalar() == "off"
        with database.transaction() as tx:
            assert tx.run_verbatim("SHOW synchronous_commit").scalar() == "on"


def test_a_role_without_rights_can_connect(postgres_url):
    """Nothing at the start asks for more than an ordinary role may do."""
    with psycopg.connect(libpq(postgres_url), autocommit=True) as other:
        other.execute("DROP ROLE IF EXISTS plain_role")
        other.execute("CREATE ROLE plain_role LOGIN")
        other.execute("REVOKE EXECUTE ON FUNCTION pg_control_system() FROM PUBLIC")
    url = libpq(postgres_url).replace("tideshift@", "plain_role@")

    with opened(url) as database, database.session() as session:
        identity = session.identity
        with session.transaction() as tx:
            assert not database.driver.session_gone(tx.connection, identity)
            assert database.driver.installation(tx.connection)["server"] == identity.server

    assert identity.server


def test_read_committed_sees_what_others_committed(database, table):
    """A later statement of a transaction sees what was committed meanwhile."""
    with database.transaction() as tx:
        before = tx.run_verbatim(f"SELECT v FROM {table} WHERE id = 1").scalar()
        with database.transaction() as other:
            other.run_verbatim(f"UPDATE {table} SET v = 5 WHERE id = 1")
        after = tx.run_verbatim(f"SELECT v FROM {table} WHERE id = 1").scalar()

    assert (before, after) == (0, 5)


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

    with database.transaction() as tx:
        assert tx.run_verbatim(f"SELECT sum(v) FROM {table}").scalar() == 4
    assert len(tries) >= 3  # whoever was told may meet the other once more


def test_a_serialization_failure_asks_to_try_again(database, table):
    """A transaction of a stricter level that lost a race is told to try again."""
    with pytest.raises(Retryable), database.transaction() as tx:  # noqa: PT012
        tx.run_verbatim("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        tx.run_verbatim(f"SELECT * FROM {table}")
        with database.transaction() as other:
            other.run_verbatim(f"UPDATE {table} SET v = 1 WHERE id = 1")
        tx.run_verbatim(f"UPDATE {table} SET v = 2 WHERE id = 1")


def test_a_table_lock_is_waited_for_as_long_as_told(database, table):
    """lock_timeout is the transaction's own."""
    with database.transaction() as tx:
        tx.run_verbatim(f"LOCK TABLE {table}")
        with pytest.raises(LockTimeout), database.transaction(lock_wait_seconds=0.02) as other:
            other.run_verbatim(f"SELECT * FROM {table}")


def test_a_constraint_that_breaks_at_the_commit_is_one(database, table):
    """A deferred constraint speaks at the commit: that is no ambiguity, and the session goes on."""
    with database.session() as session:
        with session.transaction() as tx:
            tx.run_verbatim("CREATE TABLE public.d (v integer UNIQUE DEFERRABLE INITIALLY DEFERRED)")
        with pytest.raises(ConstraintViolated), session.transaction() as tx:
            tx.run_verbatim("INSERT INTO public.d VALUES (1), (1)")
        with session.transaction() as tx:
            assert tx.run_verbatim("SELECT count(*) FROM public.d").scalar() == 0


def end(database, session):
    with database.transaction() as tx:
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


def test_a_frozen_transaction_is_ended_by_the_server_itself(postgres_url):
    """The session carries the lease as its limit for standing idle in a transaction, in case nobody can end it."""
    database = Database(PostgresDriver(postgres_url, idle_in_transaction_seconds=0.05))

    with pytest.raises((ConnectionLost, AmbiguousCommit)), database.session() as session, session.transaction() as tx:  # noqa: PT012
        tx.run_verbatim("SELECT 1")
        with psycopg.connect(libpq(postgres_url), autocommit=True) as watcher:
            gone, backend = "SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE pid = %s)", int(session.identity.backend)
            until(lambda: watcher.execute(gone, (backend,)).fetchone()[0], "a session that the server has ended")
        tx.run_verbatim("SELECT 1")
    database.close()


def test_another_session_of_the_same_number_is_left_alone(database):
    """The number alone does not make a session: with another start or server it is gone, and nobody is ended for it."""
    with database.session() as session, database.transaction() as tx:
        mine = session.identity
        others = [
            SessionIdentity(server=mine.server, backend=mine.backend, started="1.5"),
            SessionIdentity(server="elsewhere", backend=mine.backend, started=mine.started),
        ]
        for other in others:
            assert database.driver.session_gone(tx.connection, other)
            database.driver.end_session(tx.connection, other)

        assert not database.driver.session_gone(tx.connection, mine)


@pytest.mark.parametrize(
    ("state", "committing", "failure"),
    [
        ("40001", False, Failure.RETRYABLE),
        ("40P01", True, Failure.RETRYABLE),
        ("55P03", False, Failure.LOCK_TIMEOUT),
        ("57014", False, Failure.RETRYABLE),
        ("57P01", False, Failure.LOST),
        ("57P01", True, Failure.AMBIGUOUS_COMMIT),
        ("25P03", False, Failure.LOST),
        ("08006", False, Failure.LOST),
        ("08006", True, Failure.AMBIGUOUS_COMMIT),
        ("53100", False, Failure.DISK_FULL),
        ("53100", True, Failure.DISK_FULL),
        ("23505", True, Failure.CONSTRAINT),
        ("23514", False, Failure.CONSTRAINT),
        ("42601", False, Failure.FATAL),
        ("25P02", False, Failure.FATAL),
    ],
)
def test_each_state_has_its_meaning(postgres_url, state, committing, failure):
    """SQLSTATEs decide; a lost connection is ambiguous only while committing."""
    error = psycopg.errors.lookup(state)("text")

    assert PostgresDriver(postgres_url).classify(error, committing=committing) is failure


@pytest.mark.parametrize("kind", [psycopg.OperationalError, psycopg.InterfaceError])
def test_an_error_without_state_is_a_lost_connection(postgres_url, kind):
    """What libpq says by itself comes without SQLSTATE."""
    driver = PostgresDriver(postgres_url)

    assert driver.classify(kind("gone"), committing=False) is Failure.LOST
    assert driver.classify(kind("gone"), committing=True) is Failure.AMBIGUOUS_COMMIT
    assert driver.classify(psycopg.ProgrammingError("bug"), committing=True) is Failure.FATAL


# ── names and the schema ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_name_that_would_be_cut_is_refused(postgres_url):
    """63 bytes are the most, counted as UTF-8."""
    driver = PostgresDriver(postgres_url)

    assert driver.quote("x" * 63) == '"' + "x" * 63 + '"'
    for name in ("x" * 64, "ü" * 32):
        with pytest.raises(ValueError, match="bytes"):
            driver.quote(name)


def test_system_tables_stand_in_their_schema(database):
    """Tables and indexes are in the schema tideshift, each index under its given name; uninstall removes the schema."""
    bootstrap.bootstrap(database)
    with database.transaction() as tx:
        rows = tx.run_verbatim(
            "SELECT indexname::text, tablename::text FROM pg_indexes WHERE schemaname = 'tideshift'"
        ).rows

    assert {
        ("tideshift_event_job", "event"), ("tideshift_event_task", "event"), ("tideshift_event_request", "event"),
    } <= set(rows)  # fmt: skip
    bootstrap.uninstall(database)
    with database.transaction() as tx:
        assert tx.run_verbatim("SELECT to_regnamespace('tideshift') IS NULL").scalar() is True


def test_a_schema_with_something_of_the_users_stays(database):
    """Uninstall drops our tables but no schema in which somebody put a function of his own."""
    bootstrap.bootstrap(database)
    with database.transaction() as tx:
        tx.run_verbatim("CREATE FUNCTION tideshift.mine() RETURNS int LANGUAGE sql AS 'SELECT 1'")

    bootstrap.uninstall(database)

    with database.transaction() as tx:
        assert tx.run_verbatim("SELECT tideshift.mine()").scalar() == 1
    assert bootstrap.state(database) is bootstrap.SystemState.ABSENT


def test_a_user_of_system_tables_needs_no_right_to_make_schemas(postgres_url, database):
    """Where the schema exists, another role finds it without the right to create one."""
    bootstrap.bootstrap(database)
    with psycopg.connect(libpq(postgres_url), autocommit=True) as other:
        other.execute("DROP ROLE IF EXISTS second_role")
        other.execute("CREATE ROLE second_role LOGIN")
        other.execute("GRANT USAGE ON SCHEMA tideshift TO second_role")
        other.execute("GRANT ALL ON ALL TABLES IN SCHEMA tideshift TO second_role")
        other.execute("GRANT ALL ON ALL SEQUENCES IN SCHEMA tideshift TO second_role")

    with opened(libpq(postgres_url).replace("tideshift@", "second_role@")) as theirs:
        assert bootstrap.bootstrap(theirs) is False
        with theirs.transaction() as tx:
            events.record(tx, actor="second", kind="k", job_id=1)
            assert tx.execute(select(event.c.actor)).scalar_one() == "second"


def test_a_clone_in_the_same_server_is_recognised(postgres_server, postgres_url, database):
    """A database made from this one as a template has another identity."""
    bootstrap.bootstrap(database)
    database.close()
    name = libpq(postgres_url).partition("@/")[2].partition("?")[0]
    clone = f"{name}_clone"
    with psycopg.connect(libpq(postgres_server.url("postgres")), autocommit=True) as server:
        server.execute(f"CREATE DATABASE {clone} TEMPLATE {name}")
    try:
        with opened(postgres_server.url(clone)) as cloned:
            before, after = bootstrap.installation_changed(cloned)
    finally:
        postgres_server.drop_database(clone)

    assert before["database"] != after["database"]
    assert before["server"] == after["server"]


def test_an_unknown_statement_names_itself(database):
    """The error of a broken statement carries its text."""
    with pytest.raises(DatabaseFailed) as caught, database.transaction() as tx:
        tx.run_verbatim("SELECT nonsense(%s)")

    assert caught.value.fields["statement"] == "SELECT nonsense(%s)"
