"""Shadow, key log and the triggers that write it: making them, seeing that they are in force, taking them away.

The log holds keys alone and has neither a key nor a number of its own: a sequence would change what `lastval()` says to
the application. The function runs as the table's owner, by a fixed search path, so that whoever may write the table
writes the log, and finds nothing of anybody else's. ENABLE ALWAYS: a session that applies replication fires them too.
Where somebody took the log away, or a dump was restored without it, the function lets every statement be; the job sees
that its log is gone.
"""

from __future__ import annotations

from tideshift.dialects import points
from tideshift.dialects.postgres.driver import quote
from tideshift.dialects.postgres.layout import KeyColumn, Layout, Names
from tideshift.errors import SchemaChanged
from tideshift.store.database import Transaction

__all__ = ["EVENTS", "backlog", "check", "drop_capture", "install", "key_index_stands", "log_bytes", "nobodys"]

EVENTS = {
    "rows": "AFTER INSERT OR UPDATE OR DELETE ON {table} FOR EACH ROW",
    "truncate": "AFTER TRUNCATE ON {table} FOR EACH STATEMENT",
}
_DIGEST = """
(SELECT pg_catalog.md5(string_agg(attname::text || chr(31) || pg_catalog.format_type(atttypid, atttypmod) || chr(31) || attnotnull::int::text, chr(30) ORDER BY attnum))
   FROM pg_catalog.pg_attribute WHERE attrelid = {oid} AND attnum > 0 AND NOT attisdropped)
"""
_CHECK = f"""
SELECT s.oid::bigint, {_DIGEST.format(oid="s.oid")}, {_DIGEST.format(oid="t.oid")}, pg_catalog.to_regclass($3) IS NOT NULL,
       (SELECT count(*) FROM pg_catalog.pg_trigger g JOIN pg_catalog.pg_attribute a ON a.attrelid = pg_catalog.to_regclass($3) AND a.attnum = 1
         WHERE g.tgrelid = s.oid AND g.tgfoid = pg_catalog.to_regproc($4) AND g.tgenabled = 'A' AND g.xmin = a.xmin)
FROM (SELECT pg_catalog.to_regclass($1)::oid AS oid) s, (SELECT pg_catalog.to_regclass($2)::oid AS oid) t
"""
"""A trigger that was switched off and on again has another xmin than the log's first column, which was made with it and which no GRANT changes."""


def install(tx: Transaction, layout: Layout, names: Names) -> None:
    """Make everything, in one transaction."""
    for text in [*_table_texts(layout, names), *_log_texts(layout, names)]:
        if points.INSTALL_TABLE.on:
            points.INSTALL_TABLE.fire(job=names.job_id)
        tx.run_verbatim(text)
    for text in _function_texts(layout, names):
        tx.run_verbatim(text)
    for event, when in EVENTS.items():
        if points.INSTALL_TRIGGER.on:
            points.INSTALL_TRIGGER.fire(job=names.job_id)
        bare = quote(names.bare(event))
        tx.run_verbatim(f"CREATE TRIGGER {bare} {when.format(table=layout.source)} EXECUTE FUNCTION {names.function}()")
        tx.run_verbatim(f"ALTER TABLE {layout.source} ENABLE ALWAYS TRIGGER {bare}")


def _table_texts(layout: Layout, names: Names) -> list[str]:
    """Make the shadow without any index, readable for nobody but the owner."""
    unlogged = "UNLOGGED " if layout.unlogged else ""
    texts = [f"CREATE {unlogged}TABLE {names.shadow} ({layout.create}){layout.options}"]
    if layout.settings:
        texts.append(f"ALTER TABLE {names.shadow} {', '.join(layout.settings)}")
    return [*texts, *_owned(f"TABLE {names.shadow}", layout), nobodys(names.shadow)]


def _log_texts(layout: Layout, names: Names) -> list[str]:
    columns = ", ".join(
        f"{log} {key.type_text}{f' COLLATE {key.collation}' if key.collation else ''}" for log, key in zip(layout.log_columns, layout.key, strict=True)
    )
    unlogged = "UNLOGGED " if layout.unlogged else ""
    return [
        # What was read is deleted again: without vacuum the log would only grow.
        f"CREATE {unlogged}TABLE {names.log} ({columns}, reset boolean) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 20000)",
        f"CREATE INDEX ON {names.log} (reset) WHERE reset",
        *_owned(f"TABLE {names.log}", layout),
        nobodys(names.log),
    ]


def _function_texts(layout: Layout, names: Names) -> list[str]:
    old, new = (", ".join(f"{which}.{quote(one.name)}" for one in layout.key) for which in ("OLD", "NEW"))
    moved = " OR ".join(_differs(one) for one in layout.key)
    insert = f"INSERT INTO {names.log} ({layout.log_key}) VALUES"
    body = f"""
BEGIN
  IF pg_catalog.to_regclass('{_in_text(names.log)}') IS NULL THEN RETURN NULL;
  ELSIF TG_OP = 'INSERT' THEN {insert} ({new});
  ELSIF TG_OP = 'DELETE' THEN {insert} ({old});
  ELSIF TG_OP = 'TRUNCATE' THEN INSERT INTO {names.log} (reset) VALUES (true);
  ELSIF {moved} THEN {insert} ({old}), ({new});
  ELSE {insert} ({new});
  END IF;
  RETURN NULL;
END"""
    assert "$tideshift$" not in body
    return [
        f"CREATE FUNCTION {names.function}() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $tideshift${body}$tideshift$",
        *_owned(f"FUNCTION {names.function}()", layout),
        f"REVOKE ALL ON FUNCTION {names.function}() FROM PUBLIC",
    ]


def _differs(key: KeyColumn) -> str:
    """Compare by the type's own operator where that is found by any search path, else by the text."""
    old, new = f"OLD.{quote(key.name)}", f"NEW.{quote(key.name)}"
    return f"{old} <> {new}" if key.operators == "pg_catalog" else f"{old}::text <> {new}::text"


def _owned(what: str, layout: Layout) -> list[str]:
    return [f"ALTER {what} OWNER TO {quote(layout.owner)}"]


def nobodys(name: str, kind: str = "TABLE") -> str:
    """Take away what default privileges have given: what is ours is nobody's business but the owner's."""
    return (
        f"DO $do$ DECLARE one record; BEGIN FOR one IN SELECT DISTINCT a.grantee FROM pg_catalog.pg_class c, pg_catalog.aclexplode(c.relacl) a"
        f" WHERE c.oid = '{_in_text(name)}'::pg_catalog.regclass AND a.grantee <> c.relowner LOOP"
        f" EXECUTE 'REVOKE ALL ON {kind} {_in_text(name)} FROM ' || CASE one.grantee WHEN 0 THEN 'PUBLIC'"
        " ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(one.grantee)) END; END LOOP; END $do$"
    )


def _in_text(name: str) -> str:
    return name.replace("'", "''")


def check(tx: Transaction, layout: Layout, names: Names) -> None:
    """See that source, shadow, log and triggers are the recorded ones; raise `SchemaChanged` if not."""
    row = tx.run_verbatim(_CHECK, (layout.source, names.shadow, names.log, names.function)).rows[0]
    expected = (
        (row[0] == layout.oid, f"{layout.source} is no longer the table that was planned for"),
        (row[1] == layout.source_columns, f"the columns of {layout.source} have changed"),
        (row[2] == layout.shadow_columns, "the shadow table is gone or has other columns"),
        (row[3] is True, "the log of changes is gone"),
        (row[4] == len(EVENTS), "a trigger that records changes is gone, or was switched off for a time"),
    )
    wrong = [what for right, what in expected if not right]
    if wrong:
        raise SchemaChanged("; ".join(wrong), table=layout.table)


def drop_capture(tx: Transaction, layout: Layout, names: Names) -> None:
    """Drop triggers and function: nothing is recorded any more."""
    for event in EVENTS:
        if points.DROP_TRIGGER.on:
            points.DROP_TRIGGER.fire(job=names.job_id)
        tx.run_verbatim(f"DROP TRIGGER {quote(names.bare(event))} ON {layout.source}")
    tx.run_verbatim(f"DROP FUNCTION {names.function}()")
    tx.run_verbatim(f"DROP TABLE {names.log}")


def backlog(tx: Transaction, names: Names, *, limit: int) -> int:
    """Return how many log rows wait, counting no further than one past the limit."""
    return int(tx.run_verbatim(f"SELECT count(*) FROM (SELECT 1 FROM {names.log} LIMIT $1) AS waiting", (limit + 1,)).scalar())


def log_bytes(tx: Transaction, names: Names) -> int:
    """Return how much room the log takes, what is deleted and not yet used again with it."""
    return int(tx.run_verbatim("SELECT coalesce(pg_catalog.pg_relation_size(pg_catalog.to_regclass($1)), 0)", (names.log,)).scalar())


def key_index_stands(tx: Transaction, layout: Layout, names: Names) -> bool:
    """Whether the shadow has the index by which rows are found in it."""
    number = next(number for number, one in enumerate(layout.indexes) if one.is_key)
    return bool(tx.run_verbatim("SELECT pg_catalog.to_regclass($1) IS NOT NULL", (names.own(f"index_{number}"),)).scalar())
