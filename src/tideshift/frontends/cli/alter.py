"""`alter`: submit a change and follow it to its end."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING, Any

import click

from tideshift.config import PARAMETERS
from tideshift.frontends.cli.interruption import Interruption
from tideshift.frontends.cli.opening import SystemTables, create_tables, opened
from tideshift.frontends.cli.options import (
    DURATION,
    OLD_SNAPSHOTS,
    SPEED,
    Settings,
    database_options,
    json_option,
    statement_options,
    statement_text,
    strategy_options,
    timeout_option,
    way_of,
)
from tideshift.frontends.cli.output import DECLINED, count_text, is_terminal, print_json, printable
from tideshift.frontends.cli.register import is_any_alive
from tideshift.frontends.cli.seeing import see_through

if TYPE_CHECKING:
    from tideshift.connect import Connected
    from tideshift.ddl.job import Job
    from tideshift.ddl.plan import Proposal

__all__ = ["alter_command"]


def _whole(name: str) -> click.IntRange:
    return click.IntRange(PARAMETERS[name].minimum, PARAMETERS[name].maximum)


@click.command("alter", short_help="Carry a change out as a durable job, and follow it to its end.")
@statement_options
@strategy_options
@click.option("--threads", type=_whole("threads"), metavar="N", help="Subtasks at once per node; a database with one writer takes 1.")
@click.option("--batch-size", type=_whole("batch_size"), metavar="ROWS", help=f"The most rows that one chunk may hold (default {PARAMETERS['batch_size'].default}).")
@click.option("--max-write-speed", type=SPEED, metavar="SPEED", help="A ceiling over all nodes, such as 20MiB or 5000rows (default none).")
@click.option(
    "--lock-share", type=_whole("lock_share"), metavar="PERCENT",
    help="How much of the time the job may hold the lock of a database with one writer"
    f" (default {PARAMETERS['lock_share'].default}). More is faster, and writers wait more often: at 100 it copies without a pause, and each writer queues behind a chunk.",
)  # fmt: skip
@click.option("--adaptive", is_flag=True, default=None, help="Rest so much that an application's small commits hardly get slower (default off; on a database with one writer see --lock-share).")
@click.option(
    "--old-snapshots", type=OLD_SNAPSHOTS, metavar="'wait 30s'|proceed",
    help=f"How long the cut-over waits for transactions that began before it, without any lock (default {PARAMETERS['old_snapshots'].default}); then it goes on and records them.",
)  # fmt: skip
@click.option(
    "--end-blockers", is_flag=True, default=None,
    help="End sessions that keep the cut-over from its locks, but none whose transaction is long or large (default off).",
)  # fmt: skip
@click.option("--keep-old", type=DURATION, metavar="DURATION", help="Keep the replaced table this long (default: 0s on SQLite, 24h elsewhere).")
@timeout_option("Stop following after this time, with exit code 6; the job is kept.")
@click.option("--detach", is_flag=True, help="Only submit, and print the id.")
@click.option("--node/--no-node", "node_wanted", default=None, help="Run a node in this process, or never (default: if none is alive).")
@click.option("--yes", is_flag=True, help="Do not ask, even when a value may be refused.")
@json_option
@database_options
@click.pass_context
def alter_command(ctx: click.Context, /, statement: str | None, source: IO[str] | None, **options: Any) -> int:
    """Carry a change out as a durable job, and follow it to its end.

    \b
    tideshift alter "ALTER TABLE orders ALTER COLUMN total TYPE NUMERIC"
    tideshift alter "ALTER TABLE orders ALTER COLUMN total TYPE INTEGER USING round(total * 100)" --yes
    tideshift alter -f change.sql --detach

    If no node is alive, this process is one for as long as it runs. Ctrl-C keeps the job, and says how to go on.
    Exit code 0: done; 1: failed and rolled back; 3: cancelled; 5: refused; 6: --timeout passed, the job is kept.
    """  # noqa: D301 - click reads the backspace as: keep these lines
    text = statement_text(statement, source)
    if options["detach"] and (options["node_wanted"] or options["timeout_seconds"] is not None):
        raise click.UsageError("--detach only submits: it goes neither with --node nor with --timeout")
    way = way_of(options)
    settings = ctx.ensure_object(Settings)
    with opened(ctx, SystemTables.ANY) as connected:
        proposal = connected.ddl.plan(text, **way)
        for warning in proposal.warnings:
            settings.screen.warn(warning)
        if not options["yes"] and not confirm(proposal):
            settings.screen.message("nothing was done")
            return DECLINED
        create_tables(connected, settings)
        with Interruption() as interruption:
            job = connected.ddl.submit(text, parameters=_parameters(options), keep_old_seconds=options["keep_old"], **way)
            if options["detach"]:
                return _detach(connected, settings, job)
            settings.screen.message(submitted_line(job))
            node_wanted: bool | None = options["node_wanted"]
            alive = is_any_alive(connected)
            return see_through(
                connected, settings.screen, interruption, job.id, own_node=not alive if node_wanted is None else node_wanted,
                timeout_seconds=options["timeout_seconds"], json_wanted=settings.json_wanted, told=proposal.warnings,
            )  # fmt: skip


def confirm(proposal: Proposal) -> bool:
    """Ask before a change that may refuse a value or drops something; without a person to ask, want --yes."""
    import sys

    table = printable(str(proposal.plan.reshaping.table))
    told = []
    if proposal.plan.reshaping.may_refuse_rows:
        told.append(f"a row of {table} may have a value that the change refuses")
    told += [printable(text) for text in proposal.drops]
    if not told:
        return True
    if not (sys.stdin.isatty() and is_terminal(sys.stderr)):
        raise click.UsageError(f"{'; '.join(told)}; confirm it with --yes")
    for text in proposal.drops:
        click.echo(printable(f"{text[:1].upper()}{text[1:]}."), err=True)
    if proposal.plan.reshaping.may_refuse_rows:
        click.echo(f"A row of {table} that the change refuses ends the job, and the table stays as it is.", err=True)
    return click.confirm("Go on?", default=True, err=True)


def submitted_line(job: Job) -> str:
    """Return what is said once the job is acknowledged."""
    about = "" if job.row_total_exact else "about "
    return f"job {job.id} is submitted: {job.type} on {job.table_name}, {job.strategy}, {about}{count_text(job.row_total)} rows"


def _parameters(options: dict[str, Any]) -> dict[str, Any]:
    return {name: options[name] for name in PARAMETERS if options[name] is not None}


def _detach(connected: Connected, settings: Settings, job: Job) -> int:
    """Print the id, and say so when nobody is there to begin."""
    if settings.json_wanted:
        print_json({"job": connected.ddl.show(job.id)})
    else:
        settings.screen.message(submitted_line(job))
        click.echo(str(job.id))
    if not is_any_alive(connected):
        settings.screen.warn(f"no node is alive, so job {job.id} waits; start one with: tideshift node")
    return 0
