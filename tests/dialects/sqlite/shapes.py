"""Kinds of tables for the key log's test: what exists, and how random statements on it are written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

Value = Callable[[Random], str]


def number(low: int, high: int) -> Value:
    """Small whole numbers, so that they collide; now and then NULL."""
    return lambda random: "NULL" if random.random() < 0.08 else str(random.randint(low, high))


def text(letters: str) -> Value:
    """One-letter texts in both cases; now and then NULL or an expression."""

    def value(random: Random) -> str:
        if random.random() < 0.08:
            return "NULL"
        letter = random.choice(letters)
        return random.choice([f"'{letter}'", f"'{letter.upper()}'", f"lower('{letter.upper()}')"])

    return value


def one_of(*literals: str) -> Value:
    """One of some SQL values."""
    return lambda random: random.choice(literals)


@dataclass(frozen=True, kw_only=True)
class Shape:
    """One kind of table `t` with what stands around it."""

    name: str
    schema: tuple[str, ...]
    table: str = "t"
    values: dict[str, Value]
    change: str
    conflict_targets: tuple[str, ...] = ()
    key: str = "rowid"
    folded_key: bool = False
    """Whether the key's text is compared without case."""
    others: tuple[Callable[[Random], str], ...] = ()
    """Statements on other tables."""
    moves: tuple[str, ...] = field(default=())
    """SET clauses that shift keys of many rows."""


SHAPES = (
    Shape(
        name="integer primary key",
        schema=("CREATE TABLE t (id INTEGER PRIMARY KEY, a INT UNIQUE, b TEXT, c)", "CREATE UNIQUE INDEX bc ON t (b DESC, c)"),
        values={"id": number(-3, 12), "a": number(0, 9), "b": text("abcd"), "c": number(0, 2)},
        change="ALTER TABLE t ALTER c TYPE text",
        conflict_targets=("(id)", "(a)", "(b, c)"),
        moves=("id = id + 1", "id = -id", "a = a + 1", "id = id + 1, a = a - 1", "c = 0"),
    ),
    Shape(
        name="autoincrement, required columns with defaults",
        schema=(
            ("CREATE TABLE t (id INTEGER PRIMARY KEY AUTOINCREMENT, u TEXT NOT NULL ON CONFLICT REPLACE DEFAULT d COLLATE NOCASE"
            " UNIQUE ON CONFLICT REPLACE, n INT NOT NULL DEFAULT (1 + 1), m REAL NOT NULL DEFAULT -1, UNIQUE (n, m))"),
        ),
        values={"id": number(1, 15), "u": text("abcdef"), "n": number(0, 4), "m": number(-1, 3)},
        change="ALTER TABLE t ALTER m TYPE text",
        conflict_targets=("(id)", "(u)", "(n, m)"),
        moves=("id = id + 1", "n = n + 1", "u = NULL", "n = NULL, m = NULL"),
    ),
    Shape(
        name="text primary key with rowid",
        schema=("CREATE TABLE t (k TEXT PRIMARY KEY COLLATE NOCASE, a, b INT UNIQUE ON CONFLICT REPLACE)",),
        values={"k": text("abcdefgh"), "a": number(0, 9), "b": number(0, 9)},
        change="ALTER TABLE t ALTER a TYPE integer",
        conflict_targets=("(k)", "(b)"),
        moves=("rowid = rowid + 1", "b = b + 1", "k = upper(k)", "k = k || 'x'"),
    ),
    Shape(
        name="no primary key",
        schema=("CREATE TABLE t (a INT, b TEXT, c, UNIQUE (a, b))", "CREATE UNIQUE INDEX tc ON t (c COLLATE RTRIM)"),
        values={"a": number(0, 4), "b": text("ab"), "c": one_of("'x'", "'x  '", "'y'", "NULL", "1", "1.0", "'1'", "x'78'")},
        change="ALTER TABLE t ALTER b TYPE integer",
        conflict_targets=("(a, b)", "(c COLLATE RTRIM)"),
        moves=("rowid = rowid + 3", "a = a + 1", "c = rowid"),
    ),
    Shape(
        name="composite key without rowid",
        schema=(
            "CREATE TABLE t (a TEXT COLLATE NOCASE, b INT DEFAULT 1, c INT UNIQUE, d, PRIMARY KEY (a, b)) WITHOUT ROWID",
            "CREATE UNIQUE INDEX td ON t (d, c)",
        ),
        values={"a": text("abc"), "b": number(0, 3), "c": number(0, 9), "d": number(0, 3)},
        change="ALTER TABLE t ALTER d TYPE text",
        conflict_targets=("(a, b)", "(c)"),
        key="a, b",
        folded_key=True,
        moves=("a = upper(a)", "b = b + 1", "c = c - 1", "b = b + 1, a = lower(a)"),
    ),
    Shape(
        name="descending key without rowid, other collation in the key",
        schema=("CREATE TABLE t (a TEXT, b INT, c TEXT UNIQUE, PRIMARY KEY (b DESC, a COLLATE NOCASE)) WITHOUT ROWID",),
        values={"a": text("abc"), "b": number(0, 3), "c": text("abcdefghi")},
        change="ALTER TABLE t ALTER c TYPE varchar(10)",
        conflict_targets=("(c)",),
        key="b, a",
        folded_key=True,
        moves=("a = upper(a)", "b = b + 1", "c = c || c"),
    ),
    Shape(
        name="partial unique indexes",
        schema=(
            "CREATE TABLE t (id INTEGER PRIMARY KEY, a INT, b INT, c TEXT)",
            "CREATE UNIQUE INDEX p1 ON t (a) WHERE t.b > 2 AND c IS NOT NULL",
            "CREATE UNIQUE INDEX p2 ON t (b) WHERE a IN (1, 2, 3)",
            "CREATE UNIQUE INDEX p3 ON t (c) WHERE typeof(a) = 'integer'",
        ),
        values={"id": number(1, 12), "a": number(0, 5), "b": number(0, 5), "c": text("abcdef")},
        change="ALTER TABLE t ALTER c TYPE blob",
        conflict_targets=("(id)", "(a) WHERE t.b > 2 AND c IS NOT NULL", "(b) WHERE a IN (1, 2, 3)"),
        moves=("b = b + 1", "a = a + 1", "id = id + 1", "c = NULL"),
    ),
    Shape(
        name="unique expressions with collations",
        schema=(
            "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT COLLATE NOCASE, b INT NOT NULL DEFAULT 3, c TEXT NOT NULL DEFAULT 'a')",
            "CREATE UNIQUE INDEX e1 ON t (lower(c) COLLATE RTRIM, abs(b))",
            "CREATE UNIQUE INDEX e2 ON t (a || 'x' COLLATE NOCASE)",
            "CREATE UNIQUE INDEX e3 ON t (b = 3, a = 'B', c = 'A' DESC) WHERE b < id",
        ),
        values={"id": number(1, 15), "a": text("abcdefgh"), "b": number(-4, 4), "c": one_of("'a'", "'A'", "'a '", "'b'", "NULL")},
        change="ALTER TABLE t ALTER a TYPE varchar(3)",
        conflict_targets=("(id)", "(lower(c) COLLATE RTRIM, abs(b))"),
        moves=("b = -b", "id = id + 1", "c = upper(c)", "b = NULL", "a = c"),
    ),
    Shape(
        name="several uniques with conflict clauses",
        schema=(
            ("CREATE TABLE t (id INTEGER PRIMARY KEY ON CONFLICT REPLACE, a INT UNIQUE ON CONFLICT IGNORE,"
            " b INT UNIQUE ON CONFLICT REPLACE, c INT UNIQUE ON CONFLICT FAIL, d INT UNIQUE ON CONFLICT ROLLBACK,"
            " e INT NOT NULL ON CONFLICT IGNORE CHECK (e < 9))"),
        ),
        values={
            "id": number(1, 12),
            "a": number(0, 20),
            "b": number(0, 6),
            "c": number(0, 20),
            "d": number(0, 30),
            "e": number(0, 9),
        },
        change="ALTER TABLE t ALTER e TYPE text",
        # No upserts: with these clauses SQLite (3.40 to 3.53) ruins its own indexes by them, without any trigger.
        moves=("b = b + 1", "id = id - 1", "c = c + 1", "e = e + 1"),
    ),
    Shape(
        name="child and parent with cascades",
        schema=(
            "CREATE TABLE p (id INTEGER PRIMARY KEY, x UNIQUE)",
            ("CREATE TABLE t (id INTEGER PRIMARY KEY, a INT REFERENCES p (id) ON DELETE CASCADE ON UPDATE CASCADE, b INT REFERENCES t"
            " ON DELETE SET NULL ON UPDATE SET DEFAULT DEFERRABLE INITIALLY DEFERRED, c INT UNIQUE)"),
            "CREATE UNIQUE INDEX tab ON t (a, b)",
            "CREATE TABLE k (t INT REFERENCES t (c) ON DELETE CASCADE ON UPDATE CASCADE)",
            "INSERT INTO p VALUES (1, 1), (2, 2), (3, 3), (4, 4)",
        ),
        values={"id": number(1, 12), "a": number(1, 5), "b": number(1, 8), "c": number(0, 12)},
        change="ALTER TABLE t ALTER c TYPE text",
        conflict_targets=("(id)", "(c)"),
        moves=("id = id + 1", "a = a + 1", "c = c + 1"),
        others=(
            lambda random: f"REPLACE INTO p VALUES ({random.randint(1, 5)}, {random.randint(1, 5)})",
            lambda random: f"DELETE FROM p WHERE id = {random.randint(1, 5)}",
            lambda random: f"UPDATE OR REPLACE p SET id = {random.randint(1, 5)} WHERE id = {random.randint(1, 5)}",
            lambda random: f"INSERT OR IGNORE INTO k VALUES ({random.randint(0, 12)})",
        ),
    ),
    Shape(
        name="triggers that write the same table",
        schema=(
            "CREATE TABLE t (id INTEGER PRIMARY KEY, a INT UNIQUE, b INT UNIQUE, c)",
            "CREATE TABLE o (x)",
            "CREATE TRIGGER one AFTER INSERT ON t WHEN NEW.id < 9 BEGIN UPDATE OR REPLACE t SET b = NEW.a WHERE id = NEW.id + 1; END",
            "CREATE TRIGGER two BEFORE DELETE ON t WHEN OLD.id > 3 BEGIN UPDATE t SET c = OLD.id WHERE id = OLD.id - 1; END",
            "CREATE TRIGGER three AFTER UPDATE OF c ON t BEGIN INSERT OR REPLACE INTO t (a, b) VALUES (NEW.id, NEW.b); END",
            "CREATE TRIGGER four AFTER INSERT ON o BEGIN DELETE FROM t WHERE a = NEW.x; REPLACE INTO t (id, b) VALUES (NEW.x, 1); END",
            "CREATE TRIGGER five BEFORE INSERT ON t WHEN NEW.a = 5 BEGIN INSERT INTO t (b) VALUES (5); END",
        ),
        values={"id": number(1, 12), "a": number(0, 9), "b": number(0, 9), "c": number(0, 3)},
        change="ALTER TABLE t ALTER c TYPE text",
        conflict_targets=("(id)", "(a)", "(b)"),
        moves=("id = id + 1", "a = a + 1", "c = c + 1"),
        others=(lambda random: f"INSERT INTO o VALUES ({random.randint(0, 9)})",),
    ),
    Shape(
        name="generated columns and odd names",
        table='"new"',
        schema=(
            ('CREATE TABLE "new" ("old" INTEGER PRIMARY KEY, "a""b" TEXT, [select] INT, `rowid` INT,'
            ' "g" AS ("a""b" || [select]) STORED UNIQUE, "v" INT GENERATED ALWAYS AS ([select] + rowid) VIRTUAL)'),
            'CREATE UNIQUE INDEX "new index" ON "new" ("v") WHERE "new".[select] < 3',
            ("CREATE UNIQUE INDEX [it's] ON \"new\" ((\"v\" * 2), \"a\"\"b\")"),
        ),
        values={'"old"': number(1, 12), '"a""b"': text("abcd"), "[select]": number(0, 4), "`rowid`": number(0, 4)},
        change='ALTER TABLE "new" ALTER "a""b" TYPE varchar(9)',
        conflict_targets=('("old")', '("g")'),
        key="_rowid_",
        moves=('"old" = "old" + 1', "[select] = [select] + 1", "`rowid` = 3", '"a""b" = upper("a""b")'),
    ),
    Shape(
        name="strict",
        schema=(
            "CREATE TABLE t (id INTEGER PRIMARY KEY, a INT UNIQUE, b TEXT NOT NULL, c ANY, r REAL NOT NULL DEFAULT 1) STRICT",
            "CREATE UNIQUE INDEX bc ON t (b, c)",
            "CREATE UNIQUE INDEX tr ON t (r + 1, c, id % 3) WHERE id > 2",
        ),
        values={
            "id": one_of("1", "2", "3", "4", "5", "NULL", "'x'"),
            "a": one_of("1", "2", "3", "4", "5", "6", "NULL", "'7'", "'x'", "2.0", "2.5"),
            "b": text("abcd"),
            "c": one_of("1", "'1'", "1.0", "x'31'", "NULL"),
            "r": one_of("1", "2", "'3'", "'x'", "NULL"),
        },
        change="ALTER TABLE t ALTER a TYPE text",
        conflict_targets=("(id)", "(a)", "(b, c)"),
        moves=("id = id + 1", "a = a + 1", "b = upper(b)", "c = a", "r = NULL", "a = 'x', b = NULL"),
    ),
    Shape(
        name="a text key becomes the table, rows have numbers",
        schema=("CREATE TABLE t (k TEXT PRIMARY KEY NOT NULL COLLATE NOCASE, a, b INT UNIQUE ON CONFLICT REPLACE)",),
        values={"rowid": number(1, 12), "k": text("abcdefgh"), "a": number(0, 9), "b": number(0, 9)},
        change="ALTER TABLE t SET WITHOUT ROWID",
        conflict_targets=("(k)", "(b)"),
        key="k",
        folded_key=True,
        moves=("rowid = rowid + 1", "b = b + 1", "k = upper(k)", "k = k || 'x'", "rowid = 3, b = 4"),
    ),
    Shape(
        name="an integer key becomes the table",
        schema=(
            "CREATE TABLE t (id INTEGER PRIMARY KEY, a INT UNIQUE, b TEXT)",
            "CREATE UNIQUE INDEX tb ON t (b, a DESC)",
        ),
        values={"id": number(1, 12), "a": number(0, 9), "b": text("abc")},
        change="ALTER TABLE t SET WITHOUT ROWID",
        conflict_targets=("(id)", "(a)"),
        key="id",
        moves=("id = id + 1", "id = -id", "a = a + 1"),
    ),
    Shape(
        name="rows get numbers",
        schema=(
            "CREATE TABLE t (a TEXT COLLATE NOCASE, b INT DEFAULT 1, c INT UNIQUE, PRIMARY KEY (b DESC, a)) WITHOUT ROWID",
        ),
        values={"a": text("abc"), "b": number(0, 3), "c": number(0, 9)},
        change="ALTER TABLE t SET ROWID",
        conflict_targets=("(c)", "(b, a)"),
        key="b, a",
        folded_key=True,
        moves=("a = upper(a)", "b = b + 1", "c = c - 1", "b = b + 1, a = lower(a)"),
    ),
    Shape(
        name="unique keys go",
        schema=(
            "CREATE TABLE t (id INTEGER PRIMARY KEY, a TEXT COLLATE NOCASE CONSTRAINT ua UNIQUE, b INT, c, UNIQUE (b, c) ON CONFLICT REPLACE)",
        ),
        values={"id": number(1, 12), "a": text("abcdef"), "b": number(0, 4), "c": number(0, 2)},
        change="ALTER TABLE t DROP CONSTRAINT ua, DROP UNIQUE (b, c), ADD COLUMN d INT DEFAULT 5 FIRST",
        conflict_targets=("(id)", "(a)", "(b, c)"),
        moves=("id = id + 1", "a = upper(a)", "b = b + 1", "c = NULL"),
    ),
    Shape(
        name="a column becomes the rowid",
        schema=("CREATE TABLE t (id INTEGER NOT NULL, a INT UNIQUE, b)", "CREATE UNIQUE INDEX ti ON t (id)"),
        values={"rowid": number(1, 12), "id": number(1, 15), "a": number(0, 9), "b": text("ab")},
        change="ALTER TABLE t ADD PRIMARY KEY (id)",
        conflict_targets=("(id)", "(a)"),
        key="id",
        moves=("rowid = rowid + 1", "id = id + 1", "id = rowid", "a = a + 1"),
    ),
    Shape(
        name="the rowid is no column any more, and columns move",
        schema=("CREATE TABLE t (id INTEGER PRIMARY KEY, a INT UNIQUE, b TEXT, gone)", "CREATE INDEX ib ON t (b)"),
        values={"id": number(1, 12), "a": number(0, 9), "b": text("abc"), "gone": number(0, 3)},
        change="ALTER TABLE t DROP PRIMARY KEY, DROP COLUMN gone, MOVE b FIRST, ALTER a TYPE TEXT",
        conflict_targets=("(id)", "(a)"),
        moves=("id = id + 1", "id = -id", "a = a + 1", "gone = 7"),
    ),
    Shape(
        name="an index comes",
        schema=("CREATE TABLE t (a INT, b TEXT, c, UNIQUE (a, b))",),
        values={"rowid": number(1, 15), "a": number(0, 4), "b": text("abc"), "c": number(0, 9)},
        change="CREATE INDEX ic ON t (lower(b) DESC, c COLLATE NOCASE) WHERE a > 1",
        conflict_targets=("(a, b)",),
        moves=("rowid = rowid + 1", "a = a + 1", "c = rowid"),
    ),
)
