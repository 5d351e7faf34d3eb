"""Two databases side by side: in one a job runs, in the other none; each statement must have the same outcome in both."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from tests.proof.engine import Engine, application, library
from tests.proof.reload import holds
from tests.proof.shapes import Shape, rebuild
from tests.proof.stream import Statement, Stream
from tideshift.ddl.job import Job
from tideshift.ddl.points import AFTER_COMPARE, BEFORE_CUTOVER, BEFORE_INSPECT, IN_CUTOVER
from tideshift.failpoint.pytest_plugin import Failpoints
from tideshift.store.points import AFTER_BEGIN, BEFORE_BEGIN, BEFORE_STATEMENT

__all__ = ["Oracle", "Outcome", "answer", "windows_missed"]

WINDOWS = (
    "before the job", "queueing", "capture", "copy: chunks done and to come", "paused", "catch up", "verify",
    "verify: compared, not recorded", "cut over: not drained", "cut over: drained, not swapped", "swapped, not inspected", "synced",
    "after the job",
)  # fmt: skip
SNAPSHOT_WINDOWS = ("verify: inside the snapshot",)
"""In WAL mode only."""
TRIAL_WINDOWS = ("check rows",)
"""In jobs only that try their rows first."""

COPY_TURNS_BEFORE_PAUSE_MAX = 20
PAUSED_TURNS = 15
SPAN_CALLS_MAX = 2
"""For how many of our own attempts an application may keep its transaction open."""

FIRST_HIT_MAX = 60


@dataclass(frozen=True)
class Outcome:
    """What a statement answered."""

    error: tuple[str, object, str] | None
    rows: tuple[Any, ...]
    changes: int
    last_rowid: int
    in_transaction: bool


class Oracle:
    """Runs each statement of a stream on both databases, in the gaps that the engine leaves."""

    def __init__(self, engine: Engine, with_job: Path, without_job: Path, shape: Shape, random: Random, *, wal: bool) -> None:
        self.engine = engine
        self.paths = (with_job, without_job)
        self.shape = shape
        self.random = random
        self.stream = Stream(shape, Random(random.random()))
        self.connections = tuple(application(path) for path in self.paths)
        self.looker = application(with_job)
        self.windows: Counter[str] = Counter()
        self.faults: list[str] = []
        self.statements = 0
        self.errors = 0
        self.schema = holds(with_job)["schema"]
        self.job_id = 0
        self.stage = ""
        self.wal = wal
        self.inside_write = False
        self.cutting_over = False
        self.spans = 0
        self.deferred = False
        self.rebuilt = False
        self.busy = False

    def close(self) -> None:
        """Close the connections."""
        for connection in (*self.connections, self.looker):
            connection.close()

    def watch(self, failpoints: Failpoints) -> None:
        """Run statements at every place where the engine holds no lock, each counted under the window that is open there."""
        failpoints.enable(BEFORE_BEGIN, call=self._before_begin)
        failpoints.enable(AFTER_BEGIN, call=self._after_begin)
        failpoints.enable(BEFORE_STATEMENT, call=self._before_statement)
        failpoints.enable(AFTER_COMPARE, call=lambda **_: self._run("verify: compared, not recorded", 2), may_miss=True)
        failpoints.enable(BEFORE_CUTOVER, call=lambda **_: self._enter_cutover(), may_miss=True)
        failpoints.enable(IN_CUTOVER, call=lambda **_: self._leave_cutover(), may_miss=True)
        failpoints.enable(BEFORE_INSPECT, call=lambda **_: self._run("swapped, not inspected", 6), may_miss=True)

    def drive(self) -> None:
        """Step the engine to the job's end with statements in between, and some more after it."""
        ended = False
        copy_turns, pause_at = 0, self.random.randint(1, COPY_TURNS_BEFORE_PAUSE_MAX)
        resume_turn = None
        for turn in range(3_000):
            copy_turns += self.stage == "copy"
            if copy_turns == pause_at and resume_turn is None:
                self._ask(self.engine.connected.ddl.pause)
                resume_turn = turn + PAUSED_TURNS
            elif resume_turn is not None and turn >= resume_turn and self.stage == "paused":
                self._ask(self.engine.connected.ddl.resume)
            if not self.stream.in_transaction:
                ended = self._look()
            if ended:
                break
            self.stream.front = self._front()
            self.engine.turn()
            self.cutting_over = False
        assert ended, f"the job did not end: {self.stage}"
        self._run("after the job", 25)
        self._close_transaction()

    def _ask(self, command: Callable[[int], object]) -> None:
        """Let a person pause or resume the job; the client is in no race."""
        self._close_transaction()
        self.busy = True
        command(self.job_id)
        self.busy = False

    def _look(self) -> bool:
        """See where the job stands, without a gap for the application; return whether all of it is over."""
        self.busy = True
        self.stage = self.engine.stage(self.job_id)
        over = self.stage in ("synced", "rollback done", "cancelled") and not self.engine.left_behind()
        self.busy = False
        return over

    def compare(self) -> None:
        """Hold the rows of both databases against one another, and the catalogue against its own at the start."""
        one, other = (holds(path) for path in self.paths)
        found, wanted = one["schema"], self._wanted(other["schema"])
        if self.shape.asked:
            # A unique key of the table's text may come or go, and with it an index that stands where no one way to do it decides.
            found, wanted = ([row for row in rows if row[3]] + sorted(row for row in rows if not row[3]) for rows in (found, wanted))
        if found != wanted:
            self.faults.append(f"the schema is {found}, not {wanted}")
        for part in ("rows", "sequence", "references", "integrity"):
            if one[part] != other[part]:
                self.faults.append(f"{part} differ at the end: {_difference(one[part], other[part])}")

    def _wanted(self, of_the_other: list[Any]) -> list[Any]:
        """Return the catalogue at the start with the change made in it; the automatic indexes of another change are the library's."""
        text = self.shape.new_text if self.rebuilt else self.shape.old_text
        wanted = [(*row[:3], text if row[:2] == ("table", "t") else row[3]) for row in self.schema]
        if not self.shape.asked:
            return wanted
        made = [("index", "late", "t", self.shape.asked)] if self.rebuilt and self.shape.asked.startswith("CREATE") else []
        return [row for row in wanted if row[3]] + made + [row for row in of_the_other if not row[3]]

    # ── where statements are run ──────────────────────────────────────────────────────────────────────────────────

    def _before_begin(self, *, write: bool) -> None:
        self.inside_write = write
        if self.busy or not self.job_id:
            return
        window = "cut over: drained, not swapped" if self.cutting_over else self._window()
        self._run(window, self.random.choice((0, 1, 1, 2, 4)))

    def _after_begin(self, *, write: bool) -> None:
        self.inside_write = write

    def _before_statement(self, *, kind: str) -> None:
        """In WAL mode a writer goes on while the engine reads in a snapshot."""
        if self.wal and kind == "verbatim" and not self.inside_write and self.stage in ("verify", "check rows") and self.random.random() < 0.2:
            self._run(f"{self.stage}: inside the snapshot", 1)

    def _enter_cutover(self) -> None:
        self._run("cut over: not drained", 4)
        self.cutting_over = True

    def _leave_cutover(self) -> None:
        self.cutting_over = False

    def _window(self) -> str:
        if not self.stream.in_transaction:
            self._refresh_stage()
        if self.stage != "copy" or self.stream.front is None:
            return self.stage
        return "copy: chunks done and to come"

    def _refresh_stage(self) -> None:
        """Read where the job stands now: within one look the owner may come far."""
        row = self.looker.execute("SELECT state, stage, plan FROM tideshift_ddl_job WHERE id = ?", (self.job_id,)).fetchone()
        if row is None or row[0] != "running":
            self.stage = "before the job" if not self.job_id else self.stage if row is None else row[0]
            return
        name = json.loads(row[2])["stages"][row[1]]["name"]
        if name != "reorganize" or self.stage not in ("copy", "catch up", "verify"):
            self.stage = name

    def _front(self) -> int | None:
        for executor in self.engine.node.executors:
            done = executor.subtask.checkpoint.get("done") or (executor.subtask.meta.get("range") or {}).get("low")
            if done and done[0][0] == "int":
                return int(done[0][1])
        return None

    # ── statements ────────────────────────────────────────────────────────────────────────────────────────────────

    def _run(self, window: str, count: int) -> None:
        if self.faults:
            return
        self.busy = True
        try:
            self._follow_swap()
            done = 0
            # A window is hit by a statement that changes rows: the first time it opens, it is kept open until one did.
            while done < count or (self.windows[window] == 0 and done < FIRST_HIT_MAX):
                self._statement(self.stream.next(), window)
                done += 1
            if self.stream.in_transaction:
                self.spans += 1
                # One that began without a lock and has read would be refused its first write after anybody's commit.
                if self.deferred or self.spans >= SPAN_CALLS_MAX or self.random.random() < 0.5:
                    self._close_transaction(window)
        finally:
            self.busy = False

    def _close_transaction(self, window: str = "at the end") -> None:
        for _ in range(20):
            if not self.stream.in_transaction:
                break
            self._statement(self.stream.closing(), window)
            if self.stream.in_transaction:
                self._statement(("ROLLBACK", ()), window)
        self.spans = 0

    def _statement(self, statement: Statement, window: str) -> None:
        outcomes = [answer(connection, statement) for connection in self.connections]
        self.statements += 1
        if statement[0].startswith("BEGIN"):
            self.deferred = statement[0] == "BEGIN"
        self.errors += outcomes[1].error is not None
        if outcomes[0] != outcomes[1]:
            self.faults.append(f"statement {self.statements} in window {window!r}: {statement}\n  with a job    {outcomes[0]}\n  without a job {outcomes[1]}")
        elif outcomes[0].error is None and outcomes[0].changes and not statement[0].startswith(("SELECT", "PRAGMA")):
            self.windows[window] += 1
        self.stream.see(outcomes[1].in_transaction)

    def _follow_swap(self) -> None:
        """Once the job has swapped, make the same change in the other database, so that both have the same shape again."""
        if self.rebuilt or not self.job_id or self.stream.in_transaction:
            return
        live = self.looker.execute("SELECT state FROM tideshift_ddl_job WHERE id = ?", (self.job_id,)).fetchone()
        if live is None:
            live = self.looker.execute("SELECT state FROM tideshift_ddl_job_history WHERE id = ?", (self.job_id,)).fetchone()
        if live is not None and live[0] in ("done", "synced"):
            rebuild(self.paths[1], self.shape)
            self.rebuilt = True


def windows_missed(oracle: Oracle, job: Job, *, wal: bool) -> list[str]:
    """Name the windows that such a job opens and in which no statement of the stream changed a row."""
    tried = any(stage.name == "check rows" for stage in job.current_plan.stages)
    wanted = WINDOWS + (SNAPSHOT_WINDOWS if wal else ()) + (TRIAL_WINDOWS if tried else ())
    return [window for window in wanted if not oracle.windows[window]]


def answer(connection: Any, statement: Statement) -> Outcome:
    """Run one statement and tell everything that it answered."""
    error = None
    rows: tuple[Any, ...] = ()
    try:
        rows = tuple(connection.execute(*statement).fetchall())
    except library().Error as raised:
        error = (type(raised).__name__, getattr(raised, "sqlite_errorcode", None), str(raised))
    changes, last_rowid = connection.execute("SELECT changes(), last_insert_rowid()").fetchone()
    return Outcome(error, rows, changes, last_rowid, connection.in_transaction)


def _difference(one: Any, other: Any) -> str:
    if not isinstance(one, dict):
        return f"{one!r} / {other!r}"
    tables = [name for name in one if one[name] != other.get(name)]
    lines = []
    for name in tables:
        only_one = [row for row in one[name] if row not in other.get(name, [])][:5]
        only_other = [row for row in other.get(name, []) if row not in one[name]][:5]
        lines.append(f"{name}: with a job {only_one}, without {only_other}")
    return "; ".join(lines)
