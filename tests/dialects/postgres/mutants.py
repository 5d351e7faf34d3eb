"""Copy mutants for PostgreSQL: each takes one rule of the protocol out of the real code, and nothing else."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest
from sqlalchemy import Connection

from tideshift.ddl import tables as ddl_tables
from tideshift.ddl.dialect import AppliedBatch
from tideshift.ddl.reshaping import Reorg
from tideshift.dialects.postgres import builds, capture, shadow, shadow_rows, swap
from tideshift.dialects.postgres.driver import PostgresDriver, quote
from tideshift.dialects.postgres.layout import Layout, Names
from tideshift.dxf import tables as dxf_tables
from tideshift.dxf.executor import Executor
from tideshift.dxf.task import Subtask
from tideshift.dxf.tasktype import Chunk
from tideshift.errors import SubtaskLost
from tideshift.store.database import Transaction
from tideshift.store.keys import Bound, KeyRange

__all__ = ["CHUNK_THREAD", "MUTANTS"]

CHUNK_THREAD = "chunk"
"""The name of the thread in which a scene copies."""
Patch = Callable[[pytest.MonkeyPatch], None]


def no_fence(patch: pytest.MonkeyPatch) -> None:
    """Chunks and the applier do not wait for one another."""
    for module in (shadow_rows, swap):
        patch.setattr(module, "fence", lambda *_, **__: None)


def fence_inside_the_statement(patch: pytest.MonkeyPatch) -> None:
    """A chunk takes the fence in the statement that inserts, whose snapshot is older than the fence."""
    real_fence, real_insert = shadow_rows.fence, shadow_rows._insert_range
    texts: list[str] = []

    def fence(tx: Transaction, job_id: int, *, shared: bool) -> None:
        if not shared:
            real_fence(tx, job_id, shared=False)

    class Noting:
        """Stands for a transaction and takes down the text and bind of the fence instead of running them."""

        def run_verbatim(self, sql: str, binds: tuple[Any, ...]) -> None:
            texts[:] = [sql.replace("$1", str(binds[0]))]

    def insert_range(tx: Transaction, layout: Layout, target: str, driver: PostgresDriver, chunk: KeyRange) -> int:
        real_fence(Noting(), _job_of(target, layout), shared=True)  # type: ignore[arg-type]
        inner = tx.run_verbatim

        def run(sql: str, binds: tuple[Any, ...] = ()) -> Any:
            return inner(f"WITH tideshift_fence AS MATERIALIZED ({texts[0]}) {sql} AND (SELECT count(*) FROM tideshift_fence) = 1" if sql.startswith("INSERT") else sql, binds)

        with patch.context() as within:
            within.setattr(tx, "run_verbatim", run)
            return real_insert(tx, layout, target, driver, chunk)

    patch.setattr(shadow_rows, "fence", fence)
    patch.setattr(shadow_rows, "_insert_range", insert_range)


def _job_of(target: str, layout: Layout) -> int:
    return next(number for number in range(100) if Names(layout, number).shadow == target)


def repeatable_read_chunk(patch: pytest.MonkeyPatch) -> None:
    """A chunk reads by the snapshot of its first statement, which waits for the fence."""
    real = PostgresDriver.begin

    def begin(self: PostgresDriver, connection: Connection, **options: Any) -> None:
        real(self, connection, **options)
        if threading.current_thread().name == CHUNK_THREAD:
            self.run_verbatim(connection, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", ())

    patch.setattr(PostgresDriver, "begin", begin)


def only_new_key(patch: pytest.MonkeyPatch) -> None:
    """An UPDATE logs the new key only."""
    real = capture._function_texts

    def texts(layout: Layout, names: Names) -> list[str]:
        (old,) = [f"OLD.{quote(one.name)}" for one in layout.key]
        return [text.replace(f"VALUES ({old}), (", "VALUES (") for text in real(layout, names)]

    patch.setattr(capture, "_function_texts", texts)


def consumed_too_early(patch: pytest.MonkeyPatch) -> None:
    """The log's keys are taken out in one transaction and applied in another."""
    real = shadow_rows.apply_batch

    def apply_batch(tx: Transaction, layout: Layout, names: Names, driver: PostgresDriver, *, rows_max: int) -> AppliedBatch:
        with tx.database.transaction() as before:
            taken = before.run_verbatim(f"DELETE FROM {names.log} RETURNING {layout.log_key}").rows
        for row in taken:
            tx.run_verbatim(f"INSERT INTO {names.log} ({layout.log_key}) VALUES ($1)", row)
        return real(tx, layout, names, driver, rows_max=rows_max)

    patch.setattr(shadow_rows, "apply_batch", apply_batch)


def attempt_not_checked(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint is written whoever holds the subtask now."""

    def checkpoint(tx: Transaction, seen: Subtask, *, checkpoint: dict[str, Any], summary: dict[str, Any]) -> None:
        statement = dxf_tables.update(dxf_tables.subtask).where(dxf_tables.subtask.c.id == seen.id)
        tx.execute(statement.values(checkpoint=checkpoint, summary=summary))

    patch.setattr(dxf_tables, "checkpoint_subtask", checkpoint)


def attempt_checked_first(patch: pytest.MonkeyPatch) -> None:
    """The attempt is checked before the chunk's transaction instead of as its last statement."""
    attempt_not_checked(patch)
    real = Executor.chunk

    @contextmanager
    def chunk(self: Executor, *, write: bool = True) -> Iterator[Chunk]:
        with self._session.transaction(write=False) as tx:
            row = dxf_tables.subtask_by_id(tx, self.subtask.id)
        if row.attempt != self.subtask.attempt or str(row.state) != "running":
            raise SubtaskLost("not ours")
        with real(self, write=write) as made:
            yield made

    patch.setattr(Executor, "chunk", chunk)


def on_conflict_in_applier(patch: pytest.MonkeyPatch) -> None:
    """The applier leaves out what stands in its own way."""
    real = shadow_rows._apply_text
    patch.setattr(shadow_rows, "_apply_text", lambda layout, names: real(layout, names).replace(" RETURNING 1)\nSELECT", " ON CONFLICT DO NOTHING RETURNING 1)\nSELECT"))


def unique_before_settle(patch: pytest.MonkeyPatch) -> None:
    """What refuses rows is built from the copy as it is."""
    real = builds.build
    patch.setattr(builds, "build", lambda tx, layout, names, number, **_: real(tx, layout, names, number))


def references_on_shadow(patch: pytest.MonkeyPatch) -> None:
    """The shadow has the table's own foreign keys from the start."""
    real = capture.install

    def install(tx: Transaction, layout: Layout, names: Names) -> None:
        real(tx, layout, names)
        for _, child, _, text, _ in tx.run_verbatim(swap._FOREIGN_KEYS, (layout.oid,)).rows:
            if child == layout.oid:
                tx.run_verbatim(f"ALTER TABLE {names.shadow} ADD {text}")

    patch.setattr(capture, "install", install)


def repair_by_copying(patch: pytest.MonkeyPatch) -> None:
    """A difference is repaired by copying the source's row over the shadow's, instead of through the log."""

    def request_repair(self: shadow.PostgresShadow, tx: Transaction, reorg: Reorg, keys: tuple[Bound, ...]) -> None:
        layout, names = self._read(reorg)
        for key in keys:
            where = f"{layout.old_key} = $1::text::{layout.key[0].type_text}"
            binds = tuple(text for _, text in key)
            found = tx.run_verbatim(f"SELECT 1 FROM {layout.source} WHERE {where}", binds).rows
            if found:
                tx.run_verbatim(f"DELETE FROM {names.shadow} WHERE {where}", binds)
                tx.run_verbatim(f"INSERT INTO {names.shadow} {layout.insert} SELECT {layout.values} FROM {layout.source} WHERE {where}", binds)

    patch.setattr(shadow.PostgresShadow, "request_repair", request_repair)


def late_swap(patch: pytest.MonkeyPatch) -> None:
    """The owner's moves do not look at what became of the job since it was read, so a given-up attempt may still rename."""
    real = ddl_tables.move_job

    def move_job(tx: Transaction, seen: Any, event: str, **columns: Any) -> Any:
        if columns.get("tenure") is not None:
            seen = replace(seen, rev=ddl_tables.job_by_id(tx, seen.id).rev)
        return real(tx, seen, event, **columns)

    patch.setattr(ddl_tables, "move_job", move_job)


MUTANTS: dict[str, tuple[Patch, str, str]] = {
    "no fence": (no_fence, "a row is deleted while its chunk is under way", "the copy differs"),
    "fence inside the statement": (fence_inside_the_statement, "a chunk waits for the applier", "the copy differs"),
    "repeatable read chunk": (repeatable_read_chunk, "a chunk waits for the applier", "the copy differs"),
    "only the new key logged": (only_new_key, "a key is moved", "the copy differs"),
    "log consumed before the batch commits": (consumed_too_early, "a batch does not come to its commit", "the copy differs"),
    "attempt not checked": (attempt_not_checked, "a frozen attempt wakes up in a paused job", "a paused job copied on"),
    "attempt checked first": (attempt_checked_first, "a frozen attempt wakes up in a paused job", "a paused job copied on"),
    "ON CONFLICT in the applier": (on_conflict_in_applier, "a unique value goes from row to row between batches", "the copy differs"),
    "unique index before settle": (unique_before_settle, "a unique value crosses the copy's front", "a valid table was refused"),
    "foreign key before the drain": (references_on_shadow, "a parent is deleted after its child", "the application's statement failed"),
    "repair by copying": (repair_by_copying, "the copy is damaged", "the copy differs"),
    "late rename of a given-up attempt": (late_swap, "a cancel comes right before the commit of the swap", "ended synced"),
}
"""By name: the mutant, the scene in which it must be noticed, and the fault by which."""
