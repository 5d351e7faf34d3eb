"""`plan`: what a change would do, from the catalogue alone."""

from __future__ import annotations

from dataclasses import asdict
from typing import IO, TYPE_CHECKING, Any

import click

from tideshift.frontends.cli.opening import SystemTables, opened
from tideshift.frontends.cli.options import (
    Settings,
    database_options,
    json_option,
    statement_options,
    statement_text,
    strategy_options,
    way_of,
)
from tideshift.frontends.cli.output import count_text, duration_text, print_json, printable, size_text

if TYPE_CHECKING:
    from tideshift.ddl.plan import Proposal

__all__ = ["plan_command"]

DISK = {
    "none": "no room beyond the catalogue",
    "scan": "the index, the same in the journal until a checkpoint, and about as much for temporary files while it is sorted",
    "rewrite": "the rows in the journal until a checkpoint; the table does not grow",
    "in_place_column": "a part of the table and of its indexes again at a time, until it is vacuumed, and the indexes over the new column",
    "copy": "the table again with the indexes that are made anew, until the replaced one is purged",
}
"""Per what happens to the rows (and for the one way that does it in parts): the room that it takes, if it takes any."""
ROWS = {
    "none": "none is read or written",
    "scan": "each is read, none is written",
    "rewrite": "each is written again in its place",
    "copy": "each is copied, and the replaced one purged",
}


@click.command("plan", short_help="Say what a change would do; write nothing.")
@statement_options
@strategy_options
@json_option
@database_options
@click.pass_context
def plan_command(ctx: click.Context, /, statement: str | None, source: IO[str] | None, **options: Any) -> int:
    """Say what a change would do: strategy, stages, exact SQL, locks and how long they are held, rows and time.

    \b
    tideshift plan "ALTER TABLE orders ALTER COLUMN total TYPE NUMERIC"
    tideshift plan -f change.sql

    It writes nothing and needs no system tables. Exit code 0: it can be done; 5: it is refused, with every reason.
    """  # noqa: D301 - click reads the backspace as: keep these lines
    text = statement_text(statement, source)
    settings = ctx.ensure_object(Settings)
    with opened(ctx, SystemTables.ANY) as connected:
        proposal = connected.ddl.plan(text, **way_of(options))
    if settings.json_wanted:
        print_json({"plan": proposal_record(proposal)})
        return 0
    for line in proposal_lines(proposal):
        click.echo(printable(line, keep="\n"))
    return 0


def proposal_record(proposal: Proposal) -> dict[str, Any]:
    """Return the documented record of a plan."""
    plan = proposal.plan
    row_work = str(plan.reshaping.row_work)
    return {
        "type": proposal.change.kind,
        "schema": plan.reshaping.table.schema,
        "table": plan.reshaping.table.name,
        "strategy": str(plan.strategy),
        "key_columns": list(plan.reshaping.key_columns),
        "may_refuse_rows": plan.reshaping.may_refuse_rows,
        "row_work": row_work,
        "rewrites_rows": row_work in ("rewrite", "copy"),
        "disk": DISK[_disk_kind(proposal)],
        "disk_bytes": plan.reshaping.disk_bytes,
        "disk_free_bytes": proposal.disk_free_bytes,
        "hold_seconds": round(plan.reshaping.hold_seconds, 3),
        "row_total": proposal.rows,
        "row_total_exact": proposal.rows_exact,
        "seconds_estimate": proposal.seconds_estimate,
        "stages": [
            {
                "name": stage.name, "schema_state": str(stage.schema_state), "chunked": stage.chunked, "revertible": stage.revertible,
                "text": stage.text,
            }
            for stage in plan.stages
        ],
        "steps": [{"phase": step.phase, "sql": step.sql, "lock": step.lock, "hold": step.hold} for step in proposal.sql_steps],
        "drops": list(proposal.drops),
        "durability": asdict(proposal.durability),
        "warnings": list(proposal.warnings),
    }  # fmt: skip


def _disk_kind(proposal: Proposal) -> str:
    reshaping = proposal.plan.reshaping
    if not reshaping.disk_bytes:
        return "none"
    return str(reshaping.strategy) if str(reshaping.strategy) in DISK else str(reshaping.row_work)


def proposal_lines(proposal: Proposal) -> list[str]:
    """Return the plan for a person."""
    record = proposal_record(proposal)
    about = "" if record["row_total_exact"] else "about "
    tried = proposal.plan.reshaping.tries_rows_first
    values = "none can be refused"
    if record["may_refuse_rows"]:
        values = "a row may be refused: " + ("every row is tried before anything is made" if tried else "then the job ends, and nothing has changed")
    lines = [
        f"{record['type']} on {record['table']}",
        f"  strategy  {record['strategy']}",
        f"  rows      {about}{count_text(record['row_total'])}, {ROWS[record['row_work']]}",
        f"  time      about {duration_text(record['seconds_estimate'])} at the default lock share; a busy database takes longer",
        f"  disk      {_disk_text(record)}",
        f"  lock      held for about {milliseconds_text(record['hold_seconds'])} at a time",
        *([f"  key       {', '.join(record['key_columns'])}"] if record["key_columns"] else []),
        "  values    " + values,
        *(f"  drops     {text}" for text in record["drops"]),
        *(f"  {'durable' if number == 0 else '':<9} {text}" for number, text in enumerate(record["durability"].values())),
        "",
        "stages",
    ]  # fmt: skip
    for stage in record["stages"]:
        kind = "in chunks" if stage["chunked"] else "at once"
        undo = "can be undone" if stage["revertible"] else "cannot be undone"
        lines.append(f"  {stage['name']:<12} {stage['schema_state']:<22} {kind}, {undo}: {stage['text']}")
    lines += ["", "statements"]
    heading = ""
    for step in record["steps"]:
        before, heading = heading, f"  -- {step['phase']}; lock: {step['lock']}; held: {step['hold']}"
        lines += [] if heading == before else [heading]
        lines.append("    " + step["sql"].replace("\n", "\n    "))
    return lines + [f"warning: {warning}" for warning in record["warnings"]]


def _disk_text(record: dict[str, Any]) -> str:
    free = "" if record["disk_free_bytes"] is None else f"; {size_text(record['disk_free_bytes'])} are free"
    return (f"about {size_text(record['disk_bytes'])}: {record['disk']}" if record["disk_bytes"] else record["disk"]) + free


def milliseconds_text(seconds: float) -> str:
    """Write how long a lock is held."""
    return f"{seconds:.1f} s" if seconds >= 1 else f"{max(1, round(seconds * 1000))} ms"
