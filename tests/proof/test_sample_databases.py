"""Databases of other makers, changed and changed back: the dumps are equal, and between only the one thing is otherwise."""

from __future__ import annotations

import re
from contextlib import closing
from pathlib import Path

import pytest

from tests.proof.engine import Engine, application, on_engine
from tests.proof.reload import holds
from tests.proof.sample_databases import SAMPLES, fill

STRATEGIES = ("shadow_table", "direct")
THERE_AND_BACK = {
    "Chinook": (
        ("ALTER TABLE [Album] ADD COLUMN [Year] INTEGER DEFAULT 1999 AFTER [Title]", "ALTER TABLE Album DROP COLUMN Year"),
        ('ALTER TABLE "Track" ADD CONSTRAINT positive CHECK ([Milliseconds] > 0)', "ALTER TABLE Track DROP CONSTRAINT positive"),
        ("CREATE INDEX late ON [Track] ([Name], [UnitPrice] DESC)", "DROP INDEX late"),
    ),
    "Northwind": (
        ('ALTER TABLE [Order Details] ADD COLUMN "net price" AS ([UnitPrice] * 0.81)', 'ALTER TABLE "Order Details" DROP COLUMN "net price"'),
        ("ALTER TABLE [Customers] ALTER City SET DEFAULT 'nowhere'", "ALTER TABLE Customers ALTER City DROP DEFAULT"),
        ("ALTER TABLE `Products` ADD CONSTRAINT named UNIQUE ([ProductID], [ProductName])", "ALTER TABLE Products DROP CONSTRAINT named"),
    ),
    "Sakila": (
        ("ALTER TABLE film ALTER COLUMN special_features SET DEFAULT 'none'", "ALTER TABLE film ALTER special_features SET DEFAULT NULL"),
        ("ALTER TABLE inventory ALTER store_id DROP NOT NULL", "ALTER TABLE inventory ALTER store_id SET NOT NULL"),
        ("ALTER TABLE inventory ADD CONSTRAINT fk_again FOREIGN KEY (film_id) REFERENCES film (film_id)", "ALTER TABLE inventory DROP CONSTRAINT fk_again"),
    ),
}


def _dump(path: Path) -> list[tuple[str, object]]:
    """Return everything of the file as named lines, so that two dumps can be compared one by one."""
    held = holds(path)
    assert held["integrity"] == [("ok",)]
    lines: list[tuple[str, object]] = [(f"{kind} {name}", text) for kind, name, _, text in held["schema"]]
    lines += [(f"rows of {table}", rows) for table, rows in sorted(held["rows"].items())]
    return [*lines, ("counters", held["sequence"]), ("broken references", held["references"])]


def _run(engine: Engine, statement: str) -> None:
    job = engine.run(statement, batch_size=40)
    assert (str(job.state), job.error) == ("synced", None), statement


def _made(path: Path, name: str) -> Path:
    with closing(application(path)) as connection:
        fill(connection, name)
    return path


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", SAMPLES)
def test_types_there_and_back(name: str, strategy: str, sqlite_path: Path) -> None:
    """Of every table; each dump between differs from the first in the line of that table alone."""
    first = _dump(_made(sqlite_path, name))
    with on_engine(sqlite_path, strategy=strategy) as engine:
        for table, column, old, new in SAMPLES[name][1]:
            _run(engine, f'ALTER TABLE "{table}" ALTER COLUMN "{column}" TYPE {new}')
            differing = [(before, after) for before, after in zip(first, _dump(sqlite_path), strict=True) if before != after]
            _run(engine, f'ALTER TABLE "{table}" ALTER COLUMN "{column}" TYPE {old}')

            ((before, after),) = differing
            assert before[0] == after[0] == f"table {table}"
            assert after[1] in _with_one_replaced(str(before[1]), old, new)
            assert _dump(sqlite_path) == first


def _with_one_replaced(text: str, old: str, new: str) -> list[str]:
    """Return the texts in which one occurrence is another word."""
    return [f"{text[: found.start()]}{new}{text[found.end() :]}" for found in re.finditer(re.escape(old), text)]


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("name", SAMPLES)
def test_shapes_there_and_back(name: str, strategy: str, sqlite_path: Path) -> None:
    """Columns, rules and indexes that come and go leave nothing behind."""
    first = _dump(_made(sqlite_path, name))
    for there, back in THERE_AND_BACK[name]:
        before = _dump(sqlite_path)
        with on_engine(sqlite_path, strategy=strategy) as engine:
            _run(engine, there)
        assert _dump(sqlite_path) != before
        with on_engine(sqlite_path, strategy=None if "DROP INDEX" in back else strategy) as engine:
            _run(engine, back)
    last = _dump(sqlite_path)
    assert (last == first) if strategy == "shadow_table" else (_blanks_aside(last) == _blanks_aside(first))


def _blanks_aside(dump: list[tuple[str, object]]) -> list[tuple[str, object]]:
    """SQLite's own statements, which may be used where everything is done at once, put blanks in their own way."""
    return [(name, "".join(str(value).split())) for name, value in dump]
