"""What writers do to a table while it is copied, and a plain tool loses: each is played at the moment where it would be lost."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.planned import WHOLE
from tests.dialects.postgres.stepping import application, on_engine, rows
from tests.dialects.postgres.verbs import Begin
from tideshift.ddl.dialect import BuildGroup
from tideshift.ddl.machine import JOB, JobState
from tideshift.dialects import points
from tideshift.dxf.ranges import cut_table
from tideshift.errors import ValueRefused
from tideshift.store.keys import KeyRange

TABLE = "CREATE TABLE t (id int PRIMARY KEY, u int UNIQUE, c text DEFAULT 'given', d int); INSERT INTO t SELECT i, i, 'c' || i, i FROM generate_series(1, {rows}) i"
CHANGE = "ALTER TABLE t ALTER d TYPE bigint"
OURS = "SELECT state, backend_xmin IS NOT NULL FROM pg_stat_activity WHERE application_name = 'tideshift' AND pid <> pg_backend_pid()"


def make(url: str) -> None:
    """Make a small table before our schema is there: our role's search path begins with it."""
    with application(url) as connection:
        connection.execute(TABLE.format(rows=40).encode())


def test_what_is_written_while_a_batch_is_applied_stays_in_the_log(begin: Begin) -> None:
    """The batch takes away the log rows that it has read, not those of the same key that came behind them."""
    change = begin(TABLE.format(rows=20), CHANGE)
    change.install()
    change.copy_rows()
    change.build(BuildGroup.KEY)
    change.execute("UPDATE t SET c = 'first' WHERE id = 7")
    with change.writing() as tx:
        change.shadow.apply_batch(tx, change.reorg, rows_max=100)
        change.execute("UPDATE t SET c = 'second' WHERE id = 7; DELETE FROM t WHERE id = 8")

    assert change.logged() == [(7, None), (8, None)]
    change.apply()
    assert change.copied("id, c, d") == change.execute("SELECT id, c, d FROM t ORDER BY id")


def test_a_mirror_that_is_written_in_the_same_transactions_equals_the_copy(begin: Begin, random: Any) -> None:
    """Whatever order log rows are applied in, a few at a time."""
    change = begin(TABLE.format(rows=30), CHANGE)
    change.execute("CREATE TABLE mirror (LIKE t INCLUDING ALL); INSERT INTO mirror SELECT * FROM t")
    change.install()
    change.copy_rows()
    for n in range(60):
        key, other = random.randrange(1, 40), random.randrange(1, 40)
        write = random.choice((
            f"INSERT INTO {{0}} VALUES ({key}, {1000 + n}, NULL, {n}) ON CONFLICT (id) DO UPDATE SET c = 'again{n}', u = excluded.u", f"DELETE FROM {{0}} WHERE id = {key}",
            f"UPDATE {{0}} SET d = d + 1, c = NULL WHERE id IN ({key}, {other})", f"UPDATE {{0}} SET id = {100 + n} WHERE id = {key}",
        ))  # fmt: skip
        change.execute(f"BEGIN; {write.format('t')}; {write.format('mirror')}; {random.choice(('COMMIT', 'COMMIT', 'ROLLBACK'))}")
        if n % 5 == 0:
            change.apply(rows_max=3)
    change.apply()

    assert change.copied() == change.execute("SELECT * FROM mirror ORDER BY id")
    assert change.execute("SELECT * FROM t ORDER BY id") == change.execute("SELECT * FROM mirror ORDER BY id")


def test_an_insert_that_does_nothing_is_not_in_the_log(begin: Begin) -> None:
    """Only what became of a statement is logged: a row that stood in the way of ON CONFLICT DO NOTHING was never written."""
    change = begin(TABLE.format(rows=5), CHANGE)
    change.install()
    change.execute("INSERT INTO t VALUES (3, 300, 'phantom', 0), (4, 400, 'phantom', 0) ON CONFLICT DO NOTHING")
    assert change.logged() == []
    change.execute("INSERT INTO t VALUES (3, 300, 'real', 0) ON CONFLICT (id) DO UPDATE SET c = excluded.c")

    assert change.logged() == [(3, None)]


def test_a_value_that_becomes_null_is_null_in_the_copy(begin: Begin) -> None:
    """By an update, and by an insert beside a default, which is not filled in again."""
    change = begin(TABLE.format(rows=5), CHANGE)
    change.carry_out(lambda: change.execute("UPDATE t SET c = NULL, d = NULL WHERE id = 2; INSERT INTO t VALUES (9, NULL, NULL, NULL)"))

    assert change.execute("SELECT id, u, c, d FROM t WHERE id IN (2, 9) ORDER BY id") == [(2, 2, None, None), (9, None, None, None)]


def test_a_key_of_several_columns_is_one_key(begin: Begin) -> None:
    """An update or delete of one row leaves the other rows of its tenant alone, also where the key's columns lie in another order."""
    change = begin(
        "CREATE TABLE t (id int, note text, tenant int, d int, PRIMARY KEY (tenant, id));"
        " INSERT INTO t SELECT i % 5, 'n' || i, i / 5, i FROM generate_series(0, 24) i", CHANGE,
    )  # fmt: skip
    change.carry_out(lambda: change.execute("UPDATE t SET note = 'one' WHERE (tenant, id) = (2, 3); DELETE FROM t WHERE (tenant, id) = (3, 1); UPDATE t SET id = 9 WHERE (tenant, id) = (4, 4)"))

    assert change.execute("SELECT count(*), count(*) FILTER (WHERE note = 'one'), max(id) FROM t") == [(24, 1, 9)]
    assert change.execute("SELECT tenant, count(*) FROM t GROUP BY 1 ORDER BY 1") == [(0, 5), (1, 5), (2, 5), (3, 4), (4, 5)]


def test_what_triggers_and_generated_columns_make_of_a_value_is_copied(begin: Begin) -> None:
    """The row as it was written, not as the statement gave it, whatever the application's triggers are called."""
    change = begin(
        "CREATE TABLE t (id int PRIMARY KEY, e text, g text GENERATED ALWAYS AS ('<' || e || '>') STORED, d int);"
        " CREATE FUNCTION lowered() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.e := lower(NEW.e); RETURN NEW; END';"
        " CREATE TRIGGER normalize BEFORE INSERT OR UPDATE ON t FOR EACH ROW EXECUTE FUNCTION lowered();"
        " CREATE TRIGGER zzz_last AFTER INSERT ON t FOR EACH ROW EXECUTE FUNCTION lowered(); INSERT INTO t (id, e) VALUES (1, 'ONE'), (2, 'TWO')", CHANGE,
    )  # fmt: skip
    change.install()
    change.copy_rows()
    change.execute("INSERT INTO t (id, e) VALUES (3, 'ABC'); UPDATE t SET e = 'New' WHERE id = 1")
    change.apply()

    assert change.copied("id, e, g") == [(1, "new", "<new>"), (2, "two", "<two>"), (3, "abc", "<abc>")]


def test_the_copy_fires_no_trigger_of_the_applications(begin: Begin) -> None:
    """Nothing is noted twice, no deferred trigger waits for our commit, and no time stamp moves."""
    noting = "INSERT INTO noted VALUES (TG_OP); RETURN NEW;"
    change = begin(
        f"{TABLE.format(rows=20)}; CREATE TABLE noted (what text); CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN {noting} END';"
        " CREATE TRIGGER noted AFTER INSERT OR UPDATE OR DELETE ON t FOR EACH ROW EXECUTE FUNCTION note();"
        " CREATE CONSTRAINT TRIGGER checked AFTER INSERT OR UPDATE ON t DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION note()", CHANGE,
    )  # fmt: skip
    change.carry_out(lambda: change.execute("UPDATE t SET c = 'x' WHERE id = 3"))
    assert change.execute("SELECT count(*) FROM noted") == [(2,)]
    change.execute("UPDATE t SET c = 'y' WHERE id = 3")

    assert change.execute("SELECT count(*) FROM noted") == [(4,)]


EMPTIED_AT = {"a copy": 0, "the catch-up": 1, "the comparison": 2, "the swap": 3}


@pytest.mark.parametrize("when", EMPTIED_AT)
def test_rows_that_were_emptied_away_do_not_come_back(when: str, begin: Begin) -> None:
    """TRUNCATE fires no row trigger: it is logged as what it is, and what was written after it stays."""
    change = begin(TABLE.format(rows=12), CHANGE)
    steps = (lambda: change.copy_rows(rows_max=5), lambda: change.build(*BuildGroup), change.compare, change.swap)
    change.install()
    change.execute("UPDATE t SET c = 'before' WHERE id < 4")
    for number, step in enumerate(steps):
        if number == EMPTIED_AT[when]:
            change.execute("INSERT INTO t VALUES (50, 50, 'gone', 0); TRUNCATE t; INSERT INTO t VALUES (1, 100, 'after', 5), (60, 60, 'after', 6)")
        step()

    assert change.execute("SELECT id, u, c, d FROM t ORDER BY id") == [(1, 100, "after", 5), (60, 60, "after", 6)]


def test_a_copy_ends_however_fast_rows_are_added(begin: Begin) -> None:
    """Its upper bound is fixed when it begins; what comes behind that is in the log."""
    change = begin(TABLE.format(rows=40), CHANGE)
    change.install()
    with change.reading() as tx:
        ranges = cut_table(tx, change.shadow.key_order(change.reorg), parts=2)
    copied, next_key = 0, 1000
    for key_range in ranges:
        low = key_range.low
        while True:  # ends: the range does
            change.execute(f"INSERT INTO t SELECT i, i, 'late', i FROM generate_series({next_key}, {next_key + 19}) i")
            next_key += 20
            with change.writing() as tx:
                chunk = change.shadow.copy_chunk(tx, change.reorg, KeyRange(low, key_range.high), rows_max=10)
            copied += chunk.rows
            if chunk.last in (None, key_range.high):
                break
            low = chunk.last
    assert copied <= 40 + 20
    change.apply()

    assert change.copied("id") == change.execute("SELECT id FROM t ORDER BY id")


def test_no_snapshot_is_held_between_chunks_and_none_for_long(postgres_url: str) -> None:
    """Each chunk has a snapshot of its own, so that neither vacuum nor anybody else waits for the job."""
    seen = set()
    make(postgres_url)
    with application(postgres_url) as app, on_engine(postgres_url) as engine:
        job_id = engine.ddl.submit(CHANGE, strategy="shadow_table").id
        while engine.ddl.job(job_id).state not in JOB.final:
            engine.cluster.step()
            seen |= set(app.execute(OURS).fetchall())

    assert seen == {("idle", False)}


def test_what_a_deadlock_has_undone_is_done_again(postgres_url: str, failpoints: Any) -> None:
    """A chunk is done only when its row says so."""
    make(postgres_url)
    with application(postgres_url) as app, on_engine(postgres_url) as engine:
        enabled = [failpoints.enable(point, "2*raise(tideshift.errors.Retryable)") for point in (points.COPIED, points.APPLY_CONSUME)]
        job_id = engine.ddl.submit(CHANGE, strategy="shadow_table").id
        engine.until(job_id, lambda job: job.stage >= 1)
        app.execute("UPDATE t SET c = 'late' WHERE id % 3 = 0; DELETE FROM t WHERE id % 10 = 1")
        expected = rows(postgres_url, "SELECT id, c FROM t ORDER BY id")
        assert engine.finish(job_id).state is JobState.SYNCED
        assert min(one.hits for one in enabled) > 2

    assert rows(postgres_url, "SELECT id, c FROM t ORDER BY id") == expected


def test_a_value_too_long_for_the_new_type_ends_the_job_and_no_statement(begin: Begin) -> None:
    """The writer is answered as without a job; the job names the row."""
    change = begin(TABLE.format(rows=10), "ALTER TABLE t ALTER c TYPE varchar(6), ALTER d TYPE smallint")
    change.install()
    change.copy_rows()
    change.execute("UPDATE t SET c = 'much too long' WHERE id = 4; INSERT INTO t VALUES (77, 77, 'x', 40000)")
    change.build(BuildGroup.KEY)
    with pytest.raises(ValueRefused) as refused, change.writing() as tx:
        change.shadow.apply_batch(tx, change.reorg, rows_max=100)

    assert refused.value.fields["key"] in ([["integer", "4"]], [["integer", "77"]])
    assert [row[0] for row in change.logged()] == [4, 77]
    with change.reading() as tx, pytest.raises(ValueRefused):
        change.shadow.check_rows(tx, change.reorg, WHOLE, rows_max=100)
