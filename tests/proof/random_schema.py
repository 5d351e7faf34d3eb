"""Random databases: odd names, every kind of key and clause, and whatever else may hang on a table."""

from __future__ import annotations

from contextlib import closing
from random import Random

from tests.proof.engine import library
from tests.proof.random_rows import rows_for
from tests.proof.schema import Change, Column, Insertion, Scenario, Table, quoted

__all__ = ["KEY_KINDS", "random_scenario"]

KEY_KINDS = ("integer", "autoincrement", "text", "composite", "without rowid", "composite without rowid", "none")

PLAIN_TYPES = (
    "", "INTEGER", "INT", "BIGINT", "TEXT", "VARCHAR(20)", "DECIMAL(10, 2)", "REAL", "DOUBLE PRECISION", "BLOB", "NUMERIC", "BOOLEAN",
    "DATETIME", "ANY", "FLOATING POINT", '"odd type"', "UNSIGNED BIG INT", "STRING", "json", "NATIVE CHARACTER(70)",
)  # fmt: skip
STRICT_TYPES = ("INT", "INTEGER", "REAL", "TEXT", "BLOB", "ANY")
CONFLICTS = ("", "", "", " ON CONFLICT REPLACE", " ON CONFLICT IGNORE", " ON CONFLICT FAIL", " ON CONFLICT ABORT", " ON CONFLICT ROLLBACK")
COMMENTS = ("", "", "", " /* , ) ( */", " -- it's, not )\n", " /* \"x */ ")
COLLATIONS = ("NOCASE", "RTRIM", "BINARY", '"nocase"')

NAMES = (
    ("a", "a"), ("b", "b"), ("amount", "amount"), ("note", "Note"), ("select", '"select"'), ("two words", '"two words"'),
    ('q"uote', '"q""uote"'), ("brack et", "[brack et]"), ("tick", "`tick`"), ("ünï", "ünï"), ("key", "key"), ("type", "type"),
    ("abort", "abort"), ("generated", "generated"), ("single", "'single'"), ("rowid", "rowid"), ("oid", "OID"), ("check", "[check]"),
    ("as", '"as"'), ("row", "row"), ("column", '"column"'), ("a,b", '"a,b"'), (")", '")"'), ("--", '"--"'), ("日本", '"日本"'),
    ("always", "always"), ("set", '"set"'), ("using", '"using"'), ("x.y", '"x.y"'), ("strict", "strict"), ("desc", "desc"),
    ("replace", "replace"), ("end", '"end"'), ("desc2", "desc2"), ("_rowid_", "_rowid_"), ("?1", '"?1"'), (":n", '":n"'), ("%s", '"%s"'),
)  # fmt: skip
TABLE_NAMES = (
    ("t", "t"), ("orders", "orders"), ("table", '"table"'), ("t t", "[t t]"), ("T'x", '"T\'x"'), ("größe", "größe"), ("a.b", '"a.b"'),
    ("order", "`order`"), ('d"q', '"d""q"'), ("quoted", "'quoted'"), ("temp", "temp"), ("tideshiftx", "tideshiftx"), ("trigger", "[trigger]"),
)  # fmt: skip


def random_scenario(random: Random, key_kind: str) -> Scenario:
    """Make a database whose first table has this kind of key."""
    target = next(table for table in iter(lambda: _Drawing(random, key_kind).table(), None) if _accepted(table))
    encoding = random.choice(("UTF-8",) * 8 + ("UTF-16le",))
    parent = Table("parent p", "[parent p]", (Column("id", "id", "INTEGER", " PRIMARY KEY"), Column("n", "n", "TEXT", " UNIQUE")))
    side = Table("side", "side", (Column("what", "what", ""), Column("old", "old", "TEXT"), Column("new", "new", "BLOB")))
    tables = [target, parent, side]
    if random.random() < 0.5:
        tables.append(_child(random, target))
    rows: list[Insertion] = []
    for table in tables:
        rows += rows_for(random, table, encoding)
    wide = [f"DELETE FROM {quoted(target.name)} WHERE {quoted(target.columns[0].name)} > 5"] if random.random() < 0.2 else []
    return Scenario(
        encoding=encoding,
        auto_vacuum=random.random() < 0.2,
        wal=random.random() < 0.5,
        tables=tables,
        rows=rows,
        deletions=wide,
        others=_others(random, target),
        change=_change(random, target),
    )


def _accepted(table: Table) -> bool:
    """Whether the library takes the text at all; a few combinations of clauses exclude one another."""
    with closing(library().connect(":memory:")) as connection:
        try:
            connection.execute(table.text())
        except library().Error:
            return False
    return True


class _Drawing:
    """One table under way."""

    def __init__(self, random: Random, key_kind: str) -> None:
        self.random = random
        self.kind = key_kind
        self.strict = random.random() < 0.35
        self.name, self.spelled = random.choice(TABLE_NAMES)
        self.free = list(NAMES)
        random.shuffle(self.free)
        self.constraint_number = 0

    def table(self) -> Table:
        columns = [self._ordinary() for _ in range(self.random.randint(1, 4))]
        keys, key_clause, rowid_column = self._key()
        at = self.random.randint(0, len(columns))
        columns[at:at] = keys
        columns += [self._generated(columns) for _ in range(self.random.choice((0, 0, 1, 2)))]
        options = ["WITHOUT ROWID"] * ("without rowid" in self.kind) + ["STRICT"] * self.strict
        self.random.shuffle(options)
        constraints = [self._named(key_clause)] if key_clause else []
        constraints += [self._constraint(columns) for _ in range(self.random.choice((0, 0, 1, 2)))]
        gaps = tuple(self._gap() for _ in range(3))
        return Table(
            self.name, self.spelled, tuple(columns), tuple(constraints), " " + ", ".join(options) if options else "",
            opening=self.random.choice(("(", " (", " /* c */ (\n  ")), closing=self.random.choice((")", "\n)", " -- end )\n)")),
            gaps=gaps, key=tuple(key.name for key in keys), rowid_column=rowid_column,
        )  # fmt: skip

    def _gap(self) -> str:
        return self.random.choice((", ", ",", "\n  , ", ", /* a, b (c */ ", ", -- it's )\n  "))

    def _next_name(self) -> tuple[str, str]:
        return self.free.pop()

    def _type(self) -> str:
        return self.random.choice(STRICT_TYPES if self.strict else PLAIN_TYPES)

    def _named(self, clause: str) -> str:
        if self.random.random() < 0.7:
            return clause
        self.constraint_number += 1
        name = self.random.choice(("c", "[c o]", '"check"')).replace("c", f"c{self.constraint_number}", 1)
        return f"CONSTRAINT {name} {clause}"

    def _key(self) -> tuple[list[Column], str, str | None]:
        """Return the key's columns, the table constraint that makes it, and the column that is the rowid."""
        conflict = self.random.choice(CONFLICTS)
        if self.kind == "none":
            return [], "", None
        if "composite" in self.kind:
            keys = [Column(*self._next_name(), self._type(), self._collation()) for _ in range(2)]
            falling = self.random.choice(("", "", " DESC"))
            return keys, f"PRIMARY KEY ({quoted(keys[0].name)}{falling}, {quoted(keys[1].name)}){conflict}", None
        name, spelled = self._next_name()
        if self.kind == "autoincrement":
            return [Column(name, spelled, "INTEGER", f" PRIMARY KEY{conflict} AUTOINCREMENT")], "", name
        if self.kind == "integer":
            if self.random.random() < 0.5:
                return [Column(name, spelled, "integer")], f"PRIMARY KEY ({quoted(name)})", name
            return [Column(name, spelled, "INTEGER", f" PRIMARY KEY{conflict}")], "", name
        falling = self.random.choice(("", "", " DESC"))
        type_text = self.random.choice(("TEXT",) if self.strict else ("TEXT", "VARCHAR(9)", "", "BLOB"))
        return [Column(name, spelled, type_text, self._collation() + self._named_rest(f"PRIMARY KEY{falling}{conflict}"))], "", None

    def _named_rest(self, clause: str) -> str:
        return " " + self._named(clause)

    def _collation(self) -> str:
        return f" COLLATE {self.random.choice(COLLATIONS)}" if self.random.random() < 0.25 else ""

    def _ordinary(self) -> Column:
        name, spelled = self._next_name()
        me = quoted(name)
        clauses = [
            lambda: f" NOT NULL{self.random.choice(CONFLICTS)} DEFAULT {self.random.choice(('0', chr(39) + 'x y' + chr(39), '-1.5'))}",
            lambda: f" DEFAULT {self.random.choice(('(1 + 1)', 'CURRENT_DATE', 'NULL', 'word', '(lower(' + chr(39) + 'AB' + chr(39) + '))'))}",
            lambda: f" COLLATE {self.random.choice(COLLATIONS)}",
            lambda: self._named_rest(f"UNIQUE{self.random.choice(CONFLICTS)}"),
            lambda: self._named_rest(f"CHECK ({self._condition(me)})"),
            lambda: " REFERENCES [parent p]" + self.random.choice(("", "(id) ON DELETE CASCADE", "(n) DEFERRABLE INITIALLY DEFERRED")),
            lambda: f" REFERENCES {quoted(self.name)} ON UPDATE SET NULL NOT DEFERRABLE",
            lambda: self.random.choice(COMMENTS),
        ]
        chosen = [clause for clause in clauses if self.random.random() < 0.15]
        self.random.shuffle(chosen)
        return Column(name, spelled, self._type(), "".join(clause() for clause in chosen))

    def _condition(self, me: str) -> str:
        return self.random.choice(
            (
                f"{me} IS NOT 'refused'", f"typeof({me}) <> 'blob'", f"length({me}) < 40", f"{quoted(self.name)}.{me} IS NOT 7",
                f"{me} NOT LIKE 'z%' /* ) */", f"{me} IS NULL OR {me} + 0 < 1e18", f"typeof({me}) IN ('integer', 'null', 'text')",
            )
        )  # fmt: skip

    def _generated(self, columns: list[Column]) -> Column:
        name, spelled = self._next_name()
        over = quoted(self.random.choice(columns).name)
        expression = self.random.choice((f"{over} || 'g'", over, f"length({over})", f"coalesce({over}, 'none')", f"{over} + 1"))
        always = self.random.choice(("GENERATED ALWAYS AS", "AS"))
        kind = self.random.choice(("", " VIRTUAL", " STORED"))
        type_text = self._type() if self.strict or self.random.random() < 0.7 else ""
        return Column(name, spelled, type_text, f" {always} ({expression}){kind}{self._collation()}", generated=True)

    def _constraint(self, columns: list[Column]) -> str:
        one, two = (quoted(self.random.choice(columns).name) for _ in range(2))
        pair = f"{one}, {two}" if one != two else one
        return self._named(
            self.random.choice(
                (
                    f"UNIQUE ({pair}){self.random.choice(CONFLICTS)}", f"UNIQUE ({one} COLLATE NOCASE DESC)", f"CHECK ({self._condition(one)})",
                    f"FOREIGN KEY ({one}) REFERENCES [parent p](n) ON DELETE SET DEFAULT DEFERRABLE",
                    f"FOREIGN KEY ({one}) REFERENCES {self.spelled}",
                )
            )
        )  # fmt: skip


def _child(random: Random, target: Table) -> Table:
    to = random.choice(target.columns).name
    rest = f" REFERENCES {quoted(target.name)}({quoted(to)}) ON DELETE CASCADE ON UPDATE CASCADE"
    return Table("child", "child", (Column("id", "id", "INTEGER", " PRIMARY KEY"), Column("of", "of", "", rest)))


def _others(random: Random, target: Table) -> list[str]:
    """Make indexes, triggers, views and statistics, on the table and on others that mention it."""
    t = quoted(target.name)

    def column() -> str:
        return quoted(random.choice(target.columns).name)

    def index(number: int) -> str:
        unique = random.choice(("", "", "", "UNIQUE "))
        terms = random.choice(
            (
                f"{column()}", f"{column()} DESC, {column()}", f"{column()} COLLATE RTRIM", f"lower({column()})", f"{column()} || 'i' DESC",
                f"{column()} + 1", f"coalesce({column()}, {column()}) COLLATE NOCASE",
            )
        )  # fmt: skip
        where = random.choice(("", "", f" WHERE {column()} IS NOT NULL", f" WHERE {column()} > 3 -- few", f" WHERE typeof({column()}) = 'text'"))
        name = random.choice((f"i{number}", f"[i {number}]", f'"i""{number}"'))
        return f"CREATE {unique}INDEX {name} ON {random.choice((target.spelled, t))}({terms}){where}"

    made = [index(number) for number in range(random.choice((0, 1, 2, 3)))]
    pieces = [
        lambda: f"CREATE TRIGGER own_after AFTER INSERT ON {t} BEGIN INSERT INTO side VALUES ('ins', NULL, NEW.{column()}); END",
        lambda: f"CREATE TRIGGER [own before] BEFORE UPDATE OF {column()} ON {t} WHEN NEW.{column()} IS NOT OLD.{column()}"
        f" BEGIN INSERT INTO side VALUES ('upd', OLD.{column()}, NEW.{column()}); SELECT RAISE(IGNORE) WHERE NEW.{column()} = 'no'; END",
        lambda: f"CREATE TRIGGER own_delete AFTER DELETE ON {t} BEGIN DELETE FROM side WHERE old = OLD.{column()}; END",
        lambda: f"CREATE TRIGGER others AFTER DELETE ON side BEGIN UPDATE {t} SET {quoted(target.written()[0].name)} = NULL WHERE 0; END",
        lambda: f"CREATE VIEW v AS SELECT *, {column()} AS again FROM {t} /* view */ WHERE {column()} IS NOT NULL",
        lambda: f"CREATE VIEW broken AS SELECT nothing FROM nowhere JOIN {t}",
        lambda: "CREATE TRIGGER of_view INSTEAD OF DELETE ON v BEGIN DELETE FROM side; END",
        lambda: "CREATE TABLE late (x REFERENCES [parent p])",
        lambda: "ANALYZE",
    ]
    made += [piece() for piece in pieces if random.random() < 0.3]
    return made


def _change(random: Random, target: Table) -> Change:
    ordinary = [column for column in target.columns if column.name not in target.key and not column.generated]
    pool = ordinary if ordinary and random.random() < 0.75 else list(target.columns)
    column = random.choice(pool)
    types = STRICT_TYPES if "STRICT" in target.options else PLAIN_TYPES[1:]
    me, other = quoted(column.name), quoted(random.choice(target.columns).name)
    using = None
    if random.random() < 0.4 and not column.generated:
        using = random.choice(
            (
                f"CAST({me} AS INTEGER)", f"upper({me})", f"json({me})", me, f"coalesce({me}, 0)", f"{me} || ''", f"length({me})", "NULL",
                f"CASE WHEN typeof({me}) = 'text' THEN {me} || '%s :n ?' ELSE {me} END", f"coalesce({me}, {other})", f"({me}, 1) = ({other}, 1)",
                f"hex({me}) /* ) ' */", f"abs({me})", f"substr({me}, 1, 2)", f"({me})", f"{quoted(target.name)}.{me}",
            )
        )  # fmt: skip
    return Change(
        target.name, column.name, random.choice(types), using,
        prefix=random.choice(("ALTER COLUMN", "ALTER", "alter /* c */ column")), verb=random.choice(("TYPE", "SET DATA TYPE")),
    )  # fmt: skip
