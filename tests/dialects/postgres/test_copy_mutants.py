"""Scenes that are clean with the product as it is, and go red with each mutant of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest

from tests.conformance.planned import WHOLE
from tests.dialects.postgres.mutants import CHUNK_THREAD, MUTANTS
from tests.dialects.postgres.stepping import Engine, application, on_engine, rows
from tests.dialects.postgres.test_fence import WAITING
from tests.dialects.postgres.verbs import Begin, ByVerbs
from tests.waiting import until
from tideshift.ddl.dialect import BuildGroup
from tideshift.ddl.machine import JobState
from tideshift.ddl.points import AFTER_SWAP
from tideshift.dxf.points import BEFORE_CHUNK
from tideshift.errors import LockTimeout, ValueRefused
from tideshift.failpoint import disable, enable
from tideshift.store.points import BEFORE_BEGIN

MAJORS = (15,)
TABLE = """
CREATE TABLE parent (id int PRIMARY KEY);
INSERT INTO parent SELECT generate_series(0, 9);
CREATE TABLE t (id int PRIMARY KEY, u int UNIQUE, p int REFERENCES parent, c text, d int);
INSERT INTO t SELECT i, i, i % 10, 'c' || i, i FROM generate_series(1, 20) i
"""
CHANGE = "ALTER TABLE t ALTER d TYPE bigint"
Scene = Callable[[Begin, str], list[str]]


def early(begin: Begin) -> ByVerbs:
    """Begin with a copy that has its key's index, so that chunks and the applier go on at once."""
    change = begin(TABLE, CHANGE)
    change.install()
    change.build(BuildGroup.KEY)
    return change


def faults_of(change: ByVerbs) -> list[str]:
    """Apply what is left and compare, not by the product's own comparison."""
    change.apply()
    found, wanted = change.copied("id, u, p, c, d"), change.execute("SELECT id, u, p, c, d FROM t ORDER BY id")
    return [] if found == wanted else [f"the copy differs: {set(found) ^ set(wanted)}"]


def deleted_beside_its_chunk(begin: Begin, url: str) -> list[str]:
    change = early(begin)
    with change.writing() as copying:
        change.shadow.copy_chunk(copying, change.reorg, WHOLE, rows_max=100)
        change.execute("DELETE FROM t WHERE id = 5")
        with suppress(LockTimeout), change.database.transaction(lock_wait_seconds=0.05) as applying:
            change.shadow.apply_batch(applying, change.reorg, rows_max=100)
    return faults_of(change)


def chunk_waits(begin: Begin, url: str) -> list[str]:
    change = early(begin)

    def copy() -> None:
        with change.database.transaction(lock_wait_seconds=30) as tx:
            change.shadow.copy_chunk(tx, change.reorg, WHOLE, rows_max=100)

    thread = threading.Thread(target=copy, name=CHUNK_THREAD)
    with change.writing() as applying:
        change.shadow.apply_batch(applying, change.reorg, rows_max=100)
        thread.start()
        until(lambda: rows(url, WAITING), lambda: "the chunk waits for the fence")
        change.execute("DELETE FROM t WHERE id = 5")
        change.shadow.apply_batch(applying, change.reorg, rows_max=100)
    thread.join()
    return faults_of(change)


def key_moved(begin: Begin, url: str) -> list[str]:
    change = early(begin)
    change.copy_rows()
    change.execute("UPDATE t SET id = 500 WHERE id = 5")
    return faults_of(change)


def batch_is_lost(begin: Begin, url: str) -> list[str]:
    change = early(begin)
    change.copy_rows()
    change.execute("UPDATE t SET c = 'late' WHERE id = 5; DELETE FROM t WHERE id = 6")
    with suppress(ZeroDivisionError), change.writing() as tx:
        change.shadow.apply_batch(tx, change.reorg, rows_max=100)
        raise ZeroDivisionError
    return faults_of(change)


def handed_on_between_batches(begin: Begin, url: str) -> list[str]:
    change = begin(TABLE.replace("UNIQUE", "UNIQUE DEFERRABLE"), CHANGE)
    change.install()
    change.copy()
    change.execute("UPDATE t SET u = 7 - u WHERE id IN (2, 5)")
    change.apply(rows_max=1)
    change.apply(rows_max=1)
    return faults_of(change)


def crosses_the_front(begin: Begin, url: str) -> list[str]:
    change = begin(TABLE, CHANGE)
    change.install()
    with change.writing() as tx:
        chunk = change.shadow.copy_chunk(tx, change.reorg, WHOLE, rows_max=10)
    change.execute("UPDATE t SET u = NULL WHERE id = 2; UPDATE t SET u = 2 WHERE id = 15")
    with change.writing() as tx:
        change.shadow.copy_chunk(tx, change.reorg, type(WHOLE)(chunk.last, None), rows_max=100)
    try:
        change.build(BuildGroup.KEY, BuildGroup.ENFORCING)
    except ValueRefused as refused:
        return [f"a valid table was refused: {refused.message}"]
    return faults_of(change)


def parent_deleted(begin: Begin, url: str) -> list[str]:
    change = begin(TABLE, CHANGE)
    change.install()
    change.copy_rows()
    change.execute("DELETE FROM t WHERE p = 9")
    try:
        change.execute("DELETE FROM parent WHERE id = 9")
    except psycopg.Error as error:
        return [f"the application's statement failed: {error}"]
    return faults_of(change)


def copy_damaged(begin: Begin, url: str) -> list[str]:
    change = early(begin)
    change.copy_rows()
    shadow = change.named("shadow")
    change.execute(f"DELETE FROM {shadow} WHERE id = 4; UPDATE {shadow} SET c = 'damaged' WHERE id = 5; INSERT INTO {shadow} (id, c) VALUES (-4, 'nobody')")
    keys = change.differing()
    assert len(keys) == 3
    with change.writing() as tx:
        change.shadow.request_repair(tx, change.reorg, tuple(keys))
    return faults_of(change)


# ── with the whole engine ─────────────────────────────────────────────────────────────────────────────────────────


def started(engine: Engine, stage: int) -> int:
    """Begin the change and come to a stage."""
    job_id = engine.ddl.submit(CHANGE, strategy="shadow_table", keep_old_seconds=0).id
    engine.until(job_id, lambda job: job.stage >= stage)
    return int(job_id)


def frozen_attempt(begin: Begin, url: str) -> list[str]:
    with application(url) as app:
        app.execute(TABLE.encode())
    faults: list[str] = []
    with on_engine(url) as engine:
        job_id = started(engine, 1)
        seen: list[int] = []

        def in_copy() -> int:
            (name,) = rows(url, "SELECT oid::regclass::text FROM pg_class WHERE relname LIKE 'tideshift\\_%\\_shadow'")[0]
            return int(rows(url, f"SELECT count(*) FROM {name}")[0][0])

        def freeze(**_: object) -> None:
            """While this attempt stands before its transaction, a person pauses the job and the owner ends the attempt."""
            for point in (BEFORE_BEGIN, BEFORE_CHUNK):
                disable(point)
            engine.ddl.pause(job_id)
            for _ in range(10):
                engine.clock.advance(0.05)
                for member in engine.cluster.members.values():
                    member.owner.tick()
            assert engine.ddl.job(job_id).state is JobState.PAUSED
            seen.append(in_copy())

        with enable(BEFORE_CHUNK, call=lambda **_: enable(BEFORE_BEGIN, call=freeze, where={"write": True})):
            engine.until(job_id, lambda _: seen)
        if in_copy() != seen[0]:
            faults.append(f"a paused job copied on: {seen[0]} rows, then {in_copy()}")
        engine.ddl.resume(job_id)
        ended = engine.finish(job_id)
    return faults if ended.state is JobState.SYNCED else [*faults, f"ended {ended.state}"]


def cancelled_before_the_commit(begin: Begin, url: str) -> list[str]:
    with application(url) as app:
        app.execute(TABLE.encode())
    with on_engine(url) as engine:
        job_id = started(engine, 2)
        verdicts: list[str] = []
        with enable(AFTER_SWAP, call=lambda **_: verdicts or verdicts.append(str(engine.ddl.cancel(job_id)[0].verdict))):
            ended = engine.finish(job_id)
    assert verdicts == ["applied"]
    return [] if ended.state is JobState.ROLLBACK_DONE else [f"ended {ended.state}"]


SCENES: dict[str, Scene] = {
    "a row is deleted while its chunk is under way": deleted_beside_its_chunk,
    "a chunk waits for the applier": chunk_waits,
    "a key is moved": key_moved,
    "a batch does not come to its commit": batch_is_lost,
    "a frozen attempt wakes up in a paused job": frozen_attempt,
    "a unique value goes from row to row between batches": handed_on_between_batches,
    "a unique value crosses the copy's front": crosses_the_front,
    "a parent is deleted after its child": parent_deleted,
    "the copy is damaged": copy_damaged,
    "a cancel comes right before the commit of the swap": cancelled_before_the_commit,
}


@pytest.fixture(autouse=True)
def nothing_on() -> Iterator[None]:
    """Leave no failpoint on, whatever a scene ends with."""
    yield
    for point in (BEFORE_BEGIN, BEFORE_CHUNK, AFTER_SWAP):
        disable(point)


@pytest.mark.parametrize("name", SCENES)
def test_the_scene_is_clean_with_the_product_as_it_is(name: str, begin: Begin, postgres_url: str) -> None:
    """Outcomes, rows and the job's end are as they must be."""
    assert SCENES[name](begin, postgres_url) == []


@pytest.mark.parametrize("name", MUTANTS)
def test_the_mutant_goes_red_in_its_scene(name: str, begin: Begin, postgres_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one rule taken out the same scene shows a fault."""
    mutate, scene, fault = MUTANTS[name]
    mutate(monkeypatch)
    faults: Any = SCENES[scene](begin, postgres_url)

    assert any(fault in one for one in faults), f"{name} was not noticed: {faults}"


def test_each_scene_has_its_mutant() -> None:
    """No scene stands for nothing."""
    assert {scene for _, scene, _ in MUTANTS.values()} == set(SCENES)
