"""The command line on a PostgreSQL server: what a person asks before, during and after a job."""

from __future__ import annotations

import psycopg
import pytest

from tests.cli.programs import Started
from tests.cli.schema_check import check

CHANGE = "ALTER TABLE t ALTER u TYPE bigint"


@pytest.fixture
def shop_url(postgres_url):
    """A small table; the URL as a person writes it."""
    url = postgres_url.replace("+psycopg", "")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, u int); INSERT INTO t SELECT i, i FROM generate_series(1, 50) i; CREATE VIEW v AS SELECT u FROM t")
    return url


def test_wishes_for_the_cut_over_are_told_and_changed(shop_url, inside):
    """By options and by `set`, answered at once; what is not understood is an error of usage."""
    made = inside("alter", CHANGE, "--strategy", "shadow_table", "--detach", "--yes", "--old-snapshots", "wait 2m", "--end-blockers", "--json", url=shop_url)
    assert made.code == 0
    check("job", made.document)
    before = made.document["job"]["parameters"]
    changed = inside("set", "1", "old_snapshots=proceed", "end_blockers=off", "--wait", url=shop_url)
    after = inside("job", "1", "--json", url=shop_url).document["job"]["parameters"]
    wrong = [inside("alter", CHANGE, "--old-snapshots", "soon", url=shop_url), inside("set", "1", "end_blockers=maybe", url=shop_url)]

    assert [before[name]["wished"] for name in ("old_snapshots", "end_blockers")] == ["wait 120s", "on"]
    assert (changed.code, "set applied" in changed.out) == (0, True)
    assert [after[name]["wished"] for name in ("old_snapshots", "end_blockers")] == ["proceed", "off"]
    assert [ran.code for ran in wrong] == [2, 2]
    assert "Write wait 30s, or proceed" in wrong[0].err
    assert "neither on nor off" in wrong[1].err


def test_plan_tells_what_becomes_of_views_and_what_a_crash_can_take(shop_url, inside):
    """In the record that scripts read."""
    ran = inside("plan", CHANGE, "--strategy", "shadow_table", "--json", url=shop_url)

    check("plan", ran.document)
    assert any("view public.v is made anew, and its column u is bigint" in warning for warning in ran.document["plan"]["warnings"])
    assert "fsync = off" in ran.document["plan"]["durability"]["setting"]


def test_uninstall_is_refused_while_a_job_lives_and_leaves_nothing_afterwards(shop_url, inside):
    """Neither a schema nor a table, trigger or function of ours."""
    inside("alter", CHANGE, "--strategy", "shadow_table", "--detach", "--yes", url=shop_url)
    refused = inside("uninstall", "--yes", url=shop_url)
    worked = inside("node", "--until-idle", url=shop_url)
    kept = inside("uninstall", "--yes", url=shop_url)
    gone = inside("uninstall", "--yes", "--drop-kept", url=shop_url)

    assert [ran.code for ran in (refused, worked, kept, gone)] == [8, 0, 8, 0]
    assert "job 1 is live" in refused.err
    with psycopg.connect(shop_url) as connection:
        left = connection.execute(
            "SELECT nspname FROM pg_namespace WHERE nspname = 'tideshift' UNION ALL SELECT relname FROM pg_class WHERE relname LIKE '%tideshift%'"
            " UNION ALL SELECT proname FROM pg_proc WHERE proname LIKE '%tideshift%' UNION ALL SELECT tgname FROM pg_trigger WHERE tgname LIKE '%tideshift%'"
        ).fetchall()
        assert left == []
        assert connection.execute("SELECT pg_typeof(u)::text, count(*) FROM v GROUP BY 1").fetchall() == [("bigint", 50)]


@pytest.mark.parametrize(("version", "word"), [(2, "newer"), (0, "older")])
def test_a_node_stops_where_the_system_tables_become_another_versions(version, word, shop_url, inside):
    """It gives back what it has, and says why; one of another version does not start."""
    with Started("node", url=shop_url) as node:
        node.until("runs with")
        with psycopg.connect(shop_url, autocommit=True) as connection:
            connection.execute("UPDATE tideshift.system_version SET version = %s", (version,))
        ended = node.end()
    other = inside("node", "--until-idle", url=shop_url)

    assert (ended.code, other.code) == (8, 8)
    assert f"made by a{'n' if word == 'older' else ''} {word} version" in ended.err
    with psycopg.connect(shop_url) as connection:
        assert connection.execute("SELECT count(*) FROM tideshift.dist_framework_meta").fetchone() == (0,)


def test_nobody_takes_the_tables_to_a_newer_version_under_a_node_that_works(shop_url, inside):
    """The node that is alive is named."""
    inside("init", url=shop_url)
    with psycopg.connect(shop_url, autocommit=True) as connection:
        columns = "host, role, cpu_count, keyspace_id, heartbeat_at, started_at, version, draining"
        connection.execute(
            f"INSERT INTO tideshift.dist_framework_meta ({columns}) VALUES ('busy', '', 1, 0, extract(epoch FROM clock_timestamp()) * 1000, 0, '0', false)".encode()
        )
        connection.execute("UPDATE tideshift.system_version SET version = 0")
    refused = inside("upgrade", url=shop_url)

    assert refused.code == 8
    assert "node busy is alive" in refused.err
