"""What each action does inside the process, and that only return hands a value to the site."""

from __future__ import annotations

import copy
import json
import pickle
import sqlite3
import sys
from threading import Event, Thread

import pytest

from tideshift import failpoint
from tideshift.failpoint import NOT_FIRED, FailpointError, InjectedFault, activation
from tideshift.failpoint.errors import DeclarationError, TermNotPossible
from tideshift.failpoint.named_errors import registered_errors

PLACE = failpoint.point("probe.actions.place", "A place that takes any value.", returns=object)
LIMIT_SECONDS = 10


class Deadlock(Exception):
    """An error that needs more than a message."""

    def __init__(self, message, code):
        super().__init__(message)
        self.code = code


class Outer:
    """Not an exception."""


def deadlock(message):
    """Build the error as a layer's driver would."""
    return Deadlock(message, 1213)


failpoint.register_error("probe deadlock", deadlock)


def site():
    """Do what a site with a value does; the list tells which values its body saw."""
    bodies = []
    if PLACE.on and (value := PLACE.fire(job=3)) is not NOT_FIRED:
        bodies.append(value)
    return bodies


@pytest.mark.parametrize(
    ("terms", "call"),
    [
        ("off", None),
        ("sleep(0)", None),
        ("pause(0)", None),
        ("print", None),
        ("yield", None),
        ("call", lambda **context: "a value"),
    ],
)
def test_only_return_reaches_the_body_of_a_site(terms, call):
    """A term that is not return is counted and done, but the site's own branch stays out."""
    with failpoint.enable(PLACE, terms, call=call) as enabled:
        bodies = site()

    assert bodies == []
    assert enabled.status.fired == 1


@pytest.mark.parametrize("value", [None, False, 0, "", [], {}])
def test_an_empty_value_is_still_a_value(value):
    """Values that count as false are told apart from a pass that did not fire."""
    text = json.dumps(value)
    with failpoint.enable(PLACE, f"return({text})"):
        assert site() == [value]


def test_a_bare_return_hands_over_none():
    """A return without a value yields None."""
    with failpoint.enable(PLACE, "return"):
        assert site() == [None]


def test_not_fired_stays_itself():
    """The answer of an idle pass is one object, also through copies and pickles, and counts as false."""
    assert copy.deepcopy(NOT_FIRED) is NOT_FIRED
    assert pickle.loads(pickle.dumps(NOT_FIRED)) is NOT_FIRED
    assert not NOT_FIRED
    assert repr(NOT_FIRED) == "NOT_FIRED"


@pytest.mark.parametrize(
    ("terms", "kind", "text"),
    [
        ("raise", InjectedFault, "injected by failpoint probe.actions.place"),
        ("raise(ValueError)", ValueError, "injected by failpoint probe.actions.place"),
        ('raise(ValueError, "it broke")', ValueError, "it broke"),
        ('raise(sqlite3.OperationalError, "database is locked")', sqlite3.OperationalError, "database is locked"),
        ('raise("probe deadlock")', Deadlock, "injected by failpoint probe.actions.place"),
        ('raise("probe deadlock", "victim")', Deadlock, "victim"),
    ],
)
def test_raise_raises_what_it_names(terms, kind, text):
    """A raise term raises exactly the named error with its message, a new one at each pass."""
    with failpoint.enable(PLACE, terms):
        with pytest.raises(kind) as first:
            site()
        with pytest.raises(kind) as second:
            site()

    assert type(first.value) is kind
    assert str(first.value) == text
    assert first.value is not second.value


def test_an_injected_fault_is_no_misuse():
    """Code that catches the errors of wrong use does not swallow an injected one."""
    assert not issubclass(InjectedFault, FailpointError)


@pytest.mark.parametrize(
    ("terms", "reason"),
    [
        ('raise("probe deadlok")', "did you mean probe deadlock?"),
        ("raise(SystemExit)", "not a class of exceptions"),
        ("raise(KeyboardInterrupt)", "not a class of exceptions"),
        ("raise(Nonesuch)", "not a class of exceptions"),
        ("raise(json.dumps)", "not a class of exceptions"),
        ("raise(no.such.module.Error)", "cannot be imported"),
        ("raise(UnicodeDecodeError)", "register_error"),
        ('raise("probe not an error")', "not an Exception"),
    ],
)
def test_an_error_that_cannot_be_raised_is_refused_when_enabling(terms, reason):
    """What cannot be built is told at once and not at the first pass, and nothing is enabled."""
    failpoint.register_error("probe not an error", not_an_error)

    with pytest.raises(TermNotPossible, match="raise is not possible") as caught:
        failpoint.enable(PLACE, terms)

    assert reason in str(caught.value)
    assert not PLACE.on


def not_an_error(message):
    """Build what is not an exception."""
    return Outer()


def test_a_name_belongs_to_one_factory():
    """Registering the same factory again is harmless, another one under the same name is refused."""
    failpoint.register_error("probe deadlock", deadlock)

    with pytest.raises(DeclarationError, match="probe deadlock"):
        failpoint.register_error("probe deadlock", not_an_error)
    with pytest.raises(DeclarationError, match="needs a name"):
        failpoint.register_error("", deadlock)

    assert "probe deadlock" in registered_errors()


@pytest.mark.parametrize(
    ("terms", "line"),
    [
        ("print", "failpoint probe.actions.place: job=3\n"),
        ('print("here")', "failpoint probe.actions.place: here\n"),
    ],
)
def test_print_writes_one_line_to_standard_error(terms, line, capsys):
    """Print tells its text, or else the context, and leaves the program's own output alone."""
    with failpoint.enable(PLACE, terms):
        site()

    output = capsys.readouterr()
    assert output.err == line
    assert output.out == ""


def test_call_gets_the_context_of_the_site():
    """A called function sees what the site passed, also at the third pass of a chain."""
    seen = []
    with failpoint.enable(PLACE, "2*off->call", call=lambda **context: seen.append(context)):
        for job in range(4):
            PLACE.fire(job=job, self="x")

    assert seen == [{"job": 2, "self": "x"}, {"job": 3, "self": "x"}]


def test_an_error_of_a_called_function_reaches_the_site():
    """A function may raise; the site sees the error as it is."""

    def fail(**context):
        raise LookupError(context["job"])

    with failpoint.enable(PLACE, call=fail), pytest.raises(LookupError, match="3"):
        site()


@pytest.mark.parametrize(
    ("terms", "call", "reason"),
    [("call", None, "call="), ("1*off->call", None, "call="), ("off", print, "no term"), (None, None, "needs terms")],
)
def test_call_and_its_function_belong_together(terms, call, reason):
    """A call term without a function, a function without a call term, and nothing at all are refused."""
    with pytest.raises(TermNotPossible, match=reason):
        failpoint.enable(PLACE, terms, call=call)

    assert not PLACE.on


def test_yield_lets_another_thread_run():
    """A thread that only yields does not keep a waiting one from the interpreter."""
    go, other_ran, passes_allowed = Event(), Event(), range(1_000_000)

    def other_thread():
        go.wait(LIMIT_SECONDS)
        other_ran.set()

    other = Thread(target=other_thread)
    other.start()
    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)  # so that only a yield, and no time-out, hands the interpreter over
    try:
        with failpoint.enable(PLACE, "yield"):
            go.set()  # from here on the other thread only waits for the interpreter
            for _ in passes_allowed:
                site()
                if other_ran.is_set():
                    break
    finally:
        sys.setswitchinterval(interval)
    other.join(LIMIT_SECONDS)

    assert other_ran.is_set()
    assert PLACE.hits < len(passes_allowed)


def test_a_pause_may_have_a_time_limit():
    """A pause with a time goes on by itself."""
    with failpoint.enable(PLACE, "pause(1)") as enabled:
        assert site() == []

    assert enabled.status.fired == 1


@pytest.mark.parametrize("terms", ["pause", "pause(600000)", 'sleep("10m")'])
def test_no_single_wait_is_long(terms, monkeypatch):
    """A signal that comes between the last look and the lock is seen at the next slice, not when the whole time is over."""
    asked = []

    class Impatient(Event):
        def wait(self, timeout=None):
            asked.append(timeout)
            return len(asked) == 3  # released at the third slice

    monkeypatch.setattr(activation, "Event", Impatient)
    with failpoint.enable(PLACE, terms):
        assert site() == []

    assert len(asked) == 3
    assert all(timeout is not None and timeout <= 1 for timeout in asked)
