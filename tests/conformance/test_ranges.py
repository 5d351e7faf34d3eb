"""Cutting a table into key ranges, on each database."""

from itertools import pairwise

import pytest

from tests.databases import in_columns, key_order
from tideshift.dxf.ranges import Cursor, cut_table, range_meta

ROWS = 50


@pytest.fixture
def table(database):
    """A function that makes a table of that name with the ids that are given, and returns how statements write its name."""

    def make(name, ids):
        q = in_columns(database.driver, name)
        with database.transaction() as tx:
            tx.run_verbatim(q("CREATE TABLE {table} (id integer PRIMARY KEY)"))
            for number in ids:
                tx.run_verbatim(q(f"INSERT INTO {{table}} VALUES ({number})"))
        return q

    return make


def held(tx, order, q, key_range):
    condition, binds = order.where(key_range)
    return [number for (number,) in tx.run_verbatim(q(f"SELECT id FROM {{table}} WHERE {condition} ORDER BY id"), binds).rows]


@pytest.mark.parametrize("parts", [1, 3, 8, 1_000])
def test_every_row_lies_in_one_range(database, table, parts):
    """The ranges adjoin one another and hold all rows of now, each once; cut again they are the same."""
    q = table("t", range(1, ROWS + 1))
    with database.transaction(write=False) as tx:
        order = key_order(tx, "t", ("id",))
        ranges = cut_table(tx, order, parts=parts)

        assert [number for one in ranges for number in held(tx, order, q, one)] == list(range(1, ROWS + 1))
        assert cut_table(tx, order, parts=parts) == ranges
    assert 1 <= len(ranges) <= parts
    assert ranges[0].low is None
    assert all(left.high == right.low for left, right in pairwise(ranges))


def test_rows_that_come_behind_the_last_key_are_in_no_range(database, table):
    """The last range ends with the last key of when the table was cut; a row before the first one is in the first range."""
    q = table("t", range(1, ROWS + 1))
    with database.transaction() as tx:
        order = key_order(tx, "t", ("id",))
        ranges = cut_table(tx, order, parts=4)
        tx.run_verbatim(q(f"INSERT INTO {{table}} VALUES (0), ({ROWS + 1})"))

        assert [number for one in ranges for number in held(tx, order, q, one)] == list(range(ROWS + 1))


@pytest.mark.parametrize(("here", "there", "last"), [((1, 2, 3), (2, 9), 9), ((1, 9), (2, 3), 9), ((), (4,), 4), ((4,), (), 4)])
def test_rows_of_the_table_beside_lie_in_the_ranges_too(database, table, here, there, last):
    """With a second table the ranges go up to the greater of both last keys."""
    names = [table("t", here), table("u", there)]
    with database.transaction(write=False) as tx:
        orders = [key_order(tx, name, ("id",)) for name in ("t", "u")]
        ranges = cut_table(tx, orders[0], parts=2, beside=orders[1])

        for order, q, ids in zip(orders, names, (here, there), strict=True):
            assert [number for one in ranges for number in held(tx, order, q, one)] == list(ids)
    assert ranges[-1].high[0][1] == str(last)


def test_an_empty_table_has_no_ranges(database, table):
    """There is nothing to plan then."""
    table("t", ())
    with database.transaction(write=False) as tx:
        order = key_order(tx, "t", ("id",))

        assert cut_table(tx, order, parts=8) == []
        assert cut_table(tx, order, parts=8, beside=order) == []


def test_a_range_comes_back_from_a_subtasks_meta(database, table):
    """What a plan writes is what the work's cursor reads, beside whatever else the meta holds."""
    table("t", range(1, ROWS + 1))
    with database.transaction(write=False) as tx:
        ranges = cut_table(tx, key_order(tx, "t", ("id",)), parts=4)

    assert [Cursor.of({**range_meta(one), "more": 1}, {}).rest for one in ranges] == ranges
