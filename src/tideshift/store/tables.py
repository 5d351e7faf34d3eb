"""The store's own system tables, and what every system table is made with.

Tables live in the namespace `tideshift`: a schema or database of that name, or a prefix where there is neither.
Times are UTC epoch milliseconds by the database. Live and history tables have equal columns in equal order.
"""

from __future__ import annotations

import json
from typing import Any

from sqlalchemy import BigInteger, Column, Dialect, Index, Integer, MetaData, String, Table, Text
from sqlalchemy.types import TypeDecorator, TypeEngine

__all__ = ["METADATA", "NAMESPACE", "VERSION", "Identity", "Json", "event", "owner_lease", "system_version"]

NAMESPACE = "tideshift"
VERSION = 1
METADATA = MetaData(schema=NAMESPACE)


class Json(TypeDecorator[Any]):
    """A JSON value kept as text, the same on every database; NULL is None."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        """Write None as NULL and anything else as compact JSON."""
        return None if value is None else json.dumps(value, separators=(",", ":"), sort_keys=True)

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        """Read the JSON back."""
        return None if value is None else json.loads(value)


class Identity(TypeDecorator[int]):
    """A 64-bit id that the database counts; a driver names its own integer type where BIGINT would not count."""

    impl = BigInteger
    cache_ok = True

    def load_dialect_impl(self, dialect: Dialect) -> TypeEngine[Any]:
        """Use what the driver put on its dialect."""
        return dialect.type_descriptor(getattr(dialect, "tideshift_identity_type", BigInteger()))


owner_lease = Table(
    "owner_lease",
    METADATA,
    Column("name", String(64), primary_key=True),
    Column("owner_id", String(261), nullable=False),
    Column("tenure", BigInteger, nullable=False),
    Column("started_at", BigInteger, nullable=False),
    Column("expires_at", BigInteger, nullable=False),
    Column("session", Json),
)

event = Table(
    "event",
    METADATA,
    Column("id", Identity, primary_key=True, autoincrement=True),
    Column("at", BigInteger, nullable=False),
    Column("actor", String(261), nullable=False),
    Column("job_id", BigInteger),
    Column("task_id", BigInteger),
    Column("kind", String(64), nullable=False),
    Column("from", Text),
    Column("to", Text),
    Column("request_id", String(64)),
    Column("detail", Json),
    Index("tideshift_event_job", "job_id", "id"),
    Index("tideshift_event_task", "task_id", "id"),
    Index("tideshift_event_request", "request_id"),
)

system_version = Table(
    "system_version",
    METADATA,
    Column("id", Integer, primary_key=True, autoincrement=False),
    Column("version", Integer, nullable=False),
    Column("installation", Json, nullable=False),
    Column("installed_at", BigInteger, nullable=False),
    Column("upgraded_at", BigInteger),
    Column("next_job_id", BigInteger, nullable=False),
    Column("next_task_id", BigInteger, nullable=False),
    Column("next_subtask_id", BigInteger, nullable=False),
)
