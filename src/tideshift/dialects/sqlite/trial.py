"""The rehearsal of a plan: everything that a job would make is made in an empty database in memory, and looked at."""

from __future__ import annotations

from collections.abc import Sequence

from tideshift.dialects.sqlite.capture import look_up, look_up_parent, trigger_texts
from tideshift.dialects.sqlite.driver import SqliteDriver, quote
from tideshift.dialects.sqlite.layout import ROW_ALIAS, Layout
from tideshift.dialects.sqlite.names import Names
from tideshift.dialects.sqlite.scratch import IndexShape, Scratch, Shape, TextRefused, scratch
from tideshift.dialects.sqlite.texts import canary_texts, index_texts, log_text, retired_text, shadow_text, trial_text

__all__ = ["try_everything"]


def try_everything(layout: Layout, driver: SqliteDriver) -> list[str]:
    """Make it all and return the reasons why it would not do (none: it does)."""
    names = Names(0, layout.table)
    with scratch(driver) as trial:
        try:
            trial.run(layout.old.text)
            for index in layout.indexes:
                trial.run(index.text)
            trial.run(shadow_text(layout, names))
            for text in [*index_texts(layout, names), log_text(layout, names), *canary_texts(layout, names)]:
                trial.run(text)
            trial.run(trial_text(layout, names))
            for text in trigger_texts(layout, names).values():
                trial.run(text)
            reasons = _slow_lookups(trial, layout, names)
            shadow = _unnamed(trial.shape(names.shadow), left_out=[names.look_up_index(n) for n in range(1, len(layout.look_up_indexes) + 1)])
        except TextRefused as error:
            return [f"the library refuses what the job would make: {error}"]
    with scratch(driver) as trial:
        trial.run(layout.new.text)
        for index in layout.new_indexes:
            trial.run(index.text)
        if _unnamed(trial.shape(layout.table), left_out=layout.kept_indexes) != shadow:
            reasons.append("the shadow table would not have the new shape")
    with scratch(driver) as trial:
        try:
            trial.run(retired_text(layout, names))
        except TextRefused as error:
            return [f"the library refuses the text for the old rows: {error}"]
    return reasons


def _slow_lookups(trial: Scratch, layout: Layout, names: Names) -> list[str]:
    """Look at the plan of every look-up that the capture triggers do; one that scans would slow every writer down.

    The library explains no trigger, so the look-ups are explained beside two rows that are called NEW and OLD.
    """
    rows = f"{quote(layout.table)} AS NEW, {quote(layout.table)} AS OLD"
    queries = [look_up(layout, names, one, conditions) for one in layout.displaced for conditions in (one.on_insert, one.on_update)]
    queries += [look_up_parent(layout, names, condition) for condition in layout.parents]
    for query in queries:
        plan = trial.run(f"EXPLAIN QUERY PLAN SELECT EXISTS ({query}) FROM {rows}")
        if any(str(step[-1]).startswith(f"SCAN {ROW_ALIAS}") for step in plan):
            return ["a unique index cannot be looked up by its own key, so every write would have to read the whole table"]
    return []


def _unnamed(shape: Shape, *, left_out: Sequence[str] = ()) -> tuple[object, ...]:
    """Return a shape without the names of its indexes."""
    return shape.columns, sorted(_unnamed_index(index) for index in shape.indexes if index.name not in left_out)


def _unnamed_index(index: IndexShape) -> tuple[object, ...]:
    return index.unique, index.origin, index.partial, repr(index.terms)
