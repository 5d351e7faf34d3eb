"""Commands that come at the worst moment: each is honoured, or refused with the rule, and has exactly one outcome.

The worst moment is between the owner's look at a job and its transaction (`ddl.after_job_read`); the other one is right
after a stage's move. The table says for each stage, command and moment how the job must end.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from tests.crash.outcome import offline_twin, read_ending, read_user
from tests.crash.scenarios import SCENARIOS
from tests.crash.stepper import Command, Life
from tests.crash.strikes import scratch
from tideshift import failpoint
from tideshift.config import FAST
from tideshift.connect import connect
from tideshift.dxf.commands import Verdict

STRICT = replace(SCENARIOS["strict"], writes=24)
PLACES = ("queueing", "check rows", "capture", "reorganize", "copy", "catch up", "verify", "cut over", "done")
MADE_FROM = PLACES.index("capture")
"""The stage whose move makes the first artifact."""
VERBS = ("cancel", "pause", "alter")
PARAMETERS = (("batch_size", 7),)


def life_in(folder, scenario=STRICT):
    """Begin a life on a new database."""
    path = folder / "commands.db"
    scenario.application.create(path, scenario.seed)
    return Life(path, scenario)


def run_with(life, place, moment, act):
    """Run to the end; at the place, once, act inside the owner's gap or right after the stage's move."""
    acted, seen = [], []

    def in_the_gap(**_):
        if life.observer.look().place == place:
            seen.append(place)
            if moment == "before" and len(seen) == 1:  # what acts may pass here itself
                acted.append(act())

    with failpoint.enable("ddl.after_job_read", call=in_the_gap):
        while not life.observer.look().settled:
            assert life.rounds < 400, life._why()
            life.round()
            if moment == "after" and not acted and seen and life.observer.look().place != place:
                acted.append(act())
    return acted


def resume_when_paused(life):
    """Let the client resume once the job is paused."""
    life.scenario = replace(life.scenario, script=(Command(verb="pause", at="nowhere"), Command(verb="resume", at="paused")))


def expected(place, verb, moment):
    """Return the verdict and the job's last state that the documents promise."""
    position = PLACES.index(place) + (moment == "after")
    if position >= PLACES.index("done"):
        return Verdict.REFUSED, "synced"
    if verb != "cancel":
        return Verdict.APPLIED, "synced"
    return Verdict.APPLIED, "cancelled" if position <= MADE_FROM else "rollback done"


CELLS = [
    (place, verb, moment)
    for place in PLACES
    for verb in VERBS
    for moment in ("before", "after")
    if (place, moment) != ("done", "after")  # the job is in the history then
]


@pytest.mark.parametrize(("place", "verb", "moment"), CELLS)
def test_command_at_stage(place, verb, moment):
    """A command at any boundary of any stage has the documented outcome, and the table the documented form."""
    with scratch() as folder, closing(life_in(folder)) as life:
        if verb == "pause":
            resume_when_paused(life)
        command = Command(verb=verb, at=place, parameters=PARAMETERS if verb == "alter" else ())

        (answer,) = run_with(life, place, moment, lambda: life.ask(command))
        life.writer.finish()
        ending = read_ending(life.path, life.told.acknowledged)
        outcomes = life.observer.rows("SELECT \"to\" FROM tideshift_event WHERE kind = 'outcome' AND request_id = ?", answer.request_id)

        verdict, state = expected(place, verb, moment)
        assert (answer.verdict, ending.job["state"]) == (verdict, state), answer
        if verdict is Verdict.REFUSED:
            assert ("the job is done; alter is possible" if verb == "alter" else "point of no return") in answer.reason
        # Behind the last chunk there is nothing left that could take over a parameter, and the outcome says so.
        in_vain = verb == "alter" and PLACES.index(place) + (moment == "after") >= PLACES.index("cut over")
        assert outcomes == ([] if verdict is Verdict.REFUSED else [("failed",)] if in_vain else [("applied",)])
        assert ending.problems == ()
        assert [*life.told.escaped, *life.told.logged] == []
        twin = offline_twin(replace(STRICT, ends=state), folder)
        assert ending.user.differences(twin) == []


@pytest.mark.parametrize(("place", "moment"), [("check rows", "before"), ("capture", "after"), ("copy", "before"), ("cut over", "before")])
def test_cancelled_change_can_be_made_again(place, moment):
    """After a cancel the table is its pre-image, and the same change then works."""
    scenario = replace(STRICT, writes=0)
    with scratch() as folder, closing(life_in(folder, scenario)) as life:
        before = read_user(life.path)
        run_with(life, place, moment, lambda: life.ask(Command(verb="cancel", at=place)))
        assert read_user(life.path).differences(before) == []

        life.submit()
        while not life.observer.look().settled:
            assert life.rounds < 400, life._why()
            life.round()

        assert life.observer.look().state == "synced"
        assert read_user(life.path).differences(offline_twin(scenario, folder)) == []


@pytest.mark.parametrize("place", PLACES[:-1])
def test_second_owner_gets_in(place):
    """An owner that lost its lease between looking and writing writes nothing; the new one ends the job."""
    with scratch() as folder, closing(life_in(folder)) as life:
        with connect(str(life.path), clock=life.clock, profile=FAST, actor="client") as other:
            second = other.owner("second")
            marks = []

            def take_over():
                life.clock.advance(FAST.lease_seconds + 0.1)
                second.tick()
                marks.append(life.observer.rows("SELECT max(id) FROM tideshift_event")[0][0])

            deposed = life.owner
            life.owner = Both(deposed, second)
            run_with(life, place, "before", take_over)
        life.writer.finish()
        late = life.observer.rows(
            "SELECT * FROM tideshift_event WHERE id > ? AND actor = ? AND kind = 'move' AND job_id IS NOT NULL", marks[0], deposed.lease.holder
        )
        ending = read_ending(life.path, life.told.acknowledged)

        assert late == []
        assert ending.job["state"] == "synced"
        assert (ending.problems, life.told.escaped, life.told.logged) == ((), [], [])
        assert ending.user.differences(offline_twin(STRICT, folder)) == []


class Both:
    """Two owners that tick in turn."""

    def __init__(self, first, second):
        self.first, self.second = first, second

    def tick(self):
        """Let both tick; only one of them holds the lease."""
        self.first.tick()
        self.second.tick()

    def renew(self):
        """Renew whatever is held."""
        self.first.renew()
        self.second.renew()


@pytest.mark.parametrize("verb", ["cancel", "resume", "alter"])
def test_command_while_the_owner_looks_at_a_paused_job(verb):
    """A command that comes while the owner has a paused job in its hands is honoured too."""
    scenario = replace(STRICT, script=(Command(verb="pause", at="copy", subtasks=1),))
    with scratch() as folder, closing(life_in(folder, scenario)) as life:
        command = Command(verb=verb, at="paused", parameters=PARAMETERS if verb == "alter" else ())
        if verb == "alter":
            by_the_test = Command(verb="alter", at="nowhere")
            life.scenario = replace(scenario, script=(*scenario.script, by_the_test, Command(verb="resume", at="paused")))

        (answer,) = run_with(life, "paused", "before", lambda: life.ask(command))
        life.writer.finish()
        ending = read_ending(life.path, life.told.acknowledged)

        assert answer.verdict is Verdict.APPLIED
        assert ending.job["state"] == ("rollback done" if verb == "cancel" else "synced")
        assert (ending.problems, life.told.escaped, life.told.logged) == ((), [], [])
