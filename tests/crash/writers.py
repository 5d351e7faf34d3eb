"""Writer processes that keep their own log: each owns the keys that are its number modulo the number of writers.

    python -m tests.crash.writers PATH NUMBER OF SEED LOG

A writer writes until it is told to stop, then leaves its rows as it believes them to be as JSON. A statement that is
refused or waits too long ends it with an error: because of a job, no statement of an application may fail.
"""

from __future__ import annotations

import argparse
import json
import signal
import threading
from pathlib import Path
from random import Random
from typing import Any

from tests.crash.application import MODULE
from tests.servers import end_with_parent

KEYS = 4_000
PAUSE_SECONDS = 0.002
TABLE = "CREATE TABLE readings (id INTEGER PRIMARY KEY, value TEXT, tag TEXT UNIQUE)"
INDEX = "CREATE INDEX readings_value ON readings (value)"


def create(path: Path, rows: int) -> None:
    """Make the table with rows that no writer owns: negative keys."""
    connection = MODULE.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = wal")
    connection.execute(TABLE)
    connection.execute(INDEX)
    connection.execute("BEGIN")
    connection.executemany("INSERT INTO readings VALUES (?, ?, ?)", ((-n, str(n), f"f{n}") for n in range(1, rows + 1)))
    connection.execute("COMMIT")
    connection.close()


class LoggedWriter:
    """One writer with its belief."""

    def __init__(self, path: Path, number: int, of: int, seed: int) -> None:
        self.random = Random(f"{seed}/{number}")
        self.number, self.of = number, of
        self.believed: dict[int, list[Any]] = {}
        self.statements = 0
        self.connection = MODULE.connect(path, isolation_level=None, timeout=30)

    def write(self) -> None:
        """Do one statement and remember what it did."""
        key = self.random.randrange(KEYS // self.of) * self.of + self.number
        value, tag = str(self.random.randint(-99, 99_999)), f"t{key}"
        match self.random.randrange(5):
            case 0 | 1:
                self.connection.execute("INSERT OR REPLACE INTO readings VALUES (?, ?, ?)", (key, value, tag))
                self.believed[key] = [value, tag]
            case 2:
                changed = self.connection.execute("UPDATE readings SET value = ? WHERE id = ?", (value, key)).rowcount
                assert changed == (key in self.believed), f"an update of {key} changed {changed} rows"
                if changed:
                    self.believed[key][0] = value
            case 3:
                gone = self.connection.execute("DELETE FROM readings WHERE id = ?", (key,)).rowcount
                assert gone == (self.believed.pop(key, None) is not None), f"a delete of {key} found {gone} rows"
            case _:
                self._move(key)
        self.statements += 1

    def _move(self, key: int) -> None:
        """Give a row another key, replacing what is there."""
        target = self.random.randrange(KEYS // self.of) * self.of + self.number
        if key not in self.believed or target == key:
            return
        self.connection.execute("UPDATE OR REPLACE readings SET id = ?, tag = ? WHERE id = ?", (target, f"t{target}", key))
        self.believed[target] = [self.believed.pop(key)[0], f"t{target}"]


def main() -> None:
    """Write until SIGTERM, then leave the log."""
    parser = argparse.ArgumentParser()
    for name in ("path", "number", "of", "seed", "log"):
        parser.add_argument(name, type=Path if name in ("path", "log") else int)
    options = parser.parse_args()
    end_with_parent()
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    writer = LoggedWriter(options.path, options.number, options.of, options.seed)
    while not ended.wait(PAUSE_SECONDS):
        writer.write()
    options.log.write_text(json.dumps({"statements": writer.statements, "rows": writer.believed}))


if __name__ == "__main__":
    main()
