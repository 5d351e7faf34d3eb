"""A role that owns the table and is no superuser can do everything, with the grants that a plan names and no others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.dialects.postgres.stepping import application, as_if_large, on_engine, rows
from tests.dialects.postgres.verbs import by_verbs
from tideshift.ddl.machine import JobState
from tideshift.errors import PlanRefused

SCHEMA = """
CREATE TABLE app.parent (id int PRIMARY KEY);
INSERT INTO app.parent SELECT generate_series(0, 9);
CREATE TABLE app.t (id int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, p int REFERENCES app.parent, c text, d int);
INSERT INTO app.t (p, c, d) SELECT i % 10, 'c' || i, i FROM generate_series(1, 200) i;
CREATE VIEW app.seen AS SELECT id, c FROM app.t;
GRANT SELECT, INSERT, UPDATE, DELETE ON app.t TO plain_writer;
"""
CHANGES = {
    "shadow": ("ALTER TABLE app.t ALTER d TYPE bigint USING d * 2", "shadow_table"),
    "in place": ("ALTER TABLE app.t ALTER d TYPE bigint USING d * 2", "in_place"),
    "online": ("ALTER TABLE app.t ALTER d SET NOT NULL, ADD CONSTRAINT du UNIQUE (id, d), ADD CONSTRAINT dp CHECK (d > 0)", None),
    "index": ("CREATE INDEX ci ON app.t (c)", None),
}


@pytest.fixture
def owned(postgres_server: Any) -> Iterator[tuple[str, str, str]]:
    """A database with a schema of a plain role's; its URL as the administrator, as that role, and as one that only writes."""
    name = postgres_server.create_database()
    for role in ("plain_owner", "plain_writer"):
        postgres_server.execute(f"CREATE ROLE {role} LOGIN")
        postgres_server.execute(f"ALTER ROLE {role} SET statement_timeout = '2s'; ALTER ROLE {role} SET lock_timeout = '1s'; ALTER ROLE {role} SET default_transaction_isolation = 'serializable'")
    postgres_server.execute(f"GRANT CREATE ON DATABASE {name} TO plain_owner")
    admin = postgres_server.url(name)
    owner, writer = (admin.replace("//tideshift@", f"//{role}@") for role in ("plain_owner", "plain_writer"))
    with application(admin) as connection:
        connection.execute("CREATE SCHEMA app AUTHORIZATION plain_owner; GRANT USAGE ON SCHEMA app TO plain_writer")
    with application(owner) as connection:
        connection.execute(SCHEMA.encode())
    yield admin, owner, writer
    postgres_server.drop_database(name)
    for role in ("plain_owner", "plain_writer"):
        postgres_server.execute(f"DROP ROLE {role}")


@pytest.mark.parametrize("name", CHANGES)
def test_the_owner_of_a_table_needs_no_more(name: str, owned: tuple[str, str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Its own time-outs and its isolation level do not matter, and who may only write the table writes it all the while."""
    _, owner, writer = owned
    statement, strategy = CHANGES[name]
    with on_engine(owner) as engine, as_if_large(monkeypatch), application(writer) as other:
        job_id = engine.ddl.submit(statement, strategy=strategy, keep_old_seconds=0, allow_column_order_change=True).id
        written = 0
        for n in range(2000):
            if engine.ddl.job(job_id).state in (JobState.SYNCED, JobState.CANCELLED, JobState.ROLLBACK_DONE):
                break
            engine.cluster.step()
            if n % 5 == 0 and n < 200:
                written += 1
                other.execute(f"UPDATE app.t SET c = 'w{n}' WHERE id = {1 + n}".encode())
        job = engine.ddl.job(job_id)
        assert (job.state, job.error, job.warnings) == (JobState.SYNCED, None, list(job.current_plan.reshaping.warnings))

    assert rows(owner, "SELECT count(*) FROM app.t WHERE c LIKE 'w%'") == [(written,)]
    assert rows(writer, "UPDATE app.t SET c = 'after' WHERE id = 1 RETURNING id") == [(1,)]


MISSING = {
    "a temporary table": ("REVOKE TEMPORARY ON DATABASE {database} FROM PUBLIC", "GRANT TEMPORARY ON DATABASE {database} TO plain_owner"),
    "to make something in the schema": ("ALTER SCHEMA app OWNER TO tideshift; GRANT USAGE ON SCHEMA app TO plain_owner", 'GRANT CREATE ON SCHEMA "app" TO "plain_owner"'),
    "to use the schema": ("ALTER SCHEMA app OWNER TO tideshift; GRANT CREATE ON SCHEMA app TO plain_owner", 'GRANT USAGE ON SCHEMA "app" TO "plain_owner"'),
    "the table": ("ALTER TABLE app.t OWNER TO tideshift; GRANT ALL ON app.t TO plain_owner", 'GRANT "tideshift" TO "plain_owner"'),
    "a view over it": ("ALTER VIEW app.seen OWNER TO tideshift", "GRANT tideshift TO plain_owner"),
    "its parent": ("ALTER TABLE app.parent OWNER TO tideshift; REVOKE ALL ON app.parent FROM plain_owner", "GRANT REFERENCES ON app.parent TO plain_owner"),
    "its child": ("CREATE TABLE app.child (t int REFERENCES app.t)", "GRANT tideshift TO plain_owner"),
    "a publication": ("CREATE PUBLICATION news FOR TABLE app.t", "GRANT tideshift TO plain_owner"),
    "a function in a check": (
        "CREATE FUNCTION app.fits(int) RETURNS bool LANGUAGE sql IMMUTABLE AS 'SELECT $1 > 0'; ALTER TABLE app.t ADD CHECK (app.fits(p + 1)); REVOKE ALL ON FUNCTION app.fits FROM PUBLIC",
        "GRANT EXECUTE ON FUNCTION app.fits(integer) TO plain_owner",
    ),
    "a type of a column": (
        "CREATE DOMAIN app.small AS int; ALTER TABLE app.t ADD COLUMN s app.small; REVOKE ALL ON TYPE app.small FROM PUBLIC", "GRANT USAGE ON TYPE app.small TO plain_owner",
    ),
    "a type of an array": (
        "CREATE TYPE app.mood AS ENUM ('ok'); ALTER TABLE app.t ADD COLUMN m app.mood[]; REVOKE ALL ON TYPE app.mood FROM PUBLIC", "GRANT USAGE ON TYPE app.mood TO plain_owner",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", MISSING)
def test_a_missing_privilege_is_named_as_the_grant_that_gives_it(what: str, owned: tuple[str, str, str]) -> None:
    """Before anything is made; with that grant, and no other, the plan is had."""
    admin, owner, _ = owned
    taken, given = MISSING[what]
    with by_verbs(owner) as begin, application(admin) as connection:
        connection.execute(taken.replace("{database}", connection.info.dbname).encode())
        grant = given.replace("{database}", connection.info.dbname)
        with pytest.raises(PlanRefused) as refused:
            begin("", CHANGES["shadow"][0])
        assert grant.replace('"', "") in refused.value.message.replace('"', ""), refused.value.message
        connection.execute(grant.encode())
        begin("", CHANGES["shadow"][0]).install()
