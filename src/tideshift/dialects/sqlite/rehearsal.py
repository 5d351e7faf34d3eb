"""The whole schema in an empty database in memory, where a statement of the database's own is tried before it touches the user's.

What it changes there is what it may change in the user's file, text by text; and what still worked there before it must
still work: SQLite itself lets a column go that a trigger's body uses, and then every INSERT fails.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from tideshift.dialects.sqlite.driver import SqliteDriver, quote
from tideshift.dialects.sqlite.scratch import Scratch, TextRefused, scratch
from tideshift.dialects.sqlite.using import without_double_quotes
from tideshift.store.database import Transaction
from tideshift.store.tables import NAMESPACE

__all__ = ["Name", "Rehearsal", "Rehearsed", "SchemaRow", "rehearsal", "schema_rows", "what_breaks"]

Name = tuple[str, str]
Working = dict[tuple[str, int], "str | None"]
_ORDER = {"table": 0, "index": 1, "view": 2, "trigger": 3}
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
        return newly_broken(worked.made, works.made) or newly_broken(worked.working(), works.working())


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
        """Compile a use of everything that has a body, views and writes to whatever has triggers; None where that is possible."""
        found: Working = {}
        for kind, name, table, _ in self._trial.run("SELECT type, name, tbl_name, sql FROM sqlite_master WHERE type IN ('view', 'trigger') ORDER BY name"):
            if kind == "view":
                found[f"view {name}", 0] = self._refusal(f"EXPLAIN QUERY PLAN SELECT * FROM {quote(name)}")
            else:
                found |= {(f"trigger {name}", number): self._refusal(sql) for number, sql in enumerate(self._writes(table))}
        return found

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


def _fitting(type_text: str, probe: Any) -> Any:
    """Return a value that a strict column of the type takes, as far as the probe lets one choose."""
    declared = type_text.upper()
    if declared in ("INT", "INTEGER", "REAL"):
        return None if probe is None else 1
    if declared == "TEXT":
        return None if probe is None else "1"
    return b"1" if declared == "BLOB" and probe is not None else probe
