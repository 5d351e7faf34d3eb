"""The dialect's own record of one change of a column in place, made at plan time and kept in the job."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from tideshift.ddl.reshaping import Reorg
from tideshift.dialects.postgres.driver import PostgresDriver, quote
from tideshift.dialects.postgres.keys import PostgresKeyOrder
from tideshift.dialects.postgres.names import own_name, qualified

__all__ = ["ColumnLayout", "ColumnNames", "KeyColumn", "NewIndex"]


@dataclass(frozen=True)
class KeyColumn:
    """One column of the key by which rows are taken: its name, its type, and the schema of its type's operators."""

    name: str
    type_text: str
    operators: str


@dataclass(frozen=True)
class NewIndex:
    """An index that uses the column: what it is called in the end, and how it is made over the new one."""

    name: str
    unique: bool
    rest: str
    """What stands behind the table's name in CREATE INDEX; the new column has its name of ours in it."""
    kind: str | None
    """By the catalogue's letter the constraint that it serves (p, u), or none."""
    constraint: str
    tablespace: str | None


@dataclass(frozen=True)
class ColumnLayout:
    """Everything that the job needs to know of the table and of both columns."""

    oid: int
    schema: str
    table: str
    column: str
    number: int
    old_type: str
    type_text: str
    """The new type."""
    not_null: bool
    not_null_name: str | None
    """What the server calls that constraint, where it has a name."""
    value: str
    """The new value as SQL over the row, each column behind the table's name."""
    plain: bool
    """Whether it is the column itself, which the server converts without ever refusing a value."""
    too_long: str | None
    """A condition, as above, that the value does not fit the new type's length, where a cast alone would cut it short."""
    checks: tuple[str, ...]
    """Conditions, as above, that the table's checks make of the new column."""
    placeholder: str | None
    """What a refused row holds until the job has failed, where it must not be NULL."""
    as_it_is: bool
    """Whether equal values of the new type are the same bytes."""
    key: tuple[KeyColumn, ...]
    default: str | None
    identity: str
    sequence: str | None
    """The options of the new identity's sequence."""
    checked: tuple[tuple[str, str, bool], ...]
    """The checks that use the column: name, text, whether they are validated."""
    indexes: tuple[NewIndex, ...]
    owner: str
    owns_itself: bool
    """Whether triggers of others would fire for the fill, which is therefore written as replication would."""
    left_unvalidated: tuple[str, ...]
    """Constraints over the column that are not validated and stay so; those of other tables behind the table's oid."""
    fingerprint: str
    row_bytes: int
    parts: int
    """How many ranges it is cut into; it grows by about one of them, and by as many as are under way at once."""

    @property
    def source(self) -> str:
        """Return the table's name behind its schema, quoted."""
        return qualified(self.schema, self.table)

    @property
    def alias(self) -> str:
        """Return what the table is called in a statement, so that the texts mean it."""
        return quote(self.table)

    def as_record(self) -> dict[str, Any]:
        """Give the form that is stored in the job (JSON)."""
        return asdict(self)

    @classmethod
    def of(cls, reorg: Reorg) -> ColumnLayout:
        """Read what was stored."""
        planned = reorg.reshaping.detail["in_place"]
        source = qualified(planned["schema"], planned["table"])
        # A plan does not know the job's number yet, which is in the names of ours.
        record: dict[str, Any] = json.loads(json.dumps(planned).replace(own_name(0, source, ""), own_name(reorg.job_id, source, "")))
        made = {
            "key": tuple(KeyColumn(**one) for one in record["key"]),
            "indexes": tuple(NewIndex(**one) for one in record["indexes"]),
            "checked": tuple(map(tuple, record["checked"])),
            "checks": tuple(record["checks"]),
            "left_unvalidated": tuple(record["left_unvalidated"]),
        }
        return cls(**{**record, **made})

    def order(self, driver: PostgresDriver) -> PostgresKeyOrder:
        """Return the order of the key."""
        types = [(one.type_text, one.operators) for one in self.key]
        return PostgresKeyOrder(self.schema, self.table, [one.name for one in self.key], driver=driver, types=types)

    def wrong(self, column: str) -> str:
        """Write the condition that the new column, of this name, does not hold what it must."""
        held, wanted = f"{self.alias}.{quote(column)}", f"({self.value})::{self.type_text}"
        if self.as_it_is:
            differs = f"{held} IS DISTINCT FROM {wanted}"
        else:
            differs = f'{held}::text COLLATE "C" IS DISTINCT FROM {wanted}::text COLLATE "C"'
        missing = [f"{held} IS NULL"] if self.not_null else []
        return " OR ".join([differs, *missing, *([f"({self.too_long})"] if self.too_long else []), *(f"({one}) IS FALSE" for one in self.checks)])


class ColumnNames:
    """What a job's objects are called, bare and behind their schema; the plan's own are those of job 0."""

    def __init__(self, schema: str, table: str, job_id: int) -> None:
        self.job_id = job_id
        self._schema = schema
        self._table = table
        self._source = qualified(schema, table)
        self.column = self.bare("column")
        self.trigger = f"~{self.bare('column')}"
        """A name behind all names of plain letters: triggers fire in the order of their names' bytes."""
        self.not_null = self.bare("not_null")
        self.function = qualified(schema, self.bare("column"))
        self.refused = qualified(schema, self.bare("refused"))

    @classmethod
    def of(cls, layout: ColumnLayout, job_id: int) -> ColumnNames:
        """Return the names of a job."""
        return cls(layout.schema, layout.table, job_id)

    def bare(self, what: str) -> str:
        """Return a name of ours without its schema."""
        return own_name(self.job_id, self._source, what)

    def index(self, number: int) -> str:
        """Return what an index over the new column is called until the swap."""
        return self.bare(f"index_{number}")

    def within(self, name: str) -> str:
        """Return something of the table behind schema and table, as its artifact is called."""
        return qualified(self._schema, self._table, name)

    def beside(self, name: str) -> str:
        """Return something behind the table's schema."""
        return qualified(self._schema, name)
