"""What others do to the table while a job is under way: the job gives way or goes on, and their schema stays as they made it.

The suite tries every third pair of deed and stage; TIDESHIFT_PROOF_ALL=1 tries all.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.proof.engine import Engine, application, on_engine
from tests.proof.reload import holds
from tideshift.ddl.points import BEFORE_CUTOVER, BEFORE_INSPECT
from tideshift.failpoint.pytest_plugin import Failpoints

KEYED = "CREATE TABLE t (k INTEGER PRIMARY KEY, u TEXT UNIQUE, amount TEXT CHECK (amount IS NOT 'x'), spare TEXT, note TEXT)"
INDEXED = "CREATE TABLE t (u TEXT UNIQUE, amount TEXT CHECK (amount IS NOT 'x'), spare TEXT, note TEXT)"
BARE = INDEXED.replace(" UNIQUE", "")
STATEMENT = "ALTER TABLE t ALTER COLUMN amount TYPE INTEGER"
EVERYTHING = bool(os.environ.get("TIDESHIFT_PROOF_ALL"))
STAGES = ("queueing", "check rows", "capture", "copy", "catch up", "verify", "cut over", "inside the cut-over")
MADE = STAGES[3:]
"""From here on there is something to undo."""


@dataclass(frozen=True)
class Deed:
    """Something that another person does."""

    name: str
    texts: tuple[str, ...]

    def __str__(self) -> str:
        return self.name


SHAPE_DEEDS = (
    Deed("drop", ("DROP TABLE t",)),
    Deed("rename", ("ALTER TABLE t RENAME TO other",)),
    Deed("add column", ("ALTER TABLE t ADD COLUMN more INTEGER DEFAULT 5",)),
    Deed("drop column", ("ALTER TABLE t DROP COLUMN spare",)),
    Deed("rename column", ("ALTER TABLE t RENAME COLUMN amount TO price",)),
    Deed("create index", ("CREATE INDEX late ON t(spare)",)),
    Deed("drop index", ("DROP INDEX by_note",)),
    Deed("drop and create anew", ("DROP TABLE t", KEYED, "INSERT INTO t (k, u, amount) VALUES (1, 'new', '7')")),
)
ATTACHMENTS = (
    Deed("trigger gone", ("DROP TRIGGER noted",)),
    Deed("trigger of another table", ("CREATE TRIGGER others AFTER DELETE ON side BEGIN UPDATE t SET note = 'x' WHERE 0; END",)),
    Deed("view", ("CREATE VIEW seen AS SELECT u, amount FROM t WHERE note <> ''",)),
    Deed("child", ("CREATE TABLE child (of TEXT REFERENCES t(u) ON DELETE CASCADE)", "INSERT INTO child VALUES ('u3')")),
    Deed("statistics", ("ANALYZE",)),
    Deed("every row gone", ("DELETE FROM t",)),
)
TRIGGER = Deed("trigger", ("CREATE TRIGGER mine AFTER INSERT ON t BEGIN INSERT INTO side VALUES ('in'); END",))
VACUUM = Deed("vacuum", ("VACUUM",))


def some_pairs(deeds: Sequence[object], stages: Sequence[str]) -> list[tuple[Any, str]]:
    """Return every third pair, each deed and each stage among them; all of them where everything is asked for."""
    pairs = [(deed, stage, n + m) for n, deed in enumerate(deeds) for m, stage in enumerate(stages)]
    return [(deed, stage) for deed, stage, number in pairs if EVERYTHING or number % 3 == 0]


def fill(path: Path, text: str) -> None:
    """Make a table with a gap in its rowids, an index, a trigger and a view."""
    with closing(application(path)) as connection:
        connection.execute("PRAGMA journal_mode = wal").fetchone()
        connection.execute(text)
        connection.execute("CREATE TABLE side (what)")
        connection.executemany("INSERT INTO t (u, amount, spare, note) VALUES (?, ?, 's', 'n')", [(f"u{n}", str(n)) for n in range(40)])
        connection.execute("DELETE FROM t WHERE u IN ('u2', 'u20', 'u21')")
        if text != BARE:
            connection.execute("CREATE INDEX by_note ON t(note, amount DESC)")
        connection.execute("CREATE TRIGGER noted AFTER UPDATE ON t BEGIN INSERT INTO side VALUES (NEW.u); END")
        connection.execute("CREATE VIEW v AS SELECT * FROM t")


class Setting:
    """The same deed in a database with a job, at one stage of it, and in a twin without."""

    def __init__(self, folder: Path, text: str) -> None:
        self.paths = (folder / "with.db", folder / "without.db")
        for path in self.paths:
            fill(path, text)

    def run(self, stage: str, deed: Deed, failpoints: Failpoints) -> Any:
        """Do it at the stage and return the job as it ended, with what it left behind."""
        with on_engine(self.paths[0]) as engine:
            job_id = engine.submit(STATEMENT, batch_size=6)
            self._at(engine, job_id, stage, lambda: carry_out(self.paths[0], deed), failpoints)
            job = engine.finish(job_id)
            carry_out(self.paths[1], deed)
            return job, engine.left_behind()

    @staticmethod
    def _at(engine: Engine, job_id: int, stage: str, act: Callable[[], None], failpoints: Failpoints) -> None:
        inside = {"inside the cut-over": BEFORE_CUTOVER, "swapped, not inspected": BEFORE_INSPECT}.get(stage)
        if inside is not None:
            failpoints.enable(inside, "1*call", call=lambda **_: act())
            return
        engine.until_stage(job_id, stage)
        act()


def carry_out(path: Path, deed: Deed) -> None:
    with closing(application(path)) as connection:
        for text in deed.texts:
            connection.execute(text)


@pytest.mark.parametrize(("deed", "stage"), some_pairs(SHAPE_DEEDS, STAGES), ids=str)
def test_a_job_gives_way_to_a_change_of_the_table(tmp_path: Path, failpoints: Failpoints, deed: Deed, stage: str) -> None:
    """It fails and undoes itself; schema and rows are those that the other person made, and nothing of ours is left."""
    setting = Setting(tmp_path, KEYED)

    job, left = setting.run(stage, deed, failpoints)

    with_job, without_job = (holds(path) for path in setting.paths)
    if stage == "queueing" and deed.name in ("add column", "drop column", "create index", "drop index", "drop and create anew"):
        assert str(job.state) == "synced"  # it is planned again when it starts
        without_job["schema"] = _retyped(without_job["schema"])
        assert _mapped(setting.paths[0], made=True) == _mapped(setting.paths[1], made=False)
    else:
        assert with_job["rows"] == without_job["rows"]
        assert job.error is not None
        assert str(job.state) == ("rollback done" if stage in MADE else "cancelled"), job.error
        gone = "no such table" in job.error["message"]  # seen by the planning of the very first pass
        assert job.error["code"] in ("schema_changed", "not_found", "plan_refused") or (stage == "check rows" and gone), job.error
    assert left == []
    assert with_job["schema"] == without_job["schema"]
    assert with_job["integrity"] == ["ok"] or with_job["integrity"] == [("ok",)]


@pytest.mark.parametrize(("deed", "stage"), some_pairs(ATTACHMENTS, STAGES), ids=str)
def test_a_job_goes_on_when_something_is_attached(tmp_path: Path, failpoints: Failpoints, deed: Deed, stage: str) -> None:
    """Triggers, views, references, statistics and rows may come and go; they are there afterwards as they were made."""
    setting = Setting(tmp_path, KEYED)

    job, left = setting.run(stage, deed, failpoints)

    with_job, without_job = (holds(path) for path in setting.paths)
    assert (str(job.state), job.error, left) == ("synced", None, [])
    assert sorted(with_job["schema"], key=repr) == sorted(_retyped(without_job["schema"]), key=repr)
    assert _mapped(setting.paths[0], made=True) == _mapped(setting.paths[1], made=False)
    assert {name: rows for name, rows in with_job["rows"].items() if name not in ("t", "sqlite_stat1")} == {
        name: rows for name, rows in without_job["rows"].items() if name not in ("t", "sqlite_stat1")
    }


@pytest.mark.parametrize("stage", STAGES)
def test_a_trigger_made_after_ours_ends_the_job(tmp_path: Path, failpoints: Failpoints, stage: str) -> None:
    """It would fire before ours and could hide a write; one that is made before capture begins is as good as an old one."""
    setting = Setting(tmp_path, KEYED)

    job, left = setting.run(stage, TRIGGER, failpoints)

    with_job, without_job = (holds(path) for path in setting.paths)
    assert left == []
    if stage in MADE:
        assert (str(job.state), job.error["code"], job.error["fields"]["triggers"]) == ("rollback done", "schema_changed", ["mine"])
    else:
        assert (str(job.state), job.error) == ("synced", None)
        without_job["schema"] = _retyped(without_job["schema"])
    assert sorted(with_job["schema"], key=repr) == sorted(without_job["schema"], key=repr)


@pytest.mark.parametrize(("text", "stage"), some_pairs((KEYED, INDEXED, BARE), STAGES), ids=str)
def test_vacuum_is_noticed_where_it_gives_new_numbers(tmp_path: Path, failpoints: Failpoints, text: str, stage: str) -> None:
    """VACUUM numbers the rows of a table without any index anew: then the job fails and undoes itself; elsewhere it goes on."""
    setting = Setting(tmp_path, text)

    job, left = setting.run(stage, VACUUM, failpoints)

    with_job, without_job = (holds(path) for path in setting.paths)
    assert left == []
    if text == BARE and stage in MADE:
        assert (str(job.state), job.error["code"]) == ("rollback done", "schema_changed")
        assert with_job == without_job
    else:
        assert (str(job.state), job.error) == ("synced", None)
        assert with_job["schema"] == _retyped(without_job["schema"])
        assert _mapped(setting.paths[0], made=True) == _mapped(setting.paths[1], made=False)


@pytest.mark.parametrize("deed", SHAPE_DEEDS[:-1], ids=lambda deed: deed.name)
def test_after_the_swap_the_table_is_theirs_again(tmp_path: Path, failpoints: Failpoints, deed: Deed) -> None:
    """A change between swap and inspection stays; the job says what it found, keeps the old rows, and touches nothing."""
    setting = Setting(tmp_path, KEYED)

    job, left = setting.run("swapped, not inspected", deed, failpoints)

    assert str(job.state) == "synced"
    assert left != []
    assert any("the old rows are kept" in warning for warning in job.warnings)
    assert _mapped(setting.paths[0], made=True) == _mapped(setting.paths[1], made=False)
    assert holds(setting.paths[0])["schema"] == _retyped(holds(setting.paths[1])["schema"])


@pytest.mark.parametrize("stage", ["copy", "verify", "cut over", "inside the cut-over"])
def test_a_capture_trigger_that_somebody_dropped_ends_the_job(tmp_path: Path, failpoints: Failpoints, stage: str) -> None:
    """Without capture nothing may be swapped: the job fails and undoes the rest."""
    setting = Setting(tmp_path, KEYED)

    with on_engine(setting.paths[0]) as engine:
        job_id = engine.submit(STATEMENT, batch_size=6)
        setting._at(engine, job_id, stage, lambda: _drop_trigger(setting.paths[0]), failpoints)
        job = engine.finish(job_id)

    assert job.error is not None
    assert (str(job.state), job.error["code"]) == ("rollback done", "schema_changed")
    assert holds(setting.paths[0]) == holds(setting.paths[1])


def _drop_trigger(path: Path) -> None:
    with closing(application(path)) as connection:
        name = connection.execute("SELECT name FROM sqlite_master WHERE type = 'trigger' AND name GLOB 'tideshift_*_after_delete'").fetchone()[0]
        connection.execute(f"DROP TRIGGER {name}")


def _mapped(path: Path, *, made: bool) -> list[str]:
    """Return the rows of the table, by whatever name, as they are once the change is made; `made` says whether it was made there."""
    with closing(application(path)) as connection:
        names = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name IN ('t', 'other')").fetchall()
        if not names:
            return []
        cursor = connection.execute(f"SELECT rowid, * FROM {names[0][0]} ORDER BY rowid")
        (place,) = (place for place, column in enumerate(cursor.description) if column[0] in ("amount", "price"))
        rows = cursor.fetchall()
    # Every amount is the text of a whole number; repr tells 7 from 7.0 and '7'.
    return [repr(row if made else (*row[:place], int(row[place]), *row[place + 1 :])) for row in rows]


def _retyped(schema: list[Any]) -> list[Any]:
    """Return the catalogue with the change made."""
    return [(*row[:3], row[3] if row[3] is None or row[0] != "table" else row[3].replace("amount TEXT", "amount INTEGER")
             .replace("price TEXT", "price INTEGER")) for row in schema]  # fmt: skip
