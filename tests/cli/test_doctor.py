"""`doctor`: findings are exit code 1, and each says what to do."""

import os
import shutil
import signal
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cli.programs import TO_NUMERIC, Started, ask, make_shop, run, without_the_library
from tests.cli.schema_check import check
from tests.servers import sqlite_module
from tests.waiting import until
from tideshift.config import FAST
from tideshift.connect import connect
from tideshift.dialects.points import DISK_FREE

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
        until(lambda: ask(path, "SELECT 1 FROM tideshift_dxf_background_subtask WHERE state = 'running'"), "a subtask that runs")
        alter.signal(signal.SIGKILL)
        alter.end()

    ran = inside("doctor", "--json", url=path)
    listed = inside("jobs", url=path)

    check("doctor", ran.document)
    assert without_the_library(ran) == (1, ["capture_unread", "dead_node"])
    assert any("its log has about" in finding["message"] for finding in ran.document["findings"])
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


@pytest.mark.parametrize("strategy", ["shadow_table", "direct"])
def test_a_kept_table_is_no_orphan(strategy, tmp_path, inside):
    """Nor are its indexes, which go with it."""
    path = make_shop(tmp_path / "shop.db")
    inside("alter", TO_NUMERIC, "--strategy", strategy, "--keep-old", "1h", url=path)

    ran = inside("doctor", "--json", url=path)

    assert ask(path, "SELECT count(*) > 0 FROM sqlite_master WHERE type = 'table' AND name GLOB 'tideshift_[0-9]*'") == [(1,)]
    assert without_the_library(ran) == (0, [])
    assert any("is kept until" in note for note in ran.document["notes"])


def test_settings_worth_changing_are_notes(tmp_path, inside):
    """They are the user's choice, so they are told and nothing more."""
    path = tmp_path / "odd.db"
    with closing(sqlite_module().connect(path, isolation_level=None)) as connection:
        for text in ("PRAGMA page_size = 1024", "PRAGMA auto_vacuum = FULL", "CREATE TABLE t (a)"):
            connection.execute(text)

    ran = inside("doctor", "--json", url=path)

    assert without_the_library(ran) == (0, [])
    for part in ("pages of 1024 bytes", "auto_vacuum is FULL", "the journal mode is delete"):
        assert any(part in note for note in ran.document["notes"]), part


def test_a_disk_with_little_room_is_found(shop, inside, failpoints):
    """Before jobs begin to wait for it."""
    failpoints.enable(DISK_FREE, "return(1000)")

    ran = inside("doctor", "--json", url=shop)

    check("doctor", ran.document)
    assert without_the_library(ran) == (1, ["disk_low"])


@pytest.mark.parametrize("library", ["stdlib", None])
def test_the_library_is_named(library, shop):
    """Version, module, and whether it has the bug: a note, whatever it says."""
    chosen = {} if library is None else {"TIDESHIFT_SQLITE": library}

    ran = run("doctor", "--json", url=shop, variables=chosen)

    notes = [note for note in ran.document["notes"] if note.startswith("SQLite 3.")]
    assert len(notes) == 1
    assert ("by the module sqlite3" in notes[0]) is (library == "stdlib" or sqlite_module().__name__ == "sqlite3")
    assert ("It has the WAL-reset bug" in notes[0]) is any(finding["code"] == "sqlite_library" for finding in ran.document["findings"])
    assert ran.code == bool(ran.document["findings"])


def test_what_a_power_failure_can_take_is_said(shop, inside):
    """In both forms, by the journal mode that the file has."""
    text, ran = inside("doctor", url=shop), inside("doctor", "--json", url=shop)
    ask(shop, "PRAGMA journal_mode = DELETE")
    other = inside("doctor", "--json", url=shop)

    check("doctor", ran.document)
    assert [one.document["durability"]["setting"] for one in (ran, other)] == ["journal mode wal", "journal mode delete"]
    for sentence in ran.document["durability"].values():
        assert sentence in text.out


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="this system does not tell who holds a lock")
@pytest.mark.parametrize("mode", ["WAL", "DELETE"])
def test_who_holds_the_write_lock_is_named(mode, tmp_path, inside):
    """By `doctor`, where it is held all the time that is looked, and by `job` where one waits for it."""
    path = make_shop(tmp_path / "shop.db", rows=5)
    ask(path, f"PRAGMA journal_mode = {mode}")
    inside("alter", TO_NUMERIC, "--detach", url=path)
    free = inside("job", "1", "--json", url=path)
    with closing(sqlite_module().connect(path, isolation_level=None)) as application:
        application.execute("BEGIN IMMEDIATE")

        held = inside("doctor", "--json", url=path)
        shown, listed = inside("job", "1", url=path), inside("jobs", "--json", url=path)

    (finding,) = [finding for finding in held.document["findings"] if finding["code"] == "lock_held"]
    assert f"process {os.getpid()} (" in finding["message"]
    assert f"write lock     held at this moment by process {os.getpid()} (" in shown.out
    assert listed.document["jobs"][0]["lock_holder"]["process"] == os.getpid()
    check("jobs", listed.document)
    assert free.document["job"]["lock_holder"] is None
    assert without_the_library(inside("doctor", "--json", url=path)) == (0, [])


@pytest.mark.skipif(not Path("/proc/locks").exists(), reason="this system does not tell who holds a lock")
def test_a_lock_that_keeps_even_readers_out_is_named_in_the_error(tmp_path, inside, monkeypatch):
    """With a rollback journal a writer that commits lets nobody read; then the error says who it is."""
    monkeypatch.setitem(connect.__kwdefaults__, "profile", replace(FAST, system_lock_wait_seconds=0.1))
    path = make_shop(tmp_path / "shop.db", rows=5)
    ask(path, "PRAGMA journal_mode = DELETE")
    with closing(sqlite_module().connect(path, isolation_level=None)) as application:
        application.execute("BEGIN EXCLUSIVE")

        ran = inside("doctor", "--json", url=path)

    assert ran.code == 7
    assert ran.error["hint"].startswith(f"process {os.getpid()} (")


# ── copies of a job in mid copy ───────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(params=["its node is killed", "its node goes on"])
def copied_midway(request, tmp_path):
    """A copy of a database whose job was copying rows at that moment; nobody has touched the copy yet."""
    original, path = make_shop(tmp_path / "shop.db", rows=40), tmp_path / "copy.db"
    with Started("alter", TO_NUMERIC, *SLOW, url=original) as alter:
        alter.until("reorganize: copy")
        with closing(sqlite_module().connect(original)) as source, closing(sqlite_module().connect(path)) as target:
            source.backup(target)
        if request.param == "its node is killed":
            alter.signal(signal.SIGKILL)
            alter.end()
        yield path


def _copied_halfway(path):
    assert ask(path, "SELECT count(*) FROM sqlite_master WHERE type = 'trigger' AND name GLOB 'tideshift_1_*'") == [(3,)]
    return ask(path, "SELECT state FROM tideshift_ddl_job") == [("running",)]


def test_a_copy_of_a_job_midway_is_found_with_its_job(copied_midway, inside):
    """The job is named, and no advice is given that a copy refuses."""
    assert _copied_halfway(copied_midway)

    ran = inside("doctor", "--json", url=copied_midway)
    listed = inside("jobs", url=copied_midway)

    assert without_the_library(ran) == (1, ["capture_unread", "installation_copied"])
    for finding in ran.document["findings"]:
        assert "doctor --adopt" in finding["hint"] or finding["code"] == "sqlite_library"
        assert "tideshift node" not in finding["hint"]
    (copied,) = [finding for finding in ran.document["findings"] if finding["code"] == "installation_copied"]
    assert "its unfinished jobs: 1 (modify column on goods, running)" in copied["message"]
    assert "this is a copy, so see: tideshift doctor" in listed.err or "no node is alive" not in listed.err


def test_a_copy_of_a_job_midway_is_adopted(copied_midway, inside):
    """The job goes on here from where it was copied, and ends with every row; a node that looked before only held it."""
    held = run("node", "--until-idle", url=copied_midway)

    adopted = inside("doctor", "--adopt", url=copied_midway)
    inside("set", "1", "max_write_speed=none", url=copied_midway)
    resumed = inside("resume", "1", url=copied_midway)
    ended = run("watch", "1", "--node", url=copied_midway)

    assert "this database is a copy" in held.err
    assert "tideshift resume 1" in adopted.err
    assert resumed.code == 0
    assert ended.code == 0, ended.err
    assert ask(copied_midway, "SELECT count(*), count(DISTINCT typeof(price)), min(typeof(price)) FROM goods") == [(40, 1, "integer")]
    assert without_the_library(inside("doctor", "--json", url=copied_midway)) == (0, [])


def test_a_copy_that_nobody_looked_at_goes_on_when_it_is_adopted(copied_midway, inside):
    """No owner has held the job there, so there is nothing to resume: the next node takes it up."""
    adopted = inside("doctor", "--adopt", url=copied_midway)
    inside("set", "1", "max_write_speed=none", url=copied_midway)
    ended = run("watch", "1", "--node", url=copied_midway)

    assert "job 1 is taken up by the next node" in adopted.err
    assert "tideshift resume" not in adopted.err
    assert ended.code == 0, ended.err
    assert ask(copied_midway, "SELECT DISTINCT typeof(price) FROM goods") == [("integer",)]


def test_a_copy_of_a_job_midway_is_cleaned(copied_midway, inside):
    """The job is undone by the next node; the copy is as if there had never been one."""
    cleaned = inside("doctor", "--clean", "--yes", url=copied_midway)
    ran = run("node", "--until-idle", url=copied_midway)

    assert "job 1: cancel applied" in cleaned.err
    assert ran.code == 0, ran.err
    assert ask(copied_midway, "SELECT state FROM tideshift_ddl_job_history") == [("rollback done",)]
    assert ask(copied_midway, "SELECT name FROM sqlite_master WHERE name GLOB 'tideshift_[0-9]*'") == []
    assert ask(copied_midway, "SELECT count(*), min(typeof(price)) FROM goods") == [(40, "text")]
    assert without_the_library(inside("doctor", "--json", url=copied_midway)) == (0, [])
