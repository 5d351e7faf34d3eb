"""How the system tables are spelt here: SQLAlchemy's dialect with types that hold what the others hold, and whole tables in one statement.

DDL commits by itself, so a table comes with its indexes: it is there as a whole or not at all.
"""

from __future__ import annotations

from typing import Any

from sqlalchemy import Engine, Table, types
from sqlalchemy.dialects.mysql.base import MySQLDDLCompiler, MySQLTypeCompiler

__all__ = ["use_ours"]


class _Types(MySQLTypeCompiler):
    """Text is as long as anywhere else, and a float is not cut to four bytes."""

    def visit_TEXT(self, type_: types.Text, **kw: Any) -> str:  # noqa: N802 - SQLAlchemy's name
        return "LONGTEXT"

    def visit_text(self, type_: types.Text, **kw: Any) -> str:
        return "LONGTEXT"

    def visit_FLOAT(self, type_: types.Float[Any], **kw: Any) -> str:  # noqa: N802 - SQLAlchemy's name
        return "DOUBLE"


class _Tables(MySQLDDLCompiler):
    """Our tables are InnoDB's, compared byte by byte, with their indexes from the start."""

    def create_table_constraints(self, table: Table, _include_foreign_key_constraints: Any = None, **kw: Any) -> str:
        """Return what stands behind the columns: keys, and then every index of the table."""
        parts = [super().create_table_constraints(table, _include_foreign_key_constraints, **kw)]  # type: ignore[no-untyped-call]
        for index in sorted(table.indexes, key=lambda one: str(one.name)):
            columns = ", ".join(self.preparer.format_column(column) for column in index.columns)
            unique = "UNIQUE " if index.unique else ""
            parts.append(f"{unique}KEY {self.preparer.quote(str(index.name))} ({columns})")
        return ", \n\t".join(part for part in parts if part)

    def post_create_table(self, table: Table) -> str:
        """Return the options of the table, whatever the database's defaults are."""
        collation = "utf8mb4_nopad_bin" if getattr(self.dialect, "is_mariadb", False) else "utf8mb4_0900_bin"
        return f" ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE={collation}"


def use_ours(engine: Engine) -> None:
    """Let an engine write the system tables so."""
    engine.dialect.type_compiler_instance = _Types(engine.dialect)
    engine.dialect.ddl_compiler = _Tables
