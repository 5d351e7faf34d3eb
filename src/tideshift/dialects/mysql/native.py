"""Carrying out a change by the server's own statements: each commits by itself, so the catalogue is asked before and after.

Before: whether an earlier try got through, or the table is no longer what was planned for. A lock is tried for one or two seconds
and then given up, since whoever comes later waits behind us; the job tries again after a while.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tideshift.ddl.reshaping import ArtifactName, Reorg
from tideshift.dialects import points
from tideshift.dialects.mysql import steps
from tideshift.dialects.mysql.blockers import in_the_way
from tideshift.dialects.mysql.driver import MysqlDriver
from tideshift.dialects.mysql.meaning import number_of
from tideshift.dialects.mysql.shape import Shape
from tideshift.dialects.mysql.source import shape_of
from tideshift.errors import LockTimeout, PlanRefused, SchemaChanged, ValueRefused
from tideshift.store.database import ConstraintViolated, DatabaseFailed, Session, Transaction

__all__ = ["MysqlNative"]

_NOT_BY_THIS_WAY = frozenset({1845, 1846})
_LOG_TOO_LONG = 1799


class MysqlNative:
    """The statements of one database."""

    def __init__(self, driver: MysqlDriver) -> None:
        self._driver = driver

    def artifacts(self, reorg: Reorg) -> list[ArtifactName]:
        """Name nothing: no table is replaced."""
        return []

    def made_by(self, reorg: Reorg, step: int) -> list[ArtifactName]:
        """Name what a step leaves behind for as long as the job can be undone."""
        return [ArtifactName(made.kind, steps.named(made.name, reorg)) for made in reorg.reshaping.native_steps[step].makes]

    def change(self, tx: Transaction, reorg: Reorg, *, step: int = 0, tries: int = 0) -> None:
        """Nothing is changed in a transaction here: the driver says that DDL commits by itself, and nobody asks."""
        raise AssertionError("DDL commits by itself on this database")

    def run_long(self, tx: Transaction, reorg: Reorg, step: int, checkpoint: dict[str, Any]) -> dict[str, Any] | None:
        """No statement of this database runs long within a transaction, and no plan has such a step."""
        raise AssertionError("DDL commits by itself on this database")

    def run_alone(self, session: Session, reorg: Reorg, step: int, *, gently: bool = False) -> None:
        """Run a long statement unless it has got through already."""
        self.attempt(session, reorg, step, tries=0)

    def attempt(self, session: Session, reorg: Reorg, step: int, *, tries: int) -> None:
        """Run a step's statement unless it has got through already."""
        detail = steps.named(reorg.reshaping.native_steps[step].detail, reorg)
        with session.transaction(write=False) as tx:
            if _has_happened(tx, reorg, detail):
                return
            _see_unchanged(tx, reorg, detail)
        if points.CHANGE.on:
            points.CHANGE.fire(job=reorg.job_id, step=step)
        seconds = str(1 + tries % 2)
        try:
            session.run_alone(detail["sql"], {"lock_wait_timeout": seconds, "innodb_lock_wait_timeout": seconds})
        except ConstraintViolated as error:
            raise ValueRefused(_text(error)) from error
        except LockTimeout as error:
            with session.transaction(write=False) as tx:
                blockers = in_the_way(tx, reorg.reshaping.detail["schema"], reorg.reshaping.detail["name"])
            who = "; ".join(one.text for one in blockers) or "the server does not tell who"
            raise LockTimeout(
                f"the lock on {reorg.reshaping.detail['table']} was not had within {seconds} s; in the way: {who}", sessions=[asdict(one) for one in blockers]
            ) from error
        except DatabaseFailed as error:
            raise _refusal(error) from error
        if points.CHANGED.on:
            points.CHANGED.fire(job=reorg.job_id, step=step)

    def has_happened(self, session: Session, reorg: Reorg, step: int) -> bool:
        """Whether a step's statement got through."""
        detail = steps.named(reorg.reshaping.native_steps[step].detail, reorg)
        with session.transaction(write=False) as tx:
            return _has_happened(tx, reorg, detail)

    def inspect(self, session: Session, reorg: Reorg) -> None:
        """See with a connection that did not change anything that the table is what was planned."""
        detail = steps.named(reorg.reshaping.native_steps[-1].detail, reorg)
        table = detail["becomes"] or reorg.reshaping.detail["table"]
        with session.transaction(write=False) as tx:
            present = shape_of(tx, table)
        if present != Shape.from_record(detail["after"]):
            raise SchemaChanged(f"{table} is not what was planned: {present}")


def _has_happened(tx: Transaction, reorg: Reorg, detail: dict[str, Any]) -> bool:
    """Read it in the catalogue; a statement that leaves the table's text as it was is never known to have got through, and may run twice."""
    present = shape_of(tx, reorg.reshaping.detail["table"])
    match detail["does"]:
        case "build":
            return present is not None and present.key_named(detail["index"]) is not None
        case "rename":
            return present is None and shape_of(tx, detail["becomes"]) == Shape.from_record(detail["after"])
    return detail["before"] != detail["after"] and present == Shape.from_record(detail["after"])


def _see_unchanged(tx: Transaction, reorg: Reorg, detail: dict[str, Any]) -> None:
    table = reorg.reshaping.detail["table"]
    present = shape_of(tx, table)
    if present is None or ("before" in detail and present != Shape.from_record(detail["before"])):
        raise SchemaChanged(f"{table} is no longer the table that was planned for")
    target = detail.get("becomes")
    if target is not None and shape_of(tx, target) is not None:
        raise SchemaChanged(f"there is a table {target} by now")


def _refusal(error: DatabaseFailed) -> PlanRefused | DatabaseFailed:
    """Say what the server has against it, where it had nothing against it on an empty copy."""
    number = number_of(error.__cause__ or error)
    if number in _NOT_BY_THIS_WAY:
        reason = f"the server would do more for this table than for an empty copy of it: {_text(error)}"
        return PlanRefused(reason, reasons=[reason])
    if number == _LOG_TOO_LONG:
        hint = "Raise innodb_online_alter_log_max_size, or build the index at a time with fewer writes."
        return DatabaseFailed(f"writers changed more while the index was built than the server keeps: {_text(error)}", hint=hint)
    return DatabaseFailed(f"the server refuses it: {_text(error)}")


def _text(error: Exception) -> str:
    """Return what the server said, without its number."""
    cause = error.__cause__ or error
    return str(cause.args[1] if len(cause.args) > 1 else cause.args[0])
