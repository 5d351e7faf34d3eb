"""Nodes as real processes on the machine's own clock: killed, frozen and thawed, and cut off from the server by a proxy."""

import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.databases import opened
from tests.dxf.conftest import Rows, empty
from tests.waiting import until
from tideshift.dxf.commands import Dxf
from tideshift.dxf.machine import SubtaskState, TaskState
from tideshift.store import bootstrap

ROOT = Path(__file__).parents[2]
TAKE_OVER_SECONDS_MAX = 30.0
"""What a machine that is busy with other tests may need; the figure that is promised is measured by bench/dxf.py."""


class Worker:
    """One process; leaving the block kills it."""

    def __init__(self, url, folder, *freeze):
        self.log_path = folder / f"worker-{time.monotonic_ns()}.log"
        command = [sys.executable, "-m", "tests.dxf.worker", url, *(("--freeze", *map(str, freeze)) if freeze else ())]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}
        with self.log_path.open("wb") as log:
            self.child = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=subprocess.STDOUT)

    def __enter__(self):
        until(lambda: "ready " in self.log or self.child.poll() is not None, lambda: f"ready: {self.log[-500:]}")
        assert self.child.poll() is None, self.log
        return self

    def __exit__(self, *_):
        if self.child.poll() is None:
            self.child.kill()
        self.child.wait()

    @property
    def log(self):
        return self.log_path.read_text()

    @property
    def name(self):
        return next(line.split()[1] for line in self.log.splitlines() if line.startswith("ready "))

    def is_stopped(self):
        return Path(f"/proc/{self.child.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


@pytest.fixture
def database(database_url):
    """An open database with system tables that keeps its own time."""
    with opened(database_url) as database:
        if not bootstrap.bootstrap(database):
            empty(database)
        yield database


@pytest.fixture
def rows(database):
    """Three hundred rows to copy, slowly enough that something can happen on the way."""
    return Rows(database, 300)


def submit(rows, dxf):
    return rows.submit(parts=6, batch_size=2, max_write_speed="100 rows", submit={"threads": 2})


def works(dxf, task, worker):
    """The subtasks that run at a worker and have committed something."""
    return [one for one in dxf.subtasks(task.id) if one.exec_id == worker.name and one.state is SubtaskState.RUNNING and one.checkpoint]


def is_over(dxf, task):
    return dxf.show(task.id).state in (TaskState.SUCCEED, TaskState.REVERTED, TaskState.FAILED)


def hurry(dxf, task):
    dxf.modify(task.id, max_write_speed="none", batch_size=50)


def test_a_killed_node_is_replaced(database, database_url, rows, tmp_path):
    """Kill -9 in the middle of its work, the owner's or not: another process does it to the end, each row once."""
    dxf = Dxf(database)
    with Worker(database_url, tmp_path) as dying, Worker(database_url, tmp_path):
        task = submit(rows, dxf)
        begun = until(lambda: works(dxf, task, dying), "work at the one that dies")
        dying.child.kill()
        killed = time.monotonic()

        taken = {one.id: one.attempt for one in begun}
        until(lambda: all(one.attempt > taken[one.id] or one.state is SubtaskState.SUCCEED for one in dxf.subtasks(task.id) if one.id in taken), "a take-over")
        seconds = time.monotonic() - killed
        hurry(dxf, task)
        until(lambda: is_over(dxf, task), "the end")

    assert seconds < TAKE_OVER_SECONDS_MAX
    assert dxf.show(task.id).state is TaskState.SUCCEED
    assert rows.exactly_once()


FREEZES = {"before BEGIN": "dxf.before_chunk", "inside the transaction": "dxf.after_checkpoint", "after COMMIT was sent": "dxf.after_chunk"}


@pytest.mark.parametrize("place", FREEZES)
def test_a_frozen_node_commits_nothing_more(database, database_url, rows, tmp_path, place):
    """It stands still with all that it holds; its work is taken over and done; thawed it adds nothing and goes on as a node."""
    if place == "inside the transaction" and not database.driver.capabilities.ends_sessions:
        pytest.skip("whoever is frozen inside a write transaction of a database with one writer is named by doctor, never killed")
    dxf = Dxf(database)
    task = submit(rows, dxf)
    with Worker(database_url, tmp_path, FREEZES[place], 4) as frozen:
        until(frozen.is_stopped, lambda: f"a process that stands still: {frozen.log[-500:]}")
        with Worker(database_url, tmp_path):
            hurry(dxf, task)
            until(lambda: is_over(dxf, task), "the end without the frozen one")
            copied = rows.copied()
            frozen.child.send_signal(signal.SIGCONT)
            again = submitted_again(rows, dxf)
            until(lambda: is_over(dxf, again), "a second task, with the thawed one")

    assert dxf.show(task.id).state is TaskState.SUCCEED
    assert copied == (rows.number, rows.number)
    assert rows.copied() == (2 * rows.number, rows.number), "the second task has copied each row once more, and nobody else anything"


def submitted_again(rows, dxf):
    return rows.submit("again", parts=6, batch_size=50)


class Proxy(threading.Thread):
    """Stands between a client and the server's socket; `cut` lets nothing pass in either direction, `heal` lets all of it through."""

    def __init__(self, folder, server_socket):
        super().__init__(daemon=True)
        self.folder = folder
        self.server_socket = server_socket
        self.listening = socket.socket(socket.AF_UNIX)
        self.listening.bind(str(folder / Path(server_socket).name))
        self.listening.listen(50)
        self.whole = threading.Event()
        self.whole.set()
        self.over = threading.Event()
        self.selector = selectors.DefaultSelector()
        self.selector.register(self.listening, selectors.EVENT_READ, None)

    def run(self):
        while not self.over.is_set():  # ends: the test sets it
            self.whole.wait(0.1)
            if not self.whole.is_set():
                continue
            for key, _ in self.selector.select(0.05):
                if key.data is None:
                    self._accept()
                elif key.fileobj.fileno() >= 0:  # The other end of one that was closed just now may stand in the same list.
                    self._pass_on(key.fileobj, key.data)
        for key in list(self.selector.get_map().values()):
            key.fileobj.close()
        self.selector.close()

    def _accept(self):
        client, _ = self.listening.accept()
        server = socket.socket(socket.AF_UNIX)
        server.connect(self.server_socket)
        self.selector.register(client, selectors.EVENT_READ, server)
        self.selector.register(server, selectors.EVENT_READ, client)

    def _pass_on(self, source, sink):
        try:
            received = source.recv(65536)
            if received:
                sink.sendall(received)
                return
        except OSError:
            received = b""
        for end in (source, sink):
            self.selector.unregister(end)
            end.close()


@contextmanager
def proxied(proxy):
    """End the proxy however the test ends."""
    try:
        yield
    finally:
        proxy.whole.set()
        proxy.over.set()
        proxy.join()


ON_SERVERS = pytest.mark.parametrize("database_url", ["postgres15", "postgres18", "mariadb"], indirect=True)


@ON_SERVERS
def test_a_node_behind_a_lost_network_is_replaced(database, database_url, rows, tmp_path):
    """Nothing passes for longer than a dead node has: its work is done elsewhere, and when all of it arrives at last it changes nothing."""
    dxf = Dxf(database)
    address = database_url.rpartition("=")[2]
    of_server = address if database_url.startswith("mariadb") else f"{address}/.s.PGSQL.5432"
    proxy = Proxy(tmp_path, of_server)
    proxy.start()
    behind = database_url.replace(address, str(tmp_path / Path(of_server).name if of_server == address else tmp_path))
    with proxied(proxy), Worker(behind, tmp_path) as lost, Worker(database_url, tmp_path):
        task = submit(rows, dxf)
        until(lambda: works(dxf, task, lost), "work behind the proxy")

        proxy.whole.clear()
        until(lambda: lost.name not in {node.host for node in dxf.nodes()}, "taken for dead")
        hurry(dxf, task)
        until(lambda: is_over(dxf, task), "the end without it")
        proxy.whole.set()
        until(lambda: lost.name in {node.host for node in dxf.nodes()}, lambda: f"registered again: {lost.log[-800:]}")

    assert dxf.show(task.id).state is TaskState.SUCCEED
    assert rows.exactly_once()
