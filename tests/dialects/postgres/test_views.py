"""Views over a table that a job changes: they follow as they would if they had been dropped before and made again by hand."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dialects.postgres.rich import differences
from tests.dialects.postgres.stepping import application, on_engine, rows
from tideshift.ddl.machine import JobState
from tideshift.errors import PlanRefused

ROLES = ("view_owner", "view_reader", "view_granter", "view_last")
TABLE = """
CREATE SCHEMA "api x";
GRANT USAGE ON SCHEMA "api x" TO PUBLIC;
GRANT CREATE ON SCHEMA "api x" TO view_owner;
CREATE TYPE mood AS ENUM ('sad', 'ok');
CREATE FUNCTION written() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END';
CREATE FUNCTION twice(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1 * 2';
CREATE TABLE other (id int PRIMARY KEY, t int);
CREATE TABLE "t x" (id int PRIMARY KEY, a int NOT NULL, "b B" text, feels mood, d numeric(8, 2), gone int);
INSERT INTO "t x" SELECT i, i * 3, 'b' || i, 'ok', i, i FROM generate_series(1, 200) i;
INSERT INTO other SELECT i, i FROM generate_series(1, 50) i;
GRANT SELECT, INSERT ON "t x" TO view_owner;
ANALYZE;
"""
VIEWS = r"""
CREATE VIEW plain AS SELECT id, "b B" FROM "t x" WHERE feels = 'ok';
CREATE MATERIALIZED VIEW kept AS SELECT * FROM plain WHERE id < 100;
CREATE UNIQUE INDEX kept_id ON kept (id);
CREATE VIEW "api x"."t x" WITH (security_barrier = true) AS SELECT id, a, a + id AS sum, "b B" FROM "t x" WITH CASCADED CHECK OPTION;
CREATE VIEW summed AS SELECT feels, sum(a) AS total, count(*) FROM "t x" GROUP BY feels;
CREATE VIEW grouped AS SELECT t.id, t.d, count(o.id) FROM "t x" t LEFT JOIN other o ON o.t = t.a GROUP BY t.id;
CREATE VIEW above WITH (security_invoker = true) AS SELECT v.id, v.a AS "b B", p."b B" AS a, o.id AS other FROM "api x"."t x" v JOIN plain p USING (id) JOIN other o ON o.t = v.id;
CREATE RECURSIVE VIEW deep (n, a) AS SELECT 1, a FROM "t x" WHERE id = 1 UNION ALL SELECT n + 1, a FROM deep WHERE n < 5;
CREATE VIEW top AS SELECT above.*, deep.n FROM above, deep UNION ALL SELECT 0, 0, '', 0, 0;
CREATE VIEW counted AS SELECT count(a) FROM "t x" WHERE a > 5;
ALTER VIEW "api x"."t x" OWNER TO view_owner;
ALTER VIEW "api x"."t x" ALTER COLUMN a SET DEFAULT 7;
REVOKE TRUNCATE ON "api x"."t x" FROM view_owner;
GRANT SELECT, UPDATE ON "api x"."t x" TO view_granter WITH GRANT OPTION;
GRANT INSERT (id, a) ON "api x"."t x" TO PUBLIC;
SET SESSION AUTHORIZATION view_granter;
GRANT SELECT ON "api x"."t x" TO view_reader WITH GRANT OPTION;
SET SESSION AUTHORIZATION view_reader;
GRANT SELECT ON "api x"."t x" TO view_last;
RESET SESSION AUTHORIZATION;
CREATE TRIGGER instead INSTEAD OF INSERT OR UPDATE ON above FOR EACH ROW EXECUTE FUNCTION written();
CREATE TRIGGER after AFTER DELETE ON above FOR EACH STATEMENT EXECUTE FUNCTION written();
CREATE RULE put AS ON INSERT TO top DO INSTEAD INSERT INTO "t x" (id, a) VALUES (NEW.id, NEW."b B");
CREATE RULE hush AS ON DELETE TO top DO INSTEAD NOTHING;
COMMENT ON VIEW above IS 'it''s \ {view} all';
COMMENT ON COLUMN above.a IS 'a''s';
COMMENT ON TRIGGER instead ON above IS 'instead';
COMMENT ON RULE put ON top IS 'puts';
COMMENT ON RULE "_RETURN" ON top IS 'reads';
GRANT SELECT ON top TO view_reader;
"""


@pytest.fixture
def two(postgres_server: Any) -> Any:
    """Two databases: one for a job, one whose views are made when the table has been changed."""
    for role in ROLES:
        postgres_server.execute(f"CREATE ROLE {role} LOGIN")
    names = [postgres_server.create_database() for _ in range(2)]
    urls = [postgres_server.url(name) for name in names]
    for url in urls:
        run(url, TABLE)
    yield urls
    for name in names:
        postgres_server.drop_database(name)
    for role in ROLES:
        postgres_server.execute(f"DROP ROLE {role}")


def run(url: str, text: str) -> None:
    """Run statements as the administrator does."""
    with application(url) as connection:
        connection.execute(text.encode())


def change(url: str, statement: str) -> Any:
    """Carry a change out by a shadow table, and leave nothing."""
    with on_engine(url) as engine:
        job = engine.run(statement, strategy="shadow_table", keep_old_seconds=0)
        assert (job.state, job.error) == (JobState.SYNCED, None)
        engine.until(job.id, lambda _: engine.left_behind() == set())
    return job


CHANGES = {
    "type": 'ALTER TABLE "t x" ALTER a TYPE bigint',
    "types": 'ALTER TABLE "t x" ALTER d TYPE numeric(12, 4), DROP COLUMN gone',
    "renamed": 'ALTER TABLE "t x" RENAME COLUMN "b B" TO again',
    "other": 'ALTER TABLE "t x" ALTER gone TYPE bigint',
}
BY_HAND = {"renamed": ('"b B" FROM "t x" WHERE feels', 'again AS "b B" FROM "t x" WHERE feels'), "renamed too": ('sum, "b B" FROM', 'sum, again AS "b B" FROM')}


@pytest.mark.parametrize("name", CHANGES)
def test_views_are_as_if_they_were_made_again_by_hand(name: str, two: list[str]) -> None:
    """With owner, privileges by whoever granted them, options, defaults, triggers, rules and comments; and they give the same."""
    made, twin = two
    views = VIEWS
    if name == "renamed":
        for old, new in BY_HAND.values():
            assert old in views
            views = views.replace(old, new)
    run(made, VIEWS)
    run(made, 'UPDATE "t x" SET a = a + 1')
    run(twin, 'UPDATE "t x" SET a = a + 1')
    before = rows(made, "SELECT oid FROM pg_class WHERE relname IN ('plain', 'kept') ORDER BY relname")
    run(made, "DELETE FROM other WHERE id = 50; INSERT INTO \"t x\" VALUES (0, 0, 'late', 'ok')")
    run(twin, CHANGES[name])
    run(twin, views)
    run(twin, "DELETE FROM other WHERE id = 50; INSERT INTO \"t x\" (id, a, \"b B\", feels) VALUES (0, 0, 'late', 'ok')" if name != "renamed"
        else "DELETE FROM other WHERE id = 50; INSERT INTO \"t x\" (id, a, again, feels) VALUES (0, 0, 'late', 'ok')")  # fmt: skip

    change(made, CHANGES[name])

    assert differences(made, twin, "--schema-only") == ""
    for view in ("plain", "kept", '"api x"."t x"', "summed", "grouped", "above", "deep", "top", "counted"):
        query = f"SELECT to_jsonb(v)::text FROM {view} v ORDER BY 1"
        assert rows(made, query) == rows(twin, query), view
    assert rows(made, "INSERT INTO \"api x\".\"t x\" (id) VALUES (500) RETURNING a") == [(7,)]
    run(made, "INSERT INTO top (id, \"b B\") VALUES (501, 9)")
    assert rows(made, 'SELECT a FROM "t x" WHERE id = 501') == [(9,)]
    assert rows(made, "SELECT oid FROM pg_class WHERE relname IN ('plain', 'kept') ORDER BY relname") == before


REFUSED = {
    "dropped": ('ALTER TABLE "t x" DROP COLUMN a', "CREATE VIEW v AS SELECT a FROM \"t x\"", "a is used by view public.v"),
    "operator": ('ALTER TABLE "t x" ALTER a TYPE text', "CREATE VIEW v AS SELECT id FROM \"t x\" WHERE a > 5", "the view public.v does not go with the new shape: operator does not exist: text > integer"),
    "above": ('ALTER TABLE "t x" ALTER a TYPE text', "CREATE VIEW v AS SELECT id, a FROM \"t x\"; CREATE VIEW w AS SELECT a + 1 AS b FROM v", "the view public.w does not go with the new shape"),
    "overloaded": ('ALTER TABLE "t x" ALTER a TYPE bigint', "CREATE FUNCTION twice(bigint) RETURNS int LANGUAGE sql AS 'SELECT 0'; CREATE VIEW v AS SELECT twice(a) FROM \"t x\"",
                   "the view public.v would no longer mean the same"),
    "divided": ('ALTER TABLE "t x" ALTER a TYPE numeric', "CREATE VIEW v AS SELECT id FROM \"t x\" WHERE a / 2 = 1", "it divides whole numbers"),
    "function": ('ALTER TABLE "t x" ALTER a TYPE bigint', "CREATE VIEW v AS SELECT a FROM \"t x\"; CREATE FUNCTION f(one v) RETURNS int LANGUAGE sql AS 'SELECT 1'", "function public.f(public.v) uses the view public.v"),
    "policy": ('ALTER TABLE "t x" ALTER a TYPE bigint', "CREATE VIEW v AS SELECT a FROM \"t x\"; CREATE POLICY p ON other USING (id IN (SELECT a FROM v))", "policy p on table public.other uses the view public.v"),
    "materialized": ('ALTER TABLE "t x" ALTER gone TYPE bigint', 'CREATE MATERIALIZED VIEW m AS SELECT a FROM "t x"', "the materialized view public.m reads it"),
    "materialized above": ('ALTER TABLE "t x" ALTER a TYPE bigint', 'CREATE VIEW v AS SELECT a FROM "t x"; CREATE MATERIALIZED VIEW m AS SELECT a FROM v', "the materialized view public.m reads it"),
    "key": ('ALTER TABLE "t x" DROP CONSTRAINT "t x_pkey", ADD CONSTRAINT two PRIMARY KEY (id, a)', "CREATE UNIQUE INDEX u ON \"t x\" (id); CREATE VIEW v AS SELECT id, d FROM \"t x\" GROUP BY id",
            "the view public.v does not go with the new shape"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_a_view_that_cannot_follow_is_named_before_anything_is_made(name: str, two: list[str]) -> None:
    """With the server's words."""
    made, _ = two
    statement, view, words = REFUSED[name]
    run(made, view)

    with on_engine(made) as engine, pytest.raises(PlanRefused) as refused:
        engine.ddl.submit(statement, strategy="shadow_table")

    assert words in "\n".join(refused.value.fields["reasons"])


def test_the_plan_tells_which_column_of_a_view_becomes_another(two: list[str]) -> None:
    """Type by type."""
    made, _ = two
    run(made, VIEWS)

    with on_engine(made) as engine:
        warnings = engine.ddl.plan(CHANGES["type"], strategy="shadow_table").warnings

    assert "the view api x.t x is made anew, and its column a is bigint instead of integer" in warnings
    assert "the view public.summed is made anew, and its column total is numeric instead of bigint" in warnings
    assert not any("counted" in one or "plain" in one for one in warnings)


def test_a_view_that_came_meanwhile_follows_too_or_ends_the_job(two: list[str]) -> None:
    """What came after the plan is read under the lock of the swap."""
    made, _ = two
    with on_engine(made) as engine:
        job = engine.ddl.submit(CHANGES["type"], strategy="shadow_table", keep_old_seconds=0)
        engine.until(job.id, lambda job: job.stage >= 1 and engine.copied(job.id) > 0)
        run(made, 'CREATE VIEW late AS SELECT a FROM "t x"')
        assert engine.finish(job.id).state is JobState.SYNCED
        assert rows(made, "SELECT format_type(atttypid, -1) FROM pg_attribute WHERE attrelid = 'late'::regclass AND attnum = 1") == [("bigint",)]

        job = engine.ddl.submit('ALTER TABLE "t x" ALTER a TYPE numeric', strategy="shadow_table", keep_old_seconds=0)
        engine.until(job.id, lambda job: job.stage >= 1 and engine.copied(job.id) > 0)
        run(made, 'CREATE MATERIALIZED VIEW late_rows AS SELECT a FROM "t x"')
        ended = engine.finish(job.id)

    assert ended.state is JobState.ROLLBACK_DONE
    assert ended.error is not None
    assert "late_rows" in ended.error["message"]


def test_a_view_keeps_nobody_from_other_tables(two: list[str]) -> None:
    """The swap locks the view and not what else it reads, on which its owner may have no right to a lock either."""
    made, _ = two
    run(made, 'CREATE VIEW joined AS SELECT t.id FROM "t x" t JOIN other o ON o.id = t.id; ALTER VIEW joined OWNER TO view_owner; GRANT SELECT ON other TO view_owner')
    with application(made) as reader, on_engine(made) as engine:
        job = engine.ddl.submit(CHANGES["type"], strategy="shadow_table", keep_old_seconds=0)
        with reader.transaction():
            reader.execute("SELECT count(*) FROM other")
            assert engine.finish(job.id).state is JobState.SYNCED


@pytest.mark.parametrize("name", ["type", "wider"])
def test_views_are_set_aside_where_the_server_itself_changes_the_type(name: str, two: list[str]) -> None:
    """In the one short transaction of the change; nothing is copied for their sake."""
    made, twin = two
    statement = {"type": CHANGES["type"], "wider": 'ALTER TABLE "t x" ALTER d TYPE numeric(12, 2)'}[name]
    run(made, VIEWS)
    run(twin, statement)
    run(twin, VIEWS)

    with on_engine(made) as engine:
        job = engine.run(statement)

    assert (job.state, job.strategy) == (JobState.SYNCED, {"type": "direct", "wider": "instant"}[name])
    assert differences(made, twin, "--schema-only") == ""


@pytest.mark.parametrize("name", ["operator", "materialized above", "function"])
def test_what_cannot_be_set_aside_is_named_too(name: str, two: list[str]) -> None:
    """Before anything is made."""
    made, _ = two
    statement, view, words = REFUSED[name]
    run(made, view)

    with on_engine(made) as engine, pytest.raises(PlanRefused) as refused:
        engine.ddl.submit(statement)

    assert words in "\n".join(refused.value.fields["reasons"])
