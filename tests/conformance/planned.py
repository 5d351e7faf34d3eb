"""One table and one change of it, planned by a dialect: what the conformance tests of a dialect's protocols work on.

The texts are written so that every database takes them. Everything that an application does goes through connections of
its own; everything that the engine does goes through the verbs, each in a transaction as the engine opens it.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

from sqlalchemy import inspect

from tests.databases import in_columns
from tideshift.ddl.dialect import ArtifactName, BuildGroup, Comparison, Dialect, Reorg, Reshaping, Strategy
from tideshift.ddl.statement import parse_statement
from tideshift.store.database import Database, Transaction
from tideshift.store.keys import Bound, KeyRange

__all__ = ["JOB_ID", "ROWS", "SHAPES", "WHOLE", "Planned", "Shape"]

JOB_ID, OTHER_JOB_ID = 7, 8
ROWS = 12
ROUNDS_MAX = 1_000
WHOLE = KeyRange(None, None)


@dataclass(frozen=True)
class Shape:
    """The key of a table: its columns, the constraint that makes them the key, and the values of the n-th key, in the key's order."""

    columns: str
    key: tuple[str, ...]
    values: Callable[[int], tuple[str, ...]]
    numbers_rows: bool = False
    """Whether a database that numbers its rows takes the key for that number."""

    @property
    def table(self) -> str:
        """The columns of the whole table: besides the key one that changes, and one with a unique value."""
        return f"{self.columns}, c integer, d varchar(20) UNIQUE, PRIMARY KEY ({', '.join(self.key)})"


SHAPES = {
    "number": Shape("k integer", ("k",), lambda n: (str(n),), numbers_rows=True),
    "text": Shape("k varchar(20) NOT NULL", ("k",), lambda n: (f"'key {n:03}'",)),
    "two columns": Shape("k integer NOT NULL, l varchar(9) NOT NULL", ("k", "l"), lambda n: (str(n // 4), f"'{n % 4}'")),
}
TO_TEXT = "ALTER TABLE t ALTER COLUMN c TYPE text, ALTER COLUMN c SET NOT NULL"
"""Changes every value, and refuses a row: one without a value."""


def bare(name: str) -> str:
    """A table's name without its schema."""
    return name.rpartition(".")[2].strip('"')


class Planned:
    """Table `t` with rows 1 to `rows`, and a change of it that is planned and no more."""

    def __init__(
        self, database: Database, dialect: Dialect, shape: Shape = SHAPES["number"], *, statement: str = TO_TEXT, rows: int = ROWS,
        strategy: Strategy = Strategy.SHADOW_TABLE, around: tuple[str, ...] = (),
    ) -> None:  # fmt: skip
        self.database, self.dialect, self.shape = database, dialect, shape
        self.catalog, self.shadow, self.native = dialect.catalog, dialect.shadow, dialect.native
        self.in_t = in_columns(database.driver, "t")
        self.run(f"CREATE TABLE {self.in_t('{table}')} ({shape.table}){self._clustered()}")
        for n in range(1, rows + 1):
            self.add(n)
        for text in around:
            self.run(text)
        with self.reading() as tx:
            self.designed = dialect.design(tx, parse_statement(statement), strategy=strategy)
        # The engine reads the design back from the job's row.
        self.stored = Reshaping.from_record(json.loads(json.dumps(self.designed.as_record())))
        self.reorg = Reorg(JOB_ID, self.stored)

    @property
    def schema(self) -> str | None:
        """Where the application's tables are: our sessions have no search path, where there is such a thing."""
        return None if self.database.driver.name == "sqlite" else "public"

    def _clustered(self) -> str:
        """Let the rows lie in the order of their key, where that is for the table to say."""
        return " WITHOUT ROWID" if self.database.driver.name == "sqlite" and not self.shape.numbers_rows else ""

    # ── the application ───────────────────────────────────────────────────────────────────────────────────────────

    def run(self, *statements: str) -> int:
        """Execute statements of the application in one transaction; return how many rows the last one met."""
        affected = 0
        with self.database.transaction() as tx:
            if self.schema is not None:
                tx.run_verbatim(f"SET LOCAL search_path = {self.schema}")
            for statement in statements:
                affected = tx.run_verbatim(self.in_t(statement)).affected
        return affected

    def add(self, n: int, *, c: str | None = None) -> None:
        """Insert row number n."""
        values = (*self.shape.values(n), str(n * 10) if c is None else c, f"'row {n}'")
        self.run(f"INSERT INTO {{table}} ({', '.join((*self.shape.key, 'c', 'd'))}) VALUES ({', '.join(values)})")

    def row(self, n: int) -> str:
        """The condition that a row is number n."""
        return " AND ".join(f"{name} = {value}" for name, value in zip(self.shape.key, self.shape.values(n), strict=True))

    def rows(self, table: str = "t") -> list[tuple[Any, ...]]:
        """What a table holds, in the order of its key."""
        names = ", ".join(self.shape.key)
        with self.reading() as tx:
            return tx.run_verbatim(in_columns(self.database.driver, table)(f"SELECT {names}, c, d FROM {{table}} ORDER BY {names}")).rows

    def columns(self, table: str = "t") -> list[tuple[str, str, bool]]:
        """Name, type and NOT NULL of a table's columns, as the catalogue has them."""
        with self.reading() as tx:
            return [(one["name"], str(one["type"]).lower(), not one["nullable"]) for one in inspect(tx.connection).get_columns(bare(table), self.schema)]

    def indexes(self, table: str = "t") -> set[str]:
        """The names of a table's indexes but for those that a constraint makes."""
        with self.reading() as tx:
            found = inspect(tx.connection).get_indexes(bare(table), self.schema)
        return {str(one["name"]) for one in found if not one.get("duplicates_constraint")}

    def tables(self) -> set[str]:
        """The names of all tables that the application can see."""
        with self.reading() as tx:
            return set(inspect(tx.connection).get_table_names(self.schema))

    # ── the engine ────────────────────────────────────────────────────────────────────────────────────────────────

    def reading(self) -> AbstractContextManager[Transaction]:
        """A transaction that only reads."""
        return self.database.transaction(write=False)

    def writing(self) -> AbstractContextManager[Transaction]:
        """A transaction that writes."""
        return self.database.transaction()

    @property
    def artifacts(self) -> list[ArtifactName]:
        """Everything that the shadow's `install` makes."""
        return self.shadow.artifacts(self.reorg)

    def named(self, kind: str) -> str:
        """The name of the one artifact of a kind."""
        (name,) = [made.name for made in self.artifacts if made.kind == kind]
        return name

    def written(self, kind: str) -> str:
        """The same as statements write it."""
        return in_columns(self.database.driver, self.named(kind))("{table}")

    def references(self, table: str) -> list[tuple[str, list[str]]]:
        """Which tables and columns a table refers to."""
        with self.reading() as tx:
            return [(one["referred_table"], one["referred_columns"]) for one in inspect(tx.connection).get_foreign_keys(bare(table), self.schema)]

    def objects(self) -> set[str]:
        """The names of what is ours in the catalogue now."""
        with self.reading() as tx:
            return {name for _, name in self.catalog.objects(tx)}

    def bound(self, n: int) -> Bound:
        """The key of the n-th row of now."""
        with self.reading() as tx:
            found = self.shadow.key_order(self.reorg).next_bound(tx, WHOLE, rows=n)
        assert found is not None
        return found

    def install(self) -> None:
        """Install."""
        with self.writing() as tx:
            self.shadow.install(tx, self.reorg)

    def copy(self, *, rows_max: int = 5) -> int:
        """Copy everything up to the last key, and build what the copy lacks; return how many rows."""
        rows = self.copy_rows(rows_max=rows_max)
        self.build(*BuildGroup)
        return rows

    def copy_rows(self, *, rows_max: int = 5) -> int:
        """Copy everything up to the last key and no more; return how many rows."""
        low, rows = None, 0
        for _ in range(ROUNDS_MAX):
            with self.writing() as tx:
                chunk = self.shadow.copy_chunk(tx, self.reorg, KeyRange(low, None), rows_max=rows_max)
            rows += chunk.rows
            if chunk.last is None:
                return rows
            low = chunk.last
        raise AssertionError("the copy does not end")

    def backlog(self, *, limit: int = 1_000) -> int:
        """How many log rows wait."""
        with self.reading() as tx:
            return self.shadow.backlog(tx, self.reorg, limit=limit)

    def build(self, *groups: BuildGroup) -> None:
        """Build what the copy lacks."""
        for number in (number for group in groups for number in self.shadow.builds(self.reorg, group)):
            with self.writing() as tx:
                self.shadow.build(tx, self.reorg, number)

    def apply(self, *, rows_max: int = 1_000) -> tuple[int, int]:
        """Apply one batch, for which the copy needs the index of its key; return log rows and keys."""
        self.build(BuildGroup.KEY)
        with self.writing() as tx:
            batch = self.shadow.apply_batch(tx, self.reorg, rows_max=rows_max)
        return batch.log_rows, batch.keys

    def compare(self, key_range: KeyRange = WHOLE, *, rows_max: int = 1_000) -> Comparison:
        """Compare one chunk."""
        with self.reading() as tx:
            return self.shadow.compare_chunk(tx, self.reorg, key_range, rows_max=rows_max)

    def differing(self) -> list[Bound]:
        """Compare everything, a few rows at a time, and return the keys that differ."""
        low, found = None, []
        for _ in range(ROUNDS_MAX):
            comparison = self.compare(KeyRange(low, None), rows_max=5)
            found += comparison.differing
            if comparison.last is None:
                return found
            low = comparison.last
        raise AssertionError("the comparison does not end")

    def changed(self, rows: list[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
        """Rows as the new shape has them: the changed column as text."""
        return [(*key, str(c), d) for *key, c, d in rows]

    def is_copy(self) -> bool:
        """Whether the shadow holds the source's rows, each in the new shape, and nothing else."""
        return self.rows(self.named("shadow")) == self.changed(self.rows())
