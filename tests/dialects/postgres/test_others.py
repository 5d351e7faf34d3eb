"""Whether anybody but tideshift is at work in a database."""

import psycopg
import pytest

from tests.databases import opened
from tests.waiting import until


@pytest.fixture
def database(postgres_url):
    """An open, empty database."""
    with opened(postgres_url) as database:
        yield database


def libpq(url):
    return url.replace("+psycopg", "")


def test_others_at_work_are_seen(postgres_url, database):
    """A session of an application's that is in a transaction or did something of late; none of ours, and none that rested for long."""

    def others():
        with database.transaction(write=False) as tx:
            return tx.others_at_work()

    with opened(postgres_url) as ours, ours.transaction(write=False):
        before = others()
        with psycopg.connect(libpq(postgres_url)) as application:
            application.execute("SELECT 1")
            in_transaction = others()
            application.commit()
            of_late = others()
            until(lambda: not others(), "two seconds in which the application does nothing")
        gone = others()

    assert (before, in_transaction, of_late, gone) == (False, True, True, False)


def test_to_a_plain_role_sessions_of_others_count_as_busy(postgres_url, database):
    """The server does not tell it what they do."""
    with psycopg.connect(libpq(postgres_url), autocommit=True) as application:
        application.execute("CREATE ROLE onlooker LOGIN")
        try:
            with opened(postgres_url.replace("tideshift@", "onlooker@")) as onlooker, onlooker.transaction(write=False) as tx:
                assert tx.others_at_work()
        finally:
            application.execute("DROP ROLE onlooker")
