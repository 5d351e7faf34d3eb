"""Key types whose order, comparison or text is special on MariaDB: each is walked, cut and compared by the server alone."""

import json
from itertools import pairwise

import pytest

from tests.databases import opened
from tideshift.dialects.mysql.keys import MysqlKeyOrder
from tideshift.errors import PlanRefused
from tideshift.store.keys import KeyRange

WHOLE = KeyRange(None, None)
TYPES = {
    "enum out of alphabet": ("enum('zeta','alpha','mid') ", ["'zeta'", "'alpha'", "'mid'"]),
    "enum with quotes": ("enum('b''s','(,)','é','A')", ["'b''s'", "'(,)'", "'é'", "'A'"]),
    "bit": ("bit(64)", ["0", "1", "b'1000'", "18446744073709551615"]),
    "binary with zeros behind": ("binary(16)", ["x'11'", "x'1100000000000000000000000000ff00'", "x'00'", "x'ff00'"]),
    "varbinary": ("varbinary(20)", ["''", "x'00'", "x'0000'", "x'fe00'", "x'fe'", "x'27'"]),
    "without regard to case, padded": ("varchar(20) COLLATE utf8mb4_general_ci", ["'a'", "'B'", "'_d'", "'Z'", "'é'", "''", "'it''s \\\\'", "'%s?'"]),
    "unicode, not padded": ("varchar(20) COLLATE utf8mb4_unicode_nopad_ci", ["'a'", "'a '", "'ß'", "'sz'", "'😀'", "'日本'"]),
    "latin1": ("varchar(20) CHARACTER SET latin1 COLLATE latin1_german2_ci", ["'ä'", "'ad'", "'b'", "'é'", "'ÿ'"]),
    "utf16": ("varchar(20) CHARACTER SET utf16", ["'a'", "'é'", "'日'", "'😀'"]),
    "sjis": ("varchar(20) CHARACTER SET sjis", ["'a'", "'日'", "'ソ'", "'表'"]),
    "decimal": ("decimal(38,10)", ["-9999999999999999999999999999.0000000001", "0", "0.0000000001", "9007199254740993", "1.5"]),
    "unsigned": ("bigint unsigned", ["0", "9223372036854775808", "18446744073709551615", "9223372036854775807"]),
    "double": ("double", ["0.1", "1.1", "1e300", "-1e-300", "0", "123456789.123456789", "3"]),
    "zero dates": ("date", ["'0000-00-00'", "'2024-00-00'", "'1000-01-01'", "'9999-12-31'"]),
    "datetime": ("datetime(6)", ["'0000-00-00 00:00:00'", "'2024-03-31 02:30:00.000001'", "'2024-03-31 02:30:00'", "'9999-12-31 23:59:59.999999'"]),
    "timestamp": ("timestamp(3) NULL DEFAULT NULL", ["'1970-01-01 00:00:01'", "'2024-10-27 00:30:00'", "'2024-10-27 01:30:00.001'"]),
    "time": ("time(2)", ["'-838:59:59'", "'-00:00:01'", "'00:00:00'", "'838:59:59'", "'100:00:00'"]),
    "year": ("year", ["1901", "2155", "2000"]),
    "uuid": ("uuid", ["'00000000-0000-1000-8000-000000000001'", "'ffffffff-ffff-4fff-bfff-ffffffffffff'", "'123e4567-e89b-12d3-a456-426655440000'"]),
    "inet6": ("inet6", ["'::'", "'::ffff:192.0.2.1'", "'2001:db8::ff00:42:8329'"]),
}


@pytest.fixture
def database(mariadb_url):
    """An open, empty database."""
    with opened(mariadb_url) as database:
        yield database


def keyed(tx, columns, names, rows, keys=None):
    tx.run_verbatim(f"CREATE TABLE t ({columns}, PRIMARY KEY ({keys or names}))")
    for row in rows:
        tx.run_verbatim(f"INSERT INTO t ({names}) VALUES ({row})")
    order = MysqlKeyOrder(tx.driver.database, "t", [name.strip() for name in names.split(",")])
    order.prepare(tx)
    return order


def in_order(tx, order):
    rows = tx.run_verbatim(f"SELECT {order.select_list()} FROM t ORDER BY {order.order_by()}").rows
    return [order.bound_of(row) for row in rows]


def see_walked(tx, order, expected):
    """Walk by steps, cut, and compare each pair of neighbours: all agree with the order of the rows."""
    everything = in_order(tx, order)
    assert len(everything) == expected
    assert order.first_and_last(tx) == (everything[0], everything[-1])
    for step in (1, 2, 100):
        low, walked = None, []
        while (bound := order.next_bound(tx, KeyRange(low, None), rows=step)) is not None:
            condition, _ = order.where(KeyRange.from_record(json.loads(json.dumps(KeyRange(low, bound).as_record()))))
            walked += [order.bound_of(row) for row in tx.run_verbatim(f"SELECT {order.select_list()} FROM t WHERE {condition} ORDER BY {order.order_by()}").rows]
            low = bound
        assert walked == everything
    assert [one.high for one in order.split(tx, WHOLE, parts=expected)] == [*everything[:-1], None]
    for left, right in pairwise(everything):
        assert (order.compare(tx, left, right), order.compare(tx, right, left), order.compare(tx, left, left)) == (-1, 1, 0)


@pytest.mark.parametrize("kind", TYPES)
def test_each_type_is_walked_in_its_own_order(database, kind):
    """Steps, cuts and comparisons are the server's, whatever the values look like."""
    type_text, values = TYPES[kind]
    with database.transaction() as tx:
        order = keyed(tx, f"k {type_text}", "k", values)

        see_walked(tx, order, len(values))


@pytest.mark.parametrize("kind", TYPES)
def test_the_place_of_a_bound_is_found_by_the_index(database, kind):
    """A range is read by the key's index and not by looking at every row."""
    type_text, values = TYPES[kind]
    with database.transaction() as tx:
        order = keyed(tx, f"k {type_text}", "k", values)
        everything = in_order(tx, order)
        condition, _ = order.where(KeyRange(everything[0], everything[1]))

        (plan,) = tx.run_verbatim(f"EXPLAIN SELECT * FROM t FORCE INDEX (PRIMARY) WHERE {condition}").rows

    assert plan[3] == "range", plan


def test_several_columns_are_compared_one_after_another(database):
    """By a collation, by bytes and by number, each as the column's own; the index finds the first one's place."""
    rows = [f"'{word}', x'{number:02x}00', {number % 3}" for word in ("a", "B", "_", "é ") for number in range(5)]
    with database.transaction() as tx:
        order = keyed(tx, "a varchar(5), b varbinary(4), c enum('z','y','x') AS (elt(d + 1, 'z', 'y', 'x')) PERSISTENT, d int", "a, b, d", rows, "a, b, d")

        see_walked(tx, order, len(rows))
        condition, _ = order.where(KeyRange(in_order(tx, order)[7], None))
        assert tx.run_verbatim(f"EXPLAIN SELECT * FROM t FORCE INDEX (PRIMARY) WHERE {condition}").rows[0][3] == "range"


@pytest.mark.parametrize("type_text", ["float", "float(7,3)", "set('1.1')", "enum('','1.1')"])
def test_a_key_that_cannot_be_found_again_is_refused(database, type_text):
    """`k = 1.1` finds no FLOAT of that value, so a row would be passed over (B1)."""
    with database.transaction() as tx, pytest.raises(PlanRefused, match=r"float|set|enum"):
        keyed(tx, f"k {type_text}", "k", ["1.1"])


def test_null_in_a_key_is_refused(database):
    """A row whose key is NULL lies in no range (A5)."""
    with database.transaction() as tx:
        tx.run_verbatim("CREATE TABLE t (id int NULL UNIQUE)")
        tx.run_verbatim("INSERT INTO t VALUES (1), (NULL), (NULL)")

        with pytest.raises(PlanRefused, match="NULL"):
            MysqlKeyOrder(tx.driver.database, "t", ("id",)).first_and_last(tx)


def test_a_bound_of_another_type_is_refused(database):
    """A key whose collation changed since a bound was written has another order."""
    with database.transaction() as tx:
        order = keyed(tx, "k varchar(5)", "k", ["'a'"])
        (bound,) = in_order(tx, order)
        tx.run_verbatim("ALTER TABLE t MODIFY k varchar(5) COLLATE utf8mb4_bin")
        again = MysqlKeyOrder(tx.driver.database, "t", ("k",))
        again.prepare(tx)

        with pytest.raises(PlanRefused, match="other types"):
            again.where(KeyRange(bound, None))
