"""What an event log must look like, whoever wrote it in whatever order."""

from __future__ import annotations

from collections import Counter

from tideshift.fsm import Machine
from tideshift.store import events
from tideshift.store.database import Database


def assert_log_is_a_path(database: Database, machine: Machine, **about) -> list[str]:
    """Replay the moves against the machine: each rev once and in order, each move allowed where the one before ended.

    Every request has exactly one outcome once the row is final. Returns the events in order.
    """
    with database.transaction(write=False) as tx:
        log = events.history(tx, limit=100_000, **about)
    moves = [event for event in log if event.kind == "move"]
    submitted, *rest = moves
    state = machine.initial
    assert submitted.target == state
    for rev, move in enumerate(rest, start=2):
        assert move.detail["rev"] == rev, f"rev {rev} is missing or doubled: {move}"
        assert move.source == state, move
        assert machine.target(state, move.detail["event"]) == move.target, move
        state = type(machine.initial)(move.target)
    asked = [event.request_id for event in log if event.kind == "request"]
    answered = Counter(event.request_id for event in log if event.kind == "outcome")
    assert set(answered) <= set(asked)
    assert all(number == 1 for number in answered.values())
    if state in machine.final:
        assert set(asked) == set(answered), "a request has no outcome"
    return [move.detail["event"] for move in moves]
