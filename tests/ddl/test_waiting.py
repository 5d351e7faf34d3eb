"""Who holds the write lock: a process of the application's by its id, frozen or not; never a node of ours that is alive, and nobody who only reads."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from tests.proof.engine import application, on_engine

pytestmark = pytest.mark.skipif(not Path("/proc/locks").exists(), reason="this system does not tell who holds a lock")

CHANGE = "ALTER TABLE t ALTER c TYPE INTEGER"
HOLDING = """
import sys
from tests.servers import sqlite_module
connection = sqlite_module().connect(sys.argv[1], isolation_level=None)
for text in sys.argv[2:]:
    connection.execute(text).fetchall()
print("there", flush=True)
sys.stdin.read()
"""


@pytest.fixture(params=["WAL", "DELETE"])
def table(request, sqlite_path: Path) -> Path:
    """A table of some rows, in either kind of journal."""
    with closing(application(sqlite_path)) as connection:
        connection.execute(f"PRAGMA journal_mode = {request.param}")
        connection.execute("CREATE TABLE t (id INTEGER PRIMARY KEY, c TEXT)")
        connection.executemany("INSERT INTO t VALUES (?, ?)", [(number, str(number)) for number in range(50)])
    return sqlite_path


@contextmanager
def _another(path: Path, *texts: str) -> Iterator[subprocess.Popen[str]]:
    """Another process that has executed these texts and stays as it is."""
    command = [sys.executable, "-c", HOLDING, str(path), *texts]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "there\n"
        try:
            yield process
        finally:
            process.kill()


def test_a_process_that_writes_is_named_and_nobody_else(table: Path) -> None:
    """Also one that is frozen in the middle; a reader keeps no writer out."""
    with on_engine(table) as engine:
        job_id = engine.submit(CHANGE)
        engine.until_stage(job_id, "copy")

        with _another(table, "BEGIN", "SELECT * FROM t"):
            assert engine.connected.ddl.show(job_id)["lock_holder"] is None
        with _another(table, "BEGIN IMMEDIATE") as writer:
            writer.send_signal(signal.SIGSTOP)
            holder = engine.connected.ddl.show(job_id)["lock_holder"]
            listed, _ = engine.connected.ddl.jobs()
            assert holder == {"process": writer.pid, "program": Path(f"/proc/{writer.pid}/comm").read_text().strip()}
            assert [job["lock_holder"] for job in listed] == [holder]

        assert engine.connected.ddl.show(job_id)["lock_holder"] is None
        engine.finish(job_id)
        with _another(table, "BEGIN IMMEDIATE"):
            assert engine.connected.ddl.show(job_id)["lock_holder"] is None  # it waits for nobody any more


def test_a_node_that_is_alive_is_not_named(table: Path) -> None:
    """It gives the lock back within a chunk; once it is silent for too long, it is named as anybody else."""
    with on_engine(table) as engine:
        job_id = engine.submit(CHANGE)
        engine.until_stage(job_id, "copy")
        with closing(application(table)) as connection:
            connection.execute("BEGIN IMMEDIATE")  # in the process of the node

            alive = engine.connected.ddl.show(job_id)["lock_holder"]
            engine.clock.advance(600)
            silent = engine.connected.ddl.show(job_id)["lock_holder"]

    assert alive is None
    assert silent["process"] == os.getpid()
