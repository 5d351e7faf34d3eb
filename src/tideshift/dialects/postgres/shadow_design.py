"""How a change is carried out by a shadow table: its new shape, its key, its indexes, and why it cannot be done, if so."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tideshift.ddl.change import AddColumn, AlterTable, DropColumn, SetColumnType, TableName
from tideshift.ddl.machine import SchemaState
from tideshift.ddl.reshaping import Claim, NativeStep, Reshaping, RowWork, SqlStep, StepKind, Strategy
from tideshift.dialects.postgres import constraints, estimate
from tideshift.dialects.postgres.dependants import going_with, of_column
from tideshift.dialects.postgres.driver import PostgresDriver, quote
from tideshift.dialects.postgres.hindrances import hindrances
from tideshift.dialects.postgres.keys import PostgresKeyOrder
from tideshift.dialects.postgres.layout import IndexPlan, KeyColumn, Layout, Mapped, Names
from tideshift.dialects.postgres.names import qualified
from tideshift.dialects.postgres.new_shape import NewShape, keeps_order
from tideshift.dialects.postgres.shape import Check, Shape, ShapeColumn, ShapeIndex, read_shape
from tideshift.dialects.postgres.source import SourceTable, own_search_path
from tideshift.dialects.postgres.trial import Trial, trial_of
from tideshift.dialects.postgres.view_trial import try_views
from tideshift.dialects.postgres.views import Views
from tideshift.store.database import Transaction

if TYPE_CHECKING:
    from tideshift.dialects.postgres.design import Designer

__all__ = ["COMPARABLE", "VALIDATE", "columns_digest", "design_shadow", "fingerprint"]

VALIDATE = NativeStep(
    name="validate", kind=StepKind.LONG, text="look at every reference in the new table, and at its statistics; writers go on",
    schema_state=SchemaState.PUBLIC.value, revertible=False,
)  # fmt: skip
"""What follows the swap."""
_FOREIGN_KEYS = """
SELECT f.conname::text, f.conrelid::bigint, f.confrelid::bigint, pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(c.relname),
       f.conkey::int[], f.confkey::int[], f.convalidated
FROM pg_catalog.pg_constraint f JOIN pg_catalog.pg_class c ON c.oid = CASE WHEN f.conrelid = $1 THEN f.confrelid ELSE f.conrelid END
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE f.contype = 'f' AND (f.conrelid = $1 OR f.confrelid = $1)
"""
COMPARABLE = """
SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_amop o JOIN pg_catalog.pg_opfamily f ON f.oid = o.amopfamily JOIN pg_catalog.pg_am m ON m.oid = f.opfmethod
       WHERE m.amname = 'btree' AND o.amopstrategy = 3 AND o.amoplefttype = $1::regtype AND o.amoprighttype = $2::regtype)
    OR EXISTS (SELECT 1 FROM pg_catalog.pg_cast WHERE castsource = $2::regtype AND casttarget = $1::regtype AND castcontext = 'i')
"""
_TABLE = """
SELECT c.relpersistence::text, coalesce(c.reloptions, '{}')
       || coalesce((SELECT array_agg('toast.' || o) FROM pg_catalog.pg_class t, unnest(t.reloptions) o WHERE t.oid = c.reltoastrelid), '{}'),
       (SELECT pg_catalog.quote_ident(spcname) FROM pg_catalog.pg_tablespace WHERE oid = c.reltablespace)
FROM pg_catalog.pg_class c WHERE c.oid = $1
"""
_IDENTITY_SEQUENCES = """
SELECT a.attname::text, s.seqtypid::regtype::text, n.nspname::text, c.relname::text, p.deptype::text
FROM pg_catalog.pg_depend p JOIN pg_catalog.pg_sequence s ON s.seqrelid = p.objid JOIN pg_catalog.pg_class c ON c.oid = p.objid
JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace JOIN pg_catalog.pg_attribute a ON a.attrelid = p.refobjid AND a.attnum = p.refobjsubid
WHERE p.classid = 'pg_catalog.pg_class'::regclass AND p.refclassid = 'pg_catalog.pg_class'::regclass AND p.refobjid = $1 AND p.deptype IN ('a', 'i')
"""


def columns_digest(columns: Iterable[ShapeColumn]) -> str:
    """Return a digest of names, types and NOT NULL in their order; `capture` computes the same in the database."""
    text = "\x1e".join(f"{one.name}\x1f{one.type_text}\x1f{int(one.not_null)}" for one in columns)
    return hashlib.md5(text.encode(), usedforsecurity=False).hexdigest()


def fingerprint(tx: Transaction, oid: int) -> str:
    """Return a digest of everything about rows and shape that is worked out at plan time and must be so still at the swap."""
    shape = read_shape(tx, oid)
    columns = [(one.number, one.definition, one.settings) for one in shape.columns]
    indexes = [(one.name, one.unique, one.rest, one.key, one.tablespace) for one in shape.indexes]
    owner = tx.run_verbatim("SELECT pg_catalog.pg_get_userbyid(relowner)::text FROM pg_catalog.pg_class WHERE oid = $1", (oid,)).scalar()
    return hashlib.sha256(repr((oid, owner, tx.run_verbatim(_TABLE, (oid,)).rows, columns, shape.checks, indexes)).encode()).hexdigest()


def design_shadow(designer: Designer, change: AlterTable, source: SourceTable) -> Reshaping:
    """Return the way, or raise `PlanRefused` with every reason."""
    return _ShadowDesign(designer, source).design(change)


Fate = dict[str, ShapeColumn]
"""Of each column of the source that goes on, the column of the new shape."""


class _ShadowDesign:
    def __init__(self, designer: Designer, source: SourceTable) -> None:
        self.designer = designer
        self.tx = designer.tx
        self.source = source
        self.before = read_shape(self.tx, source.oid)
        self.reasons = designer.reasons
        self.lost_keys: list[str] = []
        self.warnings: list[str] = []

    def design(self, change: AlterTable) -> Reshaping:
        self.reasons += hindrances(self.tx, self.source.oid)
        self.views = Views.read(self.tx, self.source.oid, changed=(), moves=True)
        self.reasons += [*self.views.owned_by_others(self.tx), *self.views.obstacles(self.tx, ())]
        self._see_uses(change)
        if self.reasons:
            raise self.designer.refused(self.source)
        with trial_of(self.tx, self.source, self.before) as trial:
            new = NewShape(self.source, self.before, trial, self.reasons, lambda action: constraints.find(self.designer, self.source, action))
            for action in change.actions:
                column = getattr(action, "column", None)
                if column is not None and not isinstance(action, AddColumn):
                    self.source.column(column)
                new.take(action)
            layout = None if self.reasons else self._layout(new, trial.shape())
            if layout is not None:
                self._try_views(layout)
        if self.reasons or layout is None:
            raise self.designer.refused(self.source)
        return self._reshaping(layout, new)

    def _see_uses(self, change: AlterTable) -> None:
        """Keep as reasons what uses a column that changes: its text would have to change too."""
        for action in change.actions:
            if isinstance(action, (DropColumn, SetColumnType)):
                number = self.source.column(action.column).number
                types = isinstance(action, SetColumnType)
                followed = [one.oid for one in self.views.views] + [one.view for one in self.views.rules]
                uses = of_column(self.tx, self.source.oid, number, statistics=not types, but=followed if types else ())
                self.reasons += [f"{action.column} is used by {what}: drop or change that first" for what in uses]

    def _try_views(self, layout: Layout) -> None:
        """See that every view over what changes goes with the new shape."""
        self.views = Views.read(self.tx, self.source.oid, changed=layout.retyped, moves=True)
        tried = try_views(self.tx, self.views, self.source, copy=self.source.name, columns=list(layout.columns))
        self.reasons += tried.reasons
        self.warnings += tried.warnings

    # ── the record ────────────────────────────────────────────────────────────────────────────────────────────────

    def _layout(self, new: NewShape, after: Shape) -> Layout | None:
        columns = new.columns()
        fate = {new.origin[one.number]: one for one in columns if one.number in new.origin}
        key = self._key(new, fate)
        self._see_foreign_keys(new, fate)
        if key is None or self.reasons:
            return None
        values = {one.number: new.value(one) for one in columns}
        mapped = tuple(Mapped(one.name, one.type_text, text) for one in columns if (text := values[one.number]) is not None)
        persistence, options, tablespace = self.tx.run_verbatim(_TABLE, (self.source.oid,)).rows[0]
        persistence, tablespace = new.persistence or persistence, new.tablespace or tablespace
        valid = [one for one in after.checks if self._is_validated(one)]
        late = [one for one in after.checks if not self._is_validated(one)]
        definitions = [one.definition for one in columns] + [f"CONSTRAINT {quote(one.name)} {one.text}" for one in valid]
        given = f" WITH ({', '.join(options)})" if options else ""
        identities = [(old, one.name) for old, one in fate.items() if one.identity]
        return Layout(
            oid=self.source.oid, schema=self.source.schema, table=self.source.name, search_path=own_search_path(self.tx), uses_path=new.uses_path,
            create=", ".join(definitions), options=given + (f" TABLESPACE {tablespace}" if tablespace else ""), unlogged=persistence == "u",
            settings=tuple(clause for one in columns for clause in one.settings), owner=self.source.owner, key=key, mapped=mapped,
            overriding=any(one.identity and values[one.number] is not None for one in columns),
            compared=tuple(one.name for one in columns if values[one.number] is not None or (one.generated and one.number in new.origin and one.number not in new.computed_anew)),
            indexes=self._indexes(after, key, columns), late_checks=tuple(f"CONSTRAINT {quote(one.name)} {one.text.removesuffix(' NOT VALID')} NOT VALID" for one in late),
            columns=tuple((old, one.name) for old, one in fate.items()), dropped_constraints=tuple(new.dropped_constraints),
            foreign_keys=tuple(one.name for one in self.source.constraints if one.kind == "f" and one.name not in new.dropped_constraints),
            widened=self._widened(fate), identities=tuple(identities),
            new_identities=self._new_identities(new.trial, {one.name for one in columns} - {name for _, name in identities}), fingerprint=fingerprint(self.tx, self.source.oid),
            source_columns=columns_digest(self.before.columns), shadow_columns=columns_digest(columns),
            left_unvalidated=tuple(
                name if child == self.source.oid else f"{child} {name}"
                for name, child, _, _, _, _, validated in self.tx.run_verbatim(_FOREIGN_KEYS, (self.source.oid,)).rows if not validated
            ),
            row_bytes=max(1, self.source.heap_bytes // max(1, self.source.rows)), retyped=self._retyped(fate),
        )  # fmt: skip

    def _retyped(self, fate: Fate) -> tuple[int, ...]:
        """Return the numbers of the columns whose values views find in another type, or compare by another collation."""
        going = [(old, fate[old.name]) for old in self.before.columns if old.name in fate]
        return tuple(old.number for old, new in going if (old.type_text, old.collation) != (new.type_text, new.collation))

    def _is_validated(self, check: Check) -> bool:
        """Whether rows need fit it: an empty copy holds every check that was taken over for proven, whatever the rows of the table are."""
        known = {one.name: one.validated for one in self.before.checks}
        return known.get(check.name, check.validated)

    def _widened(self, fate: Fate) -> tuple[str, ...]:
        """Name the sequences of serial columns that become bigint: a counter that ends earlier than its column helps nobody."""
        rows = self.tx.run_verbatim(_IDENTITY_SEQUENCES, (self.source.oid,)).rows
        return tuple(qualified(schema, name) for column, kind, schema, name, dependency in rows
                     if dependency == "a" and kind != "bigint" and column in fate and fate[column].type_text == "bigint")  # fmt: skip

    def _new_identities(self, trial: Trial, columns: set[str]) -> tuple[tuple[str, str], ...]:
        """Return what the server calls the sequences of identity columns that are new, or the next name that is free."""
        named = []
        for column, _, _, bare, dependency in self.tx.run_verbatim(_IDENTITY_SEQUENCES, (trial.oid,)).rows:
            if dependency == "i" and column in columns:
                free, number = bare, 0
                while self.designer.exists(self.source.schema, free):
                    number += 1
                    free = f"{bare}{number}"
                named.append((column, free))
        return tuple(named)

    # ── the key and the indexes ───────────────────────────────────────────────────────────────────────────────────

    def _key(self, new: NewShape, fate: Fate) -> tuple[KeyColumn, ...] | None:
        """Choose the key by which rows are copied and found: one that is the same key in the new shape."""
        by_number = {one.number: one for one in self.before.columns}
        usable = [one for one in self.before.indexes if one.unique and one.plain and len(one.directions) == 1]
        usable.sort(key=lambda one: (one.key is None or one.key.kind != "p", len(one.columns)))
        for index in usable:
            olds = [by_number[number] for number in index.columns]
            if all(old.not_null and self._goes_on(old, new, fate) for old in olds):
                order = PostgresKeyOrder(self.source.schema, self.source.name, [old.name for old in olds], driver=_driver(self.tx.driver))
                order.prepare(self.tx)
                return tuple(
                    KeyColumn(old.name, type_text, operators, fate[old.name].name, old.collation)
                    for old, (type_text, operators) in zip(olds, order.types, strict=True)
                )
        self.reasons.append(
            "a table is copied by a key: a primary key, or a unique index that is not partial, over columns that are NOT NULL and that the change leaves as they are"
        )
        return None

    def _goes_on(self, old: ShapeColumn, new: NewShape, fate: Fate) -> bool:
        column = fate.get(old.name)
        if column is None or column.generated or column.collation != old.collation:
            return False
        return new.value(column) == quote(old.name) and keeps_order(old.type_text, column.type_text)

    def _indexes(self, after: Shape, key: tuple[KeyColumn, ...], columns: list[ShapeColumn]) -> tuple[IndexPlan, ...]:
        number_of = {one.name: one.number for one in columns}
        wanted = tuple(number_of[one.new_name] for one in key)
        spaces = {one.name: one.tablespace for one in self.before.indexes}
        found = next((one for one in after.indexes if one.unique and one.plain and one.columns == wanted), None)
        plans = [_plan(one, is_key=one is found, tablespace=spaces.get(one.name)) for one in after.indexes]
        if found is None:
            listed = ", ".join(quote(one.new_name) for one in key)
            plans.append(IndexPlan("", unique=True, rest=f"USING btree ({listed})", kind=None, constraint="", deferring="", is_key=True, tablespace=None))
        self._see_names(after)
        return tuple(plans)

    def _see_names(self, after: Shape) -> None:
        """See that the names which the server gave in the trial are free where the table is."""
        known = {one.name for one in self.before.indexes}
        taken = [one.name for one in after.indexes if one.name not in known and self.designer.exists(self.source.schema, one.name)]
        self.reasons += [f"there is something called {name} in the schema {self.source.schema} already: name the constraint otherwise" for name in taken]

    # ── foreign keys ──────────────────────────────────────────────────────────────────────────────────────────────

    def _see_foreign_keys(self, new: NewShape, fate: Fate) -> None:
        """See that every reference that stays can be made again between columns of the new types."""
        numbers = {one.number: one.name for one in self.before.columns}
        for name, child, parent, other, child_columns, parent_columns, _ in self.tx.run_verbatim(_FOREIGN_KEYS, (self.source.oid,)).rows:
            if child == self.source.oid and name in new.dropped_constraints:
                continue
            outgoing, incoming = child == self.source.oid, parent == self.source.oid
            ours = [numbers[one] for one in (child_columns if outgoing else parent_columns)]
            gone = [one for one in ours if one not in fate]
            if gone and outgoing and not incoming:
                new.dropped_constraints.append(name)
                self.lost_keys.append(name)
            elif gone:
                self.reasons.append(f"{', '.join(gone)} is referred to by {name} of {other}: drop that first")
            else:
                self._see_comparable(name, child, parent, list(zip(child_columns, parent_columns, strict=True)), fate)

    def _see_comparable(self, name: str, child: int, parent: int, pairs: list[tuple[int, int]], fate: Fate) -> None:
        for child_number, parent_number in pairs:
            types = [self._type_of(parent, parent_number, fate), self._type_of(child, child_number, fate)]
            bare = [one.partition("(")[0] for one in types]
            if bare[0] != bare[1] and not self.tx.run_verbatim(COMPARABLE, tuple(bare)).scalar():
                self.reasons.append(f"the foreign key {name} would compare {types[1]} with {types[0]}: drop it first")

    def _type_of(self, table: int, number: int, fate: Fate) -> str:
        if table == self.source.oid:
            name = next(one.name for one in self.before.columns if one.number == number)
            return fate[name].type_text
        return str(self.tx.run_verbatim(
            "SELECT pg_catalog.format_type(atttypid, atttypmod) FROM pg_catalog.pg_attribute WHERE attrelid = $1 AND attnum = $2", (table, number)
        ).scalar())  # fmt: skip

    def _may_end(self) -> str:
        """Say which privilege is missing to see and to end who is in the way."""
        role, sees, ends = self.tx.run_verbatim(
            "SELECT pg_catalog.quote_ident(current_user), rolsuper OR pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE'), rolsuper OR pg_catalog.pg_has_role('pg_signal_backend', 'USAGE')"
            " FROM pg_catalog.pg_roles WHERE rolname = current_user"
        ).rows[0]  # fmt: skip
        missing = [grant for given, grant in ((sees, f"to see who is in the way: GRANT pg_read_all_stats TO {role}"), (ends, f"to end them (--end-blockers): GRANT pg_signal_backend TO {role}")) if not given]
        return "".join(f"; {one}" for one in missing)

    # ── what a person is shown ────────────────────────────────────────────────────────────────────────────────────

    def _reshaping(self, layout: Layout, new: NewShape) -> Reshaping:
        source = self.source
        others = sorted({str(row[3]) for row in self.tx.run_verbatim(_FOREIGN_KEYS, (source.oid,)).rows})
        lost = [one.name for one in self.before.indexes if all(plan.name != one.name for plan in layout.indexes) and one.name not in new.dropped_constraints]
        gone = [one.name for one in self.before.checks if f"CONSTRAINT {quote(one.name)} " not in layout.create and one.validated and one.name not in new.dropped_constraints]
        gone_columns = [one.number for one in self.before.columns if one.name not in dict(layout.columns)]
        going = [what for number in gone_columns for what in going_with(self.tx, source.oid, number)]
        known = {what.split(" ")[-1] for what in going}
        others_lost = [f"{kind} {name}" for kind, names in (("index", lost), ("check", gone), ("foreign key", self.lost_keys)) for name in names if name not in known]
        events = self.tx.run_verbatim("SELECT evtname::text FROM pg_catalog.pg_event_trigger WHERE evtenabled <> 'D'").rows
        warnings = self.warnings + [f"the event trigger {name} runs with each of the job's own statements: one that refuses them fails the job" for (name,) in events]
        if layout.unlogged:
            warnings.append(f"{source.name} is unlogged: a crash of the server empties it, and its copy and the log of its changes with it")
        return Reshaping(
            table=TableName(source.schema, source.name), strategy=Strategy.SHADOW_TABLE,
            claims=(Claim(f"{source.schema}.{source.name}"), *(Claim(name.replace('"', ""), "shared") for name in others if name != source.quoted)),
            row_work=RowWork.COPY, key_columns=tuple(one.name for one in layout.key), may_refuse_rows=new.may_refuse,
            tries_rows_first=new.refuses_single_rows, hold_seconds=_SWAP_SECONDS,
            row_seconds=estimate.write_seconds(source.bytes) * _TIMES_WRITTEN / max(source.rows, 1), disk_bytes=int(source.bytes * _TIMES_DISK),
            chunk_rows=max(_FIRST_ROWS_MIN, min(_FIRST_ROWS, _FIRST_BYTES // layout.row_bytes)),
            drops=tuple(f"{what} goes with its column" for what in dict.fromkeys([*going, *others_lost])),
            sql_steps=_steps(layout, self._may_end()), native_steps=(VALIDATE,), warnings=tuple(warnings), detail={"layout": layout.as_record()},
        )  # fmt: skip


_SWAP_SECONDS = 0.1
_FIRST_ROWS_MIN, _FIRST_ROWS, _FIRST_BYTES = 16, 10_000, 4 << 20
_TIMES_WRITTEN = 1.2
_TIMES_DISK = 1.2
"""Copy, indexes, and the log while they are made, beside what the table has now."""


def _plan(index: ShapeIndex, *, is_key: bool, tablespace: str | None) -> IndexPlan:
    key = index.key
    deferring = "" if key is None or not key.deferrable else " DEFERRABLE INITIALLY DEFERRED" if key.deferred else " DEFERRABLE"
    return IndexPlan(
        index.name, unique=index.unique, rest=index.rest, kind=None if key is None else key.kind, constraint="" if key is None else key.text,
        deferring=deferring, is_key=is_key, tablespace=tablespace,
    )  # fmt: skip


def _driver(driver: object) -> PostgresDriver:
    assert isinstance(driver, PostgresDriver)
    return driver


def _steps(layout: Layout, may_end: str) -> tuple[SqlStep, ...]:
    names = Names(layout, 0)
    unlogged = "UNLOGGED " if layout.unlogged else ""
    copy = f"INSERT INTO {names.shadow} {layout.insert}\nSELECT {layout.values}\nFROM {layout.source}\nWHERE key in a range"
    builds = ";\n".join(f"{one.name}: {one.rest}" if one.name else f"for the time of the job: {one.rest}" for one in layout.indexes)
    swap = (
        f"ALTER TABLE {layout.source} RENAME TO …;\nALTER TABLE {names.shadow} RENAME TO {quote(layout.table)};\n"
        "names of keys and indexes, grants, policies, triggers, views, publications, sequences and foreign keys (NOT VALID) as they are"
    )
    return (
        SqlStep("capture", f"CREATE {unlogged}TABLE {names.shadow} ({layout.create}){layout.options};\na log of changed keys, and triggers on {layout.source} that write it",
                "SHARE ROW EXCLUSIVE, tried for moments: writers wait", "milliseconds"),
        SqlStep("copy", copy, "none that keeps anybody out", f"chunks of about {_CHUNK_TEXT}"),
        SqlStep("indexes", builds, "none on the table itself", "as long as each takes to build"),
        SqlStep("catch up", "apply the log: the current row of each changed key", "none that keeps anybody out", f"batches of about {_CHUNK_TEXT}"),
        SqlStep("verify", "compare every row with its copy, in chunks", "none that keeps anybody out", f"chunks of about {_CHUNK_TEXT}"),
        SqlStep("cut over", swap, f"ACCESS EXCLUSIVE on it, on tables joined to it by foreign keys and on views over it, tried for moments{may_end}", estimate.hold_text(_SWAP_SECONDS)),
        SqlStep("validate", "VALIDATE CONSTRAINT for each foreign key", "SHARE UPDATE EXCLUSIVE: readers and writers go on", "as long as a scan takes"),
    )  # fmt: skip


_CHUNK_TEXT = "0.1 s"
