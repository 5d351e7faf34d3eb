"""How names are written, and the names of what we make beside a user's table."""

from __future__ import annotations

__all__ = ["NAME_CHARACTERS_MAX", "quote"]

NAME_CHARACTERS_MAX = 64


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
