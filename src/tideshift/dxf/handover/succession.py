"""What an executor asks of its node when a subtask is done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tideshift.dxf.executor import Executor
    from tideshift.dxf.pulse import Pulse
    from tideshift.dxf.task import Subtask, Task
    from tideshift.store.database import Transaction

__all__ = ["Succession"]


class Succession(Protocol):
    """The node, as an executor needs it: what may be claimed next, and who goes on."""

    pulse: Pulse | None
    """What adaptive work asks how much it may work; None where one writer at a time makes the lock's share the measure."""

    def claim(self, tx: Transaction, ended: Executor, *, limit: int) -> tuple[Task, list[Subtask]]:
        """Claim the next subtasks of the same task in this transaction, at most so many; none when the slot is wanted elsewhere."""
        ...

    def adopt(self, ended: Executor, successor: Executor) -> None:
        """Let the successor take the place and the connection of one that ended."""
        ...

    @property
    def claims_max(self) -> int:
        """Return how many subtasks may be claimed at once."""
        ...
