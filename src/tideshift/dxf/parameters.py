"""The parameters of a running task: what is wished, what is in force, and how a modification is merged and applied.

`modify_params` is a mailbox: `{"prev_state", "modifications": [{"type", "to", "request_id", "actor"}]}` with absolute
targets, so that applying it twice is the same as once. A later value for the same parameter supersedes the earlier one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tideshift.config import PARAMETERS
from tideshift.dxf.task import Task

__all__ = ["FRAMEWORK_TYPES", "Limits", "MODIFICATION_TYPES", "Mailbox", "apply_to_parameters", "merge", "pending_mailbox"]

MODIFICATION_TYPES = {
    "threads": "modify_concurrency",
    "max_node_count": "modify_max_node_count",
    "batch_size": "modify_batch_size",
    "max_write_speed": "modify_max_write_speed",
    "lock_share": "modify_lock_share",
}
"""The name of a parameter and TiDB's name of its modification."""
FRAMEWORK_TYPES = frozenset({"modify_concurrency", "modify_max_node_count"})
_PARAMETER_OF = {kind: name for name, kind in MODIFICATION_TYPES.items()}


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The parameters in force for one subtask now."""

    threads: int
    batch_size_rows: int
    write_bytes_per_second_max: int | None
    write_rows_per_second_max: int | None
    lock_share_percent: int

    @classmethod
    def of(cls, task: Task, *, sharers: int = 1) -> Limits:
        """Read them from the task; a write speed over all nodes is divided among the running subtasks."""
        assert sharers >= 1
        wished = task.meta.get("parameters", {})
        speed = wished.get("max_write_speed")
        amount, unit = (None, "") if speed is None else (max(1, int(speed.split()[0]) // sharers), speed.split()[1])
        return cls(
            threads=task.concurrency,
            batch_size_rows=wished.get("batch_size", PARAMETERS["batch_size"].default),
            write_bytes_per_second_max=amount if unit == "bytes" else None,
            write_rows_per_second_max=amount if unit == "rows" else None,
            lock_share_percent=wished.get("lock_share", PARAMETERS["lock_share"].default),
        )

    def as_record(self) -> dict[str, Any]:
        """Give the acknowledgement that a node writes beside its progress, by the names that a person uses."""
        speed: str | None = None
        if self.write_bytes_per_second_max is not None:
            speed = f"{self.write_bytes_per_second_max} bytes"
        elif self.write_rows_per_second_max is not None:
            speed = f"{self.write_rows_per_second_max} rows"
        return {"batch_size": self.batch_size_rows, "max_write_speed": speed, "lock_share": self.lock_share_percent}


@dataclass(frozen=True)
class Mailbox:
    """The merged content of `modify_params`, and the requests that the merge left without any effect."""

    record: dict[str, Any]
    superseded: tuple[str, ...]


def pending_mailbox(task: Task) -> list[dict[str, Any]]:
    """Return the modifications that wait, in the order they were asked for."""
    return list((task.modify_params or {}).get("modifications", ()))


def merge(task: Task, modifications: list[dict[str, Any]]) -> Mailbox:
    """Merge new modifications into the mailbox: per parameter the later wins."""
    before = pending_mailbox(task)
    new_kinds = {modification["type"] for modification in modifications}
    kept = [modification for modification in before if modification["type"] not in new_kinds]
    alive = {modification["request_id"] for modification in (*kept, *modifications)}
    superseded = sorted({m["request_id"] for m in before} - alive)
    prev_state = (task.modify_params or {}).get("prev_state") or str(task.state)
    return Mailbox({"prev_state": prev_state, "modifications": kept + modifications}, tuple(superseded))


def apply_to_parameters(meta: dict[str, Any], modifications: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the meta with application parameters set, for task types that keep them under `parameters`."""
    parameters = dict(meta.get("parameters", {}))
    for modification in modifications:
        parameters[_PARAMETER_OF[modification["type"]]] = modification["to"]
    return {**meta, "parameters": parameters}
