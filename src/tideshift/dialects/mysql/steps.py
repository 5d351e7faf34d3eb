"""The statements of a change as the steps of a job: each knows the shape that it finds and the one that it leaves."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tideshift.ddl.machine import SchemaState
from tideshift.ddl.reshaping import ArtifactName, NativeStep, Reorg, StepKind
from tideshift.dialects.mysql.names import own_name, qualified, quote
from tideshift.dialects.mysql.shape import Shape
from tideshift.dialects.mysql.source import Source

__all__ = ["built", "named", "renamed", "statement"]


def statement(source: Source, after: Shape, clauses: str, text: str) -> NativeStep:
    """Return the one statement of a change."""
    return _last("change", text, f"ALTER TABLE {source.quoted} {clauses}", before=source.shape, after=after)


def renamed(source: Source, target: str) -> NativeStep:
    """Return the statement that gives a table another name."""
    sql = f"RENAME TABLE {source.quoted} TO {target}"
    return _last("rename", "the server writes its catalogue only", sql, before=source.shape, after=source.shape, becomes=target)


def built(source: Source, after: Shape) -> tuple[NativeStep, ...]:
    """Return one build for each new key, under a name of ours, and the statement that gives all of them their own names."""
    found: list[NativeStep] = []
    renames: list[str] = []
    before = source.shape
    for number, (kind, name, rest) in enumerate(after.added_keys(source.shape)):
        own = quote(own_name(0, source.quoted, f"index_{number}"))
        line = f"{kind} {own} {rest}"
        found.append(
            NativeStep(
                name=f"build {name.strip('`')}", kind=StepKind.ALONE, schema_state=SchemaState.WRITE_REORGANIZATION.value,
                text="build the index beside the traffic, under a name of ours",
                makes=(ArtifactName("index", qualified(source.schema, source.name, own.strip("`"))),),
                detail={"does": "build", "sql": f"ALTER TABLE {source.quoted} ADD {line}, ALGORITHM=NOCOPY, LOCK=NONE", "index": own},
            )
        )  # fmt: skip
        renames.append(f"RENAME INDEX {own} TO {name}")
        before = replace(before, keys=tuple(sorted([*before.keys, line])))
    sql = f"ALTER TABLE {source.quoted} {', '.join(renames)}, ALGORITHM=INSTANT, LOCK=NONE"
    return (*found, _last("name the index", "the server writes its catalogue only", sql, before=before, after=after))


def _last(name: str, text: str, sql: str, *, before: Shape, after: Shape, becomes: str | None = None) -> NativeStep:
    detail = {"does": "change" if becomes is None else "rename", "sql": sql, "before": before.as_record(), "after": after.as_record(), "becomes": becomes}
    return NativeStep(name=name, kind=StepKind.SHORT, text=text, schema_state=SchemaState.PUBLIC.value, detail=detail)


def named(value: Any, reorg: Reorg) -> Any:
    """Put the job's number into the names of ours, which a plan does not know yet, wherever they stand in a record."""
    if isinstance(value, str):
        table = reorg.reshaping.detail["table"]
        return value.replace(own_name(0, table, ""), own_name(reorg.job_id, table, ""))
    if isinstance(value, list):
        return [named(one, reorg) for one in value]
    if isinstance(value, dict):
        return {key: named(one, reorg) for key, one in value.items()}
    return value
