"""Where the log goes: warnings to stderr, more of it with -v, and all of it as JSON lines into a file.

Each JSON line carries the ids of the job, task and subtask that it speaks of, so that one job's story can be selected.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Sequence

from tideshift.clock import rfc3339
from tideshift.frontends.cli.output import Screen

__all__ = ["JsonLines", "ScreenLog", "begin_logging"]

IDS = re.compile(r"\b(job|task|subtask) (\d+)\b")


class ScreenLog(logging.Handler):
    """Writes records as messages above the live line."""

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self.screen = screen

    def emit(self, record: logging.LogRecord) -> None:
        """Write one record."""
        self.screen.message(f"{record.levelname.lower()}: {self.format(record)}")


class Redacting(logging.Formatter):
    """Takes the passwords of the URL out of whatever is logged, the traceback included."""

    def __init__(self, secrets: Sequence[str] = ()) -> None:
        super().__init__()
        self.secrets = secrets

    def format(self, record: logging.LogRecord) -> str:
        """Return the text, and the traceback below it."""
        return self.redacted(super().format(record))

    def redacted(self, text: str) -> str:
        """Return the text without any of the secrets."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        return text


class JsonLines(Redacting):
    """One JSON object per record."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; what is redacted is the text before it is written as JSON, which may spell it otherwise."""
        text = self.redacted(record.getMessage())
        line: dict[str, object] = {
            "at": rfc3339(record.created * 1000),
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": record.process,
            "thread": record.threadName,
            "message": text,
            **{kind: int(number) for kind, number in reversed(IDS.findall(text))},
            **{kind: value for kind in ("job", "task", "subtask") if (value := getattr(record, kind, None)) is not None},
        }
        if record.exc_info:
            line["traceback"] = self.redacted(self.formatException(record.exc_info))
        return json.dumps(line, default=str)


def begin_logging(screen: Screen, *, verbosity: int, log_file: str | None, secrets: Sequence[str] = ()) -> None:
    """Attach stderr and the file to the project's logger; raises `OSError` when the file cannot be written."""
    logger = logging.getLogger("tideshift")
    logger.propagate = False
    shown = ScreenLog(screen)
    shown.setFormatter(Redacting(secrets))
    shown.setLevel({0: logging.WARNING, 1: logging.INFO}.get(verbosity, logging.DEBUG))
    outputs: list[logging.Handler] = [shown]
    if log_file is not None:
        kept = logging.FileHandler(log_file, encoding="utf-8", errors="backslashreplace")
        kept.setLevel(logging.DEBUG)
        kept.setFormatter(JsonLines(secrets))
        outputs.append(kept)
    logger.handlers[:] = outputs
    logger.setLevel(min(output.level for output in outputs))
