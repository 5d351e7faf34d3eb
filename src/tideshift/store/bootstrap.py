"""Installing, upgrading and removing the system tables, and the counters that give ids.

The tables are those of METADATA at the moment of the call; whoever calls has imported what registers them. A version
number is never reused, and each upgrade step may be run again over its own half-done work, since not every database
takes DDL back with the transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Literal

from sqlalchemy import DDL, Index, Table, insert, select, update
from sqlalchemy.schema import CreateTable, DropTable

from tideshift.errors import NoSystemTables, VersionMismatch
from tideshift.store.database import Database, Transaction
from tideshift.store.tables import METADATA, VERSION, system_version

__all__ = [
    "STEPS",
    "SystemState",
    "UpgradeStep",
    "adopt",
    "bootstrap",
    "create_missing",
    "installation_changed",
    "next_ids",
    "require",
    "state",
    "uninstall",
    "upgrade",
]

_ROW_ID = 1
Installation = dict[str, str]


class SystemState(StrEnum):
    """How the system tables of a database stand to this version of tideshift."""

    ABSENT = "absent"
    CURRENT = "current"
    OLDER = "older"
    NEWER = "newer"
    PARTIAL = "partial"


@dataclass(frozen=True, kw_only=True)
class UpgradeStep:
    """What turns the version before into `version`; `apply` may find its own work done in part or whole."""

    version: int
    why: str
    apply: Callable[[Transaction], None]


STEPS: tuple[UpgradeStep, ...] = ()
"""One step per version from 2 on, in order."""


# ── looking ───────────────────────────────────────────────────────────────────────────────────────────────────────


def state(database: Database) -> SystemState:
    """Say whether the system tables are there, and of which age."""
    with database.transaction(write=False) as tx:
        return _state(tx)


def require(database: Database) -> None:
    """Raise unless the system tables are there, whole, and of this version."""
    match state(database):
        case SystemState.CURRENT:
            return
        case SystemState.ABSENT:
            raise NoSystemTables("this database has no tideshift tables yet")
        case SystemState.PARTIAL:
            raise NoSystemTables("some of the tideshift tables are missing")
        case SystemState.OLDER:
            raise VersionMismatch("the tideshift tables were made by an older version")
        case SystemState.NEWER:
            raise VersionMismatch(
                "the tideshift tables were made by a newer version",
                hint="Install that version of tideshift, or a later one.",
            )


def installation_changed(database: Database) -> tuple[Installation, Installation] | None:
    """Return what the tables were installed on and what they stand on now, when these differ: a copy or a restore."""
    with database.transaction(write=False) as tx:
        stored = tx.execute(select(system_version.c.installation).where(system_version.c.id == _ROW_ID)).scalar_one()
        present = database.driver.installation(tx.connection)
    return None if stored == present else (stored, present)


# ── changing ──────────────────────────────────────────────────────────────────────────────────────────────────────


def bootstrap(database: Database) -> bool:
    """Create what is missing of the system tables; return whether anything was."""
    with _locked(database) as tx:
        found = _state(tx)
        if found in (SystemState.OLDER, SystemState.NEWER):
            raise VersionMismatch(f"the tideshift tables are {found} than this version")
        if found is SystemState.CURRENT:
            return False
        database.driver.create_namespace(tx.connection)
        create_missing(tx, METADATA.sorted_tables)
        if _version(tx) is None:
            _insert_version(tx)
        return True


def upgrade(database: Database, *, steps: tuple[UpgradeStep, ...] = STEPS, target: int = VERSION) -> list[int]:
    """Take the tables from their version to `target`, one transaction per step; return the versions gone through."""
    assert [step.version for step in steps] == list(range(2, target + 1)), "one step per version, in order"
    gone_through: list[int] = []
    for step in steps:
        with _locked(database) as tx:
            present = _version(tx)
            if present is None:
                raise NoSystemTables("there are no tideshift tables to upgrade")
            if present >= step.version:
                continue
            step.apply(tx)
            tx.execute(
                update(system_version)
                .where(system_version.c.id == _ROW_ID)
                .values(version=step.version, upgraded_at=tx.now_expression())
            )
        gone_through.append(step.version)
    return gone_through


def uninstall(database: Database, *, refuse: Callable[[Transaction], object] | None = None) -> bool:
    """Drop the system tables and what held them; return whether there was anything.

    `refuse` looks in the transaction that drops, and raises where something speaks against it.
    """
    with _locked(database) as tx:
        if refuse is not None:
            refuse(tx)
        existing = database.driver.existing_tables(tx.connection)
        ours = [table for table in reversed(METADATA.sorted_tables) if table.name in existing]
        for table in ours:
            tx.execute(DropTable(table))
        database.driver.drop_namespace(tx.connection)
        return bool(ours)


def adopt(database: Database) -> None:
    """Take the database as it stands for the one that the tables belong to."""
    with database.transaction() as tx:
        present = database.driver.installation(tx.connection)
        tx.execute(update(system_version).where(system_version.c.id == _ROW_ID).values(installation=present))


def create_missing(tx: Transaction, tables: Iterable[Table]) -> list[str]:
    """Create those of the tables that do not exist, with their indexes; return their names."""
    existing = tx.driver.existing_tables(tx.connection)
    missing = [table for table in tables if table.name not in existing]
    for table in missing:
        tx.execute(CreateTable(table))
        if not tx.driver.capabilities.transactional_ddl:
            continue  # a statement commits by itself there, so the table came with its indexes, all of it or nothing
        for index in sorted(table.indexes, key=lambda index: str(index.name)):
            tx.execute(_create_index(tx, index))
    return [table.name for table in missing]


def next_ids(tx: Transaction, kind: Literal["job", "task", "subtask"], count: int) -> range:
    """Take the next ids; the counter's row stays locked until the commit, so they become visible in order."""
    assert count >= 1
    counter = system_version.c[f"next_{kind}_id"]
    row = system_version.c.id == _ROW_ID
    if tx.execute(update(system_version).where(row).values({counter: counter + count})).rowcount == 0:
        raise NoSystemTables("this database has no tideshift tables yet")
    behind = int(tx.execute(select(counter).where(row)).scalar_one())
    return range(behind - count, behind)


# ── inside ────────────────────────────────────────────────────────────────────────────────────────────────────────


@contextmanager
def _locked(database: Database) -> Iterator[Transaction]:
    """Open a transaction in which no other bootstrap, upgrade or uninstall runs."""
    with database.transaction() as tx, database.driver.bootstrap_lock(tx.connection):
        yield tx


def _state(tx: Transaction) -> SystemState:
    existing = tx.driver.existing_tables(tx.connection) & set(_table_names())
    if not existing:
        return SystemState.ABSENT
    version = _version(tx)
    if version is None:
        return SystemState.PARTIAL
    if version != VERSION:
        # Said before counting tables: another version may have other ones.
        return SystemState.OLDER if version < VERSION else SystemState.NEWER
    return SystemState.CURRENT if existing == set(_table_names()) else SystemState.PARTIAL


def _table_names() -> list[str]:
    return [table.name for table in METADATA.sorted_tables]


def _version(tx: Transaction) -> int | None:
    if system_version.name not in tx.driver.existing_tables(tx.connection):
        return None
    return tx.execute(select(system_version.c.version).where(system_version.c.id == _ROW_ID)).scalar_one_or_none()


def _insert_version(tx: Transaction) -> None:
    tx.execute(
        insert(system_version).values(
            id=_ROW_ID,
            version=VERSION,
            installation=tx.driver.installation(tx.connection),
            installed_at=tx.now_expression(),
            next_job_id=1,
            next_task_id=1,
            next_subtask_id=1,
        )
    )


def _create_index(tx: Transaction, index: Index) -> DDL:
    """Write the statement in the form that is right everywhere: a bare index name, the namespace at the table.

    SQLAlchemy puts the namespace before the index on a database whose namespace is a prefix, where it would rename it.
    """
    preparer = tx.connection.dialect.identifier_preparer
    assert index.table is not None
    columns = ", ".join(preparer.format_column(column) for column in index.columns)
    assert columns, "an index of a system table is over plain columns"
    unique = "UNIQUE " if index.unique else ""
    name = preparer.quote(str(index.name))
    text = f"CREATE {unique}INDEX {name} ON {preparer.format_table(index.table)} ({columns})"
    return DDL(text.replace("%", "%%"))  # type: ignore[no-untyped-call]
