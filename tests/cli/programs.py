"""The command line as a program of its own, on real files."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Self

from tests.servers import sqlite_module

PROGRAM = [sys.executable, "-m", "tideshift.frontends.cli"]
RUN_SECONDS = 60
LINE_SECONDS = 40
TO_NUMERIC = "ALTER TABLE goods ALTER COLUMN price TYPE NUMERIC"
TO_INTEGER = "ALTER TABLE strict_goods ALTER COLUMN price TYPE INTEGER"
"""On a STRICT table, where a row can be refused."""


@dataclass(frozen=True)
class Ran:
    """A run that has ended."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict:
        """The one document on stdout."""
        return json.loads(self.out)

    @property
    def error(self) -> dict:
        """The error, which is the last line on stderr."""
        return json.loads(self.err.strip().splitlines()[-1])["error"]


def environment(url: str | os.PathLike[str] | None, variables: dict[str, str] | None) -> dict[str, str]:
    """Return the variables of a run: none of ours but those of the test."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("TIDESHIFT_") or name == "TIDESHIFT_SQLITE"}
    named = {} if url is None else {"TIDESHIFT_URL": str(url)}
    return {**kept, "TERM": "xterm", **named, **(variables or {})}


def run(*arguments: object, url=None, stdin: str | bytes = "", variables: dict[str, str] | None = None, cwd: Path | None = None) -> Ran:
    """Run one command to its end."""
    ended = subprocess.run(
        [*PROGRAM, *map(str, arguments)],
        input=stdin.encode() if isinstance(stdin, str) else stdin,
        capture_output=True,
        env=environment(url, variables),
        timeout=RUN_SECONDS,
        check=False,
        cwd=cwd,
    )
    return Ran(ended.returncode, ended.stdout.decode(), ended.stderr.decode())


class Started:
    """A command that still runs; its stderr is read line by line."""

    def __init__(self, *arguments: object, url=None, variables: dict[str, str] | None = None) -> None:
        self.process = subprocess.Popen(
            [*PROGRAM, *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment(url, variables),
            text=True,
        )
        self.lines: list[str] = []
        self._queue: SimpleQueue[str | None] = SimpleQueue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self._reader.join()
        self.process.stdout.close()
        self.process.stderr.close()

    def _read(self) -> None:
        for line in self.process.stderr:
            self._queue.put(line)
        self._queue.put(None)

    def until(self, text: str) -> str:
        """Wait for a line on stderr that holds the text."""
        while (line := self._next()) is not None:
            if text in line:
                return line
        raise AssertionError(f"ended without {text!r}:\n{''.join(self.lines)}")

    def _next(self) -> str | None:
        try:
            line = self._queue.get(timeout=LINE_SECONDS)
        except Empty:
            raise AssertionError(f"nothing is said any more:\n{''.join(self.lines)}") from None
        if line is not None:
            self.lines.append(line)
        return line

    def signal(self, number: signal.Signals = signal.SIGINT) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def end(self) -> Ran:
        """Wait for the end."""
        out = self.process.stdout.read()
        code = self.process.wait(timeout=RUN_SECONDS)
        while self._next() is not None:
            continue
        return Ran(code, out, "".join(self.lines))


def without_the_library(ran: Ran) -> tuple[int, list[str]]:
    """The exit code and the codes of `doctor --json`, as if the SQLite library of this run had nothing wrong with it."""
    codes = sorted(finding["code"] for finding in ran.document["findings"])
    assert ran.code == bool(codes)
    left = [code for code in codes if code != "sqlite_library"]
    return int(bool(left)), left


def make_shop(path: Path, *, rows: int = 60, bad_row: bool = False) -> Path:
    """Make a small database with a plain and a STRICT table; with a bad row, one price is no number."""
    with closing(sqlite_module().connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("CREATE TABLE goods (id INTEGER PRIMARY KEY, price TEXT, name TEXT)")
        connection.execute("CREATE TABLE strict_goods (id INTEGER PRIMARY KEY, price TEXT) STRICT")
        prices = [(n, str(n)) for n in range(1, rows + 1)]
        connection.executemany("INSERT INTO goods (id, price, name) VALUES (?, ?, 'thing ' || ?)", [(*row, row[0]) for row in prices])
        connection.executemany("INSERT INTO strict_goods (id, price) VALUES (?, ?)", prices)
        if bad_row:
            connection.execute("UPDATE strict_goods SET price = 'dear' WHERE id = ?", (rows // 2,))
        connection.commit()
    return path


def ask(path: Path, sql: str, binds: Iterable[object] = ()) -> list[tuple]:
    """Ask the file directly."""
    with closing(sqlite_module().connect(path)) as connection:
        rows = connection.execute(sql, tuple(binds)).fetchall()
        connection.commit()
    return rows
