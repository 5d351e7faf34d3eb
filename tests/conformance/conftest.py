"""What every conformance test stands on: an open database, with and without system tables."""

import pytest

from tests.conformance.planned import SHAPES, Planned
from tests.databases import DIALECTS, opened
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


# ── what a dialect's conformance tests stand on ───────────────────────────────────────────────────────────────────


@pytest.fixture
def changeable(dialect_url, clock):
    """An open, empty database whose schema can be changed, and whose time is the stepped clock's."""
    with opened(dialect_url, clock) as database:
        yield database


@pytest.fixture
def dialect(changeable, dialect_name):
    """The dialect of that database."""
    return DIALECTS[dialect_name](changeable.driver)


@pytest.fixture
def plan(changeable, dialect):
    """Makes a table of a shape and plans a change of it."""
    return lambda *arguments, **options: Planned(changeable, dialect, *arguments, **options)


@pytest.fixture(params=SHAPES)
def planned(plan, request):
    """A change of a table by a shadow table, planned and no more, for each shape of the table's key."""
    return plan(SHAPES[request.param])


@pytest.fixture
def installed(planned):
    """The same, with the shadow table and the capture of writes in force."""
    planned.install()
    return planned


@pytest.fixture
def copied(installed):
    """The same, with every row copied."""
    installed.copy()
    return installed
