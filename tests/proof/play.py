"""Scripted scenes: a job in one database, none in its twin, the same statements in both at exactly chosen moments.

`faults` is what a proof run would have reported: another outcome, other rows, another end, or a row that verification had to
repair. A scene is clean with the product as it is, and must not be with a mutant of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.proof.engine import Engine, Stuck, application, library, repairs
from tests.proof.oracle import answer
from tests.proof.reload import holds
from tests.proof.shapes import SHAPES, Shape, make, rebuild
from tideshift.ddl.machine import JobState

__all__ = ["Play", "playing", "second_write_transaction", "small"]


def small(name: str, **changes: Any) -> Shape:
    """Return a shape with few rows."""
    return replace(next(shape for shape in SHAPES if shape.name == name), **{"rows": 60, **changes})


def second_write_transaction(act: Callable[..., None]) -> Callable[..., None]:
    """Return what acts where a cut-over begins its second writing transaction: the first one drains, the second one swaps."""
    seen: list[bool] = []

    def begin(*, write: bool) -> None:
        seen.extend([True] * write)
        if len(seen) == 2:
            seen.append(True)
            act()

    return begin


class Play:
    """One scene."""

    def __init__(self, folder: Path, shape: Shape, *, batch_size: int = 6) -> None:
        self.shape = shape
        self.paths = (folder / "with.db", folder / "without.db")
        for path in self.paths:
            make(path, shape, journal_mode="wal")
        self.engine = Engine(self.paths[0])
        self.connections = tuple(application(path) for path in self.paths)
        self.job_id = self.engine.submit(shape.statement, batch_size=batch_size)
        self.faults: list[str] = []

    def close(self) -> None:
        """Close everything."""
        for connection in self.connections:
            connection.close()
        self.engine.close()

    def both(self, sql: str, *binds: object) -> None:
        """Run a statement in both databases; another outcome is a fault."""
        with_job, without_job = (answer(connection, (sql, binds)) for connection in self.connections)
        if with_job != without_job:
            self.faults.append(f"{sql} {binds}: {with_job} with a job, {without_job} without")

    def reach(self, stage: str) -> None:
        """Turn until the job stands at a stage."""
        if not self.faults:
            self.noticing(lambda: self.engine.until_stage(self.job_id, stage))

    def noticing(self, act: Callable[[], object]) -> None:
        """Do something; not coming to its end is a fault."""
        try:
            act()
        except Stuck as stuck:
            self.faults.append(str(stuck))

    def restart(self) -> None:
        """Let the process die, as far as its memory goes, and let another one go on."""
        self.engine.close()
        self.engine = Engine(self.paths[0], later_seconds=60)

    def end(self, *, state: JobState = JobState.SYNCED, code: str | None = None, repaired: int = 0) -> list[str]:
        """Let the job end and hold everything against what must be; return all faults."""
        if self.faults:
            return self.faults
        self.noticing(lambda: self.engine.finish(self.job_id))
        if self.faults:
            return self.faults
        job = self.engine.job(self.job_id)
        seen_code = job.error["code"] if job.error else None
        if (job.state, seen_code) != (state, code):
            self.faults.append(f"the job ended {job.state} with {job.error}")
        try:
            if job.state is JobState.SYNCED:
                rebuild(self.paths[1], self.shape)
        except library().Error as error:
            self.faults.append(f"the classic rebuild refuses what the job carried out: {error}")
        self._hold_rows()
        if (seen := repairs(self.paths[0])) != repaired:
            self.faults.append(f"verification repaired {seen} rows, not {repaired}")
        return self.faults

    def _hold_rows(self) -> None:
        one, other = (holds(path)["rows"] for path in self.paths)
        for table in other:
            if one[table] != other[table]:
                odd = [row for row in (*one[table], *other[table]) if (row in one[table]) != (row in other[table])]
                self.faults.append(f"the rows of {table} differ: {odd[:4]}")


@contextmanager
def playing(folder: Path, shape: Shape, *, batch_size: int = 6) -> Iterator[Play]:
    """Open a scene and close it at the end."""
    play = Play(folder, shape, batch_size=batch_size)
    try:
        yield play
    finally:
        play.close()
