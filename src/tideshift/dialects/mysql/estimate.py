"""How long a table would be held, roughly, by what was measured on a small machine: so that the choice of a way is on the safe side."""

from __future__ import annotations

__all__ = ["ASKED_SECONDS_MAX", "LOCK_BUDGET_SECONDS", "hold_text", "write_seconds"]

LOCK_BUDGET_SECONDS = 0.2
"""What may be held without asking: writers wait that long at most."""
ASKED_SECONDS_MAX = 10.0
"""What may be held when a person asks for it: a statement on the owner keeps its other jobs waiting too."""
_WRITTEN_BYTES_PER_SECOND = 20 << 20
_LEAST_SECONDS = 0.005


def write_seconds(table_bytes: int) -> float:
    """Return about how long the table is written again."""
    return _LEAST_SECONDS + table_bytes / _WRITTEN_BYTES_PER_SECOND


def hold_text(seconds: float) -> str:
    """Say it for a person."""
    return "milliseconds" if seconds < 0.05 else f"about {seconds:.1f} s"
