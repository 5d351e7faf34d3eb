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
SCENARIOS = {
    scenario.name: scenario for scenario in (PLAIN, STRICT, ROLLBACK_JOURNAL, PAUSED, CANCELLED, CANCELLED_LATE, REFUSED)
}
