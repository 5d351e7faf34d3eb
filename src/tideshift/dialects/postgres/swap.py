"""The swap: under locks that were had before, the shadow takes the table's place and everything attached goes over to it.

All of it is one transaction with the job's own move. The replaced table keeps its rows under the shadow's name, without
any constraint that other tables would feel.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tideshift.ddl.reshaping import Reorg
from tideshift.dialects import points
from tideshift.dialects.postgres import capture, locks
from tideshift.dialects.postgres.attachments import read_attachments
from tideshift.dialects.postgres.driver import quote
from tideshift.dialects.postgres.hindrances import hindrances
from tideshift.dialects.postgres.layout import Layout, Names
from tideshift.dialects.postgres.names import qualified
from tideshift.dialects.postgres.shadow_design import columns_digest, fingerprint
from tideshift.dialects.postgres.shadow_rows import fence
from tideshift.dialects.postgres.shape import read_shape
from tideshift.dialects.postgres.views import Views
from tideshift.errors import LockTimeout, SchemaChanged
from tideshift.store.database import Session, Transaction

__all__ = ["check_source", "hold_still", "inspect_swapped", "swap", "validate_next"]

_OTHERS = """
SELECT DISTINCT c.oid::bigint, pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname) FROM (
    SELECT CASE WHEN conrelid = $1 THEN confrelid ELSE conrelid END AS oid FROM pg_catalog.pg_constraint WHERE contype = 'f' AND (conrelid = $1 OR confrelid = $1)
) one
JOIN pg_catalog.pg_class c ON c.oid = one.oid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid <> $1 AND c.relpersistence <> 't'
"""
_FOREIGN_KEYS = """
SELECT f.conname::text, f.conrelid::bigint, pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname), pg_catalog.pg_get_constraintdef(f.oid),
       pg_catalog.quote_nullable(pg_catalog.obj_description(f.oid, 'pg_constraint'))
FROM pg_catalog.pg_constraint f JOIN pg_catalog.pg_class c ON c.oid = f.conrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE f.contype = 'f' AND (f.conrelid = $1 OR f.confrelid = $1) ORDER BY f.oid
"""
_SEQUENCES = """
SELECT p.deptype::text, a.attname::text, n.nspname::text, c.relname::text, c.oid::bigint
FROM pg_catalog.pg_depend p JOIN pg_catalog.pg_class c ON c.oid = p.objid AND c.relkind = 'S' JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_attribute a ON a.attrelid = p.refobjid AND a.attnum = p.refobjsubid
WHERE p.classid = 'pg_catalog.pg_class'::regclass AND p.refclassid = 'pg_catalog.pg_class'::regclass AND p.refobjid = $1 AND p.deptype IN ('a', 'i') ORDER BY a.attnum
"""
_UNVALIDATED = """
SELECT f.conname::text, pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname)
FROM pg_catalog.pg_constraint f JOIN pg_catalog.pg_class c ON c.oid = f.conrelid JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace
WHERE f.contype = 'f' AND NOT f.convalidated AND (f.conrelid = pg_catalog.to_regclass($1) OR f.confrelid = pg_catalog.to_regclass($1))
  AND NOT (CASE WHEN f.conrelid = pg_catalog.to_regclass($1) THEN '' ELSE f.conrelid::bigint::text || ' ' END || f.conname = ANY ($2)) ORDER BY f.oid
"""


def check_source(tx: Transaction, layout: Layout) -> None:
    """See that the table is the one that was planned for, in rows and shape; raise `SchemaChanged`."""
    if tx.run_verbatim("SELECT pg_catalog.to_regclass($1)::oid::bigint", (layout.source,)).scalar() != layout.oid:
        raise SchemaChanged(f"{layout.source} is no longer the table that was planned for", table=layout.table)
    if fingerprint(tx, layout.oid) != layout.fingerprint:
        raise SchemaChanged(f"columns, checks, indexes, owner or storage parameters of {layout.source} have changed since the plan was made", table=layout.table)


def hold_still(tx: Transaction, layout: Layout, names: Names, *, tries: int) -> None:
    """Take the fence, then the table, then what is joined to it by foreign keys and views."""
    locks.limit_waits(tx, job_id=names.job_id, tries=tries)
    fence(tx, names.job_id, shared=False)
    others = dict(tx.run_verbatim(_OTHERS, (layout.oid,)).rows)
    views = Views.read(tx, layout.oid, changed=layout.retyped, moves=True)
    locks.take(tx, {layout.oid: layout.source, **{int(oid): name for oid, name in others.items()}}, "ACCESS EXCLUSIVE", views=views.locks())
    passing = Views.read(tx, layout.oid, changed=layout.retyped, moves=True).passing()
    if passing:
        raise LockTimeout(f"a temporary view of another session reads {layout.source}: {passing[0]}", table=layout.table)


def swap(tx: Transaction, reorg: Reorg, layout: Layout, names: Names) -> None:
    """Exchange the tables and carry everything over."""
    capture.check(tx, layout, names)
    check_source(tx, layout)
    reasons = hindrances(tx, layout.oid)
    if reasons:
        raise SchemaChanged(f"{layout.source} cannot be replaced any more: {'; '.join(reasons)}", table=layout.table)
    assert capture.backlog(tx, names, limit=0) == 0, "the log is empty"
    if points.SWAP_BEGIN.on:
        points.SWAP_BEGIN.fire(job=reorg.job_id)
    capture.drop_capture(tx, layout, names)
    with _new_names(tx, layout, names):
        attached = read_attachments(tx, layout)
        references = _Reference.read(tx, layout)
        views = Views.read(tx, layout.oid, changed=layout.retyped, moves=True)
    sequences = tx.run_verbatim(_SEQUENCES, (layout.oid,)).rows
    for text in [*(one.dropped for one in references), *attached.before]:
        tx.run_verbatim(text)
    if points.SWAP_EXCHANGE.on:
        points.SWAP_EXCHANGE.fire(job=reorg.job_id)
    _exchange(tx, layout, names, sequences)
    if points.SWAP_EXCHANGED.on:
        points.SWAP_EXCHANGED.fire(job=reorg.job_id)
    _name_indexes(tx, layout, names)
    for check in layout.late_checks:
        tx.run_verbatim(f"ALTER TABLE {layout.source} ADD {check}")
    _continue_sequences(tx, layout, sequences)
    staying = [one for one in references if one.stays]
    for text in [*(one.added for one in staying), *attached.after, *(one.comment for one in staying if one.comment)]:
        tx.run_verbatim(text)
    views.point(tx)
    if points.SWAPPED.on:
        points.SWAPPED.fire(job=reorg.job_id)


@contextmanager
def _new_names(tx: Transaction, layout: Layout, names: Names) -> Iterator[None]:
    """Let the columns of the table that goes bear their new names for a moment: whatever the server tells of what uses them means the new table."""
    new = dict(layout.columns)
    if all(old == name for old, name in layout.columns):
        yield
        return
    olds = [name for (name,) in tx.run_verbatim(
        "SELECT attname::text FROM pg_catalog.pg_attribute WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped ORDER BY attnum", (layout.oid,)).rows]  # fmt: skip
    between = {name: names.bare(f"column_{number}") for number, name in enumerate(olds)}
    moved = [name for name in olds if new.get(name) != name]
    going = [(name, between[name]) for name in moved] + [(between[name], new[name]) for name in moved if name in new]
    for old, name in going:
        tx.run_verbatim(f"ALTER TABLE {layout.source} RENAME COLUMN {quote(old)} TO {quote(name)}")
    yield
    for old, name in reversed(going):
        tx.run_verbatim(f"ALTER TABLE {layout.source} RENAME COLUMN {quote(name)} TO {quote(old)}")


class _Reference:
    """A foreign key of the table or to it: how it goes and how it comes back, not yet validated."""

    def __init__(self, layout: Layout, row: tuple[Any, ...]) -> None:
        name, child, table, text, comment = row
        valid = "" if text.endswith(" NOT VALID") else " NOT VALID"
        self.stays = child != layout.oid or name not in layout.dropped_constraints
        self.dropped = f"ALTER TABLE {table} DROP CONSTRAINT {quote(name)}"
        self.added = f"ALTER TABLE {table} ADD CONSTRAINT {quote(name)} {text}{valid}"
        self.comment = None if comment == "NULL" else f"COMMENT ON CONSTRAINT {quote(name)} ON {table} IS {comment}"

    @classmethod
    def read(cls, tx: Transaction, layout: Layout) -> list[_Reference]:
        return [cls(layout, row) for row in tx.run_verbatim(_FOREIGN_KEYS, (layout.oid,)).rows]


def _exchange(tx: Transaction, layout: Layout, names: Names, sequences: list[tuple[Any, ...]]) -> None:
    """Give the names of the table, its indexes and its identities free, and the table's to the shadow."""
    for deptype, column, schema, name, _ in sequences:
        if deptype == "a":
            tx.run_verbatim(f"ALTER SEQUENCE {qualified(schema, name)} OWNED BY NONE")
        elif column in dict(layout.identities):
            tx.run_verbatim(f"ALTER SEQUENCE {qualified(schema, name)} RENAME TO {quote(names.bare(f'old_{_number(layout, column)}_seq'))}")
    for number, (name,) in enumerate(tx.run_verbatim("SELECT c.relname::text FROM pg_catalog.pg_index x JOIN pg_catalog.pg_class c ON c.oid = x.indexrelid"
                                                     " WHERE x.indrelid = $1 ORDER BY x.indexrelid", (layout.oid,)).rows):  # fmt: skip
        tx.run_verbatim(f"ALTER INDEX {qualified(layout.schema, name)} RENAME TO {quote(names.bare(f'old_{number}'))}")
    between = names.bare("replaced")
    tx.run_verbatim(f"ALTER TABLE {layout.source} RENAME TO {quote(between)}")
    tx.run_verbatim(f"ALTER TABLE {names.shadow} RENAME TO {quote(layout.table)}")
    tx.run_verbatim(f"ALTER TABLE {qualified(layout.schema, between)} RENAME TO {quote(names.bare_shadow)}")


def _number(layout: Layout, column: str) -> int:
    return [old for old, _ in layout.columns].index(column)


def _name_indexes(tx: Transaction, layout: Layout, names: Names) -> None:
    """Give the new table's indexes their names, and make those the constraints' that serve one."""
    for number, index in enumerate(layout.indexes):
        ours = quote(names.index(number))
        if not index.name:
            tx.run_verbatim(f"DROP INDEX {qualified(layout.schema, names.index(number))}")
        elif index.kind in ("p", "u"):
            kind = "PRIMARY KEY" if index.kind == "p" else "UNIQUE"
            tx.run_verbatim(f"ALTER TABLE {layout.source} ADD CONSTRAINT {quote(index.name)} {kind} USING INDEX {ours}{index.deferring}")
        elif index.kind == "x":
            tx.run_verbatim(f"ALTER TABLE {layout.source} RENAME CONSTRAINT {ours} TO {quote(index.name)}")
        else:
            tx.run_verbatim(f"ALTER INDEX {qualified(layout.schema, names.index(number))} RENAME TO {quote(index.name)}")


def _continue_sequences(tx: Transaction, layout: Layout, sequences: list[tuple[Any, ...]]) -> None:
    """Let serial columns own their sequences again, and identity columns go on counting where they were."""
    new_names = dict(layout.columns)
    for column, name in layout.new_identities:
        made = tx.run_verbatim("SELECT pg_catalog.pg_get_serial_sequence($1, $2)", (layout.source, column)).scalar()
        tx.run_verbatim(f"ALTER SEQUENCE {made} RENAME TO {quote(name)}")
    for deptype, column, schema, name, oid in sequences:
        if deptype == "a" and column in new_names:
            sequence = qualified(schema, name)
            if sequence in layout.widened:
                tx.run_verbatim(f"ALTER SEQUENCE {sequence} AS bigint")
            tx.run_verbatim(f"ALTER SEQUENCE {sequence} OWNED BY {layout.source}.{quote(new_names[column])}")
        elif deptype == "i" and column in dict(layout.identities):
            _continue_identity(tx, layout, dict(layout.identities)[column], (schema, name), int(oid))


def _continue_identity(tx: Transaction, layout: Layout, new_column: str, place: tuple[str, str], old: int) -> None:
    """Give the new column's sequence the old one's name, privileges, comment and place in the count."""
    schema, name = place
    made = tx.run_verbatim("SELECT pg_catalog.pg_get_serial_sequence($1, $2)", (layout.source, new_column)).scalar()
    tx.run_verbatim(f"ALTER SEQUENCE {made} RENAME TO {quote(name)}")
    sequence = qualified(schema, name)
    tx.run_verbatim(capture.nobodys(sequence, "SEQUENCE"))
    current = tx.run_verbatim("SELECT pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname) FROM pg_catalog.pg_class c"
                              " JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = $1", (old,)).scalar()  # fmt: skip
    tx.run_verbatim(f"SELECT pg_catalog.setval($1::text::pg_catalog.regclass, last_value, is_called) FROM {current}", (sequence,))
    for privilege, grantee, option in tx.run_verbatim(
        "SELECT a.privilege_type, CASE a.grantee WHEN 0 THEN 'PUBLIC' ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(a.grantee)) END, a.is_grantable"
        " FROM pg_catalog.pg_class c, pg_catalog.aclexplode(c.relacl) a WHERE c.oid = $1", (old,)
    ).rows:  # fmt: skip
        tx.run_verbatim(f"GRANT {privilege} ON SEQUENCE {sequence} TO {grantee}{' WITH GRANT OPTION' if option else ''}")
    comment = tx.run_verbatim("SELECT pg_catalog.quote_nullable(pg_catalog.obj_description($1::oid, 'pg_class'))", (old,)).scalar()
    if comment != "NULL":
        tx.run_verbatim(f"COMMENT ON SEQUENCE {sequence} IS {comment}")


# ── after the swap ────────────────────────────────────────────────────────────────────────────────────────────────


def validate_next(tx: Transaction, reorg: Reorg, layout: Layout) -> bool:
    """Validate one foreign key of the new table or to it; at the end gather statistics over several columns. Return whether there is more."""
    locks.limit_waits(tx, job_id=reorg.job_id, tries=0)
    rows = tx.run_verbatim(_UNVALIDATED, (layout.source, list(layout.left_unvalidated))).rows
    if rows:
        name, table = rows[0]
        tx.run_verbatim(f"ALTER TABLE {table} VALIDATE CONSTRAINT {quote(name)}")
        return True
    if tx.run_verbatim("SELECT 1 FROM pg_catalog.pg_statistic_ext WHERE stxrelid = pg_catalog.to_regclass($1) LIMIT 1", (layout.source,)).rows:
        tx.run_verbatim(f"ANALYZE {layout.source}")
    return False


def inspect_swapped(session: Session, layout: Layout) -> None:
    """See with a connection that did not swap that the catalogue is what was planned."""
    with session.transaction(write=False) as tx:
        oid = tx.run_verbatim("SELECT pg_catalog.to_regclass($1)::oid::bigint", (layout.source,)).scalar()
        if oid is None or oid == layout.oid:
            raise SchemaChanged(f"{layout.source} is not the new table", table=layout.table)
        shape = read_shape(tx, int(oid))
        if columns_digest(shape.columns) != layout.shadow_columns:
            raise SchemaChanged(f"the columns of {layout.source} are not those that were planned", table=layout.table)
        missing = {one.name for one in layout.indexes if one.name} - {one.name for one in shape.indexes}
        if missing:
            raise SchemaChanged(f"an index of {layout.source} is not there or not valid: {', '.join(sorted(missing))}", table=layout.table)
        unvalidated = tx.run_verbatim(_UNVALIDATED, (layout.source, list(layout.left_unvalidated))).rows
        if unvalidated:
            raise SchemaChanged(f"a foreign key is not validated: {unvalidated[0][0]}", table=layout.table)
