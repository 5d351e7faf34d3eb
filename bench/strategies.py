"""The part `strategies` of bench/sqlite.py: every way of ours beside what others do, all on the same table under the same writer."""

from __future__ import annotations

import json
import threading
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import workload
from processes import finish, start, writer

from tideshift.connect import Connected, connect

OTHERS = {"twelve": "twelve-step rebuild", "transform": "sqlite-utils transform", "alembic": "Alembic batch mode"}
STALL_SHARE = 20


@dataclass(frozen=True)
class Way:
    """One change in one way; `limited` where its longest stall is held against that of the others."""

    label: str
    statement: str
    strategy: str
    limited: bool


WAYS = (
    Way("instant, ADD COLUMN", "ALTER TABLE items ADD COLUMN extra INTEGER DEFAULT 7", "instant", limited=True),
    Way("shadow_table, TYPE of an indexed column", workload.CHANGE, "shadow_table", limited=True),
    Way("shadow_table, ADD COLUMN FIRST", "ALTER TABLE items ADD COLUMN extra INTEGER DEFAULT 7 FIRST", "shadow_table", limited=True),
    Way("shadow_table, CREATE INDEX", "CREATE INDEX items_both ON items (account, amount)", "shadow_table", limited=True),
    Way("direct, CREATE INDEX (SQLite's own)", "CREATE INDEX items_both ON items (account, amount)", "direct", limited=False),
    Way("--fast, TYPE of an indexed column", workload.CHANGE, "direct", limited=False),
)


@dataclass(frozen=True)
class Felt:
    """What a writer felt, and how long the change took: until the new shape was in place, and until everything was over."""

    stall_seconds: float
    changed_seconds: float
    seconds: float


def measure(bench: Any) -> None:
    """(c), (g) Each strategy beside the twelve-step rebuild, sqlite-utils and Alembic: the writer's longest statement, and the time it takes."""
    theirs = {tool: _others(bench, tool) for tool in OTHERS}
    for tool, felt in theirs.items():
        bench.note(f"{OTHERS[tool]}: the writer's longest", felt.stall_seconds * 1000, "ms")
        bench.note(f"{OTHERS[tool]}: until it was done", felt.seconds, "s")
    least = min(felt.stall_seconds for felt in theirs.values())
    ours: dict[str, Any] = {}
    for way in WAYS:
        felt = _ours(bench, way)
        ours[way.label] = asdict(felt)
        bench.note(f"{way.label}: the writer's longest", felt.stall_seconds * 1000, "ms", least * 1000 / STALL_SHARE if way.limited else None)
        bench.note(f"{way.label}: until the new shape is in place", felt.changed_seconds, "s")
        bench.note(f"{way.label}: whole job", felt.seconds, "s")
        if way.label.startswith("--fast"):
            ratio = felt.changed_seconds / theirs["twelve"].seconds
            bench.note("--fast: until the new shape is in place, against the twelve-step rebuild", ratio, "x")
            bench.note("--fast: whole job, against the twelve-step rebuild", felt.seconds / theirs["twelve"].seconds, "x")
    bench.details["strategies"] = {"others": {tool: asdict(felt) for tool, felt in theirs.items()}, "ours": ours}


def _others(bench: Any, tool: str) -> Felt:
    with bench.database(bench.options.rows) as path:
        result = path.with_suffix(f".{tool}")
        with writer(path, bench.options.synchronous) as times:
            threading.Event().wait(1.0)
            finish(start(tool, path, result, bench.options.synchronous), ask=False)
            threading.Event().wait(0.5)
        seconds = json.loads(result.read_text())["seconds"]
        return Felt(_longest(times), seconds, seconds)


def _ours(bench: Any, way: Way) -> Felt:
    with bench.database(bench.options.rows) as path, connect(f"sqlite:///{path}") as connected:
        connected.bootstrap()
        with writer(path, bench.options.synchronous) as times:
            threading.Event().wait(1.0)
            parameters = {} if way.strategy == "shadow_table" else {"lock_share": 100}
            bench.carried_out(connected, f"sqlite:///{path}", path.with_suffix(".worker"), parameters, statement=way.statement, strategy=way.strategy)
            changed, seconds = _seconds(connected)
        return Felt(_longest(times), changed, seconds)


def _longest(times: Path) -> float:
    return max(committed - begun for _, begun, committed in workload.read_times(times))


def _seconds(connected: Connected) -> tuple[float, float]:
    """Return how long it took from the job's start to the end of the change itself, and until the replaced table was dropped.

    By the database's own records: the others are timed inside their processes too, without what it takes to start one.
    """
    from tideshift.ddl.tasks import newest_purge
    from tideshift.store import events

    story = connected.database.run(lambda tx: events.history(tx, job_id=1), write=False)
    moves = [(event.at, (event.detail or {}).get("event")) for event in story if event.kind == "move"]
    begun, changed = (next(at for at, event in moves if event == name) for name in ("start", "finish"))
    _, purge = connected.database.run(lambda tx: newest_purge(tx, 1), write=False)
    over = max(at for at, _ in moves) if purge is None or purge.end_time is None else purge.end_time
    return (changed - begun) / 1000, (over - begun) / 1000
