"""The texts of a plan as they are run: with the job's number in the names of ours, and the server's messages cut to what is said."""

from __future__ import annotations

from typing import Any

from tideshift.ddl.reshaping import Reorg
from tideshift.dialects.postgres.names import own_name

__all__ = ["first_line", "named", "named_detail"]


def named(text: str, reorg: Reorg) -> str:
    """Put the job's number into the names of ours, which a plan does not know yet."""
    table = reorg.reshaping.detail["table"]
    return text.replace(own_name(0, table, ""), own_name(reorg.job_id, table, ""))


def named_detail(detail: dict[str, Any], reorg: Reorg) -> dict[str, Any]:
    """Do the same in every text of a step's record."""
    found = {key: named(value, reorg) if isinstance(value, str) else value for key, value in detail.items()}
    return {**found, "sql": [named(sql, reorg) for sql in detail["sql"]]}


def first_line(message: str) -> str:
    """Return what an error says, without the statement and the functions that it happened in."""
    lines = [line for line in message.splitlines() if not line.startswith(("LINE ", "CONTEXT:"))]
    return " ".join(lines[:2])
