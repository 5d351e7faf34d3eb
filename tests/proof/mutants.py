"""The copy mutants: each takes one rule of the protocol out of the real code, and nothing else."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import pytest

from tideshift.ddl import tables as ddl_tables
from tideshift.ddl.dialect import AppliedBatch, Dialect
from tideshift.ddl.reorg import cutover as reorg_cutover
from tideshift.ddl.reorg import task as reorg_task
from tideshift.ddl.reshaping import Reorg
from tideshift.dialects import points
from tideshift.dialects.sqlite import capture, catch_up, copy, cutover, fingerprint, rows, shadow, texts, trial
from tideshift.dialects.sqlite.create_table import ClauseKind
from tideshift.dialects.sqlite.driver import quote
from tideshift.dialects.sqlite.layout import ROW_ALIAS, Layout
from tideshift.dialects.sqlite.names import Names
from tideshift.dxf import tables as dxf_tables
from tideshift.dxf.executor import Executor
from tideshift.dxf.task import Subtask
from tideshift.dxf.tasktype import Chunk
from tideshift.errors import SubtaskLost
from tideshift.store.database import Transaction
from tideshift.store.keys import KeyRange

__all__ = ["MUTANTS", "forget_texts"]

Patch = Callable[[pytest.MonkeyPatch], None]


def forget_texts() -> None:
    """Let every text be worked out anew: some are remembered."""
    fingerprint._expected.cache_clear()
    texts._beside.cache_clear()
    texts._trial.cache_clear()


def _with_triggers(patch: pytest.MonkeyPatch, change: Callable[[str, str], str | None]) -> None:
    """Change the text of each capture trigger, or leave it out."""
    real = capture.trigger_texts

    def changed(layout: Layout, names: Names) -> dict[str, str]:
        texts_now = {name: change(name, text) for name, text in real(layout, names).items()}
        return {name: text for name, text in texts_now.items() if text is not None}

    for module in (capture, fingerprint, trial):
        patch.setattr(module, "trigger_texts", changed)


def only_new_key(patch: pytest.MonkeyPatch) -> None:
    """An UPDATE logs the new key only."""

    def change(name: str, text: str) -> str:
        return text.replace("VALUES (OLD.", "VALUES (NEW.") if name.endswith("after_update") else text

    _with_triggers(patch, change)


def displaced_not_logged(patch: pytest.MonkeyPatch) -> None:
    """Nothing looks in the shadow, after a statement, for the rows that it displaced."""

    def change(name: str, text: str) -> str:
        return "".join(f"{part};" for part in text.split(";")[:-1] if f" AS {ROW_ALIAS} " not in part) + " END" if "_after_" in name else text

    _with_triggers(patch, change)


def no_before_triggers(patch: pytest.MonkeyPatch) -> None:
    """Nothing looks in the source, before a statement, for the rows that it is about to displace."""
    _with_triggers(patch, lambda name, text: None if "_before_" in name else text)


def consumed_too_early(patch: pytest.MonkeyPatch) -> None:
    """The log's keys are taken out in one transaction and applied in the next."""
    taken: list[tuple[Any, ...]] = []

    def apply_batch(tx: Transaction, layout: Layout, names: Names, driver: Any, *, rows_max: int) -> AppliedBatch:
        marks = ", ".join(map(quote, layout.key_marks))
        if taken:
            for row in taken:
                tx.run_verbatim(f"INSERT INTO {quote(names.log)} ({marks}) VALUES ({', '.join('?' * len(row))})", row)
            taken.clear()
            return catch_up.settle(tx, layout, names, driver)
        if points.APPLY_CONSUME.on:
            points.APPLY_CONSUME.fire(job=names.job_id)
        taken.extend(tx.run_verbatim(f"SELECT {marks} FROM {quote(names.log)}").rows)
        gone = tx.run_verbatim(f"DELETE FROM {quote(names.log)}").affected
        return AppliedBatch(log_rows=gone, keys=gone)

    patch.setattr(catch_up, "apply_batch", apply_batch)
    patch.setattr(catch_up, "taken", taken, raising=False)  # the scene's crash empties it: memory dies with a process


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


def _insert_with(words: str) -> Callable[..., int]:
    def insert(tx: Transaction, layout: Layout, target: str, condition: str, binds: tuple[Any, ...], *, tail: str = "") -> int:
        sql = f"{words} INTO {quote(target)} ({layout.written_list}) SELECT {layout.mapped_list} FROM {quote(layout.table)} WHERE {condition}{tail}"
        return tx.run_verbatim(sql, binds).affected

    return insert


def replace_in_applier(patch: pytest.MonkeyPatch) -> None:
    """The applier inserts with REPLACE."""
    patch.setattr(catch_up, "insert_rows", _insert_with("INSERT OR REPLACE"))


def plain_insert(patch: pytest.MonkeyPatch) -> None:
    """The applier's INSERT obeys the conflict clauses of the constraints."""
    patch.setattr(catch_up, "insert_rows", _insert_with("INSERT"))


def references_on_shadow(patch: pytest.MonkeyPatch) -> None:
    """The shadow has the table's foreign keys from the start."""
    patch.setattr(texts, "_LEFT_OUT", (ClauseKind.AUTOINCREMENT,))


def no_upper_bound(patch: pytest.MonkeyPatch) -> None:
    """The copy goes on to whatever the table's end is at that time."""
    real = reorg_task._ranges

    def ranges(tx: Transaction, dialect: Dialect, reorg: Reorg, **options: Any) -> list[dict[str, Any]]:
        found = real(tx, dialect, reorg, **options)
        if found:
            last = KeyRange.from_record(dict(found[-1]["range"]))
            found[-1] = {"range": KeyRange(last.low, None).as_record()}
        return found

    patch.setattr(reorg_task, "_ranges", ranges)


def repair_by_copying(patch: pytest.MonkeyPatch) -> None:
    """A difference is repaired by copying the source's row, instead of through the log."""

    def request_repair(self: shadow.SqliteShadow, tx: Transaction, reorg: Reorg, keys: tuple[Any, ...]) -> None:
        layout, names = self._read(reorg)
        order = layout.order(self._driver)
        for key in keys:
            condition = f"{order.select_list()} = {order.literal(key)[0]}"
            _insert_with("INSERT OR REPLACE")(tx, layout, names.shadow, condition, order.literal(key)[1])

    patch.setattr(shadow.SqliteShadow, "request_repair", request_repair)


def no_settle(patch: pytest.MonkeyPatch) -> None:
    """A unique conflict is taken for a violation at once."""

    def settle(*_: object) -> AppliedBatch:
        raise rows.ROW_REFUSED[0]("a unique value is there twice")

    patch.setattr(copy, "settle", settle)
    patch.setattr(catch_up, "settle", settle)


def swap_without_drain(patch: pytest.MonkeyPatch) -> None:
    """The swap takes place although the log holds keys."""
    patch.setattr(reorg_cutover, "settle", lambda *_, **__: 0)
    patch.setattr(cutover, "backlog", lambda *_, **__: 0)


def late_swap(patch: pytest.MonkeyPatch) -> None:
    """The owner's moves do not look at what became of the job since it was read."""
    real = ddl_tables.move_job

    def move_job(tx: Transaction, seen: Any, event: str, **columns: Any) -> Any:
        if columns.get("tenure") is not None:
            seen = replace(seen, rev=ddl_tables.job_by_id(tx, seen.id).rev)
        return real(tx, seen, event, **columns)

    patch.setattr(ddl_tables, "move_job", move_job)


MUTANTS: dict[str, tuple[Patch, str, str]] = {
    "only the new key logged": (only_new_key, "a key is moved", "the rows of t differ"),
    "no look-up of displaced rows": (displaced_not_logged, "a row is displaced", "UNIQUE constraint failed"),
    "no look-up of displaced rows, default for NULL": (displaced_not_logged, "a default displaces a row", "UNIQUE constraint failed"),
    "no BEFORE triggers": (no_before_triggers, "a row is displaced by a key under USING", "UNIQUE constraint failed"),
    "log consumed before the apply commits": (consumed_too_early, "the process dies after a consumption", "the rows of t differ"),
    "attempt not checked": (attempt_not_checked, "a frozen attempt wakes up in a paused job", "a paused job copied on"),
    "attempt checked first": (attempt_checked_first, "a frozen attempt wakes up in a paused job", "a paused job copied on"),
    "REPLACE in the applier": (replace_in_applier, "two values become one", "ended synced"),
    "plain INSERT in the applier": (plain_insert, "two values become one, ignored by the constraint", "ended synced"),
    "foreign keys on the shadow": (references_on_shadow, "a parent is deleted after its child", "FOREIGN KEY constraint failed"),
    "no upper bound": (no_upper_bound, "a writer appends as fast as the copy", "the copy does not end"),
    "repair by copying": (repair_by_copying, "the shadow is damaged", "differ from their copies after a repair"),
    "no settle in the copy": (no_settle, "a unique value crosses the copy's front", "a unique value is there twice"),
    "no settle in the applier": (no_settle, "a unique value moves between two batches", "a unique value is there twice"),
    "swap without a drained log": (swap_without_drain, "a write comes right before the swap", "the rows of t differ"),
    "late swap": (late_swap, "a cancel comes right before the swap", "ended synced"),
}
"""By name: the mutant, the scene in which it must be noticed, and the fault by which."""
