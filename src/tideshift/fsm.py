"""A state machine as one tuple of moves.

Everything that knows a rule about states asks the machine: the look-up of a target, the states from which an event is
allowed (the guard), the final states, the diagram in the docs, the exhaustive tests, the commands a person is offered.
A move whose target depends on data is several moves with distinct events, never a computed target.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

__all__ = ["Actor", "Machine", "Move"]


class Actor(StrEnum):
    """Who takes a move: a person or client, the one owner, or a node that executes."""

    USER = "user"
    OWNER = "owner"
    NODE = "node"


S = TypeVar("S", bound=StrEnum)


@dataclass(frozen=True)
class Move(Generic[S]):
    """One edge: in `source`, `event` leads to `target`, taken by `actor`, because of `why`."""

    source: S
    event: str
    target: S
    actor: Actor
    why: str


class Machine(Generic[S]):
    """The moves of one kind of row, checked for well-formedness when it is made."""

    def __init__(self, name: str, initial: S, moves: Iterable[Move[S]], *, final: Iterable[S]) -> None:
        self.name = name
        self.initial = initial
        self.moves = tuple(moves)
        self.final = frozenset(final)
        self.states: tuple[S, ...] = tuple(type(initial))
        self.events: tuple[str, ...] = tuple(sorted({move.event for move in self.moves}))
        self._targets = {(move.source, move.event): move for move in self.moves}
        self._check()

    def _check(self) -> None:
        if len(self._targets) != len(self.moves):
            raise ValueError(f"{self.name}: two moves share a source and an event")
        for event in self.events:
            if len({move.actor for move in self.moves if move.event == event}) != 1:
                raise ValueError(f"{self.name}: event {event!r} is taken by more than one actor")
        lost = set(self.states) - self._reach({self.initial}, forward=True)
        if lost:
            raise ValueError(f"{self.name}: states that nothing leads to: {sorted(lost)}")
        stuck = set(self.states) - self._reach(set(self.final), forward=False)
        if stuck:
            raise ValueError(f"{self.name}: states from which nothing ends: {sorted(stuck)}")
        for move in self.moves:
            if not move.why:
                raise ValueError(f"{self.name}: {move.source} {move.event} says not why")
            if move.source in self.final and move.actor is not Actor.USER:
                raise ValueError(f"{self.name}: only a person may reopen the final state {move.source}")

    def _reach(self, start: set[S], *, forward: bool) -> set[S]:
        """Follow the moves from `start` until nothing new is found; bounded by the number of states."""
        seen, border = set(start), set(start)
        while border:
            edges = [(m.source, m.target) if forward else (m.target, m.source) for m in self.moves]
            border = {there for here, there in edges if here in border} - seen
            seen |= border
        return seen

    def target(self, source: S, event: str) -> S | None:
        """Return where the event leads from this state, or None where it is not allowed."""
        move = self._targets.get((source, event))
        return None if move is None else move.target

    def move(self, source: S, event: str) -> Move[S] | None:
        """Return the move itself, or None."""
        return self._targets.get((source, event))

    def sources(self, event: str) -> frozenset[S]:
        """Return the states from which the event is allowed."""
        return frozenset(move.source for move in self.moves if move.event == event)

    def actor(self, event: str) -> Actor:
        """Return who takes this event."""
        return next(move.actor for move in self.moves if move.event == event)

    def allowed(self, source: S, actor: Actor) -> tuple[str, ...]:
        """Return the events that this actor may take now, in the order of the table."""
        return tuple(move.event for move in self.moves if move.source is source and move.actor is actor)

    def mermaid(self) -> str:
        """Draw the machine as a Mermaid state diagram; events of a person are in capitals."""
        names = {state: str(state).replace(" ", "_").replace("-", "_") for state in self.states}
        lines = ["stateDiagram-v2", f"    [*] --> {names[self.initial]}"]
        for move in self.moves:
            label = move.event.upper() if move.actor is Actor.USER else move.event
            lines.append(f"    {names[move.source]} --> {names[move.target]}: {label}")
        lines += [f"    {names[state]} --> [*]" for state in self.states if state in self.final]
        return "\n".join(lines)
