"""Each command at each stage of each kind of change: what the plan says it leads to, which docs/states.md lists, is what happens.

The suite tries every fifth place of each plan; TIDESHIFT_PROOF_ALL=1 tries all.
"""

from __future__ import annotations

import os
from contextlib import closing
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from tests.proof.engine import Engine, application, on_engine
from tests.proof.reload import holds
from tests.servers import fast_folder
from tideshift.ddl.job import Effect, Stage, StageKind, effect_of
from tideshift.ddl.machine import JobState, SchemaState
from tideshift.dxf.commands import Verdict
from tideshift.store import events

EVERY = 1 if os.environ.get("TIDESHIFT_PROOF_ALL") else 5
TABLES = (
    "CREATE TABLE parent (id INTEGER PRIMARY KEY, code TEXT UNIQUE)",
    ("CREATE TABLE t (k INTEGER PRIMARY KEY, u TEXT UNIQUE, amount TEXT CHECK (amount IS NOT 'x'), code TEXT REFERENCES parent (code),"
    " spare TEXT CONSTRAINT short CHECK (length(spare) < 9), note TEXT NOT NULL DEFAULT 'n', UNIQUE (u, amount))"),
    "CREATE TABLE bare (k INTEGER NOT NULL UNIQUE, v TEXT)",
    "CREATE TABLE firm (k INTEGER PRIMARY KEY, v TEXT) STRICT, WITHOUT ROWID",
    "CREATE INDEX by_code ON t (code, amount DESC)",
    "CREATE TABLE child (of TEXT REFERENCES t (u) ON DELETE CASCADE)",
    "CREATE VIEW v AS SELECT u, amount FROM t",
)
KINDS = {
    "type": "ALTER TABLE t ALTER amount TYPE INTEGER",
    "type of a parent key": "ALTER TABLE t ALTER u TYPE NUMERIC",
    "add column": "ALTER TABLE t ADD COLUMN late TEXT DEFAULT 'x'",
    "type by an expression": "ALTER TABLE t ALTER amount TYPE INTEGER USING amount + 1",
    "add column first": "ALTER TABLE t ADD COLUMN late TEXT NOT NULL DEFAULT (lower('X')) FIRST",
    "add generated column": "ALTER TABLE t ADD COLUMN late AS (amount || 'x') STORED",
    "drop column": "ALTER TABLE t DROP COLUMN spare",
    "rename column": "ALTER TABLE t RENAME COLUMN spare TO other",
    "rename table": "ALTER TABLE child RENAME TO children",
    "default": "ALTER TABLE t ALTER code SET DEFAULT 'c1'",
    "drop default": "ALTER TABLE t ALTER note DROP DEFAULT",
    "not null": "ALTER TABLE t ALTER amount SET NOT NULL",
    "drop not null": "ALTER TABLE t ALTER note DROP NOT NULL",
    "add check": "ALTER TABLE t ADD CONSTRAINT some CHECK (length(u) > 0)",
    "drop check": "ALTER TABLE t DROP CONSTRAINT short",
    "unique": "ALTER TABLE t ADD UNIQUE (u, code)",
    "drop unique": "ALTER TABLE t DROP UNIQUE (u, amount)",
    "foreign key": "ALTER TABLE t ADD FOREIGN KEY (spare) REFERENCES parent (code)",
    "drop foreign key": "ALTER TABLE t DROP FOREIGN KEY (code)",
    "primary key": "ALTER TABLE bare ADD PRIMARY KEY (k)",
    "drop primary key": "ALTER TABLE t DROP PRIMARY KEY",
    "strict": "ALTER TABLE t SET STRICT",
    "not strict": "ALTER TABLE firm SET NOT STRICT",
    "without rowid": "ALTER TABLE t SET WITHOUT ROWID",
    "rowid": "ALTER TABLE firm SET ROWID",
    "move column": "ALTER TABLE t MOVE COLUMN spare FIRST",
    "several": "ALTER TABLE t DROP COLUMN spare, ADD COLUMN more INT DEFAULT 1, ALTER amount TYPE REAL",
    "create index": "CREATE UNIQUE INDEX late ON t (code, u) WHERE code IS NOT NULL",
    "drop index": "DROP INDEX by_code",
    "reindex": "REINDEX t",
}
AT_ONCE = ("rename column", "rename table", "drop index")
"""These have no other way than the database's own."""
STEPS = {"reorganize": ("copy", "catch up", "verify")}
COMMANDS = ("cancel", "pause", "set")
BEFORE = {"cancel": Effect.UNDONE, "pause": Effect.PAUSED, "set": Effect.TAKEN_OVER}
"""What they lead to before the job has started, whatever its plan."""
_S = SchemaState
ADJACENT = {
    (_S.NONE, _S.WRITE_ONLY), (_S.WRITE_ONLY, _S.WRITE_REORGANIZATION), (_S.WRITE_REORGANIZATION, _S.PUBLIC), (_S.NONE, _S.PUBLIC),
    (_S.WRITE_ONLY, _S.DELETE_ONLY), (_S.WRITE_REORGANIZATION, _S.DELETE_ONLY), (_S.DELETE_ONLY, _S.NONE),
}  # fmt: skip
"""From which schema state which other one may follow; docs/states.md tells why."""


def _make(path: Path) -> None:
    with closing(application(path)) as connection:
        for text in TABLES:
            connection.execute(text)
        connection.executemany("INSERT INTO parent VALUES (?, ?)", [(n, f"c{n}") for n in range(5)])
        rows = [(n, f"u{n}", str(n), f"c{n % 5}", None if n % 3 else "c1") for n in range(40)]
        connection.executemany("INSERT INTO t (k, u, amount, code, spare) VALUES (?, ?, ?, ?, ?)", rows)
        for table in ("bare", "firm"):
            connection.execute(f"INSERT INTO {table} SELECT k, u FROM t")
        connection.execute("INSERT INTO child SELECT u FROM t")


@cache
def _untouched() -> Any:
    with TemporaryDirectory(dir=fast_folder()) as folder:
        path = Path(folder) / "untouched.db"
        _make(path)
        return holds(path)


@cache
def _stages(kind: str, strategy: str | None) -> tuple[Stage, ...]:
    with TemporaryDirectory(dir=fast_folder()) as folder:
        path = Path(folder) / "plan.db"
        _make(path)
        with on_engine(path, strategy=strategy) as engine:
            return engine.connected.ddl.plan(KINDS[kind], strategy=strategy).plan.stages


@cache
def _changed(kind: str, strategy: str | None) -> Any:
    """Return what the file holds after the same change that nobody interrupts."""
    with TemporaryDirectory(dir=fast_folder()) as folder:
        path = Path(folder) / "twin.db"
        _make(path)
        with on_engine(path, strategy=strategy) as engine:
            assert engine.run(KINDS[kind], batch_size=6).state is JobState.SYNCED
        return holds(path)


WAYS = [(kind, strategy) for kind in KINDS for strategy in ((None,) if kind in AT_ONCE else ("shadow_table", "direct"))]


def _places(kind: str, strategy: str | None, command: str) -> list[tuple[Stage | None, str]]:
    """Return the places of a plan that are tried: before it starts, a stage, a step of one, or the state after the swap."""
    places: list[tuple[Stage | None, str]] = [(None, "queueing")]
    places += [
        (stage, place)
        for stage in _stages(kind, strategy)
        for place in STEPS.get(stage.name, ("done",) if stage.kind is StageKind.LAST else (stage.name,))
    ]
    first = (WAYS.index((kind, strategy)) + COMMANDS.index(command)) % EVERY
    return places[first % len(places) :: EVERY]


def _give(engine: Engine, command: str, job_id: int) -> Verdict:
    ddl = engine.connected.ddl
    if command == "set":
        return ddl.alter(job_id, {"batch_size": 7}).verdict
    (answer,) = {"cancel": ddl.cancel, "pause": ddl.pause, "resume": ddl.resume}[command](job_id)
    return answer.verdict


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize(("kind", "strategy"), WAYS)
def test_a_command_does_what_the_plan_says(kind: str, strategy: str | None, command: str, tmp_path: Path) -> None:
    """Undone without a trace, paused and resumed to the same end, refused because the new shape is there, or taken over."""
    for number, (stage, place) in enumerate(_places(kind, strategy, command)):
        path = tmp_path / f"{number}.db"
        _make(path)
        with on_engine(path, strategy=strategy) as engine:
            job_id = engine.submit(KINDS[kind], batch_size=6)
            engine.until_stage(job_id, place)
            effect = BEFORE[command] if stage is None else effect_of(_stages(kind, strategy), stage, command)
            _see_effect(engine, job_id, effect, command, place=place, changed=_changed(kind, strategy))


def _see_effect(engine: Engine, job_id: int, effect: Effect, command: str, *, place: str, changed: Any) -> None:
    verdict = _give(engine, command, job_id)
    assert verdict is (Verdict.REFUSED if effect is Effect.REFUSED else Verdict.APPLIED), place
    if effect is Effect.PAUSED:
        paused = engine.until(job_id, lambda job: job.state is JobState.PAUSED)
        for _ in range(20):
            engine.turn()
        assert engine.job(job_id).rev == paused.rev, place
        engine.connected.ddl.resume(job_id)
    job = engine.finish(job_id)
    assert engine.left_behind() == [], place
    if effect is Effect.UNDONE:
        assert job.state in (JobState.ROLLBACK_DONE, JobState.CANCELLED), place
        assert holds(engine.path) == _untouched(), place
    else:
        assert job.state is JobState.SYNCED, place
        assert holds(engine.path) == changed, place
        assert job.parameters["batch_size"]["value"] == (7 if command == "set" and verdict is Verdict.APPLIED else 6), place
    with engine.connected.database.transaction(write=False) as tx:
        told = events.history(tx, job_id=job_id)
    asked = {event.request_id for event in told if event.kind == "request" and event.detail["command"] == {"set": "alter"}.get(command, command)}
    ended = [event.target for event in told if event.kind == "outcome" and event.request_id in asked]
    passed = [SchemaState(event.detail["schema_state"]) for event in told if event.kind == "move" and "schema_state" in (event.detail or {})]
    assert {(before, after) for before, after in pairwise(passed) if before is not after} <= ADJACENT, place
    wanted = {Effect.REFUSED: [], Effect.IN_VAIN: ["failed"]}.get(effect, ["applied"])
    assert ended == wanted, place


UNDOING = [kind for n, kind in enumerate(kind for kind, strategy in WAYS if strategy == "shadow_table") if n % EVERY == 0]


@pytest.mark.parametrize("kind", UNDOING)
def test_nothing_but_its_end_is_left_to_a_job_that_is_undone(kind: str, tmp_path: Path) -> None:
    """A second cancel is so already, everything else is refused with the state, and the table ends as it was."""
    path = tmp_path / "undone.db"
    _make(path)
    with on_engine(path) as engine:
        job_id = engine.submit(KINDS[kind], batch_size=6)
        engine.until_stage(job_id, "copy")
        (first,) = engine.connected.ddl.cancel(job_id)
        answers = []
        for state in (SchemaState.WRITE_REORGANIZATION, SchemaState.DELETE_ONLY):  # before anything is undone, and while it is
            engine.until(job_id, lambda job, state=state: (job.state, job.schema_state) == (JobState.ROLLINGBACK, state))
            answers.append({command: _give(engine, command, job_id) for command in (*COMMANDS, "resume")})
        ended = engine.finish(job_id)

        assert first.verdict is Verdict.APPLIED
        assert answers == [{"cancel": Verdict.ALREADY, "pause": Verdict.REFUSED, "set": Verdict.REFUSED, "resume": Verdict.REFUSED}] * 2
        assert (ended.state, engine.left_behind()) == (JobState.ROLLBACK_DONE, [])
        assert holds(path) == _untouched()
        with engine.connected.database.transaction(write=False) as tx:
            told = [event for event in events.history(tx, job_id=job_id) if event.kind in ("request", "outcome")]
        assert [(event.kind, event.request_id) for event in told] == [("request", first.request_id), ("outcome", first.request_id)]
