"""How a column is changed in place: what takes its place, what hangs on it, and why it cannot be done, if so.

The change is tried on an empty temporary copy, in which the column then gets the name of the new one. So the server itself
writes down what indexes and checks mean for the new column, and how the new value is computed from a row.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import replace
from typing import TYPE_CHECKING

from tideshift.ddl.change import AlterTable, SetColumnType, TableName
from tideshift.ddl.machine import SchemaState
from tideshift.ddl.reshaping import ArtifactName, Claim, NativeStep, Reshaping, RowWork, SqlStep, StepKind, Strategy
from tideshift.dialects.postgres import estimate, in_place_trigger
from tideshift.dialects.postgres.dependants import of_column
from tideshift.dialects.postgres.driver import PostgresDriver, quote
from tideshift.dialects.postgres.in_place_expressions import Expressions
from tideshift.dialects.postgres.in_place_hindrances import column_hindrances
from tideshift.dialects.postgres.in_place_layout import ColumnLayout, ColumnNames, KeyColumn, NewIndex
from tideshift.dialects.postgres.in_place_references import see_references
from tideshift.dialects.postgres.keys import PostgresKeyOrder
from tideshift.dialects.postgres.names import OWN_PATTERN
from tideshift.dialects.postgres.new_shape import keeps_order, never_refuses, widened
from tideshift.dialects.postgres.recipe import Recipe
from tideshift.dialects.postgres.rehearsal import Refused
from tideshift.dialects.postgres.shape import Shape, ShapeColumn, ShapeIndex, read_shape
from tideshift.dialects.postgres.source import Column, SourceTable, own_search_path
from tideshift.dialects.postgres.trial import Trial, trial_of
from tideshift.dialects.postgres.view_trial import try_views
from tideshift.dialects.postgres.views import Views
from tideshift.store.database import Transaction

if TYPE_CHECKING:
    from tideshift.dialects.postgres.design import Designer

__all__ = ["column_fingerprint", "design_in_place"]

_ALLOW = "--allow-column-order-change"
_SWAP_SECONDS = 0.05
_LOOKING, _THERE = SchemaState.WRITE_REORGANIZATION.value, SchemaState.PUBLIC.value
_FIRST_ROWS_MIN, _FIRST_ROWS, _FIRST_BYTES = 16, 5_000, 2 << 20
_TIMES_WRITTEN = 1.5
_PLAIN = ("integer", "bigint", "numeric", "double precision", "timestamp without time zone")
"""Types into which a conversion that refuses nothing hangs on no setting."""
_PARTS_MIN, _PARTS_MAX, _PART_BYTES = 2, 16, 8 << 20
_TABLE = "SELECT pg_catalog.pg_get_userbyid(relowner)::text, relpersistence::text FROM pg_catalog.pg_class WHERE oid = $1"
_USES = """
SELECT c.relname::text FROM pg_catalog.pg_index x JOIN pg_catalog.pg_class c ON c.oid = x.indexrelid
 WHERE x.indrelid = $1 AND ($2::int2 = ANY (x.indkey) OR EXISTS (
   SELECT 1 FROM pg_catalog.pg_depend WHERE classid = 'pg_catalog.pg_class'::regclass AND objid = x.indexrelid
      AND refclassid = 'pg_catalog.pg_class'::regclass AND refobjid = $1 AND refobjsubid = $2))
"""
_CHECKS = "SELECT conname::text FROM pg_catalog.pg_constraint WHERE conrelid = $1 AND contype = 'c' AND $2::int2 = ANY (conkey)"


def column_fingerprint(tx: Transaction, oid: int) -> str:
    """Return a digest of everything that was worked out at plan time and must be so still at the swap; what is ours does not count."""
    shape = read_shape(tx, oid)
    columns = [(one.number, one.definition, one.settings) for one in shape.columns if not re.match(OWN_PATTERN, one.name)]
    indexes = [(one.name, one.unique, one.rest, one.key, one.tablespace) for one in shape.indexes if not re.match(OWN_PATTERN, one.name)]
    checks = [one for one in shape.checks if not re.match(OWN_PATTERN, one.name)]
    return hashlib.sha256(repr((oid, tx.run_verbatim(_TABLE, (oid,)).rows, columns, checks, indexes)).encode()).hexdigest()


def design_in_place(designer: Designer, change: AlterTable, source: SourceTable) -> Reshaping:
    """Return the way, or raise `PlanRefused` with every reason."""
    return _InPlaceDesign(designer, source).design(change)


class _InPlaceDesign:
    def __init__(self, designer: Designer, source: SourceTable) -> None:
        self.designer = designer
        self.tx = designer.tx
        self.source = source
        self.reasons = designer.reasons
        self.names = ColumnNames(source.schema, source.name, 0)
        self.before = read_shape(self.tx, source.oid)
        self.warnings: list[str] = []

    def design(self, change: AlterTable) -> Reshaping:
        action = change.actions[0]
        if len(change.actions) > 1 or not isinstance(action, SetColumnType):
            self.reasons.append("in place one column is given another type, by a statement of its own: ALTER TABLE … ALTER COLUMN … TYPE …; anything else is done by a shadow table")
            raise self.designer.refused(self.source)
        if not self.designer.column_order_may_change:
            self.reasons.append(f"a column that is changed in place stands last afterwards, and one more is seen meanwhile: allow it with {_ALLOW}")
        column = self.source.column(action.column)
        hindering, self.replicates = column_hindrances(self.tx, self.source.oid, column.number)
        self.reasons += hindering
        self.views = Views.read(self.tx, self.source.oid, changed=[column.number], moves=False)
        self.reasons += self.views.owned_by_others(self.tx) + self.views.obstacles(self.tx, {one.oid for one in self.views.over(self.views.touched)})
        uses = of_column(self.tx, self.source.oid, column.number, but=self.views.followed)
        self.reasons += [f"{column.name} is used by {what}: drop or change that first" for what in uses]
        later = in_place_trigger.later_triggers(self.tx, self.source.oid, self.names.trigger)
        self.reasons += [f"the trigger {name} would change a row after the new column got its value: give it a name that sorts before {self.names.trigger[:2]}" for name in later]
        if self.reasons:
            raise self.designer.refused(self.source)
        with trial_of(self.tx, self.source, self.before) as trial:
            layout, new = self._layout(action, column, trial)
        if self.reasons or layout is None or new is None:
            raise self.designer.refused(self.source)
        return self._reshaping(layout, new)

    # ── the record ────────────────────────────────────────────────────────────────────────────────────────────────

    def _layout(self, action: SetColumnType, column: Column, trial: Trial) -> tuple[ColumnLayout | None, ShapeColumn | None]:
        using = "" if action.using is None else f" USING {action.using}"
        expressions = Expressions(self.tx, trial, self.reasons, own_search_path(self.tx))
        value = expressions.value(quote(column.name) if action.using is None else action.using, action.type_text)
        try:
            rewrites = trial.run(f"ALTER COLUMN {quote(column.name)} TYPE {action.type_text}{using}", fragment=action.using or action.type_text)
        except Refused as error:
            self.reasons.append(f"the server refuses it: {error}")
            return None, None
        if not rewrites:
            self.reasons.append("no row must be written again for it: ask for no strategy")
        if self.views.views and not self.reasons:
            tried = try_views(self.tx, self.views, self.source, copy=self.source.name, columns=[(one.name, one.name) for one in self.source.columns])
            self.reasons += tried.reasons
            self.warnings += tried.warnings
        trial.run(f"RENAME COLUMN {quote(column.name)} TO {quote(self.names.column)}")
        after = trial.shape()
        new = next(one for one in after.columns if one.name == self.names.column)
        key = self._key()
        if self.reasons or key is None or value is None:
            return None, None
        plain = action.using is None and never_refuses(column.type_text, new.type_text) and new.type_text in _PLAIN
        expressions.see_type(new)
        uses = {name for (name,) in self.tx.run_verbatim(_USES, (self.source.oid, column.number)).rows}
        self._see_keys(action, column, new, [one for one in self.before.indexes if one.name in uses])
        checked = {name for (name,) in self.tx.run_verbatim(_CHECKS, (self.source.oid, column.number)).rows}
        texts = [(one.name, one.text, one.validated) for one in self.before.checks if one.name in checked]
        conditions = expressions.checks([name for name, _, validated in texts if validated])
        unvalidated, reasons = see_references(self.tx, self.source.oid, column.number, new.type_text)
        self.reasons += reasons
        old = next(one for one in self.before.columns if one.name == column.name)
        placeholder = None if (plain and not conditions) or not old.not_null else expressions.placeholder(new.type_text)
        owner = str(self.tx.run_verbatim(_TABLE, (self.source.oid,)).rows[0][0])
        return ColumnLayout(
            oid=self.source.oid, schema=self.source.schema, table=self.source.name, column=column.name, number=column.number, old_type=column.type_text,
            type_text=new.type_text, not_null=old.not_null, not_null_name=old.not_null_name, value=value, plain=plain and not conditions,
            too_long=expressions.too_long(value, new.type_text), checks=conditions, placeholder=placeholder, as_it_is=expressions.compares_bytes(new.type_text), key=key,
            default=new.default, identity=new.identity, sequence=widened(old, new.type_text), checked=tuple(texts),
            indexes=self._indexes(after, uses), owner=owner, owns_itself=self.replicates, left_unvalidated=unvalidated,
            fingerprint=column_fingerprint(self.tx, self.source.oid), row_bytes=max(1, self.source.heap_bytes // max(1, self.source.rows)),
            parts=max(_PARTS_MIN, min(_PARTS_MAX, self.source.heap_bytes // _PART_BYTES)),
        ), replace(new, statistics=old.statistics, options=old.options, not_null=False, not_null_name=None, default=None, identity="", sequence=None)  # fmt: skip

    def _key(self) -> tuple[KeyColumn, ...] | None:
        """Choose the key by which rows are taken; it is the table's own until the swap, whatever changes."""
        by_number = {one.number: one for one in self.before.columns}
        usable = [one for one in self.before.indexes if one.unique and one.plain and len(one.directions) == 1]
        usable.sort(key=lambda one: (one.key is None or one.key.kind != "p", len(one.columns)))
        for index in usable:
            columns = [by_number[number] for number in index.columns]
            if all(one.not_null for one in columns):
                driver = self.tx.driver
                assert isinstance(driver, PostgresDriver)
                order = PostgresKeyOrder(self.source.schema, self.source.name, [one.name for one in columns], driver=driver)
                order.prepare(self.tx)
                return tuple(KeyColumn(one.name, type_text, operators) for one, (type_text, operators) in zip(columns, order.types, strict=True))
        self.reasons.append("rows are taken by a key: a primary key, or a unique index that is not partial, over columns that are NOT NULL")
        return None

    def _see_keys(self, action: SetColumnType, column: Column, new: ShapeColumn, used: list[ShapeIndex]) -> None:
        """See that what demands unique values demands the same of the new ones: until the swap both are demanded."""
        injective = action.using is None and keeps_order(column.type_text, new.type_text) and column.collation == new.collation
        for index in used:
            kind = None if index.key is None else index.key.kind
            if kind == "x":
                self.reasons.append(f"{index.name} is an exclusion constraint, which cannot be built beside the traffic")
            elif index.key is not None and index.key.deferrable:
                self.reasons.append(f"{index.name} is deferrable, and its successor would refuse at once what it lets pass until the end of a transaction")
            elif index.unique and not injective:
                self.reasons.append(f"{index.name} demands unique values, and values that differ now might be the same in the new column")
            elif index.unique:
                listed = ", ".join(one.name for one in self.before.columns if one.number in index.columns)
                self.warnings.append(
                    f"while the successor of {index.name} stands beside it, two sessions that INSERT … ON CONFLICT ({listed}) the same new key at the same moment: one may get a unique violation"
                )

    def _indexes(self, after: Shape, uses: set[str]) -> tuple[NewIndex, ...]:
        spaces = {one.name: one.tablespace for one in self.before.indexes}
        return tuple(
            NewIndex(one.name, one.unique, one.rest, None if one.key is None else one.key.kind, "" if one.key is None else one.key.text, spaces.get(one.name))
            for one in after.indexes if one.name in uses
        )  # fmt: skip

    # ── the steps ─────────────────────────────────────────────────────────────────────────────────────────────────

    def _reshaping(self, layout: ColumnLayout, new: ShapeColumn) -> Reshaping:
        source, names = self.source, self.names
        recipe = Recipe(source)
        self._make(recipe, layout, new)
        recipe.long("fill the new column", StepKind.FILL, "give the new column its value in every row, chunk by chunk", [])
        self._prove(recipe, layout)
        for number, index in enumerate(layout.indexes):
            space = f" TABLESPACE {quote(index.tablespace)}" if index.tablespace else ""
            built = f"CREATE {'UNIQUE ' if index.unique else ''}INDEX CONCURRENTLY {quote(names.index(number))} ON {source.quoted} {with_tablespace(index.rest, space)}"
            recipe.build_index(names.index(number), built, unique=index.unique)
        recipe.long("statistics", StepKind.LONG, "gather statistics, so that the new column is planned for as the old one was", [f"ANALYZE {source.quoted}"])
        recipe.long("compare the new column", StepKind.COMPARE, "see in every row that the new column holds what it must", [])
        recipe.short("swap the columns", "let the new column take the old one's name and everything that hangs on it; the old one goes", [], schema_state=_THERE)
        recipe.long("validate", StepKind.LONG, "look at every row for foreign keys and checks over the column; writers go on", [], schema_state=_THERE, revertible=False)
        return Reshaping(
            table=TableName(source.schema, source.name), strategy=Strategy.IN_PLACE_COLUMN,
            claims=(Claim(f"{source.schema}.{source.name}"), *(Claim(name, "shared") for name in self._others())),
            row_work=RowWork.REWRITE, key_columns=tuple(one.name for one in layout.key), may_refuse_rows=not layout.plain, hold_seconds=_SWAP_SECONDS,
            row_seconds=estimate.write_seconds(source.bytes) * _TIMES_WRITTEN / max(source.rows, 1), disk_bytes=int(source.bytes * 0.6),
            chunk_rows=max(_FIRST_ROWS_MIN, min(_FIRST_ROWS, _FIRST_BYTES // layout.row_bytes)),
            sql_steps=_shown(recipe.steps, layout, names), native_steps=tuple(recipe.steps), warnings=(*self._breaks(layout), *self.warnings),
            detail={
                "oid": source.oid, "table": source.quoted, "search_path": own_search_path(self.tx), "shape": None, "wanted": {},
                "before": [[one.name, one.type_text, one.not_null] for one in source.columns], "in_place": layout.as_record(),
            },
        )  # fmt: skip

    def _make(self, recipe: Recipe, layout: ColumnLayout, new: ShapeColumn) -> None:
        names = self.names
        made = (
            ArtifactName("column", names.within(names.column)), ArtifactName("refused rows", names.refused), ArtifactName("function", names.function),
            ArtifactName("column trigger", names.within(names.trigger)),
        )  # fmt: skip
        recipe.short("add the new column", "from here on every write gives it its value", in_place_trigger.texts(layout, names, new.settings, new.definition), makes=made)

    def _prove(self, recipe: Recipe, layout: ColumnLayout) -> None:
        if not layout.not_null:
            return
        names, source = self.names, self.source
        named = self.designer.version >= 18
        demand = f"NOT NULL {quote(names.column)}" if named else f"CHECK ({quote(names.column)} IS NOT NULL)"
        made = ArtifactName("constraint", names.within(names.not_null))
        recipe.short("demand NOT NULL", "what the trigger gives is never NULL", [f"ALTER TABLE {source.quoted} ADD CONSTRAINT {quote(names.not_null)} {demand} NOT VALID"], makes=(made,), schema_state=_LOOKING)
        recipe.validate(names.not_null)

    def _others(self) -> list[str]:
        rows = self.tx.run_verbatim(
            "SELECT DISTINCT n.nspname::text || '.' || c.relname::text FROM pg_catalog.pg_constraint f JOIN pg_catalog.pg_class c"
            " ON c.oid = CASE WHEN f.conrelid = $1 THEN f.confrelid ELSE f.conrelid END JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace"
            " WHERE f.contype = 'f' AND (f.conrelid = $1 OR f.confrelid = $1) AND c.oid <> $1", (self.source.oid,)
        ).rows  # fmt: skip
        return sorted(name for (name,) in rows)

    def _breaks(self, layout: ColumnLayout) -> list[str]:
        """Say exactly which statements of an application break, and when."""
        table, last = layout.source, self.before.columns[-1].name
        hidden = self.names.column.replace("_0_", "_…_")
        moved = [one.name for one in self.before.columns if one.name != layout.column]
        order = ", ".join([*moved, layout.column])
        found = [
            f"until the swap {table} shows one column more, {hidden}, behind {last}: SELECT *, RETURNING *, COPY {table} TO without a list of columns, NEW.* or OLD.* in functions give it too",
            f"until the swap COPY {table} FROM without a list of columns fails: it wants a value for that column",
            "a REPEATABLE READ or SERIALIZABLE transaction that changes a row which the fill has written since that transaction began gets a serialization failure (40001)",
            "every row is written once more: what compares xmin or ctid, and whoever reads the changes from the log, sees that",
        ]
        if layout.column != last:
            found.insert(2, (
                f"after the swap {layout.column} stands last, ({order}): INSERT INTO {table} VALUES (…) without a list of columns puts values into the wrong columns or fails,"
                f" and so does COPY {table} FROM without a list; SELECT * and COPY {table} TO give the columns in that order"
            ))  # fmt: skip
        return found


def with_tablespace(rest: str, space: str) -> str:
    """Put a tablespace where CREATE INDEX has it: before its condition."""
    if not space:
        return rest
    head, where, tail = rest.partition(" WHERE ")
    return f"{head}{space}{where}{tail}"


def _shown(steps: list[NativeStep], layout: ColumnLayout, names: ColumnNames) -> tuple[SqlStep, ...]:
    column = quote(names.column)
    texts = {
        "fill the new column": f"UPDATE {layout.source} AS {layout.alias} SET {column} = {layout.value}\nWHERE key in a range AND ({layout.wrong(names.column)});\n"
                               f"VACUUM (SKIP_LOCKED, TRUNCATE false) {layout.source} after each range",
        "compare the new column": f"SELECT … FROM {layout.source} AS {layout.alias} WHERE key in a range AND ({layout.wrong(names.column)})",
        "swap the columns": _swap_text(layout, column),
        "validate": "VALIDATE CONSTRAINT for each foreign key and check over the column",
    }  # fmt: skip
    locks = {
        StepKind.SHORT: ("ACCESS EXCLUSIVE, tried for moments", "milliseconds"),
        StepKind.FILL: ("rows only, waited for less than deadlock_timeout; VACUUM: SHARE UPDATE EXCLUSIVE", "chunks of about 0.1 s"),
        StepKind.COMPARE: ("none that keeps anybody out", "chunks of about 0.1 s"),
        StepKind.LONG: ("SHARE UPDATE EXCLUSIVE: readers and writers go on", "as long as a scan takes"),
        StepKind.ALONE: ("SHARE UPDATE EXCLUSIVE: readers and writers go on", "as long as it takes to build"),
    }
    shown = []
    for step in steps:
        lock, hold = locks[step.kind]
        if step.name == "swap the columns":
            lock, hold = f"{lock}, on it and on tables joined to it by foreign keys over the column", estimate.hold_text(_SWAP_SECONDS)
        shown.append(SqlStep(step.name, texts.get(step.name) or ";\n".join(step.detail["sql"]), lock, hold))
    return tuple(shown)


def _swap_text(layout: ColumnLayout, column: str) -> str:
    return (
        f"ALTER TABLE {layout.source} DROP COLUMN {quote(layout.column)};\nALTER TABLE {layout.source} RENAME COLUMN {column} TO {quote(layout.column)};\n"
        "keys and indexes, default, sequence, checks and foreign keys (NOT VALID), privileges, comments, statistics as they were"
    )


