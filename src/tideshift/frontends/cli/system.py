"""`init`, `upgrade`, `uninstall`, `demo`: the system tables, and the demonstration."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tideshift.errors import CommandRefused
from tideshift.frontends.cli.opening import SystemTables, inject_faults, opened
from tideshift.frontends.cli.options import Settings, database_options
from tideshift.frontends.cli.output import DECLINED, Screen, is_terminal
from tideshift.frontends.cli.register import seen_nodes
from tideshift.frontends.demo import ROWS_DEFAULT, ROWS_MIN

if TYPE_CHECKING:
    from tideshift.connect import Connected
    from tideshift.ddl.job import Artifact
    from tideshift.store.database import Transaction

__all__ = ["demo_command", "init_command", "uninstall_command", "upgrade_command"]

PURGE_ROWS = 2_000


@click.command("init", short_help="Create the system tables.")
@click.option("--dry-run", is_flag=True, help="Print the statements instead; write nothing.")
@database_options
@click.pass_context
def init_command(ctx: click.Context, dry_run: bool) -> int:
    """Create the system tables that are missing. `alter` and `node` do it as well; here it can be seen first."""
    settings = ctx.ensure_object(Settings)
    with opened(ctx, SystemTables.ANY) as connected:
        if dry_run:
            for statement in missing_statements(connected):
                click.echo(f"{statement};")
            return 0
        from tideshift.store import bootstrap

        if bootstrap.state(connected.database) in (bootstrap.SystemState.OLDER, bootstrap.SystemState.NEWER):
            connected.require()
        created = connected.bootstrap()
    settings.screen.message("created the system tables" if created else "the system tables are there already")
    return 0


def missing_statements(connected: Connected) -> list[str]:
    """Return the statements that creating the missing tables would send, exactly; none of them is executed."""
    from sqlalchemy import event

    from tideshift.store import bootstrap
    from tideshift.store.tables import METADATA

    statements: list[str] = []

    def hold(_: Any, statement: str, *__: Any) -> bool | None:
        if not statement.lstrip().upper().startswith("CREATE"):
            return None
        statements.append("\n".join(line.rstrip() for line in statement.strip().splitlines()).replace("\t", "  "))
        return True  # SQLAlchemy takes the statement for executed

    event.listen(connected.database.engine, "do_execute", hold)
    try:
        with connected.database.transaction(write=False) as tx:
            bootstrap.create_missing(tx, METADATA.sorted_tables)
    finally:
        event.remove(connected.database.engine, "do_execute", hold)
    return statements


@click.command("upgrade", short_help="Bring the system tables to this version.")
@database_options
@click.pass_context
def upgrade_command(ctx: click.Context) -> int:
    """Bring the system tables to this version, one step per version, each in its own transaction."""
    from tideshift.store import bootstrap

    settings = ctx.ensure_object(Settings)
    with opened(ctx, SystemTables.ANY) as connected:
        if bootstrap.state(connected.database) is not bootstrap.SystemState.OLDER:
            connected.require()
        else:
            alive = [one.node.host for one in connected.database.run(seen_nodes, write=False) if one.is_alive]
            if alive:
                raise CommandRefused(f"node {', '.join(alive)} is alive, and is of the older version", hint="Stop it first: Ctrl-C, or SIGTERM.", nodes=alive)
        gone_through = bootstrap.upgrade(connected.database)
    if gone_through:
        settings.screen.message(f"upgraded the system tables to version {gone_through[-1]}")
    else:
        settings.screen.message("the system tables have this version already")
    return 0


@click.command("uninstall", short_help="Drop the system tables.")
@click.option("--drop-kept", is_flag=True, help="Drop replaced tables that are still kept, too.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@database_options
@click.pass_context
def uninstall_command(ctx: click.Context, drop_kept: bool, yes: bool) -> int:
    """Drop the system tables with the whole history, and with --drop-kept the replaced tables that are kept.

    What no job knows of is left (`doctor` lists it, with the statement that drops it). Refused (exit code 8) while a job
    is live, a node is alive, a replaced table is kept, or a system table is missing.
    """
    from tideshift.store import bootstrap

    settings = ctx.ensure_object(Settings)
    with opened(ctx, SystemTables.ANY) as connected:
        state = bootstrap.state(connected.database)
        if state is bootstrap.SystemState.ABSENT:
            settings.screen.message("there are no system tables; nothing to do")
            return 0
        if state is bootstrap.SystemState.PARTIAL:
            raise CommandRefused("some of the tideshift tables are missing, so nobody can say what they know of", hint="First: tideshift init")
        connected.require()
        kept = connected.database.run(lambda tx: refuse_uninstall(tx, drop_kept=drop_kept), write=False)
        if not yes and not _confirm_drop(kept):
            settings.screen.message("nothing was done")
            return DECLINED
        for artifact in kept:
            _drop_kept(connected, settings.screen, artifact)
        # Somebody may have submitted or started something since: what drops the tables looks again.
        bootstrap.uninstall(connected.database, refuse=lambda tx: refuse_uninstall(tx, drop_kept=False))
    settings.screen.message("dropped the system tables")
    return 0


def refuse_uninstall(tx: Transaction, *, drop_kept: bool) -> list[Artifact]:
    """Raise with the rule that forbids uninstalling now; return the kept tables that are to be dropped as well."""
    from tideshift.ddl import tables

    live = [job.id for job in tables.live_jobs(tx)]
    alive = [one.node.host for one in seen_nodes(tx) if one.is_alive]
    kept = tables.live_artifacts(tx)
    if live:
        ids = ", ".join(map(str, live))
        raise CommandRefused(f"job {ids} is live", hint="Let it end, or cancel it: tideshift cancel ID --wait", job_ids=live)
    if alive:
        raise CommandRefused(f"node {', '.join(alive)} is alive", hint="Stop it first: Ctrl-C, or SIGTERM.", nodes=alive)
    if kept and not drop_kept:
        names = ", ".join(f"{artifact.name} of job {artifact.job_id}" for artifact in kept)
        hint = "Drop them with: tideshift uninstall --drop-kept; those that are due go with: tideshift node --until-idle"
        raise CommandRefused(f"replaced tables are still kept: {names}", hint=hint, tables=[artifact.name for artifact in kept])
    return kept


def _confirm_drop(kept: list[Artifact]) -> bool:
    if not (sys.stdin.isatty() and is_terminal(sys.stderr)):
        raise click.UsageError("the system tables and the history will be dropped; confirm it with --yes")
    also = f", and {', '.join(artifact.name for artifact in kept)}" if kept else ""
    return click.confirm(f"Drop the system tables with the whole history{also}?", default=False, err=True)


def _drop_kept(connected: Connected, screen: Screen, artifact: Artifact) -> None:
    """Empty a kept table in chunks, so that writers get their turn, and drop it."""
    from tideshift.ddl import tables
    from tideshift.ddl.reshaping import ArtifactName

    named = ArtifactName(artifact.kind, artifact.name)
    gone = 1
    while gone:  # ends: each round takes rows away, and nobody adds any
        with connected.database.transaction() as tx:
            gone = connected.dialect.remains.empty_chunk(tx, named, rows_max=PURGE_ROWS)
            if not gone:
                connected.dialect.remains.drop(tx, named)
                tables.mark_dropped(tx, artifact.job_id, artifact.ordinal)
    screen.message(f"dropped {artifact.name}")


@click.command("demo", short_help="See a change under a busy database, with a kill in the middle and a proof at the end.")
@click.option("--rows", type=click.IntRange(min=ROWS_MIN), default=ROWS_DEFAULT, show_default=True, metavar="N", help="Rows of the table that is changed.")
@click.option(
    "--keep", "folder", type=click.Path(file_okay=False, path_type=Path), metavar="DIR",
    help="Make the database in DIR, which is empty or new, and leave it there.",
)
@click.pass_context
def demo_command(ctx: click.Context, rows: int, folder: Path | None) -> int:
    """See a column's type change under a busy database: writers, readers, a kill in the middle, and a proof at the end.

    It makes a database of its own in a temporary folder and needs no --url. Exit code 1 if anything differs.
    """
    inject_faults(ctx.ensure_object(Settings))
    from tideshift.frontends.demo import run_demo

    return run_demo(rows=rows, folder=folder)
