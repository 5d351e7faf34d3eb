"""A typed change says the same as the statement that is made of it, or it is refused."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.ddl.test_statement import ACCEPTED
from tideshift.ddl.change import (
    AddColumn,
    AlterTable,
    Change,
    CreateIndex,
    DropColumn,
    RenameColumn,
    SetDefault,
    TableName,
)
from tideshift.ddl.plan import read_change
from tideshift.ddl.rendering import as_statement
from tideshift.ddl.statement import parse_statement
from tideshift.errors import BadStatement

T = TableName(None, "t")
STATEMENTS = [
    *ACCEPTED,
    "alter table t add column \"b c\" int default (1, 2) check (a > 1) first, drop [d \"e], alter f set default 'x, y', move g after \"h i\"",
    "alter table main.t alter a set not null on conflict ignore, alter b drop not null, alter c drop default",
    "alter table t add constraint c check (a > 0), add unique (a, b), add primary key (c), add foreign key (d) references p (e) on delete cascade",
    "alter table t drop constraint \"a b\", drop primary key, drop unique (a, b), drop check (a > 0), drop foreign key (a)",
    "alter table t set strict, set without rowid",
    "alter table t rename column \"a b\" to c",
    "alter table t rename to \"u v\"",
    "create unique index i on t (a desc, b collate nocase) where c > 1",
    "drop index main.\"i j\"",
    "reindex \"i j\"",
]


@pytest.mark.parametrize("text", STATEMENTS)
def test_a_change_written_as_a_statement_is_read_as_the_same_change(text: str) -> None:
    """So what is stored, planned and shown can be one or the other."""
    change = parse_statement(text)

    assert parse_statement(as_statement(change)) == change
    assert read_change(change) == change


INDEX = parse_statement("create index i on t (a)")
assert isinstance(INDEX, CreateIndex)
WRONG: dict[str, Change] = {
    "no action": AlterTable(table=T, actions=()),
    "a rename and more": AlterTable(table=T, actions=(RenameColumn(column="a", new_name="q"), DropColumn(column="c"))),
    "two renames": AlterTable(table=T, actions=(RenameColumn(column="a", new_name="q"), RenameColumn(column="b", new_name="r"))),
    "two columns in one": AlterTable(table=T, actions=(AddColumn(column="z", definition="z int, add y int"),)),
    "another column": AlterTable(table=T, actions=(AddColumn(column="z", definition="y int"),)),
    "more than a default": AlterTable(table=T, actions=(SetDefault(column="z", default="1, DROP COLUMN a"),)),
    "a second statement": AlterTable(table=T, actions=(SetDefault(column="z", default="1; DROP TABLE t"),)),
    "another table's index": replace(INDEX, table=TableName(None, "u")),
    "another index": replace(INDEX, name="j"),
}


@pytest.mark.parametrize("change", WRONG.values(), ids=WRONG)
def test_a_change_whose_texts_say_something_else_is_refused(change: Change) -> None:
    """Nothing of it is carried out, also not the part that was meant."""
    with pytest.raises(BadStatement):
        read_change(change)
