"""The shadow's indexes, built in bulk when the rows are there: the chunk key's and what refuses no row, then what enforces something."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, cast

from tideshift.ddl.reshaping import BuildGroup
from tideshift.dialects import points
from tideshift.dialects.postgres.driver import quote
from tideshift.dialects.postgres.layout import IndexPlan, Layout, Names
from tideshift.errors import ValueRefused
from tideshift.store.database import ConstraintViolated, Transaction

__all__ = ["ANALYZE", "build", "build_key", "group_of", "limit_workers"]

ANALYZE = -1
"""The number of the last build: statistics, so that the first statement on the new table is planned as the last on the old one."""


def group_of(layout: Layout, group: BuildGroup) -> list[int]:
    """Return the numbers of the indexes of a group."""
    by_group = {
        BuildGroup.KEY: [number for number, one in enumerate(layout.indexes) if one.is_key],
        BuildGroup.ENFORCING: [number for number, one in enumerate(layout.indexes) if one.enforces and not one.is_key],
        BuildGroup.OTHER: [number for number, one in enumerate(layout.indexes) if not one.enforces and not one.is_key],
        BuildGroup.LAST: [ANALYZE],
    }
    return by_group[group]


_WORKERS = "SELECT pg_catalog.set_config('max_parallel_maintenance_workers', least($1::text::int, pg_catalog.current_setting('max_parallel_maintenance_workers')::int)::text, true)"


def build(tx: Transaction, layout: Layout, names: Names, number: int, *, settle: Callable[[], object] | None = None) -> None:
    """Build one, unless it stands already. Raises `ValueRefused` when the source itself violates it.

    Where the log was drained since the copy was settled, as while the job was paused, the copy may violate what the source
    does not: then it is brought to one instant again, by `settle`, and the index is tried once more.
    """
    if number == ANALYZE:
        tx.run_verbatim(f"ANALYZE {names.shadow}")
        return
    index = layout.indexes[number]
    if tx.run_verbatim("SELECT pg_catalog.to_regclass($1) IS NOT NULL", (names.own(f"index_{number}"),)).scalar():
        return
    if points.INSTALL_TABLE.on:
        points.INSTALL_TABLE.fire(job=names.job_id)
    tx.run_verbatim("SELECT pg_catalog.set_config('default_tablespace', $1, true)", (index.tablespace or "",))
    tx.run_verbatim("SAVEPOINT tideshift_build")
    try:
        tx.run_verbatim(_text(names, number, index))
    except ConstraintViolated as error:
        tx.run_verbatim("ROLLBACK TO SAVEPOINT tideshift_build")
        if settle is not None:
            settle()
            build(tx, layout, names, number)
            return
        lines = [line for line in error.message.splitlines() if not line.startswith("CONTEXT:")]
        what = index.name or "the key"
        raise ValueRefused(f"the rows of {layout.source} do not fit {what}: {' '.join(lines[:2])}", table=layout.table) from error
    tx.run_verbatim("RELEASE SAVEPOINT tideshift_build")


def limit_workers(tx: Transaction, *, side_by_side: int, gently: bool) -> None:
    """Let the builds of this transaction have no more helpers of the server's than there are processors for all that run at the same time.

    How many those are is known only of a server on this machine; elsewhere the server's own setting stays. `gently`: none.
    """
    known = cast(Any, tx.connection.connection.dbapi_connection).info
    if gently:
        tx.run_verbatim(_WORKERS, ("0",))
    elif known.host.startswith("/") or known.hostaddr in ("127.0.0.1", "::1"):
        tx.run_verbatim(_WORKERS, (str(max(0, len(os.sched_getaffinity(0)) // side_by_side - 1)),))


def build_key(tx: Transaction, layout: Layout, names: Names) -> None:
    """Build the index of the chunk key."""
    (number,) = group_of(layout, BuildGroup.KEY)
    build(tx, layout, names, number)


def _text(names: Names, number: int, index: IndexPlan) -> str:
    name = quote(names.index(number))
    if index.kind == "x":
        return f"ALTER TABLE {names.shadow} ADD CONSTRAINT {name} {index.constraint}"
    return f"CREATE {'UNIQUE ' if index.unique else ''}INDEX {name} ON {names.shadow} {index.rest}"
