"""`tasks` and `task`: looking at tasks of the framework, and commands on them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from tideshift.errors import AmbiguousCommit, CommandRefused, InvalidParameter, NotFound, Retryable, TideshiftError
from tideshift.frontends.cli.opening import opened
from tideshift.frontends.cli.options import JOB_ID, Settings, database_options, json_option
from tideshift.frontends.cli.output import (
    count_text,
    duration_text,
    first_failure,
    print_error,
    print_json,
    print_table,
    printable,
)
from tideshift.frontends.cli.register import warn_without_node

if TYPE_CHECKING:
    from collections.abc import Callable

    from tideshift.connect import Connected
    from tideshift.dxf.commands import Answer
    from tideshift.store.database import Transaction

__all__ = ["task_command", "tasks_command"]

COLUMNS = ("id", "state", "type", "key", "step", "subtasks", "percent", "rows", "rows/s", "eta")
VERBS = ("pause", "resume", "cancel", "set")
Record = dict[str, Any]


@click.command("tasks", short_help="List tasks of the framework, newest first.")
@click.option("-n", "finished", type=click.IntRange(0, 10_000), default=10, metavar="N", help="How many finished tasks (default 10); all live ones are shown.")
@json_option
@database_options
@click.pass_context
def tasks_command(ctx: click.Context, finished: int) -> int:
    """List all live tasks and the last finished ones, newest first: those of jobs, and those of your own types."""
    settings = ctx.ensure_object(Settings)
    with opened(ctx) as connected:
        records = connected.database.run(lambda tx: _records(tx, connected, finished), write=False)
    if settings.json_wanted:
        print_json({"tasks": records})
    elif records:
        print_table(COLUMNS, [_row(record) for record in records])
    else:
        settings.screen.message("there are no tasks")
    return 0


def _records(tx: Transaction, connected: Connected, finished: int) -> list[Record]:
    from tideshift.dxf import tables
    from tideshift.dxf.view import task_record

    found = [*tables.live_tasks(tx), *tables.finished_tasks(tx, limit=finished)]
    return [task_record(tx, task, connected.registry) for task in sorted(found, key=lambda task: -task.id)]


def _row(record: Record) -> list[str]:
    progress = record["progress"]
    return [
        str(record["id"]), record["state"], record["type"], record["key"], record["step_name"] or "-",
        f"{count_text(progress['subtasks_done'])}/{count_text(progress['subtasks_total'])}", f"{progress['percent']:.0f} %", count_text(progress["row_count"]),
        count_text(progress["rows_per_second"]), duration_text(progress["eta_seconds"]),
    ]  # fmt: skip


@click.command("task", short_help="Show one task, or pause, resume, cancel or set tasks.")
@click.argument("words", metavar="[pause|resume|cancel|set] ID... [NAME=VALUE...]", nargs=-1, required=True)
@click.option("--if-rev", type=click.IntRange(min=1), metavar="N", help="With set: only if the task is still at this rev; else exit code 8.")
@json_option
@database_options
@click.pass_context
def task_command(ctx: click.Context, words: tuple[str, ...], if_rev: int | None) -> int:
    """Show one task with its parameters per node and every request that was made of it; or give a command to tasks.

    \b
    tideshift task 7
    tideshift task pause 7 8
    tideshift task set 7 threads=4 max_node_count=2 priority=100

    A command returns when it is acknowledged; `task ID` shows what became of it. Parameters: threads, max_node_count, priority,
    target_scope, batch_size, max_write_speed, lock_share, adaptive, and those of the task's own type.
    """  # noqa: D301 - click reads the backspace as: keep these lines
    verb, rest = (words[0], words[1:]) if words[0] in VERBS else ("show", words)
    if if_rev is not None and verb != "set":
        raise click.UsageError("--if-rev goes with set")
    ids = [JOB_ID(word, None, ctx) for word in rest if "=" not in word]
    assignments = [word for word in rest if "=" in word]
    if not ids or (len(ids) > 1 and verb in ("show", "set")) or bool(assignments) != (verb == "set"):
        raise click.UsageError(f"Usage: {ctx.command_path} {task_command.params[0].metavar}")
    if verb == "show":
        return _show(ctx, ids[0])
    wished = _parsed(assignments)
    asks: dict[str, Callable[[Connected, int], Answer]] = {
        "pause": lambda connected, one: connected.dxf.pause(one)[0],
        "resume": lambda connected, one: connected.dxf.resume(one)[0],
        "cancel": lambda connected, one: connected.dxf.cancel(one)[0],
        "set": lambda connected, one: connected.dxf.modify(one, if_rev=if_rev, **wished),
    }
    return _command(ctx, verb, list(dict.fromkeys(ids)), asks[verb])


def _parsed(assignments: list[str]) -> dict[str, Any]:
    """Take `name=value` apart; what a value means is for the task's type to say."""
    wished: dict[str, Any] = {}
    for assignment in assignments:
        name, _, value = assignment.partition("=")
        if name in wished:
            raise InvalidParameter(f"{name} is given twice")
        wished[name] = value
    return wished


# ── looking ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _show(ctx: click.Context, task_id: int) -> int:
    from tideshift.dxf import tables
    from tideshift.dxf.view import request_records, task_record

    settings = ctx.ensure_object(Settings)
    with opened(ctx) as connected:

        def look(tx: Transaction) -> Record:
            record = task_record(tx, tables.task_by_id(tx, task_id), connected.registry)
            return {**record, "requests": request_records(tx, task_id)}

        record = connected.database.run(look, write=False)
    if settings.json_wanted:
        print_json({"task": record})
        return 0
    progress = record["progress"]
    lines = [
        f"task {record['id']} {record['state']}, {record['type']}, key {record['key']}, rev {record['rev']}",
        f"step {record['step_name'] or record['step']}: {progress['subtasks_done']} of {progress['subtasks_total']} subtasks ({progress['percent']:.0f} %)",
        f"running: {progress['subtasks_running']} on {', '.join(record['nodes']) or 'no node'}",
        f"rows {count_text(progress['row_count'])}, {count_text(progress['rows_per_second'])} a second, {duration_text(progress['eta_seconds'])} to go",
        f"created {record['created_at']}, started {record['started_at'] or '-'}, finished {record['finished_at'] or '-'}",
        f"commands possible now: {', '.join(record['allowed']) or 'none'}",
        *_parameter_lines(record["parameters"]),
        *(_request_line(request) for request in record["requests"]),
    ]
    if record["error"]:
        lines.append(f"error: {record['error']['message']}")
    for line in lines:
        click.echo(printable(line))
    return 0


def _parameter_lines(parameters: Record) -> list[str]:
    lines: list[str] = []
    for name, parameter in parameters.items():
        lines.append(f"{name}: wished {json.dumps(parameter['wished'])}")
        lines += [f"  {node}: {json.dumps(one['value'])} since {one['since']}" for node, one in sorted(parameter["effective"].items())]
    return lines


def _request_line(request: Record) -> str:
    change = f" {json.dumps(request['before'])} -> {json.dumps(request['wished'])}" if request["wished"] else ""
    reason = f" ({request['reason']})" if request["reason"] else ""
    return f"{request['at']} {request['actor']}: {request['command']}{change}: {request['outcome']}{reason}"


# ── commands ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _command(ctx: click.Context, verb: str, ids: list[int], ask: Callable[[Connected, int], Answer]) -> int:
    """Give one command to every task, print each answer, and return the code of the first failure."""
    settings = ctx.ensure_object(Settings)
    records: list[Record] = []
    codes: list[int] = []
    with opened(ctx) as connected:
        for task_id in ids:
            answer = ask(connected, task_id)
            error = _error_of(answer)
            codes.append(0 if error is None else error.exit_code)
            records.append(
                {
                    "id": task_id, "verdict": str(answer.verdict), "reason": answer.reason, "state": answer.state, "rev": answer.rev,
                    "request_id": answer.request_id, "outcome": None,
                }
            )  # fmt: skip
            if error is not None:
                print_error(error.as_record(), json_wanted=settings.json_wanted)
            elif not settings.json_wanted:
                already = "noted, already so" if answer.verdict == "already" else "acknowledged"
                click.echo(printable(f"task {task_id}: {verb} {already}: {answer.reason}"))
        if 0 in codes:
            warn_without_node(connected, settings.screen)
    if settings.json_wanted:
        print_json({"answers": records})
    return first_failure(codes)


def _error_of(answer: Answer) -> TideshiftError | None:
    from tideshift.dxf.commands import Verdict

    text = f"task {answer.id}: {answer.reason}"
    match answer.verdict:
        case Verdict.NOT_FOUND:
            return NotFound(answer.reason, task_id=answer.id, hint="List them with: tideshift tasks")
        case Verdict.UNDECIDED:
            return AmbiguousCommit(text, task_id=answer.id)
        case Verdict.FAILED:
            return Retryable(text, task_id=answer.id)
        case Verdict.REFUSED:
            return CommandRefused(f"task {answer.id}: refused: {answer.reason}", task_id=answer.id, state=answer.state, rev=answer.rev)
    return None
