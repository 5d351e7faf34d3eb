"""What is in the file, as sqlite_master and the catalogue pragmas tell."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tideshift.ddl.change import TableName
from tideshift.ddl.dialect import DoctorFinding, Durability, Weight
from tideshift.dialects.sqlite.driver import SqliteDriver, library_warnings, quote
from tideshift.dialects.sqlite.durability import durability_in
from tideshift.dialects.sqlite.estimate import VALUE_BYTES
from tideshift.dialects.sqlite.layout import SourceIndex
from tideshift.dialects.sqlite.library import has_wal_reset_bug
from tideshift.dialects.sqlite.names import OWN_NAME
from tideshift.dialects.sqlite.scratch import Shape, read_shape
from tideshift.errors import NotFound, PlanRefused
from tideshift.store.database import Database, DatabaseFailed, Transaction
from tideshift.store.tables import NAMESPACE

__all__ = ["SourceTable", "SqliteCatalog", "columns_of", "find_table", "near", "shape_of"]

_COUNTED_ROWS_MAX = 20_000
_FEW_PAGES = 1_000
_PAGE_BYTES_MIN = 4_096
_LONG_LOG_BYTES = 256 << 20
_FULL = 1


@dataclass(frozen=True)
class SourceTable:
    """One ordinary table: its exact name, its text, the indexes made by hand and the names of the others."""

    name: str
    text: str
    indexes: tuple[SourceIndex, ...]
    automatic_indexes: tuple[str, ...]


def find_table(tx: Transaction, table: TableName) -> SourceTable:
    """Find an ordinary table of the main database; raise `NotFound` with near names, or `PlanRefused` with the reason."""
    if table.schema is not None and table.schema.lower() != "main":
        _refuse(table, f"only tables of the main database can be changed, not of {table.schema!r}")
    rows = tx.run_verbatim(
        "SELECT type, name, sql FROM sqlite_master WHERE name = ? COLLATE NOCASE AND type IN ('table', 'view')", (table.name,)
    ).rows
    if not rows:
        raise NotFound(f"there is no table {table.name!r}", hint=near(table.name, _table_names(tx)), table=table.name)
    kind, name, text = rows[0]
    if kind == "view":
        _refuse(table, "it is a view")
    if name.lower().startswith("sqlite_"):
        _refuse(table, "it belongs to SQLite itself")
    if name.lower().startswith(f"{NAMESPACE}_"):
        _refuse(table, f"it belongs to {NAMESPACE} itself")
    kinds = tx.run_verbatim("SELECT type FROM pragma_table_list WHERE schema = 'main' AND name = ?", (name,)).rows
    if kinds and kinds[0][0] == "virtual":
        _refuse(table, "it is a virtual table")
    if kinds and kinds[0][0] == "shadow":
        _refuse(table, "it is a part of a virtual table")
    indexes = tx.run_verbatim("SELECT name, sql FROM sqlite_master WHERE type = 'index' AND tbl_name = ? ORDER BY rowid", (name,))
    return SourceTable(
        name,
        text,
        tuple(SourceIndex(index, sql) for index, sql in indexes.rows if sql is not None),
        tuple(index for index, sql in indexes.rows if sql is None),
    )


def _refuse(table: TableName, reason: str) -> None:
    raise PlanRefused(f"{str(table)!r} cannot be changed: {reason}", reasons=[reason])


def _table_names(tx: Transaction) -> list[str]:
    rows = tx.run_verbatim(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
        f" AND name NOT LIKE '{NAMESPACE}\\_%' ESCAPE '\\'"
    ).rows
    return [name for (name,) in rows]


def near(name: str, candidates: list[str]) -> str:
    """Return a hint that names what may have been meant."""
    by_fold = {candidate.lower(): candidate for candidate in candidates}
    found = [by_fold[match] for match in difflib.get_close_matches(name.lower(), list(by_fold), n=3, cutoff=0.6)]
    return f"Did you mean {' or '.join(found)}?" if found else ""


def shape_of(tx: Transaction, table: str) -> Shape:
    """Read a table's shape."""

    def run(sql: str, binds: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        return tx.run_verbatim(sql, binds).rows

    return read_shape(run, table)


def columns_of(tx: Transaction, source: SourceTable) -> list[str]:
    """Return the names of a table's columns, in order."""
    return [column[0] for column in shape_of(tx, source.name).columns]


class SqliteCatalog:
    """What is in the file."""

    def __init__(self, driver: SqliteDriver) -> None:
        self._driver = driver

    def row_estimate(self, tx: Transaction, table: TableName) -> tuple[int, bool]:
        """Count up to some thousand rows; beyond that use ANALYZE's figure, the rowids' span, or the file's size."""
        name = find_table(tx, table).name
        counted = tx.run_verbatim(
            f"SELECT count(*) FROM (SELECT 1 FROM {quote(name)} LIMIT ?)", (_COUNTED_ROWS_MAX,)
        ).scalar()
        if counted < _COUNTED_ROWS_MAX:
            return int(counted), True
        analyzed = self._analyzed_rows(tx, name)
        if analyzed is None:
            analyzed = self._rows_by_keys(tx, name)
        return max(int(counted), analyzed), False

    def rows_at_most(self, tx: Transaction, table: TableName) -> int:
        """Estimate upwards: ANALYZE may have been run when the table was small, and how it is changed must not hang on that."""
        rows, exact = self.row_estimate(tx, table)
        return rows if exact else max(rows, self._rows_by_keys(tx, find_table(tx, table).name))

    def row_bytes(self, tx: Transaction, name: str) -> int:
        """Return the mean size of the first rows."""
        columns = [column[0] for column in shape_of(tx, name).columns]
        lengths = " + ".join(f"coalesce(length(CAST({quote(column)} AS BLOB)), 0) + 1" for column in columns)
        return int(tx.run_verbatim(f"SELECT avg(n) FROM (SELECT {lengths} AS n FROM {quote(name)} LIMIT 200)").scalar() or 0)

    def entry_bytes(self, tx: Transaction, name: str, terms: Sequence[str]) -> int:
        """Return the mean size of an index's terms in the first rows; where one fails, what values are wont to be."""
        lengths = " + ".join(f"coalesce(length(CAST(({term}) AS BLOB)), 0)" for term in terms)
        try:
            return int(tx.run_verbatim(f"SELECT avg(n) FROM (SELECT {lengths} AS n FROM {quote(name)} LIMIT 200)").scalar() or 0)
        except DatabaseFailed:
            return VALUE_BYTES * len(terms)

    def _analyzed_rows(self, tx: Transaction, name: str) -> int | None:
        if not tx.run_verbatim("SELECT 1 FROM sqlite_master WHERE name = 'sqlite_stat1'").rows:
            return None
        rows = tx.run_verbatim("SELECT stat FROM sqlite_stat1 WHERE tbl = ? AND stat IS NOT NULL", (name,)).rows
        figures = [int(first) for (stat,) in rows if (first := str(stat).split()[0]).isdigit()]
        return max(figures, default=None)

    def _rows_by_keys(self, tx: Transaction, name: str) -> int:
        """Estimate from the key: a rowid table by its span, any other by the whole file and its mean row."""
        size = int(tx.run_verbatim("PRAGMA page_count").scalar()) * int(tx.run_verbatim("PRAGMA page_size").scalar())
        from tideshift.dialects.sqlite.keys import SqliteKeyOrder

        order = SqliteKeyOrder.read(tx, name, self._driver)
        by_size = size // max(1, self.row_bytes(tx, name))
        ends = order.first_and_last(tx) if order.rowid else None
        if ends is None:
            return by_size
        return min(by_size, int(ends[1][0][1]) - int(ends[0][0][1]) + 1)

    def objects(self, tx: Transaction) -> set[tuple[str, str]]:
        """Return what is named as a job names things; an index of such a table goes with it and is no object of its own."""
        rows = tx.run_verbatim(
            f"SELECT type, name, tbl_name FROM sqlite_master WHERE name GLOB '{NAMESPACE}_[0-9]*' AND type IN ('table', 'index', 'trigger')"
        ).rows
        return {(kind, name) for kind, name, table in rows if OWN_NAME.match(name) and not (kind == "index" and OWN_NAME.match(table))}

    def durability(self, tx: Transaction) -> Durability:
        """Ask for the journal mode."""
        return durability_in(str(tx.run_verbatim("PRAGMA journal_mode").scalar()).lower())

    def findings(self, database: Database) -> list[DoctorFinding]:
        """Look at library, journal and settings."""
        with database.transaction(write=False) as tx:
            journal = str(tx.run_verbatim("PRAGMA journal_mode").scalar())
            enforced = tx.run_verbatim("PRAGMA foreign_keys").scalar()
            free_pages = int(tx.run_verbatim("PRAGMA freelist_count").scalar())
            pages = int(tx.run_verbatim("PRAGMA page_count").scalar())
        found = [
            DoctorFinding(
                code="sqlite_library",
                message=warning,
                hint="Install the extra: pip install 'tideshift[sqlite]', and let the applications use a library without the bug.",
                weight=Weight.EVERY_RUN,
            )
            for warning in library_warnings(journal_mode=journal, version=self._driver.version)
        ]
        found.append(self._about_version())
        if journal not in ("wal", "memory"):
            found.append(
                DoctorFinding(
                    code="rollback_journal",
                    message=f"the journal mode is {journal}: readers and the writer keep one another waiting",
                    hint="PRAGMA journal_mode = WAL lets readers go on during every change; set it if your applications allow.",
                    weight=Weight.NOTE,
                )
            )
        if enforced:
            found.append(
                DoctorFinding(
                    code="foreign_keys_on",
                    message="this library turns foreign_keys on by itself on every connection",
                    hint="Use a library built without SQLITE_DEFAULT_FOREIGN_KEYS for tideshift: pip install 'tideshift[sqlite]'",
                )
            )
        found += self._about_settings(database)
        if pages > _FEW_PAGES and free_pages * 2 > pages:
            found.append(
                DoctorFinding(
                    code="free_pages",
                    message=f"{free_pages} of {pages} pages of the file are free",
                    hint="New rows will use them; VACUUM would shrink the file, but never run it while a job is under way.",
                    weight=Weight.NOTE,
                )
            )
        return found

    def _about_version(self) -> DoctorFinding:
        """Name the library; whether its bug does harm in this file is another finding."""
        version, module = ".".join(map(str, self._driver.version)), self._driver.module.__name__
        has_bug = has_wal_reset_bug(self._driver.version)
        said = "has the WAL-reset bug: in WAL mode, commits of several processes can be lost" if has_bug else "does not have the WAL-reset bug"
        return DoctorFinding(code="sqlite_version", message=f"SQLite {version}, by the module {module}", hint=f"It {said}.", weight=Weight.NOTE)

    def _about_settings(self, database: Database) -> list[DoctorFinding]:
        """Name what makes every change slower, or the file's log long."""
        with database.transaction(write=False) as tx:
            page_bytes, auto_vacuum, secure = (int(tx.run_verbatim(f"PRAGMA {name}").scalar()) for name in ("page_size", "auto_vacuum", "secure_delete"))
        log = Path(f"{self._driver.path}-wal")
        log_bytes = log.stat().st_size if log.exists() else 0
        notes = {
            "small_pages": (page_bytes < _PAGE_BYTES_MIN, f"the file has pages of {page_bytes} bytes", "4096 suit most disks: PRAGMA page_size = 4096, then VACUUM outside WAL mode."),
            "auto_vacuum": (auto_vacuum == _FULL, "auto_vacuum is FULL: each commit that frees pages moves others", "PRAGMA auto_vacuum = INCREMENTAL leaves the moment to you."),
            "secure_delete": (secure == _FULL, "this library overwrites what it deletes", "Emptying a replaced table takes about ten times as long; PRAGMA secure_delete is a choice of the application's."),
            "long_wal": (
                log_bytes > _LONG_LOG_BYTES,
                f"the write-ahead log has {log_bytes >> 20} MiB",
                "Some reader has been open for long, so that it cannot begin anew: end that reader, then PRAGMA wal_checkpoint(TRUNCATE).",
            ),
        }  # fmt: skip
        return [DoctorFinding(code=code, message=message, hint=hint, weight=Weight.NOTE) for code, (is_so, message, hint) in notes.items() if is_so]
