"""`pause`, `resume`, `cancel`, `set`: answers, codes, effects."""

import pytest

from tests.cli.programs import TO_INTEGER, TO_NUMERIC, Started, ask, make_shop, run
from tests.cli.schema_check import check
from tideshift.config import PARAMETERS
from tideshift.ddl import points

SLOW = ("--strategy", "shadow_table", "--max-write-speed", "2rows", "--batch-size", "4")


@pytest.fixture
def queued(shop, inside):
    """A database with two queueing jobs and no node."""
    inside("alter", TO_NUMERIC, "--detach", url=shop)
    inside("alter", TO_INTEGER, "--detach", "--yes", url=shop)
    return shop


def test_acknowledged_is_0_and_a_note_when_nobody_is_there(queued, inside):
    """A command is acknowledged at once; that no node is there to complete it is said on stderr."""
    ran = inside("pause", "1", url=queued)

    assert (ran.code, ran.out) == (0, "job 1: pause acknowledged: the job is pausing\n")
    assert "no node is alive" in ran.err


def test_already_so_is_a_success(queued, inside):
    """A command that finds its wish fulfilled is a success, with a note."""
    inside("pause", "1", url=queued)

    again = inside("pause", "1", url=queued)
    running = inside("resume", "2", url=queued)

    assert (again.code, again.out) == (0, "job 1: pause noted, already so: the job is pausing\n")
    assert (running.code, running.out) == (0, "job 2: resume noted, already so: the job is queueing\n")


def test_refusal_is_8_and_prints_the_rule(queued, inside):
    """A command that the state forbids is exit code 8, and the rule is printed."""
    inside("cancel", "1", url=queued)

    ran = inside("pause", "1", url=queued)

    assert ran.code == 8
    assert "the job is cancelling; pause is possible while it is queueing, running" in ran.err


def test_every_id_is_tried(queued, inside):
    """With several ids every one is answered, and the code is that of the first failure in the order 7, 4, 8."""
    inside("cancel", "1", url=queued)

    ran = inside("pause", "1", "99", "2", "1", "--json", url=queued)

    assert ran.code == 4
    check("answers", ran.document)
    assert [(answer["id"], answer["verdict"]) for answer in ran.document["answers"]] == [(1, "refused"), (99, "not found"), (2, "applied")]
    assert ask(queued, "SELECT state FROM tideshift_ddl_job WHERE id = 2") == [("pausing",)]


def test_set_changes_what_is_wished(queued, inside):
    """`set` takes units, checks them, and shows what is wished."""
    ran = inside("set", "1", "threads=8", "batch_size=2000", "max_write_speed=10MiB", "lock_share=35", "--json", url=queued)

    assert ran.code == 0
    check("answers", ran.document)
    parameters = inside("job", "1", "--json", url=queued).document["job"]["parameters"]
    assert {name: value["wished"] for name, value in parameters.items()} == {
        "threads": 8, "batch_size": 2000, "max_write_speed": 10485760, "lock_share": 35, "adaptive": "off", "old_snapshots": "wait 30s", "end_blockers": "off",
    }  # fmt: skip


def test_set_if_rev(queued, inside):
    """--if-rev lets a change pass only while the job is at that rev; else it is a conflict, exit code 8."""
    rev = inside("job", "1", "--json", url=queued).document["job"]["rev"]

    first = inside("set", "1", "threads=2", "--if-rev", rev, url=queued)
    late = inside("set", "1", "threads=3", "--if-rev", rev, url=queued)

    assert (first.code, late.code) == (0, 8)
    assert f"not {rev}" in late.err
    assert inside("job", "1", "--json", url=queued).document["job"]["parameters"]["threads"]["wished"] == 2


def test_wait_without_a_node_times_out(queued, inside):
    """--wait with --timeout gives up with exit code 6; the command stays given."""
    ran = inside("pause", "1", "--wait", "--timeout", "300ms", "--json", url=queued)

    assert ran.code == 6
    check("answers", ran.document)
    assert ran.document["answers"][0]["outcome"] == "open"
    assert ask(queued, "SELECT state FROM tideshift_ddl_job WHERE id = 1") == [("pausing",)]


def test_set_to_what_is_wished_already_is_applied(queued, inside):
    """A change that finds its values wished already has no request to wait for: it is applied once no other one is open."""
    ran = inside("set", "1", "threads=1", "--if-rev", "99", "--wait", "--timeout", "20s", "--json", url=queued)

    assert ran.code == 0, ran.err
    assert [(answer["verdict"], answer["outcome"]) for answer in ran.document["answers"]] == [("already", "applied")]


def test_database_that_stays_busy_is_7(queued, inside, failpoints):
    """A command that the database did not let be given is no refusal: it failed, and may be given again."""
    failpoints.enable(points.BEFORE_JOB_MOVE, 'raise(tideshift.errors.LockTimeout, "the table is locked")', where={"job": 1})

    ran = inside("pause", "1", "2", "--json", url=queued)

    check("answers", ran.document)
    assert (ran.code, ran.error["code"]) == (7, "retryable")
    assert [answer["verdict"] for answer in ran.document["answers"]] == ["failed", "applied"]
    assert "the table is locked" in ran.document["answers"][0]["reason"]


def test_interrupt_ends_the_waiting_for_all(queued):
    """Ctrl-C ends --wait for every id at once, after all answers are told; the commands stay given."""
    with Started("pause", "1", "2", "--wait", "--json", url=queued) as pause:
        pause.until("no node is alive")
        pause.signal()

        ran = pause.end()

    check("answers", ran.document)
    assert (ran.code, ran.error["code"]) == (130, "interrupted")
    assert [(answer["verdict"], answer["outcome"]) for answer in ran.document["answers"]] == [("applied", "open"), ("applied", "open")]
    assert ask(queued, "SELECT state FROM tideshift_ddl_job") == [("pausing",), ("pausing",)]


def test_superseded_command_is_8(queued, inside):
    """A command that a stronger one overtook did not have its effect, and --wait says by what."""
    with Started("pause", "1", "--wait", url=queued) as pause:
        pause.until("no node is alive")
        assert inside("cancel", "1", url=queued).code == 0

        ran = pause.end()

    assert ran.code == 8
    assert "job 1: pause superseded: by cancel" in ran.err


def test_whole_life_with_effects(tmp_path, inside):
    """Each command with --wait returns when its effect is there, and a cancelled `alter` ends with 3, nothing left."""
    path = make_shop(tmp_path / "shop.db", rows=200)
    with Started("alter", TO_NUMERIC, *SLOW, url=path) as alter:
        alter.until("reorganize: copy")
        paused = inside("pause", "1", "--wait", "--timeout", "30s", url=path)
        state_paused = inside("job", "1", "--json", url=path).document["job"]
        changed = inside("set", "1", "batch_size=3", "lock_share=40", "--wait", "--timeout", "30s", url=path)
        resumed = inside("resume", "1", "--wait", "--timeout", "30s", url=path)
        state_resumed = inside("job", "1", "--json", url=path).document["job"]
        cancelled = inside("cancel", "1", "--wait", "--timeout", "30s", "--json", url=path)
        ran = alter.end()

    assert [one.code for one in (paused, changed, resumed, cancelled)] == [0, 0, 0, 0], paused.err + changed.err + resumed.err + cancelled.err
    assert paused.out.endswith("job 1: pause applied\n")
    assert (state_paused["state"], state_paused["paused_by"]) == ("paused", "user")
    assert [value["effective"] for value in state_paused["parameters"].values()] == [None] * len(PARAMETERS), "nothing runs, so nothing is in force"
    assert state_resumed["state"] == "running"
    check("answers", cancelled.document)
    assert cancelled.document["answers"][0]["outcome"] == "applied"
    assert ran.code == 3, ran.err
    assert ran.out == "job 1 rollback done\n"
    assert "job 1 is paused" in ran.err
    assert ask(path, "SELECT name FROM sqlite_master WHERE name GLOB 'tideshift_[0-9]*'") == []
    assert run("wait", "1", url=path).code == 3
