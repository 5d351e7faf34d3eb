"""What the person who watches sees: a living panel on a terminal, plain lines anywhere else."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Protocol, Self, TextIO

from tideshift.frontends.demo.activity import Activity

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

__all__ = ["Figures", "PlainScreen", "RichScreen", "Screen", "Watched", "milliseconds", "open_screen"]

BARS = " ▁▂▃▄▅▆▇█"
SAMPLES = 40
PLAIN_LINE_SECONDS = 2.0


@dataclass(frozen=True, kw_only=True)
class Figures:
    """A job at one moment, as it is shown."""

    phase: str
    percent: float
    rows: int
    rows_total: int
    rows_per_second: float
    state: str


@dataclass(frozen=True)
class Watched:
    """Whose statements are shown beside the job."""

    writers: Activity
    reader: Activity


class Screen(Protocol):
    """Where the story is told."""

    def __enter__(self) -> Self: ...

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None: ...

    def chapter(self, title: str, text: str) -> None:
        """Begin a part of the story."""
        ...

    def say(self, text: str) -> None:
        """Tell one thing that happened."""
        ...

    def show(self, watched: Watched, figures: Figures | None) -> None:
        """Show how things stand now; called many times a second."""
        ...

    def clear(self) -> None:
        """Take away what `show` showed."""
        ...

    def table(self, title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Print a table that stays."""
        ...


def open_screen(stream: TextIO | None) -> Screen:
    """Choose the screen for a stream (None: standard output)."""
    from rich.console import Console

    console = Console(file=stream or sys.stdout, highlight=False)
    return RichScreen(console) if console.is_terminal and not console.is_dumb_terminal else PlainScreen(console)


def milliseconds(seconds: float) -> str:
    """Write a duration the way stalls are compared."""
    return f"{seconds:.2f} s" if seconds >= 1 else f"{seconds * 1000:.0f} ms"


class PlainScreen:
    """Lines, now and then one with the figures."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._shown_at = 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        return

    def chapter(self, title: str, text: str) -> None:
        self._line(f"\n== {title} ==\n{text}")

    def say(self, text: str) -> None:
        self._line(f"  * {text}")

    def show(self, watched: Watched, figures: Figures | None) -> None:
        if time.monotonic() - self._shown_at < PLAIN_LINE_SECONDS:
            return
        self._shown_at = time.monotonic()
        job = ""
        if figures is not None:
            job = f"{figures.percent:5.1f} % {figures.phase:<22} {figures.rows:>9,} rows {figures.rows_per_second:>8,.0f} rows/s | "
        writers = watched.writers
        self._line(f"    {job}writers {writers.per_second:.0f} statements/s, longest {milliseconds(writers.longest_seconds)}")

    def clear(self) -> None:
        return

    def table(self, title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        lines = [head, *rows]
        widths = [max(len(line[column]) for line in lines) for column in range(len(head))]
        self._line(f"\n{title}")
        for line in lines:
            self._line("  " + "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip())

    def _line(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)


class RichScreen:
    """A panel that lives at the bottom while the story scrolls above it."""

    def __init__(self, console: Console) -> None:
        from rich.live import Live

        self._console = console
        self._live = Live(console=console, auto_refresh=False, transient=True)
        self._job_speeds: deque[float] = deque(maxlen=SAMPLES)
        self._writer_speeds: deque[float] = deque(maxlen=SAMPLES)
        self._sampled_at = 0.0

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._live.stop()

    def chapter(self, title: str, text: str) -> None:
        from rich.padding import Padding
        from rich.rule import Rule

        self._console.print(Rule(f"[bold]{title}", style="cyan", align="left"))
        self._console.print(Padding(text, (0, 2)), style="dim")

    def say(self, text: str) -> None:
        from rich.padding import Padding
        from rich.text import Text

        self._console.print(Padding(Text.assemble(("▸ ", "cyan"), text), (0, 2)))

    def show(self, watched: Watched, figures: Figures | None) -> None:
        from rich.console import Group
        from rich.panel import Panel

        if time.monotonic() - self._sampled_at >= 0.5:
            self._sampled_at = time.monotonic()
            self._job_speeds.append(0.0 if figures is None else figures.rows_per_second)
            self._writer_speeds.append(watched.writers.per_second)
        parts: list[RenderableType] = []
        if figures is not None:
            parts.append(_progress(figures))
        parts.append(self._lines(watched, figures))
        self._live.update(Panel(Group(*parts), border_style="cyan", padding=(0, 1)), refresh=True)

    def _lines(self, watched: Watched, figures: Figures | None) -> RenderableType:
        from rich.table import Table

        grid = Table.grid(padding=(0, 2))
        for justify in ("left", "right", "left", "left"):
            grid.add_column(justify=justify, no_wrap=True)
        if figures is not None:
            grid.add_row("job", f"{figures.rows_per_second:,.0f} rows/s", _curve(self._job_speeds), figures.phase)
        for name, activity, speeds in (("writers", watched.writers, self._writer_speeds), ("reader", watched.reader, None)):
            longest = f"longest [bold]{milliseconds(activity.longest_seconds)}[/]"
            curve = "" if speeds is None else _curve(speeds)
            grid.add_row(name, f"{activity.per_second:,.0f} statements/s", curve, longest)
        return grid

    def clear(self) -> None:
        self._live.update("", refresh=True)

    def table(self, title: str, head: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        from rich.table import Table
        from rich.text import Text

        table = Table(title=title, title_justify="left", title_style="bold", border_style="cyan")
        for position, name in enumerate(head):
            table.add_column(name, style="bold" if position == 1 else "")
        for row in rows:
            table.add_row(*(Text(cell, style=_style(cell)) for cell in row))
        self._console.print(table)


def _progress(figures: Figures) -> RenderableType:
    from rich.progress_bar import ProgressBar
    from rich.table import Table

    grid = Table.grid(expand=True, padding=(0, 1))
    grid.add_column(no_wrap=True)
    grid.add_column(ratio=1)
    grid.add_column(justify="right", no_wrap=True)
    colour = "yellow" if figures.state in ("pausing", "paused") else "cyan"
    label = f"[bold {colour}]{figures.state}[/]"
    bar = ProgressBar(total=100.0, completed=figures.percent, complete_style=colour, finished_style="green")
    grid.add_row(label, bar, f"{figures.percent:5.1f} %  {figures.rows:,} of {figures.rows_total:,} rows")
    return grid


def _curve(speeds: Sequence[float]) -> str:
    """Draw the last values as a line of bars."""
    top = max(speeds, default=0.0)
    if top <= 0:
        return BARS[0] * SAMPLES
    return "".join(BARS[min(8, round(8 * speed / top))] for speed in speeds).ljust(SAMPLES)


def _style(cell: str) -> str:
    if cell == "0" or cell.startswith("ok"):
        return "green"
    return "bold red" if cell.startswith("DIFFERS") else ""
