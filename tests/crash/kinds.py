"""One scenario for every kind of statement, each by a shadow table where it can be, and some once more in one transaction."""

from __future__ import annotations

from dataclasses import replace

from tests.crash.application import METERS, REGISTER, SHOP, Application
from tests.crash.scenarios import SCENARIOS
from tests.crash.stepper import Scenario

__all__ = ["EVERY", "KINDS"]

CHECK = "CHECK (length(code) > 0)"
CUSTOMER = "customer INTEGER REFERENCES customers(id)"
LAST = f"{CHECK}\n)"
NOTE = "note TEXT COLLATE NOCASE DEFAULT 'none'"
BOTH = "UNIQUE (code, id)"
OF_SPARE = "FOREIGN KEY (spare) REFERENCES customers (id) ON DELETE SET NULL"
WITH_SPARE = tuple(text.replace("  amount TEXT,", "  amount TEXT,\n  spare TEXT DEFAULT 's',") for text in SHOP.schema)
CHANGES: dict[str, tuple[str, str, str]] = {
    "add-column": ("ADD COLUMN state TEXT NOT NULL DEFAULT 'new'", "STORED,", "STORED, state TEXT NOT NULL DEFAULT 'new',"),
    "add-generated-column": ("ADD COLUMN double AS (id * 2) STORED AFTER code", "ON CONFLICT ABORT,", "ON CONFLICT ABORT, double AS (id * 2) STORED,"),
    "drop-column": ("DROP COLUMN spare", "  spare TEXT DEFAULT 's',\n", ""),
    "move-column": ("MOVE amount AFTER note", f"  amount TEXT,\n  spare TEXT DEFAULT 's',\n  {NOTE}", f"  spare TEXT DEFAULT 's',\n  {NOTE}, amount TEXT"),
    "set-default": ("ALTER note SET DEFAULT 'nothing'", "DEFAULT 'none'", "DEFAULT 'nothing'"),
    "drop-default": ("ALTER note DROP DEFAULT", " DEFAULT 'none'", ""),
    "set-not-null": ("ALTER customer SET NOT NULL", CUSTOMER, f"{CUSTOMER} NOT NULL"),
    "drop-not-null": ("ALTER code DROP NOT NULL", "code TEXT NOT NULL", "code TEXT"),
    "add-check": ("ADD CONSTRAINT small CHECK (size < 99)", LAST, f"{CHECK}, CONSTRAINT small CHECK (size < 99)\n)"),
    "drop-check": (f"DROP {CHECK}", f",\n  {CHECK}", ""),
    "add-unique": (f"ADD {BOTH}", LAST, f"{CHECK}, {BOTH}\n)"),
    "drop-unique": (f"DROP {BOTH}", f", {BOTH}", ""),
    "add-foreign-key": (
        "ADD CONSTRAINT again FOREIGN KEY (customer) REFERENCES customers (id)", LAST,
        f"{CHECK}, CONSTRAINT again FOREIGN KEY (customer) REFERENCES customers (id)\n)",
    ),
    "drop-foreign-key": ("DROP FOREIGN KEY (spare)", f", {OF_SPARE}", ""),
    "set-strict": ("SET STRICT", LAST, f"{LAST} STRICT"),
}  # fmt: skip
FIRST: dict[str, tuple[str, str]] = {
    "drop-unique": (LAST, f"{CHECK}, {BOTH}\n)"),
    "drop-foreign-key": (f"spare TEXT DEFAULT 's',\n  {NOTE},\n  size INTEGER AS (length(code)) STORED,\n  {LAST}",
                         f"spare INTEGER,\n  {NOTE},\n  size INTEGER AS (length(code)) STORED,\n  {CHECK}, {OF_SPARE}\n)"),
}  # fmt: skip
"""What is put into the shop's texts before, so that there is something to drop that refuses no write beside it."""
AT_ONCE = ("add-generated-column", "drop-default", "move-column", "add-unique", "drop-unique", "set-strict")
UNIQUE_INDEX = "CREATE UNIQUE INDEX orders_both ON orders (code, id DESC)"

KEY = "number INTEGER NOT NULL PRIMARY KEY"
KEYLESS = "number INTEGER NOT NULL"
OF_METERS: dict[str, tuple[str, str, str]] = {
    "add-primary-key": ("ADD PRIMARY KEY (number)", f"({KEYLESS}, place TEXT NOT NULL, reading TEXT, tag TEXT UNIQUE)",
                        f"({KEYLESS}, place TEXT NOT NULL, reading TEXT, tag TEXT UNIQUE, PRIMARY KEY (number))"),
    "add-composite-primary-key": ("ADD PRIMARY KEY (place, number)", f"({KEYLESS}, place TEXT NOT NULL, reading TEXT, tag TEXT UNIQUE)",
                                  f"({KEYLESS}, place TEXT NOT NULL, reading TEXT, tag TEXT UNIQUE, PRIMARY KEY (place, number))"),
    "drop-primary-key": ("DROP PRIMARY KEY", KEY, KEYLESS),
    "set-without-rowid": ("SET WITHOUT ROWID", "tag TEXT UNIQUE)", "tag TEXT UNIQUE) WITHOUT ROWID"),
    "set-rowid": ("SET ROWID", "tag TEXT UNIQUE) WITHOUT ROWID", "tag TEXT UNIQUE)"),
}  # fmt: skip
METERS_FIRST = {
    "add-primary-key": (KEY, KEYLESS),
    "add-composite-primary-key": (KEY, KEYLESS),
    "set-rowid": ("tag TEXT UNIQUE)", "tag TEXT UNIQUE) WITHOUT ROWID"),
}
METERS_AT_ONCE = ("add-primary-key", "set-without-rowid")


def _of_shop(name: str) -> Application:
    change, old_text, new_text = CHANGES[name]
    schema = tuple(text.replace(*FIRST[name]) for text in WITH_SPARE) if name in FIRST else WITH_SPARE
    return replace(SHOP, schema=schema, change=f"ALTER TABLE orders {change}", old_text=old_text, new_text=new_text)


def _of_meters(name: str) -> Application:
    change, old_text, new_text = OF_METERS[name]
    schema = tuple(text.replace(*METERS_FIRST[name]) for text in METERS.schema) if name in METERS_FIRST else METERS.schema
    return replace(METERS, schema=schema, change=f"ALTER TABLE meters {change}", old_text=old_text, new_text=new_text)


def _renames() -> dict[str, Application]:
    """Make the renames: of a column in an index and a view, of a table that a trigger writes, and of one that is referred to."""
    of_spare = ("CREATE INDEX orders_rest ON orders (spare DESC)", "CREATE VIEW rest AS SELECT id, spare FROM orders WHERE spare > ''")
    noted = tuple(text.replace("orders_audit", "orders_noted") for text in SHOP.schema)
    return {
        "rename-column": replace(
            SHOP, schema=(*WITH_SPARE, *of_spare), change="ALTER TABLE orders RENAME COLUMN spare TO other",
            old_text="spare", new_text='"other"', renamed=("spare", "other"),
        ),
        "rename-table": replace(
            SHOP, schema=noted, change="ALTER TABLE audit RENAME TO trail", old_text="audit", new_text='"trail"', renamed=("audit", "trail"),
        ),
        "rename-parent": replace(
            SHOP, change="ALTER TABLE customers RENAME TO clients", old_text="customers", new_text='"clients"', renamed=("customers", "clients"),
        ),
    }  # fmt: skip


def _kinds() -> dict[str, Scenario]:
    found = {name: Scenario(name=name, application=_of_shop(name)) for name in CHANGES}
    found |= {name: Scenario(name=name, application=_of_meters(name)) for name in OF_METERS}
    not_strict = replace(REGISTER, change="ALTER TABLE register SET NOT STRICT", old_text=") STRICT, WITHOUT ROWID", new_text=") WITHOUT ROWID")
    found["set-not-strict"] = Scenario(name="set-not-strict", application=not_strict)
    found |= {f"{name}-at-once": replace(found[name], name=f"{name}-at-once", strategy="direct") for name in (*AT_ONCE, *METERS_AT_ONCE)}
    found |= {name: Scenario(name=name, application=application, strategy=None) for name, application in _renames().items()}
    index = replace(SHOP, change=UNIQUE_INDEX, old_text="\0", new_text="", made=(UNIQUE_INDEX,))
    found["unique-index"] = Scenario(name="unique-index", application=index)
    found["reindex"] = Scenario(name="reindex", application=replace(SHOP, change="REINDEX orders", old_text="\0", new_text=""))
    gone = replace(SHOP, change="DROP INDEX orders_open", old_text=SHOP.schema[3], new_text="SELECT 1")
    found["drop-index"] = Scenario(name="drop-index", application=gone, strategy=None)
    return found


KINDS = _kinds()
EVERY = {**SCENARIOS, **KINDS}
