"""From a change to the way that it is carried out: the cheapest that does it right. Nothing is made here."""

from __future__ import annotations

from collections.abc import Sequence

from tideshift.ddl.change import (
    Action,
    AddColumn,
    AddConstraint,
    AlterObject,
    AlterTable,
    Change,
    CreateIndex,
    DropColumn,
    DropIndex,
    Reindex,
    RenameColumn,
    RenameTable,
)
from tideshift.ddl.dialect import Reshaping, RowWork, Strategy
from tideshift.ddl.tokens import same_name, significant
from tideshift.dialects.sqlite import estimate
from tideshift.dialects.sqlite.catalog import SourceTable, SqliteCatalog, columns_of, find_table, near
from tideshift.dialects.sqlite.create_index import index_with_word
from tideshift.dialects.sqlite.create_table import parse_table
from tideshift.dialects.sqlite.design_index import IndexDesigner
from tideshift.dialects.sqlite.driver import SqliteDriver, quote
from tideshift.dialects.sqlite.fragments import see_fragments
from tideshift.dialects.sqlite.layout import Layout
from tideshift.dialects.sqlite.native import NativeChange, lets_unknown_pass, statement_of
from tideshift.dialects.sqlite.objections import edited_by_all, objections
from tideshift.dialects.sqlite.rehearsal import rehearsal, schema_rows
from tideshift.dialects.sqlite.reshape import Reshape, lay_out, refused
from tideshift.dialects.sqlite.scratch import TextRefused
from tideshift.dialects.sqlite.ways import Own, Ways, see_name
from tideshift.errors import NotFound
from tideshift.store.database import Transaction

__all__ = ["Designer"]

_ROW_WORK = {"catalogue": RowWork.NONE, "scan": RowWork.SCAN, "rewrite": RowWork.REWRITE}
_MORE_AND_MORE = list(_ROW_WORK.values())


class Designer:
    """Works one change out in the transaction that it is given."""

    def __init__(self, tx: Transaction, driver: SqliteDriver, catalog: SqliteCatalog, wished: Strategy | None) -> None:
        self.tx = tx
        self.driver = driver
        self.catalog = catalog
        self.wished = wished
        self.ways = Ways(tx, driver, wished)

    def design(self, change: Change) -> Reshaping:
        """Return the way, or raise `NotFound` or `PlanRefused` with every reason."""
        match change:
            case AlterTable():
                return self._alter(change)
            case CreateIndex():
                return IndexDesigner(self.ways, self.catalog).create(change)
            case DropIndex():
                return IndexDesigner(self.ways, self.catalog).drop(change)
            case Reindex():
                return IndexDesigner(self.ways, self.catalog).reindex(change)
            case AlterObject():
                raise AssertionError("the grammar has no such statement")

    def _alter(self, change: AlterTable) -> Reshaping:
        source = find_table(self.tx, change.table)
        self._see_names(source, change.actions)
        see_fragments(self.driver, source.name, columns_of(self.tx, source), change.actions)
        rows = self.catalog.rows_at_most(self.tx, change.table)
        if isinstance(change.actions[0], (RenameColumn, RenameTable)):
            return self._renamed(source, change.actions[0], rows)
        asked, reasons = edited_by_all(source, change.actions)
        nothing = asked.new_text == source.text and self.wished is None and not any(getattr(action, "using", None) for action in change.actions)
        if nothing and not reasons:
            own = Own(change=NativeChange((), (), ()), hold_seconds=0.0, row_work=RowWork.NONE, instant=True)
            return self.ways.native(source, own, told=(f"{source.name} has what is asked for already",))
        # Without a column that could not be added, the library would only say so again of whatever names it.
        if all(action in asked.actions or not isinstance(action, AddColumn) for action in change.actions):
            reasons += objections(self.tx, asked, self.driver)
        if reasons:
            raise refused(source, list(dict.fromkeys(reasons)))
        own_way = self._own_statements(asked, rows)
        if own_way is not None and self.ways.allows(own_way):
            layout = lay_out(self.tx, asked, self.driver, captured=False)
            if not _refers_at_once(layout):
                return self.ways.native(source, own_way, laid_out=(layout, asked))
        return self.ways.rebuilt(asked, rows)

    def _see_names(self, source: SourceTable, actions: tuple[Action, ...]) -> None:
        """See that every column that is named is there, or comes by an action before."""
        names = columns_of(self.tx, source)
        for action in actions:
            column: str | None = getattr(action, "column", None)
            if isinstance(action, AddColumn):
                names.append(action.column)
            elif column is not None and not any(same_name(column, name) for name in names):
                raise NotFound(f"table {source.name!r} has no column {column!r}", hint=near(column, names), table=source.name, column=column)

    def _own_statements(self, asked: Reshape, rows: int) -> Own | None:
        """Rehearse the database's own statements; None where it has none, this version takes them not, or makes something else of them."""
        source = asked.source
        found = [statement_of(source.name, action) for action in asked.actions]
        statements = [one[0] for one in found if one is not None]
        kinds = [one[1] for one in found if one is not None]
        if len(statements) != len(asked.actions):
            return None
        if _come_and_go(asked.actions):
            return None  # Each statement would look at rows for what is gone in the end.
        if any(isinstance(action, AddColumn) and index_with_word(source.indexes, action.column) for action in asked.actions):
            return None  # The library would leave that index as it was made, by what the word meant then.
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
        return Own(
            change=NativeChange.of(statements, schema_rows(self.tx), rehearsed),
            hold_seconds=sum(estimate.seconds(kind, rows, row_bytes=row_bytes) for kind in kinds),
            row_work=max((_ROW_WORK[kind] for kind in kinds), key=_MORE_AND_MORE.index),
            instant=all(kind == "catalogue" for kind in kinds),
            disk_bytes=kinds.count("rewrite") * estimate.rewritten_bytes(rows, row_bytes=row_bytes),
        )

    def _renamed(self, source: SourceTable, action: RenameColumn | RenameTable, rows: int) -> Reshaping:
        if isinstance(action, RenameTable):
            see_name(source, action.new_name)
        if self.wished is Strategy.SHADOW_TABLE:
            raise refused(source, ["a rename is the database's own, at once; no shadow table is needed"])
        other = isinstance(action, RenameColumn) and not same_name(action.column, action.new_name)
        if other and (meant := index_with_word(source.indexes, action.new_name)) is not None:
            raise refused(source, [f"index {meant!r} has the word {action.new_name!r} with another meaning; drop it first"])
        statement = statement_of(source.name, action)
        assert statement is not None
        with rehearsal(self.tx, self.driver, filled=None) as trial:
            try:
                rehearsed = trial.run([statement[0]])
            except TextRefused as error:
                raise refused(source, [f"the library refuses it: {error}"]) from error
        if rehearsed.broken:
            raise refused(source, [f"it would break {one}" for one in rehearsed.broken])
        own = Own(
            change=NativeChange.of([statement[0]], schema_rows(self.tx), rehearsed),
            hold_seconds=estimate.seconds("catalogue", rows),
            row_work=RowWork.NONE,
            instant=True,
        )
        return self.ways.native(source, own, new_name=action.new_name if isinstance(action, RenameTable) else None)


def _refers_at_once(layout: Layout) -> bool:
    """Whether rows that are there get a value by which they refer to another row, so that they must be looked at."""
    filled = {one.name for one in layout.mapped if one.value not in ("NULL", quote(one.name))}
    return any(child in filled for reference in layout.new_references for child, _ in reference.columns)


def _come_and_go(actions: Sequence[Action]) -> bool:
    """Whether a column is dropped that another action is about."""
    named = [getattr(action, "column", None) or "" for action in actions]
    dropped = [action.column for action in actions if isinstance(action, DropColumn)]
    return any(sum(same_name(name, column) for name in named) > 1 for column in dropped)


def _reads_the_same(text: str, other: str) -> bool:
    """Whether two texts are the same but for blanks and comments."""
    return [token.text for token in significant(text)] == [token.text for token in significant(other)]
