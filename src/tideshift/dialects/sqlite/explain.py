"""A plan for a person to read: each phase with its exact SQL, the lock it takes and for how long, and what to know."""

from __future__ import annotations

from tideshift.ddl.dialect import SqlStep
from tideshift.dialects.sqlite.affinity import affinity
from tideshift.dialects.sqlite.capture import trigger_texts
from tideshift.dialects.sqlite.create_table import parse_table
from tideshift.dialects.sqlite.driver import quote
from tideshift.dialects.sqlite.layout import Layout
from tideshift.dialects.sqlite.names import Names
from tideshift.dialects.sqlite.scratch import Shape
from tideshift.dialects.sqlite.texts import canary_texts, index_texts, log_text, shadow_text
from tideshift.store.database import Transaction

__all__ = ["steps", "warnings"]

_WRITE = "the file's write lock"
_JOB = 0
"""Stands for the job's id, which a plan does not have yet."""


def steps(layout: Layout) -> tuple[SqlStep, ...]:
    """Return everything that will be executed, in order."""
    names = Names(_JOB, layout.table)
    made = [shadow_text(layout, names), *index_texts(layout, names), log_text(layout, names), *canary_texts(layout, names)]
    made += trigger_texts(layout, names).values()
    shadow, source = quote(names.shadow), quote(layout.table)
    copied = f"INSERT OR ABORT INTO {shadow} ({layout.written_list}) SELECT {layout.mapped_list} FROM {source} WHERE …"
    swapped = [f"DROP TRIGGER {quote(name)}" for name in trigger_texts(layout, names)]
    swapped += [
        f"DROP TABLE {quote(names.log)}",
        f"PRAGMA writable_schema = ON; exchange the root pages of {source} and {shadow} and of their indexes in sqlite_master",
        f"sqlite_master: the text of {source} becomes {layout.new_text}",
    ]
    return (
        *(SqlStep("capture", text, _WRITE, "milliseconds, all in one transaction") for text in made),
        SqlStep("copy", copied, _WRITE, "about 5 ms per chunk, with pauses between"),
        SqlStep("catch up", f"DELETE FROM {shadow} WHERE … IN (SELECT … FROM {quote(names.log)}); {copied}", _WRITE, "milliseconds"),
        SqlStep("verify", f"SELECT … FROM {source}, compared with {shadow}", "none (a read snapshot)", "milliseconds per chunk"),
        *(SqlStep("cut-over", text, _WRITE, "milliseconds, all in one transaction") for text in swapped),
        SqlStep("purge", f"DELETE FROM {shadow} WHERE …; DROP TABLE {shadow}", _WRITE, "milliseconds per chunk"),
    )


def warnings(tx: Transaction, layout: Layout, old: Shape, new: Shape) -> list[str]:
    """Return what a person should know before going on."""
    found = []
    types = [next(column[1] for column in shape.columns if column[0] == layout.column) for shape in (old, new)]
    if layout.may_renumber:
        found.append(
            f"{layout.table} has no INTEGER PRIMARY KEY, so VACUUM may give its rows new numbers:"
            " a VACUUM while the job is under way makes the job fail (and nothing else)"
        )
    if layout.using is None and types[0].upper() == types[1].upper():
        found.append(f"{layout.column} has the type {types[0]} already")
    found += _blob_warning(layout, old)
    if tx.run_verbatim("PRAGMA journal_mode").scalar() not in ("wal", "memory"):
        found.append("the journal mode is not WAL: readers and the job keep one another waiting for moments")
    return found


def _blob_warning(layout: Layout, shape: Shape) -> list[str]:
    """Return the warning about writes that no trigger sees, where a column is made for what they write."""
    strict = parse_table(layout.old_text).strict
    blobs = [
        name
        for name, type_text, *_ in shape.columns
        if name not in layout.generated and affinity(type_text, strict=strict) == "BLOB"
    ]
    if not blobs:
        return []
    listed = f"{', '.join(blobs)} of {layout.table} can hold BLOBs"
    return [f"{listed}: incremental writes to one (sqlite3_blob_write, blobopen) fire no trigger; use none while the job is under way"]
