"""The shadow table's whole life on SQLite: the verbs that the engine calls, each in the transaction that it is given."""

from __future__ import annotations

from typing import Any

from tideshift.ddl.dialect import AppliedBatch, ChunkResult, Comparison
from tideshift.ddl.reshaping import SHADOW_INDEX, ArtifactName, BuildGroup, Reorg
from tideshift.dialects import points
from tideshift.dialects.sqlite import capture, catch_up, copy, cutover, references, verify
from tideshift.dialects.sqlite.driver import SqliteDriver
from tideshift.dialects.sqlite.fingerprint import check, check_source
from tideshift.dialects.sqlite.keys import SqliteKeyOrder
from tideshift.dialects.sqlite.layout import Layout
from tideshift.dialects.sqlite.names import Names
from tideshift.dialects.sqlite.texts import (
    canary_rows_text,
    canary_texts,
    index_names,
    index_texts,
    log_text,
    shadow_text,
)
from tideshift.errors import SchemaChanged
from tideshift.store.database import Session, Transaction
from tideshift.store.keys import Bound, KeyRange

__all__ = ["SqliteShadow"]



class SqliteShadow:
    """What `Shadow` asks for."""

    def __init__(self, driver: SqliteDriver) -> None:
        self._driver = driver
        self._seen_versions: dict[int, int] = {}
        """The version of the schema in which each job's objects were seen to be as recorded."""
        self._last_read: tuple[Reorg, Layout, Names] | None = None

    def _read(self, reorg: Reorg) -> tuple[Layout, Names]:
        """Read layout and names; whoever works chunk by chunk asks with the same object again and again."""
        last = self._last_read
        if last is None or last[0] is not reorg:
            layout = Layout.of(reorg)
            last = self._last_read = (reorg, layout, layout.names(reorg))
        return last[1], last[2]

    def artifacts(self, reorg: Reorg) -> list[ArtifactName]:
        layout, names = self._read(reorg)
        made = [ArtifactName("shadow", names.shadow)]
        made += [ArtifactName(SHADOW_INDEX, name) for name in index_names(layout, names)]
        made.append(ArtifactName("log", names.log))
        kinds = (ArtifactName("canary", names.canary), ArtifactName("index", names.canary_index))
        made += kinds[: len(canary_texts(layout, names))]
        return made + [ArtifactName("trigger", name) for name in capture.trigger_texts(layout, names)]

    def key_order(self, reorg: Reorg) -> SqliteKeyOrder:
        return Layout.of(reorg).order(self._driver)

    def copied_key_order(self, reorg: Reorg) -> SqliteKeyOrder:
        layout, names = self._read(reorg)
        return layout.new_order(self._driver, names.shadow)

    def check_rows(self, tx: Transaction, reorg: Reorg, key_range: KeyRange, *, rows_max: int) -> ChunkResult:
        layout, names = self._read(reorg)
        check_source(tx, layout)
        return verify.check_rows(tx, layout, names, self._driver, key_range, rows_max=rows_max)

    def install(self, tx: Transaction, reorg: Reorg) -> None:
        layout, names = self._read(reorg)
        check_source(tx, layout)
        for text in [shadow_text(layout, names), *index_texts(layout, names), log_text(layout, names), *canary_texts(layout, names)]:
            if points.INSTALL_TABLE.on:
                points.INSTALL_TABLE.fire(job=reorg.job_id)
            tx.run_verbatim(text)
        if layout.may_renumber:
            tx.run_verbatim(canary_rows_text(names))
        capture.install_triggers(tx, layout, names)
        check(tx, layout, names)
        if points.INSTALLED.on:
            points.INSTALLED.fire(job=reorg.job_id)

    def check(self, tx: Transaction, reorg: Reorg) -> None:
        """Look again only when the schema has another version than when all was right; everything that is looked at raises it."""
        version = int(tx.run_verbatim("PRAGMA schema_version").scalar())
        if self._seen_versions.get(reorg.job_id) != version:
            check(tx, *self._read(reorg))
            self._seen_versions[reorg.job_id] = version

    def copy_chunk(self, tx: Transaction, reorg: Reorg, key_range: KeyRange, *, rows_max: int) -> ChunkResult:
        layout, names = self._read(reorg)
        return copy.copy_chunk(tx, layout, names, self._driver, key_range, rows_max=rows_max)

    def backlog(self, tx: Transaction, reorg: Reorg, *, limit: int) -> int:
        return capture.backlog(tx, self._read(reorg)[1], limit=limit)

    def log_bytes(self, tx: Transaction, reorg: Reorg) -> int:
        return capture.log_bytes(tx, *self._read(reorg))

    def apply_batch(self, tx: Transaction, reorg: Reorg, *, rows_max: int) -> AppliedBatch:
        layout, names = self._read(reorg)
        return catch_up.apply_batch(tx, layout, names, self._driver, rows_max=rows_max)

    def compare_chunk(self, tx: Transaction, reorg: Reorg, key_range: KeyRange, *, rows_max: int) -> Comparison:
        layout, names = self._read(reorg)
        self.check(tx, reorg)
        return verify.compare_chunk(tx, layout, names, self._driver, key_range, rows_max=rows_max)

    def request_repair(self, tx: Transaction, reorg: Reorg, keys: tuple[Bound, ...]) -> None:
        layout, names = self._read(reorg)
        order = layout.order(self._driver)
        capture.log_keys(tx, layout, names, [order.literal(key) for key in keys])

    def rows_of(self, tx: Transaction, reorg: Reorg, key: Bound) -> dict[str, Any]:
        layout, names = self._read(reorg)
        return verify.rows_of(tx, layout, names, self._driver, key)

    def see_references(
        self, tx: Transaction, reorg: Reorg, seen: dict[str, Any] | None, *, rows_max: int, swapped: bool
    ) -> dict[str, Any] | None:
        layout, names = self._read(reorg)
        if not swapped:
            self.check(tx, reorg)
        return references.see_references(tx, layout, names, self._driver, seen, rows_max=rows_max, swapped=swapped)

    def builds(self, reorg: Reorg, group: BuildGroup) -> list[int]:
        """Nothing: indexes stand on the empty shadow."""
        return []

    def build(self, tx: Transaction, reorg: Reorg, number: int, *, side_by_side: int = 1, gently: bool = False) -> None:
        """Never asked for."""
        raise AssertionError(number)

    def hold_still(self, tx: Transaction, reorg: Reorg, *, tries: int) -> None:
        """Nothing: a transaction that writes has the lock that every writer needs."""

    def swap(self, tx: Transaction, reorg: Reorg) -> None:
        layout, names = self._read(reorg)
        check(tx, layout, names)
        cutover.swap(tx, layout, names, self._driver)

    def inspect_swapped(self, session: Session, reorg: Reorg) -> None:
        layout, _ = self._read(reorg)
        expected = cutover.final_shape(layout, self._driver)
        with session.transaction(write=False) as tx:
            text = tx.run_verbatim("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?", (layout.table,)).scalar()
            if text != layout.new.text:
                raise SchemaChanged(f"the stored text of {layout.table} is not the planned one", table=layout.table)
            cutover.see_swapped(tx, layout, expected)
