"""These tests run on each version of the server that the project is proven on, but for modules that name theirs (`MAJORS`)."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.dialects.postgres.verbs import Begin, by_verbs
from tests.servers import PostgresServer


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run each test once per version."""
    if "postgres_server" in metafunc.fixturenames:
        metafunc.parametrize("postgres_server", getattr(metafunc.module, "MAJORS", (15, 18)), indirect=True, ids=lambda major: f"postgres{major}")


@pytest.fixture
def postgres_server(request: pytest.FixtureRequest) -> PostgresServer:
    """The running private server of this test's version."""
    server = request.getfixturevalue(f"postgres{request.param}_server")
    assert isinstance(server, PostgresServer)
    return server


@pytest.fixture
def begin(postgres_url: str) -> Iterator[Begin]:
    """What begins a change of a table in this test's own database, to be driven verb by verb."""
    with by_verbs(postgres_url) as given:
        yield given
