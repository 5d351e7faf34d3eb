"""The tables of the outcome oracle: the same columns under every kind of key, each with a change to carry out beside the writers."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.proof.engine import application

__all__ = ["REST", "REST_LOOSE", "SHAPES", "Shape", "make", "rebuild"]

PARENTS = 40


@dataclass(frozen=True)
class Shape:
    """One table `t` with columns k, u, n, v, amount, p, boss, note; `{type}` in its text is what a change of the type replaces."""

    name: str
    text: str
    old_type: str
    new_type: str
    target: str
    """What an upsert may name as its conflict target for the key."""
    using: str | None = None
    refused: str = ""
    """An amount that the new shape does not take (none if it takes everything)."""
    rows: int = 480
    extra: tuple[str, ...] = ()
    """What is made beside it on this shape only."""
    walk: str = "k"
    """The column by which several rows are updated at once. It must be the table's own order: a trigger, of whomever, makes
    SQLite visit the rows of an UPDATE in that order instead of an index's, and where rows conflict the order decides."""
    asked: str = ""
    """Another change than that of the type."""
    edits: tuple[tuple[str, str], ...] = ()
    """What that replaces in the table's text; none for a statement about indexes."""

    def __str__(self) -> str:
        return self.name

    def table(self, type_text: str) -> str:
        """Return the text with this type."""
        return self.text.replace("{type}", f" {type_text}" if type_text else "")

    @property
    def old_text(self) -> str:
        """Return the text before the change."""
        return self.table(self.old_type)

    @property
    def new_text(self) -> str:
        """Return the text after the change."""
        if not self.asked:
            return self.table(self.new_type)
        text = self.old_text
        for old, new in self.edits:
            assert text.count(old) == 1, (old, text)
            text = text.replace(old, new)
        return text

    @property
    def statement(self) -> str:
        """Return the change."""
        if self.asked:
            return self.asked
        using = f" USING {self.using}" if self.using else ""
        return f"ALTER TABLE t ALTER COLUMN amount TYPE {self.new_type}{using}"


REST = (
    "u TEXT UNIQUE, n TEXT NOT NULL DEFAULT 'usual' UNIQUE, v INTEGER, amount{type},"
    " p INTEGER REFERENCES parent(id) ON DELETE CASCADE ON UPDATE CASCADE,"
    " boss INTEGER REFERENCES t(k) ON DELETE SET NULL DEFERRABLE INITIALLY DEFERRED, note TEXT CHECK (note IS NOT 'bad')"
)
REST_LOOSE = REST.replace("u TEXT UNIQUE", "u TEXT UNIQUE ON CONFLICT REPLACE").replace("REFERENCES t(k)", "REFERENCES t(u)")

_AGAIN = "UPDATE t SET amount = 5, u = coalesce(u, 'x') || '!' WHERE k = NEW.k - 1; DELETE FROM t WHERE k = NEW.k + 2;"
_PUT = "INSERT OR REPLACE INTO t (k, u, n) VALUES (NEW.id * 3, 'u' || NEW.id, 'n' || (NEW.id + 5));"
_BUSY = (
    f"CREATE TRIGGER t_again AFTER UPDATE OF v, amount ON t WHEN NEW.k % 4 = 0 BEGIN {_AGAIN} END",
    "CREATE TRIGGER t_first BEFORE INSERT ON t WHEN NEW.k % 7 = 0 BEGIN UPDATE t SET n = n || '?', v = NULL WHERE k = NEW.k + 1; END",
    f"CREATE TRIGGER p_in AFTER INSERT ON parent BEGIN {_PUT} END",
    "CREATE TRIGGER p_out AFTER DELETE ON parent BEGIN UPDATE OR REPLACE t SET u = 'u' || (OLD.id + 9) WHERE k = OLD.id * 2; END",
)
"""Triggers that write the table themselves, under whatever conflict clause the outer statement has."""

SHAPES = (
    Shape("counted", f"CREATE TABLE t (k INTEGER PRIMARY KEY AUTOINCREMENT, {REST})", "TEXT", "NUMERIC", "k"),
    Shape(
        "computed", f"CREATE TABLE t (k INTEGER PRIMARY KEY, {REST}, twice AS (amount || amount))", "INTEGER", "TEXT", "k",
        using="CASE WHEN amount = 'refused' THEN json('{') ELSE amount || '%' END", refused="refused",
    ),
    Shape("plain", f"CREATE TABLE t (k INT PRIMARY KEY ON CONFLICT REPLACE, {REST_LOOSE})", "", "INTEGER", "k", walk="rowid"),
    Shape(
        "without rowid", f"CREATE TABLE t (k INT, g TEXT DEFAULT 'g' COLLATE NOCASE, {REST}, PRIMARY KEY (k DESC, g)) WITHOUT ROWID"
        .replace("REFERENCES t(k)", "REFERENCES t(u)"), "REAL", "TEXT", "k, g",
    ),
    Shape(
        "unique amount", f"CREATE TABLE t (k INTEGER PRIMARY KEY, {REST})".replace("amount{type}", "amount{type} UNIQUE ON CONFLICT REPLACE"),
        "TEXT", "INTEGER", "k",
    ),
    Shape(
        "unique by USING", f"CREATE TABLE t (k INTEGER PRIMARY KEY, {REST})".replace("amount{type}", "amount{type} NOT NULL DEFAULT 7 UNIQUE"),
        "INTEGER", "TEXT", "k", using="amount || '%'",
    ),
    Shape(
        "busy triggers", f"CREATE TABLE t (k INTEGER PRIMARY KEY, {REST})", "TEXT", "INTEGER", "k",
        extra=_BUSY,
    ),
    Shape("strict", f"CREATE TABLE t (k INTEGER PRIMARY KEY, {REST}) STRICT", "ANY", "INTEGER", "k", refused="not a number"),
)  # fmt: skip

_BESIDE = (
    "CREATE UNIQUE INDEX few ON t(v) WHERE v > 0",
    "CREATE UNIQUE INDEX folded ON t(lower(u) DESC, n COLLATE NOCASE)",
    "CREATE INDEX by_amount ON t(amount, k)",
    "CREATE TABLE child (id INTEGER PRIMARY KEY, of TEXT REFERENCES t(u) ON DELETE CASCADE ON UPDATE CASCADE)",
    "CREATE TABLE audit (at INTEGER PRIMARY KEY, what TEXT, k, amount)",
    "CREATE TRIGGER t_in AFTER INSERT ON t BEGIN INSERT INTO audit (what, k, amount) VALUES ('in', NEW.k, typeof(NEW.amount)); END",
    "CREATE TRIGGER t_out AFTER DELETE ON t BEGIN INSERT INTO audit (what, k) VALUES ('out', OLD.k); END",
    ("CREATE TRIGGER t_odd BEFORE UPDATE OF note ON t WHEN NEW.note IN ('skip', 'fail', 'undo') BEGIN"
    " SELECT CASE NEW.note WHEN 'skip' THEN RAISE(IGNORE) WHEN 'fail' THEN RAISE(FAIL, 'no') ELSE RAISE(ROLLBACK, 'back') END; END"),
)


def make(path: Path, shape: Shape, *, journal_mode: str) -> None:
    """Make the database of a shape."""
    with closing(application(path)) as connection:
        connection.execute(f"PRAGMA journal_mode = {journal_mode}").fetchone()
        connection.execute("CREATE TABLE parent (id INTEGER PRIMARY KEY, name TEXT UNIQUE)")
        connection.execute(shape.old_text)
        connection.execute("BEGIN")
        connection.executemany("INSERT INTO parent VALUES (?, ?)", [(n, f"p{n}") for n in range(1, PARENTS + 1)])
        for k in range(1, shape.rows + 1):
            amount: object = k * 3 if k % 4 else str(k)
            connection.execute(
                "INSERT INTO t (k, u, n, v, amount, p, note) VALUES (?, ?, ?, ?, ?, ?, ?)",
                (k, f"u{k}", f"n{k}" if k != 7 else "usual", k if k % 3 == 0 else -k, amount, k % PARENTS + 1 if k % 5 else None, f"row {k}"),
            )
        connection.execute("COMMIT")
        for text in (*_BESIDE, *shape.extra):
            connection.execute(text)
        connection.executemany("INSERT INTO child VALUES (?, ?)", [(n, f"u{n * 3}") for n in range(1, shape.rows // 6)])


def rebuild(path: Path, shape: Shape) -> None:
    """Make the change of a shape in the classic way, in one transaction: new table, all rows, drop, rename, indexes, triggers."""
    with closing(application(path)) as connection:
        if shape.asked and not shape.edits:
            connection.execute(shape.asked)
            return
        connection.execute("PRAGMA foreign_keys = OFF")
        connection.execute("PRAGMA legacy_alter_table = ON")
        connection.execute("BEGIN IMMEDIATE")
        attached = connection.execute(
            "SELECT type, name, sql FROM sqlite_master WHERE tbl_name = 't' AND type IN ('index', 'trigger') AND sql IS NOT NULL ORDER BY rowid"
        ).fetchall()
        for kind, name, _ in attached:
            connection.execute(f'DROP {kind} "{name}"')
        connection.execute(shape.new_text.replace("CREATE TABLE t ", "CREATE TABLE rebuilt "))
        columns = _carried(connection, shape)
        shown = [f"({shape.using})" if shape.using and column == "amount" else column for column in columns]
        counter = _counter(connection)
        connection.execute(f"INSERT OR ABORT INTO rebuilt ({', '.join(columns)}) SELECT {', '.join(shown)} FROM t")
        connection.execute("DROP TABLE t")
        connection.execute("ALTER TABLE rebuilt RENAME TO t")
        if counter is not None:
            connection.execute("UPDATE sqlite_sequence SET seq = ? WHERE name = 't'", (counter,))
        for _, _, sql in attached:
            connection.execute(sql)
        connection.execute("COMMIT")


def _carried(connection: Any, shape: Shape) -> list[str]:
    """Return the columns that both tables have, with the number of a row where it is none of them and both have it."""
    in_both = "SELECT name FROM pragma_table_xinfo('t') WHERE hidden = 0 AND name IN (SELECT name FROM pragma_table_xinfo('rebuilt') WHERE hidden = 0)"
    columns = [name for (name,) in connection.execute(in_both)]
    keys = connection.execute("SELECT upper(type) FROM pragma_table_info('rebuilt') WHERE pk").fetchall()
    hidden = keys != [("INTEGER",)] and "WITHOUT ROWID" not in shape.old_text + shape.new_text
    return [*columns, "rowid"] if hidden else columns


def _counter(connection: Any) -> object:
    found = connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'sqlite_sequence'").fetchone()
    row = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = 't'").fetchone() if found else None
    return None if row is None else row[0]
