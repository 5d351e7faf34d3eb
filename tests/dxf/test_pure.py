"""Pure decisions of the framework: pauses, chunk sizes, cursors, the mailbox, limits."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tideshift.dxf.machine import TaskState
from tideshift.dxf.parameters import MODIFICATION_TYPES, Limits, apply_to_parameters, merge, pending_mailbox
from tideshift.dxf.ranges import ChunkControl, Cursor
from tideshift.dxf.throttle import pause_after
from tideshift.store.keys import KeyRange

# ── pauses ────────────────────────────────────────────────────────────────────────────────────────────────────────


def limits(**wished):
    return Limits.of(SimpleNamespace(meta={"parameters": wished}, concurrency=1))


@pytest.mark.parametrize(
    ("wished", "measured", "seconds", "reason"),
    [
        ({"lock_share": 100}, {}, 0.0, None),
        ({"lock_share": 20}, {}, 0.04, "lock_share"),
        ({"lock_share": 50}, {}, 0.01, "lock_share"),
        ({"lock_share": 50}, {"shares_lock": False}, 0.0, None),
        ({"lock_share": 100, "max_write_speed": "100 rows"}, {}, 0.09, "max_write_speed"),
        ({"lock_share": 100, "max_write_speed": "2000 bytes"}, {}, 0.49, "max_write_speed"),
        ({"lock_share": 100, "max_write_speed": "100000 rows"}, {}, 0.0, None),
        ({"lock_share": 20, "max_write_speed": "100 rows"}, {}, 0.09, "max_write_speed"),
        ({"lock_share": 5, "max_write_speed": "100 rows"}, {}, 0.19, "lock_share"),
        ({"lock_share": 100, "max_write_speed": "1 rows"}, {"rows": 0, "size_bytes": 0}, 0.0, None),
    ],
)
def test_the_pause_after_a_chunk(wished, measured, seconds, reason):
    """A chunk of ten rows and 1000 bytes that held its locks for 10 ms: the longest pause that any limit asks for, and why."""
    measured = {"held_seconds": 0.01, "rows": 10, "size_bytes": 1000, "shares_lock": True, **measured}

    pause = pause_after(limits(**wished), **measured)

    assert pause.seconds == pytest.approx(seconds, abs=1e-9)
    assert pause.reason == reason


@given(
    st.floats(0.0001, 1), st.integers(0, 10_000), st.integers(1, 100), st.one_of(st.none(), st.integers(1, 100_000)), st.booleans()
)  # fmt: skip
def test_every_limit_is_kept_over_time(held, rows, share, speed, shares_lock):
    """Whatever was measured, work and pause together keep the share of the lock and the speed."""
    wished = {"lock_share": share} | ({} if speed is None else {"max_write_speed": f"{speed} rows"})

    pause = pause_after(limits(**wished), held_seconds=held, rows=rows, size_bytes=rows, shares_lock=shares_lock)

    whole = held + pause.seconds
    assert pause.seconds >= 0
    if shares_lock:
        assert held / whole <= share / 100 + 1e-9
    if speed is not None:
        assert rows / whole <= speed * (1 + 1e-9)
    assert (pause.reason is None) == (pause.seconds == 0)


# ── chunk sizes ───────────────────────────────────────────────────────────────────────────────────────────────────


@given(st.floats(1e-6, 0.01), st.integers(1, 100_000))
def test_chunks_come_near_the_target_time(seconds_per_row, rows_max):
    """At any steady speed the size settles where a chunk takes about the target, or at a bound."""
    control = ChunkControl(target_seconds=0.05)

    for _ in range(60):
        rows = control.next_rows(rows_max=rows_max)
        control.observe(rows=rows, seconds=rows * seconds_per_row)

    settled = control.next_rows(rows_max=rows_max)
    assert 1 <= settled <= rows_max
    fitting = 0.05 / seconds_per_row
    low, high = min(rows_max, max(control.rows_min, fitting * 0.6)), min(rows_max, max(control.rows_min, fitting * 1.6))
    assert low - 1 <= settled <= high + 1


@given(st.lists(st.tuples(st.integers(0, 5000), st.floats(0, 10))), st.integers(1, 5000))
def test_chunk_sizes_stay_within_bounds(measured, rows_max):
    """Whatever was measured: never more than allowed, never nothing, and no more than half as much again at a time."""
    control = ChunkControl(target_seconds=0.05)

    for rows, seconds in measured:
        before = control.rows
        control.observe(rows=rows, seconds=seconds)
        assert control.rows_min <= control.rows <= max(before * 1.5, control.rows_min)
        assert 1 <= control.next_rows(rows_max=rows_max) <= rows_max


def test_an_empty_chunk_teaches_nothing():
    """A chunk without rows leaves the size as it was."""
    control = ChunkControl(target_seconds=0.05)

    control.observe(rows=0, seconds=5)

    assert control.next_rows(rows_max=10_000) == control.rows_start


# ── cursors ───────────────────────────────────────────────────────────────────────────────────────────────────────

LOW, MIDDLE, HIGH = [["int", "1"]], [["int", "5"]], [["int", "9"]]


def test_a_cursor_walks_through_its_range():
    """From the start to the last row, then finished; each place is read back from what is stored."""
    meta = {"range": KeyRange(LOW, HIGH).as_record()}
    fresh = Cursor.of(meta, {})

    middle = fresh.advanced(MIDDLE)
    ended = middle.advanced(None)

    assert (fresh.rest, fresh.finished) == (KeyRange(LOW, HIGH), False)
    assert (middle.rest, middle.finished) == (KeyRange(MIDDLE, HIGH), False)
    assert (ended.done, ended.finished) == (MIDDLE, True)
    for cursor in (fresh, middle, ended):
        assert Cursor.of(meta, cursor.as_checkpoint()) == cursor


# ── limits and the mailbox ────────────────────────────────────────────────────────────────────────────────────────


@given(st.integers(1, 1 << 40), st.integers(1, 64), st.sampled_from(["rows", "bytes"]))
def test_a_speed_is_divided_but_never_to_nothing(speed, sharers, unit):
    """All sharers together keep the ceiling, unless it is less than one each."""
    one = SimpleNamespace(meta={"parameters": {"max_write_speed": f"{speed} {unit}"}}, concurrency=1)

    mine = Limits.of(one, sharers=sharers)
    amount = mine.write_rows_per_second_max if unit == "rows" else mine.write_bytes_per_second_max

    assert amount >= 1
    assert amount * sharers <= max(speed, sharers)
    assert mine.as_record()["max_write_speed"] == f"{amount} {unit}"
    assert (mine.write_rows_per_second_max is None) == (unit == "bytes")


NAMES = sorted(MODIFICATION_TYPES)


@given(st.lists(st.dictionaries(st.sampled_from(NAMES), st.integers(1, 9), min_size=1), max_size=6))
def test_the_mailbox_keeps_the_last_wish_per_parameter(wishes):
    """After any number of requests: one value per parameter, the latest; superseded are exactly those with nothing left."""
    task = SimpleNamespace(state=TaskState.RUNNING, modify_params=None)
    superseded = []

    for number, wished in enumerate(wishes):
        asked = [{"type": MODIFICATION_TYPES[name], "to": value, "request_id": f"r{number}", "actor": "a"} for name, value in wished.items()]
        mailbox = merge(task, asked)
        superseded += mailbox.superseded
        task.modify_params, task.state = mailbox.record, TaskState.MODIFYING

    latest = {name: value for wished in wishes for name, value in wished.items()}
    kept = {m["type"]: m["to"] for m in pending_mailbox(task)}
    assert kept == {MODIFICATION_TYPES[name]: value for name, value in latest.items()}
    assert len(pending_mailbox(task)) == len(kept)
    alive = {m["request_id"] for m in pending_mailbox(task)}
    assert sorted(superseded) == sorted({f"r{n}" for n in range(len(wishes))} - alive)
    assert not wishes or task.modify_params["prev_state"] == "running"


def test_applying_twice_is_applying_once():
    """Targets are absolute, so that a repeated application after a failover changes nothing."""
    meta = {"source": "t", "parameters": {"batch_size": 1, "lock_share": 20}}
    modifications = [{"type": "modify_batch_size", "to": 9}, {"type": "modify_max_write_speed", "to": "5 rows"}]

    once = apply_to_parameters(meta, modifications)

    assert once == {"source": "t", "parameters": {"batch_size": 9, "lock_share": 20, "max_write_speed": "5 rows"}}
    assert apply_to_parameters(once, modifications) == once
    assert meta["parameters"]["batch_size"] == 1
