"""`jobs`, `job`, `watch`, `wait`, `nodes`: looking, and the documents for programs."""

import json
import os
import signal
import subprocess

import pytest

from tests.cli.programs import PROGRAM, TO_INTEGER, TO_NUMERIC, Started, environment, make_shop, run
from tests.cli.schema_check import check
from tideshift.config import FAST
from tideshift.connect import connect
from tideshift.frontends.cli.register import is_any_alive


@pytest.fixture(scope="module")
def history(tmp_path_factory):
    """A database with three cancelled jobs, one queueing job and no node."""
    path = make_shop(tmp_path_factory.mktemp("history") / "shop.db", rows=3)
    with connect(str(path), profile=FAST) as connected:
        connected.bootstrap()
        first = [connected.ddl.submit(TO_NUMERIC).id for _ in range(3)]
        connected.ddl.cancel(*first)
        owner = connected.owner("test")
        while owner.tick():  # ends: the owner cancels each of them once
            continue
        owner.resign()
        connected.ddl.submit(TO_INTEGER)
    return path


def test_jobs_for_people(history, inside):
    """The list shows live jobs and finished ones, newest first, as plain text."""
    ran = inside("jobs", url=history)

    assert ran.code == 0
    lines = ran.out.splitlines()
    assert lines[0].split() == ["ID", "STATE", "SCHEMA", "STATE", "TABLE", "TYPE", "PERCENT", "ROWS", "ROWS/S", "ETA", "STAGE"]
    assert [line.split()[:2] for line in lines[1:]] == [["4", "queueing"], ["3", "cancelled"], ["2", "cancelled"], ["1", "cancelled"]]


def test_pages(history, inside):
    """`next` leads from page to page, until it is null."""
    first = inside("jobs", "-n", "2", "--json", url=history).document
    second = inside("jobs", "-n", "2", "--before", first["next"], "--json", url=history).document

    check("jobs", first)
    check("jobs", second)
    assert [job["id"] for job in first["jobs"]] == [4, 3, 2]
    assert [job["id"] for job in second["jobs"]] == [1]
    assert second["next"] is None
    assert "--before 2" in inside("jobs", "-n", "2", url=history).err


def test_only_live_jobs(history, inside):
    """-n 0 shows live jobs only."""
    assert [job["id"] for job in inside("jobs", "-n", "0", "--json", url=history).document["jobs"]] == [4]


def test_no_jobs(shop, inside):
    """An empty list says so on stderr, and is an empty document."""
    inside("init", url=shop)

    assert inside("jobs", url=shop).out == ""
    assert "there are no jobs" in inside("jobs", url=shop).err
    assert inside("jobs", "--json", url=shop).document == {"version": 1, "jobs": [], "next": None}


def test_job_for_people(history, inside):
    """One job is shown with what it does, what is wished and in force, and what may be asked of it."""
    live = inside("job", "4", url=history)
    ended = inside("job", "1", url=history)

    assert live.code == ended.code == 0
    for part in (TO_INTEGER, "queueing", "batch_size", "10000 wished, none in force", "allowed        pause, cancel, set"):
        assert part in live.out
    assert "allowed        nothing" in ended.out
    assert "error          cancelled" in ended.out


@pytest.mark.parametrize("command", ["job", "watch", "wait"])
def test_unknown_job_is_4(history, command, inside):
    """A job that does not exist is exit code 4."""
    ran = inside(command, "99", "--json", url=history)

    assert ran.code == 4
    check("error", {"version": 1, "error": ran.error})


def test_wait_for_ended_jobs(history, inside):
    """`wait` prints how each job ended; the code is that of the first failure."""
    ran = inside("wait", "1", "2", url=history)
    both = inside("wait", "1", "99", url=history)
    documents = [json.loads(line) for line in inside("wait", "1", "2", "--json", url=history).out.splitlines()]

    assert (ran.code, ran.out) == (3, "job 1 cancelled\njob 2 cancelled\n")
    assert both.code == 4
    assert [document["job"]["id"] for document in documents] == [1, 2]
    check("job", documents[0])


def test_wait_times_out(history, inside):
    """A job that nobody carries out lets `wait` end with 6 after its time."""
    ran = inside("wait", "4", "--timeout", "300ms", url=history)

    assert ran.code == 6
    assert "no node is alive" in ran.err


def test_watch_of_an_ended_job(altered, inside):
    """Watching a job that has ended prints its end and the code of its end."""
    path, _ = altered

    ran = inside("watch", "1", "--json", url=path)

    assert ran.code == 0
    check("event", ran.document)
    assert ran.document["event"] == "ended"


def test_watch_as_json_lines(tmp_path):
    """`watch --json` prints one document per line: seen, changes, and the end."""
    path = make_shop(tmp_path / "shop.db", rows=20)
    run("alter", TO_NUMERIC, "--strategy", "shadow_table", "--detach", url=path)

    ran = run("watch", "1", "--node", "--json", url=path)

    assert ran.code == 0, ran.err
    lines = [json.loads(line) for line in ran.out.splitlines()]
    for line in lines:
        check("event", line)
    assert lines[0]["event"] == "seen"
    assert "changed" in [line["event"] for line in lines[1:-1]]
    assert (lines[-1]["event"], lines[-1]["job"]["state"]) == ("ended", "synced")


def test_live_and_finished_are_listed_together_newest_first(shop, inside):
    """A job that ended stands above an older one that is live; without finished ones `next` still leads to them."""
    with connect(str(shop), profile=FAST) as connected:
        connected.bootstrap()
        paused, cancelled = (connected.ddl.submit(TO_NUMERIC).id for _ in range(2))
        connected.ddl.pause(paused)
        connected.ddl.cancel(cancelled)
        owner = connected.owner("test")
        while owner.tick():  # ends: the owner pauses the one and cancels the other
            continue
        owner.resign()

    both = inside("jobs", "--json", url=shop).document
    live = inside("jobs", "-n", "0", "--json", url=shop).document
    rest = inside("jobs", "--before", live["next"], "--json", url=shop).document

    assert [job["id"] for job in both["jobs"]] == [2, 1]
    assert both["next"] is None
    assert [job["id"] for job in live["jobs"]] == [1]
    assert [job["id"] for job in rest["jobs"]] == [2]


def test_only_another_node_goes_on(shop):
    """A node of this process that is still on the register is nobody who goes on with a job."""
    with connect(str(shop), profile=FAST) as connected:
        connected.bootstrap()
        node = connected.node()
        node.register("test")

        assert is_any_alive(connected)
        assert not is_any_alive(connected, but=node.name)


def test_watched_list(history):
    """`jobs --watch --json` prints the list whenever it changes, until Ctrl-C."""
    with Started("jobs", "--watch", "--json", url=history) as watch:
        document = json.loads(watch.process.stdout.readline())
        watch.signal(signal.SIGINT)
        ran = watch.end()

    check("jobs", document)
    assert ran.code == 130


def test_reader_who_goes_away(history):
    """A closed pipe ends a command quietly, with the code of a program that a closed pipe has ended."""
    reads, writes = os.pipe()
    os.close(reads)

    ran = subprocess.run([*PROGRAM, "jobs"], stdout=writes, stderr=subprocess.PIPE, env=environment(history, None), text=True, check=False)
    os.close(writes)

    said = [line for line in ran.stderr.splitlines() if not line.startswith("warning: ")]
    assert (ran.returncode, said) == (141, [])


def test_nodes(tmp_path, inside):
    """`nodes` lists who is registered, alive or dead, with slots and the age of the last heartbeat."""
    path = make_shop(tmp_path / "shop.db", rows=3)
    with Started("node", "--slots", "2", url=path) as node:
        node.until("runs with 2 slots")
        alive = inside("nodes", "--json", url=path).document
        text = inside("nodes", url=path)
        node.signal(signal.SIGKILL)
        node.end()
    dead = inside("nodes", "--json", url=path).document

    check("nodes", alive)
    check("nodes", dead)
    assert [(one["state"], one["slots"]) for one in alive["nodes"]] == [("alive", 2)]
    assert [one["state"] for one in dead["nodes"]] == ["dead"]
    assert text.out.splitlines()[1].split()[1:3] == ["alive", "2"]


def test_node_until_idle(tmp_path, inside):
    """`node --until-idle` works off what waits, purges included, and ends with 0; a paused job does not keep it."""
    path = make_shop(tmp_path / "shop.db", rows=3)
    inside("alter", TO_NUMERIC, "--detach", url=path)
    inside("alter", TO_INTEGER, "--detach", "--yes", url=path)
    inside("pause", "2", url=path)

    ran = run("node", "--until-idle", url=path)

    assert ran.code == 0, ran.err
    jobs = {job["id"]: job for job in inside("jobs", "--json", url=path).document["jobs"]}
    assert (jobs[1]["state"], jobs[2]["state"]) == ("synced", "paused")
    assert jobs[1]["artifacts"] == []
    assert inside("nodes", "--json", url=path).document["nodes"] == []
