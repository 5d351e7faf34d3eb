"""The environment variable: only with the flag, all entries or none, and said on one line."""

from __future__ import annotations

from io import StringIO

import pytest

from tideshift import failpoint
from tideshift.failpoint import NOT_FIRED, Registry, activate_from_environment
from tideshift.failpoint.environment import VARIABLE, Entry, parse_entry, split_entries
from tideshift.failpoint.errors import EnvironmentEntryRefused

ONE = failpoint.point("probe.environment.one", "The first place.", returns=int)
TWO = failpoint.point("probe.environment.two", "The second place.", returns=str)


@pytest.fixture
def activate():
    """Give a function that activates a text in a registry of this test and returns what was printed."""
    with failpoint.scope(Registry()):

        def run(text, *, enabled=True):
            stream = StringIO()
            activate_from_environment(enabled=enabled, stream=stream, environment={VARIABLE: text})
            return stream.getvalue()

        yield run
        failpoint.disable_all()


def test_the_variable_enables_points(activate):
    """Every entry is put in force, filters included."""
    activate('probe.environment.one=1*off->return(9);probe.environment.two@node=n2,job=7=return("x")')

    assert [ONE.fire(), ONE.fire()] == [NOT_FIRED, 9]
    assert TWO.fire(node="n2", job=7) == "x"
    assert TWO.fire(node="n1", job=7) is NOT_FIRED


def test_one_line_warns(activate):
    """What was enabled is said on one line, with the seed that replays it."""
    told = activate("probe.environment.one@node=n2=sleep(50);\n probe.environment.two=\n50%off")

    assert told.startswith("warning: fault injection is on")
    assert "probe.environment.one at node=n2: sleep(50)" in told
    assert f"probe.environment.two: 50%off (seed {failpoint.status()[1].seed})" in told
    assert told.count("\n") == 1
    assert told.endswith("\n")


@pytest.mark.parametrize("text", ["probe.environment.one=return(9)", "no.such.point=nonsense"])
def test_without_the_flag_the_variable_is_ignored(activate, text):
    """A variable alone changes nothing, is not even read, and one line says that it is ignored."""
    told = activate(text, enabled=False)

    assert "ignored" in told
    assert VARIABLE in told
    assert told.count("\n") == 1
    assert failpoint.status() == ()


@pytest.mark.parametrize("enabled", [True, False])
@pytest.mark.parametrize("environment", [{}, {VARIABLE: ""}, {VARIABLE: " "}, {VARIABLE: ";;"}])
def test_without_entries_nothing_is_enabled(environment, enabled):
    """An unset or empty variable enables nothing, and an unset one is not worth a line."""
    stream = StringIO()

    activated = activate_from_environment(enabled=enabled, stream=stream, environment=environment)

    assert activated == ()
    if not environment.get(VARIABLE, "").strip():
        assert stream.getvalue() == ""


def test_the_process_environment_is_read(monkeypatch):
    """Without a mapping the variable of the process counts."""
    monkeypatch.setenv(VARIABLE, "probe.environment.one=return(5)")
    stream = StringIO()

    with failpoint.scope(Registry()):
        (enabled,) = activate_from_environment(enabled=True, stream=stream)
        value = ONE.fire()
        enabled.disable()

    assert value == 5


@pytest.mark.parametrize(
    ("entry", "reason"),
    [
        ("probe.environment.one", "expected name=terms"),
        ("=off", "expected name=terms"),
        ("probe.environment.one=", "expected an action"),
        ("probe.environment.one=retrun(1)", "did you mean return?"),
        ("probe.environment.on=off", "did you mean probe.environment.one"),
        ("probe.environment.one@=off", "expected key=value"),
        ("probe.environment.one@node=off", "expected key=value"),
        ("probe.environment.one@node=n1,=off", "expected key=value"),
        ("probe.environment.one@node=n1,node=n2=off", "twice"),
        ('probe.environment.one@node="n1=off', "expected key=value"),
        (r'probe.environment.one@node="\q"=off', "escape"),
        ('probe.environment.one=return("x")', "is str, not int"),
        ("probe.environment.one=call", "in the same process"),
        ("probe.environment.two=off", "an earlier entry"),
    ],
)
def test_a_bad_entry_is_named_and_none_is_enabled(activate, entry, reason):
    """One bad entry refuses the whole variable, and the error names the entry and its fault."""
    with pytest.raises(EnvironmentEntryRefused) as caught:
        activate(f"probe.environment.two=off; {entry} ")

    assert caught.value.entry == entry
    assert repr(entry) in str(caught.value)
    assert reason in str(caught.value)
    assert failpoint.status() == ()
    assert (ONE.on, TWO.on) == (False, False)


def test_quotes_protect_separators(activate):
    """Separators inside quotes belong to the value, in filters as in terms."""
    activate(r'probe.environment.two@job="a;b=\"c,d"=return("x;y=z->\"\\");probe.environment.one=return(1)')

    assert TWO.fire(job='a;b="c,d') == 'x;y=z->"\\'
    assert ONE.fire() == 1


def test_entries_are_split_outside_quotes():
    """Semicolons separate entries, empty ones are left out."""
    assert list(split_entries('a=1;;b="x;\\";y"; ;c=2;')) == ["a=1", 'b="x;\\";y"', "c=2"]


def test_an_entry_is_taken_apart():
    """An entry has a name, a filter of texts and the rest as terms."""
    assert parse_entry(" a.b@node=n2, job=7 = 2*off") == Entry("a.b", {"node": "n2", "job": "7"}, " 2*off")
    assert parse_entry('a.b=return("=")') == Entry("a.b", {}, 'return("=")')
