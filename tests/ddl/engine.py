"""The whole engine on one SQLite file, stepped in one thread: two tables to change, a cluster, and what must be left."""

from __future__ import annotations

from contextlib import closing

from tests.databases import SQLITE_SCHEME
from tests.dxf.logs import assert_log_is_a_path
from tests.servers import sqlite_module
from tideshift.clock import SteppedClock
from tideshift.config import FAST
from tideshift.connect import connect
from tideshift.ddl import tables
from tideshift.ddl.job import Job
from tideshift.ddl.machine import JOB, JobState
from tideshift.store import events
from tideshift.store.tables import METADATA
from tideshift.testing.cluster import Cluster

ROWS = 40
STAGES = ("capture", "reorganize", "cut over", "inspect")


def statement(table: str = "t") -> str:
    """The change that the scenarios ask for: every value can be carried."""
    return f"ALTER TABLE {table} ALTER COLUMN c TYPE TEXT"


class Engine:
    """Two equal tables `t` and `u` of a user, and everything that tideshift does in one process or several."""

    def __init__(self, path, *, nodes: int = 1, seed: int = 0) -> None:
        self.path = path
        with closing(sqlite_module().connect(path)) as user:
            for table in ("t", "u"):
                user.execute(f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, c INTEGER, d TEXT UNIQUE)")
                user.execute(f"CREATE INDEX {table}_c ON {table} (c)")
                user.executemany(f"INSERT INTO {table} VALUES (?, ?, ?)", [(n, n * n, f"row {n}") for n in range(1, ROWS + 1)])
            user.commit()
        self.before = self.catalogue()
        self.connected = connect(f"{SQLITE_SCHEME}{path}", clock=SteppedClock(), profile=FAST, actor="ann")
        self.connected.bootstrap()
        self.database, self.ddl, self.dxf = self.connected.database, self.connected.ddl, self.connected.dxf
        self.cluster = Cluster(
            self.database, self.connected.registry, lambda *_: self.connected.owner("any").duties, nodes=nodes, seed=seed
        )  # fmt: skip

    def close(self) -> None:
        """End everything."""
        self.cluster.__exit__()
        self.connected.close()

    # ── looking ───────────────────────────────────────────────────────────────────────────────────────────────────

    def user_sql(self, sql: str) -> list[tuple]:
        """What an application sees."""
        with closing(sqlite_module().connect(self.path)) as user:
            return user.execute(sql).fetchall()

    def catalogue(self) -> list[tuple]:
        """Everything of the user's: types, names and texts."""
        return self.user_sql("SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE '%tideshift%' ORDER BY 1, 2")

    def rows(self, table: str = "t") -> list[tuple]:
        """The user's rows."""
        return self.user_sql(f"SELECT id, c, d FROM {table} ORDER BY id")

    def left_behind(self) -> list[tuple]:
        """What in the file is ours and no system table."""
        system = {f"tideshift_{table.name}" for table in METADATA.sorted_tables}
        found = self.user_sql("SELECT type, name, tbl_name FROM sqlite_master WHERE name LIKE '%tideshift%'")
        return [row for row in found if row[2] not in system]

    def job(self, job_id: int) -> Job:
        """The job as it is now."""
        return self.ddl.job(job_id)

    def outcomes(self, job_id: int) -> list[tuple[str, list[str]]]:
        """What became of every request about a job: (command, outcomes) in the order of asking."""
        with self.database.transaction(write=False) as tx:
            log = events.history(tx, job_id=job_id)
        asked = [(event.request_id, event.detail["command"]) for event in log if event.kind == "request"]
        answered = [(event.request_id, event.target) for event in log if event.kind == "outcome"]
        return [(command, [target for number, target in answered if number == request]) for request, command in asked]

    # ── going on ──────────────────────────────────────────────────────────────────────────────────────────────────

    def submit(self, table: str = "t", **options) -> Job:
        """Ask for the change of one table, in small chunks."""
        parameters = {"batch_size": 10, "lock_share": 100, **options.pop("parameters", {})}
        return self.ddl.submit(statement(table), parameters=parameters, **{"strategy": "shadow_table", **options})

    def run_to(self, job_id: int, *states: JobState) -> Job:
        """Step until the job is in one of the states (any final one by default), and all is purged when it has ended."""
        wanted = set(states) or JOB.final
        self.cluster.run_until(lambda: self.job(job_id).state in wanted)
        if self.job(job_id).state in JOB.final:
            self.cluster.run_until(lambda: not self.purging(job_id))
        return self.job(job_id)

    def run_to_stage(self, job_id: int, stage: str) -> Job:
        """Step until the job is running and in this stage."""
        number = STAGES.index(stage)
        self.cluster.run_until(lambda: (job := self.job(job_id)).stage == number and job.state is JobState.RUNNING)
        return self.job(job_id)

    def purging(self, job_id: int) -> bool:
        """Whether a table of the job that is given up is still there."""
        with self.database.transaction(write=False) as tx:
            return bool(tables.artifacts_of(tx, job_id)) or any(t.task_key.startswith(f"ddl/{job_id}/") for t in self.dxf.tasks())

    # ── what must be so at the end ────────────────────────────────────────────────────────────────────────────────

    def assert_changed(self, job_id: int, table: str = "t") -> None:
        """The table has its new type and all of its rows, nothing else has changed, and nothing of ours is left."""
        assert self.job(job_id).state is JobState.SYNCED
        assert self.rows(table) == [(n, str(n * n), f"row {n}") for n in range(1, ROWS + 1)]
        old = f"CREATE TABLE {table} (id INTEGER PRIMARY KEY, c INTEGER,"
        expected = [(kind, name, sql and sql.replace(old, old.replace("c INTEGER", "c TEXT"))) for kind, name, sql in self.before]
        assert self.catalogue() == expected
        self._assert_told(job_id)

    def assert_untouched(self, job_id: int, *states: JobState) -> None:
        """The job was undone: catalogue and rows are as before, its error says why, and nothing of ours is left."""
        job = self.job(job_id)
        assert job.state in (states or (JobState.CANCELLED, JobState.ROLLBACK_DONE))
        assert job.error is not None
        assert self.catalogue() == self.before
        assert self.rows() == [(n, n * n, f"row {n}") for n in range(1, ROWS + 1)]
        self._assert_told(job_id)

    def _assert_told(self, job_id: int) -> None:
        assert self.left_behind() == []
        assert_log_is_a_path(self.database, JOB, job_id=job_id)
