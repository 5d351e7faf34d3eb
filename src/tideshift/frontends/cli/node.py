"""`node` and `nodes`: running a node, and seeing who is there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from tideshift.clock import rfc3339
from tideshift.config import SLOTS
from tideshift.errors import CannotReach, Interrupted, Retryable
from tideshift.frontends.cli.interruption import Interruption
from tideshift.frontends.cli.opening import SystemTables, opened
from tideshift.frontends.cli.options import DURATION, Settings, database_options, json_option
from tideshift.frontends.cli.output import duration_text, print_json, print_table
from tideshift.frontends.cli.register import seen_nodes
from tideshift.frontends.cli.seeing import node_of_this_process

if TYPE_CHECKING:
    from tideshift.connect import Connected
    from tideshift.ddl.job import Job
    from tideshift.dxf.service import Service
    from tideshift.store.database import Transaction

__all__ = ["node_command", "nodes_command"]

LOOK_SECONDS = 0.5
DRAINED = "it is drained"
COLUMNS = ("node", "state", "slots", "role", "heard of", "started", "version")


@click.command("node", short_help="Run a node, which carries jobs out; or drain one.")
@click.argument("words", metavar="[drain NAME]", nargs=-1)
@click.option("--slots", type=click.IntRange(1, 1024), default=SLOTS, show_default=True, metavar="N", help="Subtasks at once.")
@click.option("--scope", default="", metavar="NAME", help="Only tasks of this target scope; a node of scope background also takes those without one.")
@click.option("--until-idle", is_flag=True, help="End when nothing is left to be done, purges included.")
@click.option("--max-idle", "idle_seconds", type=DURATION, metavar="DURATION", help="End when there was nothing to be done for this long.")
@database_options
@click.pass_context
def node_command(ctx: click.Context, /, words: tuple[str, ...], *, slots: int, scope: str, until_idle: bool, idle_seconds: float | None) -> int:
    """Run a node: it carries out the jobs of this database until Ctrl-C. Any number of nodes may run.

    \b
    tideshift node
    tideshift node --until-idle      # for a timer: work off what waits, then end
    tideshift node drain NAME        # another one: see `tideshift nodes`

    SIGTERM drains: nothing new begins, what runs is given back between two chunks, and the node ends; a second one stops it as
    Ctrl-C does.
    """  # noqa: D301 - click reads the backspace as: keep these lines
    settings = ctx.ensure_object(Settings)
    if words:
        return _drain(ctx, words)
    _check_scope(scope)
    idleness = _Idleness(0.0 if until_idle else idle_seconds)
    with opened(ctx, SystemTables.CREATED) as connected, Interruption() as interruption:
        try:
            with node_of_this_process(connected, settings.screen, slots=slots, scope=scope) as service:
                interruption.may_drain = True
                settings.screen.message(f"node {service.node.name} runs with {slots} slots; stop it with Ctrl-C")
                while (ended := _why_end(connected, service, idleness)) is None:  # ends: idle, drained, or interrupted
                    if interruption.drains and not service.node.draining.is_set():
                        settings.screen.message("draining: what runs is given back between two chunks; a second SIGTERM stops")
                        service.drain()
                    interruption.wait(connected.database.clock, LOOK_SECONDS)
                    _see_version(connected)
        except Interrupted:
            settings.screen.message(f"node {service.node.name} has stopped; {_kept(connected)}")
            return Interrupted.exit_code
    settings.screen.message(f"node {service.node.name} has stopped: {ended}" + (f"; {_kept(connected)}" if ended == DRAINED else ""))
    return Interrupted.exit_code if interruption.drains else 0


def _check_scope(scope: str) -> None:
    from tideshift.dxf.parameters import parse_wished

    parse_wished({"target_scope": scope})


def _drain(ctx: click.Context, words: tuple[str, ...]) -> int:
    settings = ctx.ensure_object(Settings)
    if len(words) != 2 or words[0] != "drain":
        raise click.UsageError(f"{' '.join(words)!r} is not understood; write: tideshift node drain NAME")
    with opened(ctx) as connected:
        connected.dxf.drain(words[1])
    settings.screen.message(f"node {words[1]} will drain: it begins nothing new, gives back what it runs, and ends")
    return 0


class _Idleness:
    """For how long there was nothing to be done, against how long that may last (None: for ever)."""

    def __init__(self, seconds_max: float | None) -> None:
        self.seconds_max = seconds_max
        self._since: float | None = None

    def lasted(self, idle: bool, now: float) -> bool:
        """Note what was seen; return whether it has lasted long enough."""
        self._since = (self._since if self._since is not None else now) if idle else None
        return self._since is not None and self.seconds_max is not None and now - self._since >= self.seconds_max


def _why_end(connected: Connected, service: Service, idleness: _Idleness) -> str | None:
    """Return why this node ends by itself now, or None."""
    if service.node.is_drained:
        return DRAINED
    if idleness.seconds_max is None:
        return None
    reason = _seen_idle(connected)
    return reason if idleness.lasted(reason is not None, connected.database.clock.monotonic()) else None


def _see_version(connected: Connected) -> None:
    """End where somebody has taken the system tables to another version; a database that does not answer is asked again."""
    try:
        connected.require()
    except (CannotReach, Retryable):
        return


def _seen_idle(connected: Connected) -> str | None:
    """Return why this node has nothing to do, or None while it has, or while the database is busy."""
    from tideshift.store.bootstrap import installation_changed

    try:
        idle, held = connected.database.run(lambda tx: (is_idle(tx), _is_held(tx)), write=False)
        if held and installation_changed(connected.database) is not None:
            return "this database is a copy, and its jobs wait for a person's word: tideshift doctor"
    except Retryable:
        return None
    return "nothing is left to be done" if idle else None


def is_idle(tx: Transaction) -> bool:
    """Whether a node would find nothing to do: no job that can move, no live task, no purge that is due."""
    from tideshift.ddl import tables
    from tideshift.ddl.job import PLAN_VERSION
    from tideshift.ddl.machine import JobState
    from tideshift.dxf import tables as dxf_tables
    from tideshift.dxf.machine import TaskState

    waiting = (TaskState.PAUSED, TaskState.AWAITING_RESOLUTION)
    return (
        all((job.state is JobState.PAUSED and not _gives_back(tx, job)) or job.plan_version > PLAN_VERSION for job in tables.live_jobs(tx))
        and all(task.state in waiting for task in dxf_tables.live_tasks(tx))
        and not tables.artifacts_due(tx)
    )


def _gives_back(tx: Transaction, job: Job) -> bool:
    """Whether a job that has given its capture up still has pages to hand back."""
    from tideshift.ddl import tables

    left = tables.artifacts_of(tx, job.id)
    return bool(left) and not any(artifact.kind == "trigger" for artifact in left)


def _is_held(tx: Transaction) -> bool:
    """Whether jobs are live and none that the owner of a copy would hold; it leaves those alone that pause or go back."""
    from tideshift.ddl import tables
    from tideshift.ddl.machine import JobState

    live = tables.live_jobs(tx)
    return bool(live) and not any(job.state in (JobState.QUEUEING, JobState.RUNNING) for job in live)


def _kept(connected: Connected) -> str:
    jobs, _ = connected.ddl.jobs(finished=0)
    if not jobs:
        return "no job is live"
    return f"job {', '.join(str(job['id']) for job in jobs)} is kept; go on with: tideshift node"


@click.command("nodes", short_help="List the registered nodes.")
@json_option
@database_options
@click.pass_context
def nodes_command(ctx: click.Context) -> int:
    """List the registered nodes: alive, draining or dead, their slots, and when they were last heard of."""
    settings = ctx.ensure_object(Settings)
    with opened(ctx) as connected:
        seen = connected.database.run(seen_nodes, write=False)
    records: list[dict[str, Any]] = [
        {
            "name": one.node.host, "state": ("draining" if one.node.draining else "alive") if one.is_alive else "dead",
            "slots": one.node.slots, "role": one.node.role, "version": one.node.version, "silent_seconds": one.silent_seconds,
            "heartbeat_at": rfc3339(one.node.heartbeat_at), "started_at": rfc3339(one.node.started_at),
        }
        for one in seen
    ]  # fmt: skip
    if settings.json_wanted:
        print_json({"nodes": records})
    elif not records:
        settings.screen.message("no node is registered; start one with: tideshift node")
    else:
        rows = [
            [r["name"], r["state"], str(r["slots"]), r["role"] or "-", f"{duration_text(r['silent_seconds'])} ago", r["started_at"], r["version"]]
            for r in records
        ]
        print_table(COLUMNS, rows)
    return 0
