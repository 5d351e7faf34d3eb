"""Which process holds a connection to an SQLite file, as far as the operating system tells."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from tideshift.store.driver import SessionIdentity

__all__ = ["own_identity", "process_gone"]

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
_STATE, _START_TICKS = 0, 19
"""Positions in /proc/PID/stat, counted behind the command's closing parenthesis."""


def own_identity() -> SessionIdentity:
    """Name this process: host with its boot, process id, and when the process started."""
    fields = _stat_fields(os.getpid())
    return SessionIdentity(
        server=f"{socket.gethostname()}/{_boot_id()}",
        backend=str(os.getpid()),
        started=fields[_START_TICKS] if fields else "",
    )


def process_gone(identity: SessionIdentity) -> bool:
    """Whether that process has certainly ended; one on another host counts as alive, since nobody here can see it."""
    host, _, boot = identity.server.partition("/")
    if host != socket.gethostname():
        return False
    if boot != _boot_id():
        return True
    pid = int(identity.backend)
    if not _answers(pid):
        return True
    fields = _stat_fields(pid)
    if fields is None:
        return False
    return fields[_STATE] in "ZX" or (identity.started != "" and fields[_START_TICKS] != identity.started)


def _boot_id() -> str:
    try:
        return _BOOT_ID.read_text().strip()
    except OSError:
        return ""


def _answers(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _stat_fields(pid: int) -> list[str] | None:
    """Read the fields behind the command's name, which may itself hold blanks and parentheses; None without /proc."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return None
    return text[text.rindex(")") + 2 :].split()
