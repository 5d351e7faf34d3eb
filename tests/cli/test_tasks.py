"""`tasks`, `task`, `node drain`, `node --max-idle`: looking at tasks of the framework, commands on them, and nodes that leave."""

import signal

import pytest

from tests.cli.programs import TO_NUMERIC, Started, ask, make_shop, run
from tests.cli.schema_check import check
from tests.waiting import until
from tideshift.config import FAST
from tideshift.connect import connect
from tideshift.dxf.machine import TaskState


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """A database with a job whose copy is under way as a task, and no node."""
    path = make_shop(tmp_path_factory.mktemp("tasks") / "shop.db", rows=40)
    with connect(str(path), profile=FAST, actor="ann") as connected:
        connected.bootstrap()
        connected.ddl.submit(TO_NUMERIC, strategy="shadow_table")
        owner = connected.owner("test")
        for _ in range(30):
            owner.tick()
            if any(connected.dxf.subtasks(task.id) for task in connected.dxf.tasks()):
                break
        owner.resign()
        (task,) = connected.dxf.tasks()
        assert task.state is TaskState.RUNNING
    return path, task.id


def test_tasks(shop, inside):
    """The list shows the task of the job with its progress, for people and for programs."""
    path, task_id = shop

    text, listed = inside("tasks", url=path), inside("tasks", "--json", url=path).document

    check("tasks", listed)
    assert [one["id"] for one in listed["tasks"]] == [task_id]
    assert text.out.split()[:4] == ["ID", "STATE", "TYPE", "KEY"]
    assert listed["tasks"][0]["progress"]["subtasks_total"] >= 1


def test_a_task_is_shown_with_what_was_asked_of_it(shop, inside):
    """Who asked for what, from which value to which, and what became of it."""
    path, task_id = shop

    given = inside("task", "set", task_id, "priority=100", "max_node_count=2", url=path)
    shown = inside("task", task_id, "--json", url=path).document
    text = inside("task", task_id, url=path)

    check("task", shown)
    task = shown["task"]
    assert given.code == 0
    assert "no node is alive" in given.err
    assert task["parameters"]["priority"]["wished"] == 100
    assert task["state"] == "modifying"
    (request,) = task["requests"]
    assert (request["command"], request["before"], request["wished"]) == (
        "modify", {"max_node_count": 0, "priority": 512}, {"max_node_count": 2, "priority": 100}
    )  # fmt: skip
    assert request["outcome"] == "open"
    assert f"task {task_id} modifying" in text.out
    assert "priority: wished 100" in text.out


def test_commands_on_tasks_answer_each(shop, inside):
    """Each id has its own answer; the code is that of the first failure."""
    path, task_id = shop

    ran = inside("task", "pause", task_id, 404, "--json", url=path)

    check("answers", ran.document)
    assert ran.code == 4
    assert [(one["id"], one["verdict"]) for one in ran.document["answers"]] == [(task_id, "applied"), (404, "not found")]


WRONG = {
    "an unknown parameter": (["task", "set", "1", "speed=3"], 2, "there is no parameter 'speed'"),
    "a senseless value": (["task", "set", "1", "priority=5000"], 2, "outside 1 to 1024"),
    "no assignment": (["task", "set", "1"], 2, "Usage"),
    "an outdated look": (["task", "set", "1", "threads=2", "--if-rev", "1"], 8, "the task is at rev"),
    "a task that is not there": (["task", "404"], 4, "there is no task 404"),
    "a word that is no id": (["task", "frob"], 2, "frob"),
    "a node that is not there": (["node", "drain", "nobody"], 4, "there is no node 'nobody'"),
    "a word that node does not know": (["node", "frob"], 2, "is not understood"),
}


@pytest.mark.parametrize("case", WRONG)
def test_wrong_input_is_refused_with_the_reason(shop, inside, case):
    """Nothing is written, and the text says what is wrong."""
    path, _ = shop
    arguments, code, text = WRONG[case]

    ran = inside(*arguments, url=path)

    assert ran.code == code, ran.err
    assert text in ran.err


@pytest.mark.parametrize("how", ["command", "signal"])
def test_a_node_drains(tmp_path, how):
    """By SIGTERM or by a command from elsewhere: it begins nothing new, leaves the register, and ends by itself."""
    path = make_shop(tmp_path / "shop.db", rows=40)
    with Started("node", url=path) as node:
        node.until("runs with 4 slots")
        if how == "signal":
            node.signal(signal.SIGTERM)
        else:
            (name,) = [row[0] for row in ask(path, "SELECT host FROM tideshift_dist_framework_meta")]
            assert run("node", "drain", name, url=path).code == 0

        ran = node.end()

    assert "it is drained" in ran.err
    assert ran.code == (130 if how == "signal" else 0)
    assert ask(path, "SELECT count(*) FROM tideshift_dist_framework_meta") == [(0,)]


def test_a_node_ends_after_it_was_idle_for_so_long(tmp_path):
    """It works off what waits, and stays no longer than asked."""
    path = make_shop(tmp_path / "shop.db", rows=40)
    assert run("alter", TO_NUMERIC, "--detach", "--keep-old", "0s", url=path).code == 0

    ran = run("node", "--max-idle", "1s", url=path)

    assert ran.code == 0
    assert "nothing is left to be done" in ran.err
    assert run("jobs", "--json", url=path).document["jobs"][0]["state"] == "synced"


def test_a_node_of_a_scope_says_so(tmp_path):
    """The register shows the scope, and a name that is none is refused before anything runs."""
    path = make_shop(tmp_path / "shop.db", rows=3)
    with Started("node", "--scope", "reports", url=path) as node:
        node.until("runs with 4 slots")
        until(lambda: run("nodes", "--json", url=path).document["nodes"], "registered")
        (seen,) = run("nodes", "--json", url=path).document["nodes"]

    assert seen["role"] == "reports"
    assert run("node", "--scope", "x" * 65, url=path).code == 2
