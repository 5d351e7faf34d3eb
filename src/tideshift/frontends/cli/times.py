"""Times as they are printed: RFC 3339, UTC, milliseconds."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["rfc3339"]


def rfc3339(epoch_ms: int) -> str:
    """Write UTC epoch milliseconds."""
    return datetime.fromtimestamp(epoch_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
