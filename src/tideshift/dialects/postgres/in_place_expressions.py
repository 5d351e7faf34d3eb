"""What the new column holds, as the server itself writes it down: each column behind the table's name, every name behind its schema.

A text in that form means the same in a statement on the table and in the trigger, where the table's name stands for the
row that is written. What is not a matter of the row alone is refused: the trigger runs in sessions of all kinds, and the
value must be the same whoever computes it and whenever.
"""

from __future__ import annotations

import re

from tideshift.dialects.postgres.pointing import point_at
from tideshift.dialects.postgres.shadow_compare import HASHED_AS_THEY_ARE
from tideshift.dialects.postgres.shape import ShapeColumn
from tideshift.dialects.postgres.source import user_path
from tideshift.dialects.postgres.trial import Trial
from tideshift.store.database import ConstraintViolated, DatabaseFailed, Transaction

__all__ = ["Expressions"]

_LIMITED = re.compile(r"(character varying|character|bit varying|bit)\((\d+)\)(\[\])*$")
_PLACEHOLDERS = (
    "'0'", "''", "'2000-01-01'", "'00000000-0000-0000-0000-000000000000'", "'{}'", "'0.0.0.0'", "'08:00:2b:01:02:03'", "'08:00:2b:01:02:03:04:05'", "'(0,0)'",
    "'empty'", "'<a/>'", "'()'",
)  # fmt: skip
"""Texts one of which almost every type can read."""


class Expressions:
    """The expressions of one change, tried on the empty copy; what speaks against them goes to the reasons."""

    def __init__(self, tx: Transaction, trial: Trial, reasons: list[str], path: str) -> None:
        self._tx = tx
        self._trial = trial
        self._reasons = reasons
        self._path = path

    def value(self, text: str, type_text: str) -> str | None:
        """Return the user's text as the server writes it, while the copy has its old shape; see that the row alone decides what it gives."""
        generated = f"ALTER TABLE {self._trial.table} ADD COLUMN tideshift_value {type_text} GENERATED ALWAYS AS (({text}\n)::{type_text}) STORED"
        try:
            self._try(generated, text, path=self._path)
            found = self._written(text, path=self._path)
            name = self._trial.table.partition(".")[2]
            self._try(f"EXPLAIN SELECT {found} FROM (SELECT (NULL::{self._trial.table}).*) AS {name}", found)
        except (DatabaseFailed, ConstraintViolated) as error:
            state = getattr(getattr(error.__cause__, "diag", None), "sqlstate", "")
            what = "in place the new value must follow from the row alone" if state == "42P17" else "the new value cannot be worked out for each row"
            self._reasons.append(f"{what}: {error.message.partition(chr(10))[0]}")
            return None
        return found

    def see_type(self, new: ShapeColumn) -> None:
        """See that a column of the new type can be added without writing every row, and that a cast to it is understood."""
        kind = self._tx.run_verbatim(
            "SELECT t.typtype::text FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid WHERE a.attrelid = $1 AND a.attname = $2",
            (self._trial.oid, new.name),
        ).scalar()
        if kind == "d":
            self._reasons.append(f"{new.type_text} is a domain, whose checks would be asked under a lock: that needs a shadow table")
        limited = _LIMITED.match(new.type_text)
        if limited and limited[3]:
            self._reasons.append(f"a cast to {new.type_text} cuts its elements short without a word: that needs a shadow table")

    def checks(self, names: list[str]) -> tuple[str, ...]:
        """Return what these checks demand of the copy as it is now."""
        rows = self._tx.run_verbatim(
            "SELECT pg_catalog.pg_get_expr(conbin, conrelid) FROM pg_catalog.pg_constraint WHERE conrelid = $1 AND contype = 'c' AND conname = ANY ($2) ORDER BY conname",
            (self._trial.oid, names),
        ).rows
        return tuple(self._written(text) for (text,) in rows)

    def placeholder(self, type_text: str) -> str | None:
        """Return some value of a type, for a row that is refused and must not hold NULL until the job has failed."""
        for text in (*_PLACEHOLDERS, f"(pg_catalog.enum_range(NULL::{type_text}))[1]"):
            self._tx.run_verbatim("SAVEPOINT tideshift_value")
            try:
                if self._tx.run_verbatim(f"SELECT ({text}::{type_text}) IS NOT NULL").scalar():
                    self._tx.run_verbatim("RELEASE SAVEPOINT tideshift_value")
                    return f"{text}::{type_text}"
            except (DatabaseFailed, ConstraintViolated):
                self._tx.run_verbatim("ROLLBACK TO SAVEPOINT tideshift_value")
        self._reasons.append(f"a value that the new column refuses could not be put aside until the job has failed: no value of {type_text} is known")
        return None

    @staticmethod
    def too_long(value: str, type_text: str) -> str | None:
        """Return the condition that a value is refused for its length, where a cast would cut it."""
        limited = _LIMITED.match(type_text)
        if limited is None:
            return None
        kind, length = limited[1], int(limited[2])
        if kind.startswith("bit"):
            return f"pg_catalog.length(({value})::bit varying) {'>' if kind == 'bit varying' else '<>'} {length}"
        return f"pg_catalog.rtrim(pg_catalog.substr(({value})::text, {length + 1}), ' ') <> ''"

    @staticmethod
    def compares_bytes(type_text: str) -> bool:
        """Whether equal values of a type are the same bytes."""
        return type_text in HASHED_AS_THEY_ARE

    def _written(self, text: str, *, path: str = "") -> str:
        """Let the server write an expression down, with a second table beside so that it names the first one."""
        view = 'pg_temp."tideshift_written"'
        self._tx.run_verbatim("SAVEPOINT tideshift_view")
        made = f"CREATE VIEW {view} AS SELECT ({text}\n) AS tideshift_value FROM {self._trial.table}, (SELECT 1 AS tideshift_one) AS tideshift_two"
        try:
            with user_path(self._tx, path):
                self._tx.run_verbatim(made)
        except (DatabaseFailed, ConstraintViolated) as error:
            self._tx.run_verbatim("ROLLBACK TO SAVEPOINT tideshift_view")
            point_at(error, made, text)
            raise
        whole = str(self._tx.run_verbatim(f"SELECT pg_catalog.pg_get_viewdef('{view}'::pg_catalog.regclass)").scalar()).strip()
        self._tx.run_verbatim("ROLLBACK TO SAVEPOINT tideshift_view")
        head, found, _ = whole.rpartition(" AS tideshift_value")
        assert found, whole
        assert head.startswith("SELECT "), whole
        return head.removeprefix("SELECT ")

    def _try(self, statement: str, fragment: str, *, path: str = "") -> None:
        self._tx.run_verbatim("SAVEPOINT tideshift_value")
        try:
            with user_path(self._tx, path):
                self._tx.run_verbatim(statement)
        except (DatabaseFailed, ConstraintViolated) as error:
            self._tx.run_verbatim("ROLLBACK TO SAVEPOINT tideshift_value")
            point_at(error, statement, fragment)
            raise
        self._tx.run_verbatim("ROLLBACK TO SAVEPOINT tideshift_value")


