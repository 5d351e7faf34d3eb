"""The shadow table's whole life on SQLite: the verbs that the engine calls, each in the transaction that it is given."""

from __future__ import annotations

from typing import Any

from tideshift.ddl.dialect import AppliedBatch, ArtifactName, ChunkResult, Comparison, Reorg
from tideshift.dialects import points
from tideshift.dialects.sqlite import capture, catch_up, copy, cutover, purge, references, verify
from tideshift.dialects.sqlite.driver import SqliteDriver, quote
from tideshift.dialects.sqlite.fingerprint import check, check_source
from tideshift.dialects.sqlite.keys import SqliteKeyOrder
from tideshift.dialects.sqlite.layout import Layout
from tideshift.dialects.sqlite.names import Names
from tideshift.dialects.sqlite.texts import canary_texts, index_names, index_texts, log_text, shadow_text
from tideshift.errors import SchemaChanged
from tideshift.store.database import Session, Transaction
from tideshift.store.keys import Bound, KeyRange

__all__ = ["SqliteShadow"]

_CANARY_FAR_ROWID = 1_000_000


class SqliteShadow:
    """What `Shadow` asks for."""

    def __init__(self, driver: SqliteDriver) -> None:
        self._driver = driver

    def artifacts(self, reorg: Reorg) -> list[ArtifactName]:
        layout, names = _read(reorg)
        made = [ArtifactName("shadow", names.shadow)]
        made += [ArtifactName("index", name) for name in index_names(layout, names)]
        made.append(ArtifactName("log", names.log))
        kinds = (ArtifactName("canary", names.canary), ArtifactName("index", names.canary_index))
        made += kinds[: len(canary_texts(layout, names))]
        return made + [ArtifactName("trigger", name) for name in capture.trigger_texts(layout, names)]

    def key_order(self, reorg: Reorg) -> SqliteKeyOrder:
        return Layout.of(reorg).order(self._driver)

    def copied_key_order(self, reorg: Reorg) -> SqliteKeyOrder:
        layout, names = _read(reorg)
        return layout.new_order(self._driver, names.shadow)

    def check_rows(self, tx: Transaction, reorg: Reorg, key_range: KeyRange, *, rows_max: int) -> ChunkResult:
        layout, names = _read(reorg)
        check_source(tx, layout)
        return verify.check_rows(tx, layout, names, self._driver, key_range, rows_max=rows_max)

    def install(self, tx: Transaction, reorg: Reorg) -> None:
        layout, names = _read(reorg)
        check_source(tx, layout)
        for text in [shadow_text(layout, names), *index_texts(layout, names), log_text(layout, names), *canary_texts(layout, names)]:
            if points.INSTALL_TABLE.on:
                points.INSTALL_TABLE.fire(job=reorg.job_id)
            tx.run_verbatim(text)
        if layout.may_renumber:
            rows = f"INSERT INTO {quote(names.canary)} (rowid, \"n\") VALUES (1, 1), ({_CANARY_FAR_ROWID}, 2)"
            tx.run_verbatim(rows)
        capture.install_triggers(tx, layout, names)
        check(tx, layout, names)
        if points.INSTALLED.on:
            points.INSTALLED.fire(job=reorg.job_id)

    def check(self, tx: Transaction, reorg: Reorg) -> None:
        check(tx, *_read(reorg))

    def copy_chunk(self, tx: Transaction, reorg: Reorg, key_range: KeyRange, *, rows_max: int) -> ChunkResult:
        layout, names = _read(reorg)
        return copy.copy_chunk(tx, layout, names, self._driver, key_range, rows_max=rows_max)

    def backlog(self, tx: Transaction, reorg: Reorg, *, limit: int) -> int:
        return capture.backlog(tx, _read(reorg)[1], limit=limit)

    def apply_batch(self, tx: Transaction, reorg: Reorg, *, rows_max: int) -> AppliedBatch:
        layout, names = _read(reorg)
        return catch_up.apply_batch(tx, layout, names, self._driver, rows_max=rows_max)

    def compare_chunk(self, tx: Transaction, reorg: Reorg, key_range: KeyRange, *, rows_max: int) -> Comparison:
        layout, names = _read(reorg)
        check(tx, layout, names)
        return verify.compare_chunk(tx, layout, names, self._driver, key_range, rows_max=rows_max)

    def request_repair(self, tx: Transaction, reorg: Reorg, keys: tuple[Bound, ...]) -> None:
        layout, names = _read(reorg)
        order = layout.order(self._driver)
        capture.log_keys(tx, layout, names, [order.literal(key) for key in keys])

    def rows_of(self, tx: Transaction, reorg: Reorg, key: Bound) -> dict[str, Any]:
        layout, names = _read(reorg)
        return verify.rows_of(tx, layout, names, self._driver, key)

    def see_references(
        self, tx: Transaction, reorg: Reorg, seen: dict[str, Any] | None, *, rows_max: int, swapped: bool
    ) -> dict[str, Any] | None:
        layout, names = _read(reorg)
        if not swapped:
            check(tx, layout, names)
        return references.see_references(tx, layout, names, self._driver, seen, rows_max=rows_max, swapped=swapped)

    def swap(self, tx: Transaction, reorg: Reorg) -> None:
        layout, names = _read(reorg)
        check(tx, layout, names)
        cutover.swap(tx, layout, names, self._driver)

    def inspect_swapped(self, session: Session, reorg: Reorg) -> None:
        layout, _ = _read(reorg)
        expected = cutover.final_shape(layout, self._driver)
        with session.transaction(write=False) as tx:
            text = tx.run_verbatim("SELECT sql FROM sqlite_master WHERE type = 'table' AND name = ?", (layout.table,)).scalar()
            if text != layout.new.text:
                raise SchemaChanged(f"the stored text of {layout.table} is not the planned one", table=layout.table)
            cutover.see_swapped(tx, layout, expected)

    def empty_chunk(self, tx: Transaction, artifact: ArtifactName, *, rows_max: int) -> int:
        return purge.empty_chunk(tx, artifact, self._driver, rows_max=rows_max)

    def drop(self, tx: Transaction, artifact: ArtifactName) -> None:
        purge.drop(tx, artifact)


def _read(reorg: Reorg) -> tuple[Layout, Names]:
    layout = Layout.of(reorg)
    return layout, layout.names(reorg)
