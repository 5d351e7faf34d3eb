"""The parameters of a running task: what is wished, what is in force, and how a modification is merged and applied.

`modify_params` is a mailbox: `{"prev_state", "modifications": [{"type", "to", "request_id", "actor"}]}` with absolute
targets, so that applying it twice is the same as once. A later value for the same parameter supersedes the earlier one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tideshift.config import PARAMETERS, parse_parameters
from tideshift.dxf.task import Task
from tideshift.errors import InvalidParameter

__all__ = [
    "FRAMEWORK_COLUMNS", "FRAMEWORK_TYPES", "Limits", "MODIFICATION_TYPES", "Mailbox", "apply_to_parameters", "merge", "modification_type", "parameter_of",
    "parse_wished", "pending_mailbox", "refuse_where_one_writes", "threads_per_node",
]  # fmt: skip

MODIFICATION_TYPES = {
    "threads": "modify_concurrency",
    "max_node_count": "modify_max_node_count",
    "priority": "modify_priority",
    "target_scope": "modify_target_scope",
    "batch_size": "modify_batch_size",
    "max_write_speed": "modify_max_write_speed",
    "lock_share": "modify_lock_share",
    "adaptive": "modify_adaptive",
}
"""The name of a parameter and TiDB's name of its modification, also for what TiDB cannot modify; a type's own parameters follow the same pattern."""
FRAMEWORK_COLUMNS = {
    "modify_concurrency": "concurrency",
    "modify_max_node_count": "max_node_count",
    "modify_priority": "priority",
    "modify_target_scope": "target_scope",
}
"""The modifications that the framework applies by itself, and the task's column of each; all others go to the task type."""
FRAMEWORK_TYPES = frozenset(FRAMEWORK_COLUMNS)
_PARAMETER_OF = {kind: name for name, kind in MODIFICATION_TYPES.items()}
_RANGES = {"max_node_count": (0, 1024), "priority": (1, 1024)}
SCOPE_LENGTH_MAX = 64
ADAPTIVE_CHUNK_SECONDS = 0.01


def modification_type(parameter: str) -> str:
    """Return the type under which a parameter's modification stands in the mailbox."""
    return MODIFICATION_TYPES.get(parameter, f"modify_{parameter}")


def parameter_of(modification: str) -> str:
    """Return the parameter that a modification is of."""
    return _PARAMETER_OF.get(modification, modification.removeprefix("modify_"))


def parse_wished(wished: Mapping[str, Any], own: Mapping[str, Callable[[Any], Any]] | None = None) -> dict[str, Any]:
    """Check what shall be modified and give each value its stored form; raise `InvalidParameter`.

    `own` are the parameters of the task's type with what reads each; None when the type is not known here.
    """
    parsed: dict[str, Any] = {}
    for name, value in wished.items():
        if own is not None and name in own:
            parsed[name] = own[name](value)
        elif name in _RANGES:
            parsed[name] = _whole(name, value, *_RANGES[name])
        elif name == "target_scope":
            parsed[name] = _scope(value)
        elif name in PARAMETERS:
            parsed |= parse_parameters({name: value})
        else:
            known = sorted({*MODIFICATION_TYPES, *(own or ())})
            raise InvalidParameter(f"there is no parameter {name!r}", hint=f"There are: {', '.join(known)}")
    return parsed


def refuse_where_one_writes(wished: Mapping[str, Any], *, concurrent_writers: bool) -> None:
    """Raise `InvalidParameter` for what paces work beside writers that need not wait for it, where everybody waits for one lock."""
    if wished.get("adaptive") == "on" and not concurrent_writers:
        raise InvalidParameter(
            "adaptive: this database has one writer at a time, who waits for every chunk whatever rests there are between them",
            hint="lock_share says how much of the time the work may hold that lock.",
        )


def _whole(name: str, value: Any, least: int, most: int) -> int:
    try:
        number = int(str(value))
    except ValueError as error:
        raise InvalidParameter(f"{name}: {value!r} is not a whole number") from error
    if not least <= number <= most:
        raise InvalidParameter(f"{name}: {number} is outside {least} to {most}")
    return number


def _scope(value: Any) -> str:
    if not isinstance(value, str) or len(value) > SCOPE_LENGTH_MAX or not value.isprintable():
        raise InvalidParameter(f"target_scope: {value!r} is not a name of at most {SCOPE_LENGTH_MAX} characters", hint="The empty one means: any node.")
    return value


def threads_per_node(task: Task, *, concurrent_writers: bool) -> int:
    """Return how many subtasks of a task a node runs at once: adaptive work leaves the machine to others, so one."""
    return task.concurrency if concurrent_writers and not Limits.of(task).adaptive else 1


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The parameters in force for one subtask now."""

    threads: int
    batch_size_rows: int
    write_bytes_per_second_max: int | None
    write_rows_per_second_max: int | None
    lock_share_percent: int
    adaptive: bool
    sharers: int
    """How many subtasks run, on all nodes, among whom a write speed or what adaptive work may slow is divided; counted only for those."""

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
            sharers=sharers,
            adaptive=wished.get("adaptive", PARAMETERS["adaptive"].default) == "on",
        )

    @property
    def chunk_seconds_max(self) -> float:
        """Return how long a chunk should last at most: adaptive work is done in small pieces with a rest after each."""
        return ADAPTIVE_CHUNK_SECONDS if self.adaptive else math.inf

    @property
    def are_shared(self) -> bool:
        """Whether something is divided among the running subtasks."""
        return self.adaptive or self.write_bytes_per_second_max is not None or self.write_rows_per_second_max is not None

    def as_record(self) -> dict[str, Any]:
        """Give the acknowledgement that a node writes beside its progress, by the names that a person uses."""
        speed: str | None = None
        if self.write_bytes_per_second_max is not None:
            speed = f"{self.write_bytes_per_second_max} bytes"
        elif self.write_rows_per_second_max is not None:
            speed = f"{self.write_rows_per_second_max} rows"
        return {"batch_size": self.batch_size_rows, "max_write_speed": speed, "lock_share": self.lock_share_percent, "adaptive": "on" if self.adaptive else "off"}


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
        parameters[parameter_of(modification["type"])] = modification["to"]
    return {**meta, "parameters": parameters}
