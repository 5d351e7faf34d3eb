"""`init`, `upgrade`, `uninstall`, `demo`, and the warning about the library."""

import sqlite3

import pytest

from tests.cli.programs import TO_NUMERIC, Started, ask, make_shop, run

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
    noted = inside("doctor", url=path)
    ran = inside("uninstall", "--yes", "--drop-kept", url=path)

    assert f"{kept} is kept until" in altered.out
    assert refused.code == 8
    assert kept in refused.err
    assert noted.code == 0, noted.out
    assert "note: a replaced table is kept until" in noted.out
    assert kept in noted.out
    assert ran.code == 0, ran.err
    assert ask(path, OURS) == [(0,)]
    assert ask(path, "SELECT count(*), sum(price) FROM goods") == [(5, 15)]


@pytest.mark.skipif(not (3, 7, 0) <= sqlite3.sqlite_version_info < (3, 44, 6), reason="the standard library's SQLite has no WAL-reset bug")
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


def test_demo_command_runs_the_demonstration(monkeypatch, tmp_path, inside):
    """`demo` hands its options to the demonstration and leaves with its code."""
    import tideshift.frontends.demo as demonstration

    seen = {}
    monkeypatch.setattr(demonstration, "run_demo", lambda **options: seen.update(options) or 1)

    ran = inside("demo", "--rows", "500", "--keep", tmp_path)

    assert ran.code == 1
    assert seen == {"rows": 500, "folder": tmp_path}
