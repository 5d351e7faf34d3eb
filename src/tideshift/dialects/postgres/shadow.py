"""The shadow table's whole life on PostgreSQL: the verbs that the engine calls, each in the transaction that it is given."""

from __future__ import annotations

from typing import Any

from tideshift.ddl.dialect import AppliedBatch, ChunkResult, Comparison
from tideshift.ddl.reshaping import ArtifactName, BuildGroup, Reorg
from tideshift.dialects import points
from tideshift.dialects.postgres import builds, capture, locks, shadow_compare, shadow_rows, swap
from tideshift.dialects.postgres.driver import PostgresDriver
from tideshift.dialects.postgres.keys import PostgresKeyOrder
from tideshift.dialects.postgres.layout import Layout, Names
from tideshift.store.database import Session, Transaction
from tideshift.store.keys import Bound, KeyRange

__all__ = ["COPY_LOG_ROWS", "PostgresShadow"]

COPY_LOG_ROWS = 200_000
"""While a copy has no index of its key the log only grows; from here on it gets one, and the log is applied beside the copy."""


class PostgresShadow:
    """What `Shadow` asks for."""

    def __init__(self, driver: PostgresDriver) -> None:
        self._driver = driver
        self._dense: dict[int, bool] = {}
        """Whether the numbers of a job's key are thought to lie close together."""
        self._last_read: tuple[Reorg, Layout, Names] | None = None

    def _read(self, reorg: Reorg) -> tuple[Layout, Names]:
        """Read layout and names; whoever works chunk by chunk asks with the same object again and again."""
        last = self._last_read
        if last is None or last[0] is not reorg:
            layout = Layout.of(reorg)
            last = self._last_read = (reorg, layout, Names(layout, reorg.job_id))
        return last[1], last[2]

    def artifacts(self, reorg: Reorg) -> list[ArtifactName]:
        _, names = self._read(reorg)
        made = [ArtifactName("shadow", names.shadow), ArtifactName("log", names.log), ArtifactName("function", names.function)]
        return made + [ArtifactName("trigger", names.trigger(event)) for event in capture.EVENTS]

    def key_order(self, reorg: Reorg) -> PostgresKeyOrder:
        return Layout.of(reorg).order(self._driver)

    def copied_key_order(self, reorg: Reorg) -> PostgresKeyOrder:
        layout, names = self._read(reorg)
        return layout.new_order(self._driver, names.bare_shadow)

    def check_rows(self, tx: Transaction, reorg: Reorg, key_range: KeyRange, *, rows_max: int) -> ChunkResult:
        layout, names = self._read(reorg)
        swap.check_source(tx, layout)
        return shadow_compare.check_rows(tx, layout, names, self._driver, key_range, rows_max=rows_max)

    def install(self, tx: Transaction, reorg: Reorg) -> None:
        layout, names = self._read(reorg)
        locks.limit_waits(tx, job_id=reorg.job_id, tries=0)
        swap.check_source(tx, layout)
        locks.take(tx, {layout.oid: layout.source}, "SHARE ROW EXCLUSIVE")
        capture.install(tx, layout, names)
        capture.check(tx, layout, names)
        if points.INSTALLED.on:
            points.INSTALLED.fire(job=reorg.job_id)

    def check(self, tx: Transaction, reorg: Reorg) -> None:
        capture.check(tx, *self._read(reorg))

    def copy_chunk(self, tx: Transaction, reorg: Reorg, key_range: KeyRange, *, rows_max: int) -> ChunkResult:
        layout, names = self._read(reorg)
        dense = key_range.low != key_range.high and self._dense.get(reorg.job_id, False)
        chunk = shadow_rows.copy_chunk(tx, layout, names, self._driver, key_range, rows_max=rows_max, dense=dense)
        if chunk.last is not None and chunk.last != key_range.high:
            if dense and chunk.rows * 2 < rows_max:
                self._dense[reorg.job_id] = False  # for good: a chunk that holds less than it may says nothing of how long one takes
            elif not dense:
                self._dense.setdefault(reorg.job_id, True)
        return chunk

    def backlog(self, tx: Transaction, reorg: Reorg, *, limit: int) -> int:
        return capture.backlog(tx, self._read(reorg)[1], limit=limit)

    def log_bytes(self, tx: Transaction, reorg: Reorg) -> int:
        return capture.log_bytes(tx, self._read(reorg)[1])

    def apply_batch(self, tx: Transaction, reorg: Reorg, *, rows_max: int) -> AppliedBatch:
        layout, names = self._read(reorg)
        if not capture.key_index_stands(tx, layout, names):
            if capture.backlog(tx, names, limit=COPY_LOG_ROWS) < COPY_LOG_ROWS:
                return AppliedBatch(log_rows=0, keys=0)
            shadow_rows.fence(tx, reorg.job_id, shared=False)
            builds.build_key(tx, layout, names)
        return shadow_rows.apply_batch(tx, layout, names, self._driver, rows_max=rows_max)

    def builds(self, reorg: Reorg, group: BuildGroup) -> list[int]:
        return builds.group_of(self._read(reorg)[0], group)

    def build(self, tx: Transaction, reorg: Reorg, number: int, *, side_by_side: int = 1, gently: bool = False) -> None:
        layout, names = self._read(reorg)
        builds.limit_workers(tx, side_by_side=side_by_side, gently=gently)
        builds.build(tx, layout, names, number, settle=lambda: shadow_rows.apply_batch(tx, layout, names, self._driver, rows_max=shadow_rows.WHOLE_LOG))

    def compare_chunk(self, tx: Transaction, reorg: Reorg, key_range: KeyRange, *, rows_max: int) -> Comparison:
        layout, names = self._read(reorg)
        capture.check(tx, layout, names)
        return shadow_compare.compare_chunk(tx, layout, names, self._driver, key_range, rows_max=rows_max)

    def request_repair(self, tx: Transaction, reorg: Reorg, keys: tuple[Bound, ...]) -> None:
        layout, names = self._read(reorg)
        marks = ", ".join(f"${number}::text::{one.type_text}" for number, one in enumerate(layout.key, start=1))
        for key in keys:
            tx.run_verbatim(f"INSERT INTO {names.log} ({layout.log_key}) VALUES ({marks})", tuple(text for _, text in key))

    def rows_of(self, tx: Transaction, reorg: Reorg, key: Bound) -> dict[str, Any]:
        layout, names = self._read(reorg)
        return shadow_compare.rows_of(tx, layout, names, key)

    def see_references(
        self, tx: Transaction, reorg: Reorg, seen: dict[str, Any] | None, *, rows_max: int, swapped: bool
    ) -> dict[str, Any] | None:
        """Nothing is left to see: foreign keys are validated by the server after the swap."""
        return None

    def hold_still(self, tx: Transaction, reorg: Reorg, *, tries: int) -> None:
        swap.hold_still(tx, *self._read(reorg), tries=tries)

    def swap(self, tx: Transaction, reorg: Reorg) -> None:
        swap.swap(tx, reorg, *self._read(reorg))

    def inspect_swapped(self, session: Session, reorg: Reorg) -> None:
        swap.inspect_swapped(session, self._read(reorg)[0])
