"""Cutting a big rowid table into parts of about equal size without reading it.

A scan would keep a read lock for seconds, which makes writers wait where there is a rollback journal. So the range is
halved by arithmetic again and again, always where most rows are thought to be: each piece is first drawn in to the
rows it really holds, which skips gaps of any size in one step, and its rows are then estimated from how dense they
lie at its two ends. Everything follows from the table alone, so the cuts are the same every time.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass

from tideshift.store.database import Transaction

__all__ = ["COUNTED_ROWS_MAX", "Probe", "cuts"]

COUNTED_ROWS_MAX = 20_000
"""Below this many rows counting is as quick as guessing."""

_SAMPLE_ROWS = 32
_PIECES_PER_PART = 16
_PIECES_MAX = 2_048


@dataclass(frozen=True)
class Piece:
    """The rowids from `first` to `last`, both of them there, and how many rows are thought to lie between."""

    first: int
    last: int
    rows: float


class Probe:
    """Single look-ups in the tree of one table; names are quoted already."""

    def __init__(self, tx: Transaction, *, table: str, rowid: str) -> None:
        self._tx = tx
        between = f"SELECT {rowid} FROM {table} WHERE {rowid} BETWEEN ? AND ? ORDER BY {rowid}"
        self._upwards = f"{between} LIMIT 1 OFFSET ?"
        self._downwards = f"{between} DESC LIMIT 1 OFFSET ?"
        self._count = f"SELECT count(*) FROM {table} WHERE {rowid} BETWEEN ? AND ?"

    def upwards(self, low: int, high: int, *, skip: int = 0) -> int | None:
        """Return the rowid that stands `skip` rows after the first one between the two."""
        return self._found(self._upwards, low, high, skip)

    def downwards(self, low: int, high: int, *, skip: int = 0) -> int | None:
        """Return the rowid that stands `skip` rows before the last one between the two."""
        return self._found(self._downwards, low, high, skip)

    def count(self, low: int, high: int) -> int:
        """Count; only where few rows are known to be."""
        return int(self._tx.run_verbatim(self._count, (low, high)).scalar())

    def _found(self, sql: str, low: int, high: int, skip: int) -> int | None:
        rowid = self._tx.run_verbatim(sql, (low, high, skip)).scalar()
        return None if rowid is None else int(rowid)


def cuts(probe: Probe, *, first: int, last: int, parts: int) -> list[int]:
    """Return at most parts - 1 rowids, each the last of its part."""
    pieces = _pieces(probe, first=first, last=last, parts=parts)
    total = sum(piece.rows for piece in pieces)
    found: list[int] = []
    passed = 0.0
    for piece in pieces[:-1]:
        passed += piece.rows
        if passed >= total * (len(found) + 1) / parts and len(found) < parts - 1:
            found.append(piece.last)
    return found


def _pieces(probe: Probe, *, first: int, last: int, parts: int) -> list[Piece]:
    """Halve the fullest piece until all are small beside a part, or there are enough of them."""
    whole = _drawn_in(probe, first, last)
    assert whole is not None
    fullest = [(-whole.rows, whole.first, whole)]
    total = whole.rows
    pieces_max = min(_PIECES_MAX, parts * _PIECES_PER_PART * 4)
    # Ends: every round adds a piece at most, or makes one narrower than half of what it was.
    while len(fullest) < pieces_max:
        _, _, piece = fullest[0]
        if piece.first == piece.last or piece.rows <= total / (parts * _PIECES_PER_PART):
            break
        heapq.heappop(fullest)
        middle = (piece.first + piece.last) // 2
        halves = [_drawn_in(probe, piece.first, middle), _drawn_in(probe, middle + 1, piece.last)]
        total -= piece.rows
        for half in halves:
            if half is not None:
                total += half.rows
                heapq.heappush(fullest, (-half.rows, half.first, half))
    return sorted((piece for _, _, piece in fullest), key=lambda piece: piece.first)


def _drawn_in(probe: Probe, low: int, high: int) -> Piece | None:
    """Draw a piece in to its rows and estimate how many there are; None without rows."""
    first = probe.upwards(low, high)
    last = probe.downwards(low, high)
    if first is None or last is None:
        return None
    width = last - first + 1
    after = probe.upwards(first, last, skip=_SAMPLE_ROWS)
    if after is None:
        return Piece(first, last, probe.count(first, last))
    before = probe.downwards(first, last, skip=_SAMPLE_ROWS)
    assert before is not None
    density = max(_SAMPLE_ROWS / (after - first), _SAMPLE_ROWS / (last - before))
    return Piece(first, last, min(width, density * width))
