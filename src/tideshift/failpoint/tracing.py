"""Recording which points a run passes, in order: what a crash driver enumerates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from tideshift.failpoint.registry import add_recorder, remove_recorder


class TracedHit(NamedTuple):
    """One pass of one point."""

    name: str
    context: Mapping[str, object]


@contextmanager
def trace() -> Iterator[list[TracedHit]]:
    """Record every pass of every declared point, in all threads and registries of the process, in order."""
    hits: list[TracedHit] = []

    def record(name: str, context: Mapping[str, object]) -> None:
        hits.append(TracedHit(name, context))  # appending to a list is atomic, so no lock is needed

    add_recorder(record, every_point_on=True)
    try:
        yield hits
    finally:
        remove_recorder(record)


def ordinals(hits: Iterable[TracedHit]) -> list[tuple[str, int]]:
    """Each pass as (point, n-th pass of that point, from 1); `skip(n - 1) 1*exit(9)` strikes exactly there."""
    seen: Counter[str] = Counter()
    places: list[tuple[str, int]] = []
    for hit in hits:
        seen[hit.name] += 1
        places.append((hit.name, seen[hit.name]))
    return places
