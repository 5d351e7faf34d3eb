"""Real writers in processes of their own beside a real service: nothing of theirs fails, and nothing of theirs is lost."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.proof.engine import application
from tests.proof.writer import COLUMNS, read_log
from tests.waiting import until
from tideshift.config import FAST
from tideshift.connect import Connected, connect
from tideshift.ddl.job import Job
from tideshift.ddl.machine import JOB, SchemaState

WRITERS = 4
ROWS = int(os.environ.get("TIDESHIFT_PROOF_ROWS", "20000"))
SECONDS_MAX = 60.0
STATEMENTS_MIN = 20
"""How much each writer must have done while the job was under way, for a job beside it to mean anything."""
PROJECT = Path(__file__).parents[2]
TABLE = (
    "CREATE TABLE t (k INTEGER PRIMARY KEY, u TEXT UNIQUE, n TEXT NOT NULL UNIQUE ON CONFLICT REPLACE, amount TEXT DEFAULT '0',"
    " note TEXT COLLATE NOCASE)"
)


def fill(path: Path, journal_mode: str, text: str = TABLE) -> None:
    """Make the table."""
    with closing(application(path)) as connection:
        connection.execute(f"PRAGMA journal_mode = {journal_mode}").fetchone()
        connection.execute(text)
        connection.execute("CREATE INDEX by_note ON t(note, amount DESC)")
        rows = ((k, f"{k % WRITERS}:{k}", f"{k % WRITERS}:n{k}", str(k % 977), "at first") for k in range(1, ROWS + 1))
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO t (k, u, n, amount, note) VALUES (?, ?, ?, ?, ?)", rows)
        connection.execute("COMMIT")


@contextmanager
def writers(path: Path, seed: int) -> Iterator[list[Path]]:
    """Run the writers, all of them at work; at the end they are told to stop, and each must have ended well."""
    folder = path.parent
    logs = [folder / f"writer{number}.log" for number in range(WRITERS)]
    with ExitStack() as stack:
        started = []
        for number, log in enumerate(logs):
            told = {"number": number, "writers": WRITERS, "keys_max": ROWS, "seed": seed % 1_000_003}
            command = [sys.executable, "-m", "tests.proof.writer", str(path), str(log), json.dumps(told)]
            started.append(stack.enter_context(subprocess.Popen(command, cwd=PROJECT)))
        try:
            until(lambda: min(told_by(logs)) > 0, "a line in each writer's log")
            yield logs
        finally:
            for process in started:
                process.terminate()
            codes = [process.wait(30) for process in started]
    assert codes == [0] * WRITERS


def wait_for(connected: Connected, job_id: int, wanted: Any) -> Job:
    """Look at the job until it is as wanted."""

    def look() -> Job | None:
        job = connected.ddl.job(job_id)
        return job if wanted(job) else None

    return until(look, lambda: f"the job as wanted: {connected.ddl.show(job_id)}", seconds=SECONDS_MAX)


def carry_out(path: Path, statement: str, *, refusing: bool = False, strategy: str | None = None) -> Job:
    """Carry a change out by a real service; once it copies, the writers may begin with what the new type refuses."""
    with connect(str(path), profile=FAST) as connected:
        connected.bootstrap()
        with connected.service(slots=2):
            job_id = connected.ddl.submit(statement, parameters={"lock_share": 80}, strategy=strategy).id
            if refusing:
                wait_for(connected, job_id, lambda job: job.schema_state is SchemaState.WRITE_REORGANIZATION)
                path.with_name("refuse").touch()
            return wait_for(connected, job_id, lambda job: job.state in JOB.final)


def differences(path: Path, logs: list[Path], affinity: str) -> list[tuple[Any, Any]]:
    """Compare the table with what the writers wrote down last about each key, and with the first rows elsewhere."""
    wanted: dict[int, Any] = {k: [k, f"{k % WRITERS}:{k}", f"{k % WRITERS}:n{k}", "text", str(k % 977), "at first"] for k in range(1, ROWS + 1)}
    for log in logs:
        for line in read_log(log):
            wanted.update({int(key): row for key, row in line.get("rows", {}).items()})
    with closing(application(path)) as connection:
        connection.execute(f"CREATE TEMP TABLE mapped (k INTEGER PRIMARY KEY, amount {affinity})")
        rows = [(key, row[4]) for key, row in wanted.items() if row is not None]
        connection.executemany("INSERT INTO mapped VALUES (?, ?)", rows)
        mapped = {k: [kind, amount] for k, kind, amount in connection.execute("SELECT k, typeof(amount), amount FROM mapped")}
        found = {row[0]: list(row) for row in connection.execute(f"SELECT {COLUMNS} FROM t")}
    for key, row in wanted.items():
        if row is not None:
            row[3:5] = mapped[key]
    present = {key: row for key, row in wanted.items() if row is not None}
    return [(present.get(key), found.get(key)) for key in sorted(present.keys() | found.keys()) if present.get(key) != found.get(key)]


def errors_in(logs: list[Path]) -> Counter[str]:
    """Count what went wrong for the writers, by kind."""
    return Counter(line["error"] for log in logs for line in read_log(log) if "error" in line)


def told_by(logs: list[Path]) -> list[int]:
    """Return how often each writer has told so far what it did."""
    return [log.read_text().count('{"rows"') if log.exists() else 0 for log in logs]


@pytest.mark.stdlib_sqlite
@pytest.mark.parametrize("journal_mode", ["wal", "delete"])
def test_the_writers_own_logs_equal_the_table_at_the_end(tmp_path: Path, seed: int, journal_mode: str) -> None:
    """Four writers with every conflict clause: only unique constraints refuse them, and the differences are 0."""
    path = tmp_path / "shop.db"
    fill(path, journal_mode)

    with writers(path, seed) as logs:
        before = told_by(logs)
        job = carry_out(path, "ALTER TABLE t ALTER COLUMN amount TYPE NUMERIC")
        inside = [now - then for now, then in zip(told_by(logs), before, strict=True)]

    assert str(job.state) == "synced", job.error
    assert errors_in(logs)["odd"] == 0, [line for log in logs for line in read_log(log) if line.get("error") == "odd"][:3]
    assert errors_in(logs)["lock"] == 0
    assert errors_in(logs)["constraint"] > 0
    assert differences(path, logs, "NUMERIC") == []
    assert min(inside) > STATEMENTS_MIN


BY_K = "CREATE UNIQUE INDEX by_k ON t (k)"
KEY = "k INTEGER PRIMARY KEY"
FIRST: dict[str, tuple[tuple[str, str], str | None]] = {
    "drop check": (("NOCASE)", "NOCASE CONSTRAINT some CHECK (length(note) > 0))"), None),
    "drop foreign key": (("NOCASE)", "NOCASE, spare TEXT REFERENCES t (u))"), None),
    "add primary key": ((KEY, "k INTEGER NOT NULL"), BY_K),
    "drop primary key": ((KEY, KEY), BY_K),
    "not strict": (("NOCASE)", "NOCASE) STRICT"), None),
    "rowid": (("NOCASE)", "NOCASE) WITHOUT ROWID"), None),
    "rename table": ((KEY, KEY), "CREATE TABLE side (id INTEGER PRIMARY KEY, what TEXT REFERENCES t (u))"),
}
"""What stands in the table's text otherwise before, and what is made beside it."""
KINDS = {
    "add column": "ALTER TABLE t ADD COLUMN late TEXT NOT NULL DEFAULT (lower('X')) AFTER k",
    "add check": "ALTER TABLE t ADD CONSTRAINT some CHECK (length(u) > 0)",
    "create index": "CREATE INDEX late ON t (amount, note DESC)",
    "drop column": "ALTER TABLE t DROP COLUMN spare",
    "not null": "ALTER TABLE t ALTER amount SET NOT NULL",
    "drop not null": "ALTER TABLE t ALTER n DROP NOT NULL",
    "default": "ALTER TABLE t ALTER spare SET DEFAULT 'another'",
    "drop default": "ALTER TABLE t ALTER amount DROP DEFAULT",
    "unique": "ALTER TABLE t ADD UNIQUE (u, k)",
    "drop unique": "ALTER TABLE t DROP UNIQUE (n)",
    "foreign key": "ALTER TABLE t ADD FOREIGN KEY (spare) REFERENCES t (u)",
    "drop foreign key": "ALTER TABLE t DROP FOREIGN KEY (spare)",
    "drop check": "ALTER TABLE t DROP CONSTRAINT some",
    "add primary key": "ALTER TABLE t ADD PRIMARY KEY (k)",
    "drop primary key": "ALTER TABLE t DROP PRIMARY KEY",
    "strict": "ALTER TABLE t SET STRICT",
    "not strict": "ALTER TABLE t SET NOT STRICT",
    "without rowid": "ALTER TABLE t SET WITHOUT ROWID",
    "rowid": "ALTER TABLE t SET ROWID",
    "move column": "ALTER TABLE t MOVE COLUMN note FIRST",
    "reindex": "REINDEX t",
    "several": "ALTER TABLE t DROP COLUMN spare, ADD COLUMN more INT DEFAULT 1 FIRST, ALTER note SET DEFAULT 'no'",
    "rename column": "ALTER TABLE t RENAME COLUMN spare TO other",
    "rename table": "ALTER TABLE side RENAME TO aside",
}
AT_ONCE = ("rename column", "rename table")
"""These are the database's own and take no time: the writers must go on after them."""
IN_SUITE = () if os.environ.get("TIDESHIFT_PROOF_ALL") else ("add column", "add check", "create index")


@pytest.mark.parametrize("kind", IN_SUITE or KINDS)
def test_no_kind_of_change_is_felt_by_a_writer(tmp_path: Path, seed: int, kind: str) -> None:
    """The same for every other kind; the suite tries some, TIDESHIFT_PROOF_ALL=1 all."""
    path = tmp_path / "shop.db"
    edit, beside = FIRST.get(kind, ((TABLE, TABLE), None))
    fill(path, "wal", TABLE.replace(*edit))
    with closing(application(path)) as connection:
        for text in (beside, None if "spare" in edit[1] else "ALTER TABLE t ADD COLUMN spare TEXT"):
            connection.execute(text or "SELECT 1")

    with writers(path, seed) as logs:
        before = told_by(logs)
        job = carry_out(path, KINDS[kind], strategy=None if kind in AT_ONCE else "shadow_table")
        if kind in AT_ONCE:
            until(lambda: min(now - then for now, then in zip(told_by(logs), before, strict=True)) > STATEMENTS_MIN, "the writers at work")
        inside = [now - then for now, then in zip(told_by(logs), before, strict=True)]

    assert str(job.state) == "synced", job.error
    assert errors_in(logs)["odd"] == 0, [line for log in logs for line in read_log(log) if line.get("error") == "odd"][:3]
    assert errors_in(logs)["lock"] == 0
    assert differences(path, logs, "TEXT") == []
    assert min(inside) > STATEMENTS_MIN
    with closing(application(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


def test_a_value_that_cannot_be_carried_rolls_the_job_back(tmp_path: Path, seed: int) -> None:
    """The writers' statements succeed; the job ends rolled back with the key in its error, and nothing of ours is left."""
    path = tmp_path / "shop.db"
    fill(path, "wal")

    with writers(path, seed) as logs:
        before = told_by(logs)
        job = carry_out(path, "ALTER TABLE t ALTER COLUMN amount TYPE TEXT USING json(amount)", refusing=True)
        inside = [now - then for now, then in zip(told_by(logs), before, strict=True)]

    assert str(job.state) == "rollback done"
    assert job.error is not None
    assert job.error["code"] == "value_refused"
    assert job.error["message"].startswith("the row of t with k = ")
    assert errors_in(logs)["odd"] == errors_in(logs)["lock"] == 0
    assert errors_in(logs)["constraint"] > 0
    assert any(row and row[4] == "not json" for log in logs for line in read_log(log) for row in line.get("rows", {}).values())
    assert differences(path, logs, "TEXT") == []
    assert min(inside) > STATEMENTS_MIN
    with closing(application(path)) as connection:
        left = connection.execute("SELECT name FROM sqlite_master WHERE name GLOB 'tideshift_[0-9]*'").fetchall()
        text = connection.execute("SELECT sql FROM sqlite_master WHERE name = 't'").fetchone()[0]
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert (left, text) == ([], TABLE)
