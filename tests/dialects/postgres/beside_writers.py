"""Changes of a table there and back, again and again, beside writers in processes of their own, until these have written enough."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.dialects.postgres.oracle import log_is_long_from
from tests.dialects.postgres.stepping import application, as_if_large, rows
from tests.waiting import until
from tideshift.config import FAST
from tideshift.connect import Connected, connect
from tideshift.ddl.machine import JOB, JobState

__all__ = ["KINDS", "Report", "carry_out_beside_writers"]

PROJECT = Path(__file__).parents[3]
WRITERS = 2
JOB_SECONDS_MAX = 300.0
CYCLES_MAX = 2_000
LEVELS = {False: ["read committed", "repeatable read"], True: ["read committed"]}
"""By whether a change replaces the table's rows."""
COLUMNS = "id, u, c, d, w, spare, p"
SCHEMA = """
CREATE TABLE parent (id int PRIMARY KEY);
INSERT INTO parent SELECT generate_series(0, 9);
CREATE TABLE t (id int PRIMARY KEY, u int NOT NULL UNIQUE, c text, d int CHECK (d >= 0), w int, spare int, p int);
INSERT INTO t SELECT i, i + {rows} * 20, 'first', i % 1000, -i, i, i % 10 FROM generate_series(0, {rows} - 1) i;
CREATE INDEX by_d ON t (d, c);
ANALYZE;
"""


@dataclass(frozen=True)
class Kind:
    """A change and the one that undoes it; what writers do gives the same with either shape."""

    there: str
    back: str
    strategy: str | None = None
    log_rows: int | None = None
    truncates: bool = True
    allow_column_order_change: bool = False

    @property
    def replaces_rows(self) -> bool:
        """Whether the table is another one afterwards, of which an older snapshot does not see all rows: as after the server's own rewrite."""
        return self.strategy is not None


SHADOW = "shadow_table"
KINDS = {
    "add column": Kind("ALTER TABLE t ADD COLUMN z int DEFAULT 3", "ALTER TABLE t DROP COLUMN z"),
    "rename column": Kind("ALTER TABLE t RENAME COLUMN spare TO other", "ALTER TABLE t RENAME COLUMN other TO spare"),
    "default": Kind("ALTER TABLE t ALTER spare SET DEFAULT NULL, ALTER c SET STATISTICS 50", "ALTER TABLE t ALTER spare DROP DEFAULT, ALTER c SET STATISTICS -1"),
    "direct": Kind("ALTER TABLE t ALTER d TYPE bigint", "ALTER TABLE t ALTER d TYPE int", "direct"),
    "not null": Kind("ALTER TABLE t ALTER w SET NOT NULL", "ALTER TABLE t ALTER w DROP NOT NULL"),
    "check": Kind("ALTER TABLE t ADD CONSTRAINT ck CHECK (d > -5)", "ALTER TABLE t DROP CONSTRAINT ck"),
    "foreign key": Kind("ALTER TABLE t ADD CONSTRAINT fk FOREIGN KEY (p) REFERENCES parent", "ALTER TABLE t DROP CONSTRAINT fk"),
    "unique": Kind("ALTER TABLE t ADD CONSTRAINT wu UNIQUE (w)", "ALTER TABLE t DROP CONSTRAINT wu"),
    "index": Kind("CREATE INDEX ci ON t (c, w)", "DROP INDEX ci"),
    "unique index": Kind("CREATE UNIQUE INDEX wi ON t (w) INCLUDE (d)", "DROP INDEX wi"),
    "type": Kind("ALTER TABLE t ALTER d TYPE bigint", "ALTER TABLE t ALTER d TYPE int", SHADOW),
    "type with a long log": Kind("ALTER TABLE t ALTER d TYPE bigint", "ALTER TABLE t ALTER d TYPE int", SHADOW, log_rows=30),
    "using": Kind("ALTER TABLE t ALTER c TYPE varchar(90) USING c || ''", "ALTER TABLE t ALTER c TYPE text USING '' || c", SHADOW),
    "key type": Kind("ALTER TABLE t ALTER id TYPE bigint", "ALTER TABLE t ALTER id TYPE int", SHADOW),
    "order": Kind("ALTER TABLE t MOVE COLUMN w FIRST", "ALTER TABLE t MOVE COLUMN w AFTER d", SHADOW),
    "volatile column": Kind("ALTER TABLE t ADD COLUMN z uuid DEFAULT gen_random_uuid()", "ALTER TABLE t DROP COLUMN z", SHADOW),
    "in place": Kind("ALTER TABLE t ALTER d TYPE bigint", "ALTER TABLE t ALTER d TYPE int", "in_place", allow_column_order_change=True),
    "identity": Kind("ALTER TABLE t ADD COLUMN z bigint GENERATED ALWAYS AS IDENTITY", "ALTER TABLE t DROP COLUMN z", SHADOW),
    "unique by a copy": Kind("ALTER TABLE t ADD CONSTRAINT wu UNIQUE (w), ALTER d TYPE bigint", "ALTER TABLE t DROP CONSTRAINT wu, ALTER d TYPE int", SHADOW),
}


@dataclass
class Report:
    """What the writers did while jobs were under way, and what was wrong."""

    jobs: int = 0
    rows: int = 0
    statements: int = 0
    longest_ms: int = 0
    longest_without_ms: int = 0
    longest_truncate_ms: int = 0
    wrong: list[str] = field(default_factory=list)


class _Told:
    """What the writers have told so far."""

    def __init__(self, logs: list[Path]) -> None:
        self.lines = [[json.loads(line) for line in log.read_text().splitlines()] if log.exists() else [] for log in logs]

    def written(self, what: str) -> list[int]:
        """How much each has written."""
        return [max((line[what] for line in lines if what in line), default=0) for lines in self.lines]

    def longest(self, name: str, which: int) -> int:
        """The longest statement of all, in milliseconds."""
        return round(1000 * max(line[name][which] for lines in self.lines for line in lines if name in line))

    def differing(self) -> list[str]:
        """The statements whose answers were not the same."""
        return [f"{line['statement']}: {line['with_job']} with the job, {line['without']} without" for lines in self.lines for line in lines if "statement" in line]


@contextmanager
def _writers(urls: list[str], folder: Path, *, seed: int, keys_max: int, kind: Kind) -> Iterator[list[Path]]:
    logs = [folder / f"writer{number}.log" for number in range(WRITERS)]
    started = []
    with ExitStack() as stack:
        for number, log in enumerate(logs):
            told = {"number": number, "writers": WRITERS, "keys_max": keys_max, "seed": seed, "truncates": kind.truncates, "levels": LEVELS[kind.replaces_rows]}
            command = [sys.executable, "-m", "tests.dialects.postgres.writer", *urls, str(log), json.dumps(told)]
            started.append(stack.enter_context(subprocess.Popen(command, cwd=PROJECT)))
        try:
            until(lambda: min(_Told(logs).written("rows")) > 0, "each writer writes", seconds=JOB_SECONDS_MAX)
            yield logs
        finally:
            for process in started:
                process.terminate()
            codes = [process.wait(60) for process in started]
    assert codes == [0] * WRITERS


def carry_out_beside_writers(urls: list[str], folder: Path, kind: Kind, *, seed: int, rows_wanted: int, table_rows: int) -> Report:
    """Go there and back until so many rows were written meanwhile; the first database has the jobs, the second none."""
    for url in urls:
        with application(url) as connection:
            connection.execute(SCHEMA.format(rows=table_rows).encode())
    report = Report()
    with ExitStack() as stack:
        logs = stack.enter_context(_writers(urls, folder, seed=seed, keys_max=table_rows * 2, kind=kind))
        stack.enter_context(as_if_large(pytest.MonkeyPatch()))
        stack.enter_context(log_is_long_from(kind.log_rows))
        connected = stack.enter_context(connect(urls[0], profile=FAST))
        connected.bootstrap()
        stack.enter_context(connected.service(slots=2))
        for _ in range(CYCLES_MAX):
            for statement in (kind.there, kind.back):
                _one_job(connected, statement, kind, logs, report)
            if report.wrong or report.rows >= rows_wanted:
                break
        until(lambda: connected.database.run(connected.dialect.catalog.objects, write=False) == set(), "nothing of the jobs is left", seconds=JOB_SECONDS_MAX)
    told = _Told(logs)
    report.wrong += told.differing()[:20]
    found, expected = (rows(url, f"SELECT {COLUMNS} FROM t ORDER BY id") for url in urls)
    if found != expected:
        report.wrong.append(f"rows differ: only here {sorted(set(found) - set(expected), key=str)[:5]}, only there {sorted(set(expected) - set(found), key=str)[:5]}")
    report.longest_ms, report.longest_without_ms = told.longest("longest", 0), told.longest("longest", 1)
    report.longest_truncate_ms = told.longest("longest_truncate", 0)
    return report


def _one_job(connected: Connected, statement: str, kind: Kind, logs: list[Path], report: Report) -> None:
    before = _Told(logs)
    job_id = connected.ddl.submit(statement, strategy=kind.strategy, keep_old_seconds=0, parameters={"batch_size": 2_000}, allow_column_order_change=kind.allow_column_order_change).id
    until(lambda: connected.ddl.job(job_id).state in JOB.final, lambda: f"the job ends: {connected.ddl.show(job_id)}", seconds=JOB_SECONDS_MAX)
    job, after = connected.ddl.job(job_id), _Told(logs)
    report.jobs += 1
    report.rows += sum(after.written("rows")) - sum(before.written("rows"))
    report.statements += sum(after.written("statements")) - sum(before.written("statements"))
    warned = job.warnings and not kind.allow_column_order_change  # that one says beforehand what it costs
    if job.state is not JobState.SYNCED or warned:
        report.wrong.append(f"{statement}: ended {job.state}: {job.error} {job.warnings}")
