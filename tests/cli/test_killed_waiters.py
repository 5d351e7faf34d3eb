"""Whoever waits for a job is killed, at each phase of the job: the job goes on, or somebody can go on with it."""

import signal
from pathlib import Path

import pytest

from tests.cli.programs import TO_INTEGER, Started, ask, make_shop, run
from tests.waiting import until

ROWS = 10
ALTER = ("alter", TO_INTEGER, "--strategy", "shadow_table", "--lock-share", "100", "--yes")
PLACES = {
    "queueing": "ddl.after_submit",
    "check rows": "dxf.after_chunk_work",
    "copy": "ddl.after_copy_chunk",
    "catch up": "ddl.after_apply",
    "verify": "ddl.after_compare",
    "cut over": "ddl.in_cutover",
    "purge": "ddl.before_purge_chunk",
}
"""For each phase of a job a place where the code stands in it; what a death at every other place leaves is for the crash tests."""


def assert_carried_out(path):
    """Every row has its new type, the job says so, and nothing of it is left."""
    assert ask(path, "SELECT count(*), sum(price) FROM strict_goods WHERE typeof(price) = 'integer'") == [(ROWS, ROWS * (ROWS + 1) // 2)]
    assert ask(path, "SELECT state FROM tideshift_ddl_job_history") == [("synced",)]
    assert ask(path, "SELECT name FROM sqlite_master WHERE name GLOB 'tideshift_[0-9]*'") == []


@pytest.mark.parametrize("phase", PLACES)
def test_a_process_that_waits_and_works_is_killed(phase, tmp_path):
    """`alter` runs a node of its own: with it the work stops, and `watch --node` goes on with it to the end."""
    path = make_shop(tmp_path / "shop.db", rows=ROWS)
    killed = run("--enable-failpoints", *ALTER, url=path, variables={"TIDESHIFT_FAILPOINTS": f"{PLACES[phase]}=kill"})
    assert killed.code == -signal.SIGKILL, killed.err

    watched = run("watch", "1", "--node", url=path)

    assert watched.code == 0, watched.err
    assert_carried_out(path)


def wait_stopped(node):
    """Wait until the node has stopped itself."""

    def state():
        text = Path(f"/proc/{node.process.pid}/stat").read_text()
        return text[text.rindex(")") + 2]

    until(lambda: state() == "T", lambda: f"a node that has stopped: {''.join(node.lines[-5:])}")


def test_processes_that_only_wait_are_killed_one_after_another(tmp_path):
    """`alter`, `watch` and `wait` are killed while a node elsewhere stands in each phase in turn: the node carries the job out alone."""
    path = make_shop(tmp_path / "shop.db", rows=ROWS)
    with Started(*ALTER, "--no-node", url=path) as alter:
        alter.until("queueing")
        alter.signal(signal.SIGKILL)
    phases = ("check rows", "copy", "catch up", "verify", "cut over")
    stops = ";".join(f"{PLACES[phase]}=1*stop" for phase in phases)
    with Started("--enable-failpoints", "node", "--until-idle", url=path, variables={"TIDESHIFT_FAILPOINTS": stops}) as node:
        for phase in phases:
            wait_stopped(node)
            with Started("wait", "1", url=path) as wait, Started("watch", "1", url=path) as watch:
                watch.until(phase)
                wait.signal(signal.SIGKILL)
                watch.signal(signal.SIGKILL)
            node.signal(signal.SIGCONT)

        ended = node.end()

    assert ended.code == 0, ended.err
    assert_carried_out(path)


@pytest.mark.parametrize(("command", "moved", "state"), [("pause", "pausing", "paused"), ("cancel", "cancelling", "rollback done")])
def test_a_process_that_waits_for_a_command_is_killed(command, moved, state, tmp_path):
    """A command that was acknowledged stays given, though nobody waits for its effect any more."""
    path = make_shop(tmp_path / "shop.db", rows=ROWS)
    run(*ALTER, "--detach", url=path)
    between_chunks = {"TIDESHIFT_FAILPOINTS": "dxf.after_chunk@task=2=1*stop"}
    with Started("--enable-failpoints", "node", url=path, variables=between_chunks) as node:
        wait_stopped(node)
        with Started(command, "1", "--wait", url=path) as waiting:
            until(lambda: ask(path, "SELECT state FROM tideshift_ddl_job") == [(moved,)], f"the job is {moved}")
            waiting.signal(signal.SIGKILL)
        node.signal(signal.SIGCONT)
        until(
            lambda: (state,) in ask(path, "SELECT state FROM tideshift_ddl_job UNION ALL SELECT state FROM tideshift_ddl_job_history"),
            lambda: f"the job is {state}: {''.join(node.lines[-5:])}",
        )
        node.signal()
        node.end()

    assert ask(path, "SELECT count(*) FROM strict_goods WHERE typeof(price) = 'text'") == [(ROWS,)]
