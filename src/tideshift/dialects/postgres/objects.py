"""ALTER INDEX, ALTER TYPE and ALTER SEQUENCE: statements that write the catalogue only, under a lock that is tried for moments.

The text behind the name is the user's own. What belongs to a table is a job on that table; a type, or a sequence that
belongs to none, is an object by itself.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tideshift.ddl.change import AlterObject, TableName
from tideshift.ddl.machine import SchemaState
from tideshift.ddl.reshaping import Claim, NativeStep, Reshaping, RowWork, SqlStep, StepKind, Strategy
from tideshift.ddl.tokens import STANDARD, significant
from tideshift.dialects.postgres import estimate
from tideshift.dialects.postgres.constraint_text import folded
from tideshift.dialects.postgres.driver import quote
from tideshift.dialects.postgres.names import qualified
from tideshift.dialects.postgres.source import near, own_search_path, user_path
from tideshift.errors import NotFound, PlanRefused

if TYPE_CHECKING:
    from tideshift.dialects.postgres.design import Designer

__all__ = ["alter"]

_LOCKS = {
    ("INDEX", "SET TABLESPACE"): "ACCESS EXCLUSIVE on the index", ("INDEX", "ALTER"): "SHARE UPDATE EXCLUSIVE on the index",
    ("INDEX", "ATTACH PARTITION"): "ACCESS EXCLUSIVE on the partition's index", ("TYPE", "ADD VALUE"): "none on a table", ("TYPE", "RENAME VALUE"): "none on a table",
    ("SEQUENCE", "RENAME TO"): "ACCESS EXCLUSIVE on the sequence",
}  # fmt: skip
_BY_KIND = {"INDEX": "SHARE UPDATE EXCLUSIVE on the index", "SEQUENCE": "SHARE ROW EXCLUSIVE on the sequence"}


def alter(designer: Designer, change: AlterObject) -> Reshaping:
    """Return the one step, or raise with every reason."""
    found = _found(designer, change)
    if not found["owned"]:
        me = designer.tx.run_verbatim("SELECT current_user::text").scalar()
        designer.reasons.append(f"only the owner of {change.name} may change it: GRANT {quote(found['owner'])} TO {quote(str(me))}")
    check = _CHECKS.get((change.what, change.form))
    if check is not None:
        check(designer, change, found)
    sql = f"ALTER {change.what} {found['quoted']} {change.text}"
    if designer.wished not in (None, Strategy.INSTANT, Strategy.DIRECT):
        designer.reasons.append("it is carried out by one statement of the server's own")
    if designer.reasons:
        raise PlanRefused(f"{change.kind} {str(change.name)!r} is refused: {'; '.join(designer.reasons)}", reasons=designer.reasons)
    return _reshaping(designer, change, found, sql)


def _reshaping(designer: Designer, change: AlterObject, found: dict[str, Any], sql: str) -> Reshaping:
    lock = _LOCKS.get((change.what, change.form), _BY_KIND.get(change.what, ""))
    step = NativeStep(
        name="change", kind=StepKind.SHORT, text="put the new shape in force", schema_state=SchemaState.PUBLIC.value, detail={"sql": [sql], "locks": []},
    )  # fmt: skip
    about = found["table"] or found["quoted"]
    return Reshaping(
        table=TableName(found["schema"], found["name"]), strategy=Strategy.DIRECT if designer.cost.seconds else Strategy.INSTANT,
        claims=(Claim(about.replace('"', "")),), row_work=RowWork.REWRITE if designer.cost.rewrites else RowWork.NONE, key_columns=(), may_refuse_rows=False,
        hold_seconds=designer.cost.seconds, sql_steps=(SqlStep("change", sql, f"{lock}, tried for moments", estimate.hold_text(designer.cost.seconds)),),
        native_steps=(step,), warnings=tuple(designer.cost.warnings),
        detail={"oid": found["oid"], "what": change.what, "table": found["quoted"], "search_path": own_search_path(designer.tx), "shape": None, "wanted": {}, "before": None},
    )  # fmt: skip


def _found(designer: Designer, change: AlterObject) -> dict[str, Any]:
    tx, name = designer.tx, change.name
    text = qualified(name.name) if name.schema is None else qualified(name.schema, name.name)
    with user_path(tx, own_search_path(tx)):
        rows = tx.run_verbatim(_TYPE if change.what == "TYPE" else _RELATION, (text,)).rows
    kinds = {"INDEX": "iI", "SEQUENCE": "S", "TYPE": "e"}[change.what]
    if not rows or rows[0][1] not in kinds:
        word = "enum type" if change.what == "TYPE" else change.what.lower()
        known = [one for (one,) in tx.run_verbatim(_KNOWN, (list(kinds),)).rows]
        raise NotFound(f"there is no {word} {str(name)!r}", hint=near(name.name, known), name=name.name)
    oid, kind, schema, bare, owner, owned, size, table = rows[0]
    if schema in ("pg_catalog", "information_schema") or schema.startswith("pg_t"):
        raise PlanRefused(f"{str(name)!r} cannot be changed: it belongs to PostgreSQL itself", reasons=["it belongs to PostgreSQL itself"])
    return {"oid": oid, "kind": kind, "schema": schema, "name": bare, "owner": owner, "owned": owned, "bytes": size, "table": table, "quoted": qualified(schema, bare)}


def _rename(designer: Designer, change: AlterObject, found: dict[str, Any]) -> None:
    new = folded(significant(change.text, STANDARD)[2])
    if designer.exists(found["schema"], new):
        designer.reasons.append(f"there is something called {new} in the schema {found['schema']} already")


def _tablespace(designer: Designer, _change: AlterObject, found: dict[str, Any]) -> None:
    seconds = estimate.write_seconds(found["bytes"])
    designer.add_cost(seconds, rewrites=True)
    if seconds > estimate.LOCK_BUDGET_SECONDS and designer.wished is not Strategy.DIRECT:
        designer.reasons.append(
            f"the index would be written again under a lock that keeps everybody from it, for {estimate.hold_text(seconds)}: make a second index there by"
            " CREATE INDEX … TABLESPACE and drop this one, or say --strategy direct"
        )


def _value(designer: Designer, change: AlterObject, found: dict[str, Any]) -> None:
    words = significant(change.text, STANDARD)
    at = 5 if words[2].keyword == "IF" else 2
    wanted = words[at].text[1:-1].replace("''", "'")
    labels = [label for (label,) in designer.tx.run_verbatim("SELECT enumlabel::text FROM pg_catalog.pg_enum WHERE enumtypid = $1 ORDER BY enumsortorder", (found["oid"],)).rows]
    if change.form == "RENAME VALUE":
        new = words[4].text[1:-1].replace("''", "'")
        if wanted not in labels:
            raise NotFound(f"{change.name} has no value {wanted!r}", hint=near(wanted, labels))
        if new in labels:
            designer.reasons.append(f"{change.name} has a value {new!r} already")
        designer.cost.warnings.append(f"whoever still says {wanted!r} gets an error from then on")
    elif wanted in labels and at == 2:
        designer.reasons.append(f"{change.name} has a value {wanted!r} already")


def _sequence(designer: Designer, change: AlterObject, found: dict[str, Any]) -> None:
    if found["kind"] == "S" and found["table"] is not None and "OWNED" in change.form:
        designer.cost.warnings.append(f"the sequence belongs to {found['table']}, and goes with it")


_CHECKS = {
    ("INDEX", "RENAME TO"): _rename, ("SEQUENCE", "RENAME TO"): _rename, ("INDEX", "SET TABLESPACE"): _tablespace, ("TYPE", "ADD VALUE"): _value,
    ("TYPE", "RENAME VALUE"): _value, ("SEQUENCE", "OWNED BY"): _sequence,
}  # fmt: skip
_RELATION = """
SELECT c.oid::bigint, c.relkind::text, n.nspname::text, c.relname::text, pg_catalog.pg_get_userbyid(c.relowner)::text, pg_catalog.pg_has_role(c.relowner, 'USAGE'),
       pg_catalog.pg_relation_size(c.oid),
       (SELECT pg_catalog.quote_ident(tn.nspname) || '.' || pg_catalog.quote_ident(t.relname) FROM pg_catalog.pg_class t
          JOIN pg_catalog.pg_namespace tn ON tn.oid = t.relnamespace
         WHERE t.oid = coalesce((SELECT indrelid FROM pg_catalog.pg_index WHERE indexrelid = c.oid),
               (SELECT refobjid FROM pg_catalog.pg_depend WHERE classid = 'pg_catalog.pg_class'::regclass AND objid = c.oid AND deptype IN ('a', 'i')
                   AND refclassid = 'pg_catalog.pg_class'::regclass AND c.relkind = 'S')))
FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = pg_catalog.to_regclass($1)
"""
_TYPE = """
SELECT t.oid::bigint, t.typtype::text, n.nspname::text, t.typname::text, pg_catalog.pg_get_userbyid(t.typowner)::text, pg_catalog.pg_has_role(t.typowner, 'USAGE'), 0, NULL
FROM pg_catalog.pg_type t JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace WHERE t.oid = pg_catalog.to_regtype($1)
"""
_KNOWN = """
SELECT relname::text FROM pg_catalog.pg_class WHERE relkind::text = ANY ($1) AND oid >= 16384
UNION ALL SELECT typname::text FROM pg_catalog.pg_type WHERE typtype = 'e' AND 'e' = ANY ($1) AND oid >= 16384 LIMIT 5000
"""
