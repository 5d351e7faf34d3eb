"""Actions of ALTER TABLE that only PostgreSQL has, handed on as they stand: what each locks, and what would be long under that lock.

| what | how |
|---|---|
| most | one clause of the last ALTER TABLE, under the lock that the server takes for it |
| VALIDATE CONSTRAINT | a scan beside the traffic |
| SET TABLESPACE, LOGGED, UNLOGGED, ACCESS METHOD, EXPRESSION | the table is written again: at once where it is small, else by a shadow table where that can |
| INHERIT, ALTER CONSTRAINT … ENFORCED | every row may be looked at, or another table is locked too |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tideshift.ddl.change import DatabaseForm
from tideshift.ddl.tokens import STANDARD, Token, significant
from tideshift.dialects.postgres import estimate
from tideshift.dialects.postgres.constraint_text import folded
from tideshift.dialects.postgres.driver import quote
from tideshift.dialects.postgres.locks import EVERYBODY, READERS_GO_ON, WRITERS_GO_ON, Lock
from tideshift.dialects.postgres.names import qualified
from tideshift.dialects.postgres.recipe import Recipe
from tideshift.dialects.postgres.rehearsal import Probe
from tideshift.dialects.postgres.source import near
from tideshift.errors import NotFound

if TYPE_CHECKING:
    from tideshift.dialects.postgres.design import Designer

__all__ = ["ALONE", "WRITES_AGAIN", "take"]

ALONE = frozenset({"RENAME CONSTRAINT", "SET SCHEMA", "ATTACH PARTITION", "DETACH PARTITION"})
"""What the server takes only by itself in a statement."""
WRITES_AGAIN = frozenset({"SET TABLESPACE", "SET LOGGED", "SET UNLOGGED", "SET EXPRESSION"})
"""What a shadow table can do as well."""
_WEAK = {
    "SET (": WRITERS_GO_ON, "RESET (": WRITERS_GO_ON, "SET STATISTICS": WRITERS_GO_ON, "CLUSTER ON": WRITERS_GO_ON,
    "SET WITHOUT CLUSTER": WRITERS_GO_ON, "INHERIT": EVERYBODY,
}  # fmt: skip
_UNTRIED = frozenset({"OWNER TO", "CLUSTER ON", "REPLICA IDENTITY", "RENAME CONSTRAINT", "ALTER CONSTRAINT", "SET SCHEMA", "INHERIT", "NO INHERIT", "ENABLE", "DISABLE",
                      "SET TABLESPACE", "SET LOGGED", "SET UNLOGGED"})  # fmt: skip
"""What an empty temporary copy cannot show: it has other names for its indexes, no triggers, and one place to be in."""

_ONLY_ITSELF = frozenset({"OWNER TO", "SET SCHEMA", "REPLICA IDENTITY", "CLUSTER ON", "SET WITHOUT CLUSTER", "SET TABLESPACE", "SET ACCESS METHOD", "FORCE ROW", "NO FORCE",
                          "SET (", "RESET ("})  # fmt: skip
"""What the server does to a partitioned table and not to its partitions."""


def take(designer: Designer, recipe: Recipe, trial: Probe, action: DatabaseForm) -> None:
    """Add one to the recipe, or keep the reason why it cannot be done."""
    words = significant(action.text, STANDARD)
    if action.form == "VALIDATE CONSTRAINT":
        _validate(designer, recipe, folded(words[2]))
        return
    check = _CHECKS.get(action.form)
    if check is not None:
        check(designer, recipe, words)
    mode = _mode(action, words)
    if action.form in _UNTRIED:
        recipe.clause(action.text, mode, recurses=action.form not in _ONLY_ITSELF)
    else:
        designer.clause(recipe, trial, action.text, mode=mode, recurses=action.form not in _ONLY_ITSELF)


def _mode(action: DatabaseForm, words: list[Token]) -> str:
    if action.form in ("ENABLE", "DISABLE"):
        return READERS_GO_ON if any(word.keyword == "TRIGGER" for word in words[:3]) else EVERYBODY
    return _WEAK.get(action.form, EVERYBODY)


def _validate(designer: Designer, recipe: Recipe, name: str) -> None:
    constraint = recipe.source.constraint(name)
    if constraint.kind not in ("c", "f", "n"):
        designer.reasons.append(f"{name} is neither a check, a foreign key nor a NOT NULL: there is nothing to validate")
    if constraint.validated:
        return
    designer.cost.may_refuse = True
    if designer.goes_online(estimate.scan_seconds(recipe.source.bytes)):
        designer.validate(recipe, name)
    else:
        recipe.clause(f"VALIDATE CONSTRAINT {quote(name)}", WRITERS_GO_ON)


def _rename_constraint(designer: Designer, recipe: Recipe, words: list[Token]) -> None:
    old, new = folded(words[2]), folded(words[4])
    kind = recipe.source.constraint(old).kind
    taken = any(one.name == new for one in recipe.source.constraints)
    if taken or (kind in ("p", "u", "x") and designer.exists(recipe.source.schema, new)):
        designer.reasons.append(f"there is something called {new} already")


def _alter_constraint(designer: Designer, recipe: Recipe, words: list[Token]) -> None:
    found = recipe.source.constraint(folded(words[2]))
    rest = [word.keyword for word in words[3:]]
    if found.kind != "f" and "DEFERRABLE" in rest:
        designer.reasons.append(f"{found.name} is no foreign key: only those can be made deferrable, or not, once they are there")
    if found.kind == "f" and "ENFORCED" in rest:
        schema, name = designer.name_of(found.parent)
        recipe.others.append(Lock(found.parent, qualified(schema, name), EVERYBODY, tree=True))
    if designer.version < 18 and ("ENFORCED" in rest or "INHERIT" in rest):
        designer.reasons.append("ENFORCED and INHERIT of a constraint need PostgreSQL 18")
    if "ENFORCED" in rest and "NOT" not in rest[: rest.index("ENFORCED")]:
        designer.add_cost(estimate.scan_seconds(recipe.source.bytes))
        designer.cost.may_refuse = True


def _cluster(_designer: Designer, recipe: Recipe, words: list[Token]) -> None:
    _index(recipe, folded(words[2]))


def _replica_identity(_designer: Designer, recipe: Recipe, words: list[Token]) -> None:
    if words[2].keyword == "USING":
        _index(recipe, folded(words[4]))


def _index(recipe: Recipe, name: str) -> None:
    known = [one.name for one in recipe.source.indexes]
    if name not in known:
        raise NotFound(f"table {recipe.source.name!r} has no index {name!r}", hint=near(name, known), table=recipe.source.name, index=name)


def _owner(designer: Designer, recipe: Recipe, words: list[Token]) -> None:
    if words[2].keyword in ("CURRENT_USER", "SESSION_USER", "CURRENT_ROLE"):
        return
    role, schema = folded(words[2]), recipe.source.schema
    found = designer.tx.run_verbatim(
        "SELECT pg_catalog.pg_has_role(oid, 'USAGE'), pg_catalog.has_schema_privilege(oid, $2::text, 'CREATE'), current_user::text,"
        " (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user) FROM pg_catalog.pg_roles WHERE rolname = $1", (role, schema)
    ).rows  # fmt: skip
    if not found:
        raise NotFound(f"there is no role {role!r}", role=role)
    member, creates, me, above_it = found[0]
    if not member and not above_it:
        designer.reasons.append(f"a privilege is missing: GRANT {quote(role)} TO {quote(str(me))}")
    if not creates and not above_it:
        designer.reasons.append(f"a privilege is missing: GRANT CREATE ON SCHEMA {quote(schema)} TO {quote(role)}")


def _schema(designer: Designer, recipe: Recipe, words: list[Token]) -> None:
    schema = folded(words[2])
    found = designer.tx.run_verbatim(
        "SELECT pg_catalog.has_schema_privilege(oid, 'CREATE'), current_user::text FROM pg_catalog.pg_namespace WHERE nspname = $1", (schema,)
    ).rows
    if not found:
        raise NotFound(f"there is no schema {schema!r}", schema=schema)
    if not found[0][0]:
        designer.reasons.append(f"a privilege is missing: GRANT CREATE ON SCHEMA {quote(schema)} TO {quote(str(found[0][1]))}")
    names = [recipe.source.name, *(one.name for one in recipe.source.indexes)]
    designer.reasons += [f"there is something called {name} in the schema {schema} already" for name in names if designer.exists(schema, name)]


def _inherit(designer: Designer, recipe: Recipe, words: list[Token]) -> None:
    at = 2 if words[0].keyword == "NO" else 1
    text = "".join(word.text for word in words[at:])
    found = designer.tx.run_verbatim("SELECT pg_catalog.to_regclass($1)::oid::bigint", (text,)).scalar() or designer.oid_by_path(text)
    if found is None:
        raise NotFound(f"there is no table {text}")
    schema, name = designer.name_of(int(found))
    recipe.others.append(Lock(int(found), qualified(schema, name), WRITERS_GO_ON if at == 1 else "ACCESS SHARE"))


def _tablespace(designer: Designer, recipe: Recipe, words: list[Token]) -> None:
    space = folded(words[2])
    found = designer.tx.run_verbatim(
        "SELECT pg_catalog.has_tablespace_privilege(t.oid, 'CREATE') OR t.oid = d.dattablespace, current_user::text,"
        " t.oid = CASE WHEN c.reltablespace = 0 THEN d.dattablespace ELSE c.reltablespace END"
        " FROM pg_catalog.pg_tablespace t, pg_catalog.pg_database d, pg_catalog.pg_class c WHERE t.spcname = $1 AND d.datname = current_database() AND c.oid = $2",
        (space, recipe.source.oid),
    ).rows
    if not found:
        raise NotFound(f"there is no tablespace {space!r}", tablespace=space)
    allowed, me, is_there = found[0]
    if not allowed:
        designer.reasons.append(f"a privilege is missing: GRANT CREATE ON TABLESPACE {quote(space)} TO {quote(str(me))}")
    if not is_there and recipe.source.kind != "p":
        designer.add_cost(estimate.write_seconds(recipe.source.heap_bytes), rewrites=True)


def _logged(designer: Designer, recipe: Recipe, words: list[Token]) -> None:
    source, wanted = recipe.source, "p" if words[1].keyword == "LOGGED" else "u"
    if source.kind == "p":
        designer.reasons.append("a partitioned table has no rows of its own: say it of each partition")
        return
    if source.persistence == wanted:
        return
    for table in designer.tx.run_verbatim(_OTHER_PERSISTENCE, (source.oid, wanted)).rows:
        designer.reasons.append(f"{table[0]} is joined to it by a foreign key and {'is not logged' if wanted == 'p' else 'is logged'}: change that first")
    designer.add_cost(estimate.write_seconds(source.bytes), rewrites=True)


def _access_method(designer: Designer, _recipe: Recipe, _words: list[Token]) -> None:
    designer.cost.no_copy = "SET ACCESS METHOD: a copy is made on heap only"


_OTHER_PERSISTENCE = """
SELECT DISTINCT c.oid::regclass::text FROM pg_catalog.pg_constraint f JOIN pg_catalog.pg_class c
    ON c.oid = CASE WHEN $2 = 'p' THEN f.confrelid ELSE f.conrelid END
 WHERE f.contype = 'f' AND CASE WHEN $2 = 'p' THEN f.conrelid ELSE f.confrelid END = $1 AND c.oid <> $1 AND c.relpersistence::text <> $2
"""
_CHECKS = {
    "RENAME CONSTRAINT": _rename_constraint, "ALTER CONSTRAINT": _alter_constraint, "CLUSTER ON": _cluster, "REPLICA IDENTITY": _replica_identity,
    "OWNER TO": _owner, "SET SCHEMA": _schema, "INHERIT": _inherit, "NO INHERIT": _inherit, "SET TABLESPACE": _tablespace, "SET LOGGED": _logged,
    "SET UNLOGGED": _logged, "SET ACCESS METHOD": _access_method,
}  # fmt: skip
