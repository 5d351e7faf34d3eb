"""Every kind of change as parts: its statement, and the table as it must be afterwards, written down without reading SQL."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random

from tests.proof.schema import Column, Scenario, Table, quoted

__all__ = ["KINDS", "Request", "random_request"]

_NAMED = re.compile(r'CONSTRAINT ("[^"]*"|\[[^]]*\]|\S+) (.*)', re.DOTALL)
STRATEGIES = (None, "direct", "shadow_table", "shadow_table")


@dataclass(frozen=True)
class Request:
    """One statement, the way that is asked for, and what must come of it; `by_library` when the library's own outcome is the measure."""

    statement: str
    strategy: str | None
    table: Table
    added: tuple[str, ...] = ()
    """Columns that existing rows get their default in."""
    made: tuple[str, ...] = ()
    """Statements that belong to the schema from now on."""
    gone: tuple[str, ...] = ()
    """The texts of the others that are gone."""
    named: tuple[str, ...] = ()
    """The texts of the others that it names and leaves."""
    by_library: bool = False
    keys_change: bool = False
    """Whether indexes of constraints come or go, so that their order and statistics may differ."""
    mapped: tuple[tuple[str, str], ...] = ()
    """Columns with the expression over the old row that gives their new value."""


@dataclass
class _Drawing:
    random: Random
    scenario: Scenario
    taken: set[str] = field(default_factory=set)
    """The columns that another action of the same statement is about."""
    drawn: set[str] = field(default_factory=set)

    @property
    def table(self) -> Table:
        return self.scenario.target

    @property
    def free(self) -> list[Column]:
        return [column for column in self.table.columns if column.name not in self.taken]

    def column(self) -> Column:
        column = self.random.choice(self.free)
        self.drawn.add(column.name)
        return column

    def alter(self, action: str, table: Table, **values: object) -> Request:
        return self.whole(f"ALTER TABLE {quoted(self.table.name)} {action}", table, **values)

    def whole(self, statement: str, table: Table, **values: object) -> Request:
        strategy = None if "by_library" in values or "gone" in values else self.random.choice(STRATEGIES)
        return Request(statement, strategy, table, **values)  # type: ignore[arg-type]


def random_request(random: Random, scenario: Scenario, kind: str) -> Request:
    """Make one change of a kind."""
    return _MAKERS[kind](_Drawing(random, scenario))


# ── columns ───────────────────────────────────────────────────────────────────────────────────────────────────────


def _add_column(drawing: _Drawing) -> Request:
    table, random = drawing.table, drawing.random
    strict = "STRICT" in table.options
    other = quoted(random.choice(table.columns).name)
    number, text = ("INTEGER", "TEXT") if strict else (random.choice(("INTEGER", "BIGINT", "")), random.choice(("TEXT", "VARCHAR(9)")))
    type_text, rest, generated = random.choice(
        (
            (text, "", False), (number, " NOT NULL DEFAULT 5", False), (text, " DEFAULT (lower('AB') || 'c')", False), (number, " UNIQUE", False),
            (text, " DEFAULT 'x, )' COLLATE NOCASE", False), (number, " CHECK (\"new one\" IS NULL OR \"new one\" > 3) DEFAULT 4", False),
            (number, " CHECK (\"new one\" > 3) DEFAULT 2", False), (text, " REFERENCES [parent p](n)", False), (text, " NOT NULL", False),
            (text, f" AS ({other} || 'g') STORED", True), (text, f" GENERATED ALWAYS AS (coalesce({other}, 'none'))", True),
            (number, " NOT NULL DEFAULT 7 UNIQUE", False), (text, " CONSTRAINT fresh NOT NULL DEFAULT word /* c */ CHECK (1)", False),
        )
    )  # fmt: skip
    column = Column("new one", '"new one"', type_text, rest, generated)
    place = random.choice(("", "", "", " FIRST", f" AFTER {other}", f" BEFORE {other}"))
    columns = list(table.columns)
    at = len(columns) if not place else 0
    if place not in ("", " FIRST"):
        at = next(n for n, one in enumerate(columns) if quoted(one.name) == other) + place.startswith(" AFTER")
    columns.insert(at, column)
    added = () if generated else ("new one",)
    action = f"ADD COLUMN {column.text()}{place}"
    return drawing.alter(action, replace(table, columns=tuple(columns)), added=added, keys_change="UNIQUE" in rest)


def _drop_column(drawing: _Drawing) -> Request:
    table, column = drawing.table, drawing.column()
    if drawing.random.random() < 0.75:  # most columns are spoken of by others, and refused: let most be the one that is least spoken of
        spoken = [token.strip("\"`[]").replace('""', '"').lower() for text in (*drawing.scenario.others, table.text()) for token in _NAME.findall(text)]
        column = min(drawing.free, key=lambda one: ("UNIQUE" in one.rest or "PRIMARY KEY" in one.rest, spoken.count(one.name.lower())))
    left = tuple(one for one in table.columns if one is not column)
    return drawing.alter(f"DROP COLUMN {quoted(column.name)}", replace(table, columns=left), keys_change="UNIQUE" in column.rest)


def _rename_column(drawing: _Drawing) -> Request:
    return drawing.alter(f"RENAME COLUMN {quoted(drawing.column().name)} TO \"renamed, it\"", drawing.table, by_library=True)


def _rename_table(drawing: _Drawing) -> Request:
    return drawing.alter('RENAME TO "renamed t"', drawing.table, by_library=True)


def _set_default(drawing: _Drawing) -> Request:
    table, column = drawing.table, drawing.column()
    default, written = drawing.random.choice((("5", "5"), ("'it''s'", "'it''s'"), ("1 + 1", "(1 + 1)"), ("(2)", "(2)"), ("-7", "-7"), ("NULL", "NULL")))
    if "DEFAULT" in column.rest and "SET DEFAULT" not in column.rest:
        return _drop_default(drawing, column)
    changed = replace(column, rest=f"{column.rest} DEFAULT {written}")
    return drawing.alter(f"ALTER COLUMN {quoted(column.name)} SET DEFAULT {default}", _with(table, column, changed))


def _drop_default(drawing: _Drawing, column: Column) -> Request:
    """Take every default away: of several the last one counts."""
    rest = column.rest
    for text in ("0", "'x y'", "-1.5", "(1 + 1)", "CURRENT_DATE", "NULL", "word", "(lower('AB'))"):
        rest = rest.replace(f" DEFAULT {text}", "")
    return drawing.alter(f"ALTER {quoted(column.name)} DROP DEFAULT", _with(drawing.table, column, replace(column, rest=rest)))


def _not_null(drawing: _Drawing) -> Request:
    table, column = drawing.table, drawing.column()
    name = quoted(column.name)
    if " NOT NULL" not in column.rest:
        conflict = drawing.random.choice(("", " ON CONFLICT ABORT"))
        changed = replace(column, rest=f"{column.rest} NOT NULL{conflict}")
        return drawing.alter(f"ALTER COLUMN {name} SET NOT NULL{conflict}", _with(table, column, changed))
    conflicts = (" ON CONFLICT REPLACE", " ON CONFLICT IGNORE", " ON CONFLICT FAIL", " ON CONFLICT ABORT", " ON CONFLICT ROLLBACK", "")
    clause = next(f" NOT NULL{conflict}" for conflict in conflicts if f" NOT NULL{conflict}" in column.rest)
    changed = replace(column, rest=column.rest.replace(clause, "", 1))
    return drawing.alter(f"ALTER {name} DROP NOT NULL", _with(table, column, changed))


def _move_column(drawing: _Drawing) -> Request:
    table = drawing.table
    column = drawing.column()
    left = [one for one in table.columns if one is not column]
    if not left:
        return drawing.alter(f"MOVE COLUMN {quoted(column.name)} FIRST", table)
    beside = drawing.random.choice(left)
    place = drawing.random.choice(("FIRST", "BEFORE", "AFTER"))
    at = 0 if place == "FIRST" else left.index(beside) + (place == "AFTER")
    moved = (*left[:at], column, *left[at:])
    action = f"MOVE {quoted(column.name)} {place}" + ("" if place == "FIRST" else f" {quoted(beside.name)}")
    return drawing.alter(action, replace(table, columns=moved), keys_change="UNIQUE" in column.rest or "PRIMARY KEY" in column.rest)


def _with(table: Table, column: Column, changed: Column) -> Table:
    return replace(table, columns=tuple(changed if one is column else one for one in table.columns))


# ── constraints, options, indexes ─────────────────────────────────────────────────────────────────────────────────


def _add_constraint(drawing: _Drawing) -> Request:
    table, random = drawing.table, drawing.random
    one, two = quoted(drawing.column().name), quoted(drawing.column().name)
    pair = one if one == two else f"{one}, {two}"
    text = random.choice(
        (
            f"CHECK ({one} IS NOT 'refused' OR 1)", f"CHECK (typeof({one}) <> 'blob')", f"UNIQUE ({pair})", f"UNIQUE ({one}) ON CONFLICT IGNORE",
            f"FOREIGN KEY ({one}) REFERENCES [parent p](n) ON DELETE SET NULL", f"PRIMARY KEY ({pair})", f"CHECK (length({one}) < 30)",
        )
    )  # fmt: skip
    named = random.choice((text, f"CONSTRAINT \"added one\" {text}"))
    changed = replace(table, constraints=(*table.constraints, named))
    if text.startswith("PRIMARY"):
        key = tuple(column.name for column in table.columns if quoted(column.name) in (one, two))
        alone = table.column(key[0]) if len(key) == 1 else None
        rowid = alone.name if alone is not None and alone.type_text.upper() == "INTEGER" and not table.without_rowid else None
        changed = replace(changed, key=key, rowid_column=rowid)
    return drawing.alter(f"ADD {named}", changed, keys_change=text.startswith(("UNIQUE", "PRIMARY")))


def _drop_constraint(drawing: _Drawing) -> Request:
    table, random = drawing.table, drawing.random
    if not table.constraints:
        return _add_constraint(drawing)
    text = random.choice(table.constraints)
    changed = replace(table, constraints=tuple(one for one in table.constraints if one is not text))
    named = _NAMED.fullmatch(text)
    bare = text if named is None else named[2]
    nameless = f"DROP {bare[: bare.index('(')].strip()} ({bare[bare.index('(') + 1 : _closing(bare)]})"
    if bare.startswith("PRIMARY"):
        changed = replace(changed, key=(), rowid_column=None)
        nameless = "DROP PRIMARY KEY"
    action = nameless if named is None else f"DROP CONSTRAINT {named[1]}"
    return drawing.alter(action, changed, keys_change=bare.startswith(("UNIQUE", "PRIMARY")))


def _closing(text: str) -> int:
    """Return where the first parenthesis is closed; those in quotes and in the comment count for nothing."""
    depth = 0
    plain = _QUOTED.sub(lambda found: "_" * len(found[0]), text.replace("/* ) */", " " * 7))
    for at, letter in enumerate(plain):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and letter == ")":
            return at
    raise AssertionError(text)


def _set_option(drawing: _Drawing) -> Request:
    table = drawing.table
    strict, without = "STRICT" in table.options, table.without_rowid
    if drawing.random.random() < 0.5:
        strict = not strict
        action = "SET STRICT" if strict else "SET NOT STRICT"
    else:
        without = not without
        action = "SET WITHOUT ROWID" if without else "SET ROWID"
    options = ", ".join(word for word, wanted in (("WITHOUT ROWID", without), ("STRICT", strict)) if wanted)
    rowid = table.rowid_column
    if without:
        rowid = None
    elif table.without_rowid and len(table.key) == 1 and table.column(table.key[0]).type_text.upper() == "INTEGER":
        rowid = table.key[0]
    return drawing.alter(action, replace(table, options=f" {options}" if options else "", rowid_column=rowid), keys_change=True)


def _create_index(drawing: _Drawing) -> Request:
    random, t = drawing.random, quoted(drawing.table.name)
    one, two = quoted(drawing.column().name), quoted(drawing.column().name)
    terms = random.choice((one, f"{one} DESC, {two}", f"lower({one}), {two} COLLATE NOCASE", f"{one} || 'i'", f"{one} COLLATE RTRIM"))
    where = random.choice(("", "", f" WHERE {two} IS NOT NULL", f" WHERE {one} > 3 /* few */"))
    unique = random.choice(("", "", "UNIQUE "))
    text = f'CREATE {unique}INDEX "made, it" ON {t} ({terms}){where}'
    return drawing.whole(text, drawing.table, made=(text,))


def _drop_index(drawing: _Drawing) -> Request:
    indexes = [text for text in drawing.scenario.others if text.startswith(("CREATE INDEX", "CREATE UNIQUE INDEX"))]
    if not indexes:
        return _create_index(drawing)
    text = drawing.random.choice(indexes)
    behind = text.partition("INDEX ")[2]
    name = behind[: behind.index(" ON ")]
    statement = drawing.random.choice((f"DROP INDEX {name}", f"REINDEX {name}"))
    if statement.startswith("DROP"):
        return drawing.whole(statement, drawing.table, gone=(text,))
    return drawing.whole(statement, drawing.table, named=(text,))


# ── several actions at once ───────────────────────────────────────────────────────────────────────────────────────────


def _set_type(drawing: _Drawing) -> Request:
    table, random, column = drawing.table, drawing.random, drawing.column()
    me = quoted(column.name)
    types = ("INT", "REAL", "TEXT", "BLOB", "ANY") if "STRICT" in table.options else ("BIGINT", "REAL", "TEXT", "NUMERIC(5)", "VARCHAR(9)")
    type_text = random.choice(types)
    using = random.choice((None, None, None, f"coalesce({me}, 0)", f"{me} || ''", f"length({me})"))
    action = f"ALTER COLUMN {me} TYPE {type_text}" + ("" if using is None else f" USING {using}")
    mapped = () if using is None else ((column.name, f"({using})"),)
    return drawing.alter(action, _with(table, column, replace(column, type_text=type_text)), mapped=mapped)


def _add_or_drop_constraint(drawing: _Drawing) -> Request:
    return drawing.random.choice((_add_constraint, _drop_constraint))(drawing)


def _several(drawing: _Drawing) -> Request:
    """Make two or three changes of other kinds, each about another column, one after another on what the last one left."""
    random = drawing.random
    parts: list[Request] = []
    scenario, taken = drawing.scenario, {column.name for column in drawing.table.columns if column.generated or column.name in drawing.table.key}
    for make in random.sample(_PARTS, random.choice((2, 2, 3))):
        now = _Drawing(random, scenario, taken)
        if not now.free:
            break
        part = make(now)
        taken = taken | now.drawn | {one.name for one in {*scenario.target.columns} ^ {*part.table.columns}}
        scenario = replace(scenario, tables=[part.table, *scenario.tables[1:]])
        parts.append(part)
    if not parts:
        return _add_column(drawing)
    begin = f"ALTER TABLE {quoted(drawing.table.name)} "
    return drawing.alter(
        ", ".join(part.statement.removeprefix(begin) for part in parts),
        parts[-1].table,
        added=tuple(name for part in parts for name in part.added),
        keys_change=any(part.keys_change for part in parts),
        mapped=tuple(pair for part in parts for pair in part.mapped),
    )


_PARTS = (_add_column, _drop_column, _set_type, _set_default, _not_null, _move_column, _add_or_drop_constraint)
_QUOTED = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|\[[^\]]*\]""")
_NAME = re.compile(r"""'(?:[^']|'')*'|"(?:[^"]|"")*"|`[^`]*`|\[[^\]]*\]|\w+""")
_MAKERS: dict[str, Callable[[_Drawing], Request]] = {
    "add column": _add_column,
    "drop column": _drop_column,
    "rename column": _rename_column,
    "rename table": _rename_table,
    "set default": _set_default,
    "not null": _not_null,
    "move column": _move_column,
    "add constraint": _add_constraint,
    "drop constraint": _drop_constraint,
    "options": _set_option,
    "create index": _create_index,
    "drop index, reindex": _drop_index,
    "several": _several,
}
KINDS = tuple(_MAKERS)
