"""What becomes of rows on their way into a shadow table: tried, copied, logged, applied, compared, on each dialect."""

import pytest

from tests.conformance.planned import ROWS, WHOLE
from tideshift.ddl.dialect import BuildGroup
from tideshift.errors import SchemaChanged, ValueRefused
from tideshift.store.keys import KeyRange


def check_rows(change, key_range=WHOLE, *, rows_max=1_000):
    with change.reading() as tx:
        return change.shadow.check_rows(tx, change.reorg, key_range, rows_max=rows_max)


def copy_chunk(change, key_range=WHOLE, *, rows_max=1_000):
    with change.writing() as tx:
        return change.shadow.copy_chunk(tx, change.reorg, key_range, rows_max=rows_max)


def empty_value(change, n):
    """Let row n have a value that the new shape refuses."""
    change.run(f"UPDATE {{table}} SET c = NULL WHERE {change.row(n)}")


def request_repair(change, *keys):
    with change.writing() as tx:
        change.shadow.request_repair(tx, change.reorg, keys)


# ── trying ────────────────────────────────────────────────────────────────────────────────────────────────────────


def test_trying_rows_makes_nothing(planned):
    """It reads only: the database is as before, and the rows are counted with the last one's key."""
    before = planned.tables(), planned.rows()

    tried = check_rows(planned)

    assert (tried.rows, tried.last) == (ROWS, planned.bound(ROWS))
    assert (planned.tables(), planned.rows(), planned.objects()) == (*before, set())


@pytest.fixture(params=["tried", "copied"])
def going(request, planned):
    """A change, and what goes through its rows chunk by chunk: trying them before anything is made, or copying them."""
    if request.param == "tried":
        return planned, check_rows
    planned.install()
    return planned, copy_chunk


def test_a_row_that_does_not_fit_is_named(going):
    """The error has the key of the first row that the new shape refuses; what comes before it fits."""
    change, verb = going
    empty_value(change, 8)
    empty_value(change, 10)

    with pytest.raises(ValueRefused) as refused:
        verb(change)

    assert refused.value.fields["key"] == change.bound(8)
    assert verb(change, KeyRange(None, change.bound(7))).rows == 7


def test_trying_refuses_a_table_that_has_changed(planned):
    """Nobody tries the rows of another table than the one that was planned for."""
    planned.run("ALTER TABLE {table} ADD COLUMN e integer")

    with pytest.raises(SchemaChanged):
        check_rows(planned)


# ── copying ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_chunk_holds_the_first_rows_of_its_range(going):
    """After the low bound, up to and with the high one, and no more rows than it may hold; then there is none."""
    change, verb = going
    bounds = [None, *map(change.bound, range(1, ROWS + 1))]

    for low, high, rows_max, rows in [(0, 4, 100, 4), (4, 4, 100, 0), (4, 9, 100, 5), (4, 9, 3, 3), (9, ROWS, 2, 2), (ROWS, ROWS, 5, 0)]:
        chunk = verb(change, KeyRange(bounds[low], bounds[high]), rows_max=rows_max)

        assert (chunk.rows, chunk.last) == (rows, bounds[low + rows] if rows else None)
        assert (chunk.size_bytes > 0) == (rows > 0)
    assert verb(change, KeyRange(bounds[10], None)).rows == ROWS - 10


def test_a_chunk_copies_its_rows_and_no_other(installed):
    """Each row is there in the new shape, and nothing before or behind the range."""
    copy_chunk(installed, KeyRange(installed.bound(4), installed.bound(9)))

    assert installed.rows(installed.named("shadow")) == installed.changed(installed.rows()[4:9])


def test_copying_twice_is_copying_once(installed):
    """A chunk that is done again changes nothing, and counts the same, where the copy has the index of its key."""
    installed.build(BuildGroup.KEY)
    first = copy_chunk(installed, rows_max=7)
    copied = installed.rows(installed.named("shadow"))

    again = copy_chunk(installed, rows_max=7)

    assert again == first
    assert installed.rows(installed.named("shadow")) == copied


def test_chunks_of_a_cut_table_make_the_whole_copy(installed):
    """The ranges of a plan together copy every row once."""
    with installed.reading() as tx:
        order = installed.shadow.key_order(installed.reorg)
        ranges = order.split(tx, KeyRange(None, installed.bound(ROWS)), parts=5)

    rows = sum(copy_chunk(installed, one).rows for one in ranges)

    assert rows == ROWS
    assert installed.is_copy()


def test_both_tables_have_the_same_order(copied):
    """A bound means the same row in the source and in the shadow."""
    with copied.reading() as tx:
        source, shadow = (order(copied.reorg) for order in (copied.shadow.key_order, copied.shadow.copied_key_order))

        assert source.first_and_last(tx) == shadow.first_and_last(tx)
        for rows in range(1, ROWS + 1):
            assert source.next_bound(tx, WHOLE, rows=rows) == shadow.next_bound(tx, WHOLE, rows=rows)


# ── the log ───────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_backlog_is_counted_no_further_than_asked(installed):
    """Up to the limit the number is right, beyond it is one more; and the log takes room only while it holds something."""
    with installed.reading() as tx:
        assert installed.shadow.log_bytes(tx, installed.reorg) == 0
    for n in range(1, 6):
        installed.run(f"UPDATE {{table}} SET c = 0 WHERE {installed.row(n)}")

    assert [installed.backlog(limit=limit) for limit in (0, 3, 4, 5, 6, 100)] == [1, 4, 5, 5, 5, 5]
    with installed.reading() as tx:
        assert installed.shadow.log_bytes(tx, installed.reorg) > 0


def test_applying_brings_the_copy_up_to_date(copied):
    """Whatever was written since the copy, the shadow then has it: new, changed, moved and deleted rows."""
    copied.add(50)
    copied.run(f"UPDATE {{table}} SET c = 0 WHERE {copied.row(2)}")
    copied.run(f"DELETE FROM {{table}} WHERE {copied.row(3)}")
    copied.run(f"UPDATE {{table}} SET {copied.shape.key[0]} = {copied.shape.values(70)[0]} WHERE {copied.row(4)}")
    assert not copied.is_copy()

    while copied.apply(rows_max=2) != (0, 0):  # ends: each batch takes something from the log
        continue

    assert copied.is_copy()
    assert copied.backlog() == 0


def test_the_source_is_read_as_it_is_now(copied):
    """A key says only that its row changed: three changes are one, by the last value, in whatever order they are applied."""
    for c in (1, 2, 3):
        copied.run(f"UPDATE {{table}} SET c = {c} WHERE {copied.row(5)}")

    log_rows, keys = copied.apply()

    assert (log_rows, keys) == (3, 1)
    assert copied.is_copy()


def test_a_batch_takes_the_oldest_changes_first(copied):
    """It takes no more than it may, and leaves the others in the log."""
    for n in (9, 2, 6):
        copied.run(f"UPDATE {{table}} SET c = 0 WHERE {copied.row(n)}")

    assert copied.apply(rows_max=2) == (2, 2)

    values = {d: c for *_, c, d in copied.rows(copied.named("shadow"))}
    assert [values[f"row {n}"] for n in (9, 2, 6)] == ["0", "0", "60"]
    assert copied.backlog() == 1


def test_applying_again_changes_nothing(copied):
    """A key that is applied already may be applied any number of times, and an empty log is nothing to do."""
    keys = [copied.bound(n) for n in (1, 5, ROWS)]
    before = copied.rows(copied.named("shadow"))

    for _ in range(2):
        request_repair(copied, *keys)
        assert copied.apply() == (3, 3)

    assert copied.apply() == (0, 0)
    assert copied.rows(copied.named("shadow")) == before


def test_a_key_may_be_applied_before_its_range_is_copied(installed):
    """The copy that comes after it neither meets it nor doubles it."""
    installed.run(f"UPDATE {{table}} SET c = 0 WHERE {installed.row(ROWS)}")
    installed.add(ROWS + 1)

    installed.apply()
    installed.copy()

    assert installed.is_copy()


def test_a_unique_value_may_move_between_rows(copied):
    """Batches of one row each get through, though the value of one row is still with the other in the copy."""
    for n, d in ((1, "'aside'"), (2, "'row 1'"), (1, "'row 2'")):
        copied.run(f"UPDATE {{table}} SET d = {d} WHERE {copied.row(n)}")

    while copied.apply(rows_max=1) != (0, 0):  # ends: each batch takes something from the log
        continue

    assert copied.is_copy()


def test_a_refused_value_takes_nothing_from_the_log(copied):
    """The batch fails with the key; nothing of it is consumed, and it gets through once the row is mended."""
    empty_value(copied, 6)
    with pytest.raises(ValueRefused) as refused:
        copied.apply()

    assert refused.value.fields["key"] == copied.bound(6)
    assert copied.backlog() > 0
    copied.run(f"UPDATE {{table}} SET c = 61 WHERE {copied.row(6)}")
    copied.apply()
    assert copied.is_copy()


# ── comparing ─────────────────────────────────────────────────────────────────────────────────────────────────────


def test_a_true_copy_does_not_differ(copied):
    """Every row is compared, chunk by chunk, and the last chunk finds no further one."""
    whole = copied.compare()
    part = copied.compare(KeyRange(copied.bound(2), None), rows_max=4)

    assert (whole.rows, whole.excluded, whole.differing, whole.last) == (ROWS, 0, (), copied.bound(ROWS))
    assert (part.rows, part.differing, part.last) == (4, (), copied.bound(6))
    assert copied.compare(KeyRange(copied.bound(ROWS), None)).last is None
    assert copied.differing() == []


def lose(change, *numbers):
    """Take rows out of the copy, as only a fault of ours could."""
    change.run(*(f"DELETE FROM {change.written('shadow')} WHERE {change.row(n)}" for n in numbers))


def spoil(change, n, *, d):
    """Write another value into a row of the copy."""
    change.run(f"UPDATE {change.written('shadow')} SET d = '{d}' WHERE {change.row(n)}")


def delete_unseen(change, *numbers):
    """Delete rows of the source, and forget that it was logged."""
    change.run(*(f"DELETE FROM {{table}} WHERE {change.row(n)}" for n in numbers), f"DELETE FROM {change.written('log')}")


def test_rows_are_compared_both_ways(copied):
    """Found are a row that differs, one that the copy lacks, and one that only the copy has, behind the last row too."""
    keys = [copied.bound(n) for n in (2, 4, 7, ROWS)]
    spoil(copied, 2, d="another")
    lose(copied, 4)
    delete_unseen(copied, 7, ROWS)

    assert sorted(copied.differing()) == sorted(keys)
    assert sorted(copied.compare().differing) == sorted(keys)


def test_a_value_of_another_kind_differs(copied):
    """What looks alike need not be equal: the case of letters and blanks at the end count."""
    spoil(copied, 3, d="ROW 3")
    spoil(copied, 5, d="row 5 ")

    assert copied.differing() == [copied.bound(3), copied.bound(5)]


def test_a_row_without_any_value_is_missed(plan):
    """A row that has nothing but its key is a row, and one that the copy lacks is a difference."""
    change = plan(statement="ALTER TABLE t ALTER COLUMN c TYPE text", rows=2)
    change.run("UPDATE {table} SET c = NULL, d = NULL WHERE k = 2")
    change.install()
    change.copy()
    assert change.differing() == []

    lose(change, 2)

    assert change.differing() == [change.bound(2)]


def test_keys_in_the_log_are_left_out(copied):
    """A row whose change is not applied yet is no difference, and is counted as left out."""
    copied.run(f"UPDATE {{table}} SET c = 0 WHERE {copied.row(2)}")
    copied.run(f"DELETE FROM {{table}} WHERE {copied.row(3)}")

    comparison = copied.compare()

    assert (comparison.rows, comparison.excluded, comparison.differing) == (ROWS - 2, 1, ())


def test_a_requested_repair_mends_every_difference(copied):
    """The keys that a comparison names go into the log, and applying it makes the copy a true one."""
    spoil(copied, 2, d="another")
    lose(copied, 4)
    delete_unseen(copied, 7)
    differing = copied.differing()
    assert len(differing) == 3

    request_repair(copied, *differing)

    assert copied.backlog() == 3
    copied.apply()
    assert copied.is_copy()
    assert copied.differing() == []


def test_both_rows_of_a_key_are_shown(copied):
    """For a person to compare, as text, and empty for a side that has no such row."""
    spoil(copied, 2, d="another")
    lose(copied, 3)

    with copied.reading() as tx:
        differing, lacking = (copied.shadow.rows_of(tx, copied.reorg, copied.bound(n)) for n in (2, 3))

    assert "row 2" in differing["source"]["d"]
    assert "another" in differing["copy"]["d"]
    assert lacking["source"].keys() == {*copied.shape.key, "c", "d"}
    assert lacking["copy"] == {}
