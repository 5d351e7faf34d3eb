"""The term language: what can be read, what is refused, and where the error points."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tideshift.failpoint import TermSyntaxError
from tideshift.failpoint.terms import Action, ClassPath, JsonValue, Modifiers, duration_seconds, parse

SIMPLE_ACTIONS = ("off", "return", "raise", "pause", "print", "exit", "kill", "stop", "yield", "call")

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize("name", SIMPLE_ACTIONS)
def test_an_action_needs_no_argument(name):
    """Every action but sleep stands alone, with or without empty parentheses."""
    bare, empty = parse(name), parse(f" {name} ( ) ")

    assert bare.terms == empty.terms
    assert bare.terms[0].action is Action(name)
    assert bare.terms[0].arguments == ()


def test_every_action_is_covered_by_these_tests():
    """The list above plus sleep is the whole language."""
    assert {*SIMPLE_ACTIONS, "sleep"} == set(Action)


@given(json_values)
def test_return_carries_any_json_value(value):
    """A value goes through the term text unchanged, whatever it holds."""
    term = parse(f"return({json.dumps(value)})").terms[0]

    assert term.argument() == value
    assert type(term.argument()) is type(value)


def test_each_reader_gets_its_own_copy():
    """A site that changes the list that it was given does not change the next one."""
    term = parse("return([1, 2])").terms[0]

    term.argument().append(3)

    assert term.argument() == [1, 2]


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ('raise("deadlock")', (JsonValue('"deadlock"'),)),
        ("raise(ValueError)", (ClassPath("ValueError"),)),
        ('raise(a.b_c.D, "it broke")', (ClassPath("a.b_c.D"), JsonValue('"it broke"'))),
    ],
)
def test_raise_names_an_error_or_a_class(text, arguments):
    """A quoted text is a registered name, a bare word a class, and a message may follow."""
    assert parse(text).terms[0].arguments == arguments


@pytest.mark.parametrize(
    ("text", "modifiers"),
    [
        ("3*off", Modifiers(firings_max=3)),
        ("25%off", Modifiers(percent=25.0)),
        ("0.5%off", Modifiers(percent=0.5)),
        ("skip(4) off", Modifiers(skip_passes=4)),
        ("every(5)off", Modifiers(every_passes=5)),
        ("50%2*off", Modifiers(percent=50.0, firings_max=2)),
        ("2*50%off", Modifiers(percent=50.0, firings_max=2)),
        ("2* every(3) 50% skip(1) off", Modifiers(skip_passes=1, every_passes=3, percent=50.0, firings_max=2)),
    ],
)
def test_modifiers_may_stand_in_any_order(text, modifiers):
    """The order of modifiers is of no meaning, so both ways to write a pair are equal."""
    assert parse(text).terms[0].modifiers == modifiers


def test_a_chain_keeps_the_order_of_its_terms():
    """Terms are tried from the left, and arrows inside quotes do not separate them."""
    chain = parse(' 2*return("a->b") -> 1*sleep(5)->off ')

    assert [term.action for term in chain.terms] == [Action.RETURN, Action.SLEEP, Action.OFF]
    assert chain.terms[0].argument() == "a->b"
    assert chain.text == '2*return("a->b") -> 1*sleep(5)->off'


@pytest.mark.parametrize(
    ("value", "seconds"), [(50, 0.05), (1.5, 0.0015), ("100ms", 0.1), ("2s", 2.0), ("1.5m", 90.0), (0, 0.0)]
)
def test_a_wait_is_milliseconds_or_has_a_unit(value, seconds):
    """A bare number counts milliseconds, a text says its unit."""
    assert duration_seconds(value) == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("text", "position", "reason"),
    [
        ("", 0, "expected an action"),
        ("2*", 2, "expected an action"),
        ("retrun(1)", 0, "did you mean return?"),
        ("OFF", 0, "'OFF' is not an action"),
        ("return(1", 8, "expected ',' or ')'"),
        ("return(1, 2)", 0, "at most 1"),
        ("return(abc)", 7, "expected a JSON value"),
        ("return(NaN)", 7, "NaN is not JSON"),
        ("return('a')", 7, "expected a JSON value"),
        ('return("a)', 7, "expected a JSON value"),
        ("return(" + "[" * 100_000, 7, "nested too deeply"),
        ("return(" + "9" * 5_000 + ")", 7, "cannot be read"),
        ("return(1) off", 10, "expected '->' or the end"),
        ("1*return(1)->", 13, "expected an action"),
        ("1*return(1)->-> off", 13, "expected an action"),
        ("return(1)->off", 11, "can never run"),
        ("off->call", 5, "can never run"),
        ("1.5*off", 0, "a count is a whole number"),
        ("0*off", 0, "a count is a whole number"),
        ("-1*off", 0, "a count is a whole number"),
        ("101%off", 0, "between 0 and 100"),
        ("-1%off", 0, "between 0 and 100"),
        ("2*3*off", 2, "count stands twice"),
        ("5%5%off", 2, "percent stands twice"),
        ("skip(1)skip(2)off", 7, "skip stands twice"),
        ("every(2)every(2)off", 8, "every stands twice"),
        ("every(0)off", 0, "every takes a whole number of at least 1"),
        ("skip(-1)off", 0, "skip takes a whole number of at least 0"),
        ("skip(x)off", 0, "as in skip(2)"),
        ("skip off", 0, "as in skip(2)"),
        ("2 off", 0, "expected an action"),
        ("sleep", 0, "sleep takes a time"),
        ("sleep(-1)", 0, "between 0 and 86400 seconds"),
        ('sleep("3 weeks")', 0, "a wait is a number of milliseconds"),
        ("sleep(true)", 0, "a wait is a number of milliseconds"),
        ("pause(1e300)", 0, "between 0 and 86400 seconds"),
        ("exit(256)", 0, "from 0 to 255"),
        ("exit(-1)", 0, "from 0 to 255"),
        ("exit(true)", 0, "from 0 to 255"),
        ("raise(7)", 0, "raise takes a name"),
        ("raise(null)", 0, "raise takes a name"),
        ("raise(ValueError, 7)", 0, "a message in quotes"),
        ("kill(9)", 0, "kill takes no argument"),
        ("off(1)", 0, "off takes no argument"),
        ("call(1)", 0, "call takes no argument"),
    ],
)
def test_a_wrong_text_is_refused_at_its_place(text, position, reason):
    """An error says what was expected and where, counted from the first character."""
    with pytest.raises(TermSyntaxError) as caught:
        parse(text)

    assert reason in str(caught.value)
    assert caught.value.position == position
    assert f"at character {position + 1}" in str(caught.value)
    assert len(str(caught.value)) < 400


@given(st.text(alphabet='0123456789.%*->()[]{}", \\abcdefiklnoprstuvwxy', max_size=40))
def test_any_text_is_read_or_refused(text):
    """No text makes the parser fail in another way than by its own error, and what was read reads the same again."""
    try:
        chain, position = parse(text), None
    except TermSyntaxError as error:
        chain, position = None, error.position

    assert chain is None or parse(chain.text) == chain
    assert position is None or 0 <= position <= len(text)
