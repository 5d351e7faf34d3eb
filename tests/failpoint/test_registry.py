"""Declaring points, enabling them, filters, scopes, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from contextvars import copy_context
from pathlib import Path
from threading import Thread

import pytest

from tideshift import failpoint
from tideshift.failpoint import NOT_FIRED, HitTimeout, Registry, UnknownFailpoint
from tideshift.failpoint.errors import (
    DeclarationError,
    DuplicateFailpoint,
    FailpointNotEnabled,
    ReturnTypeMismatch,
)
from tideshift.failpoint.registry import Declaration, Point, current_registry, enabled_anywhere

PLAIN = failpoint.point("probe.registry.plain", "A place that takes no value.")
NUMBER = failpoint.point("probe.registry.number", " A place that takes a number. ", returns=int)
EITHER = failpoint.point("probe.registry.either", "A place that takes a number or nothing.", returns=int | None)
SHARE = failpoint.point("probe.registry.share", "A place that takes a share.", returns=float)
LIMIT_SECONDS = 10


def test_a_point_is_off_until_enabled():
    """The flag of a point is a plain attribute that follows enable and disable."""
    before = PLAIN.on
    failpoint.enable(PLAIN, "off")
    during = PLAIN.on
    was_enabled = failpoint.disable(PLAIN)

    assert (before, during, was_enabled, PLAIN.on) == (False, True, True, False)
    assert "on" in Point.__slots__
    assert failpoint.disable(PLAIN) is False


def test_an_idle_point_does_nothing():
    """Firing a point that is not enabled is harmless and counts nothing."""
    registry = Registry()
    with failpoint.scope(registry):
        assert PLAIN.fire(job=1) is NOT_FIRED
        assert PLAIN.hits == 0


def test_the_block_ends_the_enabling():
    """Used with `with`, an enabling ends with the block, also by an error; the count of hits stays readable."""

    def fail():
        with failpoint.enable("probe.registry.plain", "off"):
            PLAIN.fire()
            raise LookupError

    with pytest.raises(LookupError):
        fail()

    assert not PLAIN.on
    assert PLAIN.hits == 1


def test_the_end_of_a_block_leaves_a_later_enabling_alone():
    """An enabling that was replaced does not end the one that replaced it."""
    with failpoint.enable(NUMBER, "return(1)") as first:
        second = failpoint.enable(NUMBER, "return(2)")

    assert NUMBER.fire() == 2
    assert first.disable() is False
    assert second.disable() is True
    assert not NUMBER.on


def test_enabling_counts_hits_from_zero():
    """Hits count from the latest enabling on, whatever the terms do."""
    with failpoint.enable(NUMBER, "off"):
        NUMBER.fire()
        NUMBER.fire()
        assert NUMBER.hits == 2
        with failpoint.enable(NUMBER, "1*return(1)"):
            assert NUMBER.hits == 0
            NUMBER.fire()
            NUMBER.fire()
            assert NUMBER.hits == 2


def test_the_status_tells_what_is_enabled():
    """Status lists the enabled points by name with their terms, filters, hits, firings and seed."""
    with failpoint.scope(Registry()):
        failpoint.enable(PLAIN, " 1*sleep(0)->50%off ", where={"job": 7}, seed=11)
        failpoint.enable(NUMBER, "off")
        PLAIN.fire(job=7)
        first, second = failpoint.status()
        failpoint.disable_all()

        assert (first.name, second.name) == ("probe.registry.number", "probe.registry.plain")
        assert (second.terms, second.where, second.hits) == ("1*sleep(0)->50%off", {"job": 7}, 1)
        assert (second.fired, second.seed) == (1, 11)
        assert failpoint.status() == ()
        assert (PLAIN.on, NUMBER.on) == (False, False)


@pytest.mark.parametrize("use", [lambda name: failpoint.enable(name, "off"), failpoint.disable, failpoint.wait_hit])
def test_an_unknown_name_is_an_error_with_near_matches(use):
    """A misspelt name is refused everywhere, so that no test runs without its fault."""
    with pytest.raises(UnknownFailpoint) as caught:
        use("probe.registry.plane")

    assert caught.value.near[0] == "probe.registry.plain"
    assert "did you mean probe.registry.plain" in str(caught.value)


def test_a_point_that_was_never_declared_is_unknown():
    """A point that was made without declaring it cannot be enabled, even under a declared name."""
    made = Point(Declaration(name="probe.registry.plain", doc="x", returns=None, module="m", file="f", line=1))

    with pytest.raises(UnknownFailpoint):
        failpoint.enable(made, "off")


def test_a_name_is_declared_once():
    """A second declaration of a name is an error that tells both places."""
    with pytest.raises(DuplicateFailpoint) as caught:
        failpoint.point("probe.registry.plain", "The same name again.")

    assert caught.value.first == PLAIN.declaration.place
    assert caught.value.second.startswith(__file__)


@pytest.mark.parametrize("name", ["", "Upper.case", "a..b", "a.b.", "a b", "a@b", "a=b", "a;b", "1a", "ä.b"])
def test_a_bad_name_is_refused(name):
    """A name is made of lower-case words and dots, so that it can stand in the environment variable."""
    with pytest.raises(DeclarationError, match="no name of a failpoint"):
        failpoint.point(name, "A place.")


def test_a_point_needs_a_sentence():
    """A declaration without its sentence is refused and declares nothing."""
    with pytest.raises(DeclarationError, match="one sentence"):
        failpoint.point("probe.registry.silent", "  ")

    assert "probe.registry.silent" not in [declaration.name for declaration in failpoint.catalogue()]


def test_the_catalogue_lists_every_declaration():
    """The catalogue is in the order of names and tells doc, type and place of each point."""
    catalogue = failpoint.catalogue()
    mine = {declaration.name: declaration for declaration in catalogue}["probe.registry.number"]

    assert [declaration.name for declaration in catalogue] == sorted(declaration.name for declaration in catalogue)
    assert (mine.doc, mine.returns, mine.module) == ("A place that takes a number.", int, __name__)
    assert Path(mine.file) == Path(__file__)
    assert "NUMBER = failpoint.point" in Path(__file__).read_text(encoding="utf-8").splitlines()[mine.line - 1]
    assert mine is NUMBER.declaration


@pytest.mark.parametrize(
    ("point", "terms"),
    [
        (NUMBER, "return(-5)"),
        (EITHER, "return"),
        (EITHER, "return(5)"),
        (SHARE, "return(0.5)"),
        (SHARE, "return(5)"),
        (NUMBER, "raise"),
        (PLAIN, "off"),
    ],
)
def test_a_value_of_the_declared_type_is_taken(point, terms):
    """A value fits when it has a declared type; other actions need no type."""
    with failpoint.enable(point, terms):
        assert point.on


@pytest.mark.parametrize(
    ("point", "terms", "reason"),
    [
        (NUMBER, 'return("5")', "is str, not int"),
        (NUMBER, "return(true)", "is bool, not int"),
        (NUMBER, "return(1.0)", "is float, not int"),
        (NUMBER, "return", "is NoneType, not int"),
        (NUMBER, '1*return(1)->return("x")', "is str, not int"),
        (EITHER, "return([])", "is list, not int | None"),
        (SHARE, "return(true)", "is bool, not float"),
        (PLAIN, "return(1)", "without returns="),
        (PLAIN, "return", "without returns="),
    ],
)
def test_a_value_of_another_type_is_refused_when_enabling(point, terms, reason):
    """A value that the site did not declare never reaches it, in whichever term it stands."""
    with pytest.raises(ReturnTypeMismatch) as caught:
        failpoint.enable(point, terms)

    assert reason in str(caught.value)
    assert not point.on


@pytest.mark.parametrize(
    ("where", "context", "fires"),
    [
        ({"job": 7}, {"job": 7, "node": "n1"}, True),
        ({"job": 7}, {"job": 8}, False),
        ({"job": 7}, {}, False),
        ({"job": 7, "node": "n2"}, {"job": 7, "node": "n2"}, True),
        ({"job": 7, "node": "n2"}, {"job": 7, "node": "n1"}, False),
        ({"job": "7"}, {"job": 7}, True),
        ({"job": None}, {"task": 1}, False),
        ({}, {"job": 7}, True),
    ],
)
def test_a_filter_decides_by_the_context(where, context, fires):
    """A pass counts and fires only when every key of the filter has the wanted value; text equals its number."""
    with failpoint.enable(NUMBER, "return(1)", where=where) as enabled:
        value = NUMBER.fire(**context)

    assert (value == 1) is fires
    assert enabled.hits == int(fires)


def test_scopes_do_not_see_each_other():
    """Nodes in one process enable the same point with different terms, and the process itself is not concerned."""
    first, second = Registry("n1"), Registry("n2")
    with failpoint.scope(first):
        failpoint.enable(NUMBER, "return(1)")
    with failpoint.scope(second):
        failpoint.enable(NUMBER, "return(2)")

    seen = [NUMBER.fire()]
    for registry in (first, second):
        with failpoint.scope(registry):
            seen.append(NUMBER.fire())
            hits = NUMBER.hits
            failpoint.disable_all()
    assert seen == [NOT_FIRED, 1, 2]
    assert hits == 1
    assert not NUMBER.on


def test_the_flag_means_that_some_registry_has_it():
    """The flag goes off with the last registry that has the point enabled."""
    registry = Registry()
    with failpoint.enable(NUMBER, "off"), failpoint.scope(registry):
        failpoint.enable(NUMBER, "off")
    with_one_left = NUMBER.on
    registry.disable_all()

    assert (with_one_left, NUMBER.on) == (True, False)


def test_a_thread_belongs_to_the_scope_whose_context_it_is_given():
    """A thread started with a copy of the context is in the scope, a plain one is not."""
    registry, seen = Registry("n1"), {}
    with failpoint.scope(registry), failpoint.enable(NUMBER, "return(1)"):
        context = copy_context()
        threads = [
            Thread(target=lambda: seen.update(copied=context.run(NUMBER.fire))),
            Thread(target=lambda: seen.update(plain=NUMBER.fire())),
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(LIMIT_SECONDS)

    assert seen == {"copied": 1, "plain": NOT_FIRED}


def test_a_scope_ends_with_its_block():
    """After the block the context has its former registry, also after an error."""
    before = current_registry()

    inner = Registry()

    def fail():
        with failpoint.scope(inner) as given:
            assert current_registry() is given is inner
            raise LookupError

    with pytest.raises(LookupError):
        fail()

    assert current_registry() is before


def test_waiting_for_hits_that_do_not_come_is_an_error():
    """A wait ends with an error that tells how many hits there were, never silently."""
    with failpoint.enable(NUMBER, "off"):
        NUMBER.fire()
        failpoint.wait_hit(NUMBER, 1, 0)
        with pytest.raises(HitTimeout, match="hit 1 times instead of 2") as caught:
            failpoint.wait_hit(NUMBER, 2, timeout_seconds=0.01)

    assert isinstance(caught.value, TimeoutError)
    assert (caught.value.hits, caught.value.hits_wanted) == (1, 2)


def test_waiting_for_a_point_that_is_not_enabled_is_an_error():
    """Hits of a point that was never enabled here cannot be awaited."""
    with failpoint.scope(Registry()), pytest.raises(FailpointNotEnabled):
        failpoint.wait_hit(NUMBER)


def test_what_is_enabled_in_any_registry_can_be_listed():
    """The check for left-overs sees every registry and can end what it finds."""
    registry = Registry()
    with failpoint.scope(registry):
        failpoint.enable(NUMBER, "off")

    left = [enabled for enabled in enabled_anywhere() if enabled.registry is registry]
    ended = [enabled.disable() for enabled in left]

    assert [enabled.point for enabled in left] == [NUMBER]
    assert ended == [True]
    assert not NUMBER.on


def test_the_package_imports_nothing_else():
    """Importing failpoints brings in no third-party module and no other part of the project."""
    script = (
        "import sys, tideshift; before = set(sys.modules); import tideshift.failpoint\n"
        "new = {name for name in set(sys.modules) - before if not name.startswith('tideshift.failpoint')}\n"
        "print(sorted(n for n in new if n.partition('.')[0] not in sys.stdlib_module_names))"
    )
    source = str(Path(failpoint.__file__).parent.parent.parent)

    run = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": source},
        timeout=60,
        check=False,
    )

    assert run.stdout == "[]\n", run.stderr
