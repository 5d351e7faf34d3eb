"""`pause`, `resume`, `cancel`, `set`: commands on jobs, acknowledged at once, with --wait for their effect."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from tideshift.errors import (
    AmbiguousCommit,
    CommandRefused,
    Interrupted,
    InvalidParameter,
    NotFound,
    Retryable,
    TideshiftError,
    WaitTimeout,
)
from tideshift.frontends.cli.interruption import Interruption
from tideshift.frontends.cli.opening import opened
from tideshift.frontends.cli.options import JOB_ID, Settings, database_options, job_ids, json_option, timeout_option
from tideshift.frontends.cli.output import first_failure, print_error, print_json, printable
from tideshift.frontends.cli.register import NO_NODE, is_any_alive
from tideshift.frontends.cli.story import story_of

if TYPE_CHECKING:
    from tideshift.connect import Connected
    from tideshift.dxf.commands import Answer

__all__ = ["cancel_command", "pause_command", "resume_command", "set_command"]

LOOK_SECONDS = 0.2
EFFECTS = {
    "pause": ("paused",),
    "resume": ("running", "done", "synced"),
    "cancel": ("cancelled", "rollback done"),
}
"""Per command: the states that are its effect, for one that found it given already."""

Ask = Callable[["Connected", int], "Answer"]


def _wait_options(command: Callable[..., int]) -> Callable[..., int]:
    command = timeout_option("With --wait: stop waiting after this time, with exit code 6; the command stays given.")(command)
    return click.option("--wait", "wait_wanted", is_flag=True, help="Return when the effect is there, not only the acknowledgement.")(command)


@click.command("pause", short_help="Pause jobs; what they have done so far is kept.")
@job_ids
@_wait_options
@json_option
@database_options
@click.pass_context
def pause_command(ctx: click.Context, /, job_ids: tuple[int, ...], **waiting: Any) -> int:
    """Pause jobs: no further chunk starts, and what is done so far is kept. Writes go on being recorded meanwhile."""
    return _command(ctx, "pause", job_ids, lambda connected, job_id: connected.ddl.pause(job_id)[0], **waiting)


@click.command("resume", short_help="Let paused jobs go on.")
@job_ids
@_wait_options
@json_option
@database_options
@click.pass_context
def resume_command(ctx: click.Context, /, job_ids: tuple[int, ...], **waiting: Any) -> int:
    """Let paused jobs go on where they stopped."""
    return _command(ctx, "resume", job_ids, lambda connected, job_id: connected.ddl.resume(job_id)[0], **waiting)


@click.command("cancel", short_help="End jobs and undo what they made.")
@job_ids
@_wait_options
@json_option
@database_options
@click.pass_context
def cancel_command(ctx: click.Context, /, job_ids: tuple[int, ...], **waiting: Any) -> int:
    """End jobs and undo what they made; the table stays as it was. An accepted cancel is never dropped."""
    return _command(ctx, "cancel", job_ids, lambda connected, job_id: connected.ddl.cancel(job_id)[0], **waiting)


@click.command("set", short_help="Change a job's parameters while it runs.")
@click.argument("job_id", metavar="ID", type=JOB_ID)
@click.argument("assignments", metavar="NAME=VALUE...", nargs=-1, required=True)
@click.option("--if-rev", type=click.IntRange(min=1), metavar="N", help="Only if the job is still at this rev; else exit code 8.")
@_wait_options
@json_option
@database_options
@click.pass_context
def set_command(
    ctx: click.Context, /, job_id: int, assignments: tuple[str, ...], if_rev: int | None, **waiting: Any
) -> int:
    """Change a job's parameters while it runs; the running subtask takes them over at its next chunk.

    \b
    tideshift set 17 batch_size=2000 max_write_speed=10MiB
    tideshift set 17 max_write_speed=none lock_share=50
    tideshift set 17 old_snapshots=proceed end_blockers=on

    Parameters: threads, batch_size, max_write_speed, lock_share, adaptive, old_snapshots, end_blockers (docs/parameters.md).
    """  # noqa: D301 - click reads the backspace as: keep these lines
    wished = parse_assignments(assignments)
    return _command(ctx, "set", (job_id,), lambda connected, one: connected.ddl.alter(one, wished, if_rev=if_rev), **waiting)


def parse_assignments(assignments: tuple[str, ...]) -> dict[str, str]:
    """Take `name=value` apart and check it; an error is one of usage."""
    from tideshift.config import parse_parameters

    wished: dict[str, str] = {}
    for assignment in assignments:
        name, separator, value = assignment.partition("=")
        if not separator:
            raise InvalidParameter(f"{assignment!r} is not name=value")
        if name in wished:
            raise InvalidParameter(f"{name} is given twice")
        wished[name] = value
    parse_parameters(wished)
    return wished


# ── asking and waiting ────────────────────────────────────────────────────────────────────────────────────────────


def _command(
    ctx: click.Context, command: str, job_ids: tuple[int, ...], ask: Ask, *, wait_wanted: bool, timeout_seconds: float | None
) -> int:
    """Give one command to every job, print each answer, and return the code of the first failure."""
    if timeout_seconds is not None and not wait_wanted:
        raise click.UsageError("--timeout goes with --wait")
    settings = ctx.ensure_object(Settings)
    with opened(ctx) as connected, ExitStack() as stack:
        # Nobody is asked anything here, so a second Ctrl-C ends the process at once, on a terminal too.
        interruption = stack.enter_context(Interruption(terminal=False)) if wait_wanted else None
        asked = [(job_id, _ask(connected, job_id, ask)) for job_id in dict.fromkeys(job_ids)]
        if any(not isinstance(answer, TideshiftError) for _, answer in asked) and not is_any_alive(connected):
            settings.screen.warn(NO_NODE)
        waiting = None if interruption is None else _Waiting(connected, interruption, timeout_seconds)
        records, codes = [], []
        for job_id, answer in asked:
            record, code = _settle(command, job_id, answer, waiting, settings)
            records.append(record)
            codes.append(code)
    if settings.json_wanted:
        print_json({"answers": records})
    if waiting is not None and waiting.stopped is not None:
        raise waiting.stopped
    return first_failure(codes)


def _ask(connected: Connected, job_id: int, ask: Ask) -> Answer | TideshiftError:
    """Ask once; a refusal becomes the error that it is, and no error keeps the other jobs from being asked."""
    from tideshift.dxf.commands import Verdict

    try:
        answer = ask(connected, job_id)
    except InvalidParameter:
        raise
    except TideshiftError as error:
        return error
    if answer.verdict is Verdict.NOT_FOUND:
        return NotFound(answer.reason, job_id=job_id, hint="List them with: tideshift jobs")
    if answer.verdict is Verdict.UNDECIDED:
        return AmbiguousCommit(f"job {job_id}: {answer.reason}", job_id=job_id)
    if answer.verdict is Verdict.FAILED:
        return Retryable(f"job {job_id}: {answer.reason}", job_id=job_id)
    if answer.verdict is Verdict.REFUSED:
        return CommandRefused(f"job {job_id}: refused: {answer.reason}", job_id=job_id, state=answer.state, rev=answer.rev)
    return answer


def _settle(
    command: str, job_id: int, answer: Answer | TideshiftError, waiting: _Waiting | None, settings: Settings
) -> tuple[dict[str, Any], int]:
    """Print one answer, wait for its effect if wanted, and return its record and code."""
    outcome: str | None = None
    error = answer if isinstance(answer, TideshiftError) else None
    if not isinstance(answer, TideshiftError):
        if not settings.json_wanted:
            already = ", already so" if answer.verdict == "already" else ""
            click.echo(printable(f"job {job_id}: {command} {'acknowledged' if not already else 'noted'}{already}: {answer.reason}"))
        if waiting is not None and waiting.stopped is None:
            try:
                outcome = waiting.outcome(command, answer)
            except Interrupted as interrupted:
                waiting.stopped = interrupted
            except TideshiftError as failure:
                error = failure
            else:
                if not settings.json_wanted:
                    click.echo(printable(f"job {job_id}: {command} {outcome}"))
    if error is not None:
        print_error(error.as_record(), json_wanted=settings.json_wanted)
    if outcome is None and waiting is not None and waiting.stopped is not None:
        outcome = "open"
    return _record(job_id, answer, outcome, error), 0 if error is None else error.exit_code


def _record(job_id: int, answer: Answer | TideshiftError, outcome: str | None, error: TideshiftError | None) -> dict[str, Any]:
    """Return the documented record of an answer."""
    if isinstance(answer, TideshiftError):
        verdict = {4: "not found", 6: "undecided", 8: "refused"}.get(answer.exit_code, "failed")
        fields = answer.fields
        return {
            "id": job_id, "verdict": verdict, "reason": answer.message, "state": fields.get("state"), "rev": fields.get("rev"),
            "request_id": None, "outcome": None,
        }  # fmt: skip
    return {
        "id": job_id, "verdict": str(answer.verdict), "reason": answer.reason if error is None else error.message, "state": answer.state,
        "rev": answer.rev, "request_id": answer.request_id, "outcome": outcome if error is None else str(error.fields.get("outcome", "open")),
    }  # fmt: skip


class _Waiting:
    """Waits for what became of acknowledged commands, all within one time, until somebody interrupts."""

    def __init__(self, connected: Connected, interruption: Interruption, timeout_seconds: float | None) -> None:
        self.connected = connected
        self.interruption = interruption
        self.stopped: Interrupted | None = None
        """What ended the waiting for all of them; the answers are still told."""
        self.clock = connected.database.clock
        self.deadline = None if timeout_seconds is None else self.clock.monotonic() + timeout_seconds

    def outcome(self, command: str, answer: Answer) -> str:
        """Return "applied" once the effect is there; raise when the command came to nothing, or the time is over."""
        while True:  # ends: an outcome, the time is over, or interrupted
            found = self._look(command, answer)
            if found is not None:
                return found
            if self.deadline is not None and self.clock.monotonic() >= self.deadline:
                raise WaitTimeout(f"job {answer.id}: the time is over; the command stays given", job_id=answer.id)
            self.interruption.wait(self.clock, LOOK_SECONDS)

    def _look(self, command: str, answer: Answer) -> str | None:
        try:
            if answer.request_id is None:
                return self._effect(command, answer.id)
            return self._concluded(command, answer.id, answer.request_id)
        except Retryable:
            return None

    def _concluded(self, command: str, job_id: int, request_id: str) -> str | None:
        """Read the one outcome that the request has, or will have."""
        from tideshift.store import events

        ends = [event for event in story_of(self.connected, job_id) if event.kind == "outcome" and event.request_id == request_id]
        if not ends:
            return None
        outcome, detail = ends[0].target, ends[0].detail or {}
        if outcome == events.Outcome.APPLIED:
            return str(outcome)
        reason = detail.get("reason") or "no reason is recorded"
        raise CommandRefused(f"job {job_id}: {command} {outcome}: {reason}", job_id=job_id, outcome=str(outcome), request_id=request_id)

    def _effect(self, command: str, job_id: int) -> str | None:
        """See by the state whether what was asked for is so; values are in force once no change of them is open."""
        from tideshift.ddl.machine import JOB
        from tideshift.store import events

        job = self.connected.ddl.job(job_id)
        if command == "set":
            waits = self.connected.database.run(lambda tx: events.open_requests(tx, job_id=job_id, commands=("alter",)), write=False)
            return "applied" if job.state in JOB.final or not waits else None
        if job.state in EFFECTS[command]:
            return "applied"
        if job.state in JOB.final:
            raise CommandRefused(f"job {job_id}: {command} came to nothing: the job is {job.state}", job_id=job_id, state=str(job.state))
        return None
