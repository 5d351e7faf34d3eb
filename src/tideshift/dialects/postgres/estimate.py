"""How long a lock would be held, roughly: by what was measured on a small machine, so that the choice of a way is on the safe side."""

from __future__ import annotations

__all__ = ["LOCK_BUDGET_SECONDS", "hold_text", "scan_seconds", "write_seconds"]

LOCK_BUDGET_SECONDS = 0.2
"""What may be held without asking: writers and readers wait that long at most."""
_SCANNED_BYTES_PER_SECOND = 150 << 20
_WRITTEN_BYTES_PER_SECOND = 20 << 20
_LEAST_SECONDS = 0.005


def scan_seconds(table_bytes: int) -> float:
    """Return about how long every row is looked at."""
    return _LEAST_SECONDS + table_bytes / _SCANNED_BYTES_PER_SECOND


def write_seconds(table_bytes: int) -> float:
    """Return about how long the table is written again, or an index over it built."""
    return _LEAST_SECONDS + table_bytes / _WRITTEN_BYTES_PER_SECOND


def hold_text(seconds: float) -> str:
    """Say it for a person."""
    return "milliseconds" if seconds < 0.05 else f"about {seconds:.1f} s"
