"""The short steps of a column that is changed in place: making the new one, demanding NOT NULL of it, and the swap.

The swap is one transaction with the job's own move, under locks on the table and on those that foreign keys over the
column join to it. The old column goes in it: nothing keeps its values right from then on, and it would be seen by whoever
reads whole rows.
"""

from __future__ import annotations

from tideshift.ddl.reshaping import Reorg
from tideshift.dialects import points
from tideshift.dialects.postgres import in_place_trigger, locks
from tideshift.dialects.postgres.dependants import of_column
from tideshift.dialects.postgres.driver import quote
from tideshift.dialects.postgres.in_place import see_refused
from tideshift.dialects.postgres.in_place_attachments import read_column_attachments
from tideshift.dialects.postgres.in_place_design import column_fingerprint
from tideshift.dialects.postgres.in_place_hindrances import column_hindrances
from tideshift.dialects.postgres.in_place_layout import ColumnLayout, ColumnNames
from tideshift.dialects.postgres.in_place_references import joined_tables, references, unvalidated
from tideshift.dialects.postgres.names import own_name, qualified
from tideshift.dialects.postgres.views import Views
from tideshift.errors import Retryable, SchemaChanged
from tideshift.store.database import Session, Transaction

__all__ = ["change", "inspect", "validate_next"]

_REPLACED = """
SELECT c.relname::text, c.oid::bigint FROM pg_catalog.pg_index x JOIN pg_catalog.pg_class c ON c.oid = x.indexrelid WHERE x.indrelid = $1 AND c.relname = ANY ($2)
"""
_BUILT = """
SELECT count(*) FROM pg_catalog.pg_index x JOIN pg_catalog.pg_class c ON c.oid = x.indexrelid
 WHERE x.indrelid = $1 AND c.relname = ANY ($2) AND x.indisvalid AND x.indisready AND x.indislive
"""
_COLUMN = """
SELECT pg_catalog.format_type(atttypid, atttypmod), attnotnull, attidentity::text, attnum FROM pg_catalog.pg_attribute WHERE attrelid = $1 AND attname = $2 AND NOT attisdropped
"""


def change(tx: Transaction, reorg: Reorg, step: int, *, tries: int) -> None:
    """Carry one short step out."""
    layout = ColumnLayout.of(reorg)
    names = ColumnNames.of(layout, reorg.job_id)
    locks.limit_waits(tx, job_id=reorg.job_id, tries=tries)
    texts = reorg.reshaping.native_steps[step].detail["sql"]
    if not texts:
        _swap(tx, layout, names)
        return
    locks.take(tx, {layout.oid: layout.source}, "ACCESS EXCLUSIVE")
    _see_source(tx, layout)
    if step > 0:
        in_place_trigger.check(tx, layout, names)
    for text in texts:
        if points.CHANGE.on:
            points.CHANGE.fire(job=reorg.job_id, step=step)
        tx.run_verbatim(text.replace(own_name(0, layout.source, ""), own_name(reorg.job_id, layout.source, "")))
    in_place_trigger.check(tx, layout, names)
    if points.CHANGED.on:
        points.CHANGED.fire(job=reorg.job_id, step=step)


def _see_source(tx: Transaction, layout: ColumnLayout) -> None:
    """See that everything is as it was when it was planned for, and that nothing has come that forbids it; raise `SchemaChanged`."""
    if tx.run_verbatim("SELECT pg_catalog.to_regclass($1)::oid::bigint", (layout.source,)).scalar() != layout.oid:
        raise SchemaChanged(f"{layout.source} is no longer the table that was planned for", table=layout.table)
    if column_fingerprint(tx, layout.oid) != layout.fingerprint:
        raise SchemaChanged(f"columns, checks, indexes or owner of {layout.source} have changed since the plan was made", table=layout.table)
    reasons, replicates = column_hindrances(tx, layout.oid, layout.number)
    followed = Views.read(tx, layout.oid, changed=[layout.number], moves=False).followed
    reasons += [f"{layout.column} is used by {what}" for what in of_column(tx, layout.oid, layout.number, but=followed)]
    if replicates and not layout.owns_itself:
        reasons.append("a trigger or rule that the fill would fire has come")
    if reasons:
        raise SchemaChanged(f"{layout.column} of {layout.source} cannot be changed in place any more: {'; '.join(reasons)}", table=layout.table)


# ── the swap ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _swap(tx: Transaction, layout: ColumnLayout, names: ColumnNames) -> None:
    replaced = [int(oid) for _, oid in tx.run_verbatim(_REPLACED, (layout.oid, [one.name for one in layout.indexes])).rows]
    joined = joined_tables(tx, layout.oid, layout.number, replaced)
    views = Views.read(tx, layout.oid, changed=[layout.number], moves=False)
    locks.take(tx, {layout.oid: layout.source, **joined}, "ACCESS EXCLUSIVE", views=views.locks())
    if joined_tables(tx, layout.oid, layout.number, replaced) != joined or Views.read(tx, layout.oid, changed=[layout.number], moves=False).locks() != views.locks():
        raise Retryable(f"a foreign key or a view over {layout.column} of {layout.source} has come or gone while its lock was waited for")
    _see_source(tx, layout)
    in_place_trigger.check(tx, layout, names)
    see_refused(tx, layout, names)
    built = [names.index(number) for number, _ in enumerate(layout.indexes)]
    if tx.run_verbatim(_BUILT, (layout.oid, built)).scalar() != len(built):
        raise SchemaChanged(f"an index over the new column of {layout.source} is gone or not valid", table=layout.table)
    if points.SWAP_BEGIN.on:
        points.SWAP_BEGIN.fire(job=names.job_id)
    aside = views.set_all_aside(tx)
    joining = references(tx, layout.oid, layout.number, replaced)
    attached = read_column_attachments(tx, layout, names)
    for text in [*(one.dropped for one in joining), *attached.before, *_dropped(layout, names)]:
        tx.run_verbatim(text)
    if points.SWAP_EXCHANGED.on:
        points.SWAP_EXCHANGED.fire(job=names.job_id)
    for text in [*_named(layout, names), *attached.after, *(one.added for one in joining), *(one.comment for one in joining if one.comment)]:
        tx.run_verbatim(text)
    views.make_anew(tx, aside)
    if points.SWAPPED.on:
        points.SWAPPED.fire(job=names.job_id)


def _dropped(layout: ColumnLayout, names: ColumnNames) -> list[str]:
    """Take the trigger and the old column away; NOT NULL is proven by the check that has been validated, so no row is looked at for it."""
    table, new = f"ALTER TABLE {layout.source}", quote(names.column)
    texts = [f"DROP TRIGGER {quote(names.trigger)} ON {layout.source}", f"DROP FUNCTION {names.function}()", f"DROP TABLE {names.refused}"]
    if layout.not_null and layout.not_null_name is None:
        texts += [f"{table} ALTER COLUMN {new} SET NOT NULL", f"{table} DROP CONSTRAINT {quote(names.not_null)}"]
    constraints = [one.name for one in layout.indexes if one.kind] + [name for name, *_ in layout.checked]
    texts += [f"{table} DROP CONSTRAINT {quote(name)}" for name in constraints]
    texts += [f"DROP INDEX {qualified(layout.schema, one.name)}" for one in layout.indexes if not one.kind]
    return [*texts, f"{table} DROP COLUMN {quote(layout.column)}"]


def _named(layout: ColumnLayout, names: ColumnNames) -> list[str]:
    """Give the new column, its indexes and its constraints their names."""
    table = f"ALTER TABLE {layout.source}"
    texts = [f"{table} RENAME COLUMN {quote(names.column)} TO {quote(layout.column)}"]
    if layout.not_null and layout.not_null_name is not None:
        texts.append(f"{table} RENAME CONSTRAINT {quote(names.not_null)} TO {quote(layout.not_null_name)}")
    for number, index in enumerate(layout.indexes):
        if index.kind:
            kind = "PRIMARY KEY" if index.kind == "p" else "UNIQUE"
            texts.append(f"{table} ADD CONSTRAINT {quote(index.name)} {kind} USING INDEX {quote(names.index(number))}")
        else:
            texts.append(f"ALTER INDEX {names.beside(names.index(number))} RENAME TO {quote(index.name)}")
    for name, text, _ in layout.checked:
        texts.append(f"{table} ADD CONSTRAINT {quote(name)} {text}{'' if text.endswith(' NOT VALID') else ' NOT VALID'}")
    return texts


# ── after the swap ────────────────────────────────────────────────────────────────────────────────────────────────


def validate_next(tx: Transaction, reorg: Reorg) -> bool:
    """Validate one constraint that the swap has made; return whether there may be more."""
    layout = ColumnLayout.of(reorg)
    locks.limit_waits(tx, job_id=reorg.job_id, tries=0)
    left = unvalidated(tx, layout.oid, layout.left_unvalidated)
    for name, table in left[:1]:
        tx.run_verbatim(f"ALTER TABLE {table} VALIDATE CONSTRAINT {quote(name)}")
    return bool(left)


def inspect(session: Session, reorg: Reorg) -> None:
    """See with a connection that did not swap that the catalogue is what was planned."""
    layout = ColumnLayout.of(reorg)
    with session.transaction(write=False) as tx:
        found = tx.run_verbatim(_COLUMN, (layout.oid, layout.column)).rows
        if not found or (found[0][:3]) != (layout.type_text, layout.not_null, layout.identity) or found[0][3] == layout.number:
            raise SchemaChanged(f"{layout.column} of {layout.source} is not the column that was planned: {found}", table=layout.table)
        if tx.run_verbatim(_BUILT, (layout.oid, [one.name for one in layout.indexes])).scalar() != len(layout.indexes):
            raise SchemaChanged(f"an index of {layout.source} is not there or not valid", table=layout.table)
        left = unvalidated(tx, layout.oid, layout.left_unvalidated)
        if left:
            raise SchemaChanged(f"a constraint is not validated: {left[0][0]}", table=layout.table)
