"""The runs that are killed, failed and interrupted: each a change under writes, with what is asked meanwhile."""

from __future__ import annotations

from dataclasses import replace

from tests.crash.application import REGISTER, SHOP
from tests.crash.stepper import Command, Scenario

PLAIN = Scenario(name="plain", application=SHOP)
STRICT = Scenario(name="strict", application=REGISTER)
ROLLBACK_JOURNAL = Scenario(name="rollback-journal", application=replace(SHOP, journal="delete"))
PAUSED = Scenario(
    name="paused", application=SHOP, steps=1, write_every=6,
    script=(
        Command(verb="pause", at="copy", subtasks=2), Command(verb="alter", at="paused", parameters=(("batch_size", 7),)),
        Command(verb="resume", at="paused"), Command(verb="alter", at="verify", subtasks=1, parameters=(("batch_size", 4),)),
    ),
)  # fmt: skip
CANCELLED = Scenario(
    name="cancelled", application=SHOP, script=(Command(verb="cancel", at="copy", subtasks=3),), steps=1, ends="rollback done",
)  # fmt: skip
CANCELLED_LATE = Scenario(
    name="cancelled-late", application=REGISTER,
    script=(Command(verb="pause", at="verify", subtasks=1), Command(verb="cancel", at="paused")), ends="rollback done",
)  # fmt: skip
REFUSED = Scenario(
    name="refused", writes=110, ends="rollback done",
    application=replace(REGISTER, poison=(80, ("INSERT INTO register VALUES ('z', 1000, 'no number', NULL)", ()))),
)  # fmt: skip
MANY_ACTIONS = Scenario(
    name="many-actions",
    application=replace(
        SHOP,
        change="ALTER TABLE orders ALTER customer TYPE TEXT, ADD COLUMN state TEXT NOT NULL DEFAULT 'new' AFTER code, DROP CHECK (length(code) > 0),"
        " ADD CONSTRAINT small CHECK (size < 99), ALTER note SET DEFAULT 'nothing'",
        old_text="""customer INTEGER REFERENCES customers(id),
  code TEXT NOT NULL UNIQUE ON CONFLICT ABORT,
  amount TEXT,
  note TEXT COLLATE NOCASE DEFAULT 'none',
  size INTEGER AS (length(code)) STORED,
  CHECK (length(code) > 0)
""",
        new_text="""customer TEXT REFERENCES customers(id),
  code TEXT NOT NULL UNIQUE ON CONFLICT ABORT, state TEXT NOT NULL DEFAULT 'new',
  amount TEXT,
  note TEXT COLLATE NOCASE DEFAULT 'nothing',
  size INTEGER AS (length(code)) STORED, CONSTRAINT small CHECK (size < 99)
""",
    ),
)
"""A rule that goes, a rule and a column that come, and a reference that is looked at."""
INDEX = Scenario(
    name="index",
    application=replace(
        SHOP, change="CREATE INDEX orders_note ON orders (note, id DESC) WHERE note IS NOT NULL", old_text="\0", new_text="",
        made=("CREATE INDEX orders_note ON orders (note, id DESC) WHERE note IS NOT NULL",),
    ),
)  # fmt: skip
DIRECT = Scenario(
    name="direct", strategy="direct",
    application=replace(REGISTER, change="ALTER TABLE register SET NOT STRICT", old_text=") STRICT, WITHOUT ROWID", new_text=") WITHOUT ROWID"),
)  # fmt: skip
INSTANT = Scenario(
    name="instant", strategy=None,
    application=replace(
        SHOP, change="ALTER TABLE orders ADD COLUMN extra INTEGER DEFAULT 7", old_text="STORED,", new_text="STORED, extra INTEGER DEFAULT 7,",
    ),
)  # fmt: skip
SHORT_OF_ROOM = Scenario(
    name="short-of-room", application=SHOP, short_of_room_at="copy", script=(Command(verb="resume", at="paused"),), steps=1, write_every=3,
)
"""Capture is given up in the middle of the copy, and the copy starts again when somebody says so."""
SCENARIOS = {
    scenario.name: scenario
    for scenario in (
        PLAIN, STRICT, ROLLBACK_JOURNAL, PAUSED, CANCELLED, CANCELLED_LATE, REFUSED, MANY_ACTIONS, INDEX, DIRECT, INSTANT,
        SHORT_OF_ROOM,
    )
}  # fmt: skip
