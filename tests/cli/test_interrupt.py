"""Ctrl-C and SIGTERM: the job is kept, and the next process goes on with it."""

import os
import pty
import select
import signal
import subprocess
import time
from contextlib import closing

from tests.cli.programs import PROGRAM, TO_NUMERIC, Started, ask, environment, make_shop, run
from tests.cli.schema_check import check
from tests.servers import sqlite_module
from tests.waiting import until
from tideshift.dxf.service import LOCK_WAIT_SECONDS_MIN, STOP_SECONDS
from tideshift.frontends.cli.follow import LOOK_WAIT_SECONDS
from tideshift.frontends.cli.interruption import SLICE_SECONDS

SLOW = ("--strategy", "shadow_table", "--max-write-speed", "2rows", "--batch-size", "4")


def test_first_signal_keeps_the_job(tmp_path):
    """The first signal gives everything back, says how to go on, and ends with 130; then the job can go on."""
    path = make_shop(tmp_path / "shop.db", rows=40)
    with Started("alter", TO_NUMERIC, *SLOW, url=path) as alter:
        alter.until("reorganize: copy")
        alter.signal()

        ran = alter.end()

    assert ran.code == 130
    assert ran.err.splitlines()[-1] == "job 1 is kept; go on with: tideshift watch 1 --node"
    assert ask(path, "SELECT count(*) FROM tideshift_dist_framework_meta") == [(0,)]
    assert ask(path, "SELECT count(*) FROM tideshift_dxf_background_subtask WHERE state = 'running'") == [(0,)]
    assert ask(path, "SELECT count(*) FROM tideshift_owner_lease WHERE expires_at > (julianday('now') - 2440587.5) * 86400000") == [(0,)]
    assert run("set", "1", "max_write_speed=none", "batch_size=1000", url=path).code == 0
    watched = run("watch", "1", "--node", url=path)
    assert watched.code == 0, watched.err
    assert ask(path, "SELECT count(*), sum(price) FROM goods WHERE typeof(price) = 'integer'") == [(40, 820)]


def test_sigterm_is_the_first_ctrl_c(tmp_path):
    """SIGTERM stops the command in the same order as Ctrl-C does."""
    path = make_shop(tmp_path / "shop.db", rows=40)
    with Started("node", url=path) as node:
        node.until("runs with 4 slots")
        node.signal(signal.SIGTERM)

        ran = node.end()

    assert ran.code == 130
    assert "no job is live" in ran.err
    assert ask(path, "SELECT count(*) FROM tideshift_dist_framework_meta") == [(0,)]


def test_killed_process_loses_nothing(tmp_path):
    """After SIGKILL the next process goes on where the job stood."""
    path = make_shop(tmp_path / "shop.db", rows=40)
    with Started("alter", TO_NUMERIC, *SLOW, url=path) as alter:
        alter.until("reorganize: copy")
        alter.signal(signal.SIGKILL)
        alter.end()
    assert run("set", "1", "max_write_speed=none", "batch_size=1000", url=path).code == 0

    watched = run("watch", "1", "--node", "--json", url=path)

    assert watched.code == 0, watched.err
    assert ask(path, "SELECT count(*), sum(price) FROM goods WHERE typeof(price) = 'integer'") == [(40, 820)]


def test_interrupted_watch_leaves_the_node_alone(tmp_path):
    """A command that only follows ends at once, and names the way back without --node."""
    path = make_shop(tmp_path / "shop.db", rows=40)
    with Started("node", url=path) as node:
        node.until("runs with 4 slots")
        run("alter", TO_NUMERIC, *SLOW, "--detach", url=path)
        with Started("watch", "1", url=path) as watch:
            watch.until("reorganize: copy")
            watch.signal()
            ran = watch.end()
        jobs = run("jobs", url=path)
        node.signal()
        stopped = node.end()

    assert ran.code == 130
    assert ran.err.splitlines()[-1] == "job 1 is kept; go on with: tideshift watch 1"
    assert "running" in jobs.out
    assert stopped.code == 130
    assert "job 1 is kept; go on with: tideshift node" in stopped.err


LAST_WRITES = ("heartbeat", "give subtasks back", "resign", "leave the register")
LAST_LOOKS = ("is another node alive", "the job as it is")
PROMISED_SECONDS = 5.0


def test_the_waits_of_an_end_are_less_than_was_promised():
    """Noticing the signal, stopping, the last writes and the last looks: what each may wait for adds up to five seconds at most."""
    longest = SLICE_SECONDS + STOP_SECONDS + len(LAST_WRITES) * LOCK_WAIT_SECONDS_MIN + len(LAST_LOOKS) * LOOK_WAIT_SECONDS

    assert longest <= PROMISED_SECONDS + 1e-9


def is_locked_for_long(path):
    """Whether the write lock is not to be had for half a second."""
    with closing(sqlite_module().connect(path, timeout=0.5, isolation_level=None)) as connection:
        try:
            connection.execute("BEGIN IMMEDIATE")
        except sqlite_module().OperationalError:
            return True
        connection.execute("ROLLBACK")
    return False


def test_a_chunk_that_never_ends_does_not_keep_the_process(tmp_path):
    """One signal is enough though a chunk hangs: when the budget is used up nobody waits for it, and the job is kept."""
    path = make_shop(tmp_path / "shop.db", rows=40)
    hangs = {"TIDESHIFT_FAILPOINTS": "ddl.after_copy_chunk=pause"}
    with Started("--enable-failpoints", "alter", TO_NUMERIC, "--strategy", "shadow_table", url=path, variables=hangs) as alter:
        alter.until("reorganize: copy")
        until(lambda: is_locked_for_long(path), "a chunk that hangs")
        alter.signal()

        ran = alter.end()

    assert ran.code == 130
    assert "did not stop in time" in ran.err
    assert ran.err.splitlines()[-1] == "job 1 is kept; go on with: tideshift watch 1 --node"
    assert run("watch", "1", "--node", url=path).code == 0
    assert ask(path, "SELECT count(*), sum(price) FROM goods WHERE typeof(price) = 'integer'") == [(40, 820)]


def test_interrupt_as_json(tmp_path):
    """With --json the interruption is an error document that names the job."""
    path = make_shop(tmp_path / "shop.db", rows=40)
    with Started("alter", TO_NUMERIC, *SLOW, "--json", url=path) as alter:
        alter.until("job 1: ")
        alter.signal()
        ran = alter.end()

    check("job", ran.document)
    check("error", {"version": 1, "error": ran.error})
    assert (ran.code, ran.error["code"], ran.error["fields"]) == (130, "interrupted", {"job_id": 1})


# ── with a terminal ───────────────────────────────────────────────────────────────────────────────────────────────


class OnTerminal:
    """A command whose input and messages are a terminal; what it writes there is collected."""

    def __init__(self, *arguments, url, variables=None):
        self.terminal, inside = pty.openpty()
        self.process = subprocess.Popen(
            [*PROGRAM, *map(str, arguments)], stdin=inside, stdout=subprocess.PIPE, stderr=inside, env=environment(url, {"COLUMNS": "300", **(variables or {})}),
            start_new_session=True,
        )  # fmt: skip
        os.close(inside)
        self.seen = ""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        os.close(self.terminal)

    def until(self, text):
        """Read until the text was seen."""
        deadline = time.monotonic() + 60
        while text not in self.seen:
            assert time.monotonic() < deadline, f"no {text!r} in {self.seen[-2000:]!r}"
            ready, _, _ = select.select([self.terminal], [], [], 40)
            assert ready, f"no {text!r} in {self.seen!r}"
            try:
                self.seen += os.read(self.terminal, 4096).decode()
            except OSError as error:
                raise AssertionError(f"ended without {text!r}: {self.seen!r}") from error

    def answer(self, text):
        """Type a line."""
        os.write(self.terminal, f"{text}\n".encode())

    def end(self):
        """Wait for the end, reading what is still said, and return the code."""
        try:
            while chunk := os.read(self.terminal, 4096):
                self.seen += chunk.decode()
        except OSError:  # how Linux says that the other side is closed
            return self.process.wait(timeout=40)
        return self.process.wait(timeout=40)


def test_terminal_has_a_live_line(tmp_path):
    """On a terminal one line is rewritten in place, and is gone at the end."""
    path = make_shop(tmp_path / "shop.db", rows=5)
    with OnTerminal("alter", TO_NUMERIC, "--strategy", "shadow_table", url=path) as alter:
        code = alter.end()

    assert code == 0, alter.seen
    assert "\r\x1b[Kjob 1 running · write reorganization" in alter.seen
    assert "rows/s · ETA" in alter.seen


def test_terminal_is_asked_before_a_value_may_be_refused(tmp_path):
    """On a terminal a change that may refuse a value is asked for; no means that nothing is done."""
    path = make_shop(tmp_path / "shop.db", rows=5)
    statement = "ALTER TABLE strict_goods ALTER COLUMN price TYPE INTEGER"
    with OnTerminal("alter", statement, url=path) as alter:
        alter.until("Go on?")
        alter.answer("n")
        code = alter.end()

    assert code == 3
    assert "nothing was done" in alter.seen
    assert ask(path, "SELECT count(*) FROM sqlite_master WHERE name LIKE 'tideshift%'") == [(0,)]


def test_second_interrupt_asks_what_to_do(tmp_path):
    """On a terminal a second Ctrl-C, while the first is carried out, lets the person pause or cancel the job."""
    path = make_shop(tmp_path / "shop.db", rows=40)
    slow_chunk = {"TIDESHIFT_FAILPOINTS": "dxf.after_chunk_work=sleep(1500)"}
    with OnTerminal(
        "--enable-failpoints", "alter", TO_NUMERIC, "--strategy", "shadow_table", url=path, variables=slow_chunk
    ) as alter:
        alter.until("write reorganization")
        alter.until("reorganize: copy")
        alter.process.send_signal(signal.SIGINT)
        alter.until("stopping")
        alter.process.send_signal(signal.SIGINT)
        alter.until("What shall become of job 1?")
        alter.answer("cancel")
        code = alter.end()

    assert code == 130, alter.seen
    assert "cancel: applied" in alter.seen
    assert run("job", "1", "--json", url=path).document["job"]["state"] == "cancelling"


def test_second_signal_without_terminal_ends_at_once(tmp_path):
    """Without a terminal the second signal ends the process at once, with 130."""
    path = make_shop(tmp_path / "shop.db", rows=40)
    stuck = {"TIDESHIFT_FAILPOINTS": "dxf.after_chunk_work=sleep(600000)"}
    with Started(
        "--enable-failpoints", "alter", TO_NUMERIC, "--strategy", "shadow_table", url=path, variables=stuck
    ) as alter:
        alter.until("reorganize: copy")
        alter.signal()
        alter.until("stopping")
        alter.signal()
        ran = alter.end()

    assert ran.code == 130
    assert "is kept" not in ran.err
