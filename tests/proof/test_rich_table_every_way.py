"""Every kind of statement on the rich table: what was not asked to change is the same to the byte, and full-text search still fits."""

from __future__ import annotations

import shutil
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.proof.engine import application, on_engine
from tests.proof.reload import holds
from tests.proof.rich_table import ORDERS, fill
from tideshift import errors

ROWS = 90
ID = "id INTEGER PRIMARY KEY AUTOINCREMENT"
UNCOUNTED = ORDERS.replace(" AUTOINCREMENT", "")
KEYLESS = ORDERS.replace(ID, "id INTEGER NOT NULL UNIQUE")
KEYED = ORDERS.replace(ID, "id INTEGER NOT NULL UNIQUE PRIMARY KEY")
TYPED = (
    ORDERS.replace("varchar(20)", "TEXT").replace("decimal(10,2)", "REAL").replace("datetime", "TEXT").replace("net AS", "net REAL AS")
    .replace("parent REFERENCES", "parent INTEGER REFERENCES")
)  # fmt: skip
"""The same with types that a STRICT table has."""
KNOWN_STATE = " CONSTRAINT known_state CHECK (state IN ('new', 'sent', 'it''s lost'))"
IN_REGION = ",\n  CONSTRAINT in_region FOREIGN KEY (region) REFERENCES region (id) ON UPDATE CASCADE DEFERRABLE INITIALLY DEFERRED"
ONE_OF_EACH = ",\n  CONSTRAINT \"one of each\" UNIQUE (customer, code) ON CONFLICT REPLACE"
LATE = "CREATE INDEX late ON orders (lower(state), placed DESC) WHERE state <> 'sent'"
OPEN_ORDERS = "CREATE INDEX open_orders ON orders(customer) WHERE state = 'new' -- few"


@dataclass(frozen=True)
class Kind:
    """One statement, what it replaces in the table's own text, and what else may differ."""

    action: str
    edits: tuple[tuple[str, str], ...] = ()
    values: dict[str, str] = field(default_factory=dict)
    """The columns whose values are new, each with what it must be."""
    lost: tuple[str, ...] = ()
    orders: str = ORDERS
    strategy: str | None = "shadow_table"
    keys_change: bool = False
    made: tuple[tuple[str, str, str, str], ...] = ()
    gone: str | None = None

    @property
    def statement(self) -> str:
        """Return the whole statement."""
        return self.action if self.action.startswith(("CREATE", "DROP INDEX", "REINDEX")) else f"ALTER TABLE orders {self.action}"

    @property
    def new_text(self) -> str:
        """Return the table's text after the change."""
        text = self.orders
        for old, new in self.edits:
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        return text


def _added(constraint: str) -> tuple[tuple[str, str]]:
    return ((f"{IN_REGION}\n)", f"{IN_REGION}, {constraint}\n)"),)


KINDS = {
    "type": Kind("ALTER amount TYPE REAL USING amount * 2", (("decimal(10,2)", "REAL"),), values={"amount": "amount = 2.0 * (id * 37 % 1000) / 4", "net": "1"}),
    "add column": Kind(
        "ADD COLUMN extra TEXT NOT NULL DEFAULT 'e' AFTER customer", (("NOCASE,\n", "NOCASE, extra TEXT NOT NULL DEFAULT 'e',\n"),),
        values={"extra": "extra = 'e'"},
    ),
    "add unique column": Kind("ADD COLUMN extra INT UNIQUE", (("IGNORE,\n", "IGNORE, extra INT UNIQUE,\n"),), values={"extra": "extra IS NULL"}, keys_change=True),
    "add generated column": Kind(
        "ADD COLUMN gross AS (amount * 2) STORED FIRST", ((ID, f"gross AS (amount * 2) STORED, {ID}"),), values={"gross": "gross = amount * 2"},
    ),
    "drop column": Kind("DROP COLUMN parent", (("parent REFERENCES orders(id) ON DELETE SET NULL,\n  ", ""),), lost=("parent",)),
    "move column": Kind("MOVE region BEFORE customer", (("region INTEGER,\n  ", ""), ("customer varchar", "region INTEGER, customer varchar"))),
    "set default": Kind("ALTER region SET DEFAULT 3", (("region INTEGER", "region INTEGER DEFAULT 3"),)),
    "drop default": Kind("ALTER weight DROP DEFAULT", ((" DEFAULT (1 + 1)", ""),)),
    "set not null": Kind("ALTER weight SET NOT NULL", (("DEFAULT (1 + 1)", "DEFAULT (1 + 1) NOT NULL"),)),
    "drop not null": Kind("ALTER customer DROP NOT NULL", ((" NOT NULL COLLATE", " COLLATE"),)),
    "add check": Kind("ADD CHECK (weight < 1000)", _added("CHECK (weight < 1000)")),
    "drop check": Kind("DROP CHECK (amount >= 0)", ((" CHECK (amount >= 0)", ""),)),
    "drop named check": Kind("DROP CONSTRAINT known_state", ((KNOWN_STATE, ""),)),
    "add unique": Kind("ADD UNIQUE (placed, id)", _added("UNIQUE (placed, id)"), keys_change=True),
    "drop unique": Kind("DROP UNIQUE (code)", ((" UNIQUE ON CONFLICT IGNORE", ""),), keys_change=True),
    "drop named unique": Kind("DROP CONSTRAINT \"one of each\"", ((ONE_OF_EACH, ""),), keys_change=True),
    "add foreign key": Kind(
        "ADD CONSTRAINT heavy FOREIGN KEY (weight) REFERENCES region (id)", _added("CONSTRAINT heavy FOREIGN KEY (weight) REFERENCES region (id)"),
    ),
    "drop foreign key": Kind("DROP FOREIGN KEY (region)", ((IN_REGION, ""),)),
    "drop reference": Kind("DROP FOREIGN KEY (parent)", ((" REFERENCES orders(id) ON DELETE SET NULL", ""),)),
    "add primary key": Kind("ADD PRIMARY KEY (id)", _added("PRIMARY KEY (id)"), orders=KEYLESS),
    "drop primary key": Kind("DROP PRIMARY KEY", ((" UNIQUE PRIMARY KEY", " UNIQUE"),), orders=KEYED),
    "strict": Kind("SET STRICT", ((f"{IN_REGION}\n)", f"{IN_REGION}\n) STRICT"),), orders=TYPED),
    "not strict": Kind("SET NOT STRICT", ((") STRICT", ")"),), orders=f"{TYPED} STRICT"),
    "without rowid": Kind("SET WITHOUT ROWID", ((f"{IN_REGION}\n)", f"{IN_REGION}\n) WITHOUT ROWID"),), orders=UNCOUNTED),
    "rowid": Kind("SET ROWID", ((") WITHOUT ROWID", ")"),), orders=f"{UNCOUNTED} WITHOUT ROWID"),
    "several": Kind(
        "DROP COLUMN parent, ADD COLUMN extra INT DEFAULT 7, ALTER placed TYPE TEXT, ALTER state SET DEFAULT 'sent'",
        (("parent REFERENCES orders(id) ON DELETE SET NULL,\n  ", ""), ("IGNORE,\n", "IGNORE, extra INT DEFAULT 7,\n"), ("datetime", "TEXT"),
         ("state TEXT DEFAULT 'new'", "state TEXT DEFAULT 'sent'")),
        values={"extra": "extra = 7"}, lost=("parent",),
    ),
    "create index": Kind(LATE, made=(("index", "late", "orders", LATE),)),
    "drop index": Kind("DROP INDEX open_orders", gone="open_orders", strategy=None),
    "reindex": Kind("REINDEX orders"),
    "reindex one": Kind("REINDEX by_label"),
}  # fmt: skip


def columns_of(path: Path) -> dict[str, list[Any]]:
    """Return each column's values with their storage classes in the order of the keys, and the rows' numbers where they have any."""
    with closing(application(path)) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM pragma_table_xinfo('orders')")]
        numbered = not connection.execute("SELECT wr FROM pragma_table_list WHERE name = 'orders'").fetchone()[0]
        shown = {name: f'typeof("{name}"), quote("{name}")' for name in names} | ({"(rowid)": "rowid"} if numbered else {})
        return {name: connection.execute(f"SELECT {terms} FROM orders ORDER BY id").fetchall() for name, terms in shown.items()}


def found_by(path: Path) -> list[Any]:
    """Return what the full-text index finds, once it has been compared with the table."""
    with closing(application(path)) as connection:
        connection.execute("INSERT INTO found(found, rank) VALUES ('integrity-check', 1)")
        return connection.execute("SELECT rowid, customer, label FROM found WHERE found MATCH 'customer 3' ORDER BY rowid").fetchall()


@pytest.mark.parametrize("name", KINDS)
def test_only_what_was_asked_for_differs(sqlite_path: Path, name: str) -> None:
    """Each text of the catalogue, each row and its number, the counter and every reference are as before, but for what the statement says."""
    kind = KINDS[name]
    fill(sqlite_path, orders=kind.orders, rows=ROWS)
    before, columns, found = holds(sqlite_path), columns_of(sqlite_path), found_by(sqlite_path)

    with on_engine(sqlite_path, strategy=kind.strategy) as engine:
        job = engine.run(kind.statement, batch_size=40)

    after = holds(sqlite_path)
    assert (str(job.state), job.error) == ("synced", None)
    texts = [(*row[:3], kind.new_text if row[:2] == ("table", "orders") else row[3]) for row in before["schema"] if row[3] and row[1] != kind.gone]
    assert [row for row in after["schema"] if row[3]] == [*texts, *kind.made]
    if not kind.keys_change:
        assert [row for row in after["schema"] if not row[3]] == [row for row in before["schema"] if not row[3]]
    see_rows(sqlite_path, kind, (before, after), columns)
    assert found_by(sqlite_path) == found != []


def see_rows(path: Path, kind: Kind, ends: tuple[dict[str, Any], dict[str, Any]], columns: dict[str, list[Any]]) -> None:
    """Compare every table that is not the one under change, and that one column by column."""
    before, after = ends
    own = ("orders", "sqlite_stat1")
    assert {name: rows for name, rows in after["rows"].items() if name not in own} == {
        name: rows for name, rows in before["rows"].items() if name not in own
    }
    statistics = [one["rows"]["sqlite_stat1"] for one in ends]
    lost = [row for row in statistics[0] if row not in statistics[1]]
    assert [row for row in statistics[1] if row not in statistics[0]] == []
    # Those of an index that is gone, or that is another one under the same name.
    assert all("sqlite_autoindex_orders" in row[2] if kind.keys_change else kind.gone and f"'{kind.gone}'" in row[2] for row in lost)
    for what in ("sequence", "references", "integrity"):
        assert after[what] == before[what], what
    now = columns_of(path)
    new = {*kind.values, *(["(rowid)"] if "ROWID" in kind.action else [])}
    assert now.keys() - columns.keys() <= new
    assert columns.keys() - now.keys() <= {*kind.lost, *new}
    for name in now.keys() - new:
        assert now[name] == columns[name], name
    with closing(application(path)) as connection:
        for name, condition in kind.values.items():
            assert connection.execute(f"SELECT count(*) FROM orders WHERE ({condition}) IS NOT 1").fetchone()[0] == 0, name


RENAMES = (
    "ALTER TABLE orders RENAME COLUMN weight TO \"mass\"", "ALTER TABLE line RENAME TO lines", "ALTER TABLE region RENAME TO regions",
)  # fmt: skip


@pytest.mark.parametrize("statement", RENAMES)
def test_a_rename_is_what_the_library_makes_of_it(sqlite_path: Path, statement: str) -> None:
    """The file is that of the library's own statement, to the byte of each text."""
    fill(sqlite_path, rows=ROWS)
    twin = sqlite_path.with_name("twin.db")
    with closing(application(sqlite_path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
    shutil.copyfile(sqlite_path, twin)
    with closing(application(twin)) as connection:
        connection.execute(statement)

    with on_engine(sqlite_path, strategy=None) as engine:
        job = engine.run(statement)

    assert (str(job.state), job.error, job.strategy) == ("synced", None, "instant")
    assert holds(sqlite_path) == holds(twin)


REFUSED = {
    "ALTER TABLE orders DROP COLUMN weight": "trigger region_gone",
    "ALTER TABLE orders DROP COLUMN customer": "customer",
    "ALTER TABLE orders DROP COLUMN placed": "by_placed",
    "ALTER TABLE orders DROP PRIMARY KEY": "line",
    "ALTER TABLE orders ADD PRIMARY KEY (customer)": "there is a primary key already",
    "ALTER TABLE orders SET STRICT": "varchar(20)",
    "ALTER TABLE orders SET WITHOUT ROWID": "AUTOINCREMENT",
    "ALTER TABLE orders RENAME COLUMN customer TO buyer": "found",
    "ALTER TABLE orders RENAME TO purchases": "found",
    "ALTER TABLE found RENAME TO lost": "virtual table",
    "DROP INDEX sqlite_autoindex_orders_1": "belongs to a constraint",
}


@pytest.mark.parametrize("statement", REFUSED)
def test_what_would_break_something_is_refused(sqlite_path: Path, statement: str) -> None:
    """It is refused before anything is made, and names what is in the way."""
    fill(sqlite_path, rows=ROWS)
    before = holds(sqlite_path)

    with on_engine(sqlite_path, strategy=None) as engine, pytest.raises(errors.PlanRefused) as raised:
        engine.submit(statement)

    assert REFUSED[statement] in raised.value.message
    assert holds(sqlite_path) == before


def test_words_of_old_values_are_warned_of(sqlite_path: Path) -> None:
    """Where the change makes other values of what full-text search knows, the plan says how to make its index again, and that mends it."""
    fill(sqlite_path, rows=ROWS)
    with on_engine(sqlite_path) as engine:
        ddl = engine.connected.ddl
        untouched = ddl.plan("ALTER TABLE orders ALTER amount TYPE REAL", strategy="shadow_table").warnings
        job = engine.run("ALTER TABLE orders ALTER customer TYPE TEXT USING 'somebody'", batch_size=40)

    (told,) = [warning for warning in job.warnings if "full-text index found" in warning]
    assert not [warning for warning in untouched if "full-text" in warning]
    with closing(application(sqlite_path)) as connection:
        connection.execute(told.partition(": ")[2])
        assert connection.execute("SELECT count(*) FROM found WHERE found MATCH 'somebody'").fetchone()[0] == ROWS - 10
