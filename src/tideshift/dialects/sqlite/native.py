"""Changes in one short transaction: the database's own statements, or a rebuild of a small table.

Whatever is done is compared with what the rehearsal did in memory, or with the planned shape, before it is committed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tideshift.ddl.change import (
    Action,
    AddColumn,
    AddConstraint,
    ConstraintKind,
    DropColumn,
    DropConstraint,
    DropNotNull,
    RenameColumn,
    RenameTable,
    SetNotNull,
)
from tideshift.ddl.reshaping import ArtifactName, Reorg
from tideshift.dialects import points
from tideshift.dialects.sqlite import cutover
from tideshift.dialects.sqlite.create_index import parse_index
from tideshift.dialects.sqlite.create_table import ClauseKind, parse_table
from tideshift.dialects.sqlite.driver import SqliteDriver, quote
from tideshift.dialects.sqlite.fingerprint import check_source
from tideshift.dialects.sqlite.layout import Layout
from tideshift.dialects.sqlite.references import see_all_references
from tideshift.dialects.sqlite.rehearsal import Name, Rehearsed, SchemaRow, schema_rows
from tideshift.dialects.sqlite.rows import ROW_REFUSED, insert_rows, refusal
from tideshift.dialects.sqlite.scratch import TextRefused, scratch
from tideshift.dialects.sqlite.texts import index_texts, shadow_text
from tideshift.errors import SchemaChanged, TideshiftError, ValueRefused
from tideshift.store.database import Session, Transaction
from tideshift.store.keys import KeyRange

__all__ = ["NativeChange", "SqliteNative", "lets_unknown_pass", "statement_of"]

_ROWS_AT_ONCE = 10_000


@dataclass(frozen=True)
class NativeChange:
    """Statements of the database's own, the user's objects as they must be before, and as they will be after (None: gone)."""

    statements: tuple[str, ...]
    before: tuple[SchemaRow, ...]
    after: tuple[tuple[Name, SchemaRow | None], ...]

    @classmethod
    def of(cls, statements: Sequence[str], rows: Sequence[SchemaRow], rehearsed: Rehearsed, *, of: str | None = None) -> NativeChange:
        """Put together what was rehearsed; `of` is a table that does not change and must be as it was, since something is made of it."""
        concerned = tuple(row for row in rows if (row.kind, row.name) in rehearsed.changed or (row.kind, row.name) == ("table", of))
        return cls(tuple(statements), concerned, tuple(sorted(rehearsed.changed.items(), key=lambda one: one[0])))

    def as_record(self) -> dict[str, Any]:
        """Give the stored form."""
        after = [[*name, None if row is None else _record(row)] for name, row in self.after]
        return {"statements": list(self.statements), "before": [_record(row) for row in self.before], "after": after}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> NativeChange:
        """Read the stored form."""
        after = tuple(((kind, name), None if row is None else SchemaRow(*row)) for kind, name, row in record["after"])
        return cls(tuple(record["statements"]), tuple(SchemaRow(*row) for row in record["before"]), after)


def _record(row: SchemaRow) -> list[str | None]:
    return [row.kind, row.name, row.table, row.text]


def statement_of(table: str, action: Action) -> tuple[str, str] | None:
    """Return the database's own statement for an action and what kind of work it is, or None where it has none.

    Whether this version of the library takes it, the rehearsal tells.
    """
    alter = f"ALTER TABLE {quote(table)}"
    match action:
        case AddColumn(position=None):
            return f"{alter} ADD COLUMN {action.definition}", "scan" if _is_checked(action.definition) else "catalogue"
        case DropColumn():
            return f"{alter} DROP COLUMN {quote(action.column)}", "rewrite"
        case RenameColumn():
            return f"{alter} RENAME COLUMN {quote(action.column)} TO {quote(action.new_name)}", "catalogue"
        case RenameTable():
            return f"{alter} RENAME TO {quote(action.new_name)}", "catalogue"
        case SetNotNull():
            conflict = f" ON CONFLICT {action.conflict}" if action.conflict else ""
            return f"{alter} ALTER COLUMN {quote(action.column)} SET NOT NULL{conflict}", "scan"
        case DropNotNull():
            return f"{alter} ALTER COLUMN {quote(action.column)} DROP NOT NULL", "catalogue"
        case AddConstraint(constraint=ConstraintKind.CHECK):
            return f"{alter} ADD {action.text}", "scan"
        case DropConstraint(name=str() as name):
            return f"{alter} DROP CONSTRAINT {quote(name)}", "catalogue"
    return None


def lets_unknown_pass(driver: SqliteDriver) -> bool:
    """Whether the library's ADD CHECK takes a row for which the condition is NULL, as every INSERT does; 3.53.4 does not."""
    with scratch(driver) as trial:
        trial.run("CREATE TABLE t (a INTEGER)")
        trial.run("INSERT INTO t VALUES (NULL)")
        try:
            trial.run("ALTER TABLE t ADD CONSTRAINT positive CHECK (a > 0)")
        except TextRefused:
            return False
    return True


def _is_checked(definition: str) -> bool:
    """Whether the library looks at every row for a new column: for a CHECK, and for a generated one that is never NULL."""
    kinds = {clause.kind for clause in parse_table(f"CREATE TABLE probe ({definition}\n)").clauses()}
    return ClauseKind.CHECK in kinds or {ClauseKind.GENERATED, ClauseKind.NOT_NULL} <= kinds


class SqliteNative:
    """What `Native` asks for."""

    def __init__(self, driver: SqliteDriver) -> None:
        self._driver = driver

    def artifacts(self, reorg: Reorg) -> list[ArtifactName]:
        """Name what stays behind for a while: the replaced table of a rebuild."""
        if reorg.reshaping.detail.get("native") is not None:
            return []
        layout = Layout.of(reorg)
        return [ArtifactName("shadow", layout.names(reorg).shadow)]

    def change(self, tx: Transaction, reorg: Reorg, *, step: int = 0, tries: int = 0) -> None:
        """Carry the change out, whole, and see that it did what was planned; raises `SchemaChanged` or `ValueRefused`."""
        native = reorg.reshaping.detail.get("native")
        if native is not None:
            self._run(tx, NativeChange.from_record(native), reorg)
        else:
            self._rebuild(tx, reorg)

    def made_by(self, reorg: Reorg, step: int) -> list[ArtifactName]:
        """Return nothing: a plan of this database has no step besides the change itself."""
        return []

    def run_long(self, tx: Transaction, reorg: Reorg, step: int, checkpoint: dict[str, Any]) -> dict[str, Any] | None:
        """Do nothing: no plan of this database has a long step."""
        raise AssertionError(f"step {step} of job {reorg.job_id}")

    def run_alone(self, session: Session, reorg: Reorg, step: int, *, gently: bool = False) -> None:
        """Do nothing: no plan of this database has a step that commits by itself."""
        raise AssertionError(f"step {step} of job {reorg.job_id}")

    def inspect(self, session: Session, reorg: Reorg) -> None:
        """See with a connection that did not change anything that it is as planned; raise `SchemaChanged`."""
        native = reorg.reshaping.detail.get("native")
        with session.transaction(write=False) as tx:
            if native is None:
                layout = Layout.of(reorg)
                cutover.see_swapped(tx, layout, cutover.final_shape(layout, self._driver))
                return
            _see(tx, NativeChange.from_record(native), "is not as it was changed")

    def _run(self, tx: Transaction, change: NativeChange, reorg: Reorg) -> None:
        present = {(row.kind, row.name): row for row in schema_rows(tx)}
        for row in change.before:
            if present.get((row.kind, row.name)) != row:
                raise SchemaChanged(f"{row.kind} {row.name} is not as it was planned for", differing=[f"{row.kind} {row.name}"])
        known = {(row.kind, row.name) for row in change.before}
        for kind, name in sorted(present.keys() & dict(change.after).keys() - known):
            raise SchemaChanged(f"{kind} {name} was not there when this was planned", differing=[f"{kind} {name}"])
        for statement in change.statements:
            if points.CHANGE.on:
                points.CHANGE.fire(job=reorg.job_id)
            if statement.startswith("CREATE "):
                _make_index(tx, statement, reorg.reshaping.table.name, shown=(parse_index(statement).name.text, reorg.reshaping.table.name))
            else:
                tx.run_verbatim(statement)
        if points.CHANGED.on:
            points.CHANGED.fire(job=reorg.job_id)
        others = {name: row for name, row in present.items() if name not in dict(change.after)}
        after = {(row.kind, row.name): row for row in schema_rows(tx)}
        changed = sorted(f"{kind} {name}" for (kind, name), row in others.items() if after.get((kind, name)) != row)
        if changed:
            raise SchemaChanged(f"the statement changed more than was planned: {', '.join(changed)}", differing=changed)
        _see(tx, change, "is not as it was planned")

    def _rebuild(self, tx: Transaction, reorg: Reorg) -> None:
        layout = Layout.of(reorg)
        names = layout.names(reorg)
        check_source(tx, layout)
        if points.CHANGE.on:
            points.CHANGE.fire(job=reorg.job_id)
        _see_numbers(tx, layout)
        tx.run_verbatim(shadow_text(layout, names))
        try:
            copied = insert_rows(tx, layout, names.shadow, "1", ())
        except ROW_REFUSED as error:
            raise self._first_refused(tx, layout, names.shadow, error) from error
        present = tx.run_verbatim(f"SELECT count(*) FROM {quote(layout.table)}").scalar()
        if copied != present:
            raise SchemaChanged(f"{copied} of {present} rows of {layout.table} were copied", table=layout.table)
        for index, text in zip(layout.made_indexes, index_texts(layout, names), strict=True):
            _make_index(tx, text, names.shadow, shown=(index.name, layout.table))
        see_all_references(tx, layout, names, self._driver)
        cutover.exchange(tx, layout, names, self._driver)
        if points.CHANGED.on:
            points.CHANGED.fire(job=reorg.job_id)

    def _first_refused(self, tx: Transaction, layout: Layout, target: str, error: TideshiftError) -> TideshiftError:
        """Find the row that was refused: once more through the rows, a few at a time, and row by row only where one is refused."""
        order = layout.order(self._driver)
        rest = KeyRange(None, None)
        while (last := order.next_bound(tx, rest, rows=_ROWS_AT_ONCE)) is not None:  # ends: each round begins behind the one before
            where = order.where(KeyRange(rest.low, last))
            try:
                insert_rows(tx, layout, target, *where)
            except ROW_REFUSED as refused:
                return refusal(tx, layout, self._driver, target=target, where=where, error=refused)
            rest = KeyRange(last, None)
        return error


def _see_numbers(tx: Transaction, layout: Layout) -> None:
    """See that no NULL would become the number of a row, which the library would choose without a word."""
    number = layout.new.rowid_column
    value = next((one.value for one in layout.mapped if one.name == number), None)
    if number is None or value is None or number == layout.old.rowid_column:
        return
    if tx.run_verbatim(f"SELECT 1 FROM {quote(layout.table)} WHERE ({value}) IS NULL LIMIT 1").rows:
        hint = "Give the row a number, then submit the change again."
        raise ValueRefused(f"a row of {layout.table} has NULL in {number}, which would be its number", hint=hint, table=layout.table, column=number)


def _see(tx: Transaction, change: NativeChange, what: str) -> None:
    present = {(row.kind, row.name): row for row in schema_rows(tx)}
    differing = [f"{kind} {name}" for (kind, name), row in change.after if present.get((kind, name)) != row]
    if differing:
        raise SchemaChanged(f"{', '.join(differing)} {what}", differing=differing)


def _make_index(tx: Transaction, text: str, table: str, *, shown: tuple[str, str]) -> None:
    """Create an index; a unique one that rows violate is refused with the values that two of them share."""
    try:
        tx.run_verbatim(text)
    except ROW_REFUSED as error:
        index = parse_index(text)
        terms = ", ".join(index.terms)
        present = " AND ".join(f"({term}) IS NOT NULL" for term in index.terms)
        condition = present if index.where is None else f"({index.where}) AND {present}"
        values = ", ".join(f"quote({term})" for term in index.terms)
        query = f"SELECT count(*), {values} FROM {quote(table)} WHERE {condition} GROUP BY {terms} HAVING count(*) > 1 LIMIT 1"
        try:
            shared = tx.run_verbatim(query).rows
        except ROW_REFUSED:
            raise error from None
        if not shared:
            raise
        count, *found = shared[0]
        message = f"{count} rows of {shown[1]} have the same values ({', '.join(map(str, found))}), and index {shown[0]} would be unique"
        hint = "Correct the row, then submit the change again."
        raise ValueRefused(message, hint=hint, table=shown[1], column=None, values=list(found)) from error
