"""`init`, `upgrade`, `uninstall`, `demo`, and the warning about the library."""

import sqlite3

import pytest

from tests.cli.programs import TO_NUMERIC, Started, ask, make_shop, run, without_the_library
from tideshift.connect import connect
from tideshift.dialects.sqlite.library import library_warnings
from tideshift.store import points as store_points

OURS = "SELECT count(*) FROM sqlite_master WHERE name LIKE 'tideshift%'"


def test_init_twice(shop, inside):
    """`init` creates the system tables; a second run finds them."""
    first, second = inside("init", url=shop), inside("init", url=shop)

    assert (first.code, second.code) == (0, 0)
    assert "created the system tables" in first.err
    assert "are there already" in second.err


def test_dry_run_prints_what_init_would_send(shop, tmp_path, inside):
    """`init --dry-run` writes nothing, and its statements make exactly the tables that `init` makes."""
    other = make_shop(tmp_path / "other.db")
    statements = inside("init", "--dry-run", url=shop).out
    assert ask(shop, OURS) == [(0,)]
    for statement in statements.split(";\n"):
        ask(other, statement)

    inside("init", url=shop)

    catalogue = "SELECT type, name, tbl_name FROM sqlite_master WHERE name LIKE 'tideshift%' ORDER BY name"
    columns = "SELECT m.name, c.name, c.type, c.pk FROM sqlite_master m, pragma_table_info(m.name) c WHERE m.name LIKE 'tideshift%' ORDER BY 1, c.cid"
    assert ask(other, catalogue) == ask(shop, catalogue)
    assert ask(other, columns) == ask(shop, columns)
    assert inside("init", "--dry-run", url=shop).out == ""


@pytest.mark.parametrize(("version", "hint"), [(0, "tideshift upgrade"), (99, "Install that version")])
def test_other_version_is_8(shop, version, hint, inside):
    """Tables of another version are never touched: every command ends with 8 and says what to run."""
    inside("init", url=shop)
    ask(shop, "UPDATE tideshift_system_version SET version = ?", (version,))
    before = ask(shop, OURS)

    for arguments in (["alter", TO_NUMERIC], ["node", "--until-idle"], ["init"], ["jobs"], ["uninstall", "--yes"]):
        ran = inside(*arguments, url=shop)
        assert ran.code == 8, (arguments, ran.err)
        assert hint in ran.err
    assert ask(shop, OURS) == before
    assert inside("doctor", url=shop).code == 1


def test_upgrade_of_present_tables(shop, inside):
    """`upgrade` has nothing to do on tables of this version."""
    inside("init", url=shop)

    ran = inside("upgrade", url=shop)

    assert ran.code == 0
    assert "this version already" in ran.err


def test_missing_table_is_made_again(shop, inside):
    """`alter` creates what is missing of the system tables and says so."""
    inside("init", url=shop)
    ask(shop, "DROP TABLE tideshift_event")

    listed = inside("jobs", url=shop)
    ran = inside("alter", TO_NUMERIC, "--detach", url=shop)

    assert listed.code == 8
    assert ran.code == 0
    assert "created the system tables" in ran.err


def test_uninstall_leaves_nothing(altered, tmp_path, inside):
    """`uninstall` asks for a confirmation, then drops everything that is ours; a second run has nothing to do."""
    path = tmp_path / "copy.db"
    ask(altered[0], "VACUUM INTO ?", (str(path),))
    unconfirmed = inside("uninstall", url=path)

    ran = inside("uninstall", "--yes", url=path)
    again = inside("uninstall", "--yes", url=path)

    assert unconfirmed.code == 2
    assert "--yes" in unconfirmed.err
    assert (ran.code, again.code) == (0, 0), ran.err
    assert ask(path, OURS) == [(0,)]
    assert ask(path, "SELECT count(*) FROM goods") == [(60,)]


def test_uninstall_is_refused_while_a_table_is_missing(shop, inside):
    """With some of the system tables missing nobody can say what is live or kept, so nothing is dropped."""
    inside("alter", TO_NUMERIC, "--detach", url=shop)
    ask(shop, "DROP TABLE tideshift_event")
    before = ask(shop, OURS)

    ran = inside("uninstall", "--yes", url=shop)

    assert ran.code == 8
    assert "First: tideshift init" in ran.err
    assert ask(shop, OURS) == before


def test_uninstall_looks_again_before_it_drops(shop, inside, failpoints):
    """A job that is submitted while `uninstall` is asking is found by the transaction that drops, which then drops nothing."""
    inside("init", url=shop)

    def submit(**_):
        with connect(str(shop)) as connected:
            connected.ddl.submit(TO_NUMERIC)

    failpoints.enable(store_points.BEFORE_BEGIN, "1*call", call=submit, where={"write": True})

    ran = inside("uninstall", "--yes", url=shop)

    assert ran.code == 8
    assert "job 1 is live" in ran.err
    assert inside("job", "1", url=shop).code == 0


def test_uninstall_is_refused_while_a_job_is_live(shop, inside):
    """A live job is named, and nothing is dropped."""
    inside("alter", TO_NUMERIC, "--detach", url=shop)

    ran = inside("uninstall", "--yes", url=shop)

    assert ran.code == 8
    assert "job 1 is live" in ran.err


def test_uninstall_is_refused_while_a_node_is_alive(shop, inside):
    """A node that is alive is named, and nothing is dropped."""
    with Started("node", url=shop) as node:
        node.until("runs with 4 slots")

        ran = inside("uninstall", "--yes", url=shop)

    assert ran.code == 8
    assert "is alive" in ran.err


def test_uninstall_and_kept_tables(tmp_path, inside):
    """A replaced table that is kept is named; --drop-kept drops it as well."""
    path = make_shop(tmp_path / "shop.db", rows=5)
    altered = run("alter", TO_NUMERIC, "--keep-old", "1h", url=path)
    ((kept,),) = ask(path, "SELECT name FROM sqlite_master WHERE type = 'table' AND name GLOB 'tideshift_[0-9]*'")

    refused = inside("uninstall", "--yes", url=path)
    noted = inside("doctor", "--json", url=path)
    ran = inside("uninstall", "--yes", "--drop-kept", url=path)

    assert f"{kept} is kept until" in altered.out
    assert refused.code == 8
    assert kept in refused.err
    assert without_the_library(noted) == (0, [])
    assert "a replaced table is kept until" in noted.out
    assert kept in noted.out
    assert ran.code == 0, ran.err
    assert ask(path, OURS) == [(0,)]
    assert ask(path, "SELECT count(*), sum(price) FROM goods") == [(5, 15)]


@pytest.mark.skipif(not library_warnings(journal_mode="wal", version=sqlite3.sqlite_version_info), reason="the standard library's SQLite has no WAL-reset bug")
def test_library_with_the_wal_bug_is_warned_about_on_every_run(shop):
    """A library with the WAL-reset bug is warned about on one line of every run, naming the extra."""
    old = {"TIDESHIFT_SQLITE": "stdlib"}

    for arguments in (["plan", TO_NUMERIC], ["init"]):
        ran = run(*arguments, url=shop, variables=old)
        warnings = [line for line in ran.err.splitlines() if line.startswith("warning: ")]
        assert ran.code == 0
        assert len(warnings) == 1
        assert "tideshift[sqlite]" in warnings[0]
    assert run("doctor", url=shop, variables=old).code == 1


def test_demo_refuses_a_folder_that_is_not_empty(tmp_path, inside):
    """`demo --keep` writes beside nobody's files, says so on stderr, and leaves with the demonstration's code."""
    (tmp_path / "notes.txt").write_text("mine")

    ran = inside("demo", "--rows", "1000", "--keep", tmp_path)

    assert (ran.code, ran.out) == (2, "")
    assert f"{tmp_path} is not empty" in ran.err
    assert [path.name for path in tmp_path.iterdir()] == ["notes.txt"]


def test_demo_wants_rows_enough_to_be_interrupted(inside):
    """Too few rows are an error of usage that names the option."""
    ran = inside("demo", "--rows", "999")

    assert ran.code == 2
    assert "--rows" in ran.err


def test_demo_takes_the_failpoints_of_the_environment(tmp_path):
    """`demo` looks at TIDESHIFT_FAILPOINTS as every command does, and knows its own points."""
    (tmp_path / "notes.txt").write_text("mine")

    known, unknown = (
        run("--enable-failpoints", "demo", "--keep", tmp_path, variables={"TIDESHIFT_FAILPOINTS": f"{name}=off"})
        for name in ("demo.before_proof", "demo.nowhere")
    )

    assert "is not empty" in known.err
    assert unknown.code == 2
    assert "demo.nowhere" in unknown.err
