"""What a machine accepts when it is made, and what it answers."""

from enum import StrEnum

import pytest

from tideshift.fsm import Actor, Machine, Move


class Light(StrEnum):
    OFF = "off"
    DIM = "dim light"
    ON = "on"
    BROKEN = "broken"


USER, OWNER, NODE = Actor.USER, Actor.OWNER, Actor.NODE
MOVES = (
    Move(Light.OFF, "switch", Light.ON, USER, "it is dark"),
    Move(Light.ON, "switch", Light.OFF, USER, "it is day"),
    Move(Light.ON, "fade", Light.DIM, OWNER, "it is late"),
    Move(Light.DIM, "burn out", Light.BROKEN, NODE, "it is old"),
    Move(Light.BROKEN, "mend", Light.OFF, USER, "a new bulb"),
)


def light(*, moves=MOVES, final=(Light.BROKEN,)):
    return Machine("light", Light.OFF, moves, final=final)


def test_a_target_is_looked_up_by_state_and_event():
    """An allowed pair has its target and its move, any other pair has none."""
    machine = light()

    assert machine.target(Light.OFF, "switch") is Light.ON
    assert machine.move(Light.ON, "switch") == MOVES[1]
    assert machine.target(Light.OFF, "fade") is None
    assert machine.move(Light.OFF, "fade") is None
    assert machine.target(Light.OFF, "never heard of") is None


def test_everything_else_is_derived_from_the_moves():
    """States, events, sources, actors and what is allowed follow from the tuple."""
    machine = light()

    assert machine.states == tuple(Light)
    assert machine.events == ("burn out", "fade", "mend", "switch")
    assert machine.sources("switch") == {Light.OFF, Light.ON}
    assert machine.actor("fade") is OWNER
    assert machine.allowed(Light.ON, USER) == ("switch",)
    assert machine.allowed(Light.ON, OWNER) == ("fade",)
    assert machine.allowed(Light.OFF, NODE) == ()
    assert machine.final == {Light.BROKEN}


def test_the_diagram_names_every_move():
    """The picture starts at the initial state, shows events of a person in capitals, and ends at the final states."""
    lines = light().mermaid().splitlines()

    assert lines[:2] == ["stateDiagram-v2", "    [*] --> off"]
    assert "    off --> on: SWITCH" in lines
    assert "    on --> dim_light: fade" in lines
    assert "    dim_light --> broken: burn out" in lines
    assert lines[-1] == "    broken --> [*]"
    assert len(lines) == 2 + len(MOVES) + 1


MALFORMED = [
    ("two moves share a source and an event", (*MOVES, Move(Light.OFF, "switch", Light.DIM, USER, "why not"))),
    ("event 'fade' is taken by more than one actor", (*MOVES, Move(Light.OFF, "fade", Light.DIM, USER, "why not"))),
    ("states that nothing leads to: .*dim light", (*MOVES[:2], Move(Light.ON, "drop", Light.BROKEN, USER, "oops"))),
    ("off mend says not why", (*MOVES, Move(Light.OFF, "mend", Light.OFF, USER, ""))),
    ("only a person may reopen the final state broken", (*MOVES, Move(Light.BROKEN, "heal", Light.ON, OWNER, "magic"))),
    ("only a person may reopen the final state broken", (*MOVES, Move(Light.BROKEN, "heal", Light.ON, NODE, "magic"))),
]


@pytest.mark.parametrize(("complaint", "moves"), MALFORMED)
def test_a_malformed_machine_is_refused_when_it_is_made(complaint, moves):
    """A table that contradicts itself never gets as far as being used."""
    with pytest.raises(ValueError, match=complaint):
        light(moves=moves)


def test_a_state_from_which_nothing_ends_is_refused():
    """A state without a way to a final one is a trap."""
    moves = (*MOVES[:3], Move(Light.OFF, "drop", Light.BROKEN, USER, "oops"), Move(Light.DIM, "flicker", Light.DIM, NODE, "old"))

    with pytest.raises(ValueError, match=r"states from which nothing ends: .*dim light"):
        light(moves=moves)
