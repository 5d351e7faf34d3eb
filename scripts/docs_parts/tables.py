"""Tables of what the code declares: parameters, machines, failpoints, errors, capabilities."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import MISSING, fields
from importlib import import_module
from typing import Any

from tideshift import errors, failpoint
from tideshift.config import FAST, NORMAL, PARAMETERS, Profile
from tideshift.ddl.actions.one_transaction import CHANGE
from tideshift.ddl.actions.shadow import CAPTURE, CUT_OVER, REORGANIZE
from tideshift.ddl.actions.stages import CHECK_ROWS, INSPECT
from tideshift.ddl.dialect import Capabilities
from tideshift.ddl.job import effect_of
from tideshift.ddl.machine import JOB
from tideshift.dialects.mysql.dialect import MysqlDialect
from tideshift.dialects.mysql.driver import MysqlDriver
from tideshift.dialects.postgres.dialect import PostgresDialect
from tideshift.dialects.postgres.driver import PostgresDriver
from tideshift.dialects.sqlite.dialect import SqliteDialect
from tideshift.dialects.sqlite.driver import SqliteDriver
from tideshift.dxf.machine import SUBTASK, TASK
from tideshift.fsm import Machine
from tideshift.store.driver import DriverCapabilities

__all__ = ["capabilities", "command_effects", "error_codes", "failpoints", "machine", "parameters", "profiles"]


def _table(columns: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    heading, *body = ("| " + " | ".join(str(cell).replace("|", "\\|") for cell in line) + " |" for line in (tuple(columns), *rows))
    return "\n".join([heading, "|" + "---|" * len(tuple(columns)), *body])


def parameters() -> str:
    """Write the parameters of a job."""
    rows = [
        (f"`{p.name}`", "none" if p.default is None else p.default, p.unit, p.values or f"{p.minimum} to {p.maximum}", p.applied_by, p.effective_within, p.text)
        for p in PARAMETERS.values()
    ]
    return _table(("parameter", "default", "unit", "range", "applied by", "in force with", "meaning"), rows)


def profiles() -> str:
    """Write the intervals of the loops, normal and fast."""
    rows = [
        (f"`{f.name}`", f"{getattr(NORMAL, f.name):g}", f"{getattr(FAST, f.name):g}")
        for f in fields(Profile)
        if f.default is not MISSING
    ]
    return _table(("setting", "normal", "fast"), rows)


def machine(of: Machine[Any]) -> str:
    """Write one machine: the diagram, and the table of its moves."""
    rows = [(m.source, f"`{m.event}`", m.target, m.actor, m.why) for m in of.moves]
    final = ", ".join(f"*{state}*" for state in of.states if state in of.final)
    return "\n".join([
        "```mermaid", of.mermaid(), "```", "", f"Begins as *{of.initial}*; ends as {final}.", "",
        _table(("from", "event", "to", "by", "when"), rows),
    ])  # fmt: skip


def command_effects() -> str:
    """Write what each command leads to, at each stage of each plan."""
    plans = {"shadow_table": (CHECK_ROWS, CAPTURE, REORGANIZE, CUT_OVER, INSPECT), "instant, direct": (CHECK_ROWS, CHANGE, INSPECT)}
    rows = [
        (way, stage.name, stage.schema_state, "in chunks" if stage.chunked else "at once", *(effect_of(stages, stage, command) for command in ("cancel", "pause", "set")))
        for way, stages in plans.items()
        for stage in stages
    ]
    return _table(("strategy", "stage", "schema state", "carried out", "`cancel`", "`pause`", "`set`"), rows)


MACHINES = {"job": JOB, "task": TASK, "subtask": SUBTASK}


def failpoints() -> str:
    """Write every declared failpoint."""
    failpoint.import_points("tideshift")
    rows = [
        (f"`{d.name}`", d.doc, "" if d.returns is None else f"`{getattr(d.returns, '__name__', d.returns)}`")
        for d in sorted(failpoint.catalogue(), key=lambda d: d.name)
        if d.module.startswith("tideshift.")
    ]
    return _table(("failpoint", "where the code stands", "returns"), rows)


def error_codes() -> str:
    """Write every error that has a code, with its exit code."""
    import_module("tideshift.connect")
    import_module("tideshift.store.database")
    kinds = {kind.code: kind for kind in _below(errors.TideshiftError) if kind.__module__.startswith("tideshift.")}
    rows = [
        (f"`{code}`", kind.exit_code, (kind.__doc__ or "").split("\n")[0], kind.default_hint)
        for code, kind in sorted(kinds.items())
    ]
    return _table(("code", "exit code", "what happened", "what to do"), rows)


def _below(kind: type[errors.TideshiftError]) -> Iterator[type[errors.TideshiftError]]:
    for child in kind.__subclasses__():
        if "code" in vars(child):
            yield child
        yield from _below(child)


def capabilities() -> str:
    """Write what the store and the DDL engine may ask of each database."""
    store = {"SQLite": SqliteDriver.capabilities, "PostgreSQL 15": PostgresDriver.capabilities, "MariaDB 10.11": MysqlDriver.capabilities}
    rows: list[tuple[str, ...]] = [
        ("store", f"`{f.name}`", *(_cell(getattr(record, f.name)) for record in store.values())) for f in fields(DriverCapabilities)
    ]
    ddl = (SqliteDialect.capabilities, PostgresDialect.capabilities, MysqlDialect.capabilities)
    rows += [("schema changes", f"`{f.name}`", *(_cell(getattr(record, f.name)) for record in ddl)) for f in fields(Capabilities)]
    return _table(("layer", "capability", *store), rows)


def _cell(value: object) -> str:
    return {True: "yes", False: "no"}.get(value, str(value)) if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)
