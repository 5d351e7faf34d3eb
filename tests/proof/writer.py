"""A writer as an application has it: a process of its own, plain SQL, every conflict clause, and its own append-only log.

Each writer owns the keys that leave its number when divided, and the unique values that begin with it, so that what its log
says last about a key is what must be in the table. It writes until SIGTERM. From the project's folder:

    python -m tests.proof.writer FILE LOG '{"number": 0, "writers": 4, ...}'
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

from tests.servers import end_with_parent, sqlite_module

LOCK_WAIT_SECONDS = 10.0
PAUSE_SECONDS = 0.004
POLICIES = ("", "OR IGNORE", "OR REPLACE", "OR FAIL", "OR ABORT", "OR ROLLBACK")
COLUMNS = "k, u, n, typeof(amount), amount, note"


class Writer:
    """One process's work."""

    def __init__(self, path: str, log: Path, options: dict[str, Any]) -> None:
        self.number, self.writers, self.keys_max = options["number"], options["writers"], options["keys_max"]
        self.refused_from = log.with_name("refuse")
        self.random = Random(options["seed"] * 1000 + self.number)
        self.sqlite = sqlite_module()
        self.connection = self.sqlite.connect(path, isolation_level=None, timeout=LOCK_WAIT_SECONDS)
        self.log = log.open("a", buffering=1)
        self.hot = [self._own(n * 37) for n in range(40)]

    def run(self, ended: threading.Event) -> None:
        """Write until somebody says that it is enough."""
        while not ended.wait(PAUSE_SECONDS):
            if self.random.random() < 0.05:
                for pragma in ("foreign_keys", "recursive_triggers"):
                    self.connection.execute(f"PRAGMA {pragma} = {self.random.choice(('ON', 'OFF'))}")
            if self.random.random() < 0.2:
                self._transaction()
            else:
                self._statement(*self._draw())
        self.log.write(json.dumps({"end": True}) + "\n")

    # ── what is written ───────────────────────────────────────────────────────────────────────────────────────────

    def _own(self, key: int) -> int:
        return key - key % self.writers + self.number

    def _key(self) -> int:
        if self.random.random() < 0.5:
            return self.random.choice(self.hot)
        return self._own(self.random.randint(self.writers, self.keys_max))

    def _amount(self) -> object:
        if self.random.random() < 0.2 and self.refused_from.exists():
            return "not json"
        return self.random.choice(("1", "22", "[3]", "4.5", "5"))

    def _draw(self) -> tuple[str, tuple[Any, ...], set[int]]:
        """Draw a statement with its values and the keys that it names."""
        one, other = self._key(), self._key()
        policy = self.random.choice(POLICIES)
        u = self.random.choice((f"{self.number}:{one}", f"{self.number}:{other}"))
        row = (one, u, f"{self.number}:n{one}", self._amount(), f"by {self.number}")
        insert = "INTO t (k, u, n, amount, note) VALUES (?, ?, ?, ?, ?)"
        return self.random.choice(
            (
                (f"INSERT {policy} {insert}", row, {one, other}),
                (f"REPLACE {insert}", row, {one, other}),
                (f"INSERT {insert} ON CONFLICT (k) DO UPDATE SET amount = excluded.amount, u = excluded.u", row, {one, other}),
                (f"INSERT {insert} ON CONFLICT (u) DO NOTHING", row, {one, other}),
                (f"UPDATE {policy} t SET amount = ?, note = note || '+' WHERE k = ?", (self._amount(), one), {one}),
                (f"UPDATE {policy} t SET k = ?, u = ? WHERE k = ?", (other, u, one), {one, other}),
                (f"UPDATE {policy} t SET u = ? WHERE k IN (?, ?)", (u, one, other), {one, other}),
                ("DELETE FROM t WHERE k = ?", (one,), {one}),
            )
        )  # fmt: skip

    def _transaction(self) -> None:
        """Do a few statements at once, some of them taken back; the log tells only what was committed."""
        self.connection.execute("BEGIN IMMEDIATE")
        touched: set[int] = set()
        for _ in range(self.random.randint(1, 4)):
            if not self.connection.in_transaction:
                self.connection.execute("BEGIN IMMEDIATE")
            sql, binds, keys = self._draw()
            touched |= keys | self._holders(keys, binds)
            if self.random.random() < 0.3:
                self.connection.execute("SAVEPOINT one")
                self._try(sql, binds)
                if self.connection.in_transaction:
                    self.connection.execute("ROLLBACK TO one")
                    self.connection.execute("RELEASE one")
            else:
                self._try(sql, binds)
        if self.connection.in_transaction:
            self.connection.execute(self.random.choice(("COMMIT", "COMMIT", "ROLLBACK")))
        self._tell(touched)

    def _statement(self, sql: str, binds: tuple[Any, ...], keys: set[int]) -> None:
        touched = keys | self._holders(keys, binds)
        self._try(sql, binds)
        self._tell(touched)

    def _holders(self, keys: set[int], binds: tuple[Any, ...]) -> set[int]:
        """Return the keys of rows that hold a unique value which is about to be written: they may be replaced."""
        values = tuple(value for value in binds if isinstance(value, str) and ":" in value)
        marks = ", ".join("?" * len(values))
        return {k for (k,) in self.connection.execute(f"SELECT k FROM t WHERE u IN ({marks}) OR n IN ({marks})", values * 2)}

    def _try(self, sql: str, binds: tuple[Any, ...]) -> None:
        begun = time.monotonic()
        try:
            self.connection.execute(sql, binds)
        except self.sqlite.IntegrityError as error:
            kind = "constraint" if str(error).startswith("UNIQUE constraint failed: t.") else "odd"
            self._note(kind, sql, error, begun)
        except self.sqlite.Error as error:
            self._note("lock" if "locked" in str(error) else "odd", sql, error, begun)

    def _note(self, kind: str, sql: str, error: Exception, begun: float) -> None:
        self.log.write(json.dumps({"error": kind, "sql": sql, "text": str(error), "seconds": time.monotonic() - begun}) + "\n")

    def _tell(self, keys: set[int]) -> None:
        """Write down what is in the table for these keys now: nobody else writes them."""
        marks = ", ".join("?" * len(keys))
        rows = self.connection.execute(f"SELECT {COLUMNS} FROM t WHERE k IN ({marks})", tuple(keys)).fetchall()
        found = {row[0]: row for row in rows}
        self.log.write(json.dumps({"rows": {key: found.get(key) for key in sorted(keys)}}) + "\n")


def read_log(log: Path) -> Iterator[dict[str, Any]]:
    """Read what a writer wrote down."""
    for line in log.read_text().splitlines():
        yield json.loads(line)


def main() -> None:
    """Write until SIGTERM."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    end_with_parent()
    Writer(sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])).run(ended)


if __name__ == "__main__":
    main()
