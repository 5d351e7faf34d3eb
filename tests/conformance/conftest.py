"""What every conformance test stands on: an open database, with and without system tables."""

import pytest

from tests.databases import opened
from tideshift.clock import SteppedClock
from tideshift.store import bootstrap


@pytest.fixture
def database(database_url):
    """An open, empty database."""
    with opened(database_url) as database:
        yield database


@pytest.fixture
def system(database):
    """An open database with system tables."""
    bootstrap.bootstrap(database)
    return database


@pytest.fixture
def clock():
    """A clock that only this test moves, for the database's time too."""
    return SteppedClock()


@pytest.fixture
def stepped(database_url, clock):
    """An open database with system tables whose time is the stepped clock's."""
    with opened(database_url, clock) as database:
        bootstrap.bootstrap(database)
        yield database
