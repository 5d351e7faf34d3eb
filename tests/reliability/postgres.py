"""The proofs that need a server of PostgreSQL, as lists of runs: writers beside every kind of change, deaths of a process, deaths of the server."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from tests.dialects.postgres.beside_writers import KINDS, carry_out_beside_writers
from tests.dialects.postgres.crashes import SCENARIOS, golden, portrait, strike, twin
from tests.dialects.postgres.stepping import as_if_large
from tests.dialects.postgres.stopped import MAJORS_STOPPED, stopped_at
from tests.servers import PostgresServer, fast_folder

__all__ = ["ROWS_WRITTEN", "place_keys", "run_place", "run_stop", "run_writers", "stop_keys", "writer_keys"]

ROWS_WRITTEN = int(os.environ.get("TIDESHIFT_PROOF_ROWS", "100000"))
TABLE_ROWS = 4_000
STOPS = int(os.environ.get("TIDESHIFT_PROOF_STOPS", "20"))
MAJOR = 15


@cache
def _server(major: int = MAJOR) -> PostgresServer:
    """The server of this process, which ends with it."""
    server = PostgresServer(major=major)
    server.start()
    return server


@contextmanager
def _databases(count: int) -> Iterator[list[str]]:
    server = _server()
    names = [server.create_database() for _ in range(count)]
    try:
        yield [server.url(name) for name in names]
    finally:
        for name in names:
            server.drop_database(name)


def writer_keys(seed: int, stride: int) -> Iterator[str]:
    """Yield a kind of change and a seed."""
    yield from (f"{kind}/{seed}" for kind in list(KINDS)[::stride])


def run_writers(key: str) -> tuple[tuple[str, ...], dict[str, int]]:
    """Carry one kind of change out beside writers; return what was wrong, and what was measured."""
    kind, _, seed = key.partition("/")
    with tempfile.TemporaryDirectory(dir=fast_folder()) as folder, _databases(2) as urls:
        report = carry_out_beside_writers(urls, Path(folder), KINDS[kind], seed=int(seed), rows_wanted=ROWS_WRITTEN, table_rows=TABLE_ROWS)
    figures = {name: value for name, value in vars(report).items() if isinstance(value, int)}
    return tuple(report.wrong), figures


@cache
def _golden(name: str) -> tuple[list[tuple[str, int]], list[Any]]:
    """Return every distinct place of an undisturbed run, and what it leaves, which the server's own change leaves too."""
    with as_if_large(pytest.MonkeyPatch()):
        with _databases(1) as (url,):
            places, expected = golden(url, SCENARIOS[name]), portrait(url, with_state=True)
        with _databases(1) as (url,):
            assert expected[1:] == twin(url, SCENARIOS[name]), f"{name}: the undisturbed run differs from the server's own change"
    return places, expected


def place_keys(seed: int, stride: int) -> Iterator[str]:
    """Yield a scenario and a place to die at."""
    for name in SCENARIOS:
        places = Random(f"{seed}/{name}").sample(_golden(name)[0], len(_golden(name)[0]))
        yield from (f"{name} {point}:{ordinal}" for point, ordinal in places[::stride])


def run_place(key: str) -> tuple[bool, tuple[str, ...]]:
    """Die at one place and go on; return whether it struck, and what was wrong."""
    name, _, place = key.partition(" ")
    point, _, ordinal = place.rpartition(":")
    _, expected = _golden(name)
    with as_if_large(pytest.MonkeyPatch()), _databases(1) as (url,):
        struck = strike(url, SCENARIOS[name], (point, int(ordinal)))
        found = portrait(url, with_state=True)
    return struck, tuple(f"part {number} differs: {one} instead of {other}"[:500] for number, (one, other) in enumerate(zip(found, expected, strict=True)) if one != other)


def stop_keys(seed: int, stride: int) -> Iterator[str]:
    """Yield a version of the server and the number of a moment."""
    yield from (f"{MAJORS_STOPPED[n % len(MAJORS_STOPPED)]}/{seed * STOPS + n}" for n in range(0, STOPS, stride))


def run_stop(key: str) -> tuple[str, ...]:
    """Stop a server of this run's own at one moment; return what was wrong."""
    major, _, number = key.partition("/")
    server = PostgresServer(major=int(major))
    try:
        server.start()
        return tuple(stopped_at(server, [Random(int(number)).random()], seed=int(number)))
    finally:
        server.remove()
