"""What keeps a column from being changed in place: named before anything is made, and asked once more under the lock of the swap."""

from __future__ import annotations

from tideshift.dialects.postgres.driver import quote
from tideshift.dialects.postgres.hindrances import OF_ITS_KIND
from tideshift.store.database import Transaction

__all__ = ["column_hindrances"]

COLUMNS_MAX = 1_590
"""A table can have 1600 columns in its life, dropped ones too."""


def column_hindrances(tx: Transaction, oid: int, number: int) -> tuple[list[str], bool]:
    """Return every reason, and whether others' triggers and rules must be kept from seeing the fill."""
    reasons = [reason for query in _QUERIES for (reason,) in tx.run_verbatim(query, (oid, number)).rows]
    reasons += [reason for (reason,) in tx.run_verbatim(OF_ITS_KIND, (oid,)).rows]
    firing = tx.run_verbatim(_FIRING, (oid,)).rows
    reasons += [f"{what} would fire for every row that is filled, whoever writes it: it is enabled ALWAYS or for replication" for what, state in firing if state != "O"]
    replicates = any(state == "O" for _, state in firing)
    if replicates:
        role, may = tx.run_verbatim("SELECT current_user::text, pg_catalog.has_parameter_privilege('session_replication_role', 'SET')").rows[0]
        names = ", ".join(what for what, state in firing if state == "O")
        if not may:
            reasons.append(f"{names} must not see the fill: GRANT SET ON PARAMETER session_replication_role TO {quote(str(role))}")
    return reasons, replicates


_FIRING = """
SELECT 'the trigger ' || tgname::text, tgenabled::text FROM pg_catalog.pg_trigger
 WHERE tgrelid = $1 AND NOT tgisinternal AND tgenabled <> 'D' AND tgtype & 16 <> 0 AND cardinality(tgattr::int2[]) = 0 AND tgname::text !~ '^~tideshift_'
UNION ALL SELECT 'the rule ' || rulename::text, ev_enabled::text FROM pg_catalog.pg_rewrite WHERE ev_class = $1 AND ev_type = '2' AND ev_enabled <> 'D'
"""
"""What an UPDATE of the new column alone fires, and for which sessions."""
_FOREIGN_KEYS = """
pg_catalog.pg_constraint f JOIN pg_catalog.pg_class c ON c.oid = CASE WHEN f.conrelid = $1 THEN f.confrelid ELSE f.conrelid END
WHERE f.contype = 'f' AND ((f.conrelid = $1 AND $2 = ANY (f.conkey)) OR (f.confrelid = $1 AND $2 = ANY (f.confkey)))
"""
_QUERIES = (
    """SELECT 'its value is generated: that needs a shadow table' FROM pg_catalog.pg_attribute WHERE attrelid = $1 AND attnum = $2 AND attgenerated <> ''""",
    f"""SELECT 'it has had almost as many columns as a table can have' FROM pg_catalog.pg_class WHERE oid = $1 AND relnatts > {COLUMNS_MAX} AND $2::int IS NOT NULL""",
    # Replication: one column more would be sent to subscribers that do not have it.
    """SELECT 'the publication ' || pubname::text || ' publishes every column of it: the new one would be sent to subscribers that do not have it' FROM pg_catalog.pg_publication p
        WHERE $2::int IS NOT NULL AND (puballtables OR EXISTS (SELECT 1 FROM pg_catalog.pg_publication_rel WHERE prpubid = p.oid AND prrelid = $1 AND prattrs IS NULL)
           OR EXISTS (SELECT 1 FROM pg_catalog.pg_publication_namespace JOIN pg_catalog.pg_class c ON c.relnamespace = pnnspid WHERE pnpubid = p.oid AND c.oid = $1))""",
    "SELECT 'a subscription fills it' FROM pg_catalog.pg_subscription_rel WHERE srrelid = $1 AND $2::int IS NOT NULL",
    # What must be dropped and made again.
    f"""SELECT 'the foreign key ' || f.conname::text || ' joins it to the table ' || c.oid::regclass::text || ', which belongs to '
               || pg_catalog.pg_get_userbyid(c.relowner)::text || ': GRANT ' || pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(c.relowner)) || ' TO '
               || pg_catalog.quote_ident(current_user) FROM {_FOREIGN_KEYS} AND f.confrelid = $1 AND NOT pg_catalog.pg_has_role(c.relowner, 'USAGE')""",
    f"""SELECT 'a privilege is missing: GRANT REFERENCES ON ' || c.oid::regclass::text || ' TO ' || pg_catalog.quote_ident(current_user)
          FROM {_FOREIGN_KEYS} AND f.conrelid = $1 AND f.confrelid <> $1 AND NOT pg_catalog.has_table_privilege(f.confrelid, 'REFERENCES')""",
    f"""SELECT 'the foreign key ' || f.conname::text || ' joins it to the partitioned table ' || c.oid::regclass::text FROM {_FOREIGN_KEYS} AND (c.relkind = 'p' OR c.relispartition)""",
    """SELECT pg_catalog.pg_describe_object(d.classid, d.objid, d.objsubid) || ' uses the sequence of the identity column, which is made anew: drop or change that first'
         FROM pg_catalog.pg_depend s JOIN pg_catalog.pg_depend d ON d.refclassid = s.classid AND d.refobjid = s.objid
        WHERE s.classid = 'pg_catalog.pg_class'::regclass AND s.refclassid = 'pg_catalog.pg_class'::regclass AND s.refobjid = $1 AND s.refobjsubid = $2 AND s.deptype = 'i'
          AND d.deptype = 'n'""",
    # What cannot be made again.
    """SELECT 'it belongs to the extension ' || e.extname::text FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_extension e ON e.oid = d.refobjid
        WHERE d.classid = 'pg_catalog.pg_class'::regclass AND d.objid = $1 AND $2::int IS NOT NULL AND d.deptype IN ('e', 'x') AND d.refclassid = 'pg_catalog.pg_extension'::regclass
    UNION ALL SELECT 'the column has a security label' FROM pg_catalog.pg_seclabel WHERE classoid = 'pg_catalog.pg_class'::regclass AND objoid = $1 AND objsubid = $2
    UNION ALL SELECT DISTINCT 'a privilege on the column was granted by ' || pg_catalog.pg_get_userbyid(a.grantor)::text || ', which cannot be repeated by its owner'
                FROM pg_catalog.pg_attribute JOIN pg_catalog.pg_class c ON c.oid = attrelid, LATERAL pg_catalog.aclexplode(attacl) a
               WHERE attrelid = $1 AND attnum = $2 AND a.grantor <> c.relowner""",
)
