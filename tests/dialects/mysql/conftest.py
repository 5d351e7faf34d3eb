"""What tests of MariaDB and MySQL stand on: an open database, a table, other accounts, and an application beside us."""

import pymysql
import pytest

from tests.databases import opened


@pytest.fixture
def database(mariadb_url):
    """An open, empty database."""
    with opened(mariadb_url) as database:
        yield database


@pytest.fixture
def table(database):
    """A user table with two rows."""
    with database.transaction() as tx:
        tx.run_verbatim("CREATE TABLE t (id integer PRIMARY KEY, v integer)")
        tx.run_verbatim("INSERT INTO t VALUES (1, 0), (2, 0)")
    return "t"


@pytest.fixture
def account(mariadb_server, mariadb_url):
    """Makes another account with grants; `{database}` in them is this test's own. Returns the URL of this test's database for it."""

    def make(name, *grants):
        mariadb_server.execute(f"DROP USER IF EXISTS {name}@localhost")
        mariadb_server.execute(f"CREATE USER {name}@localhost")
        for grant in grants:
            mariadb_server.execute(f"GRANT {grant.format(database=mariadb_url.partition('@/')[2].partition('?')[0])} TO {name}@localhost")
        return mariadb_url.replace("tideshift@", f"{name}@")

    return make


@pytest.fixture
def application(mariadb_url):
    """Opens connections as an application would."""
    opened_now = []

    def connect(**options):
        name = mariadb_url.partition("@/")[2].partition("?")[0]
        opened_now.append(pymysql.connect(unix_socket=mariadb_url.rpartition("=")[2], user="root", database=name, **{"autocommit": True, **options}))
        return opened_now[-1]

    yield connect
    for one in opened_now:
        if one.open:
            one.close()
