"""Partitioned tables: every change ends as the server's own statement on all partitions, and is made in each of them beside the traffic."""

from __future__ import annotations

from typing import Any

import pytest

from tests.dialects.postgres.stepping import application, as_if_large, on_engine, rows
from tests.dialects.postgres.test_every_statement import HELD, STRENGTH, Case, portrait, strongest
from tests.waiting import until
from tideshift.ddl.machine import JobState
from tideshift.dialects.postgres.native import PostgresNative
from tideshift.errors import PlanRefused

SCHEMA = """
CREATE SCHEMA "Sal""es x"; CREATE SCHEMA other; SET search_path = "Sal""es x", public;
CREATE TABLE public.parent (id int PRIMARY KEY, code text UNIQUE);
INSERT INTO public.parent SELECT i, 'c' || i FROM generate_series(0, 9) i;
CREATE TABLE "P p" (id int, "K k" int, part int, b text DEFAULT 'q', p int, CONSTRAINT pos CHECK (p >= 0), v varchar(5)) PARTITION BY RANGE (part);
CREATE TABLE p1 PARTITION OF "P p" FOR VALUES FROM (0) TO (10);
CREATE TABLE other."P 2" (b text DEFAULT 'q', part int, p int, id int, "K k" int, v varchar(5), CONSTRAINT pos CHECK (p >= 0));
ALTER TABLE "P p" ATTACH PARTITION other."P 2" FOR VALUES FROM (10) TO (20);
CREATE TABLE p3 PARTITION OF "P p" FOR VALUES FROM (20) TO (30) PARTITION BY LIST ("K k");
CREATE TABLE p3a PARTITION OF p3 FOR VALUES IN (20, 21, 22, 23, 24); CREATE TABLE p3b PARTITION OF p3 DEFAULT;
INSERT INTO "P p" (id, "K k", part, b, p) SELECT i, i % 30, i % 30, 'b' || i, i % 10 FROM generate_series(1, 300) i;
CREATE INDEX was ON "P p" (b);
CREATE INDEX p1_own ON p1 (p);
CREATE TABLE hashed (id int PRIMARY KEY, a int) PARTITION BY HASH (id);
CREATE TABLE hashed_0 PARTITION OF hashed FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE hashed_new (id int NOT NULL, a int);
INSERT INTO hashed_new SELECT i, i FROM generate_series(1, 200) i WHERE satisfies_hash_partition('hashed'::regclass, 2, 1, i);
CREATE TABLE listed (id int NOT NULL, kind text, p int REFERENCES public.parent, UNIQUE (id, kind)) PARTITION BY LIST (kind);
CREATE INDEX listed_p ON listed (p);
CREATE TABLE listed_a PARTITION OF listed FOR VALUES IN ('a'); CREATE TABLE "listed D" PARTITION OF listed DEFAULT;
INSERT INTO listed SELECT i, (ARRAY['a', 'x', NULL])[i % 3 + 1], i % 10 FROM generate_series(1, 90) i;
CREATE TABLE "New" (p int, id int NOT NULL, kind text); INSERT INTO "New" SELECT i % 10, i, 'new' FROM generate_series(1, 100) i;
CREATE TABLE ranged (id int, PRIMARY KEY (id)) PARTITION BY RANGE (id); CREATE TABLE ranged_1 PARTITION OF ranged FOR VALUES FROM (1) TO (100);
CREATE TABLE ranged_2 PARTITION OF ranged FOR VALUES FROM (100) TO (200); INSERT INTO ranged SELECT generate_series(1, 150);
CREATE TABLE ranged_3 (LIKE ranged INCLUDING ALL); INSERT INTO ranged_3 SELECT generate_series(200, 299);
ANALYZE;
"""
S = '"Sal""es x"'
P = f'{S}."P p"'
CASES = {
    "add column": Case(f"ALTER TABLE {P} ADD z int DEFAULT 3, ALTER b SET DEFAULT 'x', ALTER p DROP NOT NULL"),
    "drop column": Case(f"ALTER TABLE {P} DROP COLUMN b"),
    "rename column": Case(f'ALTER TABLE {P} RENAME COLUMN "K k" TO kk'),
    "type without a rewrite": Case(f"ALTER TABLE {P} ALTER v TYPE varchar(9)"),
    "rename": Case(f"ALTER TABLE {P} RENAME TO other_name"),
    "not null": Case(f"ALTER TABLE {P} ALTER p SET NOT NULL", "native_online"),
    "check": Case(f"ALTER TABLE {P} ADD CONSTRAINT c CHECK (p < 50)", "native_online"),
    "check on a partition": Case("ALTER TABLE other.\"P 2\" ADD CONSTRAINT c CHECK (part < 20), ALTER b SET DEFAULT 'other', ALTER id SET NOT NULL", "native_online"),
    "foreign key": Case(f'ALTER TABLE {P} ADD CONSTRAINT "f k" FOREIGN KEY (p) REFERENCES public.parent ON DELETE CASCADE', "native_online"),
    "index": Case(f'CREATE INDEX "new I" ON {P} (lower(b) DESC, p) WITH (fillfactor = 70) WHERE p > 2', "native_online"),
    "index that one has": Case(f"CREATE INDEX p_p ON {P} (p)", "native_online"),
    "unique index": Case(f'CREATE UNIQUE INDEX u ON {S}.p3 (id, "K k")', "native_online"),
    "unique": Case(f'ALTER TABLE {P} ADD CONSTRAINT "U!" UNIQUE (id, part, "K k") DEFERRABLE', "native_online"),
    "primary key": Case(f'ALTER TABLE {P} ADD PRIMARY KEY (id, part, "K k")', "native_online"),
    "drop index": Case(f"DROP INDEX {S}.was"),
    "drop constraint": Case(f"ALTER TABLE {P} DROP CONSTRAINT pos"),
    "reindex": Case(f"REINDEX TABLE {P}", "native_online"),
    "attach with a default": Case(f"ALTER TABLE {S}.listed ATTACH PARTITION {S}.\"New\" FOR VALUES IN ('new', 'newer')", "native_online"),
    "attach by hash": Case(f"ALTER TABLE {S}.hashed ATTACH PARTITION {S}.hashed_new FOR VALUES WITH (MODULUS 2, REMAINDER 1)", "native_online"),
    "attach by range": Case(f"ALTER TABLE {S}.ranged ATTACH PARTITION {S}.ranged_3 FOR VALUES FROM (200) TO (MAXVALUE)", "native_online"),
    "attach as default": Case(f"ALTER TABLE {S}.ranged ATTACH PARTITION {S}.ranged_3 DEFAULT", "native_online"),
    "detach from a default": Case(f"ALTER TABLE {S}.listed DETACH PARTITION {S}.listed_a"),
    "detach": Case(f"ALTER TABLE {S}.ranged DETACH PARTITION {S}.ranged_1 CONCURRENTLY", "native_online"),
}

MORE = {
    "foreign key": {"public.parent"},  # Before 18: when the table's key takes over the partitions', their triggers there are dropped.
    "attach with a default": {"public.parent"},
    "index": {'Sal"es x.P p'}, "index that one has": {'Sal"es x.P p'},  # Before 18: when the index of a partitioned partition turns valid.
    "unique": {'Sal"es x.p1', 'other.P 2', 'Sal"es x.p3', 'Sal"es x.p3a', 'Sal"es x.p3b'},  # ADD CONSTRAINT … USING INDEX
    "unique index": set(), "primary key": set(),
}  # fmt: skip
"""Where a step needs a stronger lock for its moment than the server's own statement has all the while."""


@pytest.fixture
def prepared(postgres_server: Any) -> Any:
    """Two databases of the same content."""
    names = [postgres_server.create_database() for _ in range(2)]
    urls = [postgres_server.url(name) for name in names]
    for url in urls:
        with application(url) as connection:
            connection.execute(SCHEMA.encode())
    yield urls
    for name in names:
        postgres_server.drop_database(name)


@pytest.fixture
def made(postgres_url: str) -> str:
    """One of them."""
    with application(postgres_url) as connection:
        connection.execute(SCHEMA.encode())
    return postgres_url


@pytest.mark.parametrize("name", CASES)
def test_it_ends_as_the_servers_own_and_locks_no_more(name: str, prepared: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns, constraints, indexes, bounds and their names are equal in every partition; no scan is left for the last statement."""
    case, (ours, twin) = CASES[name], prepared
    with application(twin) as connection:
        if "CONCURRENTLY" in case.statement:
            connection.execute(case.statement.encode())
            servers = dict.fromkeys(("Sal\"es x.ranged", "Sal\"es x.ranged_1"), STRENGTH.index("AccessExclusiveLock"))
        elif case.statement.startswith("REINDEX"):
            servers = {}
            connection.execute(case.statement.encode())
        else:
            with connection.transaction():
                connection.execute(case.statement.encode())
                servers = strongest(connection.execute(HELD.encode()).fetchall())

    held: list[tuple[str, str]] = []
    scanned: list[tuple[Any, ...]] = []
    scans = "SELECT relid::regclass::text, seq_scan FROM pg_stat_xact_user_tables WHERE seq_scan > 0 AND schemaname <> 'tideshift'"
    change = PostgresNative.change

    def watched(self: Any, tx: Any, *arguments: Any, **more: Any) -> None:
        before = tx.run_verbatim(scans).rows
        change(self, tx, *arguments, **more)
        held.extend(tx.run_verbatim(HELD).rows)
        scanned.extend(set(tx.run_verbatim(scans).rows) - set(before))

    with on_engine(ours) as engine, as_if_large(monkeypatch):
        monkeypatch.setattr(PostgresNative, "change", watched)
        job = engine.run(case.statement)
        assert (job.state, job.error, job.warnings) == (JobState.SYNCED, None, [])
        assert str(job.strategy) == case.strategy
        assert engine.left_behind() == set()
    for table, mode in strongest(held).items():
        assert mode <= servers.get(table, 0) or table in MORE.get(name, ()), (table, STRENGTH[mode], servers)
    assert scanned == []
    assert portrait(ours) == portrait(twin)
    bounds = "SELECT oid::regclass::text, pg_get_expr(relpartbound, oid), relispartition FROM pg_class WHERE relispartition ORDER BY 1"
    assert rows(ours, bounds) == rows(twin, bounds)
    assert rows(ours, "SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid") == []


VIOLATED = {
    f"ALTER TABLE {P} ADD CONSTRAINT c CHECK (id <> 25)": "does not fit",
    f'ALTER TABLE {P} ADD CONSTRAINT u UNIQUE (p, part, "K k")': "is duplicated",
    f'CREATE UNIQUE INDEX u ON {S}.p3 (p, "K k")': "is duplicated",
    f"ALTER TABLE {P} ADD CONSTRAINT f FOREIGN KEY (id) REFERENCES public.parent": "is not present",
    f"ALTER TABLE {S}.listed ATTACH PARTITION {S}.\"New\" FOR VALUES IN ('other')": "does not fit",
    f"ALTER TABLE {S}.listed ATTACH PARTITION {S}.\"New\" FOR VALUES IN ('new', 'x')": "does not fit",
}


@pytest.mark.parametrize("statement", VIOLATED)
def test_rows_that_do_not_fit_end_the_job_and_leave_nothing(statement: str, made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """In no partition, whichever of them has the row."""
    before = portrait(made)
    with on_engine(made) as engine, as_if_large(monkeypatch):
        job = engine.run(statement)
        assert job.state in (JobState.ROLLBACK_DONE, JobState.CANCELLED)
        assert job.error is not None
        assert (job.error["code"], VIOLATED[statement] in job.error["message"]) == ("value_refused", True), job.error
        assert engine.left_behind() == set()

    assert portrait(made) == before


@pytest.mark.parametrize(("name", "at"), [("index", 1), ("index", 4), ("index", 7), ("primary key", 1), ("primary key", 5), ("attach with a default", 2), ("attach with a default", 6), ("foreign key", 3)])
def test_a_cancel_at_any_step_leaves_nothing(name: str, at: int, made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The indexes, checks and keys that were made in some of the partitions go again."""
    before = portrait(made)
    with on_engine(made) as engine, as_if_large(monkeypatch):
        job_id = engine.ddl.submit(CASES[name].statement).id
        engine.until(job_id, lambda job: job.stage == at)
        engine.ddl.cancel(job_id)
        assert engine.finish(job_id).state in (JobState.ROLLBACK_DONE, JobState.CANCELLED)
        assert engine.left_behind() == set()

    assert portrait(made) == before


REFUSED = {
    f"ALTER TABLE {P} ALTER p TYPE bigint": "it is partitioned",
    f"ALTER TABLE {P} ALTER part TYPE bigint": "partition key",
    f"ALTER TABLE {P} ADD CONSTRAINT u UNIQUE (id)": "must include all partitioning columns",
    f"CREATE UNIQUE INDEX u ON {P} (id)": "must include all partitioning columns",
    f"ALTER TABLE {S}.p1 ADD COLUMN z int": "cannot add column to a partition",
    f"ALTER TABLE {S}.p1 DROP COLUMN b": "cannot drop inherited column",
    f"ALTER TABLE {S}.p1 RENAME COLUMN b TO c": "cannot rename inherited column",
    f"ALTER TABLE {S}.p1 DROP CONSTRAINT pos": "cannot drop inherited constraint",
    f"DROP INDEX {S}.p1_b_idx": "is part of the index",
    f"ALTER TABLE {S}.p1 ATTACH PARTITION {S}.\"New\" DEFAULT": "p1 is not partitioned",
    f"ALTER TABLE {S}.listed ATTACH PARTITION {S}.\"New\" FOR VALUES IN ('a')": "would overlap partition",
    f"ALTER TABLE {S}.listed ATTACH PARTITION {S}.\"New\" DEFAULT": "conflicts with existing default partition",
    f"ALTER TABLE {S}.listed ATTACH PARTITION public.parent FOR VALUES IN ('b')": "contains column",
    f"ALTER TABLE {S}.listed ATTACH PARTITION {S}.listed_a FOR VALUES IN ('b')": "is a partition already",
    f"ALTER TABLE {S}.listed DETACH PARTITION {S}.p1": "is no partition of listed",
    f"ALTER TABLE {S}.ranged DETACH PARTITION {S}.ranged_1 FINALIZE": "is not half detached",
    f"ALTER TABLE {S}.ranged DETACH PARTITION {S}.ranged_1, ADD z int": "stands alone",
}


def test_what_cannot_be_is_refused_with_the_servers_reason(made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is made, since it is tried on an empty copy that is partitioned in the same way."""
    with on_engine(made) as engine, as_if_large(monkeypatch):
        for statement, words in REFUSED.items():
            with pytest.raises(PlanRefused) as caught:
                engine.ddl.plan(statement)
            assert words in caught.value.message, (statement, caught.value.message)


@pytest.mark.parametrize("name", ["index", "unique", "check", "foreign key", "not null"])
def test_a_partition_that_comes_meanwhile_is_noticed(name: str, made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It gets what the others get, or the job ends and says so; it never stays without."""
    with on_engine(made) as engine, as_if_large(monkeypatch):
        job_id = engine.ddl.submit(CASES[name].statement).id
        engine.until(job_id, lambda job: job.stage >= 2)
        with application(made) as connection:
            connection.execute(f"CREATE TABLE {S}.late PARTITION OF {P} FOR VALUES FROM (40) TO (50)".encode())
        job = engine.finish(job_id)
        assert engine.left_behind() == set()
        if job.state is not JobState.SYNCED:
            assert job.error is not None
            assert (job.error["code"], "late has come since" in job.error["message"].replace('"', "")) == ("schema_changed", True), job.error

    assert rows(made, "SELECT indexrelid::regclass::text FROM pg_index WHERE NOT indisvalid") == []
    of = "SELECT count(*) FROM pg_index WHERE indrelid = '{0}'::regclass", "SELECT count(*) FROM pg_constraint WHERE conrelid = '{0}'::regclass", (
        "SELECT count(*) FROM pg_attribute WHERE attrelid = '{0}'::regclass AND attnotnull AND attnum > 0"
    )
    for query in of:
        extra = 1 if "pg_index" in query else 0  # p1 has an index of its own
        assert rows(made, query.format(f"{S}.late"))[0][0] == rows(made, query.format(f"{S}.p1"))[0][0] - extra, query


def test_a_partition_that_goes_meanwhile_ends_the_job(made: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was made in it before stays nowhere."""
    with on_engine(made) as engine, as_if_large(monkeypatch):
        job_id = engine.ddl.submit(CASES["index"].statement).id
        engine.until(job_id, lambda job: job.stage >= 3)
        with application(made) as connection:
            connection.execute(f"ALTER TABLE {P} DETACH PARTITION {S}.p1".encode())
        job = engine.finish(job_id)
        assert job.state is JobState.ROLLBACK_DONE
        assert job.error is not None
        assert "is no partition any more" in job.error["message"]
        assert engine.left_behind() == set()


@pytest.mark.parametrize("end", ["kill", "wait"])
def test_a_detach_that_is_cut_off_is_finished(end: str, made: str) -> None:
    """The server leaves the partition half detached; the next try finalizes it. Who holds it up is shown meanwhile."""
    statement = f"ALTER TABLE {S}.ranged DETACH PARTITION {S}.ranged_1"
    with on_engine(made) as engine, application(made) as reader:
        job_id = engine.ddl.submit(statement).id
        reader.execute(f"BEGIN; SELECT count(*) FROM {S}.ranged".encode())
        with engine.connected.service():
            until(lambda: rows(made, "SELECT 1 FROM pg_inherits WHERE inhdetachpending"), "it is marked as leaving")
            waits_for = until(lambda: engine.ddl.show(job_id)["waits_for"], lambda: str(engine.ddl.show(job_id)))
            assert [one["process"] for one in waits_for] == [reader.info.backend_pid]
            if end == "kill":
                (pid,) = rows(made, "SELECT pid FROM pg_stat_activity WHERE query LIKE 'ALTER TABLE%DETACH%' AND state = 'active'")[0]
                rows(made, f"SELECT pg_terminate_backend({pid}, 5000)")
            reader.execute("COMMIT")
            until(lambda: engine.ddl.job(job_id).state is JobState.SYNCED, lambda: str(engine.ddl.show(job_id)))

    assert rows(made, f"SELECT inhrelid FROM pg_inherits WHERE inhrelid = '{S}.ranged_1'::regclass") == []
    assert rows(made, f"SELECT count(*) FROM {S}.ranged_1") == [(99,)]


def test_small_partitioned_tables_are_changed_at_once(made: str) -> None:
    """By the server's own statement under a lock of moments."""
    with on_engine(made) as engine:
        for name in ("index", "unique", "foreign key", "attach with a default", "check"):
            job = engine.run(CASES[name].statement)
            assert (job.state, str(job.strategy)) == (JobState.SYNCED, "direct"), name


def test_whose_partitions_belong_to_others_is_told_the_grant(made: str, postgres_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server asks for the owner of each partition; so it is asked before anything is made."""
    name = f"part_owner_{postgres_server.major}"
    with application(made) as connection:
        connection.execute(f"CREATE ROLE {name} LOGIN; ALTER TABLE {P} OWNER TO {name}; GRANT ALL ON SCHEMA {S}, other TO {name}; GRANT ALL ON DATABASE {connection.info.dbname} TO {name}".encode())
    try:
        with on_engine(made.replace("//tideshift@", f"//{name}@")) as engine, as_if_large(monkeypatch), pytest.raises(PlanRefused) as caught:
            engine.ddl.plan(f"CREATE INDEX i ON {P} (p)")
        assert [one for one in caught.value.fields["reasons"] if 'other."P 2"' in one] == [f'only the owner of its partition other."P 2" may change it: GRANT "tideshift" TO "{name}"']
    finally:
        with application(made) as connection:
            connection.execute(f"DROP SCHEMA tideshift CASCADE; REASSIGN OWNED BY {name} TO tideshift; DROP OWNED BY {name} CASCADE; DROP ROLE {name}".encode())
