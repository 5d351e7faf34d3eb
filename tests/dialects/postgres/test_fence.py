"""The fence between chunks and the applier: a change is never consumed while a chunk that may carry the older row is under way."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance.planned import WHOLE, Planned
from tests.dialects.postgres.stepping import rows
from tests.waiting import until
from tideshift.ddl.dialect import BuildGroup
from tideshift.dialects.postgres.dialect import PostgresDialect
from tideshift.dialects.postgres.driver import PostgresDriver
from tideshift.errors import LockTimeout, ValueRefused
from tideshift.store.database import Database

WAITING = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"


@pytest.fixture
def change(postgres_url: str) -> Iterator[Planned]:
    """A change with an empty copy that has the index of its key, so that both may go on at once."""
    driver = PostgresDriver(postgres_url)
    database = Database(driver)
    try:
        planned = Planned(database, PostgresDialect(driver))
        planned.install()
        planned.build(BuildGroup.KEY)
        yield planned
    finally:
        database.close()


def test_a_change_waits_for_the_chunk_that_may_carry_the_older_row(change: Planned) -> None:
    """The chunk has read row 5, the application deletes it: without the fence the row would come back."""
    with change.writing() as copying:
        change.shadow.copy_chunk(copying, change.reorg, WHOLE, rows_max=1000)
        change.run("DELETE FROM {table} WHERE k = 5")
        with pytest.raises(LockTimeout), change.database.transaction(lock_wait_seconds=0.05) as applying:
            change.shadow.apply_batch(applying, change.reorg, rows_max=1000)
    assert 5 in [row[0] for row in change.rows(change.named("shadow"))]
    change.apply()

    assert change.is_copy()


def test_a_chunk_waits_for_the_applier(change: Planned) -> None:
    """What the applier is about to consume might be what the chunk would carry."""
    change.run("DELETE FROM {table} WHERE k = 5")
    with change.writing() as applying:
        change.shadow.apply_batch(applying, change.reorg, rows_max=1000)
        with pytest.raises(LockTimeout), change.database.transaction(lock_wait_seconds=0.05) as copying:
            change.shadow.copy_chunk(copying, change.reorg, WHOLE, rows_max=1000)


def test_a_chunk_reads_what_was_there_when_it_got_the_fence(change: Planned, postgres_url: str) -> None:
    """It waits behind an applier; what is deleted meanwhile, and consumed by that very applier, it does not bring back."""
    copied: list[Any] = []

    def copy() -> None:
        with change.database.transaction(lock_wait_seconds=20) as tx:
            copied.append(change.shadow.copy_chunk(tx, change.reorg, WHOLE, rows_max=1000))

    thread = threading.Thread(target=copy)
    with change.writing() as applying:
        change.shadow.apply_batch(applying, change.reorg, rows_max=1000)
        thread.start()
        until(lambda: rows(postgres_url, WAITING), lambda: "the chunk waits for the fence")
        change.run("DELETE FROM {table} WHERE k = 5")
        change.shadow.apply_batch(applying, change.reorg, rows_max=1000)
    thread.join()

    assert [chunk.rows for chunk in copied] == [11]
    assert change.is_copy()


def test_a_copy_that_was_drained_since_it_was_settled_is_settled_again(change: Planned) -> None:
    """As while the job was paused: a unique value that is on two rows of the copy only is no violation of the source."""
    change.copy_rows()
    change.run("UPDATE {table} SET c = 0 WHERE k = 2")
    change.run("UPDATE {table} SET d = 'another' WHERE k = 1", "UPDATE {table} SET d = 'row 1' WHERE k = 2")
    change.apply(rows_max=1)
    assert [d for *_, d in change.rows(change.named("shadow"))].count("row 1") == 2

    change.build(BuildGroup.ENFORCING)

    assert change.is_copy()


def test_a_real_violation_is_the_sources_own(change: Planned) -> None:
    """After the copy was settled once more."""
    change.copy_rows()
    with change.writing() as tx:
        tx.run_verbatim(f"UPDATE {change.written('shadow')} SET d = 'row 1' WHERE k = 2")

    with pytest.raises(ValueRefused):
        change.build(BuildGroup.ENFORCING)


def test_a_sparse_key_is_counted_after_one_guess(change: Planned) -> None:
    """Chunks that hold less than they may would make the next ones smaller and smaller."""
    change.run("UPDATE {table} SET k = k * 100000")
    low, sizes = None, []
    while True:  # ends: each chunk begins behind the one before
        with change.writing() as tx:
            chunk = change.shadow.copy_chunk(tx, change.reorg, type(WHOLE)(low, change.bound(12)), rows_max=2)
        if chunk.last is None:
            break
        sizes.append(chunk.rows)
        low = chunk.last

    assert (sum(sizes), sum(size < 2 for size in sizes)) == (12, 1), sizes


def test_two_chunks_go_on_side_by_side(change: Planned) -> None:
    """The fence is shared among them."""
    middle = change.bound(6)
    with change.writing() as one, change.database.transaction(lock_wait_seconds=0.05) as other:
        change.shadow.copy_chunk(one, change.reorg, type(WHOLE)(None, middle), rows_max=1000)
        change.shadow.copy_chunk(other, change.reorg, type(WHOLE)(middle, None), rows_max=1000)

    assert change.is_copy()
