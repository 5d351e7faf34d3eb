"""`jobs`, `job`, `watch`, `wait`: looking at jobs."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import click

from tideshift.errors import TideshiftError
from tideshift.frontends.cli.follow import Follower, Job
from tideshift.frontends.cli.interruption import Interruption
from tideshift.frontends.cli.opening import opened
from tideshift.frontends.cli.options import JOB_ID, Settings, database_options, job_ids, json_option, timeout_option
from tideshift.frontends.cli.output import (
    Screen,
    count_text,
    duration_text,
    first_failure,
    holder_text,
    is_terminal,
    print_error,
    print_json,
    print_table,
    printable,
)
from tideshift.frontends.cli.register import is_any_alive, warn_without_node
from tideshift.frontends.cli.seeing import print_end, see_through

if TYPE_CHECKING:
    from tideshift.connect import Connected

__all__ = ["job_command", "jobs_command", "wait_command", "watch_command"]

COLUMNS = ("id", "state", "schema state", "table", "type", "percent", "rows", "rows/s", "eta", "stage")
REFRESH_SECONDS = 0.5


@click.command("jobs", short_help="List jobs, newest first.")
@click.option("-n", "finished", type=click.IntRange(0, 10_000), default=10, metavar="N", help="How many finished jobs (default 10); all live ones are shown.")
@click.option("--before", type=JOB_ID, metavar="ID", help="Finished jobs before this one: the next page.")
@click.option("--watch", "watch_wanted", is_flag=True, help="Show the list again whenever it changes, until Ctrl-C.")
@json_option
@database_options
@click.pass_context
def jobs_command(ctx: click.Context, finished: int, before: int | None, watch_wanted: bool) -> int:
    """List all live jobs and the last finished ones, newest first.

    \b
    tideshift jobs
    tideshift jobs -n 100 --json
    """  # noqa: D301 - click reads the backspace as: keep these lines
    settings = ctx.ensure_object(Settings)
    with opened(ctx) as connected:
        if watch_wanted:
            return _watch_list(connected, settings, finished, before)
        jobs, following = connected.ddl.jobs(finished=finished, before=before)
        _print_list(settings, jobs, following)
        _warn_unread_capture(connected, settings.screen, jobs)
    return 0


def _watch_list(connected: Connected, settings: Settings, finished: int, before: int | None) -> int:
    """Show the list whenever it differs from what was shown; it ends by Ctrl-C."""
    shown: tuple[list[Job], int | None] | None = None
    with Interruption() as interruption:
        while True:  # ends: Ctrl-C raises
            seen = connected.ddl.jobs(finished=finished, before=before)
            if seen != shown:
                if is_terminal(sys.stdout) and not settings.json_wanted:
                    click.clear()
                _print_list(settings, *seen, indented=False)
                shown = seen
            interruption.wait(connected.database.clock, REFRESH_SECONDS)


def _print_list(settings: Settings, jobs: list[Job], following: int | None, *, indented: bool = True) -> None:
    if settings.json_wanted:
        print_json({"jobs": jobs, "next": following}, indented=indented)
        return
    if not jobs:
        settings.screen.message("there are no jobs")
        return
    print_table(COLUMNS, [_row(job) for job in jobs])
    if following is not None:
        settings.screen.message(f"older ones: tideshift jobs --before {following}")


def _row(job: Job) -> list[str]:
    about = "" if job["row_total_exact"] else "~"
    table = job["table"] if job["schema"] is None else f"{job['schema']}.{job['table']}"
    return [
        str(job["id"]), job["state"], job["schema_state"], table, job["type"], f"{job['percent']:.0f} %",
        f"{count_text(job['row_count'])}/{about}{count_text(job['row_total'])}", count_text(job["rows_per_second"]),
        duration_text(job["eta_seconds"]), job["stage"] or "-",
    ]  # fmt: skip


def _warn_unread_capture(connected: Connected, screen: Screen, jobs: list[Job]) -> None:
    """Say aloud that writes are recorded which nobody reads."""
    from tideshift.store.bootstrap import installation_changed

    captured = [str(job["id"]) for job in jobs if any(artifact["kind"] == "trigger" for artifact in job["artifacts"])]
    if captured and not is_any_alive(connected):
        copied = installation_changed(connected.database) is not None
        way_on = "this is a copy, so see: tideshift doctor" if copied else "start one with: tideshift node"
        screen.warn(f"job {', '.join(captured)} records every write and no node is alive to read it; {way_on}")


@click.command("job", short_help="Show one job.")
@click.argument("job_id", metavar="ID", type=JOB_ID)
@json_option
@database_options
@click.pass_context
def job_command(ctx: click.Context, job_id: int) -> int:
    """Show everything about one job: state, progress, parameters wished and in force, what it made, what may be asked."""
    settings = ctx.ensure_object(Settings)
    with opened(ctx) as connected:
        job = connected.ddl.show(job_id)
        if settings.json_wanted:
            print_json({"job": job})
        else:
            for name, value in job_lines(job):
                click.echo(printable(f"{name:<14} {value}"))
        _warn_unread_capture(connected, settings.screen, [job])
    return 0


def job_lines(job: Job) -> list[tuple[str, str]]:
    """Return what is known of a job, as names and values for a person."""
    about = "" if job["row_total_exact"] else "about "
    lines = [
        ("job", f"{job['id']} (rev {job['rev']})"), ("type", job["type"]),
        ("table", job["table"] if job["schema"] is None else f"{job['schema']}.{job['table']}"), ("query", job["query"]),
        ("state", job["state"]), ("schema state", job["schema_state"]), ("stage", job["stage"] or "-"), ("strategy", job["strategy"]),
        ("progress", f"{job['percent']:.1f} %, {count_text(job['row_count'])} of {about}{count_text(job['row_total'])} rows"),
        ("speed", f"{count_text(job['rows_per_second'])} rows/s, ETA {duration_text(job['eta_seconds'])}"),
    ]  # fmt: skip
    if job["pause_reason"]:
        lines.append(("paused", f"by {job['paused_by']}: {job['pause_reason']}"))
    if job["throttle"] is not None:
        slowed = job["throttle"]
        lines.append(("slowed by", slowed["reason"] + ("" if slowed["limit"] is None else f", limit {slowed['limit']}, value {slowed['value']}")))
    if job["lock_holder"] is not None:
        lines.append(("write lock", f"held at this moment by {holder_text(job['lock_holder'])}: whoever else writes waits"))
    lines += [("waits for", f"process {one['process']}, whose transaction is {one['seconds']} s old: {one['query']}") for one in job["waits_for"]]
    for name, value in job["parameters"].items():
        lines.append((name, f"{_value(value['wished'])} wished, {_value(value['effective'])} in force, since {value['since'] or '-'}"))
    if job["error"] is not None:
        lines.append(("error", f"{job['error']['code']}: {job['error']['message']}"))
    lines += [("warning", warning) for warning in job["warnings"]]
    lines += [("made", f"{a['kind']} {a['name']}" + (f", dropped after {a['drop_after']}" if a["drop_after"] else "")) for a in job["artifacts"]]
    times = " ".join(f"{name} {job[f'{name}_at']}," for name in ("created", "started", "finished") if job[f"{name}_at"])
    return [*lines, ("allowed", ", ".join(job["allowed"]) or "nothing"), ("requested by", job["requested_by"]), ("times", times.rstrip(","))]


def _value(value: Any) -> str:
    return "none" if value is None else str(value)


@click.command("watch", short_help="Follow a job to its end.")
@click.argument("job_id", metavar="ID", type=JOB_ID)
@click.option("--node", "node_wanted", is_flag=True, help="Run a node in this process meanwhile.")
@timeout_option("Stop following after this time, with exit code 6; the job is kept.")
@json_option
@database_options
@click.pass_context
def watch_command(ctx: click.Context, job_id: int, node_wanted: bool, timeout_seconds: float | None) -> int:
    """Follow a job to its end; exit codes are those of `alter`.

    \b
    tideshift watch 17
    tideshift watch 17 --node        # and carry it out in this process
    """  # noqa: D301 - click reads the backspace as: keep these lines
    settings = ctx.ensure_object(Settings)

    def report(event: str, job: Job) -> None:
        print_json({"event": event, "job": job}, indented=False)

    with opened(ctx) as connected, Interruption() as interruption:
        connected.ddl.job(job_id)
        return see_through(
            connected, settings.screen, interruption, job_id, own_node=node_wanted, timeout_seconds=timeout_seconds,
            json_wanted=settings.json_wanted, report=report if settings.json_wanted else None,
        )  # fmt: skip


@click.command("wait", short_help="Wait for the end of jobs.")
@job_ids
@timeout_option("Stop waiting after this time, with exit code 6; the jobs are kept.")
@json_option
@database_options
@click.pass_context
def wait_command(ctx: click.Context, job_ids: tuple[int, ...], timeout_seconds: float | None) -> int:
    """Wait until these jobs have ended, and print how, one line per job.

    With several ids every one is waited for; the exit code is that of the first failure in the order 7, 4, 8, 6, 1, 3.
    """
    settings = ctx.ensure_object(Settings)
    codes: list[int] = []
    with opened(ctx) as connected, Interruption() as interruption:
        warn_without_node(connected, settings.screen)
        follower = Follower(connected, settings.screen, interruption, timeout_seconds=timeout_seconds, own_node=True, tells=False)
        for job_id in dict.fromkeys(job_ids):
            try:
                job = follower.until_final(job_id)
            except TideshiftError as error:
                if error.exit_code == 130:
                    raise
                print_error(error.as_record(), json_wanted=settings.json_wanted)
                codes.append(error.exit_code)
            else:
                codes.append(print_end(connected, job, json_wanted=settings.json_wanted, indented=False))
    return first_failure(codes)
