"""Statements that commit by themselves: each begins with a look at what an earlier try has left, and a cut-off one is tidied up after.

| does | done when | what a cut-off try leaves |
|---|---|---|
| build | the index of our name is there and valid | that index, invalid |
| drop | nothing has the name any more | the index, invalid; the same statement goes on |
| reindex | the name means another, valid index of the same definition | one that the server called `…_ccnew`, or the old one as `…_ccold` |
| detach | the table is no partition any more | a partition that is marked as leaving; FINALIZE goes on |
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from tideshift.ddl.reshaping import Reorg
from tideshift.dialects.postgres import remade
from tideshift.dialects.postgres.texts import first_line
from tideshift.errors import SchemaChanged, TideshiftError, ValueRefused
from tideshift.store.database import ConstraintViolated, Session

__all__ = ["run"]

_ALONE = {"lock_timeout": "0", "statement_timeout": "0"}
"""CONCURRENTLY waits for others as long as it takes; a wait that is cut short would leave an invalid index behind."""
_INDEX = """
SELECT x.indisvalid AND x.indisready FROM pg_catalog.pg_index x WHERE x.indexrelid = pg_catalog.to_regclass($1)
"""


def run(session: Session, reorg: Reorg, detail: dict[str, Any], *, gently: bool) -> None:
    """Run one of them, or what is left to do of it."""
    settings = {**_ALONE, "search_path": reorg.reshaping.detail["search_path"], **({"max_parallel_maintenance_workers": "0"} if gently else {})}
    _BY_KIND[detail["does"]](session, detail, settings)


def _build(session: Session, detail: dict[str, Any], settings: dict[str, str]) -> None:
    name = detail["index"]
    if (stands := _is_valid(session, name)) is True:
        return
    if stands is False:  # It slows writes down and serves nobody.
        session.run_alone(f"DROP INDEX CONCURRENTLY IF EXISTS {name}", settings)
    try:
        session.run_alone(detail["sql"][0], settings)
    except ConstraintViolated as error:
        if _is_valid(session, name) is False:
            session.run_alone(f"DROP INDEX CONCURRENTLY IF EXISTS {name}", settings)
        raise ValueRefused(first_line(error.message)) from error


def _is_valid(session: Session, name: str) -> bool | None:
    with session.transaction(write=False) as tx:
        found: bool | None = tx.run_verbatim(_INDEX, (name,)).scalar()
    return found


def _drop(session: Session, detail: dict[str, Any], settings: dict[str, str]) -> None:
    with session.transaction(write=False) as tx:
        found = tx.run_verbatim("SELECT pg_catalog.to_regclass($1)::oid::bigint", (detail["dropped"],)).scalar()
    if found is None:
        return
    if found != detail["oid"]:
        raise SchemaChanged(f"{detail['dropped']} is no longer the index that was to be dropped")
    session.run_alone(detail["sql"][0], settings)


def _reindex(session: Session, detail: dict[str, Any], settings: dict[str, str]) -> None:
    index = remade.Remade.of(detail["remade"])
    with session.transaction(write=False) as tx:
        done, left = remade.look(tx, index)
    for name in left:
        session.run_alone(f"DROP INDEX CONCURRENTLY IF EXISTS {name}", settings)
    if done:
        return
    try:
        session.run_alone(detail["sql"][0], settings)
    except TideshiftError as error:
        with suppress(TideshiftError), session.transaction() as tx:  # What cannot be had in moments is left to the next try, or to the undoing.
            remade.clean(tx, index)
        if isinstance(error, ConstraintViolated):
            raise ValueRefused(first_line(error.message)) from error
        raise


def _detach(session: Session, detail: dict[str, Any], settings: dict[str, str]) -> None:
    (child, child_name), (parent, parent_name) = detail["child"], detail["parent"]
    with session.transaction(write=False) as tx:
        rows = tx.run_verbatim("SELECT inhdetachpending FROM pg_catalog.pg_inherits WHERE inhrelid = $1 AND inhparent = $2", (child, parent)).rows
        if rows and tx.run_verbatim("SELECT pg_catalog.to_regclass($1)::oid::bigint", (child_name,)).scalar() != child:
            raise SchemaChanged(f"{child_name} is no longer the table that was planned for")
    if rows:
        how = "FINALIZE" if rows[0][0] else "CONCURRENTLY"
        session.run_alone(f"ALTER TABLE {parent_name} DETACH PARTITION {child_name} {how}", settings)


_BY_KIND = {"build": _build, "drop": _drop, "reindex": _reindex, "detach": _detach}
