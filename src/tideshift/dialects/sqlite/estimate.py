"""How long a change holds the write lock, guessed from what was measured: it only chooses between ways, and is shown to people.

Seconds per row on a small machine with the pages in memory; `bench/sqlite.py` measures them.
"""

from __future__ import annotations

__all__ = ["CHUNK_TARGET_SECONDS", "LOCK_BUDGET_SECONDS", "hold_text", "rebuild_seconds", "seconds"]

CHUNK_TARGET_SECONDS = 0.009
"""How long one chunk should hold the lock."""
LOCK_BUDGET_SECONDS = 0.015
"""What a change may hold the lock for at once without being asked to; with its commit that is about what a chunk costs a writer."""

_PER_ROW = {
    "catalogue": 0.0,
    "scan": 0.3e-6,
    "rewrite": 1.0e-6,
    "index": 0.7e-6,
    "drop index": 0.1e-6,
}
_PER_ROW_AND_100_BYTES = {"scan": 0.07e-6, "rewrite": 0.55e-6, "index": 0.07e-6}
"""What a row costs besides for each 100 bytes beyond the first 100: its pages are read, or written."""
_REBUILD_PER_ROW = 1.6e-6
_SECONDS_AT_LEAST = 0.001


def seconds(kind: str, rows: int, *, row_bytes: int = 0) -> float:
    """Return how long a statement of the database's own holds the lock."""
    return _SECONDS_AT_LEAST + rows * (_PER_ROW[kind] + _PER_ROW_AND_100_BYTES.get(kind, 0.0) * max(0.0, row_bytes / 100 - 1))


def rebuild_seconds(rows: int, *, indexes: int, row_bytes: int) -> float:
    """Return how long a rebuild in one transaction holds the lock."""
    return 2 * _SECONDS_AT_LEAST + rows * (_REBUILD_PER_ROW * max(1.0, row_bytes / 100) + _PER_ROW["index"] * indexes)


def hold_text(estimate: float) -> str:
    """Write an estimate for people."""
    if estimate < 0.1:
        return f"about {max(1, round(estimate * 1000))} ms, all in one transaction"
    return f"about {estimate:.1f} s, all in one transaction: every writer waits that long"
