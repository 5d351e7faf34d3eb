"""A writer as an application has it, on two databases at once: one with a job, one without; it tells where their answers differ.

Each writer is a process of its own and owns the keys, unique values and numbers that leave its number when divided, so
that what each statement gives follows from its own statements alone, whatever the other writers do. TRUNCATE touches
everybody's rows: for it a writer keeps the others out for a moment, by a lock in the database without a job. From the
project's folder, until SIGTERM:

    python -m tests.dialects.postgres.writer URL URL LOG '{"number": 0, "writers": 2, ...}'
"""

from __future__ import annotations

import json
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import psycopg

from tests.dialects.postgres.stepping import application
from tests.servers import end_with_parent

LOCK_TIMEOUT = "10s"
TURN_TRANSACTIONS = 20
HOT = 100
PAUSE_SECONDS = 0.002
"""A writer that never rests may write faster than one applier applies, on a machine that both share."""
TELL_EVERY = 10


class Writer:
    """One process's work."""

    def __init__(self, urls: list[str], log: Path, options: dict[str, Any]) -> None:
        self.number, self.writers, self.keys_max, self.truncates = (options[name] for name in ("number", "writers", "keys_max", "truncates"))
        self.random = Random(options["seed"] * 1000 + self.number)
        self.connections = [application(url) for url in urls]
        for connection in self.connections:
            level = options["levels"][self.number % len(options["levels"])]
            connection.execute(f"SET lock_timeout = '{LOCK_TIMEOUT}'; SET default_transaction_isolation = '{level}'".encode())
        self.turn = application(urls[1])
        self.log = log.open("a", buffering=1)
        self.hot = [self._own(n * self.keys_max // HOT) for n in range(HOT // self.writers)]
        self.given = 0
        self.rows = self.statements = 0
        self.longest = [0.0, 0.0]
        self.longest_truncate = [0.0, 0.0]

    def run(self, ended: threading.Event) -> None:
        """Write until somebody says that it is enough."""
        turns = 0
        while not ended.is_set():
            turns += 1
            alone = self.truncates and turns % 25 == 1 + self.number
            self.turn.execute(f"SELECT pg_advisory_lock{'' if alone else '_shared'}(1)".encode())
            if alone:
                self._both(["BEGIN", "TRUNCATE t", *(self._insert(20, "") for _ in range(10)), self.random.choice(("COMMIT", "ROLLBACK"))])
            for _ in range(TURN_TRANSACTIONS):
                self._both(self._transaction())
                ended.wait(PAUSE_SECONDS)
            self.turn.execute("SELECT pg_advisory_unlock_all()")
            if turns % TELL_EVERY == 0:
                self._tell()
        self._tell()
        self._say(end=True)

    # ── what is written ───────────────────────────────────────────────────────────────────────────────────────────

    def _own(self, key: int) -> int:
        return key - key % self.writers + self.number

    def _key(self) -> int:
        return self.random.choice(self.hot) if self.random.random() < 0.5 else self._own(self.random.randrange(self.keys_max))

    def _keys(self, count: int) -> str:
        return ", ".join(str(self._key()) for _ in range(count))

    def _insert(self, count: int, tail: str) -> str:
        rows = []
        for _ in range(count):
            self.given += 1
            u = self._own(self.random.randrange(self.keys_max * 10))
            rows.append(f"({self._key()}, {u}, 'by {self.number}', {self.random.randrange(1000)}, {self.given * self.writers + self.number + self.keys_max}, {self.random.randrange(10)})")
        return f"INSERT INTO t (id, u, c, d, w, p) VALUES {', '.join(rows)} {tail}"

    def _transaction(self) -> list[str]:
        random = self.random
        one, other, n = self._key(), self._key(), random.randrange(10**6)
        u = self._own(random.randrange(self.keys_max * 10))
        drawn: list[Callable[[], list[str]]] = [
            lambda: [self._insert(40, "ON CONFLICT DO NOTHING")],
            lambda: [self._insert(1, "ON CONFLICT (id) DO UPDATE SET c = excluded.c, d = excluded.d")],
            lambda: [self._insert(1, f"ON CONFLICT (u) DO UPDATE SET c = 'met {n}'")],
            lambda: [self._insert(2, "")],
            lambda: [f"UPDATE t SET c = 'w{n}', d = d + 1 WHERE id IN ({self._keys(60)})"],
            lambda: [f"UPDATE t SET c = NULL, u = {u} WHERE id = {one}"],
            lambda: [f"DELETE FROM t WHERE id IN ({self._keys(10)})"],
            lambda: [f"UPDATE t SET id = {other} WHERE id = {one}"],
            lambda: ["BEGIN", f"UPDATE t SET u = -u WHERE id = {one}", f"UPDATE t SET u = (SELECT -u FROM t WHERE id = {one}) WHERE id = {other} AND u > 0", "COMMIT"],
            lambda: ["BEGIN", f"DELETE FROM t WHERE id IN ({self._keys(20)})", self._insert(20, "ON CONFLICT DO NOTHING"), "ROLLBACK"],
            lambda: ["BEGIN", f"UPDATE t SET d = 0 WHERE id = {one}", "SAVEPOINT s", f"DELETE FROM t WHERE id IN ({self._keys(20)})", "ROLLBACK TO s",
                     f"UPDATE t SET id = {other} WHERE id = {one}", "COMMIT"],
        ]  # fmt: skip
        return random.choice(drawn)()

    # ── both databases ────────────────────────────────────────────────────────────────────────────────────────────

    def _both(self, statements: list[str]) -> None:
        for statement in statements:
            outcomes = [self._outcome(which, statement) for which in range(2)]
            if outcomes[0] != outcomes[1]:
                self._say(statement=statement[:200], with_job=outcomes[0], without=outcomes[1])
            self.statements += 1
            self.rows += max(0, outcomes[0][1])

    def _outcome(self, which: int, statement: str) -> tuple[str, int]:
        """Return what a statement gave: its tag or its error, and how many rows it wrote."""
        connection, begun = self.connections[which], time.monotonic()
        rows = 0
        try:
            cursor = connection.execute(statement.encode(), prepare=False)
            told = f"{cursor.statusmessage}"
            rows = cursor.rowcount if statement.startswith(("INSERT", "UPDATE", "DELETE")) else 0
        except psycopg.Error as error:
            told = f"error {error.sqlstate}"
        longest = self.longest_truncate if statement.startswith("TRUNCATE") else self.longest
        longest[which] = max(longest[which], time.monotonic() - begun)
        return told, rows

    def _tell(self) -> None:
        self._say(rows=self.rows, statements=self.statements, longest=self.longest, longest_truncate=self.longest_truncate)
        self.longest, self.longest_truncate = [0.0, 0.0], [0.0, 0.0]

    def _say(self, **what: Any) -> None:
        self.log.write(json.dumps(what) + "\n")


def main() -> None:
    """Write until SIGTERM."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    end_with_parent()
    Writer(sys.argv[1:3], Path(sys.argv[3]), json.loads(sys.argv[4])).run(ended)


if __name__ == "__main__":
    main()
