"""What a run left behind: the user's database to the byte of each text, and whether anything of ours is still there."""

from __future__ import annotations

import json
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.crash.application import HISTORY, MODULE, Writer
from tests.crash.stepper import Observer, Scenario
from tideshift.connect import connect

SYSTEM = "tideshift_"


@dataclass(frozen=True, kw_only=True)
class UserDatabase:
    """Everything of the application that must not depend on how often we died."""

    schema: tuple[tuple[Any, ...], ...]
    rows: dict[str, list[tuple[Any, ...]]]
    counters: tuple[tuple[Any, ...], ...]
    settings: tuple[Any, ...]

    def differences(self, other: UserDatabase) -> list[str]:
        """Say what differs from another one."""
        found = [f"schema: {line}" for line in _differing(self.schema, other.schema)]
        found += [f"counters: {line}" for line in _differing(self.counters, other.counters)]
        found += [f"settings: {self.settings} and {other.settings}"] if self.settings != other.settings else []
        for table in sorted(self.rows.keys() | other.rows.keys()):
            found += [f"{table}: {line}" for line in _differing(self.rows.get(table, []), other.rows.get(table, []))]
        return found


@dataclass(frozen=True, kw_only=True)
class Ending:
    """How a run ended: the application's database, the job's row in the history, and every broken promise."""

    user: UserDatabase
    job: dict[str, Any]
    problems: tuple[str, ...]

    def differences(self, twin: Ending) -> list[str]:
        """Say how this differs from the twin that nobody disturbed."""
        found = [*self.problems, *self.user.differences(twin.user)]
        found += [f"job {name}: {self.job[name]!r} and {twin.job[name]!r}" for name in twin.job if self.job.get(name) != twin.job[name]]
        return found


def _differing(here: Any, there: Any) -> list[str]:
    counted_here, counted_there = [repr(row) for row in here], [repr(row) for row in there]
    if counted_here == counted_there:
        return []
    lines = [f"only here {row}" for row in counted_here if row not in counted_there]
    lines += [f"only there {row}" for row in counted_there if row not in counted_here]
    return lines[:8] or ["the same rows in another order or number"]


def read_user(path: Path) -> UserDatabase:
    """Read the application's whole database; of ours, and of the pages, nothing."""
    with closing(MODULE.connect(path)) as connection:
        schema = connection.execute(
            f"SELECT type, name, tbl_name, sql FROM sqlite_master WHERE tbl_name NOT GLOB '{SYSTEM}*' ORDER BY type, name"
        ).fetchall()
        names = [name for kind, name, _, _ in schema if kind == "table" and name != "sqlite_sequence"]
        rows = {name: _rows(connection, name) for name in names}
        counters = connection.execute(f"SELECT name, seq FROM sqlite_sequence WHERE name NOT GLOB '{SYSTEM}*' ORDER BY name").fetchall() \
            if any(name == "sqlite_sequence" for _, name, _, _ in schema) else []  # fmt: skip
        settings = tuple(connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("journal_mode", "user_version", "auto_vacuum"))
    # The counters' table comes to be with the first AUTOINCREMENT, which may be ours.
    kept = tuple(row for row in schema if row[1] != "sqlite_sequence")
    return UserDatabase(schema=kept, rows=rows, counters=tuple(counters), settings=settings)


def _rows(connection: Any, table: str) -> list[tuple[Any, ...]]:
    """Read all rows with the storage class of each value, in an order of their own."""
    columns = [row[1] for row in connection.execute(f"SELECT * FROM pragma_table_xinfo('{table}')")]
    chosen = ", ".join(f'"{column}", typeof("{column}")' for column in columns)
    return sorted(connection.execute(f'SELECT {chosen} FROM "{table}"').fetchall(), key=repr)


def read_ending(path: Path, acknowledged: list[str]) -> Ending:
    """Read a settled run."""
    with closing(Observer(path)) as observer:
        job = _job(observer)
        problems = [*_leftovers(path, observer), *_requests(observer, acknowledged), *_health(observer)]
    return Ending(user=read_user(path), job=job, problems=tuple(problems))


def _job(observer: Observer) -> dict[str, Any]:
    names = ("state", "schema_state", "stage", "revertible", "error", "paused_by", "warnings")
    rows = observer.rows(f"SELECT {', '.join(names)} FROM tideshift_ddl_job_history")
    assert len(rows) == 1, f"there is one job, and the history holds {len(rows)}"
    job = dict(zip(names, rows[0], strict=True))
    error = json.loads(job.pop("error") or "null")
    return {**job, "error": None if error is None else error["code"]}


def _leftovers(path: Path, observer: Observer) -> list[str]:
    """Name what should be gone and is not."""
    found = []
    for table, condition in (
        ("ddl_job", "1"), ("dxf_global_task", "1"), ("dxf_background_subtask", "1"), ("ddl_artifact", "dropped_at IS NULL"),
    ):  # fmt: skip
        count = observer.rows(f"SELECT count(*) FROM {SYSTEM}{table} WHERE {condition}")[0][0]
        found += [f"{count} rows are left in {table}"] if count else []
    with connect(str(path)) as connected, connected.database.transaction(write=False) as tx:
        objects = connected.dialect.catalog.objects(tx)
    return found + [f"orphan: {kind} {name}" for kind, name in sorted(objects)]


def _requests(observer: Observer, acknowledged: list[str]) -> list[str]:
    """Check that each request has exactly one outcome, and that no acknowledgement was forgotten."""
    counted = dict(
        observer.rows(
            "SELECT r.request_id, (SELECT count(*) FROM tideshift_event o WHERE o.request_id = r.request_id AND o.kind = 'outcome')"
            " FROM tideshift_event r WHERE r.kind = 'request'"
        )
    )
    found = [f"request {request_id} has {count} outcomes" for request_id, count in counted.items() if count != 1]
    for line in acknowledged:
        kind, _, what = line.partition(" ")
        known = what in counted if kind == "request" else bool(
            observer.rows("SELECT 1 FROM tideshift_ddl_job_history WHERE id = ?", int(what))
        )  # fmt: skip
        found += [] if known else [f"acknowledged and lost: {line}"]
    return found


def _health(observer: Observer) -> list[str]:
    found = [f"integrity: {line}" for (line,) in observer.rows("PRAGMA integrity_check") if line != "ok"]
    found += [f"foreign key: {row}" for row in observer.rows("PRAGMA foreign_key_check")]
    return found


def offline_twin(scenario: Scenario, folder: Path) -> UserDatabase:
    """Do the same to a database that never saw us: edited schema, rows carried over, then the same writes."""
    application = scenario.application
    source, target = folder / "offline-source.db", folder / "offline.db"
    application.create(source, scenario.seed)
    changed = scenario.ends == "synced"
    with closing(MODULE.connect(source, isolation_level=None)) as connection:
        rows = {name: connection.execute(f'SELECT * FROM "{name}"').fetchall() for name in _plain_tables(connection)}
        columns = {name: [row[1] for row in connection.execute(f"PRAGMA table_info('{name}')")] for name in rows}
        counters = connection.execute("SELECT name, seq FROM sqlite_sequence").fetchall() if _counts(connection) else []
    with closing(MODULE.connect(target, isolation_level=None)) as connection:
        connection.execute(f"PRAGMA journal_mode = {application.journal}")
        texts = [text.replace(application.old_text, application.new_text) if changed else text for text in application.schema]
        tables = [text for text in texts if text.startswith("CREATE TABLE")]
        for text in (*tables, HISTORY):
            connection.execute(text)
        new_name = dict([application.renamed] if changed and application.renamed is not None else [])
        for name, kept in rows.items():
            table = new_name.get(name, name)
            there = {row[1] for row in connection.execute(f"PRAGMA table_info('{table}')")}
            renamed = [new_name.get(column, column) for column in columns[name]]
            carried = [(number, column) for number, column in enumerate(renamed) if column in there]
            stored = [[row[number] for number, _ in carried] for row in kept]
            listed = ", ".join(column for _, column in carried)
            connection.executemany(f'INSERT INTO "{table}" ({listed}) VALUES ({", ".join("?" * len(carried))})', stored)
        for text in texts:
            if text not in tables:
                connection.execute(text)
        for text in application.made if changed else ():
            connection.execute(text)
        for name, number in counters:
            connection.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = ?", (number, new_name.get(name, name)))
    with closing(Writer(target, scenario.operations)) as writer:
        writer.finish()
    return read_user(target)


def _plain_tables(connection: Any) -> list[str]:
    names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%' ORDER BY rowid").fetchall()
    return [name for (name,) in names]


def _counts(connection: Any) -> bool:
    return bool(connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'sqlite_sequence'").fetchone())
