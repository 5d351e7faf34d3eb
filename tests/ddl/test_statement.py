"""One statement becomes one change with the user's own texts, or an error that points at the place."""

from __future__ import annotations

import pytest

from tideshift.ddl.change import SetColumnType, TableName, change_from_record
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

    assert parse_statement(text) == SetColumnType(
        table=TableName(None, table), column=column, type_text=type_text, using=using
    )


def test_a_schema_may_stand_before_the_table() -> None:
    """It is kept apart from the name."""
    change = parse_statement('alter table main."a.b" alter c type int')

    assert change.table == TableName("main", "a.b")


def test_a_change_survives_its_stored_form() -> None:
    """What is written into a job row is read back as the same change."""
    change = parse_statement("alter table s.t alter c type int using c + 1")

    assert change_from_record(change.as_record()) == change


REFUSED = {
    "": (0, "no statement"),
    "select 1": (0, "ALTER is expected"),
    "alter view v alter c type int": (0, "ALTER VIEW is not supported yet"),
    "create index i on t (c)": (0, "CREATE INDEX is not supported yet"),
    "drop table t": (0, "DROP TABLE is not supported yet"),
    "alter table t add column c int": (14, "ADD COLUMN is not supported yet"),
    "alter table t drop c": (14, "DROP C is not supported yet"),
    "alter table t rename to u": (14, "RENAME TO is not supported yet"),
    "alter table t alter c set not null": (22, "SET NOT is not supported yet"),
    "alter table t alter c drop default": (22, "DROP DEFAULT is not supported yet"),
    "alter table if exists t alter c type int": (12, "IF EXISTS is not supported yet"),
    "alter table t alter c int": (22, "TYPE is expected"),
    "alter table t alter c type": (26, "a type is expected"),
    "alter table t alter c type ;": (26, "a type is expected"),
    "alter table t alter c type 5": (27, "a type is expected"),
    "alter table t alter c type int not null": (31, "NOT is not part of a type"),
    "alter table t alter c type text collate nocase": (32, "COLLATE is not part of a type"),
    "alter table t alter c type int = 5": (31, "does not belong to a type"),
    "alter table t alter c type int using": (36, "an expression is expected"),
    "alter table t alter c type int using :x": (37, "cannot have a parameter"),
    "alter table t alter c type int, alter d type int": (30, "several changes"),
    "alter table t alter c type int using c, alter d type int": (38, "several changes"),
    "alter table t alter c type int; drop table t": (32, "several statements"),
    "alter table t alter c type int using (c": (37, "never closed"),
    "alter table t alter c type int using c)": (38, "closes nothing"),
    "alter table t alter c type int using 'c": (37, "never ends"),
    "alter table 't' alter c type int": (12, "a table name is expected"),
    'alter table "" alter c type int': (12, "a table name is expected"),
    "alter table t": (13, "ALTER is expected"),
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


def test_a_form_that_is_not_there_yet_has_its_name_in_a_field() -> None:
    """A program can tell what was wanted."""
    with pytest.raises(BadStatement) as caught:
        parse_statement("alter table t add column c int")

    assert caught.value.fields["form"] == "ALTER TABLE … ADD COLUMN"
