"""Any change beside the same change made by a reload, or by the library itself where it has the statement."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random
from typing import Any

from tests.proof.engine import application, library, on_engine
from tests.proof.random_schema import KEY_KINDS, random_scenario
from tests.proof.reload import Refused, copy_rows, copy_system_table, holds, load, opened, tables_in_order
from tests.proof.requests import Request, random_request
from tests.proof.schema import Scenario
from tideshift import errors

__all__ = ["compare_any", "compare_kind"]

Tell = Callable[[str], object]

MAY_BE_REFUSED = (
    "is the rowid itself", "AUTOINCREMENT cannot be added", "the rows that a REPLACE may remove cannot be found", "would be no unique key",
    "rows are copied by", "is a part of the key", "neither their numbers nor a primary key", "it would break", "is over a column that is dropped",
    "are deleted together", "a deletion from", "the rowid cannot be reached", "is no table with a unique key", "holds NULL",
    "there is a constraint", "is the only column", "is generated and has no default", "cannot be looked up by its own key", "drop the constraint first",
    "there is a primary key already", "more to", "stands there", "hide the table's rowid",
)  # fmt: skip
"""Reasons for which the documentation says that a change is refused although a reload could make it."""

_TOKEN = re.compile(r"""--[^\n]*|/\*(?:(?!\*/)[\s\S])*\*/|\s+|'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|\[[^\]]*\]|[(),.=<>|+]|[^\s'"`\[/(),.=<>|+-]+|.""")


def compare_kind(folder: Path, random: Random, kind: str, tell: Tell) -> str:
    """Draw a database and a change of a kind, and compare."""
    scenario = random_scenario(random, random.choice(KEY_KINDS))
    return compare_any(folder, scenario, random_request(random, scenario, kind), tell)


def compare_any(folder: Path, scenario: Scenario, request: Request, tell: Tell) -> str:
    """Make the change in both ways, hold everything against one another, and return how it ended."""
    path, twin = folder / "changed.db", folder / "twin.db"
    load(path, scenario)
    tell(f"{scenario!r};\n-- asked: {request.statement} ({request.strategy})")
    before = holds(path)
    try:
        (_by_library if request.by_library else _by_reload)(path, twin, scenario, request)
        wanted: dict[str, Any] | None = holds(twin)
    except Refused as refused:
        tell(f"the twin refuses: {refused}")
        wanted = None

    outcome, message, kept = _changed(path, request, tell)

    after = holds(path)
    tell(f"ours: {outcome}")
    # With one reference that finds no key, the library tells of a table's references nothing else.
    untold = wanted is not None and any(isinstance(one, str) for one in wanted["references"])
    broke = wanted is not None and bool(Counter(map(repr, wanted["references"])) - Counter(map(repr, before["references"])))
    if outcome == "changed":
        assert wanted is not None, "ours was carried out, the twin refuses"
        ours, theirs = (_comparable(found, scenario, request) for found in (after, wanted))
        for what in ours.keys() | theirs.keys():
            if ours.get(what) != theirs.get(what):
                for whose, one, other in (("ours", ours, theirs), ("the twin", theirs, ours)):
                    tell(f"{what} of {whose} alone: {_alone(one.get(what), other.get(what))}")
        assert ours == theirs, "what is in the files differs"
        assert kept == [] or broke or untold, "the old rows were kept without need"
    else:
        breaks = broke or (untold and "that it refers to" in message)
        documented = outcome in ("plan_refused", "not_found") and any(reason in message for reason in MAY_BE_REFUSED)
        # The library does not take every index of the scenario; one that was never made cannot be dropped or made anew.
        texts = [text for *_, text in before["schema"]]
        absent = outcome == "not_found" and any(text not in texts for text in (*request.gone, *request.named))
        assert wanted is None or breaks or documented or absent, f"refused without need: {outcome}: {message}"
        assert after == before
    return outcome


def _changed(path: Path, request: Request, tell: Tell) -> tuple[str, str, list[str]]:
    with on_engine(path, strategy=request.strategy) as engine:
        try:
            job_id = engine.submit(request.statement)
        except errors.TideshiftError as error:
            tell(error.message)
            return error.code, error.message, engine.left_behind()
        job = engine.finish(job_id)
        tell(f"{job.strategy} {job.state} {job.error} {job.warnings}")
        if job.error is None:
            assert str(job.state) == "synced"
            return "changed", "", engine.left_behind()
        assert str(job.state) in ("rollback done", "cancelled")
        assert engine.left_behind() == []
        return str(job.error["code"]), str(job.error["message"]), []


# ── the twin ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _by_library(source: Path, path: Path, scenario: Scenario, request: Request) -> None:
    """Run the statement itself on a copy: a rename is the library's own."""
    with closing(application(source)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    shutil.copyfile(source, path)
    with closing(application(path)) as connection:
        try:
            connection.execute(request.statement)
        except library().Error as error:
            raise Refused(str(error)) from error


def _by_reload(source: Path, path: Path, scenario: Scenario, request: Request) -> None:
    if not request.table.columns:
        raise Refused("a table without columns")
    others = [text for text in scenario.others if text not in request.gone]
    try:
        with closing(application(source)) as old, closing(opened(path, scenario)) as new:
            for table in tables_in_order(old, scenario):
                new.execute(request.table.text() if table is scenario.target else table.text())
            new.execute("BEGIN")
            for table in scenario.tables:
                target = request.table if table is scenario.target else table
                mapped = dict(request.mapped) if table is scenario.target else {}
                copy_rows(old, new, table, mapped, scenario.encoding, into=target, left_out=request.added)
            new.execute("COMMIT")
            for text in others:
                new.execute("ANALYZE sqlite_master" if text == "ANALYZE" else text)
            for text in request.made:
                new.execute(text)
            for table in ("sqlite_sequence", "sqlite_stat1"):
                copy_system_table(old, new, table)
    except library().Error as error:
        raise Refused(str(error)) from error


def _comparable(found: dict[str, Any], scenario: Scenario, request: Request) -> dict[str, Any]:
    """Leave out what no one way to do it decides: blanks and comments in the changed text, and where a new index stands."""
    if request.by_library:
        return found
    schema = [
        (kind, name, table, " ".join(_tokens(text)) if (kind, name) == ("table", scenario.target.name) else text)
        for kind, name, table, text in found["schema"]
        if not (request.keys_change and name == "sqlite_sequence")
    ]
    rows = dict(found["rows"])
    if request.keys_change or request.gone or request.made:
        rows.pop("sqlite_stat1", None)
    unreachable = scenario.target.rowid_alias() is None
    if unreachable or request.table.without_rowid != scenario.target.without_rowid or request.table.rowid_column != scenario.target.rowid_column:
        rows[scenario.target.name] = sorted(row[1:] if _shows_number(request, scenario, row) else row for row in rows[scenario.target.name])
    sequence = found["sequence"] if not request.keys_change else []
    return {**found, "schema": sorted(schema, key=repr) if request.keys_change else schema, "rows": rows, "sequence": sequence}


def _shows_number(request: Request, scenario: Scenario, row: tuple[Any, ...]) -> bool:
    """Whether a row is shown with a number that no column has, which nobody chose when it was new."""
    return not request.table.without_rowid and request.table.rowid_alias() is not None and isinstance(row[0], int)


def _tokens(text: str) -> list[str]:
    return [token for token in _TOKEN.findall(text) if token.strip() and not token.startswith(("--", "/*"))]


def _alone(one: Any, other: Any) -> Any:
    """Return what only one of two things holds, for a person to read."""
    if isinstance(one, dict):
        return {name: _alone(value, other.get(name)) for name, value in one.items() if value != other.get(name)}
    if isinstance(one, list) and isinstance(other, list):
        return [entry for entry in one if entry not in other] or "the order differs"
    return one
