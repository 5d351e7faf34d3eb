"""The grammar of ALTER TABLE: each action with its texts as they stand.

Only classified here: whether a table, a column, a type or a constraint exists is the catalogue's to say.
"""

from __future__ import annotations

from tideshift.ddl.change import (
    Action,
    AddColumn,
    AddConstraint,
    AlterTable,
    ConstraintKind,
    DatabaseForm,
    DropColumn,
    DropConstraint,
    DropNotNull,
    MoveColumn,
    Place,
    Position,
    RenameColumn,
    RenameTable,
    SetColumnType,
    SetDefault,
    SetNotNull,
    SetOption,
    TableOption,
)
from tideshift.ddl.reader import StatementReader
from tideshift.ddl.tokens import Token, TokenKind
from tideshift.ddl.validity import contradiction

__all__ = ["alter_table"]

_AFTER_A_TYPE = frozenset(
    "AS AUTOINCREMENT CHECK COLLATE CONSTRAINT DEFAULT FOREIGN GENERATED NOT NULL ON PRIMARY REFERENCES STORED UNIQUE VIRTUAL".split()
)
"""Words that begin another property of a column; only its type may be given."""
_PLACES = frozenset(place.value for place in Place)
_CONFLICTS = ("ROLLBACK", "ABORT", "FAIL", "IGNORE", "REPLACE")
_CONSTRAINT_WORDS = ("CONSTRAINT", "CHECK", "UNIQUE", "PRIMARY", "FOREIGN")


def alter_table(reader: StatementReader) -> AlterTable:
    """Read a whole ALTER TABLE."""
    reader.take("ALTER", "TABLE")
    if reader.word() == "IF" and reader.word(1) == "EXISTS":
        reader.not_supported("IF EXISTS")
    table = reader.table()
    actions = [_action(reader)]
    starts = [reader.at]
    while not reader.ended:
        if not reader.is_operator(","):
            reader.refuse("a comma or the end is expected here")
        reader.at += 1
        starts.append(reader.at)
        actions.append(_action(reader))
    found = contradiction(actions)
    if found is not None:
        number, why = found
        reader.at = starts[number]
        reader.refuse(why)
    return AlterTable(table=table, actions=tuple(actions))


def _action(reader: StatementReader) -> Action:
    form = _form(reader, reader.grammar.table_forms, None)
    if form is not None:
        return form
    match reader.word():
        case "ADD":
            return _add(reader)
        case "DROP":
            return _drop(reader)
        case "ALTER":
            return _alter_column(reader)
        case "RENAME":
            return _rename(reader)
        case "SET":
            return _set_option(reader)
        case "MOVE":
            return _move(reader)
    if reader.word():
        reader.not_supported(f"ALTER TABLE … {reader.word()} {reader.word(1)}")
    return reader.refuse("ADD, DROP, ALTER, RENAME, SET or MOVE is expected here")


# ── ADD and DROP ──────────────────────────────────────────────────────────────────────────────────────────────────


def _add(reader: StatementReader) -> Action:
    reader.take("ADD")
    if reader.word() in _CONSTRAINT_WORDS or _begins_own_constraint(reader):
        return _add_constraint(reader)
    if reader.word() in ("INDEX", "KEY"):
        reader.refuse(f"ADD {reader.word()} is written CREATE INDEX name ON table (…)", form=f"ADD {reader.word()}")
    _column_word(reader)
    if reader.word() == "IF" and reader.word(1) == "NOT":
        reader.not_supported("IF NOT EXISTS")
    start = reader.at
    column = reader.name("a column name")
    first, last = reader.until(stops=_PLACES)
    text = reader.between(start, max(start, last)) if last >= first else reader.between(start, start)
    return AddColumn(column=column, definition=text, position=_position(reader) if reader.word() in _PLACES else None)


def _add_constraint(reader: StatementReader) -> AddConstraint:
    start = reader.at
    if reader.accept("CONSTRAINT"):
        reader.name("a constraint's name")
    kind = _constraint_kind(reader)
    if kind is ConstraintKind.EXCLUDE and reader.accept("USING"):
        reader.name("an access method")
    if kind is ConstraintKind.NOT_NULL:
        reader.name("a column name")
    elif not any(reader.accept(*words) for words in reader.grammar.before_columns) and not reader.is_operator("("):
        reader.refuse("( is expected here")
    _, last = reader.until()
    return AddConstraint(constraint=kind, text=reader.between(start, last))


def _constraint_kind(reader: StatementReader) -> ConstraintKind:
    for kind in reader.grammar.constraints:
        if reader.accept(*kind.split()):
            return ConstraintKind(kind)
    *most, last = reader.grammar.constraints
    return reader.refuse(f"{', '.join(most)} or {last} is expected here")


def _begins_own_constraint(reader: StatementReader) -> bool:
    """Whether a constraint begins here whose first word may be a column's name too."""
    if reader.word() == "EXCLUDE":
        return "EXCLUDE" in reader.grammar.constraints and (reader.word(1) == "USING" or reader.is_operator("(", 1))
    return reader.word() == "NOT" and reader.word(1) == "NULL" and "NOT NULL" in reader.grammar.constraints


def _drop(reader: StatementReader) -> Action:
    reader.take("DROP")
    if reader.accept("CONSTRAINT"):
        _no_if_exists(reader)
        action: Action = DropConstraint(name=reader.name("a constraint's name"))
    elif reader.word() in ("CHECK", "UNIQUE", "PRIMARY", "FOREIGN") and (reader.is_operator("(", 1) or reader.word(1) == "KEY"):
        action = _drop_nameless(reader)
    else:
        _column_word(reader)
        _no_if_exists(reader)
        action = DropColumn(column=reader.name("a column name"))
    if reader.word() == "CASCADE":
        reader.refuse("CASCADE is not supported: drop what depends on it by statements of its own, first", form="CASCADE")
    reader.accept("RESTRICT")
    return action


def _drop_nameless(reader: StatementReader) -> DropConstraint:
    kind = _constraint_kind(reader)
    if kind is ConstraintKind.PRIMARY_KEY:
        return DropConstraint(constraint=kind)
    start, end = reader.group()
    return DropConstraint(constraint=kind, inner=reader.text[start:end].strip())


def _no_if_exists(reader: StatementReader) -> None:
    if reader.word() == "IF" and reader.word(1) == "EXISTS":
        reader.not_supported("IF EXISTS")


# ── ALTER COLUMN ──────────────────────────────────────────────────────────────────────────────────────────────────


def _alter_column(reader: StatementReader) -> Action:
    reader.take("ALTER")
    if reader.word() == "COLUMN" and _more_than_action(reader):
        reader.at += 1
    start = reader.at
    column = reader.name("a column name")
    form = _form(reader, reader.grammar.column_forms, column, start=start)
    if form is not None:
        return form
    if reader.accept("SET", "DATA", "TYPE") or reader.accept("TYPE"):
        return _type(reader, column)
    if reader.accept("SET", "DEFAULT"):
        return SetDefault(column=column, default=_expression(reader, "DEFAULT"))
    if reader.accept("DROP", "DEFAULT"):
        return SetDefault(column=column, default=None)
    if reader.accept("SET", "NOT", "NULL"):
        return SetNotNull(column=column, conflict=_conflict(reader))
    if reader.accept("DROP", "NOT", "NULL"):
        return DropNotNull(column=column)
    if reader.word() in ("SET", "DROP", "ADD", "RESTART"):
        reader.not_supported(f"ALTER COLUMN … {reader.word()} {reader.word(1)}")
    return reader.refuse("TYPE, SET or DROP is expected here")


def _more_than_action(reader: StatementReader) -> bool:
    """Whether COLUMN is the keyword here and not a column of that name."""
    actions = ("TYPE", "SET", "DROP")
    return reader.word(1) not in actions or reader.word(2) in actions


def _type(reader: StatementReader, column: str) -> SetColumnType:
    start, depth = reader.at, 0
    while (token := reader.token) is not None:
        depth += token.is_operator("(") - token.is_operator(")")
        if depth == 0 and (token.keyword == "USING" or token.is_operator(",")):
            break
        if token.keyword in _AFTER_A_TYPE - reader.grammar.words_in_a_type:
            reader.refuse(f"{token.keyword} is not part of a type, and only the type can be changed", form=token.keyword)
        if not _fits_type(token, reader.grammar.type_operators):
            reader.refuse("this does not belong to a type")
        reader.at += 1
    if reader.at == start or reader.tokens[start].name is None:
        reader.at = start
        reader.refuse("a type is expected here")
    type_text = reader.between(start, reader.at - 1)
    using = _expression(reader, "USING") if reader.accept("USING") else None
    return SetColumnType(column=column, type_text=type_text, using=using)


def _fits_type(token: Token, operators: str) -> bool:
    if token.kind is TokenKind.OPERATOR:
        return token.text in operators
    return token.kind in (TokenKind.WORD, TokenKind.QUOTED, TokenKind.NUMBER)


def _expression(reader: StatementReader, after: str) -> str:
    first, last = reader.until()
    if last < first:
        reader.refuse(f"an expression is expected after {after}")
    return reader.between(first, last)


def _conflict(reader: StatementReader) -> str | None:
    if not reader.accept("ON", "CONFLICT"):
        return None
    word = reader.word()
    if word not in _CONFLICTS:
        reader.refuse(f"{', '.join(_CONFLICTS)} is expected here")
    reader.at += 1
    return word


def _form(reader: StatementReader, forms: tuple[tuple[str, ...], ...], column: str | None, *, start: int | None = None) -> DatabaseForm | None:
    """Take a whole action that only this kind of database has, if one of its forms begins here."""
    for words in forms:
        if all(reader.word(ahead) == word or reader.is_operator(word, ahead) for ahead, word in enumerate(words)):
            first = reader.at if start is None else start
            reader.until()
            text = reader.between(first, reader.at - 1)
            return DatabaseForm(form=" ".join(words), column=column, text=text if column is None else f"ALTER COLUMN {text}")
    return None


# ── the rest ──────────────────────────────────────────────────────────────────────────────────────────────────────


def _rename(reader: StatementReader) -> Action:
    reader.take("RENAME")
    if reader.accept("TO"):
        return RenameTable(new_name=reader.name("a table name"))
    if reader.word() in ("CONSTRAINT", "INDEX", "KEY"):
        reader.not_supported(f"RENAME {reader.word()}")
    if reader.word() == "COLUMN" and reader.word(1) != "TO":
        reader.at += 1
    column = reader.name("a column name")
    reader.take("TO")
    return RenameColumn(column=column, new_name=reader.name("a column name"))


def _set_option(reader: StatementReader) -> SetOption:
    reader.take("SET")
    for option in TableOption:
        if reader.accept(*option.split()):
            return SetOption(option=option)
    return reader.refuse("STRICT, NOT STRICT, WITHOUT ROWID or ROWID is expected here")


def _move(reader: StatementReader) -> MoveColumn:
    reader.take("MOVE")
    _column_word(reader)
    column = reader.name("a column name")
    if reader.word() not in _PLACES:
        reader.refuse("FIRST, BEFORE or AFTER is expected here")
    return MoveColumn(column=column, position=_position(reader))


def _position(reader: StatementReader) -> Position:
    place = Place(reader.word())
    reader.at += 1
    return Position(place, None if place is Place.FIRST else reader.name("a column name"))


def _column_word(reader: StatementReader) -> None:
    """Pass the word COLUMN where it is the keyword and not the column's own name, which is where a name or nothing follows."""
    following = reader.tokens[reader.at + 1] if reader.at + 1 < len(reader.tokens) else None
    if reader.word() == "COLUMN" and (following is None or following.is_operator(",") or following.name is not None):
        reader.at += 1
