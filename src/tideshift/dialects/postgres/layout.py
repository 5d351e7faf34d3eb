"""The dialect's own record of one change by a shadow table, made at plan time and kept in the job: texts, columns, key, indexes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from tideshift.ddl.reshaping import Reorg
from tideshift.dialects.postgres.driver import PostgresDriver, quote
from tideshift.dialects.postgres.keys import PostgresKeyOrder
from tideshift.dialects.postgres.names import own_name, qualified

__all__ = ["IndexPlan", "KeyColumn", "Layout", "Mapped", "Names"]


@dataclass(frozen=True)
class KeyColumn:
    """One column of the chunk key: its name and type in the source, the schema of its type's operators, and its name in the shadow."""

    name: str
    type_text: str
    operators: str
    new_name: str
    collation: str | None


@dataclass(frozen=True)
class Mapped:
    """One column that a copied row writes: its name in the shadow, and its value as SQL over the source's row."""

    name: str
    type_text: str
    value: str


@dataclass(frozen=True)
class IndexPlan:
    """An index of the new shape: what it is called in the end, and how it is made."""

    name: str
    unique: bool
    rest: str
    kind: str | None
    """By the catalogue's letter the constraint that it serves (p, u, x), or none."""
    constraint: str
    """That constraint's text."""
    deferring: str
    is_key: bool
    """Whether it is the one by which rows are found while they are copied."""
    tablespace: str | None

    @property
    def enforces(self) -> bool:
        """Whether it refuses rows: such a one is made only when shadow and source were brought to one instant."""
        return self.unique or self.kind is not None


@dataclass(frozen=True)
class Layout:
    """Everything that the job needs to know of source and shadow."""

    oid: int
    schema: str
    table: str
    search_path: str
    uses_path: bool
    """Whether a value is a text of the user's, whose names are read by the search path."""
    create: str
    """What stands between the parentheses of CREATE TABLE for the shadow."""
    options: str
    """What stands behind them."""
    unlogged: bool
    settings: tuple[str, ...]
    """Clauses of an ALTER TABLE that makes the shadow complete."""
    owner: str
    key: tuple[KeyColumn, ...]
    mapped: tuple[Mapped, ...]
    overriding: bool
    """Whether a value is given to an identity column that would not take one unasked."""
    compared: tuple[str, ...]
    """The columns of the shadow whose values are the source's."""
    indexes: tuple[IndexPlan, ...]
    late_checks: tuple[str, ...]
    """Constraints that are not validated: they come with the swap."""
    columns: tuple[tuple[str, str], ...]
    """Source columns that go on: their names, and those in the new shape."""
    dropped_constraints: tuple[str, ...]
    foreign_keys: tuple[str, ...]
    """The table's own foreign keys that stay."""
    widened: tuple[str, ...]
    """Sequences that shall count in bigint from the swap on, since their column does."""
    identities: tuple[tuple[str, str], ...]
    """Identity columns that go on: name in the source and in the new shape."""
    new_identities: tuple[tuple[str, str], ...]
    """Identity columns that come with the change, and what their sequences are called."""
    fingerprint: str
    """Of the source's rows and shape."""
    source_columns: str
    shadow_columns: str
    """Digests of what the columns of both are, which is looked at in each transaction."""
    left_unvalidated: tuple[str, ...]
    """Foreign keys that are not validated and stay so: by name, those of other tables behind the table's oid."""
    row_bytes: int
    retyped: tuple[int, ...] = ()
    """Source columns by number whose type or collation changes: views over them may have to be made anew."""

    @property
    def source(self) -> str:
        """Return the table's name behind its schema, quoted."""
        return qualified(self.schema, self.table)

    def as_record(self) -> dict[str, Any]:
        """Give the form that is stored in the job (JSON)."""
        return asdict(self)

    @classmethod
    def of(cls, reorg: Reorg) -> Layout:
        """Read what was stored."""
        record: dict[str, Any] = dict(reorg.reshaping.detail["layout"])
        made = {
            "key": tuple(KeyColumn(**one) for one in record["key"]),
            "mapped": tuple(Mapped(**one) for one in record["mapped"]),
            "indexes": tuple(IndexPlan(**one) for one in record["indexes"]),
            **{name: tuple(map(tuple, record[name])) for name in ("columns", "identities", "new_identities")},
            **{name: tuple(record[name]) for name in ("settings", "compared", "late_checks", "dropped_constraints", "foreign_keys", "widened", "left_unvalidated")},
            "retyped": tuple(record.get("retyped", ())),
        }
        return cls(**{**record, **made})

    def order(self, driver: PostgresDriver) -> PostgresKeyOrder:
        """Return the order of the source's chunk key."""
        return self._order(self.table, [one.name for one in self.key], driver)

    def new_order(self, driver: PostgresDriver, shadow: str) -> PostgresKeyOrder:
        """Return the order of the same key in the shadow, whose bounds are written as values of the source."""
        return self._order(shadow, [one.new_name for one in self.key], driver)

    def _order(self, table: str, columns: list[str], driver: PostgresDriver) -> PostgresKeyOrder:
        types = [(one.type_text, one.operators) for one in self.key]
        return PostgresKeyOrder(self.schema, table, columns, driver=driver, types=types)

    @property
    def targets(self) -> str:
        """Return the columns that a copied row writes."""
        return ", ".join(quote(one.name) for one in self.mapped)

    @property
    def values(self) -> str:
        """Return their values, to be read from the source alone."""
        return ", ".join(one.value for one in self.mapped)

    @property
    def insert(self) -> str:
        """Return what stands between INSERT INTO's table and its SELECT."""
        return f"({self.targets}){' OVERRIDING SYSTEM VALUE' if self.overriding else ''}"

    @property
    def old_key(self) -> str:
        """Return the key's columns in the source."""
        return ", ".join(quote(one.name) for one in self.key)

    @property
    def new_key(self) -> str:
        """Return the key's columns in the shadow."""
        return ", ".join(quote(one.new_name) for one in self.key)

    @property
    def log_key(self) -> str:
        """Return the key's columns in the log."""
        return ", ".join(self.log_columns)

    @property
    def log_columns(self) -> list[str]:
        """Return them one by one."""
        return [f"tideshift_k{number}" for number, _ in enumerate(self.key, start=1)]


class Names:
    """What a job's objects are called, bare and behind their schema."""

    def __init__(self, layout: Layout, job_id: int) -> None:
        self.job_id = job_id
        self._schema = layout.schema
        self._table = layout.table
        self._source = layout.source
        self.bare_shadow = self.bare("shadow")
        self.shadow = self.own("shadow")
        self.log = self.own("log")
        self.function = self.own("capture")

    def bare(self, what: str) -> str:
        """Return a name of ours without its schema."""
        return own_name(self.job_id, self._source, what)

    def own(self, what: str) -> str:
        """Return a name of ours behind the table's schema, quoted."""
        return qualified(self._schema, self.bare(what))

    def index(self, number: int) -> str:
        """Return the name of the shadow's index of this number, as long as it is not the user's."""
        return self.bare(f"index_{number}")

    def trigger(self, event: str) -> str:
        """Return a trigger behind schema and table, as its artifact is called."""
        return qualified(self._schema, self._table, self.bare(event))
