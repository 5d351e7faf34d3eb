"""`doctor`: findings are exit code 1, and each says what to do."""

import shutil
import signal

import pytest

from tests.cli.programs import TO_NUMERIC, Started, ask, make_shop, run, without_the_library
from tests.cli.schema_check import check
from tideshift.config import FAST
from tideshift.connect import connect

SLOW = ("--strategy", "shadow_table", "--max-write-speed", "2rows", "--batch-size", "4")


def test_healthy(altered, inside):
    """After a whole job there is nothing to find."""
    path, _ = altered

    ran = inside("doctor", "--json", url=path)

    check("doctor", ran.document)
    assert without_the_library(ran) == (0, [])


def test_nothing_installed(shop, inside):
    """A database without system tables is healthy, and they are not made by looking."""
    ran = inside("doctor", "--json", url=shop)

    assert without_the_library(ran) == (0, [])
    assert "there are no system tables" in ran.document["notes"][0]
    assert ask(shop, "SELECT count(*) FROM sqlite_master WHERE name LIKE 'tideshift%'") == [(0,)]


def test_orphan(shop, inside):
    """A table with a name of ours that belongs to no job is found, with and without system tables."""
    ask(shop, "CREATE TABLE tideshift_7_1c168adb_shadow (a)")

    bare = inside("doctor", "--json", url=shop)
    inside("init", url=shop)
    installed = inside("doctor", "--json", url=shop)

    for ran in (bare, installed):
        check("doctor", ran.document)
        assert without_the_library(ran) == (1, ["orphan"])
    assert "tideshift_7_1c168adb_shadow" in installed.out


def test_missing_tables(shop, inside):
    """Missing system tables are found, with the command that makes them."""
    inside("init", url=shop)
    ask(shop, "DROP TABLE tideshift_event")

    ran = inside("doctor", url=shop)

    assert ran.code == 1
    assert "tideshift init" in ran.out


def test_dead_node_and_capture_that_nobody_reads(tmp_path, inside):
    """A killed node is found on the register, and the job whose writes nobody reads is said aloud, by `jobs` as well."""
    path = make_shop(tmp_path / "shop.db", rows=40)
    with Started("alter", TO_NUMERIC, *SLOW, url=path) as alter:
        alter.until("reorganize: copy")
        alter.signal(signal.SIGKILL)
        alter.end()

    ran = inside("doctor", "--json", url=path)
    listed = inside("jobs", url=path)

    check("doctor", ran.document)
    assert without_the_library(ran) == (1, ["capture_unread", "dead_node"])
    assert "job 1 records every write and no node is alive to read it" in listed.err

    full = '{"reason": "disk_full", "limit": null, "value": null}'
    ask(path, "UPDATE tideshift_dxf_background_subtask SET summary = json_set(summary, '$.throttle', json(?)) WHERE state = 'running'", (full,))
    waiting = inside("doctor", "--json", url=path)
    shown = inside("job", "1", url=path)

    assert without_the_library(waiting) == (1, ["capture_unread", "dead_node", "disk_full"])
    assert "slowed by      disk_full\n" in shown.out


@pytest.fixture
def copied(tmp_path, inside):
    """A copy of a database with a queueing job, which an owner has seen and held."""
    original = make_shop(tmp_path / "shop.db", rows=5)
    inside("alter", TO_NUMERIC, "--detach", url=original)
    ask(original, "PRAGMA wal_checkpoint(TRUNCATE)")
    path = tmp_path / "copy.db"
    shutil.copy(original, path)
    with connect(str(path), profile=FAST) as connected:
        owner = connected.owner("test")
        owner.tick()
        owner.resign()
    return path


def test_copy_is_found_and_adopted(copied, inside):
    """A copied database holds its jobs until a person says --adopt; then they can go on."""
    found = inside("doctor", "--json", url=copied)

    adopted = inside("doctor", "--adopt", url=copied)

    assert without_the_library(found) == (1, ["installation_copied", "job_held"])
    assert "tideshift resume 1" in adopted.err
    assert inside("resume", "1", url=copied).code == 0
    ended = run("watch", "1", "--node", url=copied)
    assert ended.code == 0, ended.err
    assert without_the_library(inside("doctor", "--json", url=copied)) == (0, [])


def test_following_a_held_copy_names_the_way_on(copied, inside):
    """Whoever follows a job that a copy holds is told of `doctor`, since `resume` is refused there."""
    ran = inside("watch", "1", "--timeout", "500ms", url=copied)

    assert ran.code == 6
    assert "tideshift doctor --adopt" in ran.err
    assert "tideshift resume" not in ran.err


def test_node_on_a_copy_ends_when_idle(tmp_path, inside):
    """A copy's jobs wait for a person, also one that was being cancelled: `node --until-idle` says so and ends."""
    original = make_shop(tmp_path / "shop.db", rows=5)
    inside("alter", TO_NUMERIC, "--detach", url=original)
    inside("cancel", "1", url=original)
    ask(original, "PRAGMA wal_checkpoint(TRUNCATE)")
    shutil.copy(original, tmp_path / "copy.db")

    ran = run("node", "--until-idle", url=tmp_path / "copy.db")

    assert ran.code == 0, ran.err
    assert "this database is a copy" in ran.err
    assert ask(tmp_path / "copy.db", "SELECT state FROM tideshift_ddl_job") == [("cancelling",)]


def test_copy_is_cleaned(copied, inside):
    """--clean adopts a copy and cancels its jobs; without a terminal it wants --yes."""
    unconfirmed = inside("doctor", "--clean", url=copied)
    state = ask(copied, "SELECT state FROM tideshift_ddl_job")

    ran = inside("doctor", "--clean", "--yes", url=copied)

    assert unconfirmed.code == 2
    assert state == [("paused",)]
    assert "job 1: cancel applied" in ran.err
    assert ask(copied, "SELECT state FROM tideshift_ddl_job") == [("cancelling",)]


def test_original_is_neither_adopted_nor_cleaned(shop, inside):
    """On a database that is no copy --adopt has nothing to do, and --clean is refused."""
    inside("init", url=shop)

    adopt, clean = inside("doctor", "--adopt", url=shop), inside("doctor", "--clean", "--yes", url=shop)

    assert adopt.code == 0
    assert "nothing to adopt" in adopt.err
    assert clean.code == 8
    assert "tideshift cancel" in clean.err
