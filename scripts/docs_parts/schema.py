"""The JSON Schemas of what the command line prints; their lists of words are those of the machines and tables.

They let further properties pass, since a new field does not change the version of a document. The tests are stricter:
there, what is printed and not described is an error.
"""

from __future__ import annotations

from typing import Any

from tideshift.config import PARAMETERS
from tideshift.ddl.dialect import RowWork
from tideshift.ddl.job import Strategy
from tideshift.ddl.machine import JOB, SchemaState
from tideshift.dxf.commands import Verdict
from tideshift.dxf.machine import TASK
from tideshift.store.events import Outcome

__all__ = ["SCHEMAS"]

Schema = dict[str, Any]
TEXT: Schema = {"type": "string"}
NATURAL: Schema = {"type": "integer", "minimum": 0}
FLAG: Schema = {"type": "boolean"}
NUMBER: Schema = {"type": "number", "minimum": 0}
TIME: Schema = {"type": "string", "pattern": r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$", "description": "RFC 3339, UTC, milliseconds"}
COMMANDS = ["pause", "resume", "cancel", "set"]


def record(description: str, **properties: Schema) -> Schema:
    """Describe an object whose properties are all there."""
    return {"type": "object", "description": description, "properties": properties, "required": sorted(properties)}


def nullable(schema: Schema) -> Schema:
    """Describe a value, or null."""
    return {"anyOf": [schema, {"type": "null"}]}


def words(values: Any) -> Schema:
    """Describe one word of a list."""
    return {"enum": [str(value) for value in values]}


def each(schema: Schema) -> Schema:
    """Describe a list."""
    return {"type": "array", "items": schema}


def described(schema: Schema, text: str) -> Schema:
    """Add a description."""
    return {**schema, "description": text}


ERROR = record(
    "What went wrong: a stable code (docs/errors.md), a text for people, and what to do next.",
    code=TEXT, message=TEXT, hint=nullable(TEXT), fields={"type": "object"},
)  # fmt: skip
JOB_ERROR = {**ERROR, "required": ["code", "hint", "message"]}
PARAMETER = record(
    "One parameter: what is wished, what a running subtask has acknowledged (null while none runs), and since when.",
    wished={"type": ["integer", "string", "null"]}, effective={"type": ["integer", "string", "null"]}, since=nullable(TIME),
)  # fmt: skip
JOB_RECORD = record(
    "One job. TiDB's strings are used for type, state and schema_state.",
    id=NATURAL,
    rev=described(NATURAL, "grows with every move; `set --if-rev` compares it"),
    type=described(TEXT, "such as: modify column"),
    schema=nullable(TEXT),
    table=TEXT,
    objects=each(record("What the job claims while it is live.", name=TEXT, mode=words(["exclusive", "shared"]))),
    query=described(TEXT, "the statement as it was given"),
    state=words(JOB.states),
    schema_state=words(SchemaState),
    stage=nullable(described(TEXT, "the present stage of the plan, with its step; null when all are behind")),
    strategy=words(Strategy),
    row_count=described(NATURAL, "rows copied so far"),
    row_total=NATURAL,
    row_total_exact=FLAG,
    percent={"type": "number", "minimum": 0, "maximum": 100},
    rows_per_second=nullable(NUMBER),
    eta_seconds=nullable(NUMBER),
    lock_holder=nullable(
        record("A process, no living node of ours, that holds the lock which every writer needs at the moment of looking.", process=NATURAL, program=TEXT)
    ),
    waits_for=each(
        record(
            "A session that a long statement of the job waits for at this moment: a lock, or a snapshot older than the statement.",
            process=NATURAL,
            seconds=described(NATURAL, "how long its transaction has been open"),
            query=described(TEXT, "what it runs, or ran last"),
        )
    ),
    throttle=nullable(record("What slows the job now.", reason=TEXT, limit=nullable(NUMBER), value=nullable(NUMBER))),
    parameters=record("Every parameter by its name.", **dict.fromkeys(PARAMETERS, PARAMETER)),
    allowed=described(each(words(COMMANDS)), "the commands that are possible now"),
    requested_by=TEXT,
    paused_by=nullable(words(["user", "system"])),
    pause_reason=nullable(TEXT),
    warnings=each(TEXT),
    error=nullable(JOB_ERROR),
    artifacts=each(record("Something the job made that is still there.", kind=TEXT, name=TEXT, drop_after=nullable(TIME))),
    created_at=TIME,
    started_at=nullable(TIME),
    finished_at=nullable(TIME),
)
STAGE = record("One stage of a plan.", name=TEXT, schema_state=words(SchemaState), chunked=FLAG, revertible=FLAG, text=TEXT)
STEP = record("One thing that will be executed.", phase=TEXT, sql=TEXT, lock=TEXT, hold=TEXT)
DURABILITY = record(
    "What a power failure can take, by the database's own settings, for people to read.", setting=TEXT, commands=TEXT, rows=TEXT, application=TEXT,
)  # fmt: skip
PLAN = record(
    "What a change would do.", type=TEXT, schema=nullable(TEXT), table=TEXT, strategy=words(Strategy), key_columns=each(TEXT),
    may_refuse_rows=FLAG, row_work=described(words(RowWork), "what happens to the rows that are there"), rewrites_rows=FLAG, disk=TEXT, disk_bytes=NATURAL, disk_free_bytes=nullable(NATURAL), row_total=NATURAL, row_total_exact=FLAG,
    hold_seconds=NUMBER, seconds_estimate=NUMBER, stages=each(STAGE), steps=each(STEP), drops=each(TEXT), durability=DURABILITY, warnings=each(TEXT),
)  # fmt: skip
ANSWER = record(
    "The answer for one id; `outcome` is known with --wait.", id=NATURAL, verdict=words(Verdict), reason=TEXT,
    state=nullable(words(dict.fromkeys([*JOB.states, *TASK.states]))), rev=nullable(NATURAL), request_id=nullable(TEXT), outcome=nullable(words([*Outcome, "open"])),
)  # fmt: skip
NODE = record(
    "One registered node.", name=TEXT, state=words(["alive", "draining", "dead"]), slots=NATURAL, role=TEXT, version=TEXT,
    silent_seconds=NUMBER, heartbeat_at=TIME, started_at=TIME,
)  # fmt: skip
FINDING = record("One thing worth a person's attention.", code=TEXT, message=TEXT, hint=TEXT)


def document(title: str, **properties: Schema) -> Schema:
    """Describe a whole document, version included."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": title,
        **record(title, version={"const": 1}, **properties),
    }


TASK_PROGRESS = record(
    "How far it is: subtasks of the present step, rows of all steps.", subtasks_total=NATURAL, subtasks_done=NATURAL, subtasks_running=NATURAL,
    row_count=NATURAL, rows_per_second=nullable(NUMBER), percent=NUMBER, eta_seconds=nullable(NUMBER),
)  # fmt: skip
TASK_RECORD = record(
    "One task.", id=NATURAL, rev=NATURAL, key=TEXT, type=TEXT, state=words(TASK.states), step={"type": "integer"}, step_name=nullable(TEXT),
    progress=TASK_PROGRESS, nodes=each(TEXT), parameters=described({"type": "object"}, "By name: `wished`, and `effective` per node with `value` and `since`."), allowed=each(TEXT), error=nullable(JOB_ERROR), created_at=TIME,
    started_at=nullable(TIME), finished_at=nullable(TIME),
)  # fmt: skip
REQUEST = record(
    "One request that was made of a task.", request_id=TEXT, command=TEXT, actor=TEXT, at=TIME, wished=nullable({"type": "object"}),
    before=nullable({"type": "object"}), outcome=words([*Outcome, "open"]), reason=nullable(TEXT),
)  # fmt: skip
SHOWN_TASK = {**TASK_RECORD, "properties": {**TASK_RECORD["properties"], "requests": each(REQUEST)}, "required": [*TASK_RECORD["required"], "requests"]}

SCHEMAS: dict[str, Schema] = {
    "job": document("job --json; alter --json; wait --json, one document per job", job=JOB_RECORD),
    "jobs": document("jobs --json: newest first", jobs=each(JOB_RECORD), next=nullable(NATURAL)),
    "event": document("watch --json: one document per line", event=words(["seen", "changed", "progress", "ended"]), job=JOB_RECORD),
    "error": document("errors, on stderr", error=ERROR),
    "tasks": document("tasks --json: newest first", tasks=each(TASK_RECORD)),
    "task": document("task ID --json", task=SHOWN_TASK),
    "answers": document("pause, resume, cancel, set with --json", answers=each(ANSWER)),
    "plan": document("plan --json", plan=PLAN),
    "nodes": document("nodes --json", nodes=each(NODE)),
    "doctor": document("doctor --json", findings=each(FINDING), notes=each(TEXT), durability=DURABILITY),
}
