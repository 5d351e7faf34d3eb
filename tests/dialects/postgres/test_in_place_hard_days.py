"""What a column that is changed in place meets on a hard day: rows that do not fit, triggers of others, locks; and when it is refused."""

from __future__ import annotations

import psycopg
import pytest

from tests.cli.programs import run
from tests.dialects.postgres.stepping import application, catalogue, on_engine, rows
from tests.dialects.postgres.test_in_place import NUMBER, SCHEMA, WAY, at
from tideshift.ddl.machine import JobState
from tideshift.errors import PlanRefused

MAJORS = (15,)


@pytest.fixture
def made(postgres_url: str) -> str:
    """A small table."""
    with application(postgres_url) as connection:
        connection.execute(SCHEMA.encode())
    return postgres_url


def test_a_refused_value_that_was_taken_back_costs_nothing(made: str) -> None:
    """What counts is what the row holds when it is looked at: one that was mended, one that went, one that was never committed."""
    with on_engine(made) as engine, application(made) as writer:
        job_id = engine.ddl.submit(NUMBER, parameters={"batch_size": 40}, **WAY).id
        at(engine, job_id, "fill the new column")
        writer.execute("UPDATE t SET c = 'x' WHERE id = 7; UPDATE t SET c = '70' WHERE id = 7; INSERT INTO t (id, c) VALUES (999, 'y'); DELETE FROM t WHERE id = 999")
        writer.execute("BEGIN")
        writer.execute("UPDATE t SET c = 'z' WHERE id = 8")
        writer.execute("ROLLBACK")
        job = engine.finish(job_id)
        assert (job.state, job.error) == (JobState.SYNCED, None)

    assert rows(made, "SELECT id, c FROM t WHERE id IN (7, 8, 999) ORDER BY id") == [(7, 70), (8, 8)]


REFUSED_ROWS = {
    "too long": ("ALTER TABLE t ALTER note TYPE varchar(1)", "UPDATE t SET note = 'n0' WHERE id = 200", 200),
    "NULL": ("ALTER TABLE t ALTER c TYPE int USING nullif(c, '150')::int", "SELECT 1", 150),
    "a check": ("ALTER TABLE t ALTER d TYPE bigint USING d - 100", "ALTER TABLE t ADD CONSTRAINT positive CHECK (d > 0); DELETE FROM t WHERE id < 90", None),
    "a placeholder like it": ("ALTER TABLE t ALTER c TYPE varchar(1)", "UPDATE t SET c = '0'; UPDATE t SET c = '0abc' WHERE id = 33", 33),
}


@pytest.mark.parametrize("name", REFUSED_ROWS)
def test_a_row_that_is_there_and_does_not_fit_ends_the_job(name: str, made: str) -> None:
    """With its key, and with everything as it was."""
    statement, before, key = REFUSED_ROWS[name]
    with application(made) as connection:
        connection.execute(before.encode())
    seen = rows(made, "SELECT * FROM t ORDER BY id")
    with on_engine(made) as engine:
        job = engine.run(statement, **WAY)
        assert job.state is JobState.ROLLBACK_DONE
        assert job.error is not None
        assert job.error["code"] == "value_refused"
        assert f"id = {key or ''}" in job.error["message"]
        assert engine.left_behind() == set()

    assert rows(made, "SELECT * FROM t ORDER BY id") == seen


# ── what others do meanwhile ──────────────────────────────────────────────────────────────────────────────────────

DEEDS = {
    "a later trigger": "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'; CREATE TRIGGER \"~~\" BEFORE UPDATE ON t FOR EACH ROW EXECUTE FUNCTION f()",
    "triggers off": "ALTER TABLE t DISABLE TRIGGER ALL; UPDATE t SET c = c || '0'; ALTER TABLE t ENABLE TRIGGER ALL",
    "an index": "CREATE INDEX another ON t (c)",
    "a check": "ALTER TABLE t ADD CHECK (c <> '')",
    "a default": "ALTER TABLE t ALTER c SET DEFAULT 'x'",
    "a materialized view": "CREATE MATERIALIZED VIEW reads AS SELECT c FROM t",
    "a publication": "CREATE PUBLICATION p FOR TABLE t",
}


@pytest.mark.parametrize(("deed", "stage"), [(deed, ("fill the new column", "swap the columns")[number % 2]) for number, deed in enumerate(DEEDS)])
def test_whatever_makes_the_new_column_wrong_or_less_ends_the_job(deed: str, stage: str, made: str) -> None:
    """It is seen in the catalogue at the swap at the latest; what was added meanwhile stays, and nothing of the job does."""
    with on_engine(made) as engine:
        job_id = engine.ddl.submit(NUMBER, parameters={"batch_size": 40}, **WAY).id
        at(engine, job_id, stage)
        with application(made) as connection:
            connection.execute(DEEDS[deed].encode())
        job = engine.finish(job_id)
        assert job.state is JobState.ROLLBACK_DONE
        assert job.error is not None
        assert job.error["code"] == "schema_changed", job.error
        assert engine.left_behind() == set()

    assert [column[1] for column in catalogue(made, "t")[0]] == ["id", "c", "d", "note"]


def test_triggers_of_the_users_do_not_see_the_fill_and_see_every_write(made: str) -> None:
    """One that writes down when a row was changed says so of none that only got its value in the new column; one before ours may change the row."""
    with application(made) as connection:
        connection.execute(
            b"""
            CREATE FUNCTION touch() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.note := ''touched''; NEW.c := NEW.c || ''1''; RETURN NEW; END';
            CREATE TRIGGER zz_touch BEFORE INSERT OR UPDATE ON t FOR EACH ROW EXECUTE FUNCTION touch();
            """
        )
    with on_engine(made) as engine, application(made) as writer:
        job_id = engine.ddl.submit("ALTER TABLE t ALTER d TYPE bigint USING c::bigint", parameters={"batch_size": 40}, **WAY).id
        at(engine, job_id, "compare the new column")
        writer.execute("UPDATE t SET id = id WHERE id = 5")
        job = engine.finish(job_id)
        assert (job.state, job.error) == (JobState.SYNCED, None)

    assert rows(made, "SELECT id, c, d FROM t WHERE note = 'touched'") == [(5, "51", 51)]
    assert rows(made, "SELECT count(*) FROM t WHERE d = c::bigint") == [(300,)]


def test_the_value_hangs_on_no_setting_of_the_session_that_writes(made: str) -> None:
    """Neither on how it shows numbers nor on its search path, even where that finds another function of the same name first."""
    with application(made) as connection:
        connection.execute(
            """
            ALTER TABLE t ADD COLUMN f float8 DEFAULT 0.1;
            CREATE FUNCTION one(float8) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT $1::text';
            CREATE SCHEMA other; CREATE FUNCTION other.one(float8) RETURNS text LANGUAGE sql IMMUTABLE AS $$ SELECT 'wrong' $$;
            """
        )
    with on_engine(made) as engine, application(made) as writer:
        writer.execute("SET extra_float_digits = -15; SET search_path = other, public")
        job_id = engine.ddl.submit("ALTER TABLE t ALTER f TYPE text USING one(f)", **WAY).id
        at(engine, job_id, "fill the new column")
        writer.execute("UPDATE t SET f = 1::float8 / 3 WHERE id = 3")
        job = engine.finish(job_id)
        assert (job.state, job.error) == (JobState.SYNCED, None)

    assert rows(made, "SELECT f FROM t WHERE id IN (2, 3) ORDER BY id") == [("0.1",), ("0.3333333333333333",)]


@pytest.mark.parametrize("what", ["column", "table"])
def test_what_somebody_takes_away_ends_the_job_and_fails_no_statement(what: str, made: str) -> None:
    """The trigger goes with the new column, which cannot be dropped by accident; where the list is gone, a refused value is let be."""
    with on_engine(made) as engine, application(made) as writer:
        job_id = engine.ddl.submit(NUMBER, parameters={"batch_size": 40}, **WAY).id
        at(engine, job_id, "fill the new column")
        (name,) = (name for kind, name in engine.left_behind() if kind == what)
        table, _, column = name.rpartition(".")
        writer.execute(f"ALTER TABLE {table} DROP COLUMN {column} CASCADE".encode() if what == "column" else f"DROP TABLE {name}".encode())
        assert writer.execute("UPDATE t SET c = 'x' WHERE id = 5").rowcount == 1
        job = engine.finish(job_id)
        assert job.state is JobState.ROLLBACK_DONE
        assert job.error is not None
        assert job.error["code"] == "schema_changed", job.error
        assert engine.left_behind() == set()


def test_a_session_that_replicates_fills_the_column_too(made: str) -> None:
    """It fires no ordinary trigger; ours is always fired."""
    with on_engine(made) as engine, application(made) as applying:
        job_id = engine.ddl.submit("ALTER TABLE t ALTER d TYPE bigint", **WAY).id
        at(engine, job_id, "compare the new column")
        applying.execute("SET session_replication_role = replica")
        applying.execute("UPDATE t SET d = 4711 WHERE id = 5")
        assert engine.finish(job_id).state is JobState.SYNCED

    assert rows(made, "SELECT d FROM t WHERE id = 5") == [(4711,)]


def test_a_blocked_swap_gives_up_and_succeeds_later(made: str) -> None:
    """Who is in the way is named, and writers go on meanwhile."""
    with on_engine(made) as engine, application(made) as old, application(made) as other:
        job_id = engine.ddl.submit(NUMBER, **WAY).id
        at(engine, job_id, "swap the columns")
        with old.transaction():
            old.execute("SELECT count(*) FROM t")
            engine.until(job_id, lambda job: job.err_count >= 2)
            other.execute("UPDATE t SET c = '77' WHERE id = 7")
            job = engine.ddl.job(job_id)
            assert job.error is not None
            assert "SELECT count(*) FROM t" in job.error["message"]
        assert engine.finish(job_id).state is JobState.SYNCED

    assert rows(made, "SELECT c FROM t WHERE id = 7") == [(77,)]


def test_an_old_snapshot_is_waited_for_before_the_swap(made: str) -> None:
    """Who began before a row was filled would find nothing in the new column: the job says whom it waits for, holds no lock, and goes on when that is over."""
    with on_engine(made) as engine, application(made) as old, application(made) as other:
        job_id = engine.ddl.submit(NUMBER, **WAY).id
        at(engine, job_id, "swap the columns")
        old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        old.execute("SELECT count(*) FROM pg_catalog.pg_class")
        job = engine.until(job_id, lambda job: job.error is not None and job.error["code"] == "old_snapshots")
        assert f"process {old.info.backend_pid} of" in job.error["message"]
        other.execute("UPDATE t SET c = '77' WHERE id = 7")
        assert old.execute("SELECT c FROM t WHERE id = 5").fetchone() != (None,)
        old.execute("COMMIT")
        assert engine.finish(job_id).state is JobState.SYNCED

    assert rows(made, "SELECT c FROM t WHERE id = 7") == [(77,)]


def test_who_is_in_the_way_of_the_swap_is_ended_on_request(made: str) -> None:
    """Asked for, and only then; the way is free at the next try."""
    with on_engine(made) as engine, application(made) as old:
        job_id = engine.ddl.submit(NUMBER, **WAY, parameters={"end_blockers": "on"}).id
        at(engine, job_id, "swap the columns")
        old.execute("BEGIN")
        old.execute("SELECT count(*) FROM t")
        assert engine.finish(job_id).state is JobState.SYNCED
        with pytest.raises(psycopg.OperationalError):
            old.execute("SELECT 1")


def test_views_over_the_column_follow(made: str) -> None:
    """One that was there before and one that came meanwhile, each with what is on it; a writer sees them all the while."""
    with application(made) as connection:
        connection.execute("CREATE VIEW twice AS SELECT id, c FROM t; CREATE VIEW again AS SELECT * FROM twice; GRANT SELECT ON twice TO PUBLIC; COMMENT ON VIEW again IS 'a view'")
    with on_engine(made) as engine, application(made) as other:
        job_id = engine.ddl.submit(NUMBER, **WAY).id
        at(engine, job_id, "swap the columns")
        other.execute("CREATE VIEW late AS SELECT c FROM t WHERE c <> '3'")
        other.execute("DROP VIEW late; CREATE VIEW late AS SELECT c FROM t WHERE c IS NOT NULL")
        job = engine.finish(job_id)
        assert (job.state, job.error) == (JobState.SYNCED, None)

    assert rows(made, "SELECT sum(c), pg_typeof(min(c))::text FROM again") == [(45150, "integer")]
    assert rows(made, "SELECT count(*) FROM late") == [(300,)]
    assert rows(made, "SELECT obj_description('again'::regclass), relacl IS NOT NULL FROM pg_class WHERE relname = 'twice'") == [("a view", True)]


# ── when it is chosen ─────────────────────────────────────────────────────────────────────────────────────────────

REFUSALS = {
    "not allowed": ("SELECT 1", NUMBER, "--allow-column-order-change"),
    "several": ("SELECT 1", "ALTER TABLE t ALTER c TYPE int USING 1, ALTER d TYPE bigint", "one column"),
    "another kind": ("SELECT 1", "ALTER TABLE t ADD COLUMN g uuid DEFAULT gen_random_uuid()", "one column"),
    "no rewrite": ("SELECT 1", "ALTER TABLE t ALTER note TYPE varchar", "no row must be written"),
    "volatile": ("SELECT 1", "ALTER TABLE t ALTER d TYPE float8 USING random()", "from the row alone"),
    "session": ("ALTER TABLE t ADD COLUMN at timestamptz", "ALTER TABLE t ALTER at TYPE text USING at::text", "from the row alone"),
    "later": ("CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'; CREATE TRIGGER \"ünde\" BEFORE INSERT ON t FOR EACH ROW EXECUTE FUNCTION f()", NUMBER, "ünde"),
    "always": ("CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NEW; END'; CREATE TRIGGER a AFTER UPDATE ON t EXECUTE FUNCTION f(); ALTER TABLE t ENABLE ALWAYS TRIGGER a", NUMBER, "enabled ALWAYS"),
    "unique": ("CREATE UNIQUE INDEX cu ON t (c)", NUMBER, "cu demands unique values"),
    "deferrable": ("ALTER TABLE t ADD CONSTRAINT du UNIQUE (d) DEFERRABLE", "ALTER TABLE t ALTER d TYPE bigint", "du is deferrable"),
    "exclusion": ("ALTER TABLE t ADD CONSTRAINT ex EXCLUDE USING btree (d WITH =)", "ALTER TABLE t ALTER d TYPE bigint", "ex is an exclusion"),
    "no key": ("ALTER TABLE t DROP CONSTRAINT t_pkey", NUMBER, "taken by a key"),
    "view": ("CREATE MATERIALIZED VIEW v AS SELECT c FROM t", NUMBER, "cannot be pointed anew"),
    "publication": ("CREATE PUBLICATION p FOR ALL TABLES", NUMBER, "publishes every column"),
    "domain": ("CREATE DOMAIN small AS int CHECK (VALUE < 1000)", "ALTER TABLE t ALTER d TYPE small", "is a domain"),
    "generated": ("ALTER TABLE t ADD COLUMN g int GENERATED ALWAYS AS (id + 1) STORED", "ALTER TABLE t ALTER g TYPE bigint", "generated"),
    "heirs": ("CREATE TABLE heir () INHERITS (t)", NUMBER, "inherits"),
    "foreign": ("CREATE TABLE e (t int REFERENCES t)", "ALTER TABLE t ALTER id TYPE text", "would compare"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_what_cannot_be_done_right_is_refused_before_anything_is_made(name: str, made: str) -> None:
    """With the reason."""
    before, statement, reason = REFUSALS[name]
    with application(made) as connection:
        connection.execute(before.encode())
    way = {**WAY, "allow_column_order_change": name != "not allowed"}
    with on_engine(made) as engine, pytest.raises(PlanRefused) as refused:
        engine.ddl.submit(statement, **way)

    assert reason in "\n".join(refused.value.fields["reasons"]), refused.value.fields["reasons"]


def test_the_command_line_asks_for_the_permission_and_says_what_breaks(made: str) -> None:
    """A refusal is exit 5 and names the option; with it the plan lists what breaks."""
    asked = ("plan", NUMBER, "--strategy", "in_place")

    refused = run(*asked, url=made)
    planned = run(*asked, "--allow-column-order-change", url=made)

    assert refused.code == 5, refused.err
    assert "--allow-column-order-change" in refused.err
    assert planned.code == 0, planned.err
    assert "in_place_column" in planned.out
    assert "warning: after the swap c stands last" in planned.out


def test_it_is_taken_by_itself_only_where_a_shadow_is_refused_and_it_is_allowed(made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the permission the refusal names it; what breaks is told before."""
    monkeypatch.setattr("tideshift.dialects.postgres.estimate.LOCK_BUDGET_SECONDS", 0.0)
    with on_engine(made) as engine:
        plain = engine.ddl.plan(NUMBER, allow_column_order_change=True)
        with application(made) as connection:
            connection.execute("CREATE MATERIALIZED VIEW m AS SELECT id FROM t")
        with pytest.raises(PlanRefused) as refused:
            engine.ddl.plan(NUMBER)
        proposal = engine.ddl.plan(NUMBER, allow_column_order_change=True)
        job = engine.run(NUMBER, allow_column_order_change=True)

    assert plain.plan.strategy == "shadow_table"
    assert "--allow-column-order-change" in refused.value.hint
    assert "materialized view" in refused.value.message
    assert proposal.plan.strategy == "in_place_column"
    told = "\n".join(proposal.warnings)
    for words in ("SELECT *", "INSERT INTO", "COPY", "(id, d, note, c)", "40001"):
        assert words in told
    assert (job.state, job.error) == (JobState.SYNCED, None)
