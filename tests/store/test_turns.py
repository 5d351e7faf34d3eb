from __future__ import annotations

import threading

import pytest

from tideshift.clock import SteppedClock, SystemClock
from tideshift.config import PARAMETERS
from tideshift.store.turns import LOCK_SHARE_PERCENT, ROOM_SECONDS, Turns, room_after

USUAL = {"wait_seconds": 1.0, "lock_share_percent": 25}


@pytest.mark.parametrize(
    ("held_seconds", "share", "room"),
    [
        (0.009, 25, ROOM_SECONDS),
        (0.5, 25, ROOM_SECONDS),
        (0.001, 25, 0.01),
        (0.009, 5, ROOM_SECONDS),
        (0.009, 50, 0.009),
        (0.5, 50, ROOM_SECONDS),
        (0.009, 100, 0.0),
        (0.0, 25, 0.0),
    ],
)
def test_room_follows_the_hold(held_seconds, share, room):
    """Others get as long as a refused writer sleeps, less behind a very short hold or for a larger share, nothing for all of it."""
    assert room_after(held_seconds, lock_share_percent=share) == pytest.approx(room)


def test_the_usual_share_is_that_of_the_configuration():
    """Who wishes nothing gets the share that the documentation and the help tell of."""
    assert PARAMETERS["lock_share"].default == LOCK_SHARE_PERCENT


def used(turns, clock, *, held_seconds, **wished):
    """Take a turn, hold the lock for a while, and return when the lock was asked for."""
    with turns.turn(**{**USUAL, **wished}) as turn:
        asked_at = clock.monotonic()
        turn.begun()
        if held_seconds:
            clock.advance(held_seconds)
    return asked_at


def test_the_next_turn_leaves_room():
    """The lock is asked for again only when it was free for the whole gap, and at once when that has passed anyway."""
    clock = SteppedClock()
    turns = Turns(clock)

    first = used(turns, clock, held_seconds=0.01)
    second = used(turns, clock, held_seconds=0.01)
    clock.advance(1.0)
    third = used(turns, clock, held_seconds=0.0)

    assert second - first == pytest.approx(0.01 + ROOM_SECONDS, abs=1e-6)
    assert third - second == pytest.approx(0.01 + 1.0, abs=1e-6)


def test_a_turn_without_a_lock_leaves_none():
    """A transaction that never got the lock, or held it for no time, keeps nobody waiting."""
    clock = SteppedClock()
    turns = Turns(clock)

    with turns.turn(**USUAL):
        clock.advance(0.01)
    first = used(turns, clock, held_seconds=0.0)
    second = used(turns, clock, held_seconds=0.0)

    assert second == first


def test_turns_do_not_overlap():
    """While one thread has its turn no other one of the process gets in; each has its own in the end."""
    turns = Turns(SystemClock())
    asks, inside = threading.Semaphore(0), threading.Semaphore(0)
    had = []

    def work():
        asks.release()
        with turns.turn(**{**USUAL, "wait_seconds": 30.0}) as turn:
            inside.release()
            had.append(turn.ours)

    threads = [threading.Thread(target=work) for _ in range(4)]
    with turns.turn(**USUAL) as first:
        for thread in threads:
            thread.start()
        for _ in threads:
            assert asks.acquire(timeout=30)
        met = inside.acquire(timeout=0.05)  # long enough for a thread that nothing keeps out
    for thread in threads:
        thread.join(30)

    assert first.ours
    assert not met
    assert had == [True] * 4


def test_who_waited_too_long_goes_on_without():
    """A transaction whose time is over asks the database, which has the last word, and leaves the other's turn alone."""
    turns = Turns(SystemClock())

    with turns.turn(**USUAL) as first:
        with turns.turn(wait_seconds=0.0, lock_share_percent=25) as second:
            pass
        with turns.turn(wait_seconds=0.0, lock_share_percent=25) as third:
            pass
    with turns.turn(**USUAL) as fourth:
        pass

    assert (first.ours, second.ours, third.ours, fourth.ours) == (True, False, False, True)


def test_who_asked_first_is_served_first():
    """A thread that takes one turn after the other passes nobody over: whoever waits has the very next turn."""
    turns = Turns(SystemClock())
    served: list[str] = []
    waiting = threading.Event()

    def heart():
        waiting.set()
        with turns.turn(**{**USUAL, "wait_seconds": 30.0}):
            served.append("heart")

    thread = threading.Thread(target=heart)
    with turns.turn(**USUAL):
        thread.start()
        waiting.wait(30)
        while not turns._order._waiting:  # ends: the thread is in line in a moment
            continue
    for _ in range(200):
        with turns.turn(**USUAL):
            served.append("busy")
    thread.join(30)

    assert served[0] == "heart"


def test_who_waited_too_long_leaves_the_line():
    """The next turn goes to one who is still there."""
    turns = Turns(SystemClock())

    with turns.turn(**USUAL):
        late = threading.Thread(target=lambda: _short_turn(turns))
        late.start()
        late.join(30)
    with turns.turn(**{**USUAL, "wait_seconds": 0.0}) as turn:
        ours = turn.ours

    assert ours


def _short_turn(turns):
    with turns.turn(**{**USUAL, "wait_seconds": 0.01}) as turn:
        assert not turn.ours
