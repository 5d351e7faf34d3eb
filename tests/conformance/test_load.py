"""How busy the database is: the protocol Load, on each dialect."""

import os
import sys

import pytest

from tideshift.dialects import points

GIB = 1 << 30


@pytest.fixture
def room(dialect):
    """Measures the room, on a dialect that can."""
    if dialect.load.room() is None:
        pytest.skip("this dialect cannot know the room on its disk")
    return dialect.load.room


def test_the_reserve_leaves_something_for_the_end(room):
    """A copy waits before the reserve is touched, and a job gives its capture up while there is still a little."""
    measured = room()

    assert measured.free_bytes >= 0
    assert 0 < measured.least_bytes < measured.reserve_bytes


def test_the_room_is_measured_now(room, failpoints):
    """What is free may be another number at every look, and is never remembered."""
    measured = []
    for free in (GIB, 0, 5 * GIB):
        failpoints.enable(points.DISK_FREE, f"return({free})")
        measured.append(room().free_bytes)

    assert measured == [GIB, 0, 5 * GIB]


def test_measuring_needs_no_lock(room, changeable):
    """It answers while somebody else writes, since it is asked in the middle of a copy."""
    with changeable.transaction():
        assert room().free_bytes >= 0


def test_whoever_begins_after_a_moment_is_not_older_than_it(dialect, changeable):
    """A look by itself is never what is waited for."""
    with changeable.transaction(write=False) as tx:
        moment = dialect.load.moment(tx)

    with changeable.transaction(write=False) as tx:
        assert dialect.load.older_snapshots(tx, moment) == []


def test_the_holder_of_the_lock_is_named_while_it_holds_it(dialect, changeable):
    """Where every writer needs one lock, its holder is a process with a name; where writers work side by side, nobody is."""
    assert dialect.load.lock_holder() is None
    with changeable.transaction():
        holder = dialect.load.lock_holder()

    if not dialect.capabilities.concurrent_writers and sys.platform == "linux":
        assert (holder.process, bool(holder.program)) == (os.getpid(), True)
    else:
        assert holder is None
    assert dialect.load.lock_holder() is None
