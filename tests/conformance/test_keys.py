"""The order of keys: ends, cuts, steps and comparisons, on each database."""

import json
from itertools import pairwise

import pytest

from tests.databases import in_columns, key_order
from tideshift.errors import PlanRefused
from tideshift.store.keys import KeyRange, decode_value, encode_value

WHOLE = KeyRange(None, None)
PARTS = [1, 2, 3, 7, 100]

SHAPES = {
    "integer": ("id bigint", "id", [(i * i - 50,) for i in range(60)]),
    "extremes": ("id bigint", "id", [(-(2**63),), (-1,), (0,), (1,), (2**53 + 1,), (2**53 + 2,), (2**63 - 1,)]),
    "text": (
        "id varchar(50)",
        "id",
        [("",), ("a",), ("B",), ("b",), ("ä",), ("'",), ("%s :x $1",), ("a" * 50,), ("日本",)],
    ),
    "composite": ("a bigint, b varchar(20)", "a, b", [(i // 7, f"v{i % 7}") for i in range(50)]),
    "three": (
        "a varchar(5), b bigint, c varchar(5)",
        "a, b, c",
        [(x, y, z) for x in "xy" for y in (-1, 2) for z in "pqr"],
    ),
    "one": ("id bigint", "id", [(42,)]),
}


@pytest.fixture(params=SHAPES)
def keyed(request, database):
    """A filled table of each shape: its columns, and a function that writes its name."""
    columns, key, rows = SHAPES[request.param]
    names = tuple(part.strip() for part in key.split(","))
    return make_table(database, columns, names, rows)


def make_table(database, columns, names, rows):
    q = in_columns(database.driver, "t")
    suffix = {"sqlite": " WITHOUT ROWID", "mysql": " COLLATE utf8mb4_bin"}.get(database.driver.name, "")
    with database.transaction() as tx:
        tx.run_verbatim(q(f"CREATE TABLE {{table}} ({columns}, v integer, PRIMARY KEY ({', '.join(names)})){suffix}"))
        marks = ", ".join(database.driver.placeholders(len(names)))
        for row in rows:
            tx.run_verbatim(q(f"INSERT INTO {{table}} ({', '.join(names)}) VALUES ({marks})"), row)
    return names, q


def in_order(tx, order, q):
    """Every key as a bound, in the database's own order."""
    rows = tx.run_verbatim(q(f"SELECT {order.select_list()} FROM {{table}} ORDER BY {order.order_by()}")).rows
    return [order.bound_of(row) for row in rows]


def keys_in(tx, order, q, key_range):
    condition, binds = order.where(key_range)
    sql = q(f"SELECT {order.select_list()} FROM {{table}} WHERE {condition} ORDER BY {order.order_by()}")
    return [order.bound_of(row) for row in tx.run_verbatim(sql, binds).rows]


def test_ends_are_the_least_and_the_greatest(database, keyed):
    """The first and last key are those of the database's own order."""
    names, q = keyed
    with database.transaction() as tx:
        order = key_order(tx, "t", names)
        everything = in_order(tx, order, q)

        assert order.first_and_last(tx) == (everything[0], everything[-1])


@pytest.mark.parametrize("parts", PARTS)
def test_cuts_cover_every_row_once(database, keyed, parts):
    """The parts adjoin, hold every key exactly once and in order, and are about equal."""
    names, q = keyed
    with database.transaction() as tx:
        order = key_order(tx, "t", names)
        everything = in_order(tx, order, q)

        ranges = order.split(tx, WHOLE, parts=parts)
        held = [keys_in(tx, order, q, one) for one in ranges]
        again = order.split(tx, WHOLE, parts=parts)

    assert 1 <= len(ranges) <= parts
    assert (ranges[0].low, ranges[-1].high) == (None, None)
    assert all(left.high == right.low for left, right in pairwise(ranges))
    assert [key for keys in held for key in keys] == everything
    assert max(map(len, held)) - min(map(len, held)) <= 1
    assert again == ranges


def test_a_part_can_be_cut_again(database, keyed):
    """Cutting within bounds stays within them."""
    names, q = keyed
    with database.transaction() as tx:
        order = key_order(tx, "t", names)
        everything = in_order(tx, order, q)
        inner = KeyRange(everything[0], everything[-1])

        ranges = order.split(tx, inner, parts=3)
        held = [key for one in ranges for key in keys_in(tx, order, q, one)]

    assert (ranges[0].low, ranges[-1].high) == (inner.low, inner.high)
    assert held == everything[1:]


@pytest.mark.parametrize("step", [1, 3, 10_000])
def test_steps_walk_the_whole_table(database, keyed, step):
    """From bound to bound, each step holds so many rows, the last one what is left, and then there is none."""
    names, q = keyed
    walked = []
    with database.transaction() as tx:
        order = key_order(tx, "t", names)
        everything = in_order(tx, order, q)
        low = None
        while (bound := order.next_bound(tx, KeyRange(low, None), rows=step)) is not None:
            chunk = keys_in(tx, order, q, KeyRange(low, bound))
            assert chunk[-1] == bound
            assert len(chunk) == step or bound == everything[-1]
            walked += chunk
            low = bound

    assert walked == everything


def test_a_step_stays_in_its_range(database, keyed):
    """A step never goes beyond the range, and a range without rows has no next bound."""
    names, q = keyed
    with database.transaction() as tx:
        order = key_order(tx, "t", names)
        everything = in_order(tx, order, q)
        middle = everything[len(everything) // 2]

        assert order.next_bound(tx, KeyRange(None, middle), rows=10_000) == middle
        assert order.next_bound(tx, KeyRange(middle, middle), rows=1) is None
        assert order.next_bound(tx, KeyRange(everything[-1], None), rows=1) is None


def test_comparison_is_the_databases(database, keyed):
    """Comparing two bounds agrees with the order of the rows, for every pair of neighbours and the ends."""
    names, q = keyed
    with database.transaction() as tx:
        order = key_order(tx, "t", names)
        everything = in_order(tx, order, q)

        for left, right in zip(everything, [*everything[1:], everything[0]], strict=True):
            expected = (everything.index(left) > everything.index(right)) - (
                everything.index(left) < everything.index(right)
            )
            assert order.compare(tx, left, right) == expected
            assert order.compare(tx, right, left) == -expected


def test_bounds_survive_being_stored(database, keyed):
    """A bound written as JSON and read back names the same key."""
    names, q = keyed
    with database.transaction() as tx:
        order = key_order(tx, "t", names)
        for key in in_order(tx, order, q):
            stored = KeyRange.from_record(json.loads(json.dumps(KeyRange(key, key).as_record())))

            assert stored == KeyRange(key, key)
            assert order.next_bound(tx, KeyRange(None, stored.high), rows=10_000) == key


def test_an_empty_table_has_no_ends(database):
    """Without rows there is nothing to name, and one part that covers what may come."""
    names, _ = make_table(database, "id bigint", ("id",), [])
    with database.transaction() as tx:
        order = key_order(tx, "t", names)

        assert order.first_and_last(tx) is None
        assert order.next_bound(tx, WHOLE, rows=5) is None
        assert order.split(tx, WHOLE, parts=4) == [WHOLE]


def test_a_table_that_is_not_there_is_refused(database):
    """A key of nothing is refused before any plan is made."""
    with database.transaction() as tx, pytest.raises(PlanRefused):
        key_order(tx, "t", ("id",))


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        0,
        -(2**63),
        2**200,
        0.1,
        -0.0,
        float("inf"),
        float("-inf"),
        5e-324,
        "",
        "a\0b",
        "\udcff",
        b"",
        b"\0\xff",
    ],
)
def test_a_value_comes_back_from_its_text(value):
    """Every kind of value survives its tagged text, told apart by type and sign."""
    back = decode_value(json.loads(json.dumps(encode_value(value))))

    assert type(back) is type(value)
    assert repr(back) == repr(value)


def test_not_a_number_comes_back():
    """NaN stays NaN."""
    assert repr(decode_value(encode_value(float("nan")))) == "nan"


def test_an_unknown_kind_of_value_is_refused():
    """What has no lossless text is refused, and so is a tag of another version."""
    with pytest.raises(TypeError):
        encode_value(object())
    with pytest.raises(ValueError, match="tag"):
        decode_value(["decimal", "1"])
