"""Which affinity a declared type gives to a column: the library's own rules, in its order."""

from __future__ import annotations

__all__ = ["affinity"]


def affinity(type_text: str, *, strict: bool) -> str:
    """Return INTEGER, TEXT, BLOB, REAL or NUMERIC; in a STRICT table ANY is BLOB, which converts nothing."""
    declared = type_text.upper()
    if strict and declared == "ANY":
        return "BLOB"
    if "INT" in declared:
        return "INTEGER"
    if any(part in declared for part in ("CHAR", "CLOB", "TEXT")):
        return "TEXT"
    if "BLOB" in declared or not declared.strip():
        return "BLOB"
    if any(part in declared for part in ("REAL", "FLOA", "DOUB")):
        return "REAL"
    return "NUMERIC"
