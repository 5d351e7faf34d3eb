"""From a change to the way that it is carried out: the cheapest that does it right. Nothing is made here.

Tried in this order: the database's own statement where it touches no row or is over within the lock's budget; a rebuild in
one transaction where that is; a shadow table. A person may ask for one of them.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tideshift.ddl.change import (
    Action,
    AddColumn,
    AddConstraint,
    AlterTable,
    Change,
    CreateIndex,
    DropColumn,
    DropIndex,
    Reindex,
    RenameColumn,
    RenameTable,
    SetColumnType,
    SetNotNull,
    SetOption,
    TableName,
)
from tideshift.ddl.dialect import Claim, Reshaping, Strategy
from tideshift.ddl.tokens import same_name, significant
from tideshift.dialects.sqlite import estimate, explain
from tideshift.dialects.sqlite.catalog import SourceTable, SqliteCatalog, find_table, near, shape_of
from tideshift.dialects.sqlite.create_index import parse_index
from tideshift.dialects.sqlite.create_table import ClauseKind, TableText, UnreadableText, identifiers, parse_table
from tideshift.dialects.sqlite.driver import SqliteDriver, quote
from tideshift.dialects.sqlite.foreign_keys import foreign_key_reasons
from tideshift.dialects.sqlite.layout import Layout, SourceIndex
from tideshift.dialects.sqlite.native import NativeChange, lets_unknown_pass, statement_of
from tideshift.dialects.sqlite.references import are_touched
from tideshift.dialects.sqlite.rehearsal import rehearsal, schema_rows, what_breaks
from tideshift.dialects.sqlite.reshape import Reshape, lay_out, refused, try_shapes
from tideshift.dialects.sqlite.scratch import TextRefused, schema_can_be_written, scratch
from tideshift.dialects.sqlite.table_edits import EditRefused, edited
from tideshift.dialects.sqlite.using import without_double_quotes
from tideshift.errors import NotFound
from tideshift.store.database import Transaction
from tideshift.store.tables import NAMESPACE

__all__ = ["Designer"]

_DEFENSIVE = (
    "this SQLite library does not let its schema table be written (it is built as defensive); "
    "use another one: pip install 'tideshift[sqlite]'"
)
_FOREIGN_KEYS = (
    "this SQLite library turns foreign_keys on by itself, which would look at every row that is purged; "
    "use another one: pip install 'tideshift[sqlite]'"
)


@dataclass(frozen=True)
class _Own:
    """The database's own way: statements, the longest hold that is expected, and whether no row is touched."""

    change: NativeChange
    hold_seconds: float
    instant: bool


class Designer:
    """Works one change out in the transaction that it is given."""

    def __init__(self, tx: Transaction, driver: SqliteDriver, catalog: SqliteCatalog, wished: Strategy | None) -> None:
        self.tx = tx
        self.driver = driver
        self.catalog = catalog
        self.wished = wished

    def design(self, change: Change) -> Reshaping:
        """Return the way, or raise `NotFound` or `PlanRefused` with every reason."""
        match change:
            case AlterTable():
                return self._alter(change)
            case CreateIndex():
                return self._create_index(change)
            case DropIndex():
                return self._drop_index(change)
            case Reindex():
                return self._reindex(change)

    # ── ALTER TABLE ───────────────────────────────────────────────────────────────────────────────────────────────

    def _alter(self, change: AlterTable) -> Reshaping:
        source = find_table(self.tx, change.table)
        self._see_names(source, change.actions)
        rows = self.catalog.rows_at_most(self.tx, change.table)
        if isinstance(change.actions[0], (RenameColumn, RenameTable)):
            return self._renamed(source, change.actions[0], rows)
        asked = Reshape(source=source, new_text=self._new_text(source, change.actions), actions=change.actions)
        if asked.new_text == source.text and self.wished is None and not any(getattr(action, "using", None) for action in change.actions):
            nothing = _Own(NativeChange((), (), ()), 0.0, instant=True)
            return self._native(source, nothing, layout=None, asked=None, told=(f"{source.name} has what is asked for already",))
        try_shapes(asked, self.driver)
        self._see_quoted_names(source, change.actions)
        dropped = [action.column for action in change.actions if isinstance(action, DropColumn)]
        broken = what_breaks(self.tx, self.driver, source.name, asked.new_text, dropped=dropped)
        if broken:
            raise refused(source, [f"it would break {one}" for one in broken])
        own = self._own_statements(asked, rows)
        if own is not None and self._allows(own):
            layout = lay_out(self.tx, asked, self.driver, captured=False)
            if not _refers_at_once(layout):
                return self._native(source, own, layout=layout, asked=asked)
        return self._rebuilt(asked, rows)

    def _see_names(self, source: SourceTable, actions: tuple[Action, ...]) -> None:
        """See that every column that is named is there, or comes by an action before."""
        names = [column[0] for column in shape_of(self.tx, source.name).columns]
        for action in actions:
            column: str | None = getattr(action, "column", None)
            if isinstance(action, AddColumn):
                names.append(action.column)
            elif column is not None and not any(same_name(column, name) for name in names):
                raise NotFound(f"table {source.name!r} has no column {column!r}", hint=near(column, names), table=source.name, column=column)

    def _new_text(self, source: SourceTable, actions: tuple[Action, ...]) -> str:
        text = source.text
        try:
            for action in actions:
                text = edited(text, action)
        except (EditRefused, UnreadableText) as error:
            raise refused(source, [str(error)]) from error
        return text

    def _see_quoted_names(self, source: SourceTable, actions: tuple[Action, ...]) -> None:
        """See that no name in double quotes in what is added names nothing: to the library it would be a string, in every row."""
        text = self._new_text(source, tuple(map(_in_other_quotes, actions)))
        with scratch(self.driver) as trial:
            try:
                trial.run(text)
            except TextRefused as error:
                raise refused(source, [f"a name in double quotes names nothing, and a string stands in single quotes: {error}"]) from error

    def _own_statements(self, asked: Reshape, rows: int) -> _Own | None:
        """Rehearse the database's own statements; None where it has none, this version takes them not, or makes something else of them."""
        source = asked.source
        found = [statement_of(source.name, action) for action in asked.actions]
        statements = [one[0] for one in found if one is not None]
        kinds = [one[1] for one in found if one is not None]
        if len(statements) != len(asked.actions):
            return None
        if any(isinstance(action, AddConstraint) for action in asked.actions) and not lets_unknown_pass(self.driver):
            return None
        with rehearsal(self.tx, self.driver, filled=source.name if rows else None) as trial:
            if rows and not trial.has_row:
                return None
            try:
                rehearsed = trial.run(statements)
            except TextRefused:
                return None
        if rehearsed.broken:
            raise refused(source, [f"it would break {one}" for one in rehearsed.broken])
        made = rehearsed.changed.get(("table", source.name))
        if set(rehearsed.changed) != {("table", source.name)} or made is None or not _reads_the_same(made.text or "", asked.new_text):
            return None
        if parse_table(source.text).strict:
            # SQLite looks at every row of a STRICT table that gets a column.
            kinds = ["scan" if isinstance(action, AddColumn) else kind for action, kind in zip(asked.actions, kinds, strict=True)]
        row_bytes = self.catalog.row_bytes(self.tx, source.name)
        hold = sum(estimate.seconds(kind, rows, row_bytes=row_bytes) for kind in kinds)
        return _Own(NativeChange.of(statements, schema_rows(self.tx), rehearsed), hold, all(kind == "catalogue" for kind in kinds))

    def _allows(self, own: _Own) -> bool:
        """Whether the database's own statements are the way to go."""
        if self.wished is None:
            return own.instant or own.hold_seconds <= estimate.LOCK_BUDGET_SECONDS
        return self.wished is Strategy.DIRECT or (self.wished is Strategy.INSTANT and own.instant)

    def _renamed(self, source: SourceTable, action: RenameColumn | RenameTable, rows: int) -> Reshaping:
        if isinstance(action, RenameTable):
            _see_name(source, action.new_name)
        if self.wished is Strategy.SHADOW_TABLE:
            raise refused(source, ["a rename is the database's own, at once; no shadow table is needed"])
        statement = statement_of(source.name, action)
        assert statement is not None
        with rehearsal(self.tx, self.driver, filled=None) as trial:
            try:
                rehearsed = trial.run([statement[0]])
            except TextRefused as error:
                raise refused(source, [f"the library refuses it: {error}"]) from error
        if rehearsed.broken:
            raise refused(source, [f"it would break {one}" for one in rehearsed.broken])
        own = _Own(NativeChange.of([statement[0]], schema_rows(self.tx), rehearsed), estimate.seconds("catalogue", rows), instant=True)
        new_name = action.new_name if isinstance(action, RenameTable) else None
        return self._native(source, own, layout=None, asked=None, new_name=new_name)

    # ── indexes ───────────────────────────────────────────────────────────────────────────────────────────────────

    def _create_index(self, change: CreateIndex) -> Reshaping:
        source = find_table(self.tx, change.table)
        _see_name(source, change.name)
        taken = self.tx.run_verbatim("SELECT type FROM sqlite_master WHERE name = ? COLLATE NOCASE", (change.name,)).scalar()
        if taken is not None:
            raise refused(source, [f"there is {'an' if taken == 'index' else 'a'} {taken} {change.name!r} already"])
        rows = self.catalog.rows_at_most(self.tx, change.table)
        with rehearsal(self.tx, self.driver, filled=source.name if rows else None) as trial:
            try:
                rehearsed = trial.run([change.text])
                trial.run([f"DROP INDEX {quote(change.name)}", without_double_quotes(change.text)])
            except TextRefused as error:
                raise refused(source, [f"the library refuses the index: {error}"]) from error
        ((_, made),) = rehearsed.changed.items()
        assert made is not None
        assert made.text is not None
        own = _Own(
            NativeChange.of([made.text], schema_rows(self.tx), rehearsed),
            estimate.seconds("index", rows, row_bytes=self.catalog.row_bytes(self.tx, source.name)),
            instant=False,
        )
        if self._allows(own):
            return self._native(source, own, layout=None, asked=None, may_refuse=parse_index(made.text).unique)
        added = SourceIndex(made.name, made.text)
        return self._rebuilt(Reshape(source=source, new_text=source.text, actions=(), added_indexes=(added,)), rows)

    def _drop_index(self, change: DropIndex) -> Reshaping:
        source, name = self._index(change.index)
        if self.wished is Strategy.SHADOW_TABLE:
            raise refused(source, ["an index is dropped by the database's own statement; no shadow table is needed"])
        shape = shape_of(self.tx, source.name)
        left = replace(shape, indexes=tuple(index for index in shape.indexes if index.name != name))
        needed = foreign_key_reasons(self.tx, source.name, left, source.text, self.driver)
        if needed:
            raise refused(source, needed)
        rows = self.catalog.rows_at_most(self.tx, TableName(None, source.name))
        statement = f"DROP INDEX {quote(name)}"
        with rehearsal(self.tx, self.driver, filled=None) as trial:
            try:
                rehearsed = trial.run([statement])
            except TextRefused as error:
                raise refused(source, [f"the library refuses it: {error}"]) from error
        own = _Own(NativeChange.of([statement], schema_rows(self.tx), rehearsed), estimate.seconds("drop index", rows), instant=False)
        return self._native(source, own, layout=None, asked=None)

    def _reindex(self, change: Reindex) -> Reshaping:
        name = change.name
        table = self.tx.run_verbatim("SELECT name FROM sqlite_master WHERE type = 'table' AND name = ? COLLATE NOCASE", (name.name,)).scalar()
        source, index = (find_table(self.tx, name), None) if table is not None else self._index(name, automatic=True)
        rows = self.catalog.rows_at_most(self.tx, TableName(None, source.name))
        number = 1 if index is not None else len(source.indexes) + len(source.automatic_indexes)
        statement = f"REINDEX {quote(index if index is not None else source.name)}"
        hold = number * estimate.seconds("index", rows, row_bytes=self.catalog.row_bytes(self.tx, source.name))
        own = _Own(NativeChange((statement,), (), ()), hold, instant=False)
        if self._allows(own):
            return self._native(source, own, layout=None, asked=None)
        return self._rebuilt(Reshape(source=source, new_text=source.text, actions=()), rows)

    def _index(self, name: TableName, *, automatic: bool = False) -> tuple[SourceTable, str]:
        """Find an index of the user's; raise `NotFound` with near names."""
        rows = self.tx.run_verbatim("SELECT name, tbl_name, sql FROM sqlite_master WHERE type = 'index'").rows
        for found, table, text in rows:
            if not same_name(found, name.name) or (name.schema or "main").lower() != "main":
                continue
            source = find_table(self.tx, TableName(None, table))
            if text is None and not automatic:
                raise refused(source, [f"index {found!r} belongs to a constraint: drop the constraint by ALTER TABLE"])
            return source, found
        names = [found for found, _, text in rows if text is not None]
        raise NotFound(f"there is no index {str(name)!r}", hint=near(name.name, names), index=name.name)

    # ── the ways ──────────────────────────────────────────────────────────────────────────────────────────────────

    def _native(
        self,
        source: SourceTable,
        own: _Own,
        *,
        layout: Layout | None,
        asked: Reshape | None,
        new_name: str | None = None,
        may_refuse: bool = False,
        told: tuple[str, ...] = (),
    ) -> Reshaping:
        if self.wished is Strategy.INSTANT and not own.instant:
            raise refused(source, ["rows must be read or written for it"])
        strategy = Strategy.INSTANT if own.instant else Strategy.DIRECT
        tried_first = layout is not None and asked is not None and own.change.statements != () and _may_refuse(layout, asked)
        hold = estimate.hold_text(own.hold_seconds)
        steps = explain.native_steps(own.change.statements, hold)
        claims = [Claim(str(row.table).lower()) for row in own.change.before]
        claims += [Claim(source.name.lower())] + ([Claim(new_name.lower())] if new_name is not None else [])
        return Reshaping(
            table=TableName(None, source.name),
            strategy=strategy,
            claims=tuple(dict.fromkeys(claims)),
            key_columns=() if layout is None else layout.shown_key,
            may_refuse_rows=tried_first or may_refuse,
            tries_rows_first=tried_first,
            sees_references=False,
            hold_seconds=own.hold_seconds,
            sql_steps=steps,
            warnings=(*told, *_waits(own.hold_seconds)),
            detail={"layout": None if layout is None else layout.as_record(), "native": own.change.as_record()},
        )

    def _rebuilt(self, asked: Reshape, rows: int) -> Reshaping:
        """Rebuild the table: in one transaction where it is small or this is wished for, else by a shadow table."""
        source = asked.source
        reasons = [] if schema_can_be_written(self.driver) else [_DEFENSIVE]
        if self.tx.run_verbatim("PRAGMA foreign_keys").scalar():
            reasons.append(_FOREIGN_KEYS)
        if self.wished is Strategy.INSTANT:
            reasons.append("every row must be written again")
        if reasons:
            raise refused(source, reasons)
        layout = lay_out(self.tx, asked, self.driver, captured=False)
        hold = estimate.rebuild_seconds(rows, indexes=len(layout.new_indexes) + len(layout.new.automatic_indexes), row_bytes=layout.row_bytes)
        direct = self.wished is Strategy.DIRECT or (self.wished is None and hold <= estimate.LOCK_BUDGET_SECONDS)
        if not direct:
            layout = lay_out(self.tx, asked, self.driver, captured=True)
        tried_first = _may_refuse(layout, asked)
        steps = explain.direct_steps(layout, estimate.hold_text(hold), tried_first=tried_first) if direct else explain.shadow_steps(
            layout, tried_first=tried_first
        )
        warned = explain.warnings(self.tx, layout, asked.actions, captured=not direct) + (_waits(hold) if direct else [])
        return Reshaping(
            table=TableName(None, source.name),
            strategy=Strategy.DIRECT if direct else Strategy.SHADOW_TABLE,
            claims=(Claim(source.name.lower()),),
            key_columns=layout.shown_key,
            may_refuse_rows=tried_first or any(parse_index(index.text).unique for index in asked.added_indexes),
            tries_rows_first=tried_first,
            sees_references=are_touched(self.tx, layout),
            hold_seconds=hold if direct else estimate.CHUNK_TARGET_SECONDS,
            sql_steps=steps,
            warnings=tuple(warned),
            detail={"layout": layout.as_record(), "native": None},
        )


def _see_name(source: SourceTable, name: str) -> None:
    if name.lower().startswith(f"{NAMESPACE}_"):
        raise refused(source, [f"names that begin with {NAMESPACE}_ are tideshift's own"])


def _in_other_quotes(action: Action) -> Action:
    match action:
        case AddColumn():
            return replace(action, definition=without_double_quotes(action.definition))
        case AddConstraint():
            return replace(action, text=without_double_quotes(action.text))
    return action


def _refers_at_once(layout: Layout) -> bool:
    """Whether rows that are there get a value by which they refer to another row, so that they must be looked at."""
    filled = {one.name for one in layout.mapped if one.value not in ("NULL", quote(one.name))}
    return any(child in filled for reference in layout.new_references for child, _ in reference.columns)


def _reads_the_same(text: str, other: str) -> bool:
    """Whether two texts are the same but for blanks and comments."""
    return [token.text for token in significant(text)] == [token.text for token in significant(other)]


def _waits(hold_seconds: float) -> list[str]:
    if hold_seconds <= 0.1:
        return []
    return [f"the write lock is held for about {hold_seconds:.1f} s: every writer waits that long, and fails where its busy_timeout is shorter"]


def _may_refuse(layout: Layout, asked: Reshape) -> bool:
    """Whether a row can exist that the new shape refuses: STRICT, an expression that may fail, or a rule that looks at what changes."""
    new = parse_table(layout.new.text)
    demanding = (AddConstraint, SetNotNull, SetOption)
    if any(isinstance(action, demanding) for action in asked.actions):
        return True
    if any(isinstance(action, AddColumn) and _demands(new, action.column) for action in asked.actions):
        return True
    typed = [action for action in asked.actions if isinstance(action, SetColumnType)]
    if not typed:
        return False
    if new.strict or any(action.using is not None for action in typed):
        return True
    looking = [clause for clause in new.clauses() if clause.kind in (ClauseKind.GENERATED, ClauseKind.CHECK)]
    return any(_mentions(new, clause.expression, action.column) for clause in looking for action in typed)


def _demands(table: TableText, column: str) -> bool:
    kinds = (ClauseKind.NOT_NULL, ClauseKind.CHECK, ClauseKind.UNIQUE, ClauseKind.REFERENCES, ClauseKind.GENERATED, ClauseKind.PRIMARY_KEY)
    return any(clause.kind in kinds for clause in table.column(column).clauses)


def _mentions(table: TableText, span: tuple[int, int] | None, column: str) -> bool:
    assert span is not None
    return any(same_name(word, column) for word in identifiers(table.text[span[0] : span[1]]))
