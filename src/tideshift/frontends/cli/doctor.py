"""`doctor`: what is wrong, left over, or worth knowing about a database with tideshift in it."""

from __future__ import annotations

import sys
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import click

from tideshift.clock import rfc3339
from tideshift.errors import CommandRefused
from tideshift.frontends.cli.interruption import Interruption
from tideshift.frontends.cli.opening import SystemTables, opened
from tideshift.frontends.cli.options import Settings, database_options, json_option
from tideshift.frontends.cli.output import (
    DECLINED,
    Screen,
    duration_text,
    holder_text,
    is_terminal,
    print_json,
    printable,
    size_text,
)
from tideshift.frontends.cli.register import SeenNode, seen_nodes

if TYPE_CHECKING:
    from tideshift.connect import Connected
    from tideshift.ddl.dialect import Dialect
    from tideshift.ddl.job import Artifact, Job
    from tideshift.store.database import Transaction

__all__ = ["doctor_command"]

TAKE_OVER = "Let the jobs of this copy go on here: tideshift doctor --adopt; or undo them: tideshift doctor --clean"
LOCK_LOOKS, LOCK_SECONDS = 20, 1.0


@dataclass
class Diagnosis:
    """Findings count for the exit code, notes do not."""

    findings: list[dict[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    durability: dict[str, str] = field(default_factory=dict)
    """What a power failure can take."""

    def find(self, code: str, message: str, hint: str) -> None:
        """Add a finding: a stable code, what is so, and what to do."""
        self.findings.append({"code": code, "message": message, "hint": hint})


@click.command("doctor", short_help="Look for what is wrong or left over.")
@click.option("--adopt", is_flag=True, help="This database is a restored, cloned or failed-over copy: let its jobs go on here.")
@click.option("--clean", is_flag=True, help="This database is such a copy: adopt it and cancel its unfinished jobs.")
@click.option("--yes", is_flag=True, help="Do not ask before --clean.")
@json_option
@database_options
@click.pass_context
def doctor_command(ctx: click.Context, adopt: bool, clean: bool, yes: bool) -> int:
    """Look for what is wrong or left over; exit code 0, or 1 with findings.

    Looked at: system tables, whether the database is a copy, orphans, capture that nobody reads, kept tables, dead
    nodes, jobs that are held or keep failing, a process that holds the write lock, the room on the disk, what a power
    failure can take, and the database's library and settings.
    """
    settings = ctx.ensure_object(Settings)
    with opened(ctx, SystemTables.ANY) as connected:
        if adopt or clean:
            connected.require()
            if not _take_over(connected, settings.screen, clean=clean, yes=yes):
                return DECLINED
        found = diagnose(connected)
    if settings.json_wanted:
        print_json({"findings": found.findings, "notes": found.notes, "durability": found.durability})
    else:
        _print(found)
    return 1 if found.findings else 0


def _print(found: Diagnosis) -> None:
    for finding in found.findings:
        click.echo(printable(f"finding: {finding['code']}: {finding['message']}"))
        click.echo(printable(f"         {finding['hint']}"))
    for note in found.notes:
        click.echo(printable(f"note: {note}"))
    for number, text in enumerate(found.durability.values()):
        click.echo(f"{'         ' if number else 'durable: '}{text}")
    if not found.findings:
        click.echo("nothing is wrong")


def diagnose(connected: Connected) -> Diagnosis:
    """Look at everything once."""
    from tideshift.ddl.dialect import Weight
    from tideshift.store import bootstrap

    found = Diagnosis()
    state = bootstrap.state(connected.database)
    match state:
        case bootstrap.SystemState.ABSENT:
            found.notes.append("there are no system tables; the first job creates them, or: tideshift init")
        case bootstrap.SystemState.PARTIAL:
            found.find("system_tables", "some of the system tables are missing", "Create them with: tideshift init")
        case bootstrap.SystemState.OLDER:
            found.find("system_tables", "the system tables were made by an older version", "Run: tideshift upgrade")
        case bootstrap.SystemState.NEWER:
            found.find("system_tables", "the system tables were made by a newer version", "Install that version of tideshift, or a later one.")
        case bootstrap.SystemState.CURRENT:
            found.notes.append("the system tables are those of this version")
            copied = _look_at_copy(connected, found)
            connected.database.run(lambda tx: _look_inside(tx, connected.dialect, found, copied=copied), write=False)
            _look_at_lock(connected, found)
    if state in (bootstrap.SystemState.ABSENT, bootstrap.SystemState.CURRENT):
        _look_for_orphans(connected, found, tables_exist=state is bootstrap.SystemState.CURRENT)
    _look_at_disk(connected, found)
    found.durability = connected.database.run(lambda tx: asdict(connected.dialect.catalog.durability(tx)), write=False)
    for finding in connected.dialect.catalog.findings(connected.database):
        if finding.weight is Weight.NOTE:
            found.notes.append(f"{finding.message}. {finding.hint}")
        else:
            found.find(finding.code, finding.message, finding.hint)
    return found


def _look_at_disk(connected: Connected, found: Diagnosis) -> None:
    room = connected.dialect.load.room()
    if room is not None and room.free_bytes < room.reserve_bytes:
        message = f"{size_text(room.free_bytes)} are free on the disk: below {size_text(room.reserve_bytes)} a copy waits for room"
        found.find("disk_low", message, f"Make room. Below {size_text(room.least_bytes)} jobs stop recording writes, and their copies start again later.")


def _look_at_copy(connected: Connected, found: Diagnosis) -> bool:
    """Find that the database is a copy, and name its jobs; return whether it is one."""
    from tideshift.ddl import tables
    from tideshift.store import bootstrap

    changed = bootstrap.installation_changed(connected.database)
    if changed is None:
        return False
    live = connected.database.run(tables.live_jobs, write=False)
    jobs = ", ".join(f"{job.id} ({job.type} on {job.table_name}, {job.state})" for job in live) or "none"
    message = f"this database is restored, cloned or failed over: installed on {_written(changed[0])}, now on {_written(changed[1])}"
    found.find("installation_copied", f"{message}; its unfinished jobs: {jobs}", TAKE_OVER)
    return True


def _look_at_lock(connected: Connected, found: Diagnosis) -> None:
    """Find a process that keeps every writer waiting: the same one at each of several looks, which no short transaction is."""
    from tideshift.ddl.waiting import waited_for

    first = connected.database.run(lambda tx: waited_for(tx, connected.dialect), write=False)
    if first is None:
        return
    with Interruption() as interruption:
        for _ in range(LOCK_LOOKS - 1):
            interruption.wait(connected.database.clock, LOCK_SECONDS / LOCK_LOOKS)
            if connected.database.run(lambda tx: waited_for(tx, connected.dialect), write=False) != first:
                return
    message = f"{holder_text(asdict(first))} holds the write lock, and has held it at each of {LOCK_LOOKS} looks in {LOCK_SECONDS:g} s"
    found.find("lock_held", message, "Every other writer waits for it, jobs too. It is never ended by us: see whether it hangs in a transaction.")


def _written(installation: dict[str, str]) -> str:
    return ", ".join(f"{name} {value}" for name, value in sorted(installation.items()))


def _look_inside(tx: Transaction, dialect: Dialect, found: Diagnosis, *, copied: bool) -> None:
    """Look at nodes, jobs and artifacts in one snapshot."""
    from tideshift.ddl import tables

    now_ms = tx.now_ms()
    nodes = seen_nodes(tx)
    jobs = tables.live_jobs(tx)
    artifacts = tables.live_artifacts(tx)
    # The nodes on a copy's register are those of the original, and none of them reads here.
    alive = not copied and any(one.is_alive for one in nodes)
    if not copied:
        _look_at_nodes(nodes, found)
    _look_at_room(tx, found)
    for job in jobs:
        if not alive and any(artifact.kind == "trigger" and artifact.job_id == job.id for artifact in artifacts):
            _say_unread(job, dialect.shadow.log_bytes(tx, job.reorg), found, copied=copied)
        _look_at_job(job, found, copied=copied)
    for artifact in artifacts:
        if artifact.kind == "old table":
            _look_at_kept(artifact, found, now_ms=now_ms)


def _look_at_nodes(nodes: list[SeenNode], found: Diagnosis) -> None:
    for one in nodes:
        if not one.is_alive:
            message = f"node {one.node.host} is dead: not heard of for {duration_text(one.silent_seconds)}, and still on the register"
            found.find("dead_node", message, "The next node takes it off: tideshift node --until-idle")
    alive = sum(one.is_alive for one in nodes)
    found.notes.append(f"{alive} {'node is' if alive == 1 else 'nodes are'} alive")


def _look_at_room(tx: Transaction, found: Diagnosis) -> None:
    from tideshift.dxf import tables
    from tideshift.dxf.machine import SubtaskState
    from tideshift.dxf.throttle import DISK_FULL

    for task in tables.live_tasks(tx):
        running = [subtask for subtask in tables.subtasks_of(tx, task.id, step=task.step) if subtask.state is SubtaskState.RUNNING]
        if any((subtask.summary.get("throttle") or {}).get("reason") == DISK_FULL for subtask in running):
            found.find("disk_full", f"task {task.task_key} finds no room on the disk and tries again and again", "Make room: it goes on by itself.")


def _say_unread(job: Job, log_bytes: int, found: Diagnosis, *, copied: bool) -> None:
    message = f"job {job.id} records every write to {job.table_name} and no node is alive to read it: its log has about {size_text(log_bytes)} by now"
    way_on = f"Go on with: tideshift node; or undo it: tideshift cancel {job.id}, and tideshift node --until-idle"
    found.find("capture_unread", message, TAKE_OVER if copied else way_on)


def _look_at_job(job: Job, found: Diagnosis, *, copied: bool) -> None:
    if job.paused_by == "system":
        way_on = TAKE_OVER if copied else f"Once the cause is gone: tideshift resume {job.id}"
        found.find("job_held", f"job {job.id} is paused by the system: {job.pause_reason}", way_on)
    if job.err_count > 0 and job.error is not None:
        message = f"job {job.id} met an error {job.err_count} times in a row: {job.error['message']}"
        found.find("job_failing", message, job.error.get("hint") or f"See: tideshift job {job.id}")


def _look_at_kept(artifact: Artifact, found: Diagnosis, *, now_ms: int) -> None:
    """Tell each kept table with its age; it is a finding once it should be gone, or waits for a person."""
    kept = f"{artifact.name} of job {artifact.job_id}, made {duration_text((now_ms - artifact.created_at) / 1000)} ago"
    if artifact.drop_after is None:
        hint = "Compare it with the table; then drop it with: tideshift uninstall --drop-kept"
        found.find("kept_table", f"the old rows are kept until a person drops them: {kept}", hint)
    elif artifact.drop_after <= now_ms:
        found.find("purge_due", f"a replaced table should be gone: {kept}", "Empty and drop it with: tideshift node --until-idle")
    else:
        found.notes.append(f"a replaced table is kept until {rfc3339(artifact.drop_after)}: {kept}")


def _look_for_orphans(connected: Connected, found: Diagnosis, *, tables_exist: bool) -> None:
    """Find what carries a name of ours and belongs to no job."""
    from tideshift.ddl import tables

    def read(tx: Transaction) -> tuple[set[tuple[str, str]], set[str]]:
        objects = connected.dialect.catalog.objects(tx)
        return objects, {artifact.name for artifact in tables.live_artifacts(tx)} if tables_exist else set()

    objects, known = connected.database.run(read, write=False)
    for kind, name in sorted(objects):
        if name not in known:
            found.find("orphan", f"{kind} {name} belongs to no job", f"Once nobody needs it, drop it: DROP {kind.upper()} {name}")


# ── copies ────────────────────────────────────────────────────────────────────────────────────────────────────────


def _take_over(connected: Connected, screen: Screen, *, clean: bool, yes: bool) -> bool:
    """Adopt a copy, and cancel its jobs if wanted; return False when the person says no."""
    from tideshift.store import bootstrap

    if bootstrap.installation_changed(connected.database) is None:
        if clean:
            raise CommandRefused("this database is no copy", hint="Cancel a job with: tideshift cancel ID")
        screen.message("this database is no copy; there is nothing to adopt")
        return True
    live, _ = connected.ddl.jobs(finished=0)
    if clean and live and not yes and not _confirm_clean(live):
        screen.message("nothing was done")
        return False
    bootstrap.adopt(connected.database)
    screen.message("adopted: the jobs of this database belong here now")
    for answer in connected.ddl.cancel(*(job["id"] for job in live)) if clean else ():
        screen.message(f"job {answer.id}: cancel {answer.verdict}: {answer.reason}")
    held = [str(job["id"]) for job in live if job["paused_by"] == "system"]
    if held and not clean:
        screen.message(f"let them go on with: tideshift resume {' '.join(held)}")
    if len(held) < len(live) and not clean:
        going = [str(job["id"]) for job in live if job["paused_by"] != "system"]
        screen.message(f"job {', '.join(going)} is taken up by the next node: tideshift node")
    if clean and live:
        screen.message("what they made is undone by the next node: tideshift node --until-idle")
    return True


def _confirm_clean(live: list[dict[str, Any]]) -> bool:
    ids = ", ".join(str(job["id"]) for job in live)
    if not (sys.stdin.isatty() and is_terminal(sys.stderr)):
        raise click.UsageError(f"job {ids} will be cancelled and what it made dropped; confirm it with --yes")
    return click.confirm(f"Cancel job {ids} and drop what it made?", default=False, err=True)
