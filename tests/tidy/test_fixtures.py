"""The fixtures that all other tests lean on."""

import os
import pwd
import select
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import create_engine, text

from tests.conftest import give_up
from tests.servers import PostgresServer, Unavailable, find_postgres, remove_abandoned, sqlite_module

ROOT = Path(__file__).parents[2]


def test_a_database_per_test_answers_and_is_empty(database_url):
    """The URL of each database opens, and holds no table yet."""
    kind = database_url.partition(":")[0].partition("+")[0]
    engine = create_engine(database_url, **({"module": sqlite_module()} if kind == "sqlite" else {}))
    tables = {
        "sqlite": "sqlite_master", "postgresql": "pg_tables WHERE schemaname = 'public'",
        "mariadb": "information_schema.tables WHERE table_schema IN (database(), 'tideshift')",
    }[kind]  # fmt: skip

    with engine.connect() as connection:
        count = connection.execute(text(f"SELECT count(*) FROM {tables}")).scalar_one()
    engine.dispose()

    assert count == 0


def test_sqlite_file_is_in_wal_mode(sqlite_path):
    """The SQLite file given to a test uses a write-ahead log."""
    with closing(sqlite_module().connect(sqlite_path)) as connection:
        mode = connection.execute("PRAGMA journal_mode").fetchone()[0]

    assert mode == "wal"


def test_stdlib_run_uses_the_standard_library():
    """TIDESHIFT_SQLITE=stdlib chooses the standard library's module."""
    program = "from tests.servers import sqlite_module; print(sqlite_module().__name__)"

    out = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=os.environ | {"TIDESHIFT_SQLITE": "stdlib"},
                         capture_output=True, text=True, check=True)  # fmt: skip

    assert out.stdout.strip() == "sqlite3"


def test_server_listens_on_no_port_and_is_not_root(postgres_server):
    """The private server is reached by its socket only and runs as somebody other than root."""
    with psycopg.connect(postgres_server.url("postgres").replace("+psycopg", ""), autocommit=True) as connection:
        addresses = connection.execute("SHOW listen_addresses").fetchone()[0]
    owner = pwd.getpwuid((postgres_server.folder / "cluster").stat().st_uid).pw_name

    assert addresses == ""
    assert owner != "root"


def test_server_ends_with_the_process_that_started_it(postgres_server):
    """A server whose starter is killed with SIGKILL does not stay behind, nor for long its folder."""
    if sys.platform != "linux":
        pytest.skip("the kernel offers no end with the parent")
    program = (
        "import sys; from tests.servers import PostgresServer; s = PostgresServer(); s.start();"
        "print(s.folder, s._server.pid, flush=True); sys.stdin.read()"
    )
    starter = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                               text=True)  # fmt: skip
    folder, pid = starter.stdout.readline().split()
    server = os.pidfd_open(int(pid))

    starter.kill()
    starter.wait()
    starter.stdin.close()
    starter.stdout.close()
    ended, _, _ = select.select([server], [], [], 20)
    os.close(server)
    remove_abandoned()

    assert ended, "the server outlived the process that started it"
    assert not Path(folder).exists()


def test_server_survives_a_crash(postgres_server_or_reason):
    """What was committed before a crash of a server with fsync is there after it starts again."""
    if isinstance(postgres_server_or_reason, str):
        give_up("postgres15", postgres_server_or_reason)
    server = PostgresServer(fsync=True)
    try:
        server.start()
        name = server.create_database()
        with psycopg.connect(server.url(name).replace("+psycopg", ""), autocommit=True) as connection:
            connection.execute("CREATE TABLE t AS SELECT 7 AS n")

        server.stop(signal.SIGQUIT)
        server.start()

        with psycopg.connect(server.url(name).replace("+psycopg", "")) as connection:
            assert connection.execute("SELECT n FROM t").fetchone() == (7,)
    finally:
        server.remove()


def test_missing_version_is_named():
    """A PostgreSQL that is not installed is refused with the package to install."""
    with pytest.raises(Unavailable, match="apt-get install postgresql-3"):
        find_postgres(major=3)


def run_inner(pytester_folder, body, *arguments, **variables):
    """Run pytest on one inner test module that uses our conftest."""
    inner = pytester_folder / "test_inner.py"
    inner.write_text(body, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-p", "tests.conftest", "-p", "no:cacheprovider", "-q", "-c",
               str(ROOT / "pyproject.toml"), "--rootdir", str(pytester_folder), str(inner), *arguments]  # fmt: skip
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TIDESHIFT", "PYTEST"))}
    return subprocess.run(command, cwd=ROOT, env=kept | variables, capture_output=True, text=True, check=False)


NO_SERVER = """
import tests.servers
def missing(*, major):
    raise tests.servers.Unavailable("none here")
tests.servers.find_postgres = missing
def test_one(postgres_url):
    pass
def test_two(postgres_url):
    pass
"""


def test_missing_database_is_skipped_with_one_line(tmp_path):
    """Without TIDESHIFT_TEST_REQUIRE a missing database skips its tests and one line at the end says why."""
    run = run_inner(tmp_path, NO_SERVER)

    assert run.returncode == 0, run.stdout
    assert run.stdout.count("skipped 2 tests: no database postgres15: none here") == 1


def test_missing_database_that_is_required_fails(tmp_path):
    """A database named in TIDESHIFT_TEST_REQUIRE that cannot be started fails the run with the reason."""
    run = run_inner(tmp_path, NO_SERVER, TIDESHIFT_TEST_REQUIRE="postgres15")

    assert run.returncode == 1
    assert "postgres15 is required (TIDESHIFT_TEST_REQUIRE) and cannot be used: none here" in run.stdout


def test_misspelt_requirement_is_refused(tmp_path):
    """An unknown name in TIDESHIFT_TEST_REQUIRE stops the run before any test."""
    run = run_inner(tmp_path, "def test_nothing(): pass", TIDESHIFT_TEST_REQUIRE="postgres51")

    assert run.returncode not in (0, 1)
    assert "postgres51" in run.stdout + run.stderr


def test_failure_prints_the_line_that_replays_it(tmp_path):
    """A failed test that used a seed prints how to run it again, and that seed is then used."""
    body = "def test_it(seed):\n    assert seed == 'x'\n"

    first = run_inner(tmp_path, body)
    again = run_inner(tmp_path, body, TIDESHIFT_TEST_SEED="4711")

    assert "replay: TIDESHIFT_TEST_SEED=" in first.stdout
    assert 'replay: TIDESHIFT_TEST_SEED=4711 pytest "test_inner.py::test_it"' in again.stdout
