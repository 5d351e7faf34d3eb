"""The key log: triggers that write down the keys of changed rows and nothing else.

After the statement, old and new key, and the keys of rows that it displaced; these are looked up in the shadow, which no
trigger writes. Only where the shadow cannot tell, they are looked up in the source before the statement. No statement of
a trigger can conflict (the log's only key counts itself), so the outer statement's conflict clause finds nothing to act
on; and none changes what the application sees: changes() and last_insert_rowid() are the outer statement's own.
"""

from __future__ import annotations

from tideshift.dialects import points
from tideshift.dialects.sqlite.driver import quote
from tideshift.dialects.sqlite.layout import ROW_ALIAS, Displaced, Layout, LookedUpIn
from tideshift.dialects.sqlite.names import Names
from tideshift.store.database import Transaction

__all__ = ["EVENTS", "backlog", "drop_triggers", "install_triggers", "log_bytes", "log_keys", "look_up", "look_up_parent", "trigger_texts"]

EVENTS = ("before_insert", "before_update", "after_insert", "after_update", "after_delete")

_LOG_ROW_BYTES, _LOG_KEY_BYTES = 8, 12


def trigger_texts(layout: Layout, names: Names) -> dict[str, str]:
    """Return the text of each capture trigger by its name, in the order of making."""
    new = f"INSERT INTO {_log(layout, names)} VALUES ({_row(layout, 'NEW')});"
    old = f"INSERT INTO {_log(layout, names)} VALUES ({_row(layout, 'OLD')});"
    moved = " OR ".join(f"NEW.{quote(key.name)} COLLATE BINARY IS NOT OLD.{quote(key.name)}" for key in layout.key)
    bodies = {
        "before_insert": _inserting(layout, names, LookedUpIn.SOURCE),
        "before_update": _updating(layout, names, LookedUpIn.SOURCE),
        "after_insert": new + _inserting(layout, names, LookedUpIn.SHADOW),
        "after_update": f"{old} INSERT INTO {_log(layout, names)} SELECT {_row(layout, 'NEW')} WHERE {moved};"
        + _updating(layout, names, LookedUpIn.SHADOW),
        "after_delete": old + _logging(layout, names, [look_up_parent(layout, names, condition) for condition in layout.parents]),
    }
    return {
        names.trigger(event): f"CREATE TRIGGER {quote(names.trigger(event))} {event.replace('_', ' ').upper()}"
        f" ON {quote(layout.table)} BEGIN {bodies[event]} END"
        for event in EVENTS
        if bodies[event]
    }


def _log(layout: Layout, names: Names) -> str:
    return f"{quote(names.log)} ({', '.join(map(quote, layout.key_marks))})"


def _row(layout: Layout, which: str) -> str:
    return ", ".join(f"{which}.{quote(key.name)}" for key in layout.key)


def _inserting(layout: Layout, names: Names, place: LookedUpIn) -> str:
    return _logging(layout, names, [look_up(layout, names, one, one.on_insert) for one in layout.displaced if one.place is place])


def _updating(layout: Layout, names: Names, place: LookedUpIn) -> str:
    return _logging(layout, names, [look_up(layout, names, one, one.on_update) for one in layout.displaced if one.place is place])


def _logging(layout: Layout, names: Names, queries: list[str]) -> str:
    return "".join(f" INSERT INTO {_log(layout, names)} {query};" for query in queries)


def look_up(layout: Layout, names: Names, one: Displaced, conditions: str) -> str:
    """Return the query for the keys of the rows that a statement displaces, by one of the look-up's two conditions."""
    if one.place is LookedUpIn.SHADOW:
        return _keys_of([key.new_name for key in layout.key], names.shadow, conditions)
    return _keys_of([key.name for key in layout.key], layout.table, conditions)


def look_up_parent(layout: Layout, names: Names, condition: str) -> str:
    """Return the query for the key of the row that a deleted row refers to in its own table."""
    return _keys_of([key.new_name for key in layout.key], names.shadow, condition)


def _keys_of(columns: list[str], table: str, conditions: str) -> str:
    key = ", ".join(f"{ROW_ALIAS}.{quote(column)}" for column in columns)
    return f"SELECT {key} FROM {quote(table)} AS {ROW_ALIAS} WHERE {conditions}"


def install_triggers(tx: Transaction, layout: Layout, names: Names) -> None:
    """Create the triggers."""
    for text in trigger_texts(layout, names).values():
        if points.INSTALL_TRIGGER.on:
            points.INSTALL_TRIGGER.fire(job=names.job_id)
        tx.run_verbatim(text)


def drop_triggers(tx: Transaction, layout: Layout, names: Names) -> None:
    """Drop the triggers; capture ends here."""
    for name in trigger_texts(layout, names):
        if points.DROP_TRIGGER.on:
            points.DROP_TRIGGER.fire(job=names.job_id)
        tx.run_verbatim(f"DROP TRIGGER {quote(name)}")


def backlog(tx: Transaction, names: Names, *, limit: int) -> int:
    """Return how many log rows wait, counting no further than one past the limit."""
    return int(tx.run_verbatim(f"SELECT count(*) FROM (SELECT 1 FROM {quote(names.log)} LIMIT ?)", (limit + 1,)).scalar())


def log_bytes(tx: Transaction, layout: Layout, names: Names) -> int:
    """Return about how much room the log's rows take: their number by their span, which is never less, and what keys are wont to be."""
    # One min or max alone is a look at one end; two in one SELECT would read the whole log.
    ends = tx.run_verbatim(f'SELECT (SELECT min("seq") FROM {quote(names.log)}), (SELECT max("seq") FROM {quote(names.log)})').rows[0]
    return 0 if ends[0] is None else (int(ends[1]) - int(ends[0]) + 1) * (_LOG_ROW_BYTES + _LOG_KEY_BYTES * len(layout.key))


def log_keys(tx: Transaction, layout: Layout, names: Names, keys: list[tuple[str, tuple[object, ...]]]) -> None:
    """Write keys into the log, each given as SQL, one value or a row of values in parentheses, with its binds."""
    for key, binds in keys:
        values = key if len(layout.key) > 1 else f"({key})"
        tx.run_verbatim(f"INSERT INTO {_log(layout, names)} VALUES {values}", binds)
