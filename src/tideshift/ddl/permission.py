"""What may be asked of a job now, and which rule forbids the rest; derived from the machine and the point of no return."""

from __future__ import annotations

from tideshift.ddl.job import Job
from tideshift.ddl.machine import JOB, JobState
from tideshift.fsm import Actor

__all__ = ["COPIED", "allowed", "why_not"]

COPIED = "the database was restored, cloned or failed over"
"""Why the jobs of a copy wait for a person."""


def why_not(seen: Job, command: str) -> str | None:
    """Return the rule that forbids the command now, or None where it is allowed."""
    if seen.state in JOB.final:
        return f"the job is finished: {seen.state}"
    if command in ("cancel", "pause") and (not seen.revertible or seen.state is JobState.DONE):
        return "the job is past its point of no return: the new shape is in place"
    if JOB.target(seen.state, command) is None:
        sources = ", ".join(sorted(JOB.sources(command)))
        return f"the job is {seen.state}; {command} is possible while it is {sources}"
    return None


def allowed(seen: Job) -> list[str]:
    """Return the commands that a person may give now, by the names of the command line."""
    events = [event for event in JOB.allowed(seen.state, Actor.USER) if why_not(seen, event) is None]
    return ["set" if event == "alter" else event for event in events]
