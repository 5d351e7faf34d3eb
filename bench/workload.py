"""The table, the writer, the bare loop and the twelve-step rebuild that bench/sqlite.py measures with; each runs in a process of its own.

    python bench/workload.py write  PATH RESULT INTERVAL_SECONDS SYNCHRONOUS
    python bench/workload.py bare   PATH RESULT ROWS_PER_CHUNK PAUSE_SECONDS SYNCHRONOUS
    python bench/workload.py twelve|transform|alembic PATH RESULT SYNCHRONOUS
    python bench/workload.py work   URL  RESULT

The writer is an open loop: the n-th transaction is due at start + n x interval whether or not the one before it was late.
It writes one line per transaction: when it was due, when it began, when it was committed. Those that end by SIGTERM write
their result then.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from array import array
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

from tideshift.dialects.sqlite.library import sqlite_library

CHANGE = "ALTER TABLE items ALTER COLUMN amount TYPE INTEGER USING CAST(amount AS INTEGER)"
TABLE = """
CREATE TABLE items (
    id      INTEGER PRIMARY KEY,
    account INTEGER NOT NULL,
    amount  TEXT NOT NULL,
    note    TEXT NOT NULL
)
"""
INDEXES = ("CREATE INDEX items_account ON items (account)", "CREATE INDEX items_amount ON items (amount)")
NOTE = "a note of sixty characters, as a row of an application has it"


def open_database(path: Path, synchronous: str) -> Any:
    """Open it as an application does."""
    connection = sqlite_library()[0].connect(str(path), timeout=60.0, isolation_level=None)
    connection.execute(f"PRAGMA synchronous = {synchronous}")
    return connection


def build(path: Path, rows: int, *, journal_mode: str) -> None:
    """Make the table with its two indexes."""
    with closing(open_database(path, "OFF")) as connection:
        connection.execute(f"PRAGMA journal_mode = {journal_mode}").fetchall()
        connection.execute("PRAGMA cache_size = -262144")
        connection.execute(TABLE)
        connection.execute(
            "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?)"
            " INSERT INTO items SELECT i, (i * 2654435761) % 50000, CAST((i * 40503) % 1000000 AS TEXT), ? FROM n",
            (rows, NOTE),
        )
        for text in INDEXES:
            connection.execute(text)
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()


# ── the writer ────────────────────────────────────────────────────────────────────────────────────────────────────


def write(path: str, result: str, interval_seconds: str, synchronous: str) -> None:
    """Write until SIGTERM."""
    stop = _stop_event()
    interval = float(interval_seconds)
    times = array("d")
    with closing(open_database(Path(path), synchronous)) as connection:
        step = _mix(connection, Random(1))
        Path(result + ".ready").touch()
        start, number = time.monotonic(), 0
        while not stop.is_set():
            number += 1
            due = start + number * interval
            if due > time.monotonic():
                stop.wait(due - time.monotonic())
            begun = time.monotonic()
            connection.execute("BEGIN IMMEDIATE")
            step(number)
            connection.execute("COMMIT")
            times.extend((due, begun, time.monotonic()))
    with Path(result).open("wb") as file:
        times.tofile(file)


def _mix(connection: Any, random: Random) -> Callable[[int], None]:
    """Return one transaction of the mix: mostly updates of old rows and new rows, some deletes."""
    (last,) = connection.execute("SELECT max(id) FROM items").fetchone()

    def step(number: int) -> None:
        nonlocal last
        kind = number % 10
        if kind < 5:
            connection.execute("UPDATE items SET amount = ? WHERE id = ?", (str(random.randrange(1_000_000)), random.randint(1, last)))
        elif kind < 9:
            last += 1
            connection.execute("INSERT INTO items (id, account, amount, note) VALUES (?, ?, ?, ?)", (last, number % 50_000, str(number), NOTE))
        else:
            connection.execute("DELETE FROM items WHERE id = ?", (random.randint(1, last),))

    return step


def read_times(result: Path) -> list[tuple[float, float, float]]:
    """Read what a writer wrote: (due, begun, committed) of each transaction."""
    times = array("d")
    times.frombytes(result.read_bytes())
    return list(zip(times[0::3], times[1::3], times[2::3], strict=True))


# ── what it is compared with ──────────────────────────────────────────────────────────────────────────────────────


def bare(path: str, result: str, rows_per_chunk: str, pause_seconds: str, synchronous: str) -> None:
    """Copy the table in the same chunks, with the same triggers and pauses, and nothing else: no checkpoint, no checks."""
    size, pause, pacing = int(rows_per_chunk), float(pause_seconds), threading.Event()
    with closing(open_database(Path(path), synchronous)) as connection:
        connection.execute(f"PRAGMA cache_size = -{_cache_kib()}")
        _bare_install(connection)
        (last,) = connection.execute("SELECT max(id) FROM items").fetchone()
        done, copied, begun = 0, 0, time.monotonic()
        while done < last:
            connection.execute("BEGIN IMMEDIATE")
            (upper,) = connection.execute(
                "SELECT max(id) FROM (SELECT id FROM items WHERE id > ? AND id <= ? ORDER BY id LIMIT ?)", (done, last, size)
            ).fetchone()
            if upper is None:
                connection.execute("COMMIT")
                break
            copied += connection.execute(
                "INSERT INTO copy SELECT id, account, CAST(amount AS INTEGER), note FROM items WHERE id > ? AND id <= ?", (done, upper)
            ).rowcount
            connection.execute("COMMIT")
            done = upper
            if pause:
                pacing.wait(pause)
    Path(result).write_text(json.dumps({"rows": copied, "seconds": time.monotonic() - begun}))


def _bare_install(connection: Any) -> None:
    connection.execute("BEGIN IMMEDIATE")
    connection.execute(TABLE.replace("items", "copy").replace("amount  TEXT", "amount INTEGER"))
    # The other index is not touched by the change: as we keep it, so does the bare loop.
    connection.execute(INDEXES[1].replace("items", "copy"))
    connection.execute("CREATE TABLE changed (seq INTEGER PRIMARY KEY, id)")
    connection.execute("CREATE TRIGGER log_insert AFTER INSERT ON items BEGIN INSERT INTO changed (id) VALUES (new.id); END")
    connection.execute("CREATE TRIGGER log_delete AFTER DELETE ON items BEGIN INSERT INTO changed (id) VALUES (old.id); END")
    connection.execute(
        "CREATE TRIGGER log_update AFTER UPDATE ON items BEGIN INSERT INTO changed (id) VALUES (old.id);"
        " INSERT INTO changed (id) SELECT new.id WHERE new.id IS NOT old.id; END"
    )
    connection.execute("COMMIT")


def _cache_kib() -> int:
    """Import what it needs only when it is asked for: a script of the twelve steps does not load our libraries."""
    from tideshift.dialects.sqlite.driver import CACHE_KIB

    return CACHE_KIB


def twelve(path: str, result: str, synchronous: str) -> None:
    """Rebuild the table by the twelve steps of SQLite's manual, in one transaction."""
    with closing(open_database(Path(path), synchronous)) as connection:
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("BEGIN IMMEDIATE")
        begun = time.monotonic()
        connection.execute(TABLE.replace("items", "items_new").replace("amount  TEXT", "amount INTEGER"))
        connection.execute("INSERT INTO items_new SELECT id, account, CAST(amount AS INTEGER), note FROM items")
        connection.execute("DROP TABLE items")
        connection.execute("ALTER TABLE items_new RENAME TO items")
        for text in INDEXES:
            connection.execute(text)
        connection.execute("PRAGMA foreign_key_check").fetchall()
        connection.execute("COMMIT")
        seconds = time.monotonic() - begun
    Path(result).write_text(json.dumps({"seconds": seconds}))


def transform(path: str, result: str, synchronous: str) -> None:
    """Change the type as sqlite-utils does, whose types are Python's."""
    import sqlite_utils as tool

    with closing(open_database(Path(path), synchronous)) as connection:
        begun = time.monotonic()
        tool.Database(connection)["items"].transform(types={"amount": int})
        seconds = time.monotonic() - begun
    Path(result).write_text(json.dumps({"seconds": seconds}))


def alembic(path: str, result: str, synchronous: str) -> None:
    """Change the type by Alembic's batch mode, in one transaction that takes the lock at once."""
    from alembic.migration import MigrationContext
    from alembic.operations import Operations
    from sqlalchemy import Integer, create_engine
    from sqlalchemy.pool import StaticPool

    connection = open_database(Path(path), synchronous)
    engine = create_engine("sqlite://", creator=lambda: connection, module=sqlite_library()[0], poolclass=StaticPool)
    with engine.connect() as opened:
        begun = time.monotonic()
        opened.exec_driver_sql("BEGIN IMMEDIATE")
        with Operations(MigrationContext.configure(opened)).batch_alter_table("items") as batch:
            batch.alter_column("amount", type_=Integer())
        opened.exec_driver_sql("COMMIT")
        seconds = time.monotonic() - begun
    engine.dispose()
    Path(result).write_text(json.dumps({"seconds": seconds}))


# ── ours ──────────────────────────────────────────────────────────────────────────────────────────────────────────


def work(url: str, result: str) -> None:
    """Run a node until SIGTERM, then write its peak memory and its processor seconds."""
    from tideshift.connect import connect

    stop = _stop_event()
    with connect(url) as connected, connected.service():
        while not stop.wait(0.2):
            continue
    times = os.times()
    Path(result).write_text(json.dumps({"peak_mib": peak_mib(), "cpu_seconds": times.user + times.system}))


def peak_mib() -> float:
    """Return the most memory that this process ever had, as the kernel counts it (VmHWM)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise SystemExit("bench/workload.py: the kernel does not tell VmHWM")


def _stop_event() -> threading.Event:
    event = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: event.set())
    return event


if __name__ == "__main__":
    {"write": write, "bare": bare, "twelve": twelve, "transform": transform, "alembic": alembic, "work": work}[sys.argv[1]](*sys.argv[2:])
