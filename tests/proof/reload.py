"""Writing a scenario into a file, the same file once more with the change made by a reload, and what a file holds.

The reload is the classic way: print the schema with the new type, load every row again with OR ABORT, then make indexes,
triggers and views. It shares no code with the product.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

from tests.proof.engine import application, library
from tests.proof.schema import Scenario, Table, Value, quoted

__all__ = ["Refused", "contents", "copy_rows", "copy_system_table", "holds", "load", "opened", "reload_changed", "tables_in_order"]


class Refused(Exception):
    """The reload met something that the new shape does not take."""


def load(path: Path, scenario: Scenario) -> None:
    """Write a scenario; what the library refuses is taken out of it, so that the scenario then is what the file holds."""
    with closing(opened(path, scenario)) as connection:
        scenario.tables[1:] = [table for table in scenario.tables[1:] if _tried(connection, table.text())]
        connection.execute(scenario.target.text())
        names = {table.name for table in scenario.tables}
        connection.execute("BEGIN")
        for row in scenario.rows:
            if row.table in names:
                _tried(connection, *_insert(row.table, row.columns, row.values, "OR IGNORE", scenario.encoding))
        for deletion in scenario.deletions:
            _tried(connection, deletion)
        connection.execute("COMMIT")
        scenario.others[:] = [text for text in scenario.others if _tried(connection, text)]


def reload_changed(source: Path, path: Path, scenario: Scenario) -> None:
    """Make the file that the change must lead to, or raise `Refused`."""
    change = scenario.change
    try:
        with closing(application(source)) as old, closing(opened(path, scenario)) as new:
            for table in tables_in_order(old, scenario):
                new.execute(table.text((change.column, change.type_text) if table is scenario.target else None))
            new.execute("BEGIN")
            for table in scenario.tables:
                mapped = {change.column: f"({change.using})"} if table is scenario.target and change.using else {}
                copy_rows(old, new, table, mapped, scenario.encoding)
            new.execute("COMMIT")
            for text in scenario.others:
                new.execute("ANALYZE sqlite_master" if text == "ANALYZE" else text)
            for table in ("sqlite_sequence", "sqlite_stat1"):
                copy_system_table(old, new, table)
    except library().Error as error:
        raise Refused(str(error)) from error


def holds(path: Path) -> dict[str, Any]:
    """Return everything of a file that an application can see, but for what is tideshift's own."""
    with closing(application(path)) as connection:
        connection.text_factory = lambda text: text.decode("utf-8", "surrogateescape")
        schema = connection.execute(
            "SELECT type, name, tbl_name, sql FROM sqlite_master WHERE tbl_name NOT GLOB 'tideshift_*' ORDER BY rowid"
        ).fetchall()
        tables = [name for kind, name, *_ in schema if kind == "table" and not name.startswith("sqlite_stat4")]
        return {
            "schema": schema,
            "rows": {name: contents(connection, name) for name in tables if name != "sqlite_sequence"},
            "sequence": _sequence(connection),
            # Table by table: where one reference cannot be checked at all, the library stops there, in no certain order.
            "references": [row for name in sorted(tables) for row in _answer(connection, f"PRAGMA foreign_key_check({quoted(name)})")],
            "integrity": _answer(connection, "PRAGMA integrity_check"),
        }


def contents(connection: Any, name: str) -> list[Any]:
    """Return the rows of a table in their own order, each value with its storage class and, for text, its bytes."""
    # One by one, as names: a column may have a name that only a row of this select could tell.
    columns = [column for (column,) in connection.execute("SELECT name FROM pragma_table_xinfo(?) WHERE hidden <> 1", (name,))]
    taken = {column.lower() for column in columns}
    without = connection.execute("SELECT wr FROM pragma_table_list WHERE name = ? AND schema = 'main'", (name,)).fetchone()[0]
    rowid = next((alias for alias in ("rowid", "_rowid_", "oid") if alias not in taken), None)
    shown = [rowid] if rowid is not None and not without else []
    shown.extend(f"typeof({column}) || ':' || quote({column}) || ':' || hex(CAST({column} AS BLOB))" for column in map(quoted, columns))
    try:
        return connection.execute(f"SELECT {', '.join(shown)} FROM {quoted(name)} NOT INDEXED").fetchall()
    except library().Error as error:
        return [str(error)]


def opened(path: Path, scenario: Scenario) -> Any:
    """Open a new file with the settings of a scenario."""
    connection = application(path)
    connection.execute(f"PRAGMA encoding = '{scenario.encoding}'")
    connection.execute(f"PRAGMA auto_vacuum = {int(scenario.auto_vacuum)}")
    connection.execute(f"PRAGMA journal_mode = {'wal' if scenario.wal else 'delete'}").fetchone()
    connection.execute("PRAGMA synchronous = OFF")
    return connection


def _tried(connection: Any, sql: str, binds: tuple[object, ...] = ()) -> bool:
    try:
        connection.execute(sql, binds)
    except library().Error:
        return False
    return True


def _insert(
    table: str, columns: tuple[str, ...], values: tuple[Value, ...], conflict: str, encoding: str
) -> tuple[str, tuple[object, ...]]:
    """Return the statement with its binds; text that is not valid can only be given as bytes, and only where they are UTF-8."""
    as_bytes = encoding == "UTF-8"
    marks = ", ".join("CAST(? AS TEXT)" if kind == "text" and as_bytes else "?" for kind, _ in values)
    binds = tuple(value if as_bytes or kind != "text" else value.decode("utf-16-le") for kind, value in values)  # type: ignore[attr-defined]
    return f"INSERT {conflict} INTO {quoted(table)} ({', '.join(map(quoted, columns))}) VALUES ({marks})", binds


def tables_in_order(old: Any, scenario: Scenario) -> list[Table]:
    """Return the tables in the order in which a file has them."""
    order = [name for (name,) in old.execute("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY rowid")]
    return sorted(scenario.tables, key=lambda table: order.index(table.name))


def copy_rows(
    old: Any, new: Any, table: Table, mapped: dict[str, str], encoding: str, *, into: Table | None = None, left_out: tuple[str, ...] = ()
) -> None:
    """Load every row of a table again, into a table of another shape where one is given; numbers that no column shows stay."""
    target = table if into is None else into
    names = [column.name for column in target.written() if column.name not in left_out]
    rowid = table.rowid_alias()
    if rowid is not None and rowid == target.rowid_alias() and target.rowid_column is None:
        names.insert(0, rowid)
    shown = []
    for name in names:
        value = mapped.get(name, quoted(name))
        shown += [f"typeof({value})", f"CASE typeof({value}) WHEN 'text' THEN CAST({value} AS BLOB) ELSE {value} END"]
    for row in old.execute(f"SELECT {', '.join(shown)} FROM {quoted(table.name)} NOT INDEXED").fetchall():
        values = tuple(zip(row[::2], row[1::2], strict=True))
        new.execute(*_insert(table.name, tuple(names), values, "OR ABORT", encoding))


def copy_system_table(old: Any, new: Any, table: str) -> None:
    """Take over the rows of a table of the library's."""
    if not new.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (table,)).fetchone():
        return
    new.execute(f"DELETE FROM {table}")
    for row in old.execute(f"SELECT * FROM {table} ORDER BY rowid").fetchall():
        new.execute(f"INSERT INTO {table} VALUES ({', '.join('?' for _ in row)})", row)


def _sequence(connection: Any) -> list[Any]:
    if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'sqlite_sequence'").fetchone():
        return []
    return sorted(connection.execute("SELECT name, seq FROM sqlite_sequence WHERE name NOT GLOB 'tideshift_*'").fetchall())


def _answer(connection: Any, sql: str) -> list[Any]:
    try:
        return sorted(connection.execute(sql).fetchall(), key=repr)
    except library().Error as error:
        return [str(error)]
