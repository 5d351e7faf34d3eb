"""What hangs on a view beside its text and its rules, as statements that hang the same on it when it was made anew; and what could not be."""

from __future__ import annotations

from typing import Any

from tideshift.dialects.postgres.capture import nobodys
from tideshift.dialects.postgres.driver import quote
from tideshift.store.database import Transaction

__all__ = ["attachments_of", "obstacles_of"]


def attachments_of(tx: Transaction, oid: int, name: str) -> list[str]:
    """Read owner, privileges, defaults, triggers and comments of a view; run the statements in this order."""
    owner, given, current = tx.run_verbatim(_OWNER, (oid,)).rows[0]
    statements = [f"ALTER VIEW {name} OWNER TO {quote(owner)}", nobodys(name)]
    if given:
        statements.append(f"REVOKE ALL ON {name} FROM {quote(owner)}")
    statements += _grants(tx, oid, name, owner, current)
    for query in (_DEFAULTS, _TRIGGERS, _COMMENTS):
        statements += [text for row in tx.run_verbatim(query, (oid, name)).rows for text in row if text is not None]
    return statements


def _grants(tx: Transaction, oid: int, name: str, owner: str, current: str) -> list[str]:
    """Repeat every privilege by whoever granted it, each behind the one that allows it."""
    waiting = [tuple(row) for row in tx.run_verbatim(_GRANTS, (oid,)).rows]
    may_grant = {(owner, privilege) for _, privilege, *_ in waiting}
    statements: list[str] = []
    while waiting:
        ready = [one for one in waiting if (one[0], one[1]) in may_grant]
        for one in ready or waiting:  # whatever else the catalogue holds, it is tried
            grantor, privilege, column, grantee, option = one
            where = "" if column is None else f" ({quote(column)})"
            grant = f"GRANT {privilege}{where} ON {name} TO {grantee}{' WITH GRANT OPTION' if option else ''}"
            statements += [grant] if grantor == owner else [f"SET LOCAL ROLE {quote(grantor)}", grant, f"SET LOCAL ROLE {quote(current)}"]
            if option:
                may_grant.add((_bare(grantee), privilege))
        waiting = [one for one in waiting if one not in ready] if ready else []
    return statements


def _bare(grantee: str) -> str:
    return grantee[1:-1].replace('""', '"') if grantee.startswith('"') else grantee


def obstacles_of(tx: Transaction, oid: int, known: list[int]) -> list[str]:
    """Return why a view could not be dropped and made anew; `known` are the views that are taken care of."""
    grantors = _SET_ROLE.format(may="SET" if _version(tx) >= 16 else "MEMBER")
    found: list[Any] = []
    for query, binds in ((_USERS, (oid, known)), (_UNREPEATABLE, (oid,)), (grantors, (oid,))):
        found += [reason for (reason,) in tx.run_verbatim(query, binds).rows]
    return found


def _version(tx: Transaction) -> int:
    return int(tx.run_verbatim("SELECT pg_catalog.current_setting('server_version_num')").scalar()) // 10_000


_OWNER = "SELECT pg_catalog.pg_get_userbyid(relowner)::text, relacl IS NOT NULL, current_user::text FROM pg_catalog.pg_class WHERE oid = $1"
_GRANTS = """
SELECT pg_catalog.pg_get_userbyid(a.grantor)::text, a.privilege_type, one.attname,
       CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(a.grantee)) END, a.is_grantable
FROM (SELECT NULL::text AS attname, 0 AS attnum, relacl AS acl FROM pg_catalog.pg_class WHERE oid = $1
      UNION ALL SELECT attname::text, attnum, attacl FROM pg_catalog.pg_attribute WHERE attrelid = $1 AND NOT attisdropped) one,
     LATERAL pg_catalog.aclexplode(one.acl) WITH ORDINALITY AS a (grantor, grantee, privilege_type, is_grantable, place) ORDER BY one.attnum, a.place
"""
_DEFAULTS = """
SELECT 'ALTER VIEW ' || $2::text || ' ALTER COLUMN ' || pg_catalog.quote_ident(attname) || ' SET DEFAULT ' || pg_catalog.pg_get_expr(adbin, adrelid)
FROM pg_catalog.pg_attrdef JOIN pg_catalog.pg_attribute ON attrelid = adrelid AND attnum = adnum WHERE adrelid = $1 ORDER BY attnum
"""
_TRIGGERS = """
SELECT pg_catalog.pg_get_triggerdef(oid),
       'COMMENT ON TRIGGER ' || pg_catalog.quote_ident(tgname) || ' ON ' || $2::text || ' IS ' || pg_catalog.quote_literal(pg_catalog.obj_description(oid, 'pg_trigger'))
FROM pg_catalog.pg_trigger WHERE tgrelid = $1 AND NOT tgisinternal ORDER BY tgname
"""
_COMMENTS = """
SELECT 'COMMENT ON ' || CASE objsubid WHEN 0 THEN 'VIEW ' || $2::text
            ELSE 'COLUMN ' || $2::text || '.' || (SELECT pg_catalog.quote_ident(attname) FROM pg_catalog.pg_attribute WHERE attrelid = $1 AND attnum = objsubid) END
       || ' IS ' || pg_catalog.quote_literal(description)
FROM pg_catalog.pg_description WHERE classoid = 'pg_catalog.pg_class'::regclass AND objoid = $1
UNION ALL SELECT 'COMMENT ON RULE "_RETURN" ON ' || $2::text || ' IS ' || pg_catalog.quote_literal(pg_catalog.obj_description(oid, 'pg_rewrite'))
            FROM pg_catalog.pg_rewrite WHERE ev_class = $1 AND rulename = '_RETURN'
"""
_USERS = """
SELECT DISTINCT pg_catalog.pg_describe_object(d.classid, d.objid, d.objsubid) || ' uses the view ' || $1::oid::regclass::text || ', which would have to be made anew: drop that first'
FROM pg_catalog.pg_depend d LEFT JOIN pg_catalog.pg_type t ON d.refclassid = 'pg_catalog.pg_type'::regclass AND t.oid = d.refobjid
WHERE d.deptype = 'n' AND ((d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid = $1)
       OR t.typrelid = $1 OR t.typelem IN (SELECT oid FROM pg_catalog.pg_type WHERE typrelid = $1))
  AND NOT (d.classid = 'pg_catalog.pg_rewrite'::regclass AND EXISTS (SELECT 1 FROM pg_catalog.pg_rewrite r JOIN pg_catalog.pg_class c ON c.oid = r.ev_class
           WHERE r.oid = d.objid AND (c.oid = ANY ($2::bigint[]) OR (c.relkind = 'v' AND r.rulename <> '_RETURN'))))
  AND NOT (d.classid = 'pg_catalog.pg_trigger'::regclass AND EXISTS (SELECT 1 FROM pg_catalog.pg_trigger WHERE oid = d.objid AND tgrelid = $1))
  AND NOT (d.classid = 'pg_catalog.pg_class'::regclass AND d.objid = $1)
"""
"""The one that would make it depend on nothing else: DROP without CASCADE."""
_UNREPEATABLE = """
SELECT 'the view ' || $1::oid::regclass::text || ' belongs to the extension ' || e.extname::text FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_extension e ON e.oid = d.refobjid
 WHERE d.classid = 'pg_catalog.pg_class'::regclass AND d.objid = $1 AND d.deptype IN ('e', 'x') AND d.refclassid = 'pg_catalog.pg_extension'::regclass
UNION ALL SELECT 'the view ' || $1::oid::regclass::text || ' has a security label' FROM pg_catalog.pg_seclabel
           WHERE classoid = 'pg_catalog.pg_class'::regclass AND objoid = $1
UNION ALL SELECT 'a privilege is missing to make the view ' || c.oid::regclass::text || ' anew: GRANT CREATE ON SCHEMA ' || pg_catalog.quote_ident(n.nspname) || ' TO '
                 || pg_catalog.quote_ident(one.role)
            FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace,
                 LATERAL (SELECT current_user::text UNION SELECT pg_catalog.pg_get_userbyid(c.relowner)::text) one (role)
           WHERE c.oid = $1 AND NOT pg_catalog.has_schema_privilege(one.role, n.oid, 'CREATE')
             AND (one.role = current_user OR NOT (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname = current_user))
UNION ALL SELECT 'a privilege is missing to make the view ' || $1::oid::regclass::text || ' anew: GRANT EXECUTE ON FUNCTION ' || t.tgfoid::regprocedure::text || ' TO '
                 || pg_catalog.quote_ident(current_user)
            FROM pg_catalog.pg_trigger t WHERE t.tgrelid = $1 AND NOT t.tgisinternal AND NOT pg_catalog.has_function_privilege(t.tgfoid, 'EXECUTE')
"""
_SET_ROLE = """
SELECT DISTINCT 'a privilege on the view ' || $1::oid::regclass::text || ' was granted by ' || pg_catalog.pg_get_userbyid(a.grantor)::text || ': GRANT '
       || pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(a.grantor)) || ' TO ' || pg_catalog.quote_ident(session_user)
FROM (SELECT relowner, relacl AS acl FROM pg_catalog.pg_class WHERE oid = $1
      UNION ALL SELECT c.relowner, attacl FROM pg_catalog.pg_attribute JOIN pg_catalog.pg_class c ON c.oid = attrelid WHERE attrelid = $1) one,
     LATERAL pg_catalog.aclexplode(one.acl) a WHERE a.grantor <> one.relowner AND NOT pg_catalog.pg_has_role(session_user, a.grantor, '{may}')
"""
