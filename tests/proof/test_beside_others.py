"""What other tools lose of a table when they change a type of it, and that we lose nothing: docs/beside-others.md says the same.

Each tool gets the richest table that it does not fail on, and must be seen to lose what we say it loses.
"""

from __future__ import annotations

import subprocess
import warnings
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlite_utils
from alembic.migration import MigrationContext
from alembic.operations import Operations
from sqlalchemy import Text, create_engine, event
from sqlalchemy.exc import CompileError

from tests.proof.engine import application, library, on_engine
from tests.proof.reload import holds

GENERATED = """
  net AS (amount / 1.19),
  label TEXT GENERATED ALWAYS AS (customer || '#' || id) STORED,"""
ORDERS = f"""CREATE TABLE orders ( -- what was ordered
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  customer varchar(20) NOT NULL COLLATE NOCASE,
  amount decimal(10,2) NOT NULL DEFAULT 0 CHECK (amount >= 0),
  state TEXT DEFAULT 'new' CONSTRAINT known_state CHECK (state IN ('new', 'sent')),
  weight INT DEFAULT (1 + 1),
  placed datetime DEFAULT CURRENT_TIMESTAMP,{GENERATED}
  region INTEGER REFERENCES region (id) ON DELETE SET NULL DEFERRABLE INITIALLY DEFERRED,
  code TEXT UNIQUE ON CONFLICT IGNORE
)"""
INDEXES = (
    "CREATE INDEX open_orders ON orders (customer) WHERE state = 'new'",
    "CREATE INDEX by_amount ON orders (amount DESC, customer COLLATE RTRIM)",
    "CREATE INDEX by_lower ON orders (lower(customer))",
)
TRIGGER = "CREATE TRIGGER noted AFTER UPDATE OF amount ON orders BEGIN INSERT INTO audit VALUES (NEW.id); END"
OF_ANOTHER = "CREATE TRIGGER region_gone AFTER DELETE ON region BEGIN UPDATE orders SET weight = 0 WHERE region = OLD.id; END"
VIEW = "CREATE VIEW big AS SELECT id, amount FROM orders WHERE amount > 50"


def _make(path: Path, *texts: str) -> None:
    with closing(application(path)) as connection:
        connection.execute("CREATE TABLE region (id INTEGER PRIMARY KEY, name TEXT)")
        connection.execute("CREATE TABLE audit (id)")
        for text in texts:
            connection.execute(text)
        connection.execute("INSERT INTO region VALUES (1, 'north')")
        for n in range(1, 41):
            connection.execute("INSERT INTO orders (customer, amount, region, code) VALUES (?, ?, 1, ?)", (f"Customer {n}", n / 4, f"c{n}"))
        connection.execute("DELETE FROM orders WHERE id > 30")


FEATURES: dict[str, Callable[[dict[str, str], dict[str, Any]], bool]] = {
    "comments": lambda texts, _: "-- what was ordered" in texts["orders"],
    "types as they were written": lambda texts, _: all(type_text in texts["orders"] for type_text in ("varchar(20)", "decimal(10,2)", "datetime")),
    "a column's collation": lambda texts, _: "COLLATE NOCASE" in texts["orders"],
    "a default that is an expression": lambda texts, _: "DEFAULT (1 + 1)" in texts["orders"],
    "a CHECK without a name": lambda texts, _: "amount >= 0" in texts["orders"],
    "a CHECK with a name": lambda texts, _: "known_state" in texts["orders"],
    "generated columns": lambda texts, _: "amount / 1.19" in texts["orders"] and "customer || '#' || id" in texts["orders"],
    "AUTOINCREMENT": lambda texts, _: "AUTOINCREMENT" in texts["orders"],
    "the counter": lambda _, found: ("orders", 40) in [tuple(row) for row in found["counter"]],
    "ON DELETE": lambda texts, _: "ON DELETE SET NULL" in texts["orders"],
    "DEFERRABLE": lambda texts, _: "DEFERRABLE INITIALLY DEFERRED" in texts["orders"],
    "a conflict clause": lambda texts, _: "ON CONFLICT IGNORE" in texts["orders"],
    "a partial index": lambda texts, _: "WHERE state = 'new'" in texts.get("open_orders", ""),
    "DESC in an index": lambda texts, _: "DESC" in texts.get("by_amount", ""),
    "COLLATE in an index": lambda texts, _: "COLLATE RTRIM" in texts.get("by_amount", ""),
    "an index over an expression": lambda texts, _: "by_lower" in texts,
    "the table's own trigger": lambda texts, _: texts.get("noted") == TRIGGER,
    "a trigger of another table": lambda texts, _: texts.get("region_gone") == OF_ANOTHER,
    "a view": lambda texts, _: texts.get("big") == VIEW,
}


def _kept(path: Path) -> set[str]:
    with closing(application(path)) as connection:
        texts = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL").fetchall())
        has_counter = "sqlite_sequence" in texts
        found = {"counter": connection.execute("SELECT name, seq FROM sqlite_sequence").fetchall() if has_counter else []}
    return {name for name, is_there in FEATURES.items() if is_there(texts, found)}


def _transform(path: Path, watch: Watch | None = None) -> None:
    with closing(library().connect(path)) as connection:
        if watch is not None:
            watch.look_at(connection)
        sqlite_utils.Database(connection)["orders"].transform(types={"weight": str})


def _alembic(path: Path, watch: Watch | None = None) -> None:
    engine = create_engine(f"sqlite:///{path}", module=library())
    if watch is not None:
        event.listen(engine, "connect", lambda connection, _: watch.look_at(connection))
    try:
        with engine.connect() as connection, warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it warns of a part of what it drops
            connection.exec_driver_sql("PRAGMA foreign_keys = OFF")
            with Operations(MigrationContext.configure(connection)).batch_alter_table("orders") as batch:
                batch.alter_column("weight", type_=Text())
            connection.commit()
    finally:
        engine.dispose()


def _twelve_steps(path: Path, watch: Watch | None = None) -> None:
    """The procedure of SQLite's manual: a person writes down again every text that the table, or what names it, has."""
    columns = "id, customer, amount, state, weight, placed, region, code"
    with closing(application(path)) as connection:
        if watch is not None:
            watch.look_at(connection)
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("BEGIN")
        for gone in ("VIEW big", "TRIGGER region_gone"):  # a table cannot be renamed under these
            connection.execute(f"DROP {gone}")
        connection.execute(ORDERS.replace("TABLE orders", "TABLE new_orders").replace("weight INT", "weight TEXT"))
        connection.execute(f"INSERT INTO new_orders ({columns}) SELECT {columns} FROM orders")
        connection.execute("DROP TABLE orders")
        connection.execute("ALTER TABLE new_orders RENAME TO orders")
        for text in (*INDEXES, TRIGGER, OF_ANOTHER, VIEW):
            connection.execute(text)
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
        connection.execute("COMMIT")


class Watch:
    """Looks on while a tool works: whether a writer could begin during its copy, and what a crash at the end of the copy would leave."""

    INSTRUCTIONS = 50

    def __init__(self, path: Path, folder: Path) -> None:
        self.path = path
        self.image = folder / path.name
        self.kept_out: list[bool] = []
        self._statement = ""

    def look_at(self, connection: Any) -> None:
        """See each statement of the tool, and stop now and then within it."""
        connection.set_trace_callback(self._begins)
        connection.set_progress_handler(self._within, self.INSTRUCTIONS)

    def _begins(self, statement: str) -> None:
        self._statement = statement.lstrip().upper()

    def _within(self) -> int:
        if self._statement.startswith("INSERT INTO"):
            self.kept_out.append(not self._may_write())
        elif self._statement.startswith("DROP TABLE") and not self.image.exists():
            # By another process: one that closes a file gives up all of its locks on it.
            subprocess.run(["cp", self.path, f"{self.path}-wal", self.image.parent], check=True)
        return 0

    def _may_write(self) -> bool:
        with closing(application(self.path)) as writer:
            try:
                writer.execute("BEGIN IMMEDIATE")
            except library().OperationalError:
                return False
            return True


def test_transform_loses_what_we_say(sqlite_path: Path) -> None:
    """sqlite-utils: columns, clauses and a trigger are gone or written otherwise, and types are others than before."""
    _make(sqlite_path, ORDERS, *INDEXES, TRIGGER, OF_ANOTHER, VIEW)
    before = _kept(sqlite_path)
    _transform(sqlite_path)

    lost = before - _kept(sqlite_path)

    assert before == FEATURES.keys()
    assert lost >= {
        "types as they were written", "a column's collation", "a default that is an expression", "generated columns", "DEFERRABLE",
        "the table's own trigger",
    }  # fmt: skip


ABORTS = {
    "generated columns": ((ORDERS,), (CompileError, "NullType")),
    "a view": ((ORDERS.replace(GENERATED, ""), VIEW), (Exception, "error in view big")),
    "a trigger of another table": ((ORDERS.replace(GENERATED, ""), OF_ANOTHER), (Exception, "error in trigger region_gone")),
}


@pytest.mark.parametrize(("texts", "raised"), ABORTS.values(), ids=ABORTS)
def test_alembic_batch_mode_fails_where_we_say(texts: tuple[str, ...], raised: tuple[type[Exception], str], sqlite_path: Path) -> None:
    """It does not lose these: it cannot do the change at all."""
    _make(sqlite_path, *texts)

    with pytest.raises(raised[0], match=raised[1]):
        _alembic(sqlite_path)


def test_alembic_batch_mode_loses_what_we_say(sqlite_path: Path) -> None:
    """Of a table that it takes, clauses, indexes, the counter and a trigger are gone."""
    _make(sqlite_path, ORDERS.replace(GENERATED, ""), *INDEXES, TRIGGER)
    before = _kept(sqlite_path)
    _alembic(sqlite_path)

    lost = before - _kept(sqlite_path)

    assert before == FEATURES.keys() - {"generated columns", "a trigger of another table", "a view"}
    assert lost >= {
        "comments", "a column's collation", "AUTOINCREMENT", "the counter", "ON DELETE", "DEFERRABLE", "a conflict clause", "a CHECK without a name",
        "DESC in an index", "COLLATE in an index", "an index over an expression", "the table's own trigger",
    }  # fmt: skip


def test_the_twelve_steps_lose_the_counter_only(sqlite_path: Path) -> None:
    """With every text written down again by hand all is kept, but for the counter of AUTOINCREMENT, which has no text."""
    _make(sqlite_path, ORDERS, *INDEXES, TRIGGER, OF_ANOTHER, VIEW)
    _twelve_steps(sqlite_path)

    assert FEATURES.keys() - _kept(sqlite_path) == {"the counter"}


PLAIN = (ORDERS.replace(GENERATED, ""), *INDEXES, TRIGGER)
WHOLE = (ORDERS, *INDEXES, TRIGGER, OF_ANOTHER, VIEW)
OTHERS = {"transform": (_transform, WHOLE), "alembic": (_alembic, PLAIN), "twelve steps": (_twelve_steps, WHOLE)}


@pytest.mark.parametrize("tool", OTHERS)
def test_the_others_keep_writers_out_and_begin_anew_after_a_crash(tool: str, sqlite_path: Path, tmp_path: Path) -> None:
    """No writer gets in while rows are copied; after a crash at the copy's end no copied row is there from which to go on."""
    change, texts = OTHERS[tool]
    _make(sqlite_path, *texts)
    before = holds(sqlite_path)
    (tmp_path / "crashed").mkdir()
    watch = Watch(sqlite_path, tmp_path / "crashed")

    change(sqlite_path, watch)

    assert len(watch.kept_out) > 5
    assert all(watch.kept_out)
    left = holds(watch.image)
    assert {name: rows for name, rows in left["rows"].items() if rows} == {name: rows for name, rows in before["rows"].items() if rows}
    assert left["rows"].keys() - before["rows"].keys() == ({"_alembic_tmp_orders"} if tool == "alembic" else set())


def test_alembic_batch_mode_cannot_begin_anew_where_we_say(sqlite_path: Path, tmp_path: Path) -> None:
    """After a crash its empty copy stands in its own way, until somebody drops it."""
    _make(sqlite_path, *PLAIN)
    (tmp_path / "crashed").mkdir()
    watch = Watch(sqlite_path, tmp_path / "crashed")
    _alembic(sqlite_path, watch)

    with pytest.raises(Exception, match="_alembic_tmp_orders already exists"):
        _alembic(watch.image)


@pytest.mark.parametrize("strategy", ["shadow_table", "direct"])
def test_we_lose_nothing(strategy: str, sqlite_path: Path) -> None:
    """Every row of sqlite_master is the same byte for byte, but for the one type."""
    _make(sqlite_path, ORDERS, *INDEXES, TRIGGER, OF_ANOTHER, VIEW)
    before = holds(sqlite_path)

    with on_engine(sqlite_path, strategy=strategy) as engine:
        assert str(engine.run("ALTER TABLE orders ALTER weight TYPE TEXT").state) == "synced"

    after = holds(sqlite_path)
    assert _kept(sqlite_path) == FEATURES.keys()
    changed = {(new[:3], old[3], new[3]) for old, new in zip(before["schema"], after["schema"], strict=True) if old != new}
    assert changed == {(("table", "orders", "orders"), ORDERS, ORDERS.replace("weight INT", "weight TEXT"))}
