"""The changes that a job can carry, as typed operations; a statement is only another way to write one down."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, ClassVar, TypeAlias

__all__ = ["Change", "SetColumnType", "TableName", "change_from_record"]


@dataclass(frozen=True)
class TableName:
    """A table as the user named it, unquoted; `schema` is None for the database's own default."""

    schema: str | None
    name: str

    def __str__(self) -> str:
        return self.name if self.schema is None else f"{self.schema}.{self.name}"


@dataclass(frozen=True, kw_only=True)
class SetColumnType:
    """ALTER TABLE table ALTER COLUMN column TYPE type_text [USING using]; both texts are the user's own."""

    kind: ClassVar[str] = "modify column"
    table: TableName
    column: str
    type_text: str
    using: str | None = None

    def as_record(self) -> dict[str, Any]:
        """Give the stored form."""
        return {"kind": self.kind, **asdict(self)}


Change: TypeAlias = SetColumnType


def change_from_record(record: dict[str, Any]) -> Change:
    """Read the stored form."""
    assert record["kind"] == SetColumnType.kind, record
    return SetColumnType(
        table=TableName(**record["table"]), column=record["column"], type_text=record["type_text"], using=record["using"]
    )
