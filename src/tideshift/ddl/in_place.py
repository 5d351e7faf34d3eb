"""What the DDL engine asks of a database that can change a column within its table: outcomes, each in the transaction that it is given.

A new column stands beside the old one, a trigger gives it its value whenever a row is written, and the rows that are there
are filled in chunks. The steps around that (what is made, what is built, the swap) are native steps of the plan.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from tideshift.ddl.reshaping import Reorg
from tideshift.store.database import Session, Transaction
from tideshift.store.keys import Bound, KeyOrder, KeyRange

__all__ = ["ChunkResult", "Comparison", "InPlace"]


@dataclass(frozen=True, kw_only=True)
class ChunkResult:
    """What one chunk did: rows, their approximate size, and the last key (None when the range held no more rows)."""

    rows: int
    size_bytes: int
    last: Bound | None


@dataclass(frozen=True, kw_only=True)
class Comparison:
    """What comparing one range found: rows compared, keys left out because the log names them, keys that differ."""

    rows: int
    excluded: int
    differing: tuple[Bound, ...]
    last: Bound | None


class InPlace(Protocol):
    """A column that is filled beside the one whose place it takes."""

    def key_order(self, reorg: Reorg) -> KeyOrder:
        """Return the order of the key by which rows are taken."""
        ...

    def parts(self, reorg: Reorg) -> int:
        """Return into how many ranges the table is cut: behind each the room of what was written in it is free for the next ones."""
        ...

    def fill_chunk(self, tx: Transaction, reorg: Reorg, key_range: KeyRange, *, rows_max: int) -> ChunkResult:
        """Give the new column its value in the first `rows_max` rows of the range that do not have it yet; twice is the same as once.

        Sees first that what keeps the column right is in force: raises `SchemaChanged` if not, `ValueRefused` with the key of a
        row whose value has none in the new column, whoever wrote it.
        """
        ...

    def tidy(self, session: Session, reorg: Reorg) -> None:
        """Let the room of the rows' old versions be used again, outside any transaction and without keeping a writer waiting."""
        ...

    def compare_chunk(self, tx: Transaction, reorg: Reorg, key_range: KeyRange, *, rows_max: int) -> Comparison:
        """Compare the first rows of the range, in the transaction's snapshot, with what the new column must hold. Raises as `fill_chunk` does."""
        ...
