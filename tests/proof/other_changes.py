"""The outcome oracle's other changes: every kind that a shadow table carries out, on a table with the same columns."""

from __future__ import annotations

from tests.proof.shapes import REST, REST_LOOSE, Shape

__all__ = ["OTHER_CHANGES"]

_SPARE = "spare TEXT DEFAULT 'kept'"
_BAD = "CHECK (note IS NOT 'bad')"
_N = "n TEXT NOT NULL DEFAULT 'usual' UNIQUE"
_COUNTED = f"CREATE TABLE t (k INTEGER PRIMARY KEY AUTOINCREMENT, {REST}, {_SPARE})"
_NUMBERED = f"CREATE TABLE t (k INTEGER PRIMARY KEY, {REST}, {_SPARE})"
_PLAIN = f"CREATE TABLE t (k INT PRIMARY KEY ON CONFLICT REPLACE, {REST_LOOSE}, {_SPARE})"
_KEYLESS = f"CREATE TABLE t (k INT NOT NULL UNIQUE, {REST_LOOSE}, {_SPARE})"


def _change(name: str, action: str, *edits: tuple[str, str], text: str = _COUNTED, walk: str = "k", whole: bool = False) -> Shape:
    asked = action if whole else f"ALTER TABLE t {action}"
    return Shape(name, text, "TEXT", "", "k", walk=walk, asked=asked, edits=edits)


def _added(constraint: str) -> tuple[str, str]:
    """Return the edit that adds a constraint behind the last column."""
    return (f"{_SPARE})", f"{_SPARE}, {constraint})")


OTHER_CHANGES = (
    _change("add column", "ADD COLUMN late TEXT NOT NULL DEFAULT (lower('X')) AFTER k", (", u TEXT", ", late TEXT NOT NULL DEFAULT (lower('X')), u TEXT")),
    _change("add unique column", "ADD COLUMN late INT UNIQUE", (_SPARE, f"{_SPARE}, late INT UNIQUE")),
    _change("add generated column", "ADD COLUMN late AS (amount || '!') STORED", (_SPARE, f"{_SPARE}, late AS (amount || '!') STORED")),
    _change("drop column", "DROP COLUMN spare", (f", {_SPARE}", "")),
    _change("move column", "MOVE note BEFORE u", (f", note TEXT {_BAD}", ""), ("u TEXT UNIQUE", f"note TEXT {_BAD}, u TEXT UNIQUE")),
    _change("set default", "ALTER note SET DEFAULT 'usual'", (_BAD, f"{_BAD} DEFAULT 'usual'")),
    _change("drop default", "ALTER n DROP DEFAULT", (_N, "n TEXT NOT NULL UNIQUE")),
    _change("set not null", "ALTER spare SET NOT NULL", (_SPARE, f"{_SPARE} NOT NULL")),
    _change("drop not null", "ALTER n DROP NOT NULL", (_N, "n TEXT DEFAULT 'usual' UNIQUE")),
    _change("add check", "ADD CHECK (v IS NOT 100000)", _added("CHECK (v IS NOT 100000)")),
    _change("drop check", f"DROP {_BAD}", (f" {_BAD}", "")),
    _change("add unique", "ADD UNIQUE (u, k)", _added("UNIQUE (u, k)")),
    _change("drop unique", "DROP UNIQUE (n)", (_N, "n TEXT NOT NULL DEFAULT 'usual'")),
    _change(
        "add foreign key", "ADD FOREIGN KEY (spare) REFERENCES parent ON DELETE SET NULL",
        ("spare INTEGER)", "spare INTEGER, FOREIGN KEY (spare) REFERENCES parent ON DELETE SET NULL)"), text=_COUNTED.replace(_SPARE, "spare INTEGER"),
    ),
    _change("drop foreign key", "DROP FOREIGN KEY (p)", (" REFERENCES parent(id) ON DELETE CASCADE ON UPDATE CASCADE", "")),
    _change("add primary key", "ADD PRIMARY KEY (k, n)", _added("PRIMARY KEY (k, n)"), text=_KEYLESS, walk="rowid"),
    _change(
        "add integer primary key", "ADD PRIMARY KEY (k)", _added("PRIMARY KEY (k)"), text=_KEYLESS.replace("k INT ", "k INTEGER "), walk="rowid",
    ),
    _change("drop primary key", "DROP PRIMARY KEY", (" PRIMARY KEY ON CONFLICT REPLACE", ""), text=_PLAIN, walk="rowid"),
    _change(
        "drop integer primary key", "DROP PRIMARY KEY", (" PRIMARY KEY", ""),
        text=_NUMBERED.replace("REFERENCES t(k)", "REFERENCES t(u)"), walk="rowid",
    ),
    _change("set strict", "SET STRICT", (f"{_SPARE})", f"{_SPARE}) STRICT")),
    _change("set not strict", "SET NOT STRICT", (") STRICT", ")"), text=f"{_COUNTED} STRICT"),
    _change("set without rowid", "SET WITHOUT ROWID", (f"{_SPARE})", f"{_SPARE}) WITHOUT ROWID"), text=_NUMBERED),
    _change("set rowid", "SET ROWID", (") WITHOUT ROWID", ")"), text=f"{_NUMBERED} WITHOUT ROWID"),
    _change("create index", "CREATE INDEX late ON t (amount, note DESC)", whole=True),
    _change("create unique index", "CREATE UNIQUE INDEX late ON t (k DESC, u) WHERE v IS NOT NULL", whole=True),
    _change("reindex", "REINDEX t", whole=True),
    _change(
        "several", "DROP COLUMN spare, ADD COLUMN more INT DEFAULT 1 FIRST, ALTER note SET DEFAULT 'no', ALTER amount TYPE NUMERIC",
        (f", {_SPARE}", ""), ("(k INTEGER", "(more INT DEFAULT 1, k INTEGER"), (_BAD, f"{_BAD} DEFAULT 'no'"), ("amount TEXT", "amount NUMERIC"),
    ),
)  # fmt: skip
