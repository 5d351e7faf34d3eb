"""One change beside the same change made by a reload: what may differ (nothing), and what may be refused (what is documented)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.proof.engine import on_engine
from tests.proof.reload import Refused, holds, load, reload_changed
from tests.proof.schema import Scenario, affinity, quoted
from tideshift import errors

__all__ = ["compare"]

Tell = Callable[[str], object]


def compare(folder: Path, scenario: Scenario, tell: Tell) -> str:
    """Make the change in both ways and hold everything against one another; return what became of ours."""
    path, twin = folder / "changed.db", folder / "twin.db"
    load(path, scenario)
    tell(repr(scenario))
    before = holds(path)
    try:
        reload_changed(path, twin, scenario)
        wanted: dict[str, Any] | None = holds(twin)
    except Refused as refused:
        tell(f"the reload refuses: {refused}")
        wanted = None

    outcome, kept = _changed(path, scenario, tell)

    after = holds(path)
    tell(f"ours: {outcome}")
    if outcome == "changed":
        assert wanted is not None, "ours was carried out, the reload refuses"
        assert after == wanted
        assert kept == [] or _may_be_kept(before["references"], wanted["references"]), "the old rows were kept without need"
    else:
        assert outcome in ("value_refused", "plan_refused"), outcome
        breaks = wanted is not None and _may_be_kept(before["references"], wanted["references"])
        assert wanted is None or breaks or (outcome == "plan_refused" and _may_be_refused(scenario)), f"refused without need: {outcome}"
        assert after == before
    return outcome


def _changed(path: Path, scenario: Scenario, tell: Tell) -> tuple[str, list[str]]:
    """Carry the change out; return `changed` or the code of the error that ended it, and what was left behind."""
    with on_engine(path) as engine:
        try:
            job_id = engine.submit(scenario.change.statement)
        except errors.TideshiftError as error:
            tell(error.message)
            return error.code, engine.left_behind()
        job = engine.finish(job_id)
        tell(f"{job.state} {job.error} {job.warnings}")
        if job.error is None:
            assert str(job.state) == "synced"
            return "changed", engine.left_behind()
        assert str(job.state) in ("rollback done", "cancelled")
        assert engine.left_behind() == []
        return str(job.error["code"]), []


def _may_be_kept(before: list[Any], after: list[Any]) -> bool:
    """Whether a reference broke, or some reference is such that the library cannot tell (its message instead of rows)."""
    return any(isinstance(one, str) for one in after) or bool(Counter(map(repr, after)) - Counter(map(repr, before)))


def _may_be_refused(scenario: Scenario) -> bool:
    """Whether the documentation says that such a change is refused at plan time, whatever the rows."""
    table, change = scenario.target, scenario.change
    column = table.column(change.column)
    if table.rowid_column == change.column:
        return True
    if table.key == (change.column,) and not table.without_rowid and change.type_text.upper() == "INTEGER":
        return True
    if column.generated and change.using is not None:
        return True
    if table.rowid_alias() is None and not table.without_rowid:
        return True
    if "ON DELETE CASCADE" in column.rest:
        return True
    if _depends_in_no_plain_way(scenario):
        return True
    strict = "STRICT" in table.options
    if table.without_rowid and change.column in table.key:
        return change.using is not None or affinity(column.type_text, strict=strict) != affinity(change.type_text, strict=strict)
    return False


def _depends_in_no_plain_way(scenario: Scenario) -> bool:
    """Whether a unique key depends on the changed column by an expression, a condition or a generated column; or by USING if STRICT or beside the rowid."""
    table, change = scenario.target, scenario.change
    column = table.column(change.column)
    derived = {column.name} if column.generated else set()
    derived |= {other.name for other in table.columns if other.generated and quoted(change.column) in other.rest}
    keys = [quoted(other.name) for other in table.columns if "UNIQUE" in other.rest or "PRIMARY KEY" in other.rest]
    keys += [text for text in table.constraints if "UNIQUE" in text or "PRIMARY KEY" in text]
    indexes = [text.partition("(")[2] for text in scenario.others if text.startswith("CREATE UNIQUE")]
    if any(quoted(name) in text for name in derived for text in (*keys, *indexes)):
        return True
    if any(quoted(change.column) in text and _is_computed(text) for text in indexes):
        return True
    if change.using is None:
        return False
    alias = table.rowid_column
    of_rowid = [] if alias is None else [alias, *(other.name for other in table.columns if other.generated and quoted(alias) in other.rest)]
    looked_up_before = [text for text in (*keys, *indexes) if quoted(change.column) in text]
    return (bool(looked_up_before) and "STRICT" in table.options) or any(quoted(name) in text for name in of_rowid for text in looked_up_before)


def _is_computed(index_text: str) -> bool:
    """Whether an index of ours is over an expression or has a condition."""
    return any(mark in index_text for mark in ("lower(", "||", " + 1", "coalesce(", " WHERE "))
