"""Working a change out from the catalogue: what will be made, what must be refused and why. Nothing is made here.

The library itself is the judge: every text is tried in an empty database in memory, and what comes out is compared. The
plan stands only if exactly the asked-for type differs.
"""

from __future__ import annotations

from dataclasses import replace

from tideshift.ddl.change import Change, TableName
from tideshift.ddl.dialect import Reshaping
from tideshift.ddl.tokens import replace_spans, same_name
from tideshift.dialects.sqlite import explain
from tideshift.dialects.sqlite.affinity import affinity
from tideshift.dialects.sqlite.cascades import cascade_reasons, cascading, parent_conditions
from tideshift.dialects.sqlite.catalog import SourceTable, find_table, near, shape_of
from tideshift.dialects.sqlite.create_table import ClauseKind, TableText, UnreadableText, identifiers, parse_table
from tideshift.dialects.sqlite.displaced import Conversion, displaced_rows
from tideshift.dialects.sqlite.driver import SqliteDriver, quote
from tideshift.dialects.sqlite.foreseen import Unforeseeable
from tideshift.dialects.sqlite.keys import SqliteKeyOrder
from tideshift.dialects.sqlite.layout import Displaced, KeyColumn, Layout
from tideshift.dialects.sqlite.scratch import Shape, TextRefused, schema_can_be_written, scratch
from tideshift.dialects.sqlite.trial import try_everything
from tideshift.dialects.sqlite.unique_keys import UniqueKeys
from tideshift.dialects.sqlite.using import depends_on_time, without_double_quotes
from tideshift.errors import NotFound, PlanRefused
from tideshift.store.database import Transaction

__all__ = ["design"]

_SAMPLE_ROWS = 200
_COLUMNS_MAX = 450
"""The library takes no expression that is nested deeper than 1000, and a comparison of rows has two terms per column."""
_VIRTUAL, _STORED = 2, 3
_GENERATED = (_VIRTUAL, _STORED)


def design(tx: Transaction, change: Change, driver: SqliteDriver) -> Reshaping:
    """Work the reshaping out, or raise `NotFound` or `PlanRefused`."""
    source = find_table(tx, change.table)
    shape = shape_of(tx, source.name)
    column = _column(shape, source.name, change.column)
    if len(shape.columns) > _COLUMNS_MAX:
        raise _refused(source, [f"it has {len(shape.columns)} columns, and rows of more than {_COLUMNS_MAX} cannot be compared at once"])
    reasons = [] if schema_can_be_written(driver) else [_DEFENSIVE]
    if tx.run_verbatim("PRAGMA foreign_keys").scalar():
        reasons.append(_FOREIGN_KEYS)
    try:
        old = parse_table(source.text)
        new_text = replace_spans(source.text, old.retype(column, change.type_text))
        new = parse_table(new_text)
        only_type_differs = _only_type_differs(old, new, column, change.type_text)
    except UnreadableText as error:
        raise _refused(source, [str(error)]) from error
    if not only_type_differs:
        raise _refused(source, [f"{change.type_text!r} is more than a type"])
    old_shape, new_shape = _tried_shapes(source, driver, new_text)
    reasons += _shape_reasons(source, shape, old_shape, new_shape, column)
    reasons += _key_reasons(old, old_shape, new_shape, column, using=change.using)
    reasons += _using_reasons(source, old, driver, change.using, generated=_is_generated(shape, column))
    if change.using is not None and not reasons:
        reasons += depends_on_time(driver, source.name, shape, change.using)
    if reasons:
        raise _refused(source, reasons)
    layout = _layout(tx, change, source, old, shape, new_text=new_text, column=column, driver=driver)
    layout = replace(layout, displaced=_displaced(source, old, (old_shape, new_shape), layout))
    layout = replace(layout, parents=_parents(tx, source, layout, _conversion(old, (old_shape, new_shape), layout)))
    reasons = try_everything(layout, driver)
    if reasons:
        raise _refused(source, reasons)
    layout = replace(layout, row_bytes=_mean_row_bytes(tx, layout))
    return Reshaping(
        table=TableName(None, source.name),
        key_columns=layout.shown_key,
        may_refuse_rows=_may_refuse_rows(new, layout, column),
        sql_steps=explain.steps(layout),
        warnings=tuple(explain.warnings(tx, layout, old_shape, new_shape)),
        detail=layout.as_record(),
    )


_DEFENSIVE = (
    "this SQLite library does not let its schema table be written (it is built as defensive); "
    "use another one: pip install 'tideshift[sqlite]'"
)

_FOREIGN_KEYS = (
    "this SQLite library turns foreign_keys on by itself, which would look at every row that is purged; "
    "use another one: pip install 'tideshift[sqlite]'"
)


def _refused(source: SourceTable, reasons: list[str]) -> PlanRefused:
    return PlanRefused(f"the change of {source.name!r} is refused: {'; '.join(reasons)}", reasons=reasons)


def _column(shape: Shape, table: str, wanted: str) -> str:
    """Return the column's exact name."""
    names = [column[0] for column in shape.columns]
    for name in names:
        if same_name(name, wanted):
            return name
    raise NotFound(f"table {table!r} has no column {wanted!r}", hint=near(wanted, names), table=table, column=wanted)


def _is_generated(shape: Shape, column: str) -> bool:
    return any(name == column and hidden in _GENERATED for name, *_, hidden in shape.columns)


def _only_type_differs(old: TableText, new: TableText, column: str, type_text: str) -> bool:
    """Whether the edited text reads as the same clauses with exactly this type."""
    found = new.column(column)
    clauses = [[(clause.kind, table.text[clause.start : clause.end]) for clause in table.clauses()] for table in (old, new)]
    names = [[one.name for one in table.columns] for table in (old, new)]
    return (
        new.text[found.type_start : found.type_end] == type_text
        and clauses[0] == clauses[1]
        and names[0] == names[1]
        and (old.strict, old.without_rowid) == (new.strict, new.without_rowid)
    )


def _tried_shapes(source: SourceTable, driver: SqliteDriver, new_text: str) -> tuple[Shape, Shape]:
    """Execute old and new texts with the indexes, each in an empty database, and read what the library made of them."""
    shapes = []
    for what, text in (("its own text", source.text), ("the new shape", new_text)):
        with scratch(driver) as trial:
            made = "the table"
            try:
                trial.run(text)
                for index in source.indexes:
                    made = f"index {index.name!r}"
                    trial.run(index.text)
            except TextRefused as error:
                raise _refused(source, [f"the library refuses {what} ({made}): {error}"]) from error
            shapes.append(trial.shape(source.name))
    return shapes[0], shapes[1]


def _shape_reasons(source: SourceTable, real: Shape, old: Shape, new: Shape, column: str) -> list[str]:
    if real != old:
        return ["the catalogue does not show the table as its own text makes it"]
    without_type = [[(*c[:1], "" if c[0] == column else c[1], *c[2:]) for c in shape.columns] for shape in (old, new)]
    if without_type[0] != without_type[1] or _nameless(old) != _nameless(new):
        kept = "rowid" if _rowid_column(old) != _rowid_column(new) else "something"
        if kept == "rowid":
            return ["INTEGER PRIMARY KEY is the rowid itself; it cannot become or stop being that by a change of type"]
        return [f"the new type would change more of {source.name!r} than the type"]
    return []


def _nameless(shape: Shape) -> list[object]:
    return [(index.unique, index.origin, index.partial, index.terms) for index in shape.indexes]


def _rowid_column(shape: Shape) -> str | None:
    """Return the column that is the rowid: a sole INTEGER primary key for which no index was made."""
    key = [column for column in shape.columns if column[4]]
    if len(key) != 1 or key[0][1].upper() != "INTEGER" or any(index.origin == "pk" for index in shape.indexes):
        return None
    return key[0][0]


def _key_reasons(old: TableText, before: Shape, after: Shape, column: str, *, using: str | None) -> list[str]:
    types = [next(c[1] for c in shape.columns if c[0] == column) for shape in (before, after)]
    in_key = any(c[0] == column and c[4] for c in before.columns)
    is_rowid = _rowid_column(before) == column
    if _rowid_column(before) != _rowid_column(after):
        return ["INTEGER PRIMARY KEY is the rowid itself; it cannot become or stop being that by a change of type"]
    if not in_key or not (old.without_rowid or is_rowid):
        return []
    if using is not None:
        return [f"{column!r} is a part of the key by which rows are copied, and USING could change their order or make two equal"]
    if affinity(types[0], strict=old.strict) != affinity(types[1], strict=old.strict):
        return [f"{column!r} is a part of the key by which rows are copied, and {types[1]} orders values otherwise than {types[0]}"]
    return []


def _using_reasons(source: SourceTable, old: TableText, driver: SqliteDriver, using: str | None, *, generated: bool) -> list[str]:
    if using is None:
        return []
    if generated:
        return ["a generated column has no value of its own for USING to convert"]
    with scratch(driver) as trial:
        try:
            trial.run(source.text)
            # The condition of a partial index takes exactly what gives the same value whenever it is computed again.
            trial.run(f"CREATE INDEX probe ON {quote(source.name)} ({quote(old.columns[0].name)}) WHERE ({using})")
            trial.run(f"SELECT ({without_double_quotes(using)}) FROM {quote(source.name)}")
        except TextRefused as error:
            return [f"USING must be an expression over the row's own columns that always gives the same value: {error}"]
    return []


def _layout(
    tx: Transaction,
    change: Change,
    source: SourceTable,
    old: TableText,
    shape: Shape,
    *,
    new_text: str,
    column: str,
    driver: SqliteDriver,
) -> Layout:
    order = SqliteKeyOrder.read(tx, source.name, driver)
    key = _key(order, shape)
    rowid_column = None if old.without_rowid else _rowid_column(shape)
    return Layout(
        table=source.name,
        column=column,
        using=change.using,
        old_text=source.text,
        new_text=new_text,
        columns=tuple(one[0] for one in shape.columns),
        generated=tuple(one[0] for one in shape.columns if one[5] in _GENERATED),
        virtual=tuple(one[0] for one in shape.columns if one[5] == _VIRTUAL),
        rowid=order.columns[0] if order.rowid else None,
        rowid_column=rowid_column,
        key=key,
        collations_differ=any(order.collations),
        utf8=tx.run_verbatim("PRAGMA encoding").scalar() == "UTF-8",
        indexes=source.indexes,
        automatic_indexes=source.automatic_indexes,
        displaced=(),
        parents=(),
        may_renumber=order.rowid and rowid_column is None,
        row_bytes=0,
    )


def _displaced(source: SourceTable, old: TableText, shapes: tuple[Shape, Shape], layout: Layout) -> tuple[Displaced, ...]:
    """Return how to find the rows that a statement displaces."""
    texts = {index.name: index.text for index in source.indexes}
    keys = UniqueKeys(old, source.name, shapes[0], layout.key, layout.rowid_column, texts)
    try:
        return tuple(displaced_rows(keys, _conversion(old, shapes, layout)))
    except (Unforeseeable, UnreadableText) as error:
        raise _refused(source, [f"the rows that a REPLACE may remove cannot be found: {error}"]) from error


def _conversion(old: TableText, shapes: tuple[Shape, Shape], layout: Layout) -> Conversion:
    types = [next(one[1] for one in shape.columns if one[0] == layout.column) for shape in shapes]
    return Conversion(
        column=layout.column,
        old_affinity=affinity(types[0], strict=old.strict),
        new_affinity=affinity(types[1], strict=old.strict),
        has_using=layout.using is not None,
        is_generated=layout.column in layout.generated,
    )


def _parents(tx: Transaction, source: SourceTable, layout: Layout, conversion: Conversion) -> tuple[str, ...]:
    """Return how to find the row that a deleted row refers to in its own table."""
    references = cascading(tx)
    converted = () if conversion.keeps_values else (layout.column, *layout.generated)
    reasons = cascade_reasons(references, source.name, converted)
    if reasons:
        raise _refused(source, reasons)
    return parent_conditions(references, source.name)


def _key(order: SqliteKeyOrder, shape: Shape) -> tuple[KeyColumn, ...]:
    """Return the key's columns with the collation of their index, whether or not the order needs it spelled out."""
    if order.rowid:
        return (KeyColumn(order.columns[0], None, descending=False),)
    primary = next(index for index in shape.indexes if index.origin == "pk")
    terms = {str(name): (collation, bool(falling)) for _, name, falling, collation, _ in primary.key_terms}
    return tuple(KeyColumn(name, *terms[name]) for name in order.columns)


def _mean_row_bytes(tx: Transaction, layout: Layout) -> int:
    """Estimate a row's size from rows at both ends of the table."""
    order = ", ".join(quote(key.name) for key in layout.key)
    lengths = " + ".join(f"coalesce(length(CAST({quote(name)} AS BLOB)), 0) + 1" for name in layout.columns)
    backwards = ", ".join(f"{quote(key.name)} DESC" for key in layout.key)
    sampled = " UNION ALL ".join(
        f"SELECT n FROM (SELECT {lengths} AS n FROM {quote(layout.table)} ORDER BY {one} LIMIT {_SAMPLE_ROWS})"
        for one in (order, backwards)
    )
    return int(tx.run_verbatim(f"SELECT avg(n) FROM ({sampled})").scalar() or 0) + 8


def _may_refuse_rows(new: TableText, layout: Layout, column: str) -> bool:
    """Whether a row can exist that the new shape refuses: STRICT, an expression that may fail, or a CHECK that looks."""
    if new.strict or layout.using is not None:
        return True
    generated = [clause for clause in new.clauses() if clause.kind is ClauseKind.GENERATED]
    checks = [clause for clause in new.clauses() if clause.kind is ClauseKind.CHECK]
    if checks and any(_mentions(new, clause.expression, column) for clause in [*checks, *generated]):
        return True
    return any(_mentions(new, clause.expression, column) for clause in generated)


def _mentions(table: TableText, span: tuple[int, int] | None, column: str) -> bool:
    assert span is not None
    return any(same_name(word, column) for word in identifiers(table.text[span[0] : span[1]]))
