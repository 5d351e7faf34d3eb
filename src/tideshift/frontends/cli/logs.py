"""Where the log goes: warnings to stderr, more of it with -v, and all of it as JSON lines into a file.

Each JSON line carries the ids of the job, task and subtask that it speaks of, so that one job's story can be selected.
"""

from __future__ import annotations

import json
import logging
import re
from datetime import UTC, datetime

from tideshift.frontends.cli.output import Screen

__all__ = ["JsonLines", "ScreenLog", "begin_logging"]

IDS = re.compile(r"\b(job|task|subtask) (\d+)\b")


class Redaction(logging.Filter):
    """Takes the password of the URL out of whatever is logged."""

    def __init__(self, secret: str | None) -> None:
        super().__init__()
        self.secret = secret

    def filter(self, record: logging.LogRecord) -> bool:
        """Rewrite the record's text; let everything pass."""
        if self.secret:
            record.msg = record.getMessage().replace(self.secret, "***")
            record.args = None
        return True


class ScreenLog(logging.Handler):
    """Writes records as messages above the live line."""

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self.screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        self.screen.message(f"{record.levelname.lower()}: {self.format(record)}")


class JsonLines(logging.Formatter):
    """One JSON object per record."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line."""
        text = record.getMessage()
        line: dict[str, object] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": record.process,
            "thread": record.threadName,
            "message": text,
            **{kind: int(number) for kind, number in reversed(IDS.findall(text))},
            **{kind: value for kind in ("job", "task", "subtask") if (value := getattr(record, kind, None)) is not None},
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return json.dumps(line, default=str)


def begin_logging(screen: Screen, *, verbosity: int, log_file: str | None, secret: str | None = None) -> None:
    """Attach stderr and the file to the project's logger; raises `OSError` when the file cannot be written."""
    logger = logging.getLogger("tideshift")
    logger.propagate = False
    shown = ScreenLog(screen)
    shown.setLevel({0: logging.WARNING, 1: logging.INFO}.get(verbosity, logging.DEBUG))
    outputs: list[logging.Handler] = [shown]
    if log_file is not None:
        kept = logging.FileHandler(log_file, encoding="utf-8", errors="backslashreplace")
        kept.setLevel(logging.DEBUG)
        kept.setFormatter(JsonLines())
        outputs.append(kept)
    for output in outputs:
        output.addFilter(Redaction(secret))
    logger.handlers[:] = outputs
    logger.setLevel(min(output.level for output in outputs))
