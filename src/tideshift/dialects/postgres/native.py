"""Carrying out the steps of a change by PostgreSQL's own statements."""

from __future__ import annotations

from typing import Any

from tideshift.ddl.reshaping import ArtifactName, Reorg, Strategy
from tideshift.dialects import points
from tideshift.dialects.postgres import alone, in_place_swap, locks, swap
from tideshift.dialects.postgres.driver import quote
from tideshift.dialects.postgres.layout import Layout
from tideshift.dialects.postgres.names import parts_of
from tideshift.dialects.postgres.partitions import see_partitions
from tideshift.dialects.postgres.source import user_path
from tideshift.dialects.postgres.texts import first_line, named, named_detail
from tideshift.dialects.postgres.views import Views
from tideshift.errors import SchemaChanged, ValueRefused
from tideshift.store.database import ConstraintViolated, Session, Transaction

__all__ = ["PostgresNative"]

_INDEX = """
SELECT x.indisvalid AND x.indisready FROM pg_catalog.pg_index x WHERE x.indexrelid = pg_catalog.to_regclass($1)
"""
_SHAPE = """
SELECT attname::text, pg_catalog.format_type(atttypid, atttypmod), attnotnull, atthasdef, attidentity::text, attgenerated::text
FROM pg_catalog.pg_attribute WHERE attrelid = $1 AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""
_KEY = """
SELECT string_agg(pg_catalog.quote_ident(a.attname), ', ' ORDER BY a.attnum) FROM pg_catalog.pg_index x
  JOIN pg_catalog.pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = ANY (x.indkey) WHERE x.indrelid = $1 AND x.indisprimary
"""
_CHECK = """
SELECT pg_catalog.pg_get_expr(c.conbin, c.conrelid), (SELECT string_agg(pg_catalog.quote_ident(a.attname), ', ' ORDER BY a.attnum) FROM pg_catalog.pg_index x
       JOIN pg_catalog.pg_attribute a ON a.attrelid = x.indrelid AND a.attnum = ANY (x.indkey) WHERE x.indrelid = c.conrelid AND x.indisprimary)
FROM pg_catalog.pg_constraint c WHERE c.conrelid = pg_catalog.to_regclass($1) AND c.conname = $2 AND c.contype = 'c'
"""


class PostgresNative:
    """The statements of one database."""

    def artifacts(self, reorg: Reorg) -> list[ArtifactName]:
        """Name nothing: no table is replaced."""
        return []

    def made_by(self, reorg: Reorg, step: int) -> list[ArtifactName]:
        """Name what a step leaves behind for as long as the job can be undone."""
        return [ArtifactName(made.kind, named(made.name, reorg)) for made in reorg.reshaping.native_steps[step].makes]

    def change(self, tx: Transaction, reorg: Reorg, *, step: int = 0, tries: int = 0) -> None:
        """Carry one short step out under locks that are waited for only for moments."""
        if reorg.reshaping.strategy is Strategy.IN_PLACE_COLUMN:
            in_place_swap.change(tx, reorg, step, tries=tries)
            return
        detail, this = reorg.reshaping.detail, reorg.reshaping.native_steps[step]
        locks.limit_waits(tx, job_id=reorg.job_id, tries=tries)
        views = Views.read(tx, detail["oid"], changed=detail.get("retyped", ()) if step == len(reorg.reshaping.native_steps) - 1 else (), moves=False)
        if this.detail["locks"]:
            locks.take_each(tx, locks.with_trees(tx, [*(locks.Lock(*one) for one in this.detail["locks"]), *locks.of_views(views.locks())]))
        see_unchanged(tx, reorg)
        self._see_locked(tx, this.detail)
        self._see_columns(tx, reorg, step)
        see_partitions(tx, detail["oid"], named_detail(this.detail, reorg))
        aside = views.set_all_aside(tx)
        for sql in this.detail["sql"]:
            if points.CHANGE.on:
                points.CHANGE.fire(job=reorg.job_id, step=step)
            self._run(tx, reorg, named(sql, reorg))
        views.make_anew(tx, aside)
        if points.CHANGED.on:
            points.CHANGED.fire(job=reorg.job_id, step=step)

    def run_long(self, tx: Transaction, reorg: Reorg, step: int, checkpoint: dict[str, Any]) -> dict[str, Any] | None:
        """Validate a constraint; every row is looked at in one statement, and writers go on."""
        if reorg.reshaping.strategy is Strategy.SHADOW_TABLE:
            return {"validated": step} if swap.validate_next(tx, reorg, Layout.of(reorg)) else None
        if reorg.reshaping.strategy is Strategy.IN_PLACE_COLUMN and step == len(reorg.reshaping.native_steps) - 1:
            return {"validated": step} if in_place_swap.validate_next(tx, reorg) else None
        this = reorg.reshaping.native_steps[step]
        locks.limit_waits(tx, job_id=reorg.job_id, tries=0)
        tx.run_verbatim("SAVEPOINT tideshift_validate")
        try:
            with user_path(tx, reorg.reshaping.detail["search_path"]):
                for sql in this.detail["sql"]:
                    tx.run_verbatim(named(sql, reorg))
        except ConstraintViolated as error:
            tx.run_verbatim("ROLLBACK TO SAVEPOINT tideshift_validate")
            of = this.detail.get("of", reorg.reshaping.detail["table"])
            raise ValueRefused(self._violation(tx, of, named(this.detail["constraint"], reorg), error.message)) from error
        return None

    def _violation(self, tx: Transaction, table: str, constraint: str, message: str) -> str:
        """Say which row a check refuses; what the server says of other constraints names its key already."""
        found = tx.run_verbatim(_CHECK, (table, constraint)).rows
        if not found:
            return first_line(message)
        condition, key = found[0]
        row = tx.run_verbatim(f"SELECT {key or 'ctid::text'} FROM {table} WHERE NOT ({condition}) LIMIT 1").rows
        which = f"a row of {table}" if not row else f"the row of {table} with ({key or 'ctid'}) = ({', '.join(map(str, row[0]))})"
        return f"{which} does not fit: {condition}"

    def run_alone(self, session: Session, reorg: Reorg, step: int, *, gently: bool = False) -> None:
        """Run a statement that commits by itself, after seeing what an earlier try has left."""
        with session.transaction(write=False) as tx:
            see_unchanged(tx, reorg)
            see_partitions(tx, reorg.reshaping.detail["oid"], reorg.reshaping.native_steps[step].detail)
        alone.run(session, reorg, named_detail(reorg.reshaping.native_steps[step].detail, reorg), gently=gently)

    def inspect(self, session: Session, reorg: Reorg) -> None:
        """See with a connection that did not change anything that the catalogue is what was planned."""
        if reorg.reshaping.strategy is Strategy.IN_PLACE_COLUMN:
            in_place_swap.inspect(session, reorg)
            return
        detail = reorg.reshaping.detail
        with session.transaction(write=False) as tx:
            shape = [list(row) for row in tx.run_verbatim(_SHAPE, (detail["oid"],)).rows]
            if detail["shape"] is not None and shape != detail["shape"]:
                raise SchemaChanged(f"the columns of {detail['table']} are not those that were planned: {shape}, not {detail['shape']}")
            invalid = tx.run_verbatim(
                "SELECT conname::text FROM pg_catalog.pg_constraint WHERE conrelid = $1 AND conname = ANY ($2)"
                " AND NOT convalidated", (detail["oid"], _validated(reorg))
            ).rows  # fmt: skip
            if invalid:
                raise SchemaChanged(f"a constraint is not validated: {invalid[0][0]}")
            index = detail["wanted"].get("index")
            for name in [*detail["wanted"].get("valid", []), *([] if index is None else [index])]:
                if tx.run_verbatim(_INDEX, (name,)).scalar() is not True:
                    raise SchemaChanged(f"the index {name} is not there or not valid")

    def _see_locked(self, tx: Transaction, detail: dict[str, Any]) -> None:
        """See that each name still means the table that was planned for."""
        for oid, name, *_ in detail["locks"]:
            if tx.run_verbatim("SELECT pg_catalog.to_regclass($1)::oid::bigint", (name,)).scalar() != oid:
                raise SchemaChanged(f"{name} is no longer the table that was planned for")

    def _see_columns(self, tx: Transaction, reorg: Reorg, step: int) -> None:
        """See that the columns are those that were planned for, and those that this job has added since."""
        detail = reorg.reshaping.detail
        if detail["before"] is None:
            return
        made = {parts_of(one.name)[-1] for earlier in reorg.reshaping.native_steps[:step] for one in earlier.makes if one.kind == "column"}
        demanded = {name for earlier in reorg.reshaping.native_steps[:step] for name in earlier.detail.get("demands", ())}
        present = [list(row[:3]) for row in tx.run_verbatim(_SHAPE, (detail["oid"],)).rows if row[0] not in made]
        if present != [[name, kind, not_null or name in demanded] for name, kind, not_null in detail["before"]]:
            raise SchemaChanged(f"the columns of {detail['table']} have changed since the plan was made")

    def _run(self, tx: Transaction, reorg: Reorg, sql: str) -> None:
        tx.run_verbatim("SAVEPOINT tideshift_change")
        try:
            with user_path(tx, reorg.reshaping.detail["search_path"]):
                tx.run_verbatim(sql)
        except ConstraintViolated as error:
            tx.run_verbatim("ROLLBACK TO SAVEPOINT tideshift_change")
            raise self._refusal(tx, reorg, error) from error
        tx.run_verbatim("RELEASE SAVEPOINT tideshift_change")

    def _refusal(self, tx: Transaction, reorg: Reorg, error: ConstraintViolated) -> ValueRefused:
        """Name the row: by its key where a column must not be NULL, by the values that the server names otherwise."""
        message, detail = first_line(error.message), reorg.reshaping.detail
        diagnosis = getattr(error.__cause__, "diag", None)
        column = getattr(diagnosis, "column_name", None)
        if getattr(diagnosis, "sqlstate", "") == "23502" and column:
            key = str(tx.run_verbatim(_KEY, (detail["oid"],)).scalar() or "ctid")
            rows = tx.run_verbatim(f"SELECT ROW({key})::text FROM {detail['table']} WHERE {quote(column)} IS NULL LIMIT 1").rows
            if rows:
                return ValueRefused(f"{message}: the row with ({key}) = {rows[0][0]}", key={key: rows[0][0]})
        return ValueRefused(message, values=getattr(diagnosis, "message_detail", None) or message)


def _validated(reorg: Reorg) -> list[str]:
    return [step.detail["constraint"] for step in reorg.reshaping.native_steps if "constraint" in step.detail]


def see_unchanged(tx: Transaction, reorg: Reorg) -> None:
    """See that the name still means the table that was planned for."""
    detail = reorg.reshaping.detail
    what = detail.get("what", "TABLE")
    found = tx.run_verbatim(f"SELECT pg_catalog.{'to_regtype' if what == 'TYPE' else 'to_regclass'}($1)::oid::bigint", (detail["table"],)).scalar()
    if found != detail["oid"]:
        raise SchemaChanged(f"{detail['table']} is no longer the {what.lower()} that was planned for")
