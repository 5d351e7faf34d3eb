"""Whether source, shadow, log and triggers are still the recorded ones, by their stored texts.

What may change freely while a job is under way is not looked at: views, other tables, and the triggers that were there
before ours. A trigger that is made later fires before ours, and what it raises (IGNORE, FAIL) would keep a write out of
the log.
"""

from __future__ import annotations

from functools import lru_cache

from tideshift.dialects.sqlite.capture import trigger_texts
from tideshift.dialects.sqlite.driver import quote
from tideshift.dialects.sqlite.layout import Layout
from tideshift.dialects.sqlite.names import Names
from tideshift.dialects.sqlite.texts import canary_texts, index_names, index_texts, log_text, shadow_text
from tideshift.errors import SchemaChanged
from tideshift.store.database import Transaction

__all__ = ["check", "check_source"]

_CANARY_ROWS = (2, 1, 1_000_000)


def check_source(tx: Transaction, layout: Layout) -> None:
    """See that the source is the table that was planned for."""
    _compare(_stored(tx, [layout.table]), _source(layout), layout)


def check(tx: Transaction, layout: Layout, names: Names) -> None:
    """See that everything of the job is there, unchanged, and that the rows kept their numbers."""
    _compare(_stored(tx, [layout.table, names.shadow, names.log, names.canary]), _expected(layout, names), layout)
    _see_none_fires_before_ours(tx, layout, names)
    if layout.may_renumber:
        canary = tx.run_verbatim(f"SELECT count(*), min(rowid), max(rowid) FROM {quote(names.canary)}").rows[0]
        if canary != _CANARY_ROWS:
            raise SchemaChanged(
                f"VACUUM was run, and it gave the rows of {layout.table} new numbers",
                hint="Submit the change again, and keep VACUUM away while it is under way.",
                table=layout.table,
            )


def _see_none_fires_before_ours(tx: Transaction, layout: Layout, names: Names) -> None:
    """See that no trigger was made on the table since capture began: the newest fires first."""
    ours = tuple(trigger_texts(layout, names))
    marks = ", ".join("?" * len(ours))
    newer = tx.run_verbatim(
        "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = ? COLLATE NOCASE"
        f" AND name NOT IN ({marks}) AND rowid > (SELECT min(rowid) FROM sqlite_master WHERE name IN ({marks}))",
        (layout.table, *ours, *ours),
    ).rows
    if newer:
        listed = ", ".join(name for (name,) in newer)
        raise SchemaChanged(
            f"a trigger was made on {layout.table} while the job is under way: {listed}."
            " It fires before the triggers that log changes, and could keep a write out of the log",
            hint="Submit the change again; a trigger that is there before the job disturbs nothing.",
            table=layout.table,
            triggers=[name for (name,) in newer],
        )


def _stored(tx: Transaction, tables: list[str]) -> dict[tuple[str, str], str | None]:
    """Return the texts of tables, indexes and our triggers; indexes that constraints make have none."""
    marks = ", ".join("?" * len(tables))
    rows = tx.run_verbatim(
        f"SELECT type, name, sql FROM sqlite_master WHERE tbl_name IN ({marks})"
        " AND (type <> 'trigger' OR name GLOB 'tideshift_[0-9]*')",
        tuple(tables),
    ).rows
    return {(kind, name): text for kind, name, text in rows}


def _source(layout: Layout) -> dict[tuple[str, str], str | None]:
    return {
        ("table", layout.table): layout.old.text,
        **{("index", index.name): index.text for index in layout.indexes},
        **{("index", name): None for name in layout.old.automatic_indexes},
    }


@lru_cache(maxsize=16)
def _expected(layout: Layout, names: Names) -> dict[tuple[str, str], str | None]:
    """Return every text that must be there; the same for the whole job, so worked out once."""
    expected = _source(layout)
    expected[("table", names.shadow)] = shadow_text(layout, names)
    for name, text in zip(index_names(layout, names), index_texts(layout, names), strict=True):
        expected[("index", name)] = text
    for name in layout.new.automatic_indexes:
        expected[("index", f"sqlite_autoindex_{names.shadow}_{name.rpartition('_')[2]}")] = None
    expected[("table", names.log)] = log_text(layout, names)
    for text, key in zip(canary_texts(layout, names), (("table", names.canary), ("index", names.canary_index)), strict=False):
        expected[key] = text
    for name, text in trigger_texts(layout, names).items():
        expected[("trigger", name)] = text
    return expected


def _compare(
    found: dict[tuple[str, str], str | None], expected: dict[tuple[str, str], str | None], layout: Layout
) -> None:
    if found == expected:
        return
    differing = [
        f"{kind} {name} {'is gone' if key not in found else 'is new' if key not in expected else 'has changed'}"
        for key in sorted(found.keys() | expected.keys())
        for kind, name in [key]
        if key not in found or key not in expected or found[key] != expected[key]
    ]
    raise SchemaChanged(f"{layout.table} is not as it was planned for: {'; '.join(differing)}", table=layout.table, differing=differing)
