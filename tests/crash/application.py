"""The applications whose tables are changed: schema, rows, and a fixed order of writes with what each is answered.

The order is total and its place is kept in the same database, in the transaction of each write. So a run that was killed
goes on where it was, and a crashed and an uncrashed run end with the same history of writes, however they interleaved.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from tests.servers import sqlite_module

Statement = tuple[str, tuple[Any, ...]]
MODULE = sqlite_module()
HISTORY = "CREATE TABLE app_history (n INTEGER PRIMARY KEY, answer TEXT NOT NULL)"


@dataclass(frozen=True, kw_only=True)
class Application:
    """One schema with rows, the change that is asked for, and the writes that meanwhile happen."""

    name: str
    table: str
    schema: tuple[str, ...]
    fill: Callable[[Random], list[Statement]]
    write: Callable[[Random], Statement]
    change: str
    old_text: str
    new_text: str
    """What the change replaces in the table's own text: the twin's schema is made by this and not by our code."""
    made: tuple[str, ...] = ()
    """What the change makes besides."""
    renamed: tuple[str, str] | None = None
    """A table or a column by its name before and after."""
    journal: str = "wal"
    poison: tuple[int, Statement] | None = None
    """A write, by its number, of a value that the new shape refuses."""

    def operations(self, seed: int, count: int) -> list[Statement]:
        """Return the writes in their order."""
        random = Random(f"{self.name}/{seed}")
        chosen = [self.write(random) for _ in range(count)]
        if self.poison is not None:
            number, statement = self.poison
            chosen[number] = statement
        return chosen

    def create(self, path: Path, seed: int) -> None:
        """Make the database with its rows."""
        with closing(MODULE.connect(path, isolation_level=None)) as connection:
            connection.execute(f"PRAGMA journal_mode = {self.journal}")
            connection.execute("BEGIN")
            for text in (*self.schema, HISTORY):
                connection.execute(text)
            for sql, binds in self.fill(Random(f"{self.name}/{seed}/fill")):
                connection.execute(sql, binds)
            connection.execute("COMMIT")


class Writer:
    """The application at work on a connection of its own; it never waits for a lock, it comes again."""

    def __init__(self, path: Path, operations: Sequence[Statement], *, every: int = 3) -> None:
        self.operations = operations
        self.every = every
        self.pulses = 0
        self.connection = MODULE.connect(path, isolation_level=None, timeout=0)
        self.connection.execute("PRAGMA foreign_keys = ON")
        self.done = self.connection.execute("SELECT count(*) FROM app_history").fetchone()[0]

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()

    def pulse(self, **_: object) -> None:
        """Write at each n-th call: a failpoint calls it wherever the engine begins a transaction."""
        self.pulses += 1
        if self.pulses % self.every == 0:
            self.tick()

    def tick(self) -> bool:
        """Do the next write, if there is one and nobody holds the lock; return whether it was done."""
        if self.done >= len(self.operations):
            return False
        sql, binds = self.operations[self.done]
        try:
            self.connection.execute("BEGIN IMMEDIATE")
        except MODULE.OperationalError:
            return False
        answer = self._answer(sql, binds)
        if not self.connection.in_transaction:  # OR ROLLBACK has ended it
            self.connection.execute("BEGIN IMMEDIATE")
        self.connection.execute("INSERT INTO app_history VALUES (?, ?)", (self.done + 1, answer))
        try:
            self.connection.execute("COMMIT")
        except MODULE.OperationalError:  # with a rollback journal a reader keeps the commit out
            self.connection.execute("ROLLBACK")
            return False
        self.done += 1
        return True

    def _answer(self, sql: str, binds: tuple[Any, ...]) -> str:
        try:
            return f"ok {self.connection.execute(sql, binds).rowcount}"
        except MODULE.IntegrityError as error:
            return f"refused: {error}"

    def finish(self) -> None:
        """Do all that is left."""
        while self.done < len(self.operations):
            if not self.tick():
                raise AssertionError(f"write {self.done + 1} found the database locked after the job had ended")


# ── a shop: a rowid table with everything attached ────────────────────────────────────────────────────────────────

ORDERS = 48
SHOP_SCHEMA = (
    "CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL)",
    """CREATE TABLE orders (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  customer INTEGER REFERENCES customers(id),
  code TEXT NOT NULL UNIQUE ON CONFLICT ABORT,
  amount TEXT,
  note TEXT COLLATE NOCASE DEFAULT 'none',
  size INTEGER AS (length(code)) STORED,
  CHECK (length(code) > 0)
)""",
    "CREATE INDEX orders_amount ON orders (amount DESC, id)",
    "CREATE INDEX orders_open ON orders (customer) WHERE note = 'open'",
    "CREATE UNIQUE INDEX orders_code ON orders (lower(code))",
    "CREATE TABLE lines (of_order INTEGER REFERENCES orders(id) ON DELETE CASCADE, n INTEGER, PRIMARY KEY (of_order, n)) WITHOUT ROWID",
    "CREATE TABLE audit (id INTEGER PRIMARY KEY AUTOINCREMENT, of_order INTEGER, was TEXT)",
    "CREATE TRIGGER orders_audit AFTER UPDATE ON orders BEGIN INSERT INTO audit (of_order, was) VALUES (old.id, old.note); END",
    "CREATE VIEW totals AS SELECT customer, count(*) AS orders, sum(amount) AS amount FROM orders GROUP BY customer",
)


def _fill_shop(random: Random) -> list[Statement]:
    customers = [("INSERT INTO customers VALUES (?, ?)", (n, f"customer {n}")) for n in range(1, 6)]
    orders = [
        ("INSERT INTO orders (id, customer, code, amount, note) VALUES (?, ?, ?, ?, ?)", (2 * n, 1 + n % 5, f"C{n}", _amount(random), "open"))
        for n in range(1, ORDERS + 1)
    ]
    lines = [("INSERT INTO lines VALUES (?, ?)", (2 * n, random.randint(1, 9))) for n in range(1, ORDERS + 1, 3)]
    return [*customers, *orders, *lines]


def _amount(random: Random) -> str | None:
    return random.choice([None, str(random.randint(-5, 99_999)), f"{random.randint(0, 99)}", "0"])


def _write_shop(random: Random) -> Statement:
    """One write to the shop: new rows, hot rows, keys that move, and every way to settle a conflict."""
    one, other = random.randint(1, 2 * ORDERS + 10), random.randint(1, 2 * ORDERS + 10)
    code = f"C{random.randint(1, ORDERS + 20)}"
    insert = "INTO orders (customer, code, amount, note) VALUES (?, ?, ?, ?)"
    values = (random.randint(1, 5), code, _amount(random), random.choice(["open", "Paid", None]))
    return random.choice([
        (f"INSERT {insert}", values),
        (f"INSERT OR REPLACE {insert}", values),
        (f"INSERT OR IGNORE {insert}", values),
        (f"INSERT OR ROLLBACK {insert}", values),
        (f"INSERT {insert} ON CONFLICT (code) DO UPDATE SET amount = excluded.amount, note = 'again'", values),
        ("UPDATE orders SET amount = ? WHERE id = ?", (_amount(random), one)),
        ("UPDATE orders SET amount = ? WHERE id BETWEEN ? AND ?", (_amount(random), one, one + 5)),
        ("UPDATE orders SET id = ? WHERE id = ?", (other, one)),
        ("UPDATE OR REPLACE orders SET id = ?, code = ? WHERE id = ?", (other, code, one)),
        ("UPDATE OR IGNORE orders SET code = ? WHERE id = ?", (code, one)),
        ("UPDATE orders SET note = upper(note), customer = ? WHERE code = ?", (random.randint(1, 6), code)),
        ("DELETE FROM orders WHERE id = ?", (one,)),
        ("INSERT OR IGNORE INTO lines VALUES (?, ?)", (one, random.randint(1, 9))),
    ])  # fmt: skip


SHOP = Application(
    name="shop", table="orders", schema=SHOP_SCHEMA, fill=_fill_shop, write=_write_shop,
    change="ALTER TABLE orders ALTER COLUMN amount TYPE INTEGER", old_text="amount TEXT", new_text="amount INTEGER",
)  # fmt: skip


# ── a register: STRICT, without rowid, a composite key of text; rows can be refused ───────────────────────────────

REGISTER_SCHEMA = (
    """CREATE TABLE register (
  place TEXT NOT NULL, number INTEGER NOT NULL, reading TEXT, tag TEXT UNIQUE,
  PRIMARY KEY (place, number DESC)
) STRICT, WITHOUT ROWID""",
    "CREATE INDEX register_reading ON register (reading)",
)


def _fill_register(random: Random) -> list[Statement]:
    rows = [(random.choice("abcdé"), n, str(random.randint(0, 999)), f"t{n}" if n % 2 else None) for n in range(40)]
    return [("INSERT INTO register VALUES (?, ?, ?, ?)", row) for row in rows]


def _write_register(random: Random) -> Statement:
    place, number = random.choice("abcdéz"), random.randint(0, 50)
    reading, tag = str(random.randint(0, 999)), random.choice([None, f"t{random.randint(0, 50)}"])
    return random.choice([
        ("INSERT INTO register VALUES (?, ?, ?, ?)", (place, number, reading, tag)),
        ("INSERT OR REPLACE INTO register VALUES (?, ?, ?, ?)", (place, number, reading, tag)),
        ("INSERT OR IGNORE INTO register VALUES (?, ?, ?, ?)", (place, number, reading, tag)),
        ("UPDATE register SET reading = ? WHERE number = ?", (reading, number)),
        ("UPDATE OR REPLACE register SET place = ?, tag = ? WHERE number = ?", (place, tag, number)),
        ("DELETE FROM register WHERE number = ?", (number,)),
    ])  # fmt: skip


REGISTER = Application(
    name="register", table="register", schema=REGISTER_SCHEMA, fill=_fill_register, write=_write_register,
    change="ALTER TABLE register ALTER COLUMN reading TYPE INTEGER", old_text="reading TEXT", new_text="reading INTEGER",
)  # fmt: skip


# ── meters: every row is written by its number alone, and no answer tells which unique key refused it ─────────────────

METERS_SCHEMA = (
    "CREATE TABLE meters (number INTEGER NOT NULL PRIMARY KEY, place TEXT NOT NULL, reading TEXT, tag TEXT UNIQUE)",
    "CREATE UNIQUE INDEX meters_number ON meters (number)",
    "CREATE INDEX meters_reading ON meters (reading, place DESC)",
)
"""The second index keeps two rows of one number out, whatever becomes of the primary key."""


def _fill_meters(random: Random) -> list[Statement]:
    return [("INSERT INTO meters VALUES (?, ?, ?, ?)", (3 * n, random.choice("abcdé"), str(random.randint(0, 999)), f"t{n}")) for n in range(40)]


def _write_meters(random: Random) -> Statement:
    one, other = random.randint(0, 130), random.randint(0, 130)
    reading, tag = str(random.randint(0, 999)), random.choice([None, f"t{random.randint(0, 50)}"])
    row = (one, random.choice("abcdéz"), reading, tag)
    return random.choice([
        ("INSERT OR REPLACE INTO meters VALUES (?, ?, ?, ?)", row),
        ("INSERT OR IGNORE INTO meters VALUES (?, ?, ?, ?)", row),
        ("UPDATE meters SET reading = ? WHERE number = ?", (reading, one)),
        ("UPDATE OR REPLACE meters SET number = ?, tag = ? WHERE number = ?", (other, tag, one)),
        ("UPDATE OR IGNORE meters SET number = ?, place = 'moved' WHERE number = ?", (other, one)),
        ("DELETE FROM meters WHERE number = ?", (one,)),
    ])  # fmt: skip


METERS = Application(
    name="meters", table="meters", schema=METERS_SCHEMA, fill=_fill_meters, write=_write_meters,
    change="ALTER TABLE meters DROP PRIMARY KEY", old_text=" PRIMARY KEY", new_text="",
)  # fmt: skip
