"""The engine on an SQLite file of the test's own."""

import pytest

from tests.ddl.engine import Engine


@pytest.fixture
def make_engine(sqlite_path, seed):
    """Makes the engine, with as many nodes as asked for; it ends with the test."""
    made = []

    def make(**options):
        made.append(Engine(sqlite_path, **{"seed": seed, **options}))
        return made[-1]

    yield make
    for engine in made:
        engine.close()


@pytest.fixture
def engine(make_engine):
    """The engine with one node."""
    return make_engine()
