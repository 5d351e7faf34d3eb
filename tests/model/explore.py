"""Breadth first through every state of an abstract machine: how many there are, what is wrong, and the shortest way there.

A step that breaks a rule and a state that breaks one are counted and not followed any further. A state from which no
way leads to a state of rest is counted as stuck.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

State = TypeVar("State", bound=Hashable)


@dataclass
class Step(Generic[State]):
    """One step: what happens, where it leads, and which rule it breaks, if any."""

    label: str
    to: State
    broken: str | None = None


@dataclass
class Found:
    """What was found."""

    states: int = 0
    edges: int = 0
    broken: Counter[str] = field(default_factory=Counter)
    traces: dict[str, list[str]] = field(default_factory=dict)

    @property
    def violations(self) -> int:
        """How many steps and states break a rule."""
        return sum(self.broken.values())

    def shortest(self) -> list[str]:
        """The shortest way to anything that is wrong."""
        return min(self.traces.values(), key=len, default=[])

    def __str__(self) -> str:
        lines = [f"{self.states} states, {self.edges} edges, {self.violations} violations"]
        for rule, number in self.broken.most_common():
            lines += [f"  {number} x {rule}:", *(f"      {label}" for label in self.traces[rule])]
        return "\n".join(lines)


def explore(
    initial: State,
    steps: Callable[[State], Iterator[Step[State]]],
    broken_in: Callable[[State], str | None],
    rests: Callable[[State], bool],
    *,
    states_max: int = 5_000_000,
) -> Found:
    """Visit everything that can be reached."""
    found = Found()
    came: dict[State, tuple[State, str] | None] = {initial: None}
    back: dict[State, list[State]] = {initial: []}
    border, resting = [initial], []
    while border:
        following: list[State] = []
        for state in border:
            rule = broken_in(state)
            if rule is not None:
                _note(found, rule, came, state, None)
                resting.append(state)  # it is not looked at further, so it is not called stuck as well
                continue
            if rests(state):
                resting.append(state)
            for step in steps(state):
                found.edges += 1
                if step.broken is not None:
                    _note(found, step.broken, came, state, step.label)
                    resting.append(state)
                    continue
                if step.to not in came:
                    came[step.to] = (state, step.label)
                    back[step.to] = []
                    following.append(step.to)
                back[step.to].append(state)
        border = following
        assert len(came) <= states_max, "the bounds of the model are too wide"
    found.states = len(came)
    _count_stuck(found, came, back, resting)
    return found


def _count_stuck(found: Found, came: dict, back: dict, resting: Iterable[State]) -> None:
    """Count the states from which no state of rest can be reached."""
    alive = set(resting)
    border = list(alive)
    while border:
        state = border.pop()
        for before in back[state]:
            if before not in alive:
                alive.add(before)
                border.append(before)
    for state in came:
        if state not in alive:
            _note(found, "stuck: nothing leads to an end", came, state, None)


def _note(found: Found, rule: str, came: dict, state: State, label: str | None) -> None:
    found.broken[rule] += 1
    if rule not in found.traces:
        found.traces[rule] = _way(came, state) + ([] if label is None else [label])


def _way(came: dict, state: State) -> list[str]:
    labels: list[str] = []
    while came[state] is not None:
        state, label = came[state]
        labels.append(label)
    return labels[::-1]
