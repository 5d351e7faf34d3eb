"""Changes by a shadow table: whatever hangs on the table hangs on it afterwards, and the rest is the server's own change."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dialects.postgres.rich import RICH, ROLES, TABLE, differences
from tests.dialects.postgres.stepping import application, on_engine, rows
from tideshift.ddl.machine import JobState
from tideshift.errors import PlanRefused

CHANGES = {
    "key": f"ALTER TABLE {TABLE} ALTER id TYPE bigint",
    "type": f"ALTER TABLE {TABLE} ALTER amount TYPE numeric(14, 3)",
    "using": f"ALTER TABLE {TABLE} ALTER at TYPE text USING shout(feels::text) || \"Order \"\"s\".code, ALTER serial_no DROP NOT NULL",
    "serial": f"ALTER TABLE {TABLE} ALTER serial_no TYPE bigint",
    "several": f"ALTER TABLE {TABLE} ALTER num TYPE bigint, ADD COLUMN late int DEFAULT 7 CHECK (late > 0), DROP COLUMN pairs, ALTER at SET NOT NULL, ADD UNIQUE (serial_no, id)",
    "dropped": f"ALTER TABLE {TABLE} DROP COLUMN small, DROP CONSTRAINT no_overlap",
    "made": f"ALTER TABLE {TABLE} ADD COLUMN stored text GENERATED ALWAYS AS (code || 's') STORED, ADD COLUMN counted bigint GENERATED ALWAYS AS IDENTITY (START 7)",
    "nothing": f"ALTER TABLE {TABLE} ALTER amount SET DEFAULT 5",
}


@pytest.fixture
def roles(postgres_server: Any) -> Any:
    """The roles that the rich table's privileges name."""
    for role in ROLES:
        postgres_server.execute(f"CREATE ROLE {role}")
    yield
    for role in ROLES:
        postgres_server.execute(f"DROP ROLE {role}")


@pytest.fixture
def two(postgres_server: Any, roles: Any) -> Any:
    """Two databases with the rich table: one for a job, one for the server's own statement."""
    names = [postgres_server.create_database() for _ in range(2)]
    urls = [postgres_server.url(name) for name in names]
    for url, name in zip(urls, names, strict=True):
        with application(url) as connection:
            connection.execute(RICH.encode())
            connection.execute(f'ALTER DATABASE {name} SET search_path = "Shop x", public'.encode())
    yield urls
    for name in names:
        postgres_server.drop_database(name)


def content(url: str) -> list[Any]:
    """Every row of the table and of those beside it, in the order of their keys."""
    return [rows(url, f"SELECT (to_jsonb(t) - 'counted')::text FROM {name} t ORDER BY t.id, 1") for name in (TABLE, '"Shop x".line', '"Shop x".seen')]


@pytest.mark.parametrize("name", CHANGES)
def test_everything_attached_stays(name: str, two: list[str]) -> None:
    """The server's own dump of the whole database is the same as after its own statement, and so is every row."""
    made, twin = two
    with application(twin) as connection:
        connection.execute(CHANGES[name].encode())
        if name == "serial":  # a counter that ends before its column does helps nobody
            connection.execute('ALTER SEQUENCE "Shop x"."Order ""s_serial_no_seq" AS bigint')
        if name == "type":  # the server's own change forgets these
            connection.execute('ALTER INDEX "Shop x".expressed ALTER COLUMN 1 SET STATISTICS 77; ALTER STATISTICS "Shop x".two_of SET STATISTICS 55')
    with on_engine(made) as engine:
        job = engine.run(CHANGES[name], strategy="shadow_table", keep_old_seconds=0)
        assert (job.state, job.error, job.warnings) == (JobState.SYNCED, None, [])
        engine.until(job.id, lambda _: engine.left_behind() == set())

    assert differences(made, twin, "--schema-only") == ""
    assert content(made) == content(twin)
    assert rows(made, f"INSERT INTO {TABLE} (customer, code, at) VALUES (1, 'next', '2025-01-01 UTC') RETURNING id, serial_no") == rows(twin, f"INSERT INTO {TABLE} (customer, code, at) VALUES (1, 'next', '2025-01-01 UTC') RETURNING id, serial_no")
    if name != "made":  # which row has which number is not said
        assert differences(made, twin, "--data-only") == ""


def test_what_cannot_be_carried_over_is_told_at_once(two: list[str]) -> None:
    """With every reason, before anything is made."""
    made, _ = two
    with application(made) as connection:
        connection.execute(
            f"""
            CREATE MATERIALIZED VIEW frozen AS SELECT id FROM {TABLE};
            CREATE FUNCTION of_row(o {TABLE}) RETURNS int LANGUAGE sql AS 'SELECT 1';
            CREATE FUNCTION atomic() RETURNS bigint LANGUAGE sql BEGIN ATOMIC SELECT count(*) FROM {TABLE}; END;
            CREATE TABLE kid () INHERITS ({TABLE});
            CREATE PUBLICATION every FOR ALL TABLES;
            """.encode()
        )
    with on_engine(made) as engine, pytest.raises(PlanRefused) as refused:
        engine.ddl.submit(CHANGES["type"], strategy="shadow_table")

    reasons = "\n".join(refused.value.fields["reasons"])
    for word in ("frozen", "of_row", "atomic", "inherits", "every table"):
        assert word in reasons, reasons


@pytest.mark.parametrize("point", ["ddl.after_settle", "ddl.after_build"])
def test_a_connection_lost_while_the_copy_is_completed_costs_one_more_try(point: str, postgres_url: str, failpoints: Any) -> None:
    """What was not committed is done again, and nothing twice."""
    with application(postgres_url) as connection:
        connection.execute("CREATE TABLE t (id int PRIMARY KEY, u int UNIQUE, c text); INSERT INTO t SELECT i, i, 'c' FROM generate_series(1, 200) i; CREATE INDEX ci ON t (c)")
    with on_engine(postgres_url) as engine:
        enabled = failpoints.enable(point, "1*raise(tideshift.errors.ConnectionLost)")
        job = engine.run("ALTER TABLE t ALTER u TYPE bigint", strategy="shadow_table", keep_old_seconds=0)
        assert (job.state, job.error, job.warnings) == (JobState.SYNCED, None, [])
        assert enabled.hits > 0

    assert rows(postgres_url, "SELECT indexrelid::regclass::text FROM pg_index WHERE indrelid = 't'::regclass ORDER BY 1") == [("ci",), ("t_pkey",), ("t_u_key",)]
