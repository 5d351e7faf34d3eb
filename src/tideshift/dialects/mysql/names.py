"""How names are written, and the names of what a job makes, as an artifact's row holds them: behind the database, each part quoted."""

from __future__ import annotations

import hashlib
import re

from tideshift.store.tables import NAMESPACE

__all__ = ["NAME_CHARACTERS_MAX", "OWN_PATTERN", "own_name", "parts_of", "qualified", "quote"]

NAME_CHARACTERS_MAX = 64
OWN_PATTERN = f"^{NAMESPACE}_[0-9]+_[0-9a-f]{{8}}_[a-z0-9_]+$"
"""What all names of ours match, and no system table does."""
_PART = re.compile(r"`((?:[^`]|``)*)`")


def quote(name: str) -> str:
    """Quote one identifier; refuse what the server would not take or read differently."""
    if not name or "\0" in name or name[-1] == " ":
        raise ValueError(f"not a usable name: {name!r}")
    try:
        name.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"not a usable name, since it is not valid Unicode: {name!r}") from error
    if any(ord(character) > 0xFFFF for character in name):
        raise ValueError(f"not a usable name, since the server knows no characters beyond U+FFFF in names: {name!r}")
    if len(name) > NAME_CHARACTERS_MAX:
        raise ValueError(f"the name has {len(name)} characters, and the server takes {NAME_CHARACTERS_MAX}: {name!r}")
    return "`" + name.replace("`", "``") + "`"


def own_name(job_id: int, table: str, what: str) -> str:
    """Return a name that no other job or table gives: within the server's 64 characters, whatever the table is called."""
    digest = hashlib.sha256(table.encode()).hexdigest()[:8]
    return f"{NAMESPACE}_{job_id}_{digest}_{what}"


def qualified(*parts: str) -> str:
    """Write a name behind its database (and table), each part quoted."""
    return ".".join(map(quote, parts))


def parts_of(name: str) -> tuple[str, ...]:
    """Read what `qualified` has written."""
    return tuple(part.replace("``", "`") for part in _PART.findall(name))
