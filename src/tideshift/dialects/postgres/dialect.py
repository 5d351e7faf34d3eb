"""PostgreSQL as the DDL engine needs it."""

from __future__ import annotations

from tideshift.ddl.change import Change
from tideshift.ddl.dialect import Capabilities
from tideshift.ddl.grammar import Grammar
from tideshift.ddl.reshaping import Reshaping, Strategy
from tideshift.ddl.tokens import STANDARD
from tideshift.dialects.postgres.catalog import PostgresCatalog
from tideshift.dialects.postgres.design import Designer
from tideshift.dialects.postgres.driver import PostgresDriver
from tideshift.dialects.postgres.in_place import PostgresInPlace
from tideshift.dialects.postgres.load import PostgresLoad
from tideshift.dialects.postgres.native import PostgresNative
from tideshift.dialects.postgres.remains import PostgresRemains
from tideshift.dialects.postgres.shadow import COPY_LOG_ROWS, PostgresShadow
from tideshift.store.database import Transaction

__all__ = ["GRAMMAR", "PostgresDialect"]

GRAMMAR = Grammar(
    spelling=STANDARD,
    fold=str.lower,
    type_operators="(),.[]%",
    words_in_a_type=frozenset({"COLLATE"}),
    names_index_by_method=True,
    says_concurrently=True,
    before_columns=(("NULLS", "NOT", "DISTINCT"), ("NULLS", "DISTINCT"), ("USING", "INDEX")),
    table_forms=(
        ("OWNER", "TO"), ("SET", "("), ("RESET", "("), ("CLUSTER", "ON"), ("SET", "WITHOUT", "CLUSTER"), ("REPLICA", "IDENTITY"), ("RENAME", "CONSTRAINT"),
        ("ALTER", "CONSTRAINT"), ("ENABLE",), ("DISABLE",), ("FORCE", "ROW"), ("NO", "FORCE"), ("SET", "SCHEMA"), ("VALIDATE", "CONSTRAINT"), ("INHERIT",),
        ("NO", "INHERIT"), ("SET", "TABLESPACE"), ("SET", "ACCESS", "METHOD"), ("SET", "LOGGED"), ("SET", "UNLOGGED"), ("ATTACH", "PARTITION"),
        ("DETACH", "PARTITION"),
    ),
    column_forms=(
        ("SET", "STATISTICS"), ("SET", "("), ("RESET", "("), ("SET", "STORAGE"), ("SET", "COMPRESSION"), ("DROP", "EXPRESSION"), ("DROP", "IDENTITY"),
        ("ADD", "GENERATED"), ("SET", "GENERATED"), ("RESTART",), ("SET", "EXPRESSION"), ("SET", "INCREMENT"), ("SET", "MINVALUE"), ("SET", "MAXVALUE"),
        ("SET", "NO"), ("SET", "START"), ("SET", "RESTART"), ("SET", "CACHE"), ("SET", "CYCLE"),
    ),
    constraints=("CHECK", "UNIQUE", "PRIMARY KEY", "FOREIGN KEY", "EXCLUDE", "NOT NULL"),
    object_forms={
        "INDEX": (("RENAME", "TO"), ("SET", "("), ("RESET", "("), ("SET", "TABLESPACE"), ("ALTER",), ("ATTACH", "PARTITION")),
        "TYPE": (("ADD", "VALUE"), ("RENAME", "VALUE")),
        "SEQUENCE": (("AS",), ("INCREMENT",), ("MINVALUE",), ("MAXVALUE",), ("NO",), ("START",), ("RESTART",), ("CACHE",), ("CYCLE",), ("OWNED", "BY"), ("RENAME", "TO")),
    },
)  # fmt: skip
"""Unquoted names are in lower case; how each form is carried out stands in `forms`."""


class PostgresDialect:
    """One database of a server, on PostgreSQL 15 or later."""

    capabilities = Capabilities(
        concurrent_writers=True,
        transactional_swap=True,
        chunk_target_seconds=0.1,
        keep_old_seconds=86_400.0,
        indexes_with_shadow=False,
        empties_tables=False,
        copy_log_rows=COPY_LOG_ROWS,
        changes_columns_in_place=True,
    )
    grammar = GRAMMAR
    committing = None

    def __init__(self, driver: PostgresDriver) -> None:
        self.catalog = PostgresCatalog()
        self.native = PostgresNative()
        self.shadow = PostgresShadow(driver)
        self.in_place = PostgresInPlace(driver)
        self.load = PostgresLoad()
        self.remains = PostgresRemains()

    def design(self, tx: Transaction, change: Change, *, strategy: Strategy | None = None, column_order_may_change: bool = False) -> Reshaping:
        """Work out how a change is carried out."""
        return Designer(tx, strategy, column_order_may_change=column_order_may_change).design(change)
