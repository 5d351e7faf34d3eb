"""A plan for a person to read: each phase with its SQL, the lock it takes and for how long, and what to know."""

from __future__ import annotations

from collections.abc import Sequence

from tideshift.ddl.change import Action, MoveColumn, SetColumnType
from tideshift.ddl.reshaping import SqlStep
from tideshift.ddl.tokens import same_name, significant
from tideshift.dialects.sqlite.affinity import affinity
from tideshift.dialects.sqlite.capture import trigger_texts
from tideshift.dialects.sqlite.catch_up import apply_texts
from tideshift.dialects.sqlite.copy import clear_text
from tideshift.dialects.sqlite.create_table import identifiers, parse_table
from tideshift.dialects.sqlite.cutover import exchange_texts
from tideshift.dialects.sqlite.driver import SqliteDriver, quote
from tideshift.dialects.sqlite.estimate import CHUNK_TARGET_SECONDS
from tideshift.dialects.sqlite.keys import SqliteKeyOrder
from tideshift.dialects.sqlite.layout import Layout
from tideshift.dialects.sqlite.names import Names
from tideshift.dialects.sqlite.purge import delete_text
from tideshift.dialects.sqlite.references import reference_texts
from tideshift.dialects.sqlite.rows import insert_text
from tideshift.dialects.sqlite.texts import (
    canary_rows_text,
    canary_texts,
    index_names,
    index_texts,
    log_text,
    shadow_text,
    trial_text,
)
from tideshift.dialects.sqlite.verify import differing_text, not_logged, only_in_shadow_text
from tideshift.store.database import Transaction
from tideshift.store.keys import KeyRange, encode_value

__all__ = ["Told", "native_steps", "waits", "warnings"]

WRITE_LOCK = "the file's write lock"
READ = ("none (a read snapshot)", "milliseconds per chunk")
_JOB = 0
"""Stands for the job's id, which a plan does not have yet."""


def native_steps(tx: Transaction, statements: Sequence[str], hold: str, tried: Layout | None, driver: SqliteDriver) -> tuple[SqlStep, ...]:
    """Return the database's own statements, behind the trial of the rows where there is one."""
    steps = () if tried is None else Told(tx, tried, driver, tried_first=True).tried()
    return (*steps, *(SqlStep("change", statement, WRITE_LOCK, hold) for statement in statements))


class Told:
    """The statements of a rebuild, by the very functions that execute them; `?` stands for what is not known before."""

    def __init__(self, tx: Transaction, layout: Layout, driver: SqliteDriver, *, tried_first: bool) -> None:
        self.tx = tx
        self.layout = layout
        self.driver = driver
        self.tried_first = tried_first
        self.names = Names(_JOB, layout.table)
        self.shadow, self.source = quote(self.names.shadow), quote(layout.table)
        self.order = layout.order(driver)
        some_key = [encode_value(0)] * len(layout.key)
        self.chunk = KeyRange(some_key, some_key)

    def shadow_steps(self) -> tuple[SqlStep, ...]:
        """Return everything that a shadow table needs, in order."""
        layout, names = self.layout, self.names
        made = [shadow_text(layout, names), *index_texts(layout, names), log_text(layout, names), *canary_texts(layout, names)]
        made += [canary_rows_text(names)] if layout.may_renumber else []
        made += trigger_texts(layout, names).values()
        swapped = [f"DROP TRIGGER {quote(name)}" for name in trigger_texts(layout, names)]
        swapped += [f"DROP TABLE {quote(name)}" for name in (names.log, *([names.canary] if layout.may_renumber else []))]
        per_chunk = f"about {CHUNK_TARGET_SECONDS * 1000:.0f} ms per chunk, with pauses between"
        return (
            *self.tried(),
            *_steps("capture", made, WRITE_LOCK, "milliseconds, all in one transaction"),
            *_steps("copy", self._copied(), WRITE_LOCK, per_chunk),
            *_steps("catch up", apply_texts(layout, names, "?"), WRITE_LOCK, "milliseconds"),
            *_steps("verify", self._compared(), *READ),
            *_steps("see references", reference_texts(self.tx, layout, names, self.driver, captured=True), *READ),
            *_steps("cut-over", [*swapped, *exchange_texts(self.tx, layout, names, self.driver)], WRITE_LOCK, "milliseconds, all in one transaction"),
            *self._purged(),
        )

    def direct_steps(self, hold: str) -> tuple[SqlStep, ...]:
        """Return what a rebuild in one transaction does."""
        layout, names = self.layout, self.names
        made = [shadow_text(layout, names), insert_text(layout, names.shadow, "1"), *index_texts(layout, names)]
        made += [*reference_texts(self.tx, layout, names, self.driver, captured=False), *exchange_texts(self.tx, layout, names, self.driver)]
        purged = _steps("purge", [f"DROP TABLE IF EXISTS {self.shadow}"], WRITE_LOCK, "milliseconds, longer for a large table")
        return (*self.tried(), *_steps("change", made, WRITE_LOCK, hold), *purged)

    def tried(self) -> tuple[SqlStep, ...]:
        """Return how every row is tried before anything is made."""
        if not self.tried_first:
            return ()
        where, _ = self.order.where(self.chunk)
        trial = quote(self.names.trial)
        texts = [trial_text(self.layout, self.names), insert_text(self.layout, self.names.trial, where), f"DROP TABLE temp.{trial}"]
        return _steps("check rows", [self.order.end_text(where), *texts], *READ)

    def _copied(self) -> list[str]:
        where, _ = self.order.where(self.chunk)
        cleared, _ = self.layout.new_order(self.driver, self.names.shadow).where(self.chunk)
        return [self.order.end_text(where), clear_text(self.names, cleared), insert_text(self.layout, self.names.shadow, where)]

    def _compared(self) -> list[str]:
        layout, names = self.layout, self.names
        where, _ = self.order.where(self.chunk)
        beside, _ = layout.new_order(self.driver, names.shadow).where(self.chunk, qualifier="s")
        return [
            self.order.end_text(where),
            trial_text(layout, names),
            insert_text(layout, names.trial, not_logged(layout, names, where)),
            differing_text(layout, names, self.driver),
            only_in_shadow_text(layout, names, self.driver, beside),
            f"DROP TABLE temp.{quote(names.trial)}",
        ]

    def _purged(self) -> tuple[SqlStep, ...]:
        """Return how the old rows go, found as those of the table are now: first the indexes, where the table is not too large for it."""
        order = SqliteKeyOrder.read(self.tx, self.layout.table, self.driver)
        names = zip(index_names(self.layout, self.names), [*self.layout.made_indexes, *self.layout.look_up_indexes], strict=True)
        dropped = [f"DROP INDEX {quote(name)}" for name, index in names if index not in self.layout.added_indexes and order.rowid]
        return _steps("purge", [*dropped, delete_text(self.names.shadow, order), f"DROP TABLE IF EXISTS {self.shadow}"], WRITE_LOCK, "milliseconds per chunk")


def _steps(phase: str, texts: Sequence[str], lock: str, hold: str) -> tuple[SqlStep, ...]:
    return tuple(SqlStep(phase, text, lock, hold) for text in texts)


def warnings(tx: Transaction, layout: Layout, actions: Sequence[Action], *, captured: bool) -> list[str]:
    """Return what a person should know before going on."""
    found = []
    if layout.may_renumber and captured:
        found.append(
            f"{layout.table} has no INTEGER PRIMARY KEY, so VACUUM may give its rows new numbers:"
            " a VACUUM while the job is under way makes the job fail (and nothing else)"
        )
    for action in actions:
        if isinstance(action, SetColumnType) and action.using is None:
            found += _same_type(layout, action)
        if isinstance(action, MoveColumn):
            found.append(f"the order of the columns changes: an INSERT INTO {layout.table} without a list of columns gives its values to others")
    found += _full_text_warnings(tx, layout)
    if captured:
        found += _blob_warning(layout) + _first_trigger_warning(tx, layout)
    if tx.run_verbatim("PRAGMA journal_mode").scalar() not in ("wal", "memory"):
        found.append("the journal mode is not WAL: readers and the job keep one another waiting for moments")
    return found


def waits(hold_seconds: float) -> list[str]:
    """Return the warning about a lock that is held for long."""
    if hold_seconds <= 0.1:
        return []
    return [f"the write lock is held for about {hold_seconds:.1f} s: every writer waits that long, and fails where its busy_timeout is shorter"]


def _same_type(layout: Layout, action: SetColumnType) -> list[str]:
    table = parse_table(layout.old.text)
    for column in table.columns:
        present = table.text[column.type_start : column.type_end]
        if same_name(column.name, action.column) and present.upper() == action.type_text.upper():
            return [f"{column.name} has the type {present} already"]
    return []


def _full_text_warnings(tx: Transaction, layout: Layout) -> list[str]:
    """Return the warnings about indexes of words whose rows are the table's: no trigger tells them of a value that the change itself makes another."""
    table = parse_table(layout.new.text)
    changing = {column.lower() for column in layout.converted if column not in layout.new.generated}
    for one in table.columns:  # in the order of the table: a generated column may be computed from one before it
        if one.name in layout.new.generated and changing & {word.lower() for word in identifiers(table.text[one.start : one.end])}:
            changing.add(one.name.lower())
    found = []
    for name, text in tx.run_verbatim("SELECT name, sql FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE VIRTUAL %' ORDER BY name").rows:
        words = {token.text.strip("'\"`[]").lower() for token in significant(text)}
        changed = sorted(changing & words)
        if changed and {"content", layout.table.lower()} <= words:
            rebuild = f"INSERT INTO {quote(name)}({quote(name)}) VALUES ('rebuild')"
            found.append(f"full-text index {name} keeps the words of the old values of {', '.join(changed)} until it is made again: {rebuild}")
    return found


def _first_trigger_warning(tx: Transaction, layout: Layout) -> list[str]:
    """Return the warning about a table that had no trigger: SQLite carries some statements out otherwise once there is one."""
    if tx.run_verbatim("SELECT 1 FROM sqlite_master WHERE type = 'trigger' AND lower(tbl_name) = lower(?)", (layout.table,)).rows:
        return []
    if not tx.run_verbatim("SELECT 1 FROM pragma_index_list(?) WHERE \"unique\"", (layout.table,)).rows:
        return []
    moved = "an UPDATE that moves unique values between rows (SET a = a + 1) may fail or succeed otherwise than before; docs/sqlite.md lists such statements"
    return [f"{layout.table} has a unique key and no trigger yet: SQLite may take the rows of a statement in another order beside the job's own, so that {moved}"]


def _blob_warning(layout: Layout) -> list[str]:
    """Return the warning about writes that no trigger sees, where a column is made for what they write."""
    table = parse_table(layout.old.text)
    blobs = [
        column.name
        for column in table.columns
        if column.name not in layout.old.generated and affinity(table.text[column.type_start : column.type_end], strict=table.strict) == "BLOB"
    ]
    if not blobs:
        return []
    listed = f"{', '.join(blobs)} of {layout.table} can hold BLOBs"
    return [f"{listed}: incremental writes to one (sqlite3_blob_write, blobopen) fire no trigger; use none while the job is under way"]
