"""One stream of statements beside one job, from its submission to its end."""

from __future__ import annotations

from pathlib import Path
from random import Random

from tests.proof.engine import on_engine
from tests.proof.oracle import Oracle
from tests.proof.shapes import Shape, make
from tideshift.ddl.job import Job
from tideshift.failpoint.pytest_plugin import Failpoints

__all__ = ["beside"]


def beside(
    folder: Path, shape: Shape, random: Random, failpoints: Failpoints, *, journal_mode: str, refusing: bool = False
) -> tuple[Oracle, Job]:
    """Run one stream beside one job from its submission to its end."""
    paths = (folder / "with.db", folder / "without.db")
    for path in paths:
        make(path, shape, journal_mode=journal_mode)
    with on_engine(paths[0], parts=8) as engine:
        oracle = Oracle(engine, *paths, shape, random, wal=journal_mode == "wal")
        try:
            oracle.watch(failpoints)
            oracle._run("before the job", 20)
            oracle._close_transaction()
            oracle.busy = True  # planning and submission are the client's, not the job's
            oracle.job_id = engine.submit(shape.statement, batch_size=12)
            oracle.busy = False
            if refusing:
                engine.until_stage(oracle.job_id, "copy")
                oracle.stream.refusing = True
            oracle.drive()
            oracle.compare()
            return oracle, engine.job(oracle.job_id)
        finally:
            oracle.close()
