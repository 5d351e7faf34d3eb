"""What is special about SQLite's keys: mixed types, broken text, collations, directions, hidden and huge rowids."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.databases import opened
from tests.servers import sqlite_module
from tideshift.dialects.sqlite import rowids
from tideshift.dialects.sqlite.keys import SqliteKeyOrder, rowid_alias
from tideshift.errors import PlanRefused
from tideshift.store.keys import KeyRange

WHOLE = KeyRange(None, None)


@pytest.fixture
def database(sqlite_url):
    """An open, empty database."""
    with opened(sqlite_url) as database:
        yield database


def run(database, *statements):
    with database.transaction() as tx:
        for statement in statements:
            tx.run_verbatim(statement)


def walk(tx, order, *, step):
    """Go through the table by bounds, and return each chunk's raw rows."""
    chunks, low = [], None
    while (bound := order.next_bound(tx, KeyRange(low, None), rows=step)) is not None:
        condition, binds = order.where(KeyRange(low, bound), qualifier="x")
        sql = f"SELECT {order.select_list(qualifier='x')} FROM t AS x WHERE {condition} ORDER BY {order.order_by(qualifier='x')}"
        chunks.append(tx.run_verbatim(sql, binds).rows)
        low = bound
        assert len(chunks) <= 10_000
    return chunks


def check(tx, order, expected_count):
    """The walk meets every row once in order, comparison agrees with it, and so do cuts."""
    sql = f"SELECT {order.select_list()} FROM t ORDER BY {order.order_by()}"
    everything = [order.bound_of(row) for row in tx.run_verbatim(sql).rows]
    assert len(everything) == expected_count

    for step in (1, 4):
        walked = [order.bound_of(row) for chunk in walk(tx, order, step=step) for row in chunk]
        assert walked == everything
    assert all(order.compare(tx, left, right) == -1 for left, right in pairwise(everything))
    assert all(order.compare(tx, key, key) == 0 for key in everything)
    if everything:
        assert order.first_and_last(tx) == (everything[0], everything[-1])
    cuts = [part.high for part in order.split(tx, WHOLE, parts=3)][:-1]
    assert cuts or expected_count < 3
    assert [everything.index(cut) for cut in cuts] == sorted(everything.index(cut) for cut in cuts)


# ── values of every kind ──────────────────────────────────────────────────────────────────────────────────────────

VALUES = [
    "-9223372036854775808", "9223372036854775807", "9007199254740993", "9007199254740992.0", "-1", "0", "1", "1.5", "-0.0",
    "9e999", "-9e999", "5e-324", "''", "'1'", "'12'", "'1e3'", "'a'", "'A'", "'b '", "'b'", "'ä'", "'a' || char(0) || 'b'",
    "CAST(x'01ff' AS TEXT)", "CAST(x'2dff' AS TEXT)",
    "CAST(x'ff' AS TEXT)", "CAST(x'61ff' AS TEXT)", "CAST(x'fe00' AS TEXT)", "x''", "x'00'", "x'61'", "x'ff'",
]  # fmt: skip


@pytest.mark.parametrize("affinity", ["", "TEXT", "INTEGER", "REAL", "NUMERIC", "BLOB"])
@pytest.mark.parametrize("collation", ["BINARY", "NOCASE", "RTRIM"])
def test_every_kind_of_value_keeps_its_place(database, affinity, collation):
    """Numbers, text, broken text, NUL and blobs in one column are walked in SQLite's order, in every affinity."""
    rows = ", ".join(f"({value})" for value in VALUES)
    run(
        database,
        f"CREATE TABLE t (k {affinity} COLLATE {collation} PRIMARY KEY) WITHOUT ROWID",
        f"INSERT OR IGNORE INTO t VALUES {rows}",
    )

    with database.transaction() as tx:
        order = SqliteKeyOrder.read(tx, "t", database.driver)
        count = tx.run_verbatim("SELECT count(*) FROM t").scalar()

        assert count > len(VALUES) / 2
        check(tx, order, count)


COLUMNS = st.tuples(
    st.sampled_from(["", "TEXT", "INTEGER", "REAL"]),
    st.sampled_from(["BINARY", "NOCASE", "RTRIM"]),
    st.sampled_from(["", "COLLATE BINARY", "COLLATE NOCASE"]),
    st.sampled_from(["", "DESC"]),
)


@given(
    columns=st.lists(COLUMNS, min_size=1, max_size=3),
    rows=st.lists(st.lists(st.sampled_from(VALUES), min_size=3, max_size=3), max_size=25),
)
def test_any_primary_key_is_walked_whole(tmp_path_factory, columns, rows):
    """Whatever the affinities, collations and directions of a composite key, each row is met once and in order."""
    path = tmp_path_factory.mktemp("keys") / "t.db"
    sqlite_module().connect(path).close()
    path.touch()
    definitions = ", ".join(f"c{i} {column[0]} COLLATE {column[1]}" for i, column in enumerate(columns))
    key = ", ".join(f"c{i} {column[2]} {column[3]}" for i, column in enumerate(columns))
    with opened(f"sqlite:///{path}") as database:
        run(database, f"CREATE TABLE t ({definitions}, PRIMARY KEY ({key})) WITHOUT ROWID")
        for row in rows:
            run(database, f"INSERT OR IGNORE INTO t VALUES ({', '.join(row[: len(columns)])})")

        with database.transaction() as tx:
            order = SqliteKeyOrder.read(tx, "t", database.driver)
            check(tx, order, tx.run_verbatim("SELECT count(*) FROM t").scalar())


def test_a_key_of_another_collation_than_its_column_is_walked_by_its_own(database):
    """'a' and 'A' are two rows for the key although the column takes them for one; none is passed over."""
    run(
        database,
        "CREATE TABLE t (k TEXT COLLATE NOCASE, PRIMARY KEY (k COLLATE BINARY)) WITHOUT ROWID",
        "INSERT INTO t VALUES ('a'), ('A'), ('b'), ('B')",
    )

    with database.transaction() as tx:
        chunks = walk(tx, SqliteKeyOrder.read(tx, "t", database.driver), step=1)

    assert chunks == [[("A",)], [("B",)], [("a",)], [("b",)]]


def test_broken_text_in_a_utf16_database_is_refused(tmp_path):
    """What cannot be written down losslessly is refused by name, not guessed."""
    path = tmp_path / "wide.db"
    connection = sqlite_module().connect(path)
    connection.execute("PRAGMA encoding = 'UTF-16le'")
    connection.execute("CREATE TABLE t (k PRIMARY KEY) WITHOUT ROWID")
    connection.execute("INSERT INTO t VALUES ('ü'), (CAST(x'00d8' AS TEXT))")
    connection.commit()
    connection.close()

    with opened(f"sqlite:///{path}") as database, database.transaction() as tx:
        order = SqliteKeyOrder.read(tx, "t", database.driver)
        with pytest.raises(PlanRefused, match="'k'"):
            walk(tx, order, step=1)


def test_null_in_a_key_is_refused_by_name(database):
    """A key column that holds NULL has no place in the order."""
    run(database, "CREATE TABLE t (a, b, UNIQUE (a, b))", "INSERT INTO t VALUES (1, 2), (3, NULL)")

    with database.transaction() as tx, pytest.raises(PlanRefused, match="'b'"):
        SqliteKeyOrder("t", ["a", "b"], rowid=False, driver=database.driver).first_and_last(tx)


# ── the plan of the statements ────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("definition", "low", "high"),
    [
        ("k INTEGER PRIMARY KEY, v", [["int", "5"]], [["int", "9"]]),
        ("k TEXT PRIMARY KEY, v) WITHOUT ROWID --", [["text", "a"]], [["text", "\udcff"]]),
        (
            "a, b, v, PRIMARY KEY (a, b)) WITHOUT ROWID --",
            [["int", "1"], ["text", "\udcff"]],
            [["text", "x"], ["blob", ""]],
        ),
        (
            "a, b, v, PRIMARY KEY (a DESC, b DESC)) WITHOUT ROWID --",
            [["int", "1"], ["int", "2"]],
            [["int", "3"], ["int", "0"]],
        ),
        (
            "a, b, v, PRIMARY KEY (a, b DESC)) WITHOUT ROWID --",
            [["int", "1"], ["int", "2"]],
            [["int", "3"], ["int", "0"]],
        ),
        (
            "a TEXT COLLATE NOCASE, v, PRIMARY KEY (a COLLATE BINARY)) WITHOUT ROWID --",
            [["text", "a"]],
            [["text", "b"]],
        ),
    ],
)
def test_a_range_is_searched_and_never_sorted(database, definition, low, high):
    """Each range is found through the key's own tree, whatever the bounds are made of."""
    run(database, f"CREATE TABLE t ({definition}\n" + ("" if "--" in definition else ")"))

    with database.transaction() as tx:
        order = SqliteKeyOrder.read(tx, "t", database.driver)
        condition, binds = order.where(KeyRange(low, high))
        sql = f"EXPLAIN QUERY PLAN SELECT v FROM t WHERE {condition} ORDER BY {order.order_by()} LIMIT 5"
        plan = " ".join(str(row[-1]) for row in tx.run_verbatim(sql, binds).rows)

    assert "SEARCH" in plan
    assert "SCAN" not in plan
    assert "TEMP B-TREE" not in plan


# ── rowids ────────────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("columns", "alias"), [(["a"], "rowid"), (["ROWID"], "_rowid_"), (["rowid", "_RowId_"], "oid"), (["oid"], "rowid")]
)
def test_a_hidden_rowid_has_another_name(database, columns, alias):
    """A column that is called like the rowid is not taken for it."""
    run(database, f"CREATE TABLE t ({', '.join(columns)})", f"INSERT INTO t ({columns[0]}) VALUES ('x'), ('y')")

    with database.transaction() as tx:
        order = SqliteKeyOrder.read(tx, "t", database.driver)

        assert order.columns == (alias,)
        assert order.first_and_last(tx) == ([["int", "1"]], [["int", "2"]])


def test_a_rowid_without_a_name_is_refused(database):
    """When columns take all three names the rowid cannot be reached."""
    run(database, "CREATE TABLE t (rowid, _rowid_, oid)")

    with database.transaction() as tx, pytest.raises(PlanRefused, match="hide"):
        SqliteKeyOrder.read(tx, "t", database.driver)
    with pytest.raises(PlanRefused):
        rowid_alias(["OID", "RowID", "_ROWID_"])


def test_the_ends_of_all_rowids_are_walked(database):
    """The least and greatest rowids that can be are keys like others, with any table name."""
    run(
        database,
        "CREATE TABLE t (v)",
        "INSERT INTO t (rowid) VALUES (-9223372036854775808), (9223372036854775807), (0)",
    )

    with database.transaction() as tx:
        order = SqliteKeyOrder.read(tx, "t", database.driver)
        check(tx, order, 3)


SPREADS = {
    "dense": "i",
    "every billionth": "i * 1000000000",
    "two clusters far apart": "CASE WHEN i % 2 THEN i ELSE i + 4611686018427387904 END",
    "sparse, then dense": "CASE WHEN i <= 5000 THEN i * 1000000000000 ELSE i + 9000000000000000000 END",
    "dense, then sparse": "CASE WHEN i <= 55000 THEN i ELSE i * 100000000000 END",
    "dense between sparse": "CASE WHEN i % 10 = 0 THEN (i - 30000) * 1000000000 ELSE i END",
    "negative": "-i * 77",
    "scattered": "(i * 2654435761 % 4294967291) * 2000003 - 4503599627370440",
    "growing": "i * i * i",
}


@pytest.mark.parametrize("parts", [2, 8, 32])
@pytest.mark.parametrize("spread", SPREADS.values(), ids=SPREADS)
def test_a_big_table_is_cut_evenly_without_reading_it(database, spread, parts):
    """However the rowids lie, the parts are about equal, found by a bounded number of short look-ups."""
    rows = 60_000
    run(
        database,
        "CREATE TABLE t (v)",
        "INSERT OR IGNORE INTO t (rowid) WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n"
        f" WHERE i < {rows}) SELECT {spread} FROM n",
    )

    with database.session() as session:
        steps = [0]
        connection = session.connection.connection.dbapi_connection
        with session.transaction(write=False) as tx:
            order = SqliteKeyOrder.read(tx, "t", database.driver)
            connection.set_progress_handler(lambda: steps.__setitem__(0, steps[0] + 1), 1000)
            ranges = order.split(tx, WHOLE, parts=parts)
            connection.set_progress_handler(None, 0)
            again = order.split(tx, WHOLE, parts=parts)
            counts = [
                tx.run_verbatim("SELECT count(*) FROM t WHERE " + order.where(one)[0], order.where(one)[1]).scalar()
                for one in ranges
            ]

    total = sum(counts)
    assert total > rows / 2
    assert again == ranges
    assert len(ranges) <= parts
    assert (ranges[0].low, ranges[-1].high) == (None, None)
    assert all(left.high == right.low for left, right in pairwise(ranges))
    assert max(counts) <= 2 * total / parts
    assert steps[0] * 1000 <= rowids.COUNTED_ROWS_MAX * 5 + 1000 * parts * 64
