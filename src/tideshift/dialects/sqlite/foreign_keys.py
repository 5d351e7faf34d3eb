"""The foreign keys of a database as its catalogue tells them, and what a change of a table means for those that stay and those that come."""

from __future__ import annotations

from dataclasses import dataclass

from tideshift.ddl.tokens import same_name, significant
from tideshift.dialects.sqlite.catalog import shape_of
from tideshift.dialects.sqlite.create_table import ClauseKind, UnreadableText, parse_table
from tideshift.dialects.sqlite.driver import SqliteDriver, quote
from tideshift.dialects.sqlite.layout import NewReference
from tideshift.dialects.sqlite.scratch import Shape, scratch
from tideshift.store.database import Transaction

__all__ = ["Reference", "foreign_key_reasons", "foreign_keys", "is_enforced", "new_foreign_keys"]

_ForeignKeyRow = tuple[int, str, str, str, "str | None"]


@dataclass(frozen=True)
class Reference:
    """One foreign key: child columns and the parent columns that they name."""

    child: str
    parent: str
    columns: tuple[tuple[str, str], ...]
    on_delete: str
    implied: bool = False
    """Whether it leaves the parent's columns out, which makes them its primary key."""

    @property
    def sort_key(self) -> list[str]:
        """Return what foreign keys are put in order by."""
        return [self.child, self.parent, *(name for pair in self.columns for name in pair)]


def foreign_keys(tx: Transaction) -> list[Reference]:
    """Read all foreign keys of ordinary tables; a parent's columns left out are its primary key."""
    rows = tx.run_verbatim(
        'SELECT m.name, f.id, f."table", f.on_delete, f."from", f."to" FROM sqlite_master AS m, pragma_foreign_key_list(m.name) AS f'
        " WHERE m.type = 'table' AND m.rootpage > 0 ORDER BY m.name, f.id, f.seq"
    ).rows
    grouped: dict[tuple[str, int, str, str], list[tuple[str, str | None]]] = {}
    for child, number, parent, on_delete, column, target in rows:
        grouped.setdefault((child, number, parent, on_delete), []).append((column, target))
    found = []
    for (child, _, parent, on_delete), columns in grouped.items():
        pairs = _pairs(columns, _primary_key(tx, parent))
        if pairs is not None:
            found.append(Reference(child, parent, pairs, on_delete.upper(), implied=not all(target for _, target in columns)))
    return found


def _primary_key(tx: Transaction, table: str) -> list[str]:
    rows = tx.run_verbatim("SELECT name FROM pragma_table_info(?, 'main') WHERE pk ORDER BY pk", (table,)).rows
    return [name for (name,) in rows]


def _pairs(columns: list[tuple[str, str | None]], key: list[str]) -> tuple[tuple[str, str], ...] | None:
    targets = [target or (key[at] if at < len(key) else None) for at, (_, target) in enumerate(columns)]
    if not all(targets):
        return None
    return tuple((column, str(target)) for (column, _), target in zip(columns, targets, strict=True))


def is_enforced(tx: Transaction, reference: Reference) -> bool:
    """Whether the parent is an ordinary table with a unique key over just these columns; any other is a mismatch to SQLite."""
    ordinary = "SELECT name, sql FROM sqlite_master WHERE type = 'table' AND rootpage > 0 AND name = ? COLLATE NOCASE"
    parents = tx.run_verbatim(ordinary, (reference.parent,)).rows
    return bool(parents) and _is_found_by(reference, shape_of(tx, parents[0][0]), parents[0][1])


def _is_found_by(reference: Reference, shape: Shape, text: str) -> bool:
    """Whether the columns are the primary key where they are implied, and else a unique key that compares them as the columns do."""
    wanted = [parent.lower() for _, parent in reference.columns]
    primary = [column[0].lower() for column in sorted(shape.columns, key=lambda column: column[4]) if column[4]]
    if reference.implied:
        return wanted == primary
    if wanted == primary and not any(index.origin == "pk" for index in shape.indexes):
        return True
    collations = _collations(text)
    keys = [
        {(name or "").lower(): collation.upper() for _, name, _, collation, _ in index.key_terms}
        for index in shape.indexes
        if index.unique and not index.partial and len(index.key_terms) == len(wanted)
    ]
    compared = [key if collations is None else {name: collations.get(name, "BINARY") for name in key} for key in keys]
    return any(key.keys() == set(wanted) and key == by_column for key, by_column in zip(keys, compared, strict=True))


def _collations(text: str) -> dict[str, str] | None:
    """Return how the columns that say it compare their values; None where the text is not understood."""
    found = {}
    try:
        columns = parse_table(text).columns
    except UnreadableText:
        return None
    for column in columns:
        said = [text[clause.start : clause.end] for clause in column.clauses if clause.kind is ClauseKind.COLLATE]
        if said:
            found[column.name.lower()] = (significant(said[-1])[-1].name or "").upper()
    return found


def foreign_key_reasons(tx: Transaction, table: str, new: Shape, new_text: str, driver: SqliteDriver) -> list[str]:
    """Return why rows that refer to the table, its own among them, could no longer do so in its new shape (none: they can)."""
    referring = [one for one in foreign_keys(tx) if same_name(one.parent, table) and is_enforced(tx, one)]
    if any(same_name(one.child, table) for one in referring):
        kept = [{child.lower() for child, _ in columns} for parent, columns in _written(new_text, table, driver) if same_name(parent, table)]
        referring = [one for one in referring if not same_name(one.child, table) or {child.lower() for child, _ in one.columns} in kept]
    return [
        f"{one.child} refers to {', '.join(parent for _, parent in one.columns)}, which would be no {'primary' if one.implied else 'unique'} key of"
        f" {table!r} any more"
        for one in referring
        if not _is_found_by(one, new, new_text)
    ]


def new_foreign_keys(
    tx: Transaction, table: str, texts: tuple[str, str], driver: SqliteDriver
) -> tuple[NewReference, ...]:
    """Return the foreign keys of the second text that the first does not have; what the table has already is its own affair.

    Raises `LookupError` for one whose parent has no such unique key, which SQLite would call a mismatch at every write.
    """
    present, wanted = (_written(text, table, driver) for text in texts)
    with scratch(driver) as trial:
        trial.run(texts[1])
        own_shape = trial.shape(table)
    found = []
    for parent, columns in wanted:
        if _unordered(parent, columns) in [_unordered(*one) for one in present]:
            continue
        is_own = same_name(parent, table)
        key = [column[0] for column in sorted(own_shape.columns, key=lambda column: column[4]) if column[4]] if is_own else _primary_key(tx, parent)
        pairs = _pairs(columns, key)
        reference = None if pairs is None else Reference(table, parent, pairs, "", implied=not all(target for _, target in columns))
        if pairs is None or reference is None or not (_is_found_by(reference, own_shape, texts[1]) if is_own else is_enforced(tx, reference)):
            raise LookupError(f"{quote(parent)} is no table with a unique key over just the columns that the new foreign key names")
        found.append(NewReference(parent, pairs))
    return tuple(found)


def _written(text: str, table: str, driver: SqliteDriver) -> list[tuple[str, list[tuple[str, str | None]]]]:
    """Return parent and columns of each foreign key as the text has them; a parent's column that it leaves out is None."""
    with scratch(driver) as trial:
        trial.run(text)
        rows = trial.run(
            f'SELECT id, "table", "from", "to" FROM pragma_foreign_key_list({_literal(table)}) ORDER BY id, seq'
        )
    grouped: dict[tuple[int, str], list[tuple[str, str | None]]] = {}
    for number, parent, column, target in rows:
        grouped.setdefault((number, parent), []).append((column, target))
    return [(parent, columns) for (_, parent), columns in grouped.items()]


def _unordered(parent: str, columns: list[tuple[str, str | None]]) -> tuple[str, list[tuple[str, str]]]:
    """Return what is the same for two foreign keys that say the same."""
    return parent.lower(), sorted((child.lower(), (target or "").lower()) for child, target in columns)


def _literal(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"
