"""Fixtures that every test may ask for: a fresh database per test, a seed, and what becomes of a missing database."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from random import Random
from typing import TypeVar

import pytest
from hypothesis import settings

from tests.databases import DIALECTS
from tests.mariadb_server import MariaServer
from tests.servers import PostgresServer, Unavailable, fast_folder, sqlite_module

DATABASES = ("sqlite", "postgres15", "postgres18", "mariadb")
URL_FIXTURES = {"sqlite": "sqlite_url", "postgres15": "postgres_url", "postgres18": "postgres18_url", "mariadb": "mariadb_url"}
SERVER_FIXTURES = {
    "postgres15": "postgres_server_or_reason",
    "postgres18": "postgres18_server_or_reason",
    "mariadb": "mariadb_server_or_reason",
}
Server = TypeVar("Server", PostgresServer, MariaServer)
SEED_VARIABLE = "TIDESHIFT_TEST_SEED"
SQLITE_FIXTURES = {"sqlite_path", "sqlite_url"}
SKIP_MARK = "no database "

# Temporary folders in memory: commits need no disk. pytest reads this when it makes its first folder.
os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(fast_folder()))

# The same examples in each run; a database in the loop makes single examples slow now and then.
settings.register_profile("tideshift", deadline=None, derandomize=True, print_blob=True)
settings.load_profile("tideshift")


def required_databases() -> set[str]:
    """Return the databases whose absence fails the run."""
    names = {name.strip() for name in os.environ.get("TIDESHIFT_TEST_REQUIRE", "").split(",") if name.strip()}
    if unknown := names - set(DATABASES):
        raise pytest.UsageError(f"TIDESHIFT_TEST_REQUIRE names {sorted(unknown)}; known are {', '.join(DATABASES)}")
    return names


def give_up(database: str, reason: str) -> None:
    """Fail where the database is required, else skip; the end of the run says which and why in one line."""
    if database in required_databases():
        pytest.fail(f"{database} is required (TIDESHIFT_TEST_REQUIRE) and cannot be used: {reason}", pytrace=False)
    pytest.skip(f"{SKIP_MARK}{database}: {reason}")


# ── databases ─────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="session")
def postgres_server_or_reason() -> Iterator[PostgresServer | str]:
    """The private server of this process, or why there is none; tried once, started when first asked for."""
    yield from _server_or_reason(lambda: PostgresServer(major=15))


@pytest.fixture(scope="session")
def postgres18_server_or_reason() -> Iterator[PostgresServer | str]:
    """The same of PostgreSQL 18."""
    yield from _server_or_reason(lambda: PostgresServer(major=18))


@pytest.fixture(scope="session")
def mariadb_server_or_reason() -> Iterator[MariaServer | str]:
    """The same of MariaDB."""
    yield from _server_or_reason(MariaServer)


def _server_or_reason(make: Callable[[], Server]) -> Iterator[Server | str]:
    server = None
    try:
        server = make()
        server.start()
    except Unavailable as reason:
        yield str(reason)
    else:
        yield server
    finally:
        if server is not None:
            server.remove()


@pytest.fixture
def postgres_server(postgres15_server: PostgresServer) -> PostgresServer:
    """The running private PostgreSQL server of tests that need only one version."""
    return postgres15_server


@pytest.fixture
def postgres15_server(postgres_server_or_reason: PostgresServer | str) -> PostgresServer:
    """The running private PostgreSQL 15 server."""
    if isinstance(postgres_server_or_reason, str):
        give_up("postgres15", postgres_server_or_reason)
    assert isinstance(postgres_server_or_reason, PostgresServer)
    return postgres_server_or_reason


@pytest.fixture
def postgres18_server(postgres18_server_or_reason: PostgresServer | str) -> PostgresServer:
    """The running private PostgreSQL 18 server."""
    if isinstance(postgres18_server_or_reason, str):
        give_up("postgres18", postgres18_server_or_reason)
    assert isinstance(postgres18_server_or_reason, PostgresServer)
    return postgres18_server_or_reason


@pytest.fixture
def postgres_url(postgres_server: PostgresServer) -> Iterator[str]:
    """The URL of an empty PostgreSQL database of this test's own."""
    name = postgres_server.create_database()
    yield postgres_server.url(name)
    postgres_server.drop_database(name)


@pytest.fixture
def postgres18_url(postgres18_server: PostgresServer) -> Iterator[str]:
    """The URL of an empty database of this test's own on PostgreSQL 18."""
    name = postgres18_server.create_database()
    yield postgres18_server.url(name)
    postgres18_server.drop_database(name)


@pytest.fixture
def mariadb_server(mariadb_server_or_reason: MariaServer | str) -> MariaServer:
    """The running private MariaDB server."""
    if isinstance(mariadb_server_or_reason, str):
        give_up("mariadb", mariadb_server_or_reason)
    assert isinstance(mariadb_server_or_reason, MariaServer)
    return mariadb_server_or_reason


@pytest.fixture
def mariadb_url(mariadb_server: MariaServer) -> Iterator[str]:
    """The URL of an empty MariaDB database of this test's own; the system tables go with it."""
    name = mariadb_server.create_database()
    yield mariadb_server.url(name)
    mariadb_server.drop_database(name)


@pytest.fixture
def sqlite_path(tmp_path: Path) -> Path:
    """An empty SQLite file in WAL mode of this test's own."""
    path = tmp_path / "test.db"
    with closing(sqlite_module().connect(path)) as connection:
        mode = connection.execute("PRAGMA journal_mode = wal").fetchone()[0]
    if mode != "wal":
        give_up("sqlite", f"a file in {tmp_path} stays in {mode} mode")
    return path


@pytest.fixture
def sqlite_url(sqlite_path: Path) -> str:
    """The URL of an empty SQLite file in WAL mode of this test's own."""
    return f"sqlite:///{sqlite_path}"


@pytest.fixture(params=DATABASES)
def database_url(request: pytest.FixtureRequest) -> str:
    """The URL of an empty database, on every database that the project speaks."""
    return request.getfixturevalue(URL_FIXTURES[request.param])


@pytest.fixture(params=DIALECTS)
def dialect_name(request: pytest.FixtureRequest) -> str:
    """Each database whose schema the project can change."""
    return request.param


@pytest.fixture
def dialect_url(request: pytest.FixtureRequest, dialect_name: str) -> str:
    """The URL of an empty database, on every database whose schema the project can change."""
    return request.getfixturevalue(URL_FIXTURES[dialect_name])


# ── seeds ─────────────────────────────────────────────────────────────────────────────────────────────────────────


def seed_of(node_id: str) -> int:
    """Return the seed of a test: the one asked for, else one that follows from the test's name."""
    asked = os.environ.get(SEED_VARIABLE)
    return int(asked) if asked else zlib.crc32(node_id.encode())


@pytest.fixture
def seed(request: pytest.FixtureRequest) -> int:
    """The seed of this test; a failure prints the line that replays it."""
    return seed_of(request.node.nodeid)


@pytest.fixture
def random(seed: int) -> Random:
    """A source of randomness made from the seed."""
    return Random(seed)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Add the replay line to the report of a failed test that used a seed."""
    report = yield
    if report.failed and "seed" in getattr(item, "fixturenames", ()):
        line = f'replay: {SEED_VARIABLE}={seed_of(item.nodeid)} pytest "{item.nodeid}"'
        report.sections.append(("seed", line))
    return report


# ── selection and the end of the run ──────────────────────────────────────────────────────────────────────────────


def pytest_configure() -> None:
    """Refuse a misspelt requirement before anything runs."""
    required_databases()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what opens an SQLite file, so that it can be run again on another SQLite library."""
    for item in items:
        case: Callable[..., object] | None = getattr(item, "callspec", None)
        of_sqlite = case is not None and "sqlite" in (getattr(case, "params", {}).get(name) for name in ("database_url", "dialect_name"))
        if of_sqlite or SQLITE_FIXTURES & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.stdlib_sqlite)


def pytest_report_header() -> str:
    """Name the SQLite library of this run."""
    module = sqlite_module()
    return f"sqlite: {module.__name__.split('.')[0]} with SQLite {module.sqlite_version}"


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line per database that it was missing, and why."""
    counts: dict[str, int] = {}
    for report in terminalreporter.stats.get("skipped", ()):
        text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
        if (reason := text.removeprefix("Skipped: ")).startswith(SKIP_MARK):
            counts[reason] = counts.get(reason, 0) + 1
    for reason, tests in counts.items():
        terminalreporter.write_line(f"skipped {tests} tests: {reason}", yellow=True)
