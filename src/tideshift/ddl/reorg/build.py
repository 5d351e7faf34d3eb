"""Building what a bare copy lacks: first the copy is brought to one instant with the source, then one index after another.

While what refuses rows is built nothing is applied, so a row that is refused then is refused by the source's own rows.
"""

from __future__ import annotations

from tideshift.ddl import points
from tideshift.ddl.dialect import Dialect
from tideshift.ddl.reorg.verify import settle
from tideshift.ddl.reshaping import Reorg
from tideshift.dxf.tasktype import Context

__all__ = ["BuildWork", "SettleWork"]


class SettleWork:
    """Applies the whole log in one transaction."""

    def __init__(self, dialect: Dialect, reorg: Reorg) -> None:
        self.dialect = dialect
        self.reorg = reorg

    def step(self, context: Context) -> bool:
        """Settle."""
        with context.chunk() as chunk:
            self.dialect.shadow.check(chunk.tx, self.reorg)
            chunk.counters = {"log_rows": settle(chunk.tx, self.dialect, self.reorg)}
            if points.AFTER_SETTLE.on:
                points.AFTER_SETTLE.fire(job=self.reorg.job_id)
        return False


class BuildWork:
    """The build of one index; its statement is ended on the server when the subtask is no longer wanted here."""

    interruptible = True

    def __init__(self, dialect: Dialect, reorg: Reorg, number: int, *, of: int) -> None:
        """`of` is how many builds the step has."""
        self.dialect = dialect
        self.reorg = reorg
        self.number = number
        self.of = of

    def step(self, context: Context) -> bool:
        """Build it."""
        with context.chunk() as chunk:
            self.dialect.shadow.check(chunk.tx, self.reorg)
            self.dialect.shadow.build(chunk.tx, self.reorg, self.number, side_by_side=min(self.of, context.limits.threads), gently=context.limits.adaptive)
            if points.AFTER_BUILD.on:
                points.AFTER_BUILD.fire(job=self.reorg.job_id, number=self.number)
        return False
