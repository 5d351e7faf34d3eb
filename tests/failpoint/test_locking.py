"""Threads at one point: no action holds a lock, waits are woken, and the known traps of failpoint libraries stay shut."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from random import Random
from threading import Barrier

import pytest

from tideshift import failpoint
from tideshift.failpoint import NOT_FIRED, HitTimeout, Registry, TermSyntaxError

PLACE = failpoint.point("probe.locking.place", "A place that several threads pass.", returns=int)
OTHER = failpoint.point("probe.locking.other", "Another place.", returns=int)
LIMIT_SECONDS = 20


@pytest.fixture
def threads():
    """Give a pool whose threads are woken before it closes, so that a failing test cannot hang."""
    with ThreadPoolExecutor(8) as pool:
        yield pool
        failpoint.disable_all()


@pytest.mark.parametrize("terms", ["pause", 'sleep("60s")', 'pause("60s")'])
def test_two_threads_wait_at_the_same_time(threads, terms):
    """The second thread gets into the wait while the first is in it, and ending the point wakes both."""
    with failpoint.enable(PLACE, terms) as enabled:
        passes = [threads.submit(PLACE.fire) for _ in range(2)]
        enabled.wait_hit(2, LIMIT_SECONDS)
        waiting = [not one.done() for one in passes]

    assert [one.result(LIMIT_SECONDS) for one in passes] == [NOT_FIRED, NOT_FIRED]
    assert waiting == [True, True]


def test_a_paused_point_can_be_enabled_again(threads):
    """Enabling a paused point wakes its threads, and the new terms act at once."""
    first = failpoint.enable(PLACE, "pause")
    paused = threads.submit(PLACE.fire)
    first.wait_hit(1, LIMIT_SECONDS)

    with failpoint.enable(PLACE, "return(2)"):
        woken = paused.result(LIMIT_SECONDS)
        value = PLACE.fire()

    assert (woken, value) == (NOT_FIRED, 2)


def test_a_paused_point_does_not_block_the_registry(threads):
    """While a thread is paused, other points can be enabled, fired, listed and disabled."""
    with failpoint.enable(PLACE, "pause") as enabled:
        paused = threads.submit(PLACE.fire)
        enabled.wait_hit(1, LIMIT_SECONDS)

        def use_the_rest():
            with failpoint.enable(OTHER, "return(3)"):
                return OTHER.fire(), [status.name for status in failpoint.status()]

        value, names = threads.submit(use_the_rest).result(LIMIT_SECONDS)
        still_paused = not paused.done()

    assert (value, names) == (3, [OTHER.name, PLACE.name])
    assert still_paused


def test_disable_all_wakes_every_paused_thread(threads):
    """One call ends all waits of a registry."""
    enablings = [failpoint.enable(point, "pause") for point in (PLACE, OTHER)]
    passes = [threads.submit(point.fire) for point in (PLACE, OTHER)]
    for enabled in enablings:
        enabled.wait_hit(1, LIMIT_SECONDS)

    failpoint.disable_all()

    assert [one.result(LIMIT_SECONDS) for one in passes] == [NOT_FIRED, NOT_FIRED]


def test_a_limited_pause_strikes_only_the_counted_threads(threads):
    """With a count of one, the first thread is held and the next goes through."""
    with failpoint.enable(PLACE, "1*pause->return(1)") as enabled:
        held = threads.submit(PLACE.fire)
        enabled.wait_hit(1, LIMIT_SECONDS)

        passing = PLACE.fire()
        still_held = not held.done()

    assert passing == 1
    assert still_held


def test_a_wrong_text_leaves_nothing_behind():
    """A text that cannot be read enables nothing, and disabling afterwards is harmless."""
    with failpoint.scope(Registry()):
        with pytest.raises(TermSyntaxError):
            failpoint.enable(PLACE, "2*reutrn(1)")

        assert failpoint.status() == ()
        assert failpoint.disable(PLACE) is False
        assert not PLACE.on


def test_a_wrong_text_leaves_the_former_terms_in_force():
    """A failed change of terms does not end what is enabled."""
    with failpoint.enable(PLACE, "return(1)"):
        with pytest.raises(TermSyntaxError):
            failpoint.enable(PLACE, "2*reutrn(1)")

        assert PLACE.fire() == 1


def test_a_function_does_not_outlive_its_enabling():
    """Enabling a point again without a function never calls the former one."""
    calls = []
    with failpoint.enable(PLACE, call=lambda **context: calls.append(context)):
        PLACE.fire()
    with failpoint.enable(PLACE, "off"):
        PLACE.fire()

    assert len(calls) == 1


def test_a_term_may_use_failpoints_itself():
    """A called function may fire, enable and disable points, its own one too, without a deadlock."""
    seen = []

    def again(**context):
        seen.append(PLACE.fire())
        with failpoint.enable(OTHER, "return(4)"):
            seen.append(OTHER.fire())
        failpoint.disable(PLACE)

    with failpoint.enable(PLACE, "1*call->return(1)", call=again):
        PLACE.fire()

    assert seen == [1, 4]


def test_a_waiter_is_told_when_the_point_is_disabled(threads):
    """Threads that await a hit do not wait on when no hit can come any more, whether they waited already or begin to."""
    start = Barrier(5)

    def wait_for_one():
        start.wait(LIMIT_SECONDS)
        enabled.wait_hit(1, 600)

    with failpoint.enable(PLACE, "off") as enabled:
        waiters = [threads.submit(wait_for_one) for _ in range(4)]
        start.wait(LIMIT_SECONDS)

    for waiter in waiters:
        with pytest.raises(HitTimeout, match="before it was disabled"):
            waiter.result(LIMIT_SECONDS)


def test_no_term_starts_after_disable():
    """A thread that found the point enabled just before it was disabled does nothing any more."""
    enabled = failpoint.enable(PLACE, "return(1)")
    enabled.disable()

    late = enabled.activation.fire({})

    assert late is NOT_FIRED
    assert enabled.hits == 0


def test_every_pass_is_counted_once(threads):
    """Counts are exact when many threads pass at once: each pass is one hit, and a limit is never exceeded."""
    with failpoint.enable(PLACE, "500*return(1)->return(2)") as enabled:
        start = Barrier(8)

        def many(_):
            start.wait(LIMIT_SECONDS)
            return [PLACE.fire() for _ in range(200)]

        values = [value for thread in threads.map(many, range(8)) for value in thread]

    assert enabled.hits == 1_600
    assert (values.count(1), values.count(2)) == (500, 1_100)


def test_switching_while_firing_never_fails(threads):
    """Enabling, disabling and firing at once raise nothing, fire only what was enabled, and end switched off."""
    start = Barrier(6)

    def switch(seed):
        random = Random(seed)
        start.wait(LIMIT_SECONDS)
        for _ in range(300):
            failpoint.enable(PLACE, random.choice(["return(1)", "50%return(2)", "1*return(3)", "pause", "off"]), seed=1)
            failpoint.disable(PLACE)

    def pass_by(_):
        start.wait(LIMIT_SECONDS)
        return {PLACE.fire() for _ in range(1_000) if PLACE.on}

    switches = [threads.submit(switch, seed) for seed in range(3)]
    passes = [threads.submit(pass_by, number) for number in range(3)]
    for one in switches:
        one.result(LIMIT_SECONDS)
    seen = set().union(*(one.result(LIMIT_SECONDS) for one in passes))

    assert seen <= {1, 2, 3, NOT_FIRED}
    assert not PLACE.on
