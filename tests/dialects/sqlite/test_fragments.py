"""What is wrong with a text inside a statement is pointed at in the statement."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest

from tests.proof.engine import application, on_engine
from tideshift.errors import BadStatement

TABLES = (
    "CREATE TABLE parent (id INTEGER PRIMARY KEY)",
    "CREATE TABLE t (id INTEGER PRIMARY KEY, a INT, b TEXT)",
)
MISSING, STRANGE = "something is missing here", "this does not belong here"
WRONG = {
    "ALTER TABLE t ADD COLUMN e int default": ("", MISSING),
    "ALTER TABLE t ADD COLUMN e int default 3 4": ("4", STRANGE),
    "ALTER TABLE t ADD COLUMN e int not": ("", MISSING),
    "ALTER TABLE t ADD COLUMN e int references": ("", MISSING),
    "ALTER TABLE t ADD COLUMN e int frobnicate (3) blah, ADD COLUMN f int": ("blah", STRANGE),
    "ALTER TABLE t ADD COLUMN f int, ADD COLUMN e int check (e >)": (")", STRANGE),
    "ALTER TABLE t ADD COLUMN e int check (zz > 1)": ("zz", "there is no column zz"),
    "ALTER TABLE t ADD COLUMN e int unique on conflict foo": ("foo", STRANGE),
    "ALTER TABLE t ADD CONSTRAINT u UNIQUE (a) blah": ("blah", STRANGE),
    "ALTER TABLE t ADD UNIQUE (nope)": ("nope", "there is no column nope"),
    "ALTER TABLE t ADD FOREIGN KEY (nope) REFERENCES parent (id)": ("nope", "there is no column nope"),
    "ALTER TABLE t ADD FOREIGN KEY (a) REFERENCES parent (id) ON delet CASCADE": ("delet", STRANGE),
    "ALTER TABLE t ALTER a SET DEFAULT 1 2": ("2", STRANGE),
    "ALTER TABLE t ALTER a TYPE int USING b c": ("c", STRANGE),
    "ALTER TABLE t ALTER a TYPE int USING nope + 1": ("nope", "there is no column nope"),
    "ALTER TABLE t ALTER a TYPE int USING x.y": ("y", "there is no column x.y"),
    "CREATE INDEX i ON t ()": (")", STRANGE),
    "CREATE INDEX i ON t (a foo)": ("foo", STRANGE),
    "CREATE INDEX i ON t (nope)": ("nope", "there is no column nope"),
    "CREATE INDEX i ON t (a) WHERE b >": ("", MISSING),
}


@pytest.mark.parametrize("statement", WRONG)
def test_an_error_points_at_the_word(statement: str, sqlite_path: Path) -> None:
    """Or at the end, where something is missing; nothing else of the user's is blamed."""
    with closing(application(sqlite_path)) as connection:
        for text in TABLES:
            connection.execute(text)
    word, why = WRONG[statement]

    with on_engine(sqlite_path, strategy=None) as engine, pytest.raises(BadStatement) as caught:
        engine.connected.ddl.plan(statement)

    position = caught.value.fields["position"]
    assert caught.value.message.splitlines()[0] == why
    assert (position < len(statement)) is bool(word)
    assert statement[position:].startswith(word)
    assert caught.value.message.splitlines()[-1] == " " * (position + 2) + "^"


def test_a_text_that_is_right_by_itself_is_not_refused_here(sqlite_path: Path) -> None:
    """Names of columns that the same statement adds, quotes, and functions of the library."""
    with closing(application(sqlite_path)) as connection:
        for text in TABLES:
            connection.execute(text)

    with on_engine(sqlite_path, strategy=None) as engine:
        engine.connected.ddl.plan("ALTER TABLE t ADD COLUMN e int, ADD COLUMN f int CHECK (f > e AND \"a\" > [id]), ADD UNIQUE (e, b)")
        engine.connected.ddl.plan("ALTER TABLE t ALTER a TYPE TEXT USING printf('%d)', a) || \"b\"")
