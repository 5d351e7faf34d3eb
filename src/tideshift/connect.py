"""The composition root: from a URL to a dialect, a database, and the commands and services on it."""

from __future__ import annotations

import getpass
import os
import socket
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from tideshift import __version__
from tideshift.clock import Clock
from tideshift.config import NORMAL, SLOTS, Profile
from tideshift.errors import InvalidParameter

if TYPE_CHECKING:
    from collections.abc import Callable

    from tideshift.ddl.commands import Ddl
    from tideshift.ddl.dialect import Dialect
    from tideshift.dxf.commands import Dxf
    from tideshift.dxf.node import WorkerNode
    from tideshift.dxf.owner import Owner
    from tideshift.dxf.service import Service
    from tideshift.dxf.tasktype import Registry
    from tideshift.store.database import Database
    from tideshift.store.driver import Driver

__all__ = ["Connected", "connect"]


@dataclass(frozen=True)
class Connected:
    """One database with everything that works on it; close it when done."""

    database: Database
    dialect: Dialect
    ddl: Ddl
    dxf: Dxf
    registry: Registry

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self.database.close()

    def bootstrap(self) -> bool:
        """Create missing system tables; return whether any were created. Never upgrades."""
        from tideshift.store import bootstrap

        return bootstrap.bootstrap(self.database)

    def require(self) -> None:
        """Raise `NoSystemTables` or `VersionMismatch` unless the system tables are those of this version."""
        from tideshift.store import bootstrap

        bootstrap.require(self.database)

    def owner(self, holder: str) -> Owner:
        """Make a candidate for ownership with every duty."""
        from tideshift.ddl.tasks import Purger
        from tideshift.ddl.worker import Worker
        from tideshift.dxf.owner import Owner
        from tideshift.dxf.rescuer import Cleaner, Rescuer
        from tideshift.dxf.scheduler import Scheduler

        duties = (
            Scheduler(self.database, self.registry),  # first: a node may wait for the next step
            Worker(self.database, self.dialect),
            Purger(self.database),
            Rescuer(self.database),
            Cleaner(self.database),
        )
        return Owner(self.database, holder=holder, duties=duties)

    def node(self, *, slots: int = SLOTS, scope: str = "") -> WorkerNode:
        """Make a node that is not registered yet."""
        from tideshift.dxf.node import WorkerNode

        return WorkerNode(self.database, self.registry, slots=slots, scope=scope)

    def service(self, *, slots: int = SLOTS, scope: str = "") -> Service:
        """Make an owner and a node for this process; entering it starts them."""
        from tideshift.dxf.service import Service

        node = self.node(slots=slots, scope=scope)
        return Service(self.database, self.owner(node.name), node, version=__version__)


def connect(url: str, *, clock: Clock | None = None, profile: Profile = NORMAL, actor: str | None = None) -> Connected:
    """Open a database by its URL; a bare path or `file:` means SQLite.

    Raises `CannotReach` when it is not there, `InvalidParameter` for a URL that is not understood.
    """
    from tideshift.ddl.commands import Ddl
    from tideshift.ddl.native_task import StatementType
    from tideshift.ddl.reorg.fill import CompareType, FillType
    from tideshift.ddl.reorg.purge import PurgeType
    from tideshift.ddl.reorg.task import CheckRowsType, ReferencesType, ReorgType
    from tideshift.dxf.commands import Dxf
    from tideshift.dxf.tasktype import Registry
    from tideshift.store.database import Database

    driver, make_dialect = _driver(url)
    database = Database(driver, clock=clock, profile=profile)
    dialect: Dialect = make_dialect()
    types = (CheckRowsType, ReorgType, ReferencesType, PurgeType, StatementType, FillType, CompareType)
    registry = Registry(*(one(dialect) for one in types))
    who = actor or default_actor()
    return Connected(database, dialect, Ddl(database, dialect, actor=who), Dxf(database, actor=who, registry=registry), registry)


def default_actor() -> str:
    """Return who asks: user@host, as the operating system tells."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def _driver(url: str) -> tuple[Driver, Callable[[], Dialect]]:
    scheme, separator, _ = url.partition("://")
    if not separator or scheme in ("sqlite", "file"):
        from tideshift.dialects.sqlite.dialect import SqliteDialect
        from tideshift.dialects.sqlite.driver import SqliteDriver

        sqlite = SqliteDriver(_path(url))
        return sqlite, lambda: SqliteDialect(sqlite)
    if scheme.partition("+")[0] in ("postgres", "postgresql"):
        from tideshift.dialects.postgres.dialect import PostgresDialect
        from tideshift.dialects.postgres.driver import PostgresDriver

        postgres = PostgresDriver(url)
        return postgres, lambda: PostgresDialect(postgres)
    if scheme.partition("+")[0] in ("mysql", "mariadb"):
        from tideshift.dialects.mysql.dialect import MysqlDialect
        from tideshift.dialects.mysql.driver import MysqlDriver

        mysql = MysqlDriver(url)
        return mysql, lambda: MysqlDialect(mysql)
    raise InvalidParameter(f"the URL scheme {scheme!r} is not known", hint="Write a path, or sqlite:///path.")


def _path(url: str) -> str:
    """Return the file of a SQLite URL: `path`, `file:path`, `sqlite:///relative` or `sqlite:////absolute`."""
    for prefix in ("sqlite:///", "file://", "file:"):
        if url.startswith(prefix):
            return url[len(prefix) :]
    return url
