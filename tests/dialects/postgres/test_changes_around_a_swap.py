"""What a swap of two tables loses when it is done by hand, and what other sessions do to a job and a job to them."""

from __future__ import annotations

import threading

import psycopg
import pytest

from tests.dialects.postgres.stepping import application, as_if_large
from tests.dialects.postgres.verbs import Begin
from tests.waiting import until
from tideshift.ddl.dialect import Strategy
from tideshift.ddl.reorg.verify import settle
from tideshift.ddl.statement import parse_statement
from tideshift.errors import LockTimeout, PlanRefused, SchemaChanged, TideshiftError

TABLE = "CREATE TABLE t (id int PRIMARY KEY, c text, d int); INSERT INTO t SELECT i, 'c' || i, i FROM generate_series(1, 20) i"
CHANGE = "ALTER TABLE t ALTER d TYPE bigint"
NAMES = "SELECT relkind::text, relname::text FROM pg_class WHERE relnamespace = to_regnamespace('{schema}') ORDER BY 1, 2"


def test_numbers_that_were_given_are_not_given_again(begin: Begin) -> None:
    """Counters go on where they were, after deleted rows too, and generated columns are generated."""
    change = begin(
        "CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY (START 100 INCREMENT 5) PRIMARY KEY, no serial, d int, twice int GENERATED ALWAYS AS (d * 2) STORED);"
        " INSERT INTO t (d) SELECT i FROM generate_series(1, 20) i; DELETE FROM t WHERE d > 15", "ALTER TABLE t ALTER no TYPE bigint",
    )  # fmt: skip
    change.carry_out(lambda: change.execute("INSERT INTO t (d) VALUES (70); DELETE FROM t WHERE d = 70"))

    assert change.execute("INSERT INTO t (d) VALUES (50) RETURNING id, no, twice") == [(100 + 21 * 5, 22, 100)]
    assert change.execute("SELECT count(*), sum(twice) FROM t") == [(16, 340)]


def test_names_stay_however_often_a_table_is_changed(begin: Begin) -> None:
    """Also names as long as may be, which would be cut with anything added."""
    long = "t" * 63
    change = begin(
        f"CREATE SCHEMA long; CREATE TABLE long.{long} (id serial PRIMARY KEY, c text CONSTRAINT {'c' * 63} UNIQUE, d int); CREATE INDEX {'i' * 63} ON long.{long} (d)",
        f"ALTER TABLE long.{long} ALTER d TYPE bigint",
    )  # fmt: skip
    before = change.execute(NAMES.format(schema="long"))
    for kind in ("text", "bigint"):
        change.carry_out()
        change.execute(f"DROP TABLE {change.named('shadow')}")
        assert change.execute(NAMES.format(schema="long")) == before
        change = begin("", f"ALTER TABLE long.{long} ALTER d TYPE {kind} USING d::{kind}")


def test_names_that_must_be_quoted(begin: Begin) -> None:
    """In a schema that no search path names, with references both ways."""
    weird = '"Weird ""T"".x"."Sel ""ect"'
    change = begin(
        f'CREATE SCHEMA "Weird ""T"".x"; CREATE TABLE "Weird ""T"".x".parent (id int PRIMARY KEY);'
        f' CREATE TABLE {weird} ("Sel ect" int PRIMARY KEY, "from" int REFERENCES "Weird ""T"".x".parent, "naïve 😀" text DEFAULT \'%s\');'
        f' CREATE TABLE "Weird ""T"".x"."chi.ld" (t int REFERENCES {weird} ON DELETE CASCADE); INSERT INTO "Weird ""T"".x".parent VALUES (1);'
        f' INSERT INTO {weird} VALUES (1, 1, \'a\'), (2, NULL, \'b\'); INSERT INTO "Weird ""T"".x"."chi.ld" VALUES (1)',
        f'ALTER TABLE {weird} ALTER "naïve 😀" TYPE varchar(9), ALTER "from" TYPE bigint',
    )  # fmt: skip
    change.carry_out(lambda: change.execute(f'UPDATE {weird} SET "naïve 😀" = \'new\' WHERE "Sel ect" = 2'))

    assert change.execute(f'SELECT * FROM {weird} ORDER BY 1') == [(1, 1, "a"), (2, None, "new")]
    assert len(change.execute(f"SELECT 1 FROM pg_constraint WHERE contype = 'f' AND '{weird}'::regclass IN (conrelid, confrelid)")) == 2
    change.execute(f'DELETE FROM {weird} WHERE "Sel ect" = 1')
    assert change.execute('SELECT * FROM "Weird ""T"".x"."chi.ld"') == []


def test_a_renamed_columns_name_inside_other_words_is_let_alone(begin: Begin) -> None:
    """The server renames what is the column; a longer name or a text that holds its letters stays."""
    change = begin(
        "CREATE TABLE t (id int PRIMARY KEY, name int, username text DEFAULT 'name', CONSTRAINT name_ok CHECK (name > 0 OR username <> 'name')); "
        "CREATE INDEX by_name ON t (lower(username), (name + 1)) WHERE username <> 'name'; INSERT INTO t VALUES (1, 5, 'name'), (2, 6, 'x')",
        "ALTER TABLE t RENAME COLUMN name TO title",
    )  # fmt: skip
    change.carry_out()

    assert change.execute("SELECT id, title, username FROM t ORDER BY 1") == [(1, 5, "name"), (2, 6, "x")]
    ((check,),) = change.execute("SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'name_ok' AND conrelid = 't'::regclass")
    assert check == "CHECK (((title > 0) OR (username <> 'name'::text)))"
    ((index,),) = change.execute("SELECT pg_get_indexdef('by_name'::regclass)")
    assert "lower(username), ((title + 1))) WHERE (username <> 'name'::text)" in index


@pytest.mark.parametrize("strategy", [Strategy.INSTANT, Strategy.SHADOW_TABLE], ids=str)
def test_what_goes_with_a_dropped_column_is_told(strategy: Strategy, begin: Begin) -> None:
    """A check, an index or a reference over other columns too does not go unsaid."""
    change = begin(
        f"CREATE TABLE other (c text, id int, UNIQUE (c, id)); {TABLE}; ALTER TABLE t ADD CONSTRAINT both_of CHECK (id > 0 OR c <> ''), ADD CONSTRAINT at_once UNIQUE (c, id), ADD FOREIGN KEY (c, id) REFERENCES other (c, id) NOT VALID;"
        " CREATE INDEX with_c ON t (d, c); CREATE INDEX without ON t (d); CREATE INDEX of_some ON t (d) WHERE c = 'c1'", CHANGE,
    )  # fmt: skip
    with change.reading() as tx:
        told = change.dialect.design(tx, parse_statement("ALTER TABLE t DROP COLUMN c"), strategy=strategy).drops

    assert {one.removesuffix(" goes with its column").split()[-1] for one in told} == {"both_of", "at_once", "with_c", "of_some", "t_c_id_fkey"}, told


WAITING = {
    "each statement looks again": ("READ COMMITTED", "UPDATE t SET c = 'late' WHERE id IN (3, 4); INSERT INTO t VALUES (50, 'late', 0)", "21"),
    "a row that the drain changed": ("REPEATABLE READ", "UPDATE t SET c = 'late' WHERE id IN (3, 4)", "40001"),
    "a row that the drain brought": ("REPEATABLE READ", "INSERT INTO t VALUES (50, 'late', 0)", "20"),
}


@pytest.mark.parametrize("case", WAITING)
def test_what_waits_for_a_swap_sees_what_its_snapshot_can_see(case: str, begin: Begin, postgres_url: str) -> None:
    """A transaction that keeps its first snapshot, taken while it waits, does not see what the last drain wrote: this once, and a row of it is refused to it."""
    level, late, outcome = WAITING[case]
    change = begin(TABLE, CHANGE)
    change.install()
    change.copy()
    change.execute(late)
    found: list[str] = []

    def write() -> None:
        with application(postgres_url) as other:
            other.execute(f"BEGIN ISOLATION LEVEL {level}".encode())
            try:
                found.append(str(other.execute("UPDATE t SET d = d + 1").rowcount))
            except psycopg.Error as error:
                found.append(str(error.sqlstate))
            other.execute("ROLLBACK")
            found.append(str(other.execute("UPDATE t SET d = d + 1").rowcount))

    thread = threading.Thread(target=write)
    with change.writing() as tx:
        change.shadow.hold_still(tx, change.reorg, tries=0)
        thread.start()
        until(lambda: change.execute("SELECT 1 FROM pg_locks WHERE NOT granted AND locktype = 'relation'"), "the writer waits")
        settle(tx, change.dialect, change.reorg)
        change.shadow.swap(tx, change.reorg)
    thread.join()

    assert found == [outcome, str(change.execute("SELECT count(*) FROM t")[0][0])]


def test_an_unlogged_table_stays_one(begin: Begin) -> None:
    """With its rows, and without any of them in the write-ahead log."""
    change = begin(TABLE.replace("TABLE", "UNLOGGED TABLE"), CHANGE)
    change.carry_out()

    assert change.execute("SELECT relpersistence::text, (SELECT count(*) FROM t) FROM pg_class WHERE oid = 't'::regclass") == [("u", 20)]


def test_wide_rows_make_small_chunks(begin: Begin) -> None:
    """By their size on the disk, what is stored apart included."""
    change = begin(f"{TABLE}; ALTER TABLE t ALTER c SET STORAGE EXTERNAL; UPDATE t SET c = repeat('x', 100000)", CHANGE)

    assert change.designed.chunk_rows <= (4 << 20) // 100_000


def test_old_transactions_elsewhere_hold_nothing_up(begin: Begin, postgres_url: str) -> None:
    """Neither the capture nor the swap waits for who has not touched the table, however old."""
    with application(postgres_url) as old:
        old.execute("CREATE TABLE elsewhere (n int)")
        old.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; INSERT INTO elsewhere VALUES (1); SELECT count(*) FROM elsewhere")
        change = begin(TABLE, CHANGE)
        change.carry_out()
        assert change.execute("SELECT count(*) FROM t") == [(20,)]


def test_who_waits_behind_a_try_gets_through_when_it_gives_up(begin: Begin, postgres_url: str) -> None:
    """As behind a vacuum that does not give way: each try ends by itself and says who is in the way."""
    change = begin(TABLE, CHANGE)
    change.install()
    change.copy()
    with application(postgres_url) as vacuum:
        vacuum.execute("BEGIN; LOCK TABLE t IN SHARE UPDATE EXCLUSIVE MODE")
        for tries in (0, 1):
            with pytest.raises(LockTimeout, match=f"process {vacuum.info.backend_pid} "), change.writing() as tx:
                change.shadow.hold_still(tx, change.reorg, tries=tries)
            change.execute("UPDATE t SET c = 'meanwhile' WHERE id = 3")
        vacuum.execute("COMMIT")
    change.swap()

    assert change.execute("SELECT c FROM t WHERE id = 3") == [("meanwhile",)]


WRITES = ("INSERT INTO t VALUES (70, 'x', 1)", "UPDATE t SET c = 'y' WHERE id = 3", "UPDATE t SET id = 71 WHERE id = 4", "DELETE FROM t WHERE id = 5", "TRUNCATE t")
LOST = {"the log": "DROP TABLE {log}", "the log and the copy": "DROP TABLE {log}, {shadow}", "the log's name": "ALTER TABLE {log} RENAME TO taken_away"}


@pytest.mark.parametrize("lost", LOST)
def test_writers_go_on_when_what_is_ours_was_taken_away(lost: str, begin: Begin) -> None:
    """A trigger that finds no log lets every statement be; the job sees that its log is gone."""
    change = begin(TABLE, CHANGE)
    change.install()
    change.execute(LOST[lost].format(log=change.named("log"), shadow=change.named("shadow")))
    for statement in WRITES:
        change.execute(statement)
    with pytest.raises(SchemaChanged), change.reading() as tx:
        change.shadow.check(tx, change.reorg)


def test_a_publication_of_everything_that_comes_meanwhile_ends_the_job_and_no_statement(begin: Begin) -> None:
    """The copy would be sent to subscribers, and what has no key could not be deleted from the log."""
    change = begin(TABLE, CHANGE)
    change.install()
    change.copy()
    change.execute("CREATE PUBLICATION every FOR ALL TABLES")
    for statement in WRITES[:4]:
        change.execute(statement)
    with pytest.raises(TideshiftError):
        change.swap()

    assert change.execute("SELECT count(*) FROM t") == [(20,)]


def test_an_owner_that_may_not_use_the_schema_is_told_before_anything_is_made(begin: Begin) -> None:
    """The log is written in its name, so every statement of the application would fail; the grant that helps is named."""
    made = "CREATE ROLE keeper; CREATE SCHEMA kept; CREATE TABLE kept.t (id int PRIMARY KEY, d int); GRANT CREATE ON SCHEMA kept TO keeper; ALTER TABLE kept.t OWNER TO keeper"
    with pytest.raises(PlanRefused, match='GRANT USAGE ON SCHEMA kept TO keeper'):
        begin(made, "ALTER TABLE kept.t ALTER d TYPE bigint")
    change = begin("GRANT USAGE ON SCHEMA kept TO keeper", "ALTER TABLE kept.t ALTER d TYPE bigint")
    change.carry_out(lambda: change.execute("INSERT INTO kept.t VALUES (1, 1)"))
    rows = change.execute("SELECT id FROM kept.t")
    change.execute("DROP SCHEMA kept CASCADE; DROP ROLE keeper")

    assert rows == [(1,)]


PLANS = {
    "ADD COLUMN z int DEFAULT 5": True, "ADD COLUMN z timestamptz DEFAULT now()": True, "ADD COLUMN z timestamptz DEFAULT clock_timestamp()": False,
    "ADD COLUMN z int DEFAULT steady()": True, "ADD COLUMN z int DEFAULT restless()": False, "ADD COLUMN z checked DEFAULT 5": False,
    "ADD COLUMN z free DEFAULT 5": True, "ALTER c TYPE varchar(40)": True, "ALTER c TYPE varchar(10)": False, "ALTER d TYPE numeric(9, 2)": True, "ALTER d TYPE numeric(9, 3)": False,
}


@pytest.mark.parametrize("clause", PLANS)
def test_what_writes_no_row_is_known_by_the_catalogue(clause: str, begin: Begin, monkeypatch: pytest.MonkeyPatch) -> None:
    """A function is looked at for what it is declared, a domain for its checks, a type for what it becomes."""
    change = begin(
        "CREATE FUNCTION steady() RETURNS int LANGUAGE plpgsql STABLE AS 'BEGIN RETURN 1; END'; CREATE FUNCTION restless() RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN 1; END';"
        " CREATE DOMAIN checked AS int CHECK (VALUE > 0); CREATE DOMAIN free AS int; CREATE TABLE t (id int PRIMARY KEY, c varchar(20), d numeric(8, 2))", "ALTER TABLE t ALTER id TYPE bigint",
    )  # fmt: skip
    with as_if_large(monkeypatch), change.reading() as tx:
        designed = change.dialect.design(tx, parse_statement(f"ALTER TABLE t {clause}"), strategy=None)

    assert (designed.strategy is Strategy.INSTANT) is PLANS[clause], designed.strategy
