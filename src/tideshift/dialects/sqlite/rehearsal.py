"""The whole schema in an empty database in memory, where a statement of the database's own is tried before it touches the user's.

What it changes there is what it may change in the user's file, text by text; and what still worked there before it must
still work: SQLite itself lets a column go that a trigger's body uses, and then every INSERT fails; and it renames what a
full-text index reads, which then finds nothing to read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from tideshift.ddl.change import SetOption, TableOption
from tideshift.ddl.tokens import significant
from tideshift.dialects.sqlite.chunk_key import rowid_column
from tideshift.dialects.sqlite.create_table import identifiers, parse_table
from tideshift.dialects.sqlite.driver import SqliteDriver, quote
from tideshift.dialects.sqlite.scratch import Scratch, TextRefused, scratch
from tideshift.dialects.sqlite.table_edits import edited
from tideshift.dialects.sqlite.using import without_double_quotes
from tideshift.store.database import Transaction
from tideshift.store.tables import NAMESPACE

__all__ = ["Name", "Rehearsal", "Rehearsed", "SchemaRow", "rehearsal", "schema_rows", "what_breaks"]

Name = tuple[str, str]
Working = dict[tuple[str, int], "str | None"]
_ORDER = {"table": 0, "index": 1, "view": 2, "trigger": 3}
_VIRTUAL = "virtual table "
_PROBES = (0, "", b"\0", None)


@dataclass(frozen=True)
class SchemaRow:
    """One object of the user's: what it is, its name, its table, and its text (None for what a constraint makes)."""

    kind: str
    name: str
    table: str
    text: str | None


@dataclass(frozen=True)
class Rehearsed:
    """What some statements did: the objects whose rows differ (None: gone), and what does not work any more."""

    changed: dict[Name, SchemaRow | None]
    broken: tuple[str, ...]


def schema_rows(tx: Transaction) -> list[SchemaRow]:
    """Read everything that is not the library's or ours."""
    rows = tx.run_verbatim("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY rowid").rows
    return [SchemaRow(*row) for row in rows if not _foreign(row[1], row[2])]


def _foreign(name: str, table: str) -> bool:
    ours = f"{NAMESPACE}_"
    return name.lower().startswith((ours, f"sqlite_autoindex_{ours}")) or table.lower().startswith((ours, "sqlite_"))


def newly_broken(before: Working, after: Working) -> tuple[str, ...]:
    """Return what was possible before and is not any more; a thing that is gone or has another name is not broken."""
    found = [f"{what}: {error}" for (what, number), error in after.items() if error is not None and before.get((what, number), error) is None]
    return tuple(dict.fromkeys(found))


def what_breaks(tx: Transaction, driver: SqliteDriver, table: str, new_text: str, *, dropped: Sequence[str]) -> tuple[str, ...]:
    """Return what would not work any more if the table had this text.

    The name of a column that goes, in double quotes, would be a string from then on to the library, and nothing would fail: it is tried in other quotes.
    """
    rows = schema_rows(tx)
    changed = [replace(row, text=new_text) if (row.kind, row.name) == ("table", table) else row for row in rows]
    old, new = ([replace(row, text=row.text and without_double_quotes(row.text, dropped)) for row in these] for these in (rows, changed))
    with scratch(driver) as before, scratch(driver) as after:
        worked, works = Rehearsal(before, old, None), Rehearsal(after, new, None)
        if works.made.get((f"table {table}", -1)) is not None:  # whatever speaks of the table would be named as well
            return newly_broken(worked.made, works.made)
        broken = tuple(dict.fromkeys([*newly_broken(worked.made, works.made), *newly_broken(worked.working(), works.working())]))
        text = next(row.text or "" for row in rows if (row.kind, row.name) == ("table", table))
        numbers = [
            rowid_column(one.shape(table), without_rowid=parse_table(made).without_rowid) for one, made in ((before, text), (after, new_text))
        ]
        if broken or numbers[1] in (None, numbers[0]):
            return broken
        return _known_by_number(worked.working(), driver, table, new)


def _known_by_number(worked: Working, driver: SqliteDriver, table: str, rows: Sequence[SchemaRow]) -> tuple[str, ...]:
    """Return the virtual tables that ask a table for its rows' numbers, which will be another column's values: those that could not read it without any."""
    unnumbered = [
        replace(row, text=edited(row.text or "", SetOption(option=TableOption.WITHOUT_ROWID))) if (row.kind, row.name) == ("table", table) else row
        for row in rows
    ]
    with scratch(driver) as trial:
        asking = newly_broken(worked, Rehearsal(trial, unnumbered, None).working())
    return tuple(f"{one.partition(':')[0]}, which knows the rows by their numbers: they get others" for one in asking if one.startswith(_VIRTUAL))


@contextmanager
def rehearsal(tx: Transaction, driver: SqliteDriver, *, filled: str | None) -> Iterator[Rehearsal]:
    """Make the schema in memory; the table named `filled` gets a row, since the library asks more of one that has any."""
    rows = schema_rows(tx)
    with scratch(driver) as trial:
        yield Rehearsal(trial, rows, filled)


class Rehearsal:
    """One copy of the schema."""

    def __init__(self, trial: Scratch, rows: Sequence[SchemaRow], filled: str | None) -> None:
        self._trial = trial
        self.has_row = False
        self.made: Working = {}
        trial.run("PRAGMA foreign_keys = OFF")
        for row in sorted(rows, key=lambda row: _ORDER[row.kind]):
            if self._without_its_table(row):
                continue
            if row.kind == "index" and not self.has_row and filled is not None:
                self.has_row = self._fill(filled)
            self._make(row)
        if filled is not None and not self.has_row:
            self.has_row = self._fill(filled)

    def _make(self, row: SchemaRow) -> None:
        if row.text is None or (row.kind == "table" and self._there(row.name)):
            return
        # A module, function or collation of the application's is not there: that can be judged neither before nor after.
        self.made[f"{row.kind} {row.name}", -1] = self._refusal(row.text)

    def _without_its_table(self, row: SchemaRow) -> bool:
        return row.kind == "index" and self.made.get((f"table {row.table}", -1)) is not None

    def _there(self, name: str) -> bool:
        """Whether a virtual table has made this table of its own already."""
        return bool(self._trial.run("SELECT 1 FROM sqlite_master WHERE name = ?", (name,)))

    def _fill(self, table: str) -> bool:
        """Insert one row, whatever its values; there are no triggers yet. Return whether one could be made."""
        columns = self._trial.run('SELECT name, type FROM pragma_table_xinfo(?) WHERE hidden = 0 ORDER BY cid', (table,))
        if not columns:
            return False
        self._trial.run("PRAGMA ignore_check_constraints = ON")
        names = ", ".join(quote(name) for name, _ in columns)
        marks = ", ".join("?" * len(columns))
        for probe in _PROBES:
            values = tuple(_fitting(type_text, probe) for _, type_text in columns)
            try:
                self._trial.run(f"INSERT INTO {quote(table)} ({names}) VALUES ({marks})", values)
            except TextRefused:
                continue
            self._trial.run("PRAGMA ignore_check_constraints = OFF")
            return True
        self._trial.run("PRAGMA ignore_check_constraints = OFF")
        return False

    def rows(self) -> dict[Name, SchemaRow]:
        """Return what stands in the schema now."""
        found = self._trial.run("SELECT type, name, tbl_name, sql FROM sqlite_master WHERE tbl_name NOT LIKE 'sqlite\\_%' ESCAPE '\\'")
        return {(row[0], row[1]): SchemaRow(*row) for row in found}

    def run(self, statements: Sequence[str]) -> Rehearsed:
        """Execute statements and tell what they did; raises `TextRefused`."""
        before, worked = self.rows(), self.working()
        for statement in statements:
            self._trial.run(statement)
        after = self.rows()
        changed = {name: after.get(name) for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
        return Rehearsed(changed, newly_broken(worked, self.working()))

    def working(self) -> Working:
        """Use everything that has a body: views, writes to whatever has triggers, virtual tables, of which some read a table that they name.

        The columns after UPDATE OF are looked at besides: the library keeps a trigger that names one which is not there, and never fires it by that.
        """
        found: Working = {}
        for (name,) in self._trial.run("SELECT name FROM sqlite_master WHERE type = 'table' AND sql LIKE 'CREATE VIRTUAL %' ORDER BY name"):
            found[f"{_VIRTUAL}{name}", 0] = self._refusal(f"SELECT * FROM {quote(name)} LIMIT 1")
        for kind, name, table, text in self._trial.run("SELECT type, name, tbl_name, sql FROM sqlite_master WHERE type IN ('view', 'trigger') ORDER BY name"):
            if kind == "view":
                found[f"view {name}", 0] = self._refusal(f"EXPLAIN QUERY PLAN SELECT * FROM {quote(name)}")
            else:
                found |= {(f"trigger {name}", number): self._refusal(sql) for number, sql in enumerate(self._writes(table))}
                found |= {(f"trigger {name}", -number): self._unfired(table, column) for number, column in enumerate(update_of(text), start=1)}
        return found

    def _unfired(self, table: str, column: str) -> str | None:
        names = {name.lower() for (name,) in self._trial.run("SELECT name FROM pragma_table_xinfo(?)", (table,))}
        return None if column.lower() in names else f"UPDATE OF {column} would never happen again"

    def _writes(self, table: str) -> list[str]:
        try:
            columns = self._trial.run("SELECT name FROM pragma_table_xinfo(?) WHERE hidden = 0 ORDER BY cid", (table,))
        except TextRefused:  # a view of something that is not there
            columns = []
        assigned = ", ".join(f"{quote(name)} = {quote(name)}" for (name,) in columns)
        return [
            f"EXPLAIN QUERY PLAN INSERT INTO {quote(table)} DEFAULT VALUES",
            *([f"EXPLAIN QUERY PLAN UPDATE {quote(table)} SET {assigned}"] if assigned else []),
            f"EXPLAIN QUERY PLAN DELETE FROM {quote(table)}",
        ]

    def _refusal(self, sql: str) -> str | None:
        try:
            self._trial.run(sql)
        except TextRefused as error:
            return str(error)
        return None


def update_of(text: str) -> list[str]:
    """Return the columns after UPDATE OF in a CREATE TRIGGER; none where it names none."""
    tokens = significant(text)
    words = [token.keyword for token in tokens]
    of = next((at + 1 for at, pair in enumerate(pairwise(words)) if pair == ("UPDATE", "OF")), None)
    on = words.index("ON")
    return [] if of is None or on < of else identifiers(text[tokens[of].end : tokens[on].start])


def _fitting(type_text: str, probe: Any) -> Any:
    """Return a value that a strict column of the type takes, as far as the probe lets one choose."""
    declared = type_text.upper()
    if declared in ("INT", "INTEGER", "REAL"):
        return None if probe is None else 1
    if declared == "TEXT":
        return None if probe is None else "1"
    return b"1" if declared == "BLOB" and probe is not None else probe
