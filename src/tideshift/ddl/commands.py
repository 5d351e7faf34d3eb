"""What a client may ask of jobs: plan, submit, look, pause, resume, cancel, alter.

A command is one transaction: read the row, decide by the machine and the point of no return, write with the row's `rev`.
It answers per job: applied, already so, or refused because of a named rule; an acknowledged one has exactly one outcome.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from tideshift import errors
from tideshift.config import PARAMETERS, parse_parameters
from tideshift.ddl import points, tables, view
from tideshift.ddl.actions.shadow import CUT_OVER
from tideshift.ddl.change import Change
from tideshift.ddl.dialect import Dialect
from tideshift.ddl.job import Job
from tideshift.ddl.machine import JobState
from tideshift.ddl.permission import COPIED, why_not
from tideshift.ddl.plan import Proposal, located, propose, read_change
from tideshift.ddl.reshaping import Strategy
from tideshift.dxf.commands import Answer, Verdict, settled, unsettled
from tideshift.dxf.parameters import refuse_where_one_writes
from tideshift.store import events
from tideshift.store.bootstrap import installation_changed
from tideshift.store.database import Database, Transaction

__all__ = ["STRATEGIES_TO_WISH", "Ddl"]

_J = JobState
_ALREADY = {
    "pause": (_J.PAUSING, _J.PAUSED),
    "resume": (_J.QUEUEING, _J.RUNNING),
    "cancel": (_J.CANCELLING, _J.ROLLINGBACK, _J.ROLLBACK_DONE, _J.CANCELLED),
}
_SUPERSEDES = {"cancel": ("pause", "resume", "alter"), "pause": ("resume",), "resume": ()}

STRATEGIES_TO_WISH = {"instant": Strategy.INSTANT, "direct": Strategy.DIRECT, "shadow_table": Strategy.SHADOW_TABLE, "in_place": Strategy.IN_PLACE_COLUMN}
KEEP_OLD_SECONDS_MAX = 100 * 366 * 86_400.0


class Ddl:
    """The commands on jobs of one database."""

    def __init__(self, database: Database, dialect: Dialect, *, actor: str = "api") -> None:
        self.database = database
        self.dialect = dialect
        self.actor = actor

    def plan(self, statement: str | Change, *, strategy: str | None = None, allow_column_order_change: bool = False) -> Proposal:
        """Work out what a change would do; writes nothing and needs no system tables.

        `strategy` asks for one way (instant, direct, shadow_table, in_place; None: the cheapest that does it right), and
        `allow_column_order_change` lets a column be changed in place where there is no other way or it is asked for. Raises
        `BadStatement`, `NotFound`, or `PlanRefused` with every reason.
        """
        change = read_change(statement, self.dialect.grammar)
        with self.database.transaction(write=False) as tx, located(statement, self.dialect.grammar):
            return propose(tx, self.dialect, change, strategy=_strategy(strategy), column_order_may_change=allow_column_order_change)

    def submit(
        self, statement: str | Change, *, parameters: Mapping[str, Any] | None = None, keep_old_seconds: float | None = None,
        strategy: str | None = None, allow_column_order_change: bool = False,
    ) -> Job:  # fmt: skip
        """Submit a change as a durable job; it is planned first, and refused before anything is written.

        `keep_old_seconds` is how long the replaced table stays (None: the dialect's default); the rest as in `plan`.
        """
        wished = self._wished(parameters or {})
        change = read_change(statement, self.dialect.grammar)
        proposal = self.plan(statement, strategy=strategy, allow_column_order_change=allow_column_order_change)
        keep = self.dialect.capabilities.keep_old_seconds if keep_old_seconds is None else keep_old_seconds
        if not 0 <= keep <= KEEP_OLD_SECONDS_MAX:
            raise errors.InvalidParameter(f"keep_old: {keep} is outside 0 seconds to 100 years")
        query = statement if isinstance(statement, str) else repr(change)
        reshaping = proposal.plan.reshaping

        def insert(tx: Transaction) -> Job:
            now = tx.now_ms()
            values = {name: {"value": wished.get(name, PARAMETERS[name].default), "since": now} for name in PARAMETERS}
            return tables.insert_job(
                tx, actor=self.actor, type=change.kind, schema_name=reshaping.table.schema, table_name=reshaping.table.name,
                objects=[asdict(claim) for claim in reshaping.claims], query=query, change=change.as_record(),
                plan=proposal.plan.as_record(), plan_version=proposal.plan.version, strategy=str(reshaping.strategy), strategy_wished=_strategy(strategy),
                parameters=values, keep_old_seconds=keep, warnings=list(proposal.warnings), row_total=proposal.rows,
                row_total_exact=proposal.rows_exact,
            )  # fmt: skip

        job = self.database.run(insert)
        if points.AFTER_SUBMIT.on:
            points.AFTER_SUBMIT.fire(job=job.id)
        return job

    def job(self, job_id: int) -> Job:
        """Read a job, live or finished; raise `NotFound`."""
        return self.database.run(lambda tx: tables.job_by_id(tx, job_id), write=False)

    def show(self, job_id: int) -> dict[str, Any]:
        """Return a job as front ends show it."""
        return self.database.run(lambda tx: view.job_view(tx, self.dialect, tables.job_by_id(tx, job_id)), write=False)

    def jobs(self, *, finished: int = 10, before: int | None = None) -> tuple[list[dict[str, Any]], int | None]:
        """Return all live and some finished jobs as front ends show them, newest first, and where the next page begins."""

        def read(tx: Transaction) -> tuple[list[dict[str, Any]], int | None]:
            live = [] if before is not None else tables.live_jobs(tx)
            recent = tables.recent_jobs(tx, limit=finished + 1, before=before)
            shown = sorted([*live, *recent[:finished]], key=lambda job: -job.id)
            # The next page begins below the last one shown; when none was wanted, with the newest itself.
            below = None if not recent else recent[finished - 1].id if 0 < finished <= len(recent) else recent[0].id + 1
            more = below if len(recent) > finished else None
            return [view.job_view(tx, self.dialect, job) for job in shown], more

        return self.database.run(read, write=False)

    def pause(self, *job_ids: int) -> list[Answer]:
        """Ask these jobs to pause."""
        return self._give("pause", job_ids)

    def resume(self, *job_ids: int) -> list[Answer]:
        """Ask these jobs to go on."""
        return self._give("resume", job_ids)

    def cancel(self, *job_ids: int) -> list[Answer]:
        """Ask these jobs to end and to undo what they made."""
        return self._give("cancel", job_ids)

    def alter(self, job_id: int, parameters: Mapping[str, Any], *, if_rev: int | None = None) -> Answer:
        """Wish other parameters for a job; the running subtask takes them over within a second."""
        wished = self._wished(parameters)
        if not wished:
            raise errors.InvalidParameter("nothing to set", hint="Name at least one parameter: " + ", ".join(PARAMETERS))
        return self._ask(job_id, lambda tx, seen: self._alter(tx, seen, wished, if_rev=if_rev))

    def _wished(self, parameters: Mapping[str, Any]) -> dict[str, Any]:
        wished = parse_parameters(parameters)
        refuse_where_one_writes(wished, concurrent_writers=self.dialect.capabilities.concurrent_writers)
        return wished

    def _give(self, command: str, job_ids: tuple[int, ...]) -> list[Answer]:
        """Give one command to several jobs; those of a copied database wait for a person's word on the copy first."""
        if installation_changed(self.database) is not None:
            reason = f"{COPIED}: say what shall become of its jobs with doctor --adopt or doctor --clean"
            return [self._ask(job_id, lambda _, seen: _refused(seen, reason)) for job_id in job_ids]
        return [self._ask(job_id, lambda tx, seen: self._command(tx, seen, command)) for job_id in job_ids]

    def _command(self, tx: Transaction, seen: Job, command: str) -> Answer:
        if seen.state in _ALREADY[command]:
            return Answer(id=seen.id, verdict=Verdict.ALREADY, reason=f"the job is {seen.state}", state=seen.state, rev=seen.rev)
        reason = why_not(seen, command)
        if reason is not None:
            return _refused(seen, reason)
        if points.AFTER_COMMAND_READ.on:
            points.AFTER_COMMAND_READ.fire(job=seen.id, command=command)
        request_id = events.request(tx, actor=self.actor, command=command, job_id=seen.id)
        moved = tables.move_job(tx, seen, command, actor=self.actor, request_id=request_id)
        for request in events.open_requests(tx, job_id=seen.id):
            if request.command in _SUPERSEDES[command]:
                events.conclude(tx, request.request_id, events.Outcome.SUPERSEDED, reason=f"by {command}", by=request_id)
        reason = f"the job is {moved.state}"
        return Answer(id=seen.id, verdict=Verdict.APPLIED, reason=reason, state=moved.state, request_id=request_id, rev=moved.rev)

    def _alter(self, tx: Transaction, seen: Job, wished: dict[str, Any], *, if_rev: int | None) -> Answer:
        reason = why_not(seen, "alter")
        if reason is None and if_rev is not None and all(seen.parameters[name]["value"] == value for name, value in wished.items()):
            # So it is also after a commit whose answer was lost: it has raised the rev itself.
            return Answer(id=seen.id, verdict=Verdict.ALREADY, reason="these values are wished already", state=seen.state, rev=seen.rev)
        if reason is None and if_rev is not None and seen.rev != if_rev:
            reason = f"the job is at rev {seen.rev}, not {if_rev}"
        if reason is not None:
            return _refused(seen, reason)
        if points.AFTER_COMMAND_READ.on:
            points.AFTER_COMMAND_READ.fire(job=seen.id, command="alter")
        request_id = events.request(tx, actor=self.actor, command="alter", job_id=seen.id, detail={"wished": wished})
        now = tx.now_ms()
        parameters = {**seen.parameters, **{name: {"value": value, "since": now} for name, value in wished.items()}}
        before = {name: seen.parameters[name]["value"] for name in wished}
        moved = tables.move_job(
            tx, seen, "alter", actor=self.actor, request_id=request_id, parameters=parameters, detail={"before": before, "after": wished}
        )
        for request in events.open_requests(tx, job_id=seen.id, commands=("alter",)):
            if request.request_id != request_id and set(request.detail["wished"]) <= set(wished):
                events.conclude(tx, request.request_id, events.Outcome.SUPERSEDED, reason="by set", by=request_id)
        # What the owner reads at each try of the cut-over is in force at once, as long as that is still to come.
        at_once = all(PARAMETERS[name].of_cutover for name in wished) and any(stage.name == CUT_OVER.name for stage in seen.current_plan.stages[seen.stage :])
        if seen.started_at is None or at_once:
            events.conclude(tx, request_id, events.Outcome.APPLIED)
        return Answer(id=seen.id, verdict=Verdict.APPLIED, reason="recorded", state=moved.state, request_id=request_id, rev=moved.rev)

    def _ask(self, job_id: int, command: Callable[[Transaction, Job], Answer]) -> Answer:
        def attempt() -> Answer:
            with self.database.transaction() as tx:
                return command(tx, tables.job_by_id(tx, job_id))

        try:
            return settled(attempt)
        except errors.NotFound as error:
            return Answer(id=job_id, verdict=Verdict.NOT_FOUND, reason=error.message)
        except (errors.StateChanged, errors.Retryable, errors.AmbiguousCommit) as error:
            return unsettled(job_id, error)


def _strategy(name: str | None) -> Strategy | None:
    if name is None:
        return None
    if name not in STRATEGIES_TO_WISH:
        raise errors.InvalidParameter(f"strategy: {name!r} cannot be asked for", hint=f"Ask for one of: {', '.join(STRATEGIES_TO_WISH)}")
    return STRATEGIES_TO_WISH[name]


def _refused(seen: Job, reason: str) -> Answer:
    return Answer(id=seen.id, verdict=Verdict.REFUSED, reason=reason, state=seen.state, rev=seen.rev)
