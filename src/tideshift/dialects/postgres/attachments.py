"""What hangs on a table beside its rows and shape, as statements that hang the same on the table that takes its place.

Read under the lock of the swap and run after it, when the names mean the new table. Each text comes from the server's own
functions, so that nothing is lost on the way; a setting is only written where it is not the usual one.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tideshift.dialects.postgres.driver import quote
from tideshift.dialects.postgres.layout import Layout
from tideshift.dialects.postgres.names import qualified
from tideshift.store.database import Transaction

__all__ = ["Attachments", "read_attachments"]


@dataclass
class Attachments:
    """Statements by when they are run: on the old table before the exchange, and on the new one after it."""

    before: list[str] = field(default_factory=list)
    after: list[str] = field(default_factory=list)


def read_attachments(tx: Transaction, layout: Layout) -> Attachments:
    """Read everything but keys, indexes, sequences, foreign keys and views, which the swap itself exchanges.

    The columns that go on bear their new names already.
    """
    renamed = {name: name for _, name in layout.columns}
    found = Attachments()
    binds = (layout.oid,)
    table = layout.source
    found.after += _privileges(tx, layout, renamed)
    indexes = {one.name for one in layout.indexes}
    for setting in _SETTINGS:
        found.after += [text.replace("{table}", table) for text, index in tx.run_verbatim(setting, binds).rows if index is None or index in indexes]
    found.after += [text for (text,) in tx.run_verbatim(_POLICIES, binds).rows]
    for text, state in tx.run_verbatim(_TRIGGERS, binds).rows:
        found.after.append(text)
        if state:
            found.after.append(state.replace("{table}", table))
    for text, state in tx.run_verbatim(_RULES, binds).rows:
        found.after.append(text)
        if state:
            found.after.append(state.replace("{table}", table))
    for dropped, made, target in tx.run_verbatim(_STATISTICS, binds).rows:
        found.before.append(dropped)
        found.after += [made, *([target] if target else [])]
    for dropped, added in tx.run_verbatim(_PUBLICATIONS, binds).rows:
        found.before.append(dropped)
        found.after.append(added)
    found.after += _comments(tx, layout, renamed)
    return found


def _privileges(tx: Transaction, layout: Layout, renamed: dict[str, str]) -> list[str]:
    """Repeat every privilege; the owner's own are taken away first where they are fewer than usual."""
    statements = []
    if tx.run_verbatim("SELECT relacl IS NOT NULL FROM pg_catalog.pg_class WHERE oid = $1", (layout.oid,)).scalar():
        statements.append(f"REVOKE ALL ON {layout.source} FROM {quote(layout.owner)}")
    for privilege, column, grantee, option in tx.run_verbatim(_GRANTS, (layout.oid,)).rows:
        if column is not None and column not in renamed:
            continue
        where = "" if column is None else f" ({quote(renamed[column])})"
        statements.append(f"GRANT {privilege}{where} ON {layout.source} TO {grantee}{' WITH GRANT OPTION' if option else ''}")
    return statements


def _comments(tx: Transaction, layout: Layout, renamed: dict[str, str]) -> list[str]:
    """Write the comments on everything that is still there."""
    statements = []
    for kind, schema, name, text in tx.run_verbatim(_COMMENTS, (layout.oid,)).rows:
        column = kind == "column"
        if (column and name not in renamed) or (kind in ("index", "constraint") and not _stays(layout, kind, name)):
            continue
        target = {
            "table": layout.source, "column": f"{layout.source}.{quote(renamed.get(name, name or '-'))}", "index": qualified(schema or "-", name or "-"),
            "statistics": qualified(schema or "-", name or "-"),
        }.get(kind, f"{quote(name or '-')} ON {layout.source}")  # fmt: skip
        statements.append(f"COMMENT ON {kind.upper()} {target} IS {_literal(text)}")
    return statements


def _stays(layout: Layout, kind: str, name: str) -> bool:
    """Whether an index or constraint is part of the new shape."""
    if any(one.name == name and (kind == "index" or one.kind is not None) for one in layout.indexes):
        return True
    begins = f"CONSTRAINT {quote(name)} "
    checks = begins in layout.create or any(one.startswith(begins) for one in layout.late_checks)
    return kind == "constraint" and (checks or name in layout.foreign_keys)


def _literal(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace("'", "''")
    return f"E'{escaped}'"


_GRANTS = """
SELECT a.privilege_type, one.attname, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(a.grantee)) END, a.is_grantable
FROM (SELECT NULL::text AS attname, 0 AS attnum, relacl AS acl FROM pg_catalog.pg_class WHERE oid = $1
      UNION ALL SELECT attname::text, attnum, attacl FROM pg_catalog.pg_attribute WHERE attrelid = $1 AND NOT attisdropped) one,
     LATERAL pg_catalog.aclexplode(one.acl) WITH ORDINALITY AS a (grantor, grantee, privilege_type, is_grantable, place) ORDER BY one.attnum, a.place
"""
_SETTINGS = (
    "SELECT 'ALTER TABLE {table} ENABLE ROW LEVEL SECURITY', NULL FROM pg_catalog.pg_class WHERE oid = $1 AND relrowsecurity",
    "SELECT 'ALTER TABLE {table} FORCE ROW LEVEL SECURITY', NULL FROM pg_catalog.pg_class WHERE oid = $1 AND relforcerowsecurity",
    """SELECT 'ALTER TABLE {table} REPLICA IDENTITY ' || CASE relreplident WHEN 'f' THEN 'FULL' WHEN 'n' THEN 'NOTHING' ELSE 'USING INDEX '
              || (SELECT pg_catalog.quote_ident(c.relname) FROM pg_catalog.pg_index x JOIN pg_catalog.pg_class c ON c.oid = x.indexrelid
                   WHERE x.indrelid = $1 AND x.indisreplident) END,
              CASE relreplident WHEN 'i' THEN (SELECT c.relname::text FROM pg_catalog.pg_index x JOIN pg_catalog.pg_class c ON c.oid = x.indexrelid
                   WHERE x.indrelid = $1 AND x.indisreplident) END
         FROM pg_catalog.pg_class WHERE oid = $1 AND relreplident <> 'd'
          AND (relreplident <> 'i' OR EXISTS (SELECT 1 FROM pg_catalog.pg_index WHERE indrelid = $1 AND indisreplident))""",
    """SELECT 'ALTER TABLE {table} CLUSTER ON ' || pg_catalog.quote_ident(c.relname), c.relname::text FROM pg_catalog.pg_index x JOIN pg_catalog.pg_class c ON c.oid = x.indexrelid
        WHERE x.indrelid = $1 AND x.indisclustered""",
    """SELECT 'ALTER INDEX ' || pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname) || ' ALTER COLUMN ' || a.attnum || ' SET STATISTICS '
              || a.attstattarget, c.relname::text FROM pg_catalog.pg_index x JOIN pg_catalog.pg_class c ON c.oid = x.indexrelid
         JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace JOIN pg_catalog.pg_attribute a ON a.attrelid = x.indexrelid
        WHERE x.indrelid = $1 AND a.attstattarget >= 0""",
)
_POLICIES = """
SELECT 'CREATE POLICY ' || pg_catalog.quote_ident(polname) || ' ON ' || pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname)
       || CASE WHEN polpermissive THEN '' ELSE ' AS RESTRICTIVE' END
       || ' FOR ' || CASE polcmd WHEN 'r' THEN 'SELECT' WHEN 'a' THEN 'INSERT' WHEN 'w' THEN 'UPDATE' WHEN 'd' THEN 'DELETE' ELSE 'ALL' END
       || ' TO ' || (SELECT string_agg(CASE role WHEN 0 THEN 'PUBLIC' ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(role)) END, ', ') FROM unnest(polroles) role)
       || coalesce(' USING (' || pg_catalog.pg_get_expr(polqual, polrelid) || ')', '')
       || coalesce(' WITH CHECK (' || pg_catalog.pg_get_expr(polwithcheck, polrelid) || ')', '')
FROM pg_catalog.pg_policy JOIN pg_catalog.pg_class c ON c.oid = polrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE polrelid = $1 ORDER BY polname
"""
_STATE = "CASE {column} WHEN 'O' THEN NULL ELSE 'ALTER TABLE {{table}} ' || CASE {column} WHEN 'D' THEN 'DISABLE' WHEN 'R' THEN 'ENABLE REPLICA' ELSE 'ENABLE ALWAYS' END || '{what}' || pg_catalog.quote_ident({name}) END"
_TRIGGERS = f"""
SELECT pg_catalog.pg_get_triggerdef(t.oid), {_STATE.format(column="tgenabled", what=" TRIGGER ", name="tgname")}
FROM pg_catalog.pg_trigger t WHERE tgrelid = $1 AND NOT tgisinternal ORDER BY tgname
"""
_RULES = f"""
SELECT pg_catalog.pg_get_ruledef(r.oid), {_STATE.format(column="ev_enabled", what=" RULE ", name="rulename")}
FROM pg_catalog.pg_rewrite r WHERE ev_class = $1 ORDER BY rulename
"""
_STATISTICS = """
SELECT 'DROP STATISTICS ' || pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(stxname), pg_catalog.pg_get_statisticsobjdef(s.oid),
       CASE WHEN stxstattarget >= 0 THEN 'ALTER STATISTICS ' || pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(stxname)
            || ' SET STATISTICS ' || stxstattarget END
FROM pg_catalog.pg_statistic_ext s JOIN pg_catalog.pg_namespace n ON n.oid = stxnamespace WHERE stxrelid = $1 ORDER BY stxname
"""
_PUBLICATIONS = """
SELECT 'ALTER PUBLICATION ' || pg_catalog.quote_ident(pubname) || ' DROP TABLE ' || pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname),
       'ALTER PUBLICATION ' || pg_catalog.quote_ident(pubname) || ' ADD TABLE ' || pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname)
       || coalesce(' (' || (SELECT string_agg(pg_catalog.quote_ident(attname), ', ' ORDER BY attnum) FROM pg_catalog.pg_attribute
                             WHERE attrelid = r.prrelid AND attnum = ANY (r.prattrs::int2[])) || ')', '')
       || coalesce(' WHERE (' || pg_catalog.pg_get_expr(r.prqual, r.prrelid) || ')', '')
FROM pg_catalog.pg_publication_rel r JOIN pg_catalog.pg_publication p ON p.oid = r.prpubid JOIN pg_catalog.pg_class c ON c.oid = r.prrelid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE r.prrelid = $1 ORDER BY pubname
"""
_COMMENTS = """
SELECT 'table', NULL, NULL, description FROM pg_catalog.pg_description WHERE classoid = 'pg_catalog.pg_class'::regclass AND objoid = $1 AND objsubid = 0
UNION ALL SELECT 'column', NULL, attname::text, description FROM pg_catalog.pg_description JOIN pg_catalog.pg_attribute ON attrelid = objoid AND attnum = objsubid
           WHERE classoid = 'pg_catalog.pg_class'::regclass AND objoid = $1 AND objsubid > 0
UNION ALL SELECT 'index', n.nspname::text, c.relname::text, description FROM pg_catalog.pg_description
            JOIN pg_catalog.pg_index x ON x.indexrelid = objoid JOIN pg_catalog.pg_class c ON c.oid = objoid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
           WHERE classoid = 'pg_catalog.pg_class'::regclass AND x.indrelid = $1
UNION ALL SELECT 'constraint', NULL, conname::text, description FROM pg_catalog.pg_description JOIN pg_catalog.pg_constraint c ON c.oid = objoid
           WHERE classoid = 'pg_catalog.pg_constraint'::regclass AND c.conrelid = $1
UNION ALL SELECT 'trigger', NULL, tgname::text, description FROM pg_catalog.pg_description JOIN pg_catalog.pg_trigger t ON t.oid = objoid
           WHERE classoid = 'pg_catalog.pg_trigger'::regclass AND t.tgrelid = $1
UNION ALL SELECT 'policy', NULL, polname::text, description FROM pg_catalog.pg_description JOIN pg_catalog.pg_policy p ON p.oid = objoid
           WHERE classoid = 'pg_catalog.pg_policy'::regclass AND p.polrelid = $1
UNION ALL SELECT 'rule', NULL, rulename::text, description FROM pg_catalog.pg_description JOIN pg_catalog.pg_rewrite r ON r.oid = objoid
           WHERE classoid = 'pg_catalog.pg_rewrite'::regclass AND r.ev_class = $1
UNION ALL SELECT 'statistics', n.nspname::text, stxname::text, description FROM pg_catalog.pg_description
            JOIN pg_catalog.pg_statistic_ext s ON s.oid = objoid JOIN pg_catalog.pg_namespace n ON n.oid = stxnamespace
           WHERE classoid = 'pg_catalog.pg_statistic_ext'::regclass AND s.stxrelid = $1
"""
