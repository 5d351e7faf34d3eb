"""What hangs on a table by its identity and could not be hung on another one in a short transaction: named before anything is made.

Asked at plan time, and once more under the lock of the swap.
"""

from __future__ import annotations

from tideshift.store.database import Transaction

__all__ = ["OF_ITS_KIND", "hindrances"]


def hindrances(tx: Transaction, oid: int) -> list[str]:
    """Return every reason why a table cannot be replaced by a copy; empty when it can."""
    return [reason for query in _QUERIES for (reason,) in tx.run_verbatim(query, (oid,)).rows]


_OBJECT = "pg_catalog.pg_describe_object(d.classid, d.objid, d.objsubid)"
_IS_TABLE = "d.refclassid = 'pg_catalog.pg_class'::regclass AND d.refobjid = $1"
OF_ITS_KIND = """SELECT 'it is partitioned, and a copy would have to be made of all its partitions at once: add a column and fill it in steps,'
       || ' or make a new table and move the rows partition by partition' FROM pg_catalog.pg_class WHERE oid = $1 AND relkind = 'p'
UNION ALL SELECT 'it is a partition, and has the shape of the table that it belongs to: DETACH PARTITION first' FROM pg_catalog.pg_class WHERE oid = $1 AND relispartition
UNION ALL SELECT 'it inherits from another table' FROM pg_catalog.pg_inherits JOIN pg_catalog.pg_class c ON c.oid = inhrelid
                  WHERE inhrelid = $1 AND NOT c.relispartition
UNION ALL SELECT 'another table inherits from it' FROM pg_catalog.pg_inherits JOIN pg_catalog.pg_class c ON c.oid = inhparent
                  WHERE inhparent = $1 AND c.relkind = 'r'
UNION ALL SELECT 'it is made from a type (OF)' FROM pg_catalog.pg_class WHERE oid = $1 AND reloftype <> 0
UNION ALL SELECT 'its access method is ' || amname FROM pg_catalog.pg_class c JOIN pg_catalog.pg_am m ON m.oid = c.relam
                  WHERE c.oid = $1 AND c.relkind = 'r' AND amname <> 'heap'
UNION ALL SELECT 'it forces row security on its owner, and this role may not pass by it: ALTER ROLE … BYPASSRLS'
            FROM pg_catalog.pg_class WHERE oid = $1 AND relforcerowsecurity AND relrowsecurity
             AND NOT (SELECT rolsuper OR rolbypassrls FROM pg_catalog.pg_roles WHERE rolname = current_user)"""
"""What kind of table it is."""
_QUERIES = (
    OF_ITS_KIND,
    # What uses its identity or the type of its rows.
    f"""SELECT DISTINCT {_OBJECT} || ' depends on the table itself' FROM pg_catalog.pg_depend d
        WHERE {_IS_TABLE} AND d.classid = 'pg_catalog.pg_proc'::regclass""",
    f"""SELECT DISTINCT {_OBJECT} || ' uses the type of its rows' FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_type t ON t.oid = d.refobjid
         WHERE d.refclassid = 'pg_catalog.pg_type'::regclass AND d.deptype = 'n' AND (t.typrelid = $1 OR t.typelem IN (SELECT oid FROM pg_catalog.pg_type WHERE typrelid = $1))
           AND NOT (d.classid = 'pg_catalog.pg_class'::regclass AND d.objid = $1)""",
    f"""SELECT DISTINCT 'the rule ' || r.rulename::text || ' of ' || r.ev_class::regclass::text || ' uses it' FROM pg_catalog.pg_rewrite r
          JOIN pg_catalog.pg_depend d ON d.classid = 'pg_catalog.pg_rewrite'::regclass AND d.objid = r.oid JOIN pg_catalog.pg_class c ON c.oid = r.ev_class
         WHERE {_IS_TABLE} AND r.rulename <> '_RETURN' AND c.relkind <> 'v' AND r.ev_class <> $1""",
    f"""SELECT DISTINCT {_OBJECT} || ' uses it' FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_policy p ON p.oid = d.objid
         WHERE {_IS_TABLE} AND d.classid = 'pg_catalog.pg_policy'::regclass AND p.polrelid <> $1""",
    """SELECT 'the trigger ' || tgname::text || ' of ' || tgrelid::regclass::text || ' names it' FROM pg_catalog.pg_trigger
        WHERE tgconstrrelid = $1 AND tgrelid <> $1 AND NOT tgisinternal""",
    # What would have to be made by somebody else.
    """SELECT 'the foreign key ' || f.conname::text || ' of ' || f.conrelid::regclass::text || ' refers to it, and that table belongs to '
              || pg_catalog.pg_get_userbyid(c.relowner)::text || ': GRANT ' || pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(c.relowner)) || ' TO '
              || pg_catalog.quote_ident(current_user)
         FROM pg_catalog.pg_constraint f JOIN pg_catalog.pg_class c ON c.oid = f.conrelid
        WHERE f.contype = 'f' AND f.confrelid = $1 AND f.conrelid <> $1 AND NOT pg_catalog.pg_has_role(c.relowner, 'USAGE')""",
    """SELECT 'the foreign key ' || f.conname::text || ' of the partitioned table ' || f.conrelid::regclass::text || ' refers to it'
         FROM pg_catalog.pg_constraint f JOIN pg_catalog.pg_class c ON c.oid = f.conrelid
        WHERE f.contype = 'f' AND f.confrelid = $1 AND (c.relkind = 'p' OR c.relispartition)""",
    """SELECT 'its foreign key ' || f.conname::text || ' refers to the partitioned table ' || f.confrelid::regclass::text
         FROM pg_catalog.pg_constraint f JOIN pg_catalog.pg_class c ON c.oid = f.confrelid
        WHERE f.contype = 'f' AND f.conrelid = $1 AND c.relkind = 'p'""",
    """SELECT 'a privilege is missing: GRANT REFERENCES ON ' || f.confrelid::regclass::text || ' TO ' || pg_catalog.quote_ident(current_user)
         FROM pg_catalog.pg_constraint f WHERE f.contype = 'f' AND f.conrelid = $1 AND f.confrelid <> $1
          AND NOT pg_catalog.has_table_privilege(f.confrelid, 'REFERENCES')""",
    # In whose name the log is written.
    """SELECT 'its owner may not use its schema, in whose name changes would be recorded: GRANT USAGE ON SCHEMA '
              || pg_catalog.quote_ident(n.nspname) || ' TO ' || pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(c.relowner))
         FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
        WHERE c.oid = $1 AND NOT pg_catalog.has_schema_privilege(c.relowner, n.oid, 'USAGE')""",
    # Replication.
    """SELECT 'the publication ' || pubname::text || ' publishes every table: the copy would be sent to its subscribers' FROM pg_catalog.pg_publication
        WHERE puballtables AND $1 IS NOT NULL
    UNION ALL SELECT 'the publication ' || p.pubname::text || ' publishes every table of its schema: the copy would be sent to its subscribers'
                FROM pg_catalog.pg_publication p JOIN pg_catalog.pg_publication_namespace n ON n.pnpubid = p.oid
                JOIN pg_catalog.pg_class c ON c.relnamespace = n.pnnspid WHERE c.oid = $1
    UNION ALL SELECT 'the publication ' || p.pubname::text || ' has it and belongs to ' || pg_catalog.pg_get_userbyid(p.pubowner)::text || ': GRANT '
                     || pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(p.pubowner)) || ' TO ' || pg_catalog.quote_ident(current_user)
                FROM pg_catalog.pg_publication p JOIN pg_catalog.pg_publication_rel r ON r.prpubid = p.oid
               WHERE r.prrelid = $1 AND NOT pg_catalog.pg_has_role(p.pubowner, 'USAGE')
    UNION ALL SELECT 'a subscription fills it' FROM pg_catalog.pg_subscription_rel WHERE srrelid = $1""",
    # What cannot be made again.
    """SELECT 'it belongs to the extension ' || e.extname::text FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_extension e ON e.oid = d.refobjid
        WHERE d.classid = 'pg_catalog.pg_class'::regclass AND d.objid = $1 AND d.deptype IN ('e', 'x') AND d.refclassid = 'pg_catalog.pg_extension'::regclass
    UNION ALL SELECT 'it has a security label' FROM pg_catalog.pg_seclabel WHERE classoid = 'pg_catalog.pg_class'::regclass AND objoid = $1
    UNION ALL SELECT DISTINCT 'a privilege on it was granted by ' || pg_catalog.pg_get_userbyid(a.grantor)::text || ', which cannot be repeated by its owner'
                FROM (SELECT relowner, relacl AS acl FROM pg_catalog.pg_class WHERE oid = $1
                      UNION ALL SELECT c.relowner, attacl FROM pg_catalog.pg_attribute JOIN pg_catalog.pg_class c ON c.oid = attrelid WHERE attrelid = $1) one,
                     LATERAL pg_catalog.aclexplode(one.acl) a WHERE a.grantor <> one.relowner""",
)
