"""What every driver answers: the Driver protocol, on each database."""

import time

import pytest

from tests.databases import in_columns
from tideshift.errors import LockTimeout
from tideshift.store.database import ConstraintViolated, DatabaseFailed

AWKWARD_NAMES = ['a"b', "a b", "select", "ünïcode", "a'b", "%s", ":name", "a.b", "?", "$1", "a\\b", "A", "x" * 63]


def make_table(database, columns="id integer primary key, v varchar(20) unique"):
    with database.transaction() as tx:
        tx.run_verbatim(in_columns(database.driver, "t")(f"CREATE TABLE {{table}} ({columns})"))
    return in_columns(database.driver, "t")


@pytest.mark.parametrize(
    "text", ["100%", "%s %(a)s %%", ":name ::x", "it''s", '"q"', "?", "$1", "tideshift.event", "a\nb"]
)
def test_a_literal_in_verbatim_text_is_untouched(database, text):
    """Marks of any driver inside a string are only characters, without binds."""
    with database.transaction() as tx:
        value = tx.run_verbatim(f"SELECT '{text}'").scalar()

    assert value == text.replace("''", "'")


@pytest.mark.parametrize("text", ["100%", "%s %(a)s %%", ":name ::x", "it''s", "tideshift.event"])
def test_a_literal_beside_a_bind_is_untouched(database, text):
    """Marks of other drivers inside a string are only characters, with binds as well."""
    mark = database.driver.placeholders(1)[0]

    with database.transaction() as tx:
        rows = tx.run_verbatim(f"SELECT '{text}', CAST({mark} AS varchar(20))", ("bound: %s",)).rows

    assert rows == [(text.replace("''", "'"), "bound: %s")]


def test_a_session_goes_on_after_a_rest(database):
    """Giving memory back costs a session nothing but time."""
    with database.session() as session:
        session.rest()
        with session.transaction() as tx:
            assert tx.run_verbatim("SELECT 1").scalar() == 1
        session.rest()


def test_placeholders_bind_in_order(database):
    """The marks take the values one after another."""
    one, two = database.driver.placeholders(2)

    with database.transaction() as tx:
        rows = tx.run_verbatim(f"SELECT CAST({one} AS integer), CAST({two} AS integer)", (7, 8)).rows

    assert rows == [(7, 8)]


def test_affected_rows_are_counted(database):
    """INSERT, UPDATE, DELETE and a WITH before INSERT tell how many rows they changed."""
    q = make_table(database)

    with database.transaction() as tx:
        inserted = tx.run_verbatim(q("INSERT INTO {table} VALUES (1, 'a'), (2, 'b'), (3, 'c')")).affected
        more = "WITH more AS (SELECT id + 10 AS id FROM {table})"
        begun_with = ("INSERT INTO {table}", more) if database.driver.name == "mysql" else (more, "INSERT INTO {table}")
        copied = tx.run_verbatim(q(f"{' '.join(begun_with)} SELECT id, CAST(id AS char(5)) FROM more")).affected
        updated = tx.run_verbatim(q("UPDATE {table} SET v = CAST(id AS char(5)) WHERE id < 3")).affected
        deleted = tx.run_verbatim(q("DELETE FROM {table} WHERE id = 99")).affected

    assert (inserted, copied, updated, deleted) == (3, 3, 2, 0)


def test_rows_stream_while_other_statements_run(database):
    """Rows come one by one, in order, and the same transaction may write meanwhile."""
    q = make_table(database, "id integer primary key, v integer")
    mark = database.driver.placeholders(1)[0]
    with database.transaction() as tx:
        for i in range(5000):
            tx.run_verbatim(q(f"INSERT INTO {{table}} VALUES ({i}, 0)"))

    seen = []
    with database.transaction() as tx:
        for (i,) in tx.stream_verbatim(q(f"SELECT id FROM {{table}} WHERE id >= {mark} ORDER BY id"), (10,)):
            seen.append(i)
            if i % 1000 == 0:
                tx.run_verbatim(q(f"UPDATE {{table}} SET v = 1 WHERE id = {i}"))

    assert seen == list(range(10, 5000))


@pytest.mark.parametrize("name", AWKWARD_NAMES)
def test_a_quoted_name_comes_back(database, name):
    """Whatever a user called a table, the quoted form names exactly that."""
    quoted = database.driver.quote(name)

    with database.transaction() as tx:
        tx.run_verbatim(f"CREATE TEMPORARY TABLE {quoted} ({quoted} integer)")
        tx.run_verbatim(f"INSERT INTO {quoted} VALUES (5)")
        value = tx.run_verbatim(f"SELECT x.{quoted} FROM {quoted} AS x").scalar()

    assert value == 5


@pytest.mark.parametrize("name", ["", "a\0b", "\ud800"])
def test_a_name_that_cannot_be_given_is_refused(database, name):
    """An empty name, a NUL and broken Unicode are refused before any statement."""
    with pytest.raises(ValueError, match="not a usable name"):
        database.driver.quote(name)


def test_time_is_utc_milliseconds(database):
    """The database's time is that of this machine, in UTC epoch milliseconds."""
    before = time.time() * 1000
    with database.transaction() as tx:
        now_ms = tx.now_ms()
    after = time.time() * 1000

    assert before - 5 <= now_ms <= after + 5


def test_time_goes_on_inside_a_transaction(database):
    """The time is the statement's, not the transaction's start, and never falls."""
    with database.transaction() as tx:
        times = [tx.now_ms()]
        for _ in range(100_000):
            times.append(tx.now_ms())
            if times[-1] > times[0]:
                break

    assert times[-1] > times[0]
    assert times == sorted(times)


def test_a_living_session_is_not_gone(database):
    """A session has one identity for its life, survives its stored form, and is seen alive by another."""
    with database.session() as one, database.session() as two:
        identity = one.identity
        with two.transaction() as tx:
            gone = database.driver.session_gone(tx.connection, type(identity).from_record(identity.as_record()))

        assert one.identity == identity
        assert not gone


def test_asking_for_the_identity_leaves_the_transaction_alone(database):
    """The identity may be asked for in the middle of a transaction."""
    q = make_table(database)

    with database.session() as session:
        with session.transaction() as tx:
            tx.run_verbatim(q("INSERT INTO {table} VALUES (1, 'a')"))
            assert session.identity.backend
        with session.transaction() as tx:
            count = tx.run_verbatim(q("SELECT count(*) FROM {table}")).scalar()

    assert count == 1


def test_a_broken_constraint_is_named(database):
    """A duplicate in a unique column is a violated constraint, not a failure of the database."""
    q = make_table(database)

    with pytest.raises(ConstraintViolated) as caught, database.transaction() as tx:
        tx.run_verbatim(q("INSERT INTO {table} VALUES (1, 'a'), (2, 'a')"))

    assert caught.value.fields["failure"] == "constraint"
    assert "INSERT INTO" in caught.value.fields["statement"]


def test_a_wrong_statement_is_final(database):
    """A statement that is not SQL is no reason to try again."""
    with pytest.raises(DatabaseFailed), database.transaction() as tx:
        tx.run_verbatim("SELEC 1")


def test_a_lock_that_is_not_given_in_time_is_a_lock_timeout(database):
    """A second writer of the same row gives up while the first one is still at work."""
    q = make_table(database)
    with database.transaction() as tx:
        tx.run_verbatim(q("INSERT INTO {table} VALUES (1, 'a')"))

    with database.transaction() as first:
        first.run_verbatim(q("UPDATE {table} SET v = 'b'"))
        with pytest.raises(LockTimeout), database.transaction(lock_wait_seconds=0.05) as second:
            second.run_verbatim(q("UPDATE {table} SET v = 'c'"))

    with database.transaction(write=False) as tx:
        assert tx.run_verbatim(q("SELECT v FROM {table}")).rows == [("b",)]


def test_the_installation_is_the_same_every_time(database):
    """What identifies the database are texts that do not change from one look to the next."""
    with database.transaction() as tx:
        first = database.driver.installation(tx.connection)
    with database.transaction() as tx:
        second = database.driver.installation(tx.connection)

    assert first == second
    assert all(isinstance(value, str) and value for value in first.values())
