"""A plan for a person to read: each phase with its SQL, the lock it takes and for how long, and what to know."""

from __future__ import annotations

from collections.abc import Sequence

from tideshift.ddl.change import Action, MoveColumn, SetColumnType
from tideshift.ddl.dialect import SqlStep
from tideshift.ddl.tokens import same_name
from tideshift.dialects.sqlite.affinity import affinity
from tideshift.dialects.sqlite.capture import trigger_texts
from tideshift.dialects.sqlite.create_table import parse_table
from tideshift.dialects.sqlite.driver import quote
from tideshift.dialects.sqlite.estimate import CHUNK_TARGET_SECONDS
from tideshift.dialects.sqlite.layout import Layout
from tideshift.dialects.sqlite.names import Names
from tideshift.dialects.sqlite.texts import canary_texts, index_texts, log_text, shadow_text, trial_text
from tideshift.store.database import Transaction

__all__ = ["direct_steps", "native_steps", "shadow_steps", "warnings"]

WRITE_LOCK = "the file's write lock"
_JOB = 0
"""Stands for the job's id, which a plan does not have yet."""


def shadow_steps(layout: Layout, *, tried_first: bool) -> tuple[SqlStep, ...]:
    """Return everything that a shadow table needs, in order."""
    names = Names(_JOB, layout.table)
    made = [shadow_text(layout, names), *index_texts(layout, names), log_text(layout, names), *canary_texts(layout, names)]
    made += trigger_texts(layout, names).values()
    shadow, source = quote(names.shadow), quote(layout.table)
    copied = _copied(layout, names)
    per_chunk = f"about {CHUNK_TARGET_SECONDS * 1000:.0f} ms per chunk, with pauses between"
    swapped = [f"DROP TRIGGER {quote(name)}" for name in trigger_texts(layout, names)]
    swapped.append(f"DROP TABLE {quote(names.log)}")
    swapped += [f"DROP TABLE {quote(names.canary)}"] if layout.may_renumber else []
    swapped += [
        f"PRAGMA writable_schema = ON; exchange the root pages of {source} and {shadow} and of their indexes in sqlite_master",
        f"sqlite_master: the text of {source} becomes {layout.new.text}",
        *(f"sqlite_master: {index.text}" for index in layout.added_indexes),
    ]
    return (
        *_tried(layout, names, tried_first=tried_first),
        *(SqlStep("capture", text, WRITE_LOCK, "milliseconds, all in one transaction") for text in made),
        SqlStep("copy", f"DELETE FROM {shadow} WHERE …; {copied}", WRITE_LOCK, per_chunk),
        SqlStep("catch up", f"DELETE FROM {shadow} WHERE … IN (SELECT … FROM {quote(names.log)}); {copied}", WRITE_LOCK, "milliseconds"),
        SqlStep("verify", f"SELECT … FROM {source}, compared with {shadow}", "none (a read snapshot)", "milliseconds per chunk"),
        *(SqlStep("cut-over", text, WRITE_LOCK, "milliseconds, all in one transaction") for text in swapped),
        SqlStep("purge", f"DELETE FROM {shadow} WHERE …; DROP TABLE {shadow}", WRITE_LOCK, "milliseconds per chunk"),
    )


def direct_steps(layout: Layout, hold: str, *, tried_first: bool) -> tuple[SqlStep, ...]:
    """Return what a rebuild in one transaction does."""
    names = Names(_JOB, layout.table)
    shadow, source = quote(names.shadow), quote(layout.table)
    made = [shadow_text(layout, names), f"{_copied(layout, names)} 1", *index_texts(layout, names)]
    made.append(f"sqlite_master: {source} and {shadow} exchange their root pages; the text of {source} becomes {layout.new.text}")
    return (
        *_tried(layout, names, tried_first=tried_first),
        *(SqlStep("change", text, WRITE_LOCK, hold) for text in made),
        SqlStep("purge", f"DELETE FROM {shadow} WHERE …; DROP TABLE {shadow}", WRITE_LOCK, "milliseconds per chunk"),
    )


def native_steps(statements: Sequence[str], hold: str) -> tuple[SqlStep, ...]:
    """Return the database's own statements."""
    return tuple(SqlStep("change", statement, WRITE_LOCK, hold) for statement in statements)


def _tried(layout: Layout, names: Names, *, tried_first: bool) -> tuple[SqlStep, ...]:
    if not tried_first:
        return ()
    tried = f"{trial_text(layout, names)}; INSERT INTO temp.{quote(names.trial)} SELECT … FROM {quote(layout.table)} WHERE …"
    return (SqlStep("check rows", tried, "none (a read snapshot)", "milliseconds per chunk"),)


def _copied(layout: Layout, names: Names) -> str:
    source, shadow = quote(layout.table), quote(names.shadow)
    return f"INSERT OR ABORT INTO {shadow} ({layout.written_list}) SELECT {layout.mapped_list} FROM {source} WHERE"


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
    if captured:
        found += _blob_warning(layout)
    if tx.run_verbatim("PRAGMA journal_mode").scalar() not in ("wal", "memory"):
        found.append("the journal mode is not WAL: readers and the job keep one another waiting for moments")
    return found


def _same_type(layout: Layout, action: SetColumnType) -> list[str]:
    table = parse_table(layout.old.text)
    for column in table.columns:
        present = table.text[column.type_start : column.type_end]
        if same_name(column.name, action.column) and present.upper() == action.type_text.upper():
            return [f"{column.name} has the type {present} already"]
    return []


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
