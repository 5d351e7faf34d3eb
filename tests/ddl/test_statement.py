"""One statement becomes one change with the user's own texts, or an error that points at the place."""

from __future__ import annotations

import json

import pytest

from tideshift.ddl.change import (
    Action,
    AddColumn,
    AddConstraint,
    AlterTable,
    Change,
    ConstraintKind,
    CreateIndex,
    DropColumn,
    DropConstraint,
    DropIndex,
    DropNotNull,
    MoveColumn,
    Place,
    Position,
    Reindex,
    RenameColumn,
    RenameTable,
    SetColumnType,
    SetDefault,
    SetNotNull,
    SetOption,
    TableName,
    TableOption,
    change_from_record,
)
from tideshift.ddl.statement import parse_statement
from tideshift.errors import BadStatement

ACCEPTED = {
    "alter table t alter column c type bigint": ("t", "c", "bigint", None),
    "ALTER TABLE t ALTER c SET DATA TYPE Text;": ("t", "c", "Text", None),
    'alter table "my t" alter [a b] type `odd type`': ("my t", "a b", "`odd type`", None),
    "alter table t alter column c type DECIMAL( 10 ,2 ) using (c * 1.0) ; ;": ("t", "c", "DECIMAL( 10 ,2 )", "(c * 1.0)"),
    "alter table t alter c type double /* as */ precision -- end": ("t", "c", "double /* as */ precision", None),
    "alter table t alter c type text using replace(c, ',', ';') /* ; */": ("t", "c", "text", "replace(c, ',', ';')"),
    "alter table t alter c type text using iif(a, b, c) || 'using'": ("t", "c", "text", "iif(a, b, c) || 'using'"),
    "alter table column alter column column type type": ("column", "column", "type", None),
    "alter table t alter type type int": ("t", "type", "int", None),
    "alter table t alter column set data type int": ("t", "column", "int", None),
    "alter table t alter column type type int": ("t", "type", "int", None),
}


@pytest.mark.parametrize(("text", "expected"), ACCEPTED.items(), ids=ACCEPTED)
def test_a_type_change_is_read_with_the_texts_as_they_stand(text: str, expected: tuple[str, str, str, str | None]) -> None:
    """Type and expression are the user's own letters; names are unquoted."""
    table, column, type_text, using = expected

    action = SetColumnType(column=column, type_text=type_text, using=using)
    assert parse_statement(text) == AlterTable(table=TableName(None, table), actions=(action,))


def test_a_schema_may_stand_before_the_table() -> None:
    """It is kept apart from the name."""
    change = parse_statement('alter table main."a.b" alter c type int')

    assert isinstance(change, AlterTable)
    assert change.table == TableName("main", "a.b")


ACTIONS = {
    "add c int": AddColumn(column="c", definition="c int"),
    "add column \"a b\" text default 'x, y' /* , */ not null": AddColumn(column="a b", definition="\"a b\" text default 'x, y' /* , */ not null"),
    "add column column int": AddColumn(column="column", definition="column int"),
    "add c decimal(10, 2) check (c > 0) after d": AddColumn(
        column="c", definition="c decimal(10, 2) check (c > 0)", position=Position(Place.AFTER, "d")
    ),
    "add c first": AddColumn(column="c", definition="c", position=Position(Place.FIRST)),
    "drop c": DropColumn(column="c"),
    "drop column c restrict": DropColumn(column="c"),
    "drop column column": DropColumn(column="column"),
    "alter c set default 1 + 1": SetDefault(column="c", default="1 + 1"),
    "alter column c drop default": SetDefault(column="c", default=None),
    "alter column set set default 'set'": SetDefault(column="set", default="'set'"),
    "alter c set not null": SetNotNull(column="c"),
    "alter c set not null on conflict replace": SetNotNull(column="c", conflict="REPLACE"),
    "alter c drop not null": DropNotNull(column="c"),
    "add check (a > 0 and b in (1, 2))": AddConstraint(constraint=ConstraintKind.CHECK, text="check (a > 0 and b in (1, 2))"),
    "add constraint u unique (a, b) on conflict ignore": AddConstraint(
        constraint=ConstraintKind.UNIQUE, text="constraint u unique (a, b) on conflict ignore"
    ),
    "add primary key (a)": AddConstraint(constraint=ConstraintKind.PRIMARY_KEY, text="primary key (a)"),
    "add foreign key (a) references p (b) on delete cascade deferrable": AddConstraint(
        constraint=ConstraintKind.FOREIGN_KEY, text="foreign key (a) references p (b) on delete cascade deferrable"
    ),
    "drop constraint u": DropConstraint(name="u"),
    "drop primary key": DropConstraint(constraint=ConstraintKind.PRIMARY_KEY),
    "drop unique ( a , b )": DropConstraint(constraint=ConstraintKind.UNIQUE, inner="a , b"),
    "drop check (a > 0)": DropConstraint(constraint=ConstraintKind.CHECK, inner="a > 0"),
    "drop check": DropColumn(column="check"),
    "rename to u": RenameTable(new_name="u"),
    "rename a to b": RenameColumn(column="a", new_name="b"),
    "rename column a to \"b c\"": RenameColumn(column="a", new_name="b c"),
    "rename column to b": RenameColumn(column="column", new_name="b"),
    "set strict": SetOption(option=TableOption.STRICT),
    "set not strict": SetOption(option=TableOption.NOT_STRICT),
    "set without rowid": SetOption(option=TableOption.WITHOUT_ROWID),
    "set rowid": SetOption(option=TableOption.ROWID),
    "move column c before d": MoveColumn(column="c", position=Position(Place.BEFORE, "d")),
}


@pytest.mark.parametrize(("text", "action"), ACTIONS.items(), ids=ACTIONS)
def test_every_action_is_read_with_the_texts_as_they_stand(text: str, action: Action) -> None:
    """Each becomes one typed operation, and survives its stored form."""
    change = parse_statement(f"alter table t {text};")

    assert change == AlterTable(table=TableName(None, "t"), actions=(action,))
    assert change_from_record(json.loads(json.dumps(change.as_record()))) == change
    assert change.kind == action.kind


def test_several_actions_make_one_change() -> None:
    """They are carried out in their order, as a whole."""
    change = parse_statement("alter table t add c int, alter c set not null, drop d")

    assert isinstance(change, AlterTable)
    assert [type(action) for action in change.actions] == [AddColumn, SetNotNull, DropColumn]
    assert change.kind == "alter table multi-schema change"


INDEXES = {
    "create unique index i on t (a desc, lower(b)) where c > 0;": CreateIndex(
        table=TableName(None, "t"), name="i", text="create unique index i on t (a desc, lower(b)) where c > 0"
    ),
    "create index main.i on t (a)": CreateIndex(table=TableName("main", "t"), name="i", text="create index main.i on t (a)"),
    "drop index main.\"i j\"": DropIndex(index=TableName("main", "i j")),
    "reindex t": Reindex(name=TableName(None, "t")),
    "reindex index i": Reindex(name=TableName(None, "i"), target="INDEX"),
    "reindex table": Reindex(name=TableName(None, "table")),
}


@pytest.mark.parametrize(("text", "change"), INDEXES.items(), ids=INDEXES)
def test_statements_on_indexes_are_read(text: str, change: Change) -> None:
    """An index is kept with its whole text."""
    assert parse_statement(text) == change
    assert change_from_record(json.loads(json.dumps(change.as_record()))) == change


def test_a_change_survives_its_stored_form() -> None:
    """What is written into a job row is read back as the same change."""
    change = parse_statement("alter table s.t alter c type int using c + 1")

    assert change_from_record(change.as_record()) == change


REFUSED = {
    "": (0, "no statement"),
    "select 1": (0, "ALTER TABLE, CREATE INDEX"),
    "alter view v alter c type int": (0, "ALTER VIEW is not supported"),
    "create table t (c)": (0, "CREATE TABLE is not supported"),
    "drop table t": (0, "DROP TABLE is not supported"),
    "alter table if exists t alter c type int": (12, "IF EXISTS is not supported"),
    "alter table t add column if not exists c int": (25, "IF NOT EXISTS is not supported"),
    "alter table t add": (17, "a column name is expected"),
    "alter table t add index i (c)": (18, "CREATE INDEX name ON table"),
    "alter table t add constraint c int": (31, "CHECK, UNIQUE, PRIMARY KEY or FOREIGN KEY"),
    "alter table t add check c > 0": (24, "( is expected"),
    "alter table t add c int first, rename to u": (31, "RENAME stands alone"),
    "alter table t add column z int default 7, alter z drop default": (42, "z is added by this statement"),
    "alter table t add z int, add Z text": (25, "Z is there, or added, before this"),
    "alter table t alter a type int using a + 1, alter A type int using a * 2": (44, "the type of A is set by this statement already"),
    "alter table t alter a set not null, alter a drop not null": (36, "the NOT NULL of a is set"),
    "alter table t add z int, drop column z, add y int": (25, "z is dropped by this statement"),
    "alter table t add z int, alter z type text": (25, "z is added by this statement"),
    "alter table t drop a, move a first": (22, "a is dropped by this statement"),
    "alter table t set strict, set not strict": (26, "this option is set already"),
    "alter table t add column": (24, "a column name is expected"),
    "alter table t drop column, add c int": (25, "a column name is expected"),
    "alter table t drop c cascade": (21, "CASCADE is not supported"),
    "alter table t drop column if exists c": (26, "IF EXISTS is not supported"),
    "alter table t drop constraint": (29, "a constraint's name is expected"),
    "alter table t rename constraint a to b": (21, "RENAME CONSTRAINT is not supported"),
    "alter table t rename c": (22, "TO is expected"),
    "alter table t alter c set statistics 5": (22, "SET STATISTICS is not supported"),
    "alter table t alter c set default": (33, "an expression is expected after DEFAULT"),
    "alter table t alter c set not null on conflict never": (47, "ROLLBACK, ABORT, FAIL, IGNORE, REPLACE"),
    "alter table t set schema s": (18, "STRICT, NOT STRICT, WITHOUT ROWID or ROWID"),
    "alter table t move c": (20, "FIRST, BEFORE or AFTER"),
    "alter table t enable trigger x": (14, "ENABLE TRIGGER is not supported"),
    "alter table t alter c int": (22, "TYPE, SET or DROP is expected"),
    "alter table t alter c type": (26, "a type is expected"),
    "alter table t alter c type ;": (26, "a type is expected"),
    "alter table t alter c type 5": (27, "a type is expected"),
    "alter table t alter c type int not null": (31, "NOT is not part of a type"),
    "alter table t alter c type text collate nocase": (32, "COLLATE is not part of a type"),
    "alter table t alter c type int = 5": (31, "does not belong to a type"),
    "alter table t alter c type int using": (36, "an expression is expected"),
    "alter table t alter c type int using :x": (37, "cannot have a parameter"),
    "alter table t alter c type int, ": (31, "ADD, DROP, ALTER, RENAME, SET or MOVE"),
    "alter table t alter c type int; drop table t": (32, "several statements"),
    "alter table t alter c type int using (c": (37, "never closed"),
    "alter table t alter c type int using c)": (38, "closes nothing"),
    "alter table t alter c type int using 'c": (37, "never ends"),
    "alter table 't' alter c type int": (12, "a table name is expected"),
    'alter table "" alter c type int': (12, "a table name is expected"),
    "alter table t": (13, "ADD, DROP, ALTER, RENAME, SET or MOVE"),
    "create index concurrently i on t (c)": (13, "always made online"),
    "create index if not exists i on t (c)": (13, "IF NOT EXISTS is not supported"),
    "create index i on t c": (20, "( is expected"),
    "create index i on t (c) where": (29, "an expression is expected after WHERE"),
    "create index i on t (c) using btree": (24, "the end of the statement"),
    "drop index i, j": (12, "the end of the statement"),
    "drop index if exists i": (11, "IF EXISTS is not supported"),
    "reindex": (7, "a table or an index is expected"),
}


@pytest.mark.parametrize(("text", "expected"), REFUSED.items(), ids=REFUSED)
def test_whatever_else_is_refused_at_its_place(text: str, expected: tuple[int, str]) -> None:
    """The error names what is wrong and the position of the token."""
    position, words = expected

    with pytest.raises(BadStatement) as caught:
        parse_statement(text)

    assert words in caught.value.message
    assert caught.value.fields["position"] == position
    assert caught.value.code == "bad_statement"


def test_the_caret_stands_under_the_token() -> None:
    """The line of the statement is shown, and below it a caret at the column."""
    with pytest.raises(BadStatement) as caught:
        parse_statement("alter table t\n\talter c\n  type int not null")

    _, line, caret = caught.value.message.split("\n")
    assert line[caret.index("^") :].startswith("not null")
    assert (caught.value.fields["line"], caught.value.fields["column"]) == (3, 12)


def test_a_form_that_is_not_offered_has_its_name_in_a_field() -> None:
    """A program can tell what was wanted."""
    with pytest.raises(BadStatement) as caught:
        parse_statement("alter table t enable trigger x")

    assert caught.value.fields["form"] == "ALTER TABLE … ENABLE TRIGGER"
