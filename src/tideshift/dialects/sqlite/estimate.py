"""How long a change holds the write lock, guessed from what was measured: it only chooses between ways, and is shown to people.

Seconds per row on a small machine with the pages in memory; `bench/sqlite.py` measures them.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = [
    "CHUNK_TARGET_SECONDS", "LOCK_BUDGET_SECONDS", "TRIED_ROW_SECONDS", "VALUE_BYTES", "disk_bytes", "hold_text", "index_seconds", "made_index_bytes", "rebuild_seconds",
    "remade_index_bytes", "rewritten_bytes", "row_seconds", "seconds",
]  # fmt: skip

CHUNK_TARGET_SECONDS = 0.009
"""How long one chunk should hold the lock."""
LOCK_BUDGET_SECONDS = 0.015
"""What a change may hold the lock for at once without being asked to; with its commit that is about what a chunk costs a writer."""

_PER_ROW = {
    "catalogue": 0.0,
    "scan": 0.3e-6,
    "rewrite": 1.0e-6,
    "drop index": 0.1e-6,
}
_PER_ROW_AND_100_BYTES = {"scan": 0.07e-6, "rewrite": 0.55e-6}
"""What a row costs besides for each 100 bytes beyond the first 100: its pages are read, or written."""
_INDEX_PER_ROW, _INDEX_PER_ROW_AND_TERM, _INDEX_PER_BYTE = 0.5e-6, 0.15e-6, 0.02e-6
"""What sorting and writing an index takes for each row, whatever it is over, for each of its terms, and for each byte of their values."""
VALUE_BYTES = 10
"""What an indexed value has where it was not looked at."""
_REBUILD_PER_ROW = 1.6e-6
_SECONDS_AT_LEAST = 0.001
TRIED_ROW_SECONDS = 15e-6
"""What trying a row on the new shape takes, outside any lock."""
_JOB_PER_ROW, _JOB_PER_ROW_AND_INDEX = 45e-6, 110e-6
_INDEX_ROW_BYTES = 20
_ENTRY_BYTES = 8
"""What a row or an index entry has beside its values: lengths, number, its place on the page."""
_LOG_BYTES = 8 << 20
"""What the write-ahead log takes while checkpoints keep it short, with some thousand keys in ours."""


def seconds(kind: str, rows: int, *, row_bytes: int = 0) -> float:
    """Return how long a statement of the database's own holds the lock."""
    return _SECONDS_AT_LEAST + rows * (_PER_ROW[kind] + _PER_ROW_AND_100_BYTES.get(kind, 0.0) * max(0.0, row_bytes / 100 - 1))


def index_seconds(rows: int, *, terms: int, entry_bytes: int, row_bytes: int) -> float:
    """Return how long making an index holds the lock: every row is read, and its terms are sorted and written, in whatever order they come."""
    pages = _PER_ROW_AND_100_BYTES["scan"] * max(0.0, row_bytes / 100 - 1)
    return _SECONDS_AT_LEAST + rows * (_sorted_seconds(terms, entry_bytes) + pages)


def _sorted_seconds(terms: int, entry_bytes: int) -> float:
    return _INDEX_PER_ROW + _INDEX_PER_ROW_AND_TERM * terms + _INDEX_PER_BYTE * entry_bytes


def rebuild_seconds(rows: int, *, index_terms: Sequence[int], row_bytes: int) -> float:
    """Return how long a rebuild in one transaction holds the lock; each index that is made is given by the number of its terms."""
    sorted_seconds = sum(_sorted_seconds(terms, VALUE_BYTES * terms) for terms in index_terms)
    return 2 * _SECONDS_AT_LEAST + rows * (_REBUILD_PER_ROW * max(1.0, row_bytes / 100) + sorted_seconds)


def row_seconds(*, indexes: int) -> float:
    """Return how long a job by a shadow table takes for each row at the default lock share, the old row's purge included."""
    return _JOB_PER_ROW + _JOB_PER_ROW_AND_INDEX * indexes


def disk_bytes(rows: int, *, indexes: int, row_bytes: int, at_once: bool) -> int:
    """Return the room that a copy takes; made in one transaction it stands in the write-ahead log as well."""
    copied = rows * (row_bytes + _INDEX_ROW_BYTES * indexes)
    return (2 * copied if at_once else copied) + _LOG_BYTES


def made_index_bytes(rows: int, *, entry_bytes: int) -> int:
    """Return the room that a new index takes: in the file, and until a checkpoint in the log."""
    return 2 * rows * (entry_bytes + _ENTRY_BYTES)


def remade_index_bytes(rows: int, *, entry_bytes: int) -> int:
    """Return the room that an index takes when it is made again: its pages in the file are used anew, so only the log grows."""
    return rows * (entry_bytes + _ENTRY_BYTES)


def rewritten_bytes(rows: int, *, row_bytes: int) -> int:
    """Return the room that rows take which are written again in their place: the pages as they are, or as they were, in the journal."""
    return rows * (row_bytes + _ENTRY_BYTES)


def hold_text(estimate: float) -> str:
    """Write an estimate for people."""
    if estimate < 0.1:
        return f"about {max(1, round(estimate * 1000))} ms, all in one transaction"
    return f"about {estimate:.1f} s, all in one transaction: every writer waits that long"
