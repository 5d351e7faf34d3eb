"""Schema texts are cut where the library itself cuts them, and editing one part leaves every other byte alone."""

from __future__ import annotations

import itertools
from contextlib import closing

import pytest

from tests.servers import sqlite_module
from tideshift.ddl.tokens import replace_spans
from tideshift.dialects.sqlite.create_index import parse_index
from tideshift.dialects.sqlite.create_table import ClauseKind, UnreadableText, parse_table
from tideshift.dialects.sqlite.texts import _beside, _trial

COLUMNS = {
    "c": "",
    "c TEXT": "TEXT",
    "c double precision": "double precision",
    "c DECIMAL(10, 2)": "DECIMAL(10, 2)",
    "c DECIMAL ( +10 , -2 ) NOT NULL": "DECIMAL ( +10 , -2 )",
    "c/**/TEXT/* x */NOT NULL": "TEXT",
    "c -- why\n varchar(3) -- so\n": "varchar(3)",
    'c "my type"(1)': '"my type"(1)',
    "c [odd] `type`": "[odd] `type`",
    "c 'text' 'type'": "'text' 'type'",
    "c DEFAULT 5": "",
    "c INT DEFAULT -5 UNIQUE": "INT",
    "c INT DEFAULT (1 + (2)) CHECK (c > (0))": "INT",
    "c INT DEFAULT word NOT NULL": "INT",
    "c REFERENCES o (id)": "",
    "c INT COLLATE 'NOCASE' COLLATE \"BINARY\"": "INT",
    "c INT CONSTRAINT x CONSTRAINT y NOT NULL ON CONFLICT IGNORE NULL": "INT",
    "c GENERATED ALWAYS AS (a + 1)": "",
    "c INT GENERATED ALWAYS AS (a + 1) STORED": "INT",
    "c generated": "generated",
    "c INT generated always as (a)": "INT",
    "c AS (a || ',)') VIRTUAL UNIQUE": "",
    "c INT REFERENCES o ON DELETE SET NULL ON UPDATE NO ACTION MATCH FULL NOT DEFERRABLE INITIALLY DEFERRED UNIQUE": "INT",
    "c INT REFERENCES o NOT NULL DEFERRABLE": "INT",
    "c key asc": "key asc",
    '"c" cascade restrict': "cascade restrict",
}


@pytest.mark.parametrize(("definition", "type_text"), COLUMNS.items(), ids=COLUMNS)
def test_a_type_is_found_where_the_library_finds_it(definition: str, type_text: str) -> None:
    """Putting another type in its place changes the declared type and nothing else in the catalogue."""
    text = f"CREATE TABLE t (a, {definition}, z INT)"

    table = parse_table(text)
    edited = replace_spans(text, table.retype("C", "NEW TYPE(7)"))

    found = table.column("c")
    assert text[found.type_start : found.type_end] == type_text
    before, after = _catalogue(text), _catalogue(edited)
    assert after["c"] == ("NEW TYPE(7)", *before["c"][1:])
    assert {**after, "c": None} == {**before, "c": None}


def _catalogue(text: str) -> dict[str, tuple[object, ...]]:
    with closing(sqlite_module().connect(":memory:")) as connection:
        connection.execute(text)
        rows = connection.execute("SELECT name, type, \"notnull\", dflt_value, pk, hidden FROM pragma_table_xinfo('t')").fetchall()
    return {name: tuple(rest) for name, *rest in rows}


CONSTRAINTS = (
    "FOREIGN KEY (a) REFERENCES o (id) ON DELETE CASCADE DEFERRABLE INITIALLY DEFERRED",
    "CONSTRAINT f FOREIGN KEY (b) REFERENCES o NOT DEFERRABLE",
    "UNIQUE (a, b) ON CONFLICT IGNORE",
    "CONSTRAINT lonely",
    "CHECK (t.a <> b)",
)


@pytest.mark.parametrize("comma", [", ", " "], ids=["with commas", "without"])
def test_references_are_left_out_whatever_stands_beside_them(comma: str) -> None:
    """In each order of table constraints, with commas or without, the text without foreign keys is one the library takes."""
    for order in itertools.permutations(CONSTRAINTS, 4):
        text = f"CREATE TABLE t (a INT REFERENCES o DEFERRABLE, b TEXT{', '}{comma.join(order)})"

        stripped = _beside(text, "shadow")

        with closing(sqlite_module().connect(":memory:")) as connection:
            connection.execute(text)
            connection.execute(stripped)
            assert connection.execute("SELECT * FROM pragma_foreign_key_list('shadow')").fetchall() == []
            lists = [
                connection.execute(f'SELECT "unique", origin FROM pragma_index_list({one})').fetchall()
                for one in ("'t'", "'shadow'")
            ]
            assert lists[0] == lists[1]
            if "CHECK (t.a <> b)" in order:
                with pytest.raises(sqlite_module().IntegrityError):
                    connection.execute("INSERT INTO shadow VALUES ('1', '1')")


def test_the_counter_and_every_unique_key_can_be_left_out() -> None:
    """The temporary table keeps types, collations and checks, and takes equal rows."""
    text = (
        "CREATE TABLE \"t\" (k TEXT PRIMARY KEY ON CONFLICT FAIL, u INT UNIQUE CHECK (t.u > 0), g AS (k || u) STORED UNIQUE,"
        " UNIQUE (u, k))"
    )

    trial = _trial(text, "trial", (ClauseKind.UNIQUE, ClauseKind.PRIMARY_KEY))

    with closing(sqlite_module().connect(":memory:")) as connection:
        connection.execute(trial)
        connection.executemany("INSERT INTO trial (k, u) VALUES (?, ?)", [("a", 1), ("a", 1)])
        assert connection.execute("SELECT count(*), max(g) FROM temp.trial").fetchone() == (2, "a1")
        with pytest.raises(sqlite_module().IntegrityError):
            connection.execute("INSERT INTO trial (k, u) VALUES ('b', 0)")


@pytest.mark.parametrize("name", ["t", '"t"', "[t]", "`t`", "'t'", '"t t"', "T"])
def test_a_table_is_renamed_in_its_own_text(name: str) -> None:
    """The name goes in all its spellings, and so does each qualified reference; look-alikes stay."""
    plain = name.strip("\"'[]`")
    text = f"CREATE TABLE {name} (t, b CHECK ({name}.b > 't.b' AND \"{plain.upper()}\" . t <> 1 /* t.b */) DEFAULT 't.')"
    if plain == "t t":
        text = text.replace('"T T" . t', "b")

    renamed = replace_spans(text, parse_table(text).rename('"other"'))

    assert f"{name}." not in renamed.replace("'t.b'", "").replace("/* t.b */", "").replace("'t.'", "")
    assert "'t.b'" in renamed
    assert "/* t.b */" in renamed
    with closing(sqlite_module().connect(":memory:")) as connection:
        connection.execute(renamed)


def test_options_behind_the_list_are_seen() -> None:
    """WITHOUT ROWID and STRICT, in either order."""
    both = parse_table("CREATE TABLE t (a INT PRIMARY KEY) STRICT, WITHOUT /**/ rowid")

    assert (both.strict, both.without_rowid) == (True, True)
    assert not parse_table('CREATE TABLE t ("strict" without)').strict


@pytest.mark.parametrize(
    "text",
    ["CREATE TABLE t", "CREATE TABLE t (a", "CREATE TABLE t (a,)", "CREATE TABLE t (a) WITH x", "CREATE VIRTUAL TABLE t USING x (a)"],
)
def test_a_text_that_is_not_understood_is_refused(text: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(UnreadableText):
        parse_table(text)


INDEXES = {
    "CREATE INDEX i ON t(a)": (("a",), None),
    'CREATE UNIQUE INDEX "i i" ON [t] (a DESC, lower(b) COLLATE nocase ASC) WHERE t.a > 1': (
        ("a", "lower(b) COLLATE nocase"),
        "t.a > 1",
    ),
    "CREATE INDEX i ON t (a || ',' COLLATE rtrim, (b), substr(a, 1, 2)) WHERE a IN (1, 2) -- end": (
        ("a || ',' COLLATE rtrim", "(b)", "substr(a, 1, 2)"),
        "a IN (1, 2)",
    ),
}


@pytest.mark.parametrize(("text", "parts"), INDEXES.items(), ids=INDEXES)
def test_an_index_is_cut_into_terms_and_condition(text: str, parts: tuple[tuple[str, ...], str | None]) -> None:
    """Directions go, collations stay with their term, and the renamed text makes the same index on another table."""
    index = parse_index(text)

    assert (index.terms, index.where) == parts
    with closing(sqlite_module().connect(":memory:")) as connection:
        for table in ("t", "other"):
            connection.execute(f"CREATE TABLE {table} (a INT, b TEXT)")
        connection.execute(text)
        connection.execute(index.renamed('"mine"', '"other"'))
        made = [
            connection.execute(f"SELECT seqno, cid, name, \"desc\", coll, key FROM pragma_index_xinfo('{name}')").fetchall()
            for name in (index.name.name, "mine")
        ]
    assert made[0] == made[1] != []
