"""The private MariaDB server that other tests lean on."""

import os
import pwd
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.mariadb_server import MariaServer, remove_abandoned
from tests.tidy.test_fixtures import run_inner

ROOT = Path(__file__).parents[2]

NO_SERVER = """
import tests.mariadb_server
def missing():
    raise tests.mariadb_server.Unavailable("none here")
tests.mariadb_server.find_mariadb = missing
def test_one(mariadb_url):
    pass
def test_two(mariadb_url):
    pass
"""


def test_server_listens_on_no_port_and_is_not_root(mariadb_server):
    """The private server is reached by its socket only and runs as somebody other than root."""
    owner = pwd.getpwuid((mariadb_server.folder / "data" / "ibdata1").stat().st_uid).pw_name

    assert mariadb_server.execute("SELECT @@skip_networking, @@port") == [(1, 0)]
    assert owner != "root"


def test_server_ends_with_the_process_that_started_it(mariadb_server):
    """A server whose starter is killed with SIGKILL does not stay behind, nor for long its folder."""
    if sys.platform != "linux":
        pytest.skip("the kernel offers no end with the parent")
    program = (
        "import sys; from tests.mariadb_server import MariaServer; s = MariaServer(); s.start();"
        "print(s.folder, s.pid, flush=True); sys.stdin.read()"
    )
    starter = subprocess.Popen([sys.executable, "-c", program], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
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


def test_a_durable_server_survives_a_crash(mariadb_server):
    """What was committed before a crash of a server with durable commits is there after it starts again."""
    server = MariaServer(durable=True)
    try:
        server.start()
        name = server.create_database()
        server.execute(f"CREATE TABLE {name}.t AS SELECT 7 AS n")

        server.stop(signal.SIGKILL)
        server.start()

        assert server.execute(f"SELECT n FROM {name}.t") == [(7,)]
    finally:
        server.remove()


def test_missing_database_is_skipped_with_one_line(tmp_path):
    """Without TIDESHIFT_TEST_REQUIRE a missing database skips its tests and one line at the end says why."""
    run = run_inner(tmp_path, NO_SERVER)

    assert run.returncode == 0, run.stdout
    assert run.stdout.count("skipped 2 tests: no database mariadb: none here") == 1


def test_missing_database_that_is_required_fails(tmp_path):
    """A database named in TIDESHIFT_TEST_REQUIRE that cannot be started fails the run with the reason."""
    run = run_inner(tmp_path, NO_SERVER, TIDESHIFT_TEST_REQUIRE="mariadb")

    assert run.returncode == 1
    assert "mariadb is required (TIDESHIFT_TEST_REQUIRE) and cannot be used: none here" in run.stdout
