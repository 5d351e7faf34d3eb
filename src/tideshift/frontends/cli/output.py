"""What is printed, and where: data on stdout, messages, errors and the live line on stderr."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Sequence
from typing import IO, Any

__all__ = [
    "DECLINED", "VERSION", "Screen", "count_text", "duration_text", "first_failure", "is_terminal", "print_error", "print_json", "print_table",
    "printable", "holder_text",
]  # fmt: skip

VERSION = 1
"""The version of every JSON document; a new field does not change it, a changed meaning does."""

DECLINED = 3
"""The exit code when a question was answered with no, and nothing was done."""
FAILURE_ORDER = (7, 4, 8, 6, 1, 3)
"""With several ids the exit code is that of the first of these which occurred."""
COLOURS = {"synced": "green", "running": "cyan", "paused": "yellow", "cancelled": "red", "rollback done": "red", "alive": "green", "dead": "red"}


class Screen:
    """The person's side of a command: messages, and one line that is rewritten in place where there is a terminal."""

    def __init__(self, stream: IO[str] | None = None, *, live: bool | None = None) -> None:
        self.stream = stream or sys.stderr
        self.is_live = is_terminal(self.stream) if live is None else live
        self._line = ""
        self._lock = threading.RLock()  # the log of other threads is written here too

    @property
    def width(self) -> int:
        """How many characters fit on the live line: of the terminal that it is written to, which need not be that of stdout."""
        try:
            columns = os.get_terminal_size(self.stream.fileno()).columns
        except (OSError, ValueError):  # no terminal, or one that is no file
            columns = 0
        if columns <= 0:
            import shutil

            columns = shutil.get_terminal_size().columns
        return columns - 1

    def message(self, text: str) -> None:
        """Write one message above the live line."""
        with self._lock:
            self._erase()
            self._write(printable(text, keep="\n") + "\n" + self._line)

    def warn(self, text: str) -> None:
        """Write one warning."""
        self.message(f"warning: {text}")

    def show(self, text: str) -> None:
        """Rewrite the live line."""
        assert self.is_live
        with self._lock:
            self._erase()
            self._line = _cut(printable(text), self.width)
            self._write(self._line)

    def clear(self) -> None:
        """Take the live line away."""
        with self._lock:
            self._erase()
            self._line = ""

    def _erase(self) -> None:
        if self._line:
            self._write("\r\x1b[K")

    def _write(self, text: str) -> None:
        try:
            self.stream.write(text)
            self.stream.flush()
        except BrokenPipeError:
            self.stream = open(os.devnull, "w")  # noqa: SIM115, PTH123 - nobody reads messages any more; the work goes on
            self.is_live = False


def is_terminal(stream: IO[Any]) -> bool:
    """Whether a person sees this stream on a screen that can rewrite a line."""
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: max(0, width - 1)] + "…"


def printable(text: str, *, keep: str = "") -> str:
    """Escape what would steer a terminal: names and values are other people's."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else c.encode("unicode_escape", "backslashreplace").decode() for c in text)


# ── data and errors ───────────────────────────────────────────────────────────────────────────────────────────────


def print_json(document: dict[str, Any], *, indented: bool = True) -> None:
    """Print one versioned document; a line of its own for JSON Lines."""
    print(_json_text(document, indent=2 if indented else None), flush=True)


def _json_text(document: dict[str, Any], *, indent: int | None = None) -> str:
    import json  # only here, so that help need not wait for it

    return json.dumps({"version": VERSION, **document}, indent=indent, default=str)


def print_error(record: dict[str, Any], *, json_wanted: bool) -> None:
    """Print an error once, on stderr."""
    if json_wanted:
        error = {name: record.get(name) for name in ("code", "message", "hint", "fields")}
        print(_json_text({"error": error}), file=sys.stderr, flush=True)
        return
    reasons = (record.get("fields") or {}).get("reasons")
    lines = [f"error: {record['message']}"]
    if reasons and len(reasons) > 1:
        lines = ["error: refused, for these reasons:", *(f"  - {reason}" for reason in reasons)]
    if record.get("hint"):
        lines.append(f"hint: {record['hint']}")
    print(printable("\n".join(lines), keep="\n"), file=sys.stderr, flush=True)


def first_failure(codes: Sequence[int]) -> int:
    """Return the exit code for several ids: 0, or the first failure in the documented order."""
    failures = [code for code in codes if code != 0]
    return min(failures, key=lambda code: FAILURE_ORDER.index(code) if code in FAILURE_ORDER else len(FAILURE_ORDER), default=0)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, stream: IO[str] | None = None) -> None:
    """Print rows under their headings: by rich on a terminal, else as plain aligned text."""
    target = stream or sys.stdout
    cells = [[printable(cell) for cell in row] for row in rows]
    if is_terminal(target):
        _print_rich(columns, cells, target)
        return
    widths = [max(len(row[n]) for row in ([*columns], *cells)) for n in range(len(columns))]
    for row in ([column.upper() for column in columns], *cells):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip(), file=target)


def _print_rich(columns: Sequence[str], cells: Sequence[Sequence[str]], target: IO[str]) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, header_style="bold", pad_edge=False)
    for column in columns:
        table.add_column(column.upper(), overflow="fold")
    for row in cells:
        table.add_row(*(Text(cell, style=COLOURS.get(cell, "")) for cell in row))
    Console(file=target, highlight=False).print(table)


# ── numbers for people ────────────────────────────────────────────────────────────────────────────────────────────


def count_text(number: float | None) -> str:
    """Write a count with separators, or a dash."""
    return "-" if number is None else f"{round(number):,}"


def size_text(size_bytes: float) -> str:
    """Write a size in the unit that suits it."""
    units = ["TiB", "GiB", "MiB", "KiB", "B"]
    while size_bytes >= 1024 and len(units) > 1:
        size_bytes /= 1024
        units.pop()
    unit = units[-1]
    return f"{size_bytes:,.0f} {unit}" if size_bytes >= 10 or unit == "B" else f"{size_bytes:.1f} {unit}"


def holder_text(holder: dict[str, Any]) -> str:
    """Write a process with the name of its program, where that is known."""
    return f"process {holder['process']}" + (f" ({holder['program']})" if holder["program"] else "")


def duration_text(seconds: float | None) -> str:
    """Write a duration in its two greatest units, or a dash."""
    if seconds is None:
        return "-"
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    days, hours, minutes = whole // 86_400, whole % 86_400 // 3600, whole % 3600 // 60
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {whole % 60} s" if minutes else f"{whole} s"
