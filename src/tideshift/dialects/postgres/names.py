"""The names of what a job makes, and names with their schemas in one text, as an artifact's row holds them."""

from __future__ import annotations

import hashlib
import re

from tideshift.dialects.postgres.driver import quote
from tideshift.store.tables import NAMESPACE

__all__ = ["OWN_PATTERN", "own_name", "parts_of", "qualified"]

OWN_PATTERN = f"^~?{NAMESPACE}_[0-9]+_[0-9a-f]{{8}}_[a-z0-9_]+$"
"""What all names of ours match, and no system table does; as PostgreSQL reads it. One that must sort last has a tilde before it."""
_PART = re.compile(r'"((?:[^"]|"")*)"')


def own_name(job_id: int, table: str, what: str) -> str:
    """Return a name that no other job or table gives: within PostgreSQL's 63 bytes, whatever the table is called."""
    digest = hashlib.sha256(table.encode()).hexdigest()[:8]
    return f"{NAMESPACE}_{job_id}_{digest}_{what}"


def qualified(*parts: str) -> str:
    """Write a name behind its schema (and table), each part quoted."""
    return ".".join(map(quote, parts))


def parts_of(name: str) -> tuple[str, ...]:
    """Read what `qualified` has written."""
    return tuple(part.replace('""', '"') for part in _PART.findall(name))
