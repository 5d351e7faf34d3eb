"""An action edits just its part of a table's text; whatever a text of the user's says beyond that is refused."""

from __future__ import annotations

import pytest

from tideshift.ddl.change import (
    AddColumn,
    AddConstraint,
    AlterTable,
    ConstraintKind,
    DropColumn,
    SetColumnType,
    SetDefault,
)
from tideshift.ddl.statement import parse_statement
from tideshift.dialects.sqlite.create_table import UnreadableText
from tideshift.dialects.sqlite.table_edits import EditRefused, edited

TABLE = """CREATE TABLE t (
  id INTEGER PRIMARY KEY, -- the key
  a INT NOT NULL ON CONFLICT FAIL DEFAULT 5 /* five */,
  b TEXT CONSTRAINT ub UNIQUE CHECK (b <> ')'),
  CONSTRAINT few CHECK (a < 9) CHECK (b IS NOT 'x'), -- no comma between
  UNIQUE (a, "b"),
  FOREIGN KEY (a) REFERENCES p (x) ON DELETE CASCADE DEFERRABLE
) STRICT"""

EDITS = {
    "add c int default 1": ("CHECK (b <> ')'),\n  CONSTRAINT", "CHECK (b <> ')'), c int default 1,\n  CONSTRAINT"),
    "add c int first": ("(\n  id", "(\n  c int, id"),
    "add c int before b": ("  b TEXT", "  c int, b TEXT"),
    "add c int after id": ("PRIMARY KEY,", "PRIMARY KEY, c int,"),
    "drop a": ("  a INT NOT NULL ON CONFLICT FAIL DEFAULT 5 /* five */,\n", ""),
    "drop b": ("  b TEXT CONSTRAINT ub UNIQUE CHECK (b <> ')'),\n", ""),
    "drop id": ("id INTEGER PRIMARY KEY, -- the key\n  a", "a"),
    "alter a type integer": ("a INT NOT", "a integer NOT"),
    "alter a set default 7": ("DEFAULT 5", "DEFAULT 7"),
    "alter a set default 7 + 1": ("DEFAULT 5", "DEFAULT (7 + 1)"),
    "alter a set default (7) + (1)": ("DEFAULT 5", "DEFAULT ((7) + (1))"),
    "alter a drop default": (" DEFAULT 5", ""),
    "alter id set default -2": ("PRIMARY KEY,", "PRIMARY KEY DEFAULT -2,"),
    "alter b set not null": ("CHECK (b <> ')')", "CHECK (b <> ')') NOT NULL"),
    "alter a set not null on conflict ignore": ("NOT NULL ON CONFLICT FAIL", "NOT NULL ON CONFLICT IGNORE"),
    "alter a set not null": ("", ""),
    "alter a drop not null": (" NOT NULL ON CONFLICT FAIL", ""),
    "move b first": ("(\n  id INTEGER PRIMARY KEY, -- the key\n  a INT NOT NULL ON CONFLICT FAIL DEFAULT 5 /* five */,\n  b TEXT CONSTRAINT ub UNIQUE CHECK (b <> ')'),",
                     "(\n  b TEXT CONSTRAINT ub UNIQUE CHECK (b <> ')'), id INTEGER PRIMARY KEY, -- the key\n  a INT NOT NULL ON CONFLICT FAIL DEFAULT 5 /* five */,"),
    "add check (a > 0)": ("DEFERRABLE\n)", "DEFERRABLE, check (a > 0)\n)"),
    "add constraint f foreign key (b) references q": ("DEFERRABLE\n)", "DEFERRABLE, constraint f foreign key (b) references q\n)"),
    "drop constraint ub": (" CONSTRAINT ub UNIQUE", ""),
    "drop constraint FEW": (",\n  CONSTRAINT few CHECK (a < 9)", ""),
    "drop check (b is NOT 'x')": (" CHECK (b IS NOT 'x')", ""),
    "drop check (b <> ')' /* any */)": (" CHECK (b <> ')')", ""),
    "drop unique (A, b)": (", -- no comma between\n  UNIQUE (a, \"b\")", ""),
    "drop unique (b)": (" CONSTRAINT ub UNIQUE", ""),
    "drop primary key": (" PRIMARY KEY", ""),
    "drop foreign key (a)": (",\n  FOREIGN KEY (a) REFERENCES p (x) ON DELETE CASCADE DEFERRABLE", ""),
    "set not strict": (" STRICT", ""),
    "set without rowid": (" STRICT", " WITHOUT ROWID, STRICT"),
    "set strict": ("", ""),
}  # fmt: skip


def _edited(text: str, action: str) -> str:
    change = parse_statement(f"alter table t {action}")
    assert isinstance(change, AlterTable)
    return edited(text, change.actions[0])


@pytest.mark.parametrize(("action", "edit"), EDITS.items(), ids=EDITS)
def test_only_the_part_in_question_changes(action: str, edit: tuple[str, str]) -> None:
    """Comments, blanks, quotes and the missing comma stay where they are."""
    before, after = edit
    assert TABLE.count(before) == 1 or not before

    assert _edited(TABLE, action) == (TABLE.replace(before, after) if before else TABLE)


REFUSED = {
    "add a int": "there is a column 'a' already",
    "drop c": "there is no column 'c'",
    "move a after a": "beside itself",
    "add primary key (a)": "there is a primary key already",
    "add constraint FEW check (1)": "there is a constraint 'FEW' already",
    "drop constraint none": "there is no constraint 'none'",
    "drop check (a < 10)": "there is no CHECK (a < 10)",
    "drop unique (a)": "there is no UNIQUE (a)",
}


@pytest.mark.parametrize(("action", "reason"), REFUSED.items(), ids=REFUSED)
def test_what_cannot_be_done_is_said(action: str, reason: str) -> None:
    """The reason names what is not there, or is there already."""
    with pytest.raises(EditRefused) as caught:
        _edited(TABLE, action)

    assert reason in str(caught.value)


SMUGGLED = {
    "a second column": AddColumn(column="c", definition="c int, d int"),
    "a table constraint": AddColumn(column="c", definition="c int, UNIQUE (a)"),
    "the end of the list": AddColumn(column="c", definition="c int) --"),
    "another name": AddColumn(column="c", definition="d int"),
    "a clause in a type": SetColumnType(column="a", type_text="INT UNIQUE"),
    "a column in a type": SetColumnType(column="a", type_text="INT, c INT"),
    "a second constraint": AddConstraint(constraint=ConstraintKind.CHECK, text="CHECK (1) CHECK (2)"),
    "another constraint": AddConstraint(constraint=ConstraintKind.CHECK, text="UNIQUE (a)"),
    "an option": AddConstraint(constraint=ConstraintKind.CHECK, text="CHECK (1)) WITHOUT ROWID --"),
}


@pytest.mark.parametrize("action", SMUGGLED.values(), ids=SMUGGLED)
def test_a_typed_operation_cannot_say_more_than_it_is(action) -> None:
    """The text is read again after the edit, and must differ by the asked-for part alone."""
    with pytest.raises((EditRefused, UnreadableText)):
        edited(TABLE, action)


def test_a_clause_in_a_default_is_an_expression() -> None:
    """What could be read as a clause behind a default stands in parentheses."""
    assert "DEFAULT (1 NOT NULL)" in edited(TABLE, SetDefault(column="b", default="1 NOT NULL"))


CUT_OUT = {
    "on a line of its own": ("CREATE TABLE t (\n  a INT, -- of a\n  b INT, -- of b\n  c INT\n)", "CREATE TABLE t (\n  a INT, -- of a\n  c INT\n)"),
    "behind another one": ("CREATE TABLE t (\n  a INT, b INT,\n  c INT\n)", "CREATE TABLE t (\n  a INT,\n  c INT\n)"),
    "behind another one, with a remark": ("CREATE TABLE t (a INT, b INT /* of b */, c INT)", "CREATE TABLE t (a INT, c INT)"),
    "behind another one, before a rule": ("CREATE TABLE t (a INT, b INT,\n  CHECK (a > 0))", "CREATE TABLE t (a INT,\n  CHECK (a > 0))"),
    "last": ("CREATE TABLE t (\n  a INT,\n  c INT, b INT\n)", "CREATE TABLE t (\n  a INT,\n  c INT\n)"),
    "first": ("CREATE TABLE t (b INT, a INT)", "CREATE TABLE t (a INT)"),
}


@pytest.mark.parametrize(("text", "left"), CUT_OUT.values(), ids=CUT_OUT)
def test_a_column_is_cut_out_so_that_the_rest_stays(text: str, left: str) -> None:
    """Lines, blanks and remarks of the others are as they were."""
    assert edited(text, DropColumn(column="b")) == left


@pytest.mark.parametrize(
    ("text", "type_text", "retyped"),
    [
        ("CREATE TABLE t ([a]INT, b)", "BIGINT", "CREATE TABLE t ([a]BIGINT, b)"),
        ('CREATE TABLE t ("a"INT)', '"odd type"', 'CREATE TABLE t ("a" "odd type")'),
        ("CREATE TABLE t ([a], b)", "INT", "CREATE TABLE t ([a] INT, b)"),
        ("CREATE TABLE t (a INT)", "[odd type]", "CREATE TABLE t (a [odd type])"),
    ],
)
def test_a_type_stands_as_the_old_one_stood(text: str, type_text: str, retyped: str) -> None:
    """No blank where there was none and none is needed."""
    assert edited(text, SetColumnType(column="a", type_text=type_text)) == retyped
