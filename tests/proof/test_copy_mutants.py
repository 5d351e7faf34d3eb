"""Scenes that are clean with the product as it is, and go red with each mutant of it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.proof.engine import application
from tests.proof.mutants import MUTANTS, forget_texts
from tests.proof.play import Play, playing, second_write_transaction, small
from tideshift.ddl.machine import JobState
from tideshift.ddl.points import BEFORE_CUTOVER, IN_CUTOVER
from tideshift.dialects.points import APPLY_CONSUME
from tideshift.dialects.sqlite import catch_up
from tideshift.dxf.points import BEFORE_CHUNK
from tideshift.failpoint import disable, enable
from tideshift.store.points import AFTER_COMMIT, BEFORE_BEGIN

Scene = Callable[[Path], list[str]]


class ProcessDied(BaseException):
    """What a test raises where a process dies."""


def key_moved(folder: Path) -> list[str]:
    with playing(folder, small("counted")) as play:
        play.reach("cut over")
        play.both("UPDATE t SET k = 5000, u = 'moved', n = 'moved', v = NULL WHERE k = 10")
        return play.end()


def row_displaced(folder: Path) -> list[str]:
    with playing(folder, small("counted")) as play:
        play.reach("cut over")
        play.both("INSERT OR REPLACE INTO t (k, u, n) VALUES (6000, 'u20', 'n6000')")
        play.both("UPDATE OR REPLACE t SET v = 30 WHERE k = 31")
        return play.end()


def displaced_under_using(folder: Path) -> list[str]:
    with playing(folder, small("unique by USING")) as play:
        play.reach("cut over")
        play.both("INSERT OR REPLACE INTO t (k, u, n, amount) VALUES (6000, 'u6000', 'n6000', 30)")
        play.both("UPDATE OR REPLACE t SET amount = 33 WHERE k = 13")
        return play.end()


def default_displaces(folder: Path) -> list[str]:
    with playing(folder, small("computed")) as play:
        play.reach("cut over")
        play.both("UPDATE OR REPLACE t SET n = NULL WHERE k = 12")
        return play.end()


def dies_after_consumption(folder: Path) -> list[str]:
    seen: list[bool] = []

    def die(**_: object) -> None:
        if seen:
            raise ProcessDied

    with playing(folder, small("counted")) as play:
        play.reach("cut over")
        play.both("UPDATE t SET note = 'changed late' WHERE k IN (3, 30)")
        play.both("DELETE FROM t WHERE k = 31")
        with enable(APPLY_CONSUME, call=lambda **_: seen.append(True)), enable(AFTER_COMMIT, call=die), pytest.raises(ProcessDied):
            _to_swap(play)
        getattr(catch_up, "taken", []).clear()
        play.restart()
        return play.end()


def frozen_attempt(folder: Path) -> list[str]:
    with playing(folder, small("counted")) as play:
        play.reach("copy")
        play.engine.turn()
        copied: list[int] = []

        def freeze(**_: object) -> None:
            """While this attempt stands before its transaction, a person pauses the job and the owner ends the attempt."""
            for point in (BEFORE_BEGIN, BEFORE_CHUNK):
                disable(point)
            assert str(play.engine.connected.ddl.pause(play.job_id)[0].verdict) == "applied"
            for _ in range(10):
                play.engine.clock.advance(0.05)
                play.engine.owner.tick()
            assert play.engine.job(play.job_id).state is JobState.PAUSED
            copied.append(_copied(play))

        with enable(BEFORE_CHUNK, call=lambda **_: enable(BEFORE_BEGIN, call=freeze, where={"write": True})):
            while not copied:
                play.engine.turn()
        if _copied(play) != copied[0]:
            play.faults.append(f"a paused job copied on: {copied[0]} rows, then {_copied(play)}")
        play.engine.connected.ddl.resume(play.job_id)
        return play.end()


def _copied(play: Play) -> int:
    with closing(application(play.paths[0])) as connection:
        name = connection.execute("SELECT name FROM sqlite_master WHERE name GLOB 'tideshift_*_shadow'").fetchone()[0]
        return connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0]


def two_values_become_one(folder: Path, clause: str = "") -> list[str]:
    shape = small("counted")
    shape = small("counted", text=shape.text.replace("amount{type},", f"amount{{type}} UNIQUE{clause},"), new_type="INTEGER")
    with playing(folder, shape) as play:
        play.reach("cut over")
        play.both("UPDATE t SET amount = '0120' WHERE k = 5")
        play.both("UPDATE t SET amount = '120' WHERE k = 6")
        return play.end(state=JobState.ROLLBACK_DONE, code="value_refused")


def parent_deleted(folder: Path) -> list[str]:
    shape = small("counted")
    shape = small("counted", text=shape.text.replace("REFERENCES parent(id) ON DELETE CASCADE ON UPDATE CASCADE", "REFERENCES parent(id)"))
    with playing(folder, shape) as play:
        play.both("PRAGMA foreign_keys = ON")
        play.both("DELETE FROM t WHERE p = 9 AND k > 40")
        play.reach("catch up")
        play.both("DELETE FROM t WHERE p = 9")
        play.both("DELETE FROM parent WHERE id = 9")
        return play.end()


def writer_appends(folder: Path) -> list[str]:
    with playing(folder, small("counted")) as play:
        play.reach("copy")
        turns, next_key = 0, 1_000
        while play.engine.stage(play.job_id) == "copy" and not play.faults:
            for _ in range(6):
                next_key += 1
                play.both("INSERT INTO t (k, u, n) VALUES (?, ?, ?)", next_key, f"u{next_key}", f"n{next_key}")
            play.engine.turn()
            turns += 1
            if turns > 100:
                play.faults.append("the copy does not end while a writer appends")
        return play.end()


def shadow_damaged(folder: Path) -> list[str]:
    with playing(folder, small("counted")) as play:
        play.reach("verify")
        with closing(application(play.paths[0])) as connection:
            name = connection.execute("SELECT name FROM sqlite_master WHERE name GLOB 'tideshift_*_shadow'").fetchone()[0]
            connection.execute(f"DELETE FROM {name} WHERE k = 60")
            connection.execute(f"UPDATE {name} SET note = 'damaged' WHERE k = 59")
            connection.execute(f"INSERT INTO {name} (k, u, n) SELECT -4, 'nobody', 'none'")
        return play.end(repaired=3)


def crosses_front(folder: Path) -> list[str]:
    with playing(folder, small("counted")) as play:
        play.reach("copy")
        play.engine.turn()
        play.engine.turn()
        play.both("UPDATE t SET u = NULL WHERE k = 2")
        play.both("UPDATE t SET u = 'u2' WHERE k = 50")
        play.both("UPDATE t SET v = NULL WHERE k = 3")
        play.both("UPDATE t SET v = 3 WHERE k = 51")
        return play.end()


def moves_between_batches(folder: Path) -> list[str]:
    with playing(folder, small("counted", rows=300)) as play:
        play.reach("cut over")
        play.both("UPDATE t SET note = 'first in the log' WHERE k = 250")
        play.both("UPDATE t SET note = 'many' WHERE k BETWEEN 10 AND 240")
        play.both("UPDATE t SET u = NULL WHERE k = 5")
        play.both("UPDATE t SET u = 'u5' WHERE k = 250")
        return play.end()


def write_before_swap(folder: Path) -> list[str]:
    with playing(folder, small("counted")) as play:

        def write(**_: object) -> None:
            """Write at the last moment before the swap's own transaction."""
            if play.connections[0].execute("SELECT count(*) FROM t WHERE note = 'last'").fetchone()[0] == 0:
                play.both("UPDATE t SET note = 'last', amount = 777 WHERE k = 11")
                play.both("DELETE FROM t WHERE k = 12")

        play.reach("cut over")
        with enable(BEFORE_CUTOVER, call=lambda **_: enable(BEFORE_BEGIN, call=second_write_transaction(write))):
            _to_swap(play)
        disable(BEFORE_BEGIN)
        return play.end()


def _to_swap(play: Play) -> None:
    with enable(IN_CUTOVER, "off") as swapping:
        for _ in range(60):
            if swapping.hits:
                return
            play.engine.turn()
    raise AssertionError("no swap was tried")


def cancelled_before_swap(folder: Path) -> list[str]:
    with playing(folder, small("counted")) as play:
        verdicts: list[str] = []

        def cancel(**_: object) -> None:
            disable(BEFORE_BEGIN)
            verdicts.append(str(play.engine.connected.ddl.cancel(play.job_id)[0].verdict))

        play.reach("cut over")
        with enable(BEFORE_CUTOVER, call=lambda **_: enable(BEFORE_BEGIN, call=second_write_transaction(cancel))):
            _to_swap(play)
        assert verdicts == ["applied"]
        return play.end(state=JobState.ROLLBACK_DONE, code="cancelled")


SCENES: dict[str, Scene] = {
    "a key is moved": key_moved,
    "a row is displaced": row_displaced,
    "a default displaces a row": default_displaces,
    "a row is displaced by a key under USING": displaced_under_using,
    "the process dies after a consumption": dies_after_consumption,
    "a frozen attempt wakes up in a paused job": frozen_attempt,
    "two values become one": two_values_become_one,
    "two values become one, ignored by the constraint": lambda folder: two_values_become_one(folder, " ON CONFLICT IGNORE"),
    "a parent is deleted after its child": parent_deleted,
    "a writer appends as fast as the copy": writer_appends,
    "the shadow is damaged": shadow_damaged,
    "a unique value crosses the copy's front": crosses_front,
    "a unique value moves between two batches": moves_between_batches,
    "a write comes right before the swap": write_before_swap,
    "a cancel comes right before the swap": cancelled_before_swap,
}


@pytest.mark.stdlib_sqlite
@pytest.mark.parametrize("name", SCENES)
def test_the_scene_is_clean_with_the_product_as_it_is(tmp_path: Path, name: str) -> None:
    """Outcomes, rows, the job's end and the verification's findings are as they must be."""
    assert SCENES[name](tmp_path) == []


@pytest.mark.parametrize("name", MUTANTS)
def test_the_mutant_goes_red_in_its_scene(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    """With one rule taken out the same scene shows a fault."""
    mutate, scene, fault = MUTANTS[name]
    forget_texts()
    mutate(monkeypatch)

    try:
        faults: Any = SCENES[scene](tmp_path)
    finally:
        monkeypatch.undo()
        forget_texts()

    print(name, "->", faults)
    assert any(fault in one for one in faults), f"{name} was not noticed: {faults}"


def test_each_scene_has_its_mutant() -> None:
    """No scene stands for nothing."""
    assert {scene for _, scene, _ in MUTANTS.values()} == set(SCENES)
