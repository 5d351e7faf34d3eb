"""Seeing one job through: a node of this process where one is wanted, the way to the end, and what is said there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import click

from tideshift.config import SLOTS
from tideshift.errors import Interrupted, TideshiftError, WaitTimeout
from tideshift.frontends.cli.follow import Follower, Job, Report
from tideshift.frontends.cli.interruption import Interruption
from tideshift.frontends.cli.output import Screen, count_text, print_error, print_json, printable
from tideshift.frontends.cli.register import NO_NODE, is_any_alive
from tideshift.frontends.cli.story import story_of

if TYPE_CHECKING:
    from tideshift.connect import Connected
    from tideshift.dxf.service import Service

__all__ = ["node_of_this_process", "print_end", "see_through"]


def see_through(
    connected: Connected, screen: Screen, interruption: Interruption, job_id: int, *, own_node: bool,
    timeout_seconds: float | None, json_wanted: bool, report: Report | None = None, told: Sequence[str] = (),
) -> int:  # fmt: skip
    """Follow a job to its end, with a node of this process if wanted; return the exit code.

    Whatever ends it, the node is stopped first and what was taken is given back. After an interruption, or when the time
    is over, the person is told how to go on; any other error is raised as it is.
    """
    follower = Follower(connected, screen, interruption, timeout_seconds=timeout_seconds, own_node=own_node, report=report)
    name: str | None = None
    job: Job | None = None
    stopped: TideshiftError | None = None
    try:
        with node_of_this_process(connected, screen) if own_node else nullcontext() as service:
            if service is not None:
                name, follower.moved = service.node.name, service.moved
            job = follower.until_final(job_id)
            if own_node and job["state"] == "synced":
                job = _see_purge(follower, screen, job)
    except (Interrupted, WaitTimeout) as error:
        stopped = error
    screen.clear()
    if job is None:
        assert stopped is not None
        return _not_final(follower, stopped, job_id, json_wanted=json_wanted, own_name=name)
    code = print_end(connected, job, json_wanted=json_wanted, streams=report is not None, told=told)
    if stopped is not None:
        return _purge_interrupted(screen, stopped, job_id, json_wanted=json_wanted)
    if own_node:
        _say_what_is_left(connected, screen)
    return code


def _see_purge(follower: Follower, screen: Screen, job: Job) -> Job:
    """See the replaced table away, unless it is kept for longer; return the job as it is then."""
    from tideshift.ddl import tables

    if not follower.until_purged(job["id"]):
        screen.message("the time is over; the replaced table is left to the next node: tideshift node --until-idle")
    seen = follower.look(job["id"]) or job
    made = follower.connected.database.run(lambda tx: tables.has_made_artifacts(tx, job["id"]), write=False)
    if made and not seen["artifacts"]:
        screen.message("the replaced table is emptied and dropped")
    return seen


def _purge_interrupted(screen: Screen, stopped: TideshiftError, job_id: int, *, json_wanted: bool) -> int:
    """Say that the job is over and only its replaced table is not emptied yet."""
    left = "the replaced table is left to the next node: tideshift node --until-idle"
    if json_wanted:
        print_error({**stopped.as_record(), "hint": left, "fields": {"job_id": job_id}}, json_wanted=True)
    else:
        screen.message(f"interrupted; {left}")
    return Interrupted.exit_code


@contextmanager
def node_of_this_process(connected: Connected, screen: Screen, *, slots: int = SLOTS, scope: str = "") -> Iterator[Service]:
    """Run an ordinary node (and candidate for ownership) in this process; yield it."""
    with connected.service(slots=slots, scope=scope) as service:
        try:
            yield service
        except Interrupted:
            screen.message("stopping: what is under way is finished or given back")
            raise


def _not_final(follower: Follower, stopped: TideshiftError, job_id: int, *, json_wanted: bool, own_name: str | None) -> int:
    """Say that the job is kept and how to go on; ask what shall become of it when the person interrupted twice.

    A node of this process that could not be taken off the register in time is nobody who goes on.
    """
    other_node = is_any_alive(follower.connected, but=own_name)
    kept = f"job {job_id} is kept; go on with: tideshift watch {job_id}{'' if other_node else ' --node'}"
    if json_wanted:
        job = follower.look(job_id) if follower.report is None else None
        if job is not None:
            print_json({"job": job})
        print_error({**stopped.as_record(), "hint": kept, "fields": {"job_id": job_id}}, json_wanted=True)
    else:
        follower.screen.message(kept if isinstance(stopped, Interrupted) else f"{stopped.message}: {kept}")
    if follower.interruption.asks:
        _ask_what_to_do(follower.connected, follower.screen, job_id, other_node=other_node)
    return stopped.exit_code


def _ask_what_to_do(connected: Connected, screen: Screen, job_id: int, *, other_node: bool) -> None:
    choice = click.Choice(["pause", "cancel", "nothing"])
    wish = click.prompt(f"What shall become of job {job_id}?", type=choice, default="nothing", err=True)
    if wish == "nothing":
        return
    (answer,) = connected.ddl.pause(job_id) if wish == "pause" else connected.ddl.cancel(job_id)
    screen.message(f"{wish}: {answer.verdict}, {answer.reason}")
    if not other_node:
        screen.warn(NO_NODE)


def _say_what_is_left(connected: Connected, screen: Screen) -> None:
    """Name the other live jobs when this process was the last node."""
    live, _ = connected.ddl.jobs(finished=0)
    waiting = [str(job["id"]) for job in live if job["state"] != "paused"]
    if waiting and not is_any_alive(connected):
        screen.warn(f"job {', '.join(waiting)} still waits and no node is alive; start one with: tideshift node")


# ── the end ───────────────────────────────────────────────────────────────────────────────────────────────────────


def print_end(
    connected: Connected, job: Job, *, json_wanted: bool, streams: bool = False, indented: bool = True, told: Sequence[str] = ()
) -> int:
    """Print how a final job ended, on stdout, and why if it failed, on stderr; return the exit code.

    `told` are the warnings that this command has printed already.
    """
    code = exit_code_of(connected, job)
    if json_wanted and not streams:
        print_json({"job": job}, indented=indented)
    elif not json_wanted:
        kept = "".join(f"; {kept_line(artifact, ended_at=job['finished_at'])}" for artifact in job["artifacts"])
        rows = f", {count_text(job['row_count'])} rows" if code == 0 else ""
        click.echo(printable(f"job {job['id']} {job['state']}{rows}{kept if code == 0 else ''}"))
        for warning in job["warnings"]:
            if warning not in told:
                click.echo(printable(f"warning: {warning}"), err=True)
    if code == 1:
        print_error(failure_record(job), json_wanted=json_wanted)
    return code


def kept_line(artifact: dict[str, Any], *, ended_at: str) -> str:
    """Return until when a replaced table stays; both times are of one form, so they compare as texts."""
    if artifact["drop_after"] is None:
        return f"{artifact['name']} is kept until a person drops it"
    if artifact["drop_after"] <= ended_at:
        return f"{artifact['name']} is still to be emptied and dropped"
    return f"{artifact['name']} is kept until {artifact['drop_after']}"


def failure_record(job: Job) -> dict[str, Any]:
    """Return the error of a job that failed, in the form of every error."""
    error = job["error"] or {"code": "task_failed", "message": "it failed", "hint": None}
    message = f"job {job['id']} failed and nothing of it is left: {error['message']}"
    return {"code": error["code"], "message": message, "hint": error["hint"] or "", "fields": {**error.get("fields", {}), "job_id": job["id"]}}


def exit_code_of(connected: Connected, job: Job) -> int:
    """Return 0 for synced, 3 for cancelled by a person, 1 for failed."""
    if job["state"] == "synced":
        return 0
    return 3 if was_cancelled(connected, job["id"]) else 1


def was_cancelled(connected: Connected, job_id: int) -> bool:
    """Whether a person's cancel is what ended the job: only then its story holds that move."""
    return any(event.kind == "move" and (event.detail or {}).get("event") == "cancel" for event in story_of(connected, job_id))
