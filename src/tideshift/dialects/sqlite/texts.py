"""The texts of what a job makes: shadow, its indexes, log, canary and the temporary table for trying rows.

The shadow has everything of the new shape but foreign keys (a stale table must not refuse or cascade what an
application does) and AUTOINCREMENT (the counter belongs to the table's name, and the file format is the same).
"""

from __future__ import annotations

from functools import lru_cache

from tideshift.ddl.tokens import replace_spans
from tideshift.dialects.sqlite.create_index import parse_index
from tideshift.dialects.sqlite.create_table import ClauseKind, Edit, parse_table
from tideshift.dialects.sqlite.driver import quote
from tideshift.dialects.sqlite.layout import Layout, Side
from tideshift.dialects.sqlite.names import Names

__all__ = ["canary_rows_text", "canary_texts", "index_names", "index_texts", "log_text", "retired_text", "shadow_text", "trial_text"]

_CANARY_FAR_ROWID = 1_000_000
_LEFT_OUT = (ClauseKind.REFERENCES, ClauseKind.DEFERRABLE, ClauseKind.FOREIGN_KEY, ClauseKind.AUTOINCREMENT)


def shadow_text(layout: Layout, names: Names) -> str:
    """Return the shadow's CREATE TABLE: the new shape."""
    return _beside(layout.new.text, names.shadow)


def retired_text(layout: Layout, names: Names) -> str:
    """Return what describes the old rows after the swap: the old shape under the shadow's name."""
    return _beside(layout.old.text, names.shadow)


@lru_cache(maxsize=64)
def _beside(text: str, name: str) -> str:
    table = parse_table(text)
    return _edited(text, [*table.rename(quote(name)), *table.strip(*_LEFT_OUT)])


def trial_text(layout: Layout, names: Names) -> str:
    """Return the temporary table that takes rows of the new shape one range at a time, in any number of equal ones."""
    by_number = layout.new.has_hidden_rowid and layout.key[0].new_name == layout.new.rowid
    keys = (ClauseKind.UNIQUE, ClauseKind.PRIMARY_KEY) if by_number else (ClauseKind.UNIQUE,)
    return _trial(layout.new.text, names.trial, keys)


@lru_cache(maxsize=64)
def _trial(text: str, name: str, keys: tuple[ClauseKind, ...]) -> str:
    table = parse_table(text)
    edited = _edited(text, [*table.rename(quote(name)), *table.strip(*_LEFT_OUT, *keys)])
    return edited.replace("CREATE TABLE", "CREATE TEMP TABLE IF NOT EXISTS", 1)


def _edited(text: str, edits: list[Edit]) -> str:
    """Apply edits, leaving out what lies inside another one."""
    kept = [
        edit
        for edit in edits
        if not any(other is not edit and other[0] <= edit[0] and edit[1] <= other[1] and other[0] < other[1] for other in edits)
    ]
    return replace_spans(text, kept)


def index_texts(layout: Layout, names: Names) -> list[str]:
    """Return the texts of the shadow's indexes, in the order of those that are made anew; those that only look-ups need come last."""
    made = [
        parse_index(index.text).renamed(quote(names.index(number)), quote(names.shadow))
        for number, index in enumerate(layout.made_indexes, start=1)
    ]
    look_ups = enumerate(layout.look_up_indexes, start=1)
    return made + [f"CREATE INDEX {quote(names.look_up_index(number))} ON {quote(names.shadow)} ({terms})" for number, terms in look_ups]


def index_names(layout: Layout, names: Names) -> list[str]:
    """Return the names of the same indexes."""
    return [names.index(number) for number in range(1, len(layout.made_indexes) + 1)] + [
        names.look_up_index(number) for number in range(1, len(layout.look_up_indexes) + 1)
    ]


def log_text(layout: Layout, names: Names) -> str:
    """Return the key log's: columns without a type keep every value as it is, and nothing in it can ever conflict."""
    columns = ", ".join(map(quote, layout.key_marks))
    return f"CREATE TABLE {quote(names.log)} (\"seq\" INTEGER PRIMARY KEY, {columns})"


def canary_texts(layout: Layout, names: Names) -> list[str]:
    """Return the canary's texts: VACUUM renumbers tables without any index, so it has one only if both tables have, until the swap."""
    if not layout.may_renumber:
        return []
    texts = [f"CREATE TABLE {quote(names.canary)} (\"n\")"]
    if all(_has_index(layout, side) for side in (layout.old, layout.new) if side.has_hidden_rowid):
        texts.append(f"CREATE INDEX {quote(names.canary_index)} ON {quote(names.canary)} (\"n\")")
    return texts


def canary_rows_text(names: Names) -> str:
    """Return what puts two rows into the canary, far apart."""
    return f"INSERT INTO {quote(names.canary)} (rowid, \"n\") VALUES (1, 1), ({_CANARY_FAR_ROWID}, 2)"


def _has_index(layout: Layout, side: Side) -> bool:
    by_hand = (layout.made_indexes or layout.look_up_indexes) if side is layout.new else layout.indexes
    return bool(by_hand or side.automatic_indexes)
