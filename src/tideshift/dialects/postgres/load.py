"""How busy the server is."""

from __future__ import annotations

from tideshift.ddl.dialect import DiskRoom, LockHolder

__all__ = ["PostgresLoad"]


class PostgresLoad:
    """What can be known from a connection alone."""

    def room(self) -> DiskRoom | None:
        """Return nothing: a server does not tell its clients how much of its disk is free."""
        return None

    def lock_holder(self) -> LockHolder | None:
        """Return nobody: there is no lock that every writer needs."""
        return None
