"""How a change is carried out on PostgreSQL: worked out from the catalogue, the server's version and a try on an empty copy.

An action is a clause of one short ALTER TABLE where the server only writes its catalogue for it. Where it would look at
rows or build an index under a lock, that part is done beside the traffic first (`recipe`), unless the table is so small
that the lock is held for moments. What would write a large table again is refused.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tideshift.ddl.change import (
    Action,
    AddColumn,
    AddConstraint,
    AlterObject,
    AlterTable,
    Change,
    CreateIndex,
    DatabaseForm,
    DropColumn,
    DropConstraint,
    DropIndex,
    DropNotNull,
    MoveColumn,
    Reindex,
    RenameColumn,
    RenameTable,
    SetColumnType,
    SetDefault,
    SetNotNull,
    SetOption,
    TableName,
)
from tideshift.ddl.reshaping import ArtifactName, Claim, NativeStep, Reshaping, RowWork, SqlStep, StepKind, Strategy
from tideshift.dialects.postgres import attaching, constraints, estimate, forms, indexes, objects
from tideshift.dialects.postgres.definition import read_definition
from tideshift.dialects.postgres.dependants import going_with, missing_uses, of_column
from tideshift.dialects.postgres.driver import quote
from tideshift.dialects.postgres.in_place_design import design_in_place
from tideshift.dialects.postgres.locks import EVERYBODY, Lock
from tideshift.dialects.postgres.names import own_name, qualified
from tideshift.dialects.postgres.partitions import leaves, owned_by_others
from tideshift.dialects.postgres.recipe import Recipe
from tideshift.dialects.postgres.rehearsal import PROBE, Probe, Refused, probe
from tideshift.dialects.postgres.reindexing import reindex
from tideshift.dialects.postgres.shadow_design import design_shadow
from tideshift.dialects.postgres.source import SourceTable, find_table, own_search_path, user_path
from tideshift.dialects.postgres.view_trial import try_views
from tideshift.dialects.postgres.views import Views
from tideshift.errors import PlanRefused
from tideshift.store.database import Transaction

__all__ = ["Designer"]


@dataclass
class _Cost:
    """What the last statement would do under its lock."""

    seconds: float = 0.0
    rewrites: bool = False
    may_refuse: bool = False
    needs_copy: bool = False
    """Whether there is no way beside the traffic but a copy of the table."""
    no_copy: str | None = None
    """Why a copy could not do it."""
    warnings: list[str] = field(default_factory=list)


class Designer:
    """Works one change out in the transaction that it is given."""

    def __init__(self, tx: Transaction, wished: Strategy | None, *, column_order_may_change: bool = False) -> None:
        self.tx = tx
        self.wished = wished
        self.column_order_may_change = column_order_may_change
        self.cost = _Cost()
        self.reasons: list[str] = []
        self.retyped: list[int] = []
        """The numbers of columns that get another type."""

    def design(self, change: Change) -> Reshaping:
        """Return the way, or raise `NotFound` or `PlanRefused` with every reason."""
        if self.tx.run_verbatim("SELECT pg_catalog.pg_is_in_recovery()").scalar():
            raise PlanRefused("this server is a read replica", reasons=["nothing can be written on a read replica"], hint="Give the URL of the primary.")
        match change:
            case AlterTable():
                return self._alter(change)
            case CreateIndex():
                return indexes.create(self, change)
            case DropIndex():
                return indexes.drop(self, change)
            case Reindex():
                return reindex(self, change)
            case AlterObject():
                return objects.alter(self, change)

    # ── ALTER TABLE ───────────────────────────────────────────────────────────────────────────────────────────────

    def _alter(self, change: AlterTable) -> Reshaping:
        source = self.table(change.table)
        self.reasons += [f"a privilege is missing: {grant}" for grant in missing_uses(self.tx, source.oid)]
        if self.reasons:  # Without its privileges the table cannot even be tried.
            raise self.refused(source)
        recipe = Recipe(source)
        if isinstance(change.actions[0], DatabaseForm) and change.actions[0].form in ("ATTACH PARTITION", "DETACH PARTITION") and len(change.actions) == 1:
            attaching.take(self, recipe, change.actions[0])
            return self.reshaping(recipe, shape=None)
        alone = [action.form for action in change.actions if isinstance(action, DatabaseForm) and action.form in forms.ALONE]
        if alone and len(change.actions) > 1:
            raise PlanRefused(f"{alone[0]} stands alone in its statement", reasons=[f"{alone[0]} stands alone in its statement"])
        if self.wished is Strategy.IN_PLACE_COLUMN:
            return design_in_place(self, change, source)
        if self.wished is Strategy.SHADOW_TABLE or any(_needs_order(action) for action in change.actions):
            return design_shadow(self, change, source)
        with probe(self.tx, source) as trial:
            for action in change.actions:
                self._take(recipe, trial, action)
            shape = trial.shape()
            self._see_views(source)
        by_copy = (self.cost.rewrites or self.cost.needs_copy) and self.cost.no_copy is None
        if not self.reasons and self.wished is None and by_copy and self.cost.seconds > estimate.LOCK_BUDGET_SECONDS:
            return self._rewritten(change, source)
        return self.reshaping(recipe, shape=None if isinstance(change.actions[0], (RenameColumn, RenameTable)) else shape)

    def _rewritten(self, change: AlterTable, source: SourceTable) -> Reshaping:
        """Take a shadow table; where that is refused, change the column in place, if that can be done and whoever asks allows it."""
        try:
            return design_shadow(self, change, source)
        except PlanRefused as refused:
            self.reasons = []
            allowed, self.column_order_may_change = self.column_order_may_change, True
            try:
                reshaping = design_in_place(self, change, source)
            except PlanRefused:
                raise refused from None
            if not allowed:
                hint = "It can be done in place, where the order of columns changes: allow that with --allow-column-order-change."
                raise PlanRefused(refused.message, reasons=refused.fields["reasons"], hint=hint) from refused
            return reshaping

    def _take(self, recipe: Recipe, trial: Probe, action: Action) -> None:
        """Add one action to the recipe; whatever speaks against it is kept, so that all reasons are told at once."""
        source = recipe.source
        column = getattr(action, "column", None)
        if column is not None and not isinstance(action, AddColumn):
            source.column(column)
        match action:
            case AddColumn():
                self._add_column(recipe, trial, action)
            case DropColumn():
                self._see_unused(source, action.column, "is used by")
                recipe.dropped += going_with(self.tx, source.oid, source.column(action.column).number)
                self.clause(recipe, trial, f"DROP COLUMN {quote(action.column)}")
            case SetColumnType():
                self._type(recipe, trial, action)
            case SetDefault(default=default):
                change = "DROP DEFAULT" if default is None else f"SET DEFAULT {default}"
                self.clause(recipe, trial, f"ALTER COLUMN {quote(action.column)} {change}", fragment=default)
            case SetNotNull():
                self.not_null(recipe, trial, action.column)
            case DropNotNull():
                self.clause(recipe, trial, f"ALTER COLUMN {quote(action.column)} DROP NOT NULL")
            case AddConstraint():
                constraints.add(self, recipe, trial, action)
            case DropConstraint():
                constraints.drop(self, recipe, action)
            case _:
                self._take_other(recipe, trial, action)

    def _take_other(self, recipe: Recipe, trial: Probe, action: Action) -> None:
        match action:
            case RenameColumn():
                self.clause(recipe, trial, f"RENAME COLUMN {quote(action.column)} TO {quote(action.new_name)}")
            case RenameTable():
                recipe.clause(f"RENAME TO {quote(action.new_name)}", recurses=False)
            case DatabaseForm():
                forms.take(self, recipe, trial, action)
            case MoveColumn():
                raise AssertionError("another order of columns is a shadow table's")
            case SetOption():
                self.reasons.append(f"{action.option} is an option of SQLite's tables")

    def try_clause(self, trial: Probe, clause: str, *, fragment: str | None = None) -> bool:
        """Try a clause without adding it; keep the server's reason against it."""
        try:
            trial.run(clause, fragment=fragment)
        except Refused as error:
            self.reasons.append(f"the server refuses {clause}: {error}")
            return False
        return True

    def clause(self, recipe: Recipe, trial: Probe, clause: str, *, tried: str | None = None, fragment: str | None = None, mode: str = EVERYBODY, recurses: bool = True) -> None:
        """Add a clause to the last statement, after trying it (or what stands for it on the empty copy); `fragment` is the user's text in it."""
        try:
            touched = trial.run(clause if tried is None else tried, fragment=fragment)
        except Refused as error:
            self.reasons.append(f"the server refuses {clause}: {error}")
            return
        recipe.clause(clause, mode, recurses=recurses)
        source = recipe.source
        if touched.heap or touched.indexes:
            self.add_cost(estimate.write_seconds(source.bytes), rewrites=True)

    def add_cost(self, seconds: float, *, rewrites: bool = False) -> None:
        self.cost.seconds += seconds
        self.cost.rewrites |= rewrites

    def goes_online(self, seconds: float) -> bool:
        """Whether a scan or a build of this length is done beside the traffic; otherwise it is part of the last statement."""
        self.cost.may_refuse = True
        if self.wished is Strategy.DIRECT or (self.wished is None and self.cost.seconds + seconds <= estimate.LOCK_BUDGET_SECONDS):
            self.add_cost(seconds)
            return False
        return True

    def _add_column(self, recipe: Recipe, trial: Probe, action: AddColumn) -> None:
        source = recipe.source
        if any(one.name == action.column for one in source.columns):
            self.reasons.append(f"{source.name} has a column {action.column!r} already")
            return
        cut = read_definition(action.column, action.definition)
        if not cut.constraints:
            self.clause(recipe, trial, f"ADD COLUMN {action.definition}", fragment=action.definition)
            return
        if not self.goes_online(estimate.scan_seconds(source.bytes)):
            self.clause(recipe, trial, f"ADD COLUMN {action.definition}", tried=f"ADD COLUMN {cut.bare}", fragment=cut.bare)
            return
        before = self.cost.rewrites
        self.clause(recipe, trial, f"ADD COLUMN {cut.bare}", fragment=cut.bare)
        if not self.reasons and self.cost.rewrites is before:
            made = ArtifactName("column", qualified(source.schema, source.name, action.column))
            recipe.short("add the column", "add the column; nobody sees it in use yet", [f"ALTER TABLE {source.quoted} {recipe.clauses.pop()}"], makes=(made,))
        for text in cut.constraints:
            constraints.add_text(self, recipe, trial, text)

    def _type(self, recipe: Recipe, trial: Probe, action: SetColumnType) -> None:
        source, column = recipe.source, recipe.source.column(action.column)
        views = Views.read(self.tx, source.oid, changed=[column.number], moves=False)
        self.reasons += [f"{action.column} is used by {what}: drop or change that first" for what in of_column(self.tx, source.oid, column.number, but=views.followed)]
        self.retyped.append(column.number)
        using = "" if action.using is None else f" USING {action.using}"
        self.cost.may_refuse = True
        self.clause(recipe, trial, f"ALTER COLUMN {quote(action.column)} TYPE {action.type_text}{using}", fragment=action.using or action.type_text)
        times = {"timestamp without time zone", "timestamp with time zone"}
        became = next((str(one[1]) for one in trial.shape() if one[0] == action.column), "")
        if action.using is None and column.type_text != became and {_bare(column.type_text), _bare(became)} == times:
            self.reasons.append(f"what {action.column} means depends on a time zone: say which one, with USING {action.column} AT TIME ZONE '…'")

    def _see_views(self, source: SourceTable) -> None:
        """See that every view over a column that gets another type can be set aside and made anew over the new one."""
        views = Views.read(self.tx, source.oid, changed=self.retyped, moves=False)
        if self.reasons or not (self.retyped and views.views):
            return
        self.reasons += views.owned_by_others(self.tx) + views.obstacles(self.tx, {one.oid for one in views.over(views.touched)})
        if not self.reasons:
            tried = try_views(self.tx, views, source, copy=PROBE, columns=[(one.name, one.name) for one in source.columns])
            self.reasons += tried.reasons
            self.cost.warnings += tried.warnings

    def not_null(self, recipe: Recipe, trial: Probe, name: str) -> None:
        """Prove it by a check that is validated beside the traffic; SET NOT NULL then need not look itself."""
        source, column = recipe.source, recipe.source.column(name)
        clause = f"ALTER COLUMN {quote(name)} SET NOT NULL"
        if column.not_null:
            return
        if self.goes_online(estimate.scan_seconds(source.bytes)):
            check = own_name(0, source.quoted, f"not_null_{column.number}")
            made = ArtifactName("constraint", qualified(source.schema, source.name, check))
            added = f"ALTER TABLE {source.quoted} ADD CONSTRAINT {quote(check)} CHECK ({quote(name)} IS NOT NULL) NOT VALID"
            recipe.short(f"demand {name}", "from here on no write may leave it NULL", [added], makes=(made,))
            self.validate(recipe, check)
            recipe.statement(f"ALTER TABLE {source.quoted} DROP CONSTRAINT {quote(check)}")
        self.clause(recipe, trial, clause)

    def validate(self, recipe: Recipe, name: str) -> None:
        """Prove a constraint beside the traffic: in each partition by itself, then in the table, which has nothing left to do."""
        for leaf in leaves(self.tx, recipe.source.oid) if recipe.source.kind == "p" else ():
            recipe.validate(name, table=leaf.quoted)
        recipe.validate(name)

    def _see_unused(self, source: SourceTable, column: str, how: str) -> None:
        self.reasons += [f"{column} {how} {what}: drop or change that first" for what in of_column(self.tx, source.oid, source.column(column).number)]

    # ── the way ───────────────────────────────────────────────────────────────────────────────────────────────────

    @property
    def version(self) -> int:
        """Return the server's major version."""
        return int(self.tx.run_verbatim("SELECT pg_catalog.current_setting('server_version_num')").scalar()) // 10_000

    def table(self, name: TableName) -> SourceTable:
        """Find the table and see that this role may change it."""
        source = find_table(self.tx, name)
        self.see_owner(source)
        return source

    def see_owner(self, source: SourceTable) -> None:
        """Keep the reason, and the exact grants, where a privilege is missing."""
        role, database, creates, temporary = self.tx.run_verbatim(
            "SELECT current_user::text, current_database()::text, pg_catalog.has_schema_privilege($1::text, 'CREATE'),"
            " pg_catalog.has_database_privilege(current_database(), 'TEMPORARY')", (source.schema,)
        ).rows[0]  # fmt: skip
        if not source.owned:
            self.reasons.append(f"only the owner of {source.name} may change it: GRANT {quote(source.owner)} TO {quote(str(role))}")
        for name, owner in owned_by_others(self.tx, source.oid) if source.kind == "p" else ():
            self.reasons.append(f"only the owner of its partition {name} may change it: GRANT {quote(owner)} TO {quote(str(role))}")
        if not creates:
            self.reasons.append(f"a privilege is missing: GRANT CREATE ON SCHEMA {quote(source.schema)} TO {quote(str(role))}")
        if not temporary:
            self.reasons.append(f"a privilege is missing: GRANT TEMPORARY ON DATABASE {quote(str(database))} TO {quote(str(role))}")

    def refused(self, source: SourceTable) -> PlanRefused:
        """Make the error that tells every reason."""
        return PlanRefused(f"the change of {source.name!r} is refused: {'; '.join(self.reasons)}", reasons=self.reasons)

    def name_of(self, oid: int) -> tuple[str, str]:
        """Return a table's schema and name."""
        schema, name = self.tx.run_verbatim(
            "SELECT nspname::text, relname::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = $1", (oid,)
        ).rows[0]  # fmt: skip
        return str(schema), str(name)

    def oid_by_path(self, text: str) -> int | None:
        """Return what a name in a text of the user's means to a session of this role."""
        with user_path(self.tx, own_search_path(self.tx)):
            found = self.tx.run_verbatim("SELECT pg_catalog.to_regclass($1)::oid::bigint", (text,)).scalar()
        return None if found is None else int(found)

    def exists(self, schema: str, name: str) -> bool:
        """Whether a table, index or sequence of this name is there."""
        found = self.tx.run_verbatim("SELECT pg_catalog.to_regclass($1) IS NOT NULL", (qualified(schema, name),)).scalar()
        return bool(found)

    def reshaping(self, recipe: Recipe, *, shape: list[list[object]] | None, wanted: dict[str, object] | None = None) -> Reshaping:
        """Put everything together, or raise with every reason."""
        source, steps = recipe.source, recipe.finished()
        strategy = self._strategy(recipe)
        if self.reasons:
            raise self.refused(source)
        scans = any(step.kind is not StepKind.SHORT for step in steps)
        claims = (Claim(f"{source.schema}.{source.name}"), *(
            Claim(lock.table.replace('"', ""), "shared") for lock in recipe.others if lock.oid != source.oid and lock.table not in recipe.exclusive
        ), *(Claim(table.replace('"', "")) for table in recipe.exclusive))
        return Reshaping(
            table=TableName(source.schema, source.name),
            strategy=strategy,
            claims=claims,
            row_work=RowWork.REWRITE if self.cost.rewrites else RowWork.SCAN if scans or self.cost.seconds else RowWork.NONE,
            key_columns=(),
            may_refuse_rows=self.cost.may_refuse,
            hold_seconds=self.cost.seconds,
            row_seconds=estimate.scan_seconds(source.bytes) / max(source.rows, 1) if scans else 0.0,
            disk_bytes=source.bytes if any(step.kind is StepKind.ALONE for step in steps) or self.cost.rewrites else 0,
            drops=tuple(f"{what} goes with its column" for what in dict.fromkeys(recipe.dropped)),
            sql_steps=tuple(map(self._shown, steps)),
            native_steps=steps,
            warnings=tuple(self.cost.warnings),
            detail={
                "oid": source.oid, "table": source.quoted, "search_path": own_search_path(self.tx), "shape": shape, "wanted": wanted or {},
                "retyped": self.retyped, "before": [[one.name, one.type_text, one.not_null] for one in source.columns],
            },
        )  # fmt: skip

    def _strategy(self, recipe: Recipe) -> Strategy:
        too_long = self.cost.seconds > estimate.LOCK_BUDGET_SECONDS
        if too_long and self.wished is not Strategy.DIRECT:
            if self.cost.no_copy is not None:
                self.reasons.append(self.cost.no_copy)
            what = "the table or its indexes would be written again" if self.cost.rewrites else "every row would be looked at"
            self.reasons.append(f"{what} under a lock that keeps everybody out, for {estimate.hold_text(self.cost.seconds)}; --strategy direct does it all the same")
        found = Strategy.NATIVE_ONLINE if recipe.steps else Strategy.DIRECT if self.cost.seconds else Strategy.INSTANT
        if self.wished is Strategy.IN_PLACE_COLUMN:
            self.reasons.append("only a column's type is changed in place")
        if self.wished is Strategy.SHADOW_TABLE:
            self.reasons.append("an index comes and goes without a copy of the table")
        if self.wished is Strategy.INSTANT and found is not Strategy.INSTANT:
            self.reasons.append("rows must be read or written for it")
        return found

    def _shown(self, step: NativeStep) -> SqlStep:
        if step.kind is StepKind.SHORT:
            locked = [Lock(*one) for one in step.detail["locks"]]
            others = [f"{one.mode} on {one.table}" for one in locked[1:]]
            lock = f"{'; '.join([locked[0].mode, *others])}, tried for moments" if locked else "none"
            return SqlStep(step.name, ";\n".join(step.detail["sql"]), lock, estimate.hold_text(self.cost.seconds))
        hold = "as long as a scan takes" if step.kind is StepKind.LONG else "as long as it takes to build"
        return SqlStep(step.name, ";\n".join(step.detail["sql"]), "SHARE UPDATE EXCLUSIVE: readers and writers go on", hold)


def _needs_order(action: Action) -> bool:
    """Whether the columns of the table stand in another order afterwards, which only another table can have."""
    return isinstance(action, MoveColumn) or (isinstance(action, AddColumn) and action.position is not None)


def _bare(type_text: str) -> str:
    """Return a type without its precision: timestamp(3) with time zone."""
    head, opened, tail = type_text.partition("(")
    return head + tail.partition(")")[2] if opened else type_text
