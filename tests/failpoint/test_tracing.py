"""Tracing: every pass of every point, in order, so that a crash driver can strike at each of them."""

from __future__ import annotations

from threading import Thread

import pytest

from tideshift import failpoint
from tideshift.failpoint import InjectedFault, Registry
from tideshift.failpoint.registry import add_recorder, remove_recorder

BEGIN = failpoint.point("probe.tracing.begin", "Work begins.")
STEP = failpoint.point("probe.tracing.step", "One step of the work is done.", returns=int)
LIMIT_SECONDS = 10


def work(steps):
    """Do something that passes two points; returns how far it came."""
    if BEGIN.on:
        BEGIN.fire(steps=steps)
    done = 0
    for number in range(steps):
        if STEP.on:
            STEP.fire(number=number)
        done += 1
    return done


def test_a_trace_records_every_pass_in_order():
    """All points are on while tracing and each pass is recorded with its context, though nothing is enabled."""
    with failpoint.trace() as hits:
        on_meanwhile = (BEGIN.on, STEP.on)
        work(2)
    work(2)

    assert on_meanwhile == (True, True)
    assert hits == [
        ("probe.tracing.begin", {"steps": 2}),
        ("probe.tracing.step", {"number": 0}),
        ("probe.tracing.step", {"number": 1}),
    ]
    assert (hits[0].name, hits[0].context) == hits[0]
    assert (BEGIN.on, STEP.on) == (False, False)


def test_the_flags_come_back_as_they_were():
    """A trace leaves enabled points enabled and others off, also when its block fails."""
    with failpoint.enable(STEP, "off") as enabled:
        with pytest.raises(LookupError), failpoint.trace():
            raise LookupError
        work(1)

        assert (BEGIN.on, STEP.on, enabled.hits) == (False, True, 1)


def test_traces_may_be_nested():
    """Each trace records what happens in its own block."""
    with failpoint.trace() as outer:
        work(0)
        with failpoint.trace() as inner:
            work(1)
        still_on = BEGIN.on
        work(0)

    assert (len(outer), len(inner), still_on) == (4, 2, True)


def test_a_trace_sees_threads_and_scopes():
    """Passes in other threads and registries are recorded too, since a crash strikes the whole process."""
    with failpoint.trace() as hits:
        thread = Thread(target=work, args=(0,))
        thread.start()
        thread.join(LIMIT_SECONDS)
        with failpoint.scope(Registry()):
            work(0)

    assert len(hits) == 2


def test_a_point_declared_while_tracing_is_on():
    """A module imported during the trace is traced as well."""
    with failpoint.trace() as hits:
        late = failpoint.point("probe.tracing.late", "A place in a module that is imported late.")
        if late.on:
            late.fire()

    assert [hit.name for hit in hits] == ["probe.tracing.late"]
    assert not late.on


def test_terms_still_act_while_tracing():
    """A trace watches; enabled terms do what they do, and their pass is recorded first."""
    with failpoint.enable(STEP, "skip(1)raise"), failpoint.trace() as hits, pytest.raises(InjectedFault):
        work(3)

    assert [hit.name for hit in hits] == [BEGIN.name, STEP.name, STEP.name]


def test_every_recorded_pass_can_be_struck():
    """From the ordinals of a golden run, each run with a fault ends exactly at its own pass."""
    with failpoint.trace() as hits:
        work(3)
    places = failpoint.ordinals(hits)

    reached = []
    for name, ordinal in places:
        with (
            failpoint.enable(name, f"skip({ordinal - 1})1*raise"),
            failpoint.trace() as passes,
            pytest.raises(InjectedFault),
        ):
            work(3)
        reached.append(failpoint.ordinals(passes)[-1])

    assert places == [(BEGIN.name, 1), (STEP.name, 1), (STEP.name, 2), (STEP.name, 3)]
    assert reached == places


def test_a_recorder_alone_switches_nothing_on():
    """A recorder that only listens sees the passes of points that are on anyway."""
    names = []

    def record(name, context):
        names.append(name)

    add_recorder(record, every_point_on=False)
    try:
        work(1)
        with failpoint.enable(STEP, "off"):
            work(1)
    finally:
        remove_recorder(record)
    with failpoint.enable(STEP, "off"):
        work(1)

    assert names == [STEP.name]
