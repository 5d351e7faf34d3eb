"""Which queued job may start: strict fairness by id on every object, nobody overtakes on the same table."""

from __future__ import annotations

from collections.abc import Iterable

from tideshift.ddl.job import Job
from tideshift.ddl.machine import JobState

__all__ = ["Claims", "admits", "runnable"]


class Claims:
    """The objects that jobs hold or wait for: name -> whether any claim on it is exclusive."""

    def __init__(self) -> None:
        self._held: dict[str, bool] = {}

    def admits(self, objects: Iterable[dict[str, str]]) -> bool:
        """Whether these objects meet no claim; two shared claims do not meet."""
        return all(
            wanted["name"] not in self._held or (wanted["mode"] == "shared" and not self._held[wanted["name"]]) for wanted in objects
        )

    def add(self, objects: Iterable[dict[str, str]]) -> None:
        """Claim these objects too."""
        for claimed in objects:
            self._held[claimed["name"]] = self._held.get(claimed["name"], False) or claimed["mode"] == "exclusive"


def admits(objects: Iterable[dict[str, str]], others: Iterable[Job]) -> bool:
    """Whether these objects meet none that a job which has started holds."""
    claims = Claims()
    for job in others:
        if job.started_at is not None:
            claims.add(job.objects)
    return claims.admits(objects)


def runnable(live: Iterable[Job]) -> list[Job]:
    """Return the queued jobs that may start now, in order of id.

    A job that has started holds its objects in every state, also when it is queued again after a resume: what it made
    stands on them. One that has not started, whether queued or paused, only keeps its place before later ones.
    """
    jobs = sorted(live, key=lambda job: job.id)
    claims = Claims()
    for job in jobs:
        if job.started_at is not None:
            claims.add(job.objects)
    chosen: list[Job] = []
    for job in jobs:
        if job.state is JobState.QUEUEING and (job.started_at is not None or claims.admits(job.objects)):
            chosen.append(job)
        claims.add(job.objects)
    return chosen
