"""A seeded stream of statements as applications write them: every conflict clause, keys that move, transactions, cascades."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from tests.proof.shapes import PARENTS, Shape

__all__ = ["HOT_KEYS_MAX", "Statement", "Stream"]

Statement = tuple[str, tuple[object, ...]]
HOT_KEYS_MAX = 200
POLICIES = ("", "OR IGNORE", "OR REPLACE", "OR FAIL", "OR ABORT", "OR ROLLBACK")


class Stream:
    """Draws the next statement; `front` is the key that the copy has come to, `refusing` lets in what the new shape refuses."""

    def __init__(self, shape: Shape, random: Random) -> None:
        self.shape = shape
        self.random = random
        self.front: int | None = None
        self.refusing = False
        self.hot: set[int] = set()
        self.in_transaction = False
        self.savepoints = 0
        self.kinds: tuple[Callable[[], Statement], ...] = (
            self._insert, self._insert, self._insert_two, self._upsert, self._replace, self._update, self._update, self._update_unique,
            self._shift, self._move, self._rename, self._delete, self._delete_some, self._parent, self._copy_rows, self._null_default,
            self._odd_note, self._read, self._child,
        )  # fmt: skip

    def next(self) -> Statement:
        """Draw one statement."""
        if self.in_transaction:
            if self.random.random() < 0.3:
                return self._inside()
        elif self.random.random() < 0.08:
            return (self.random.choice(("BEGIN", "BEGIN IMMEDIATE", "BEGIN EXCLUSIVE")), ())
        elif self.random.random() < 0.05:
            pragma = self.random.choice(("foreign_keys", "recursive_triggers"))
            return (f"PRAGMA {pragma} = {self.random.choice(('ON', 'OFF'))}", ())
        return self.random.choice(self.kinds)()

    def closing(self) -> Statement:
        """Draw an end of the open transaction."""
        self.savepoints = 0
        return (self.random.choice(("COMMIT", "COMMIT", "ROLLBACK")), ())

    def see(self, in_transaction: bool) -> None:
        """Learn whether a transaction is open: an error may have ended it."""
        self.in_transaction = in_transaction
        if not in_transaction:
            self.savepoints = 0

    def _inside(self) -> Statement:
        choice = self.random.random()
        if choice < 0.35:
            return self.closing()
        if choice < 0.6 or self.savepoints == 0:
            self.savepoints += 1
            return (f"SAVEPOINT s{self.savepoints}", ())
        name = f"s{self.random.randint(1, self.savepoints)}"
        if choice < 0.8:
            self.savepoints = int(name[1:])
            return (f"ROLLBACK TO {name}", ())
        self.savepoints = int(name[1:]) - 1
        return (f"RELEASE {name}", ())

    # ── values ────────────────────────────────────────────────────────────────────────────────────────────────────

    def _key(self) -> int:
        if self.random.random() < 0.35:
            return self.random.randint(1, self.shape.rows + 40)
        if self.front is not None and len(self.hot) < HOT_KEYS_MAX:
            key = max(1, self.front + self.random.randint(-8, 8))
            self.hot.add(key)
            return key
        return self.random.choice(sorted(self.hot)) if self.hot else self.random.randint(1, 60)

    def _policy(self) -> str:
        return self.random.choice(POLICIES)

    def _amount(self) -> object:
        if self.refusing and self.shape.refused and self.random.random() < 0.5:
            return self.shape.refused
        return self.random.choice((None, 0, 7, 12, "34", self.random.randint(0, 999)))

    def _values(self) -> tuple[object, ...]:
        k, other = self._key(), self._key()
        u = self.random.choice((f"u{k}", f"u{other}", f"U{other}", None))
        n = self.random.choice((f"n{k}", f"n{other}", f"new {self.random.randint(0, 99)}"))
        v = self.random.choice((k, -k, other, None))
        p = self.random.choice((None, self.random.randint(1, PARENTS + 2)))
        return (self.random.choice((k, k, k, None)), u, n, v, self._amount(), p, self.random.choice(("some", "bad", "fine")))

    # ── statements ────────────────────────────────────────────────────────────────────────────────────────────────

    def _insert(self) -> Statement:
        returning = self.random.choice(("", "", " RETURNING k, u, amount"))
        return (f"INSERT {self._policy()} INTO t (k, u, n, v, amount, p, note) VALUES (?, ?, ?, ?, ?, ?, ?){returning}", self._values())

    def _insert_two(self) -> Statement:
        rows = "(?, ?, ?, ?, ?, ?, ?), (?, ?, ?, ?, ?, ?, ?)"
        return (f"INSERT {self._policy()} INTO t (k, u, n, v, amount, p, note) VALUES {rows}", (*self._values(), *self._values()))

    def _upsert(self) -> Statement:
        target = self.random.choice((f"({self.shape.target})", "(u)", "(v) WHERE v > 0", "(n)"))
        change = self.random.choice(("amount = excluded.amount", "u = excluded.u, v = excluded.v", "k = excluded.k + 1", "n = excluded.n"))
        what = self.random.choice(("DO NOTHING", f"DO UPDATE SET {change}", f"DO UPDATE SET {change} WHERE t.k % 2"))
        returning = self.random.choice(("", " RETURNING k, n"))
        sql = f"INSERT INTO t (k, u, n, v, amount, p, note) VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT {target} {what}{returning}"
        return (sql, self._values())

    def _replace(self) -> Statement:
        return ("REPLACE INTO t (k, u, n, v, amount, p, note) VALUES (?, ?, ?, ?, ?, ?, ?)", self._values())

    def _update(self) -> Statement:
        low = self._key()
        return (f"UPDATE {self._policy()} t SET amount = ?, note = 'seen' WHERE {self.shape.walk} BETWEEN ? AND ?", (self._amount(), low, low + 2))

    def _update_unique(self) -> Statement:
        column, value = self.random.choice((("u", f"u{self._key()}"), ("v", self._key()), ("n", f"N{self._key()}"), ("n", "usual")))
        low = self._key()
        returning = self.random.choice(("", " RETURNING k, u"))
        return (f"UPDATE {self._policy()} t SET {column} = ? WHERE {self.shape.walk} BETWEEN ? AND ?{returning}", (value, low, low + 1))

    def _shift(self) -> Statement:
        low = self._key()
        move = self.random.choice(("k = k + 1", "k = k - 1", "v = v + 3", "u = 'u' || (k + 1)", "k = k + 1, u = 'u' || (k + 1)"))
        return (f"UPDATE {self._policy()} t SET {move} WHERE {self.shape.walk} BETWEEN ? AND ?", (low, low + self.random.randint(0, 4)))

    def _move(self) -> Statement:
        return (f"UPDATE {self._policy()} t SET k = ? WHERE k = ?", (self._key(), self._key()))

    def _rename(self) -> Statement:
        return (f"UPDATE {self._policy()} t SET k = ?, u = ?, v = ? WHERE u = ?", (self._key(), f"u{self._key()}", self._key(), f"u{self._key()}"))

    def _delete(self) -> Statement:
        return self.random.choice((("DELETE FROM t WHERE k = ?", (self._key(),)), ("DELETE FROM t WHERE u = ? RETURNING k", (f"u{self._key()}",))))

    def _delete_some(self) -> Statement:
        low = self._key()
        return ("DELETE FROM t WHERE k BETWEEN ? AND ?", (low, low + self.random.randint(0, 3)))

    def _parent(self) -> Statement:
        one, other = self.random.randint(1, PARENTS), self.random.randint(1, PARENTS)
        return self.random.choice(
            (
                ("DELETE FROM parent WHERE id = ?", (one,)), ("UPDATE OR REPLACE parent SET id = ? WHERE id = ?", (one, other)),
                ("INSERT OR REPLACE INTO parent VALUES (?, ?)", (one, f"p{other}")), ("INSERT OR IGNORE INTO parent VALUES (?, ?)", (one, f"p{one}")),
            )
        )  # fmt: skip

    def _copy_rows(self) -> Statement:
        low = self._key()
        sql = f"INSERT {self._policy()} INTO t (k, u, n, v, amount) SELECT k + 1, u || '+', n || '+', v, amount FROM t WHERE k BETWEEN ? AND ?"
        return (sql, (low, low + 2))

    def _null_default(self) -> Statement:
        policy = self.random.choice(("OR REPLACE", "OR IGNORE", ""))
        return self.random.choice(
            (
                (f"UPDATE {policy} t SET n = NULL WHERE k = ?", (self._key(),)),
                (f"INSERT {policy} INTO t (k, u, n) VALUES (?, ?, NULL)", (self._key(), f"u{self._key()}")),
            )
        )

    def _odd_note(self) -> Statement:
        low = self._key()
        note = self.random.choice(("skip", "fail", "undo", "bad"))
        sql = f"UPDATE {self._policy()} t SET v = -v, note = CASE WHEN {self.shape.walk} = ? THEN ? ELSE 'odd' END WHERE {self.shape.walk} BETWEEN ? AND ?"
        return (sql, (low + 1, note, low, low + 3))

    def _read(self) -> Statement:
        low = self._key()
        return self.random.choice(
            (
                ("SELECT k, u, n, v, typeof(amount), amount, p, boss FROM t WHERE k BETWEEN ? AND ? ORDER BY k", (low, low + 9)),
                ("SELECT count(*), count(amount), sum(v) FROM t WHERE v > ?", (0,)), ("SELECT k FROM t WHERE u = ?", (f"u{low}",)),
            )
        )  # fmt: skip

    def _child(self) -> Statement:
        key = self._key()
        return self.random.choice(
            (
                ("INSERT OR REPLACE INTO child VALUES (?, ?)", (key, f"u{self._key()}")), ("DELETE FROM child WHERE of = ?", (f"u{key}",)),
                ("UPDATE OR IGNORE t SET boss = (SELECT boss FROM t ORDER BY k LIMIT 1) WHERE k = ?", (key,)),
            )
        )  # fmt: skip
