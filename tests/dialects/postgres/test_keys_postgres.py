"""What is special about PostgreSQL's keys: every type with an order, collations, operators of extensions."""

from contextlib import contextmanager
from itertools import pairwise

import psycopg
import pytest

from tests.databases import opened
from tests.waiting import until
from tideshift.dialects.postgres import keys
from tideshift.dialects.postgres.keys import PostgresKeyOrder
from tideshift.errors import PlanRefused
from tideshift.store.keys import KeyRange

WHOLE = KeyRange(None, None)

TYPES = {
    "numeric": [
        "'-Infinity'",
        "-1e100",
        "-0.10",
        "0",
        "0.1",
        "1e-50",
        "123456789012345678901234567890.5",
        "'Infinity'",
        "'NaN'",
    ],
    "numeric(12,3)": ["-1.5", "0", "999999999.999"],
    "double precision": [
        "'-Infinity'",
        "-0.0",
        "5e-324",
        "0.1",
        "0.30000000000000004",
        "1.7976931348623157e308",
        "'NaN'",
    ],
    "real": ["0.1", "16777217", "'NaN'"],
    "bigint": ["-9223372036854775808", "0", "9223372036854775807"],
    "smallint": ["-32768", "0", "32767"],
    "boolean": ["false", "true"],
    "text": ["''", "'a'", "'B'", "'b'", "'é'", "'%s $1 :x'", "E'a\\nb'", "'\\\\x'"],
    'text COLLATE "C"': ["''", "'a'", "'B'", "'b'", "'é'"],
    "character(5)": ["'a'", "'ab'", "'b'", "''"],
    "character varying(5)": ["'a'", "'a '", "'b'"],
    "name": ["'a'", "'B'"],
    "bytea": ["'\\x'", "'\\x00'", "'\\x00ff'", "'\\xff'"],
    "uuid": ["'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"],
    "date": ["'-infinity'", "'4713-01-01 BC'", "'2024-02-29'", "'infinity'"],
    "timestamp": ["'-infinity'", "'2024-02-29 23:59:59.999999'", "'infinity'"],
    "timestamptz": ["'-infinity'", "'2024-02-29 23:59:59.999999+05:30'", "'0044-03-15 BC'", "'infinity'"],
    "time": ["'00:00'", "'24:00'"],
    "timetz": ["'00:00+14'", "'00:00-12'", "'24:00+00'"],
    "interval": ["'-1 year'", "'1 mon -1 day'", "'36:00:00.000001'", "'1 year 2 mons'"],
    "inet": ["'10.0.0.1'", "'10.0.0.1/8'", "'::1'"],
    "integer[]": ["'{}'", "'{1,NULL}'", "'{1,2}'"],
    "text[]": ["'{}'", '\'{"a,b","\\""}\'', "'{NULL}'", "'{\"NULL\"}'"],
    "jsonb": ["'null'", "'1.0'", "'\"a\"'", "'{\"a\": [1]}'"],
    "int4range": ["'empty'", "'[1,5)'", "'(,)'"],
    "public.mood": ["'sad'", "'ok'", "'happy'"],
    "public.positive": ["1", "10", "9"],
    'public."Odd type"': ["'b'", "'A'"],
}


@pytest.fixture
def database(postgres_url):
    """An open database with types of a user's own."""
    with opened(postgres_url) as database:
        with database.transaction() as tx:
            tx.run_verbatim("CREATE TYPE public.mood AS ENUM ('sad', 'ok', 'happy')")
            tx.run_verbatim("CREATE DOMAIN public.positive AS integer CHECK (VALUE > 0)")
            tx.run_verbatim('CREATE DOMAIN public."Odd type" AS text COLLATE "C"')
        yield database


def check(tx, order):
    """Walk, compare and cut agree with the order that the server gives the rows."""
    rows = tx.run_verbatim(f"SELECT {order.select_list()} FROM {order.name} ORDER BY {order.order_by()}").rows
    everything = [order.bound_of(row) for row in rows]
    walked, low = [], None
    while (bound := order.next_bound(tx, KeyRange(low, None), rows=1)) is not None:
        condition, binds = order.where(KeyRange(low, bound), qualifier="x", first_bind=2)
        sql = f"SELECT count(*) FROM {order.name} AS x WHERE $1::integer = 1 AND {condition}"
        assert tx.run_verbatim(sql, (1, *binds)).scalar() == 1
        walked.append(bound)
        low = bound
        assert len(walked) <= len(everything)
    assert walked == everything
    assert all(order.compare(tx, left, right) == -1 for left, right in pairwise(everything))
    assert all(order.compare(tx, key, key) == 0 for key in everything)
    assert order.first_and_last(tx) == (everything[0], everything[-1])
    assert len(order.split(tx, WHOLE, parts=2)) == 2
    return everything


@pytest.mark.parametrize("type_name", TYPES)
def test_every_type_with_an_order_is_walked(database, type_name):
    """Each value of each type keeps its place and comes back as itself, in every kind of role setting."""
    values = TYPES[type_name]
    with database.transaction() as tx:
        tx.run_verbatim(f"CREATE TABLE public.t (k {type_name} PRIMARY KEY)")
        for value in values:
            tx.run_verbatim(f"INSERT INTO public.t VALUES ({value})")
        order = PostgresKeyOrder("public", "t", ["k"], driver=database.driver)
        order.prepare(tx)

        everything = check(tx, order)

    assert len(everything) == len(values)


def test_a_composite_key_is_walked_by_each_columns_collation(database):
    """Columns of different types and collations are compared as one row, found through the index."""
    with database.transaction() as tx:
        tx.run_verbatim('CREATE TABLE public.t (a text COLLATE "C", b numeric, c date, PRIMARY KEY (a, b, c))')
        tx.run_verbatim(
            "INSERT INTO public.t SELECT a, b, date '2024-01-01' + c FROM unnest(array['a','B','b']) a,"
            " unnest(array[-1, 0.5, 'NaN'::numeric]) b, generate_series(0, 2) c"
        )
        order = PostgresKeyOrder("public", "t", ["a", "b", "c"], driver=database.driver)
        order.prepare(tx)

        everything = check(tx, order)
        condition, binds = order.where(KeyRange(everything[3], everything[9]))
        tx.run_verbatim("SET LOCAL enable_seqscan = off")
        plan = "\n".join(
            line for (line,) in tx.run_verbatim(f"EXPLAIN SELECT a FROM {order.name} WHERE {condition}", binds).rows
        )

    assert len(everything) == 27
    assert "ROW(a, b, c) > ROW" in plan.split("Index Cond", 1)[1]


def test_an_extensions_type_is_compared_by_its_own_operators(database, postgres_url):
    """The type citext ignores case although the extension's schema is not in our search path; alone and beside other types."""
    with psycopg.connect(postgres_url.replace("+psycopg", ""), autocommit=True) as connection:
        try:
            connection.execute("CREATE EXTENSION citext SCHEMA public")
        except psycopg.Error as error:
            pytest.skip(f"the server lacks the extension citext: {error}")
    with database.transaction() as tx:
        tx.run_verbatim("CREATE TABLE public.t (k public.citext, n integer, PRIMARY KEY (k, n))")
        tx.run_verbatim("INSERT INTO public.t VALUES ('a', 1), ('B', 1), ('b', 2), ('C', 1), ('d', 1), ('A', 2)")
        pair = PostgresKeyOrder("public", "t", ["k", "n"], driver=database.driver)
        single = PostgresKeyOrder("public", "t", ["k"], driver=database.driver)
        pair.prepare(tx)
        single.prepare(tx)

        everything = check(tx, pair)
        left, right = [["public.citext", "a"]], [["public.citext", "B"]]

        assert [key[0][1] for key in everything] == ["a", "A", "B", "b", "C", "d"]
        assert single.compare(tx, left, right) == -1
        assert single.compare(tx, right, left) == 1


def test_names_that_need_quoting_work(database):
    """Schema, table and column are named exactly, whatever they are called."""
    with database.transaction() as tx:
        tx.run_verbatim('CREATE SCHEMA "My.Schema"')
        tx.run_verbatim('CREATE TABLE "My.Schema"."the ""table""" ("Key %s" integer PRIMARY KEY)')
        tx.run_verbatim('INSERT INTO "My.Schema"."the ""table""" SELECT generate_series(1, 5)')
        order = PostgresKeyOrder("My.Schema", 'the "table"', ["Key %s"], driver=database.driver)
        order.prepare(tx)

        check(tx, order)


def test_null_in_a_key_is_refused_by_name(database):
    """A key column that holds NULL has no place in the order."""
    with database.transaction() as tx:
        tx.run_verbatim("CREATE TABLE public.t (a integer, b integer, UNIQUE (a, b))")
        tx.run_verbatim("INSERT INTO public.t VALUES (1, 2), (3, NULL)")

        with pytest.raises(PlanRefused, match="'b'"):
            PostgresKeyOrder("public", "t", ["a", "b"], driver=database.driver).first_and_last(tx)


def test_a_bound_of_another_type_is_refused(database):
    """When a key column has changed its type an old checkpoint is not read as something else."""
    with database.transaction() as tx:
        tx.run_verbatim("CREATE TABLE public.t (k integer PRIMARY KEY)")
        order = PostgresKeyOrder("public", "t", ["k"], driver=database.driver)

        with pytest.raises(PlanRefused, match="other types"):
            order.next_bound(tx, KeyRange([["text", "1"]], None), rows=1)


# ── cutting a large table by its statistics ───────────────────────────────────────────────────────────────────────


@pytest.fixture
def analysed(database, monkeypatch):
    """A table of 20,000 rows with gaps that counts as large, and fresh statistics."""
    monkeypatch.setattr(keys, "_HISTOGRAM_ROWS_MIN", 10_000)
    for sql in (
        "CREATE TABLE public.big (id bigint PRIMARY KEY, day date NOT NULL UNIQUE, word text NOT NULL UNIQUE)",
        "INSERT INTO public.big SELECT CASE WHEN i <= 10000 THEN i ELSE i * 1000 END, date '2000-01-01' + i, 'w' || i FROM generate_series(1, 20000) i",
        "ANALYZE public.big",
    ):
        with database.transaction() as tx:
            tx.run_verbatim(sql)
    return database


def halves(tx, order):
    """What `cut_table` would cut, in eight parts: the ranges, and how many rows lie in each."""
    _, last = order.first_and_last(tx)
    ranges = order.split(tx, KeyRange(None, last), parts=8)
    counts = []
    for one in ranges:
        condition, binds = order.where(one)
        counts.append(tx.run_verbatim(f"SELECT count(*) FROM {order.name} WHERE {condition}", binds).scalar())
    return ranges, counts


@pytest.mark.parametrize("column", ["id", "day"])
def test_a_large_table_is_cut_by_its_histogram(analysed, column, statements):
    """The parts adjoin, hold every row once, are about equal whatever the gaps, and nobody counts; cut twice they are the same."""
    with analysed.transaction() as tx:
        order = PostgresKeyOrder("public", "big", (column,), driver=tx.driver)
        with statements(tx) as seen:
            ranges = order.split(tx, KeyRange(None, order.first_and_last(tx)[1]), parts=8)
        again, counts = halves(tx, order)

    assert not any("count(*)" in sql for sql in seen)
    assert again == ranges
    assert len(ranges) == 8
    assert all(left.high == right.low for left, right in pairwise(ranges))
    assert sum(counts) == 20_000
    assert min(counts) > 2_500 * 0.7
    assert max(counts) < 2_500 * 1.3


def test_what_a_histogram_does_not_tell_is_counted(analysed, statements):
    """A text's order is its collation's; a composite key has no histogram; and one that much was written since is old."""
    with analysed.transaction() as tx:
        for names in (("word",), ("day", "id")):
            order = PostgresKeyOrder("public", "big", names, driver=tx.driver)
            with statements(tx) as seen:
                _, counts = halves(tx, order)
            assert sum("count(*)" in sql for sql in seen) == 1 + len(counts)
            assert max(counts) - min(counts) <= 1
    with analysed.transaction() as tx:
        tx.run_verbatim("UPDATE public.big SET word = word || 'x' WHERE day < '2020-01-01'")
    with analysed.transaction() as tx:
        tx.run_verbatim("SELECT pg_stat_force_next_flush()")
    with analysed.transaction() as tx:
        order = PostgresKeyOrder("public", "big", ("id",), driver=tx.driver)
        until(lambda: tx.run_verbatim("SELECT pg_stat_clear_snapshot(), n_mod_since_analyze > 4000 FROM pg_stat_user_tables WHERE relname = 'big'").rows[0][1], "the count of what was written")
        _, counts = halves(tx, order)
    assert max(counts) - min(counts) <= 1


@pytest.fixture
def statements(monkeypatch):
    """Notes what a transaction runs."""

    @contextmanager
    def noted(tx):
        seen, run = [], tx.run_verbatim
        tx.run_verbatim = lambda sql, binds=(): seen.append(sql) or run(sql, binds)
        yield seen
        tx.run_verbatim = run

    return noted
