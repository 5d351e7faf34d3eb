"""One enabling of one point: its terms, counters, random numbers, and the threads that wait in it.

The lock covers only the choice of a term and the counters. The action runs after it is released, so that two threads in one
`sleep` sleep at the same time, and enabling, disabling and counting never wait for a paused thread.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from threading import Condition, Event
from typing import TYPE_CHECKING, Any, Final

from tideshift.failpoint.actions import NOT_FIRED, Order, perform
from tideshift.failpoint.errors import HitTimeout, TermNotPossible
from tideshift.failpoint.named_errors import error_builder
from tideshift.failpoint.terms import Action, Chain, Modifiers, Term

if TYPE_CHECKING:
    from random import Random

SEED_VARIABLE: Final = "TIDESHIFT_FAILPOINT_SEED"


class Activation:
    """What one point does in one registry from enable until disable or the next enable."""

    __slots__ = (
        "_builders", "_call", "_changed", "_counters", "_ended", "_random", "_released",
        "chain", "fired", "hits", "point_name", "seed", "where",
    )  # fmt: skip

    def __init__(
        self,
        *,
        point_name: str,
        chain: Chain,
        call: Callable[..., object] | None,
        where: Mapping[str, object] | None,
        seed: int | str | None,
    ) -> None:
        self.point_name = point_name
        self.chain = chain
        self.where = dict(where or {})
        self.seed = _effective_seed(chain, seed)
        self.hits = 0
        self.fired = 0
        self._call = call
        self._builders = _error_builders(point_name, chain)
        self._counters = tuple(_TermCounter(term.modifiers) for term in chain.terms)
        self._random = _seeded_random(self.seed, point_name)
        self._changed = Condition()
        self._released = Event()
        self._ended = False
        _check_call(point_name, chain, call)

    def fire(self, context: Mapping[str, object]) -> Any:
        """Count one pass, and carry out the first term that allows it."""
        index = self._choose() if self._matches(context) else None
        if index is None:
            return NOT_FIRED
        return perform(
            Order(
                term=self.chain.terms[index],
                point_name=self.point_name,
                context=context,
                released=self._released,
                call=self._call,
                build_error=self._builders.get(index),
            )
        )

    def end(self) -> None:
        """Start no further term and wake every thread that waits in this activation."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        self._released.set()

    def wait_hit(self, count: int, timeout_seconds: float) -> None:
        """Return once the point has been passed `count` times since it was enabled, or raise HitTimeout."""
        with self._changed:
            self._changed.wait_for(lambda: self.hits >= count or self._ended, timeout_seconds)
            if self.hits >= count:
                return
            reason = "before it was disabled" if self._ended else f"within {timeout_seconds} s"
            raise HitTimeout(self.point_name, hits=self.hits, hits_wanted=count, reason=reason)

    def _matches(self, context: Mapping[str, object]) -> bool:
        return all(key in context and _same(context[key], wanted) for key, wanted in self.where.items())

    def _choose(self) -> int | None:
        with self._changed:
            if self._ended:
                return None
            self.hits += 1
            self._changed.notify_all()
            for index, counter in enumerate(self._counters):
                if counter.admits(self._random):
                    self.fired += 1
                    return index
            return None


class _TermCounter:
    """How often a term was reached and how often it may still run."""

    __slots__ = ("firings", "modifiers", "passes")

    def __init__(self, modifiers: Modifiers) -> None:
        self.modifiers = modifiers
        self.passes = 0
        self.firings = 0

    def admits(self, random: Random | None) -> bool:
        """Count one pass that reaches the term, and tell whether the term runs."""
        limits = self.modifiers
        self.passes += 1
        after_skip = self.passes - limits.skip_passes
        if after_skip <= 0 or after_skip % limits.every_passes != 0:
            return False
        if random is not None and limits.percent is not None and random.random() * 100 >= limits.percent:
            return False
        if limits.firings_max is not None and self.firings >= limits.firings_max:
            return False
        self.firings += 1
        return True


def _same(seen: object, wanted: object) -> bool:
    """Whether a context value is the wanted one; text counts too, since a filter from the environment has no types."""
    return seen == wanted or str(seen) == str(wanted)


def _effective_seed(chain: Chain, seed: int | str | None) -> int | str | None:
    """The seed that replays this activation; None when no term of it is random."""
    if all(term.modifiers.percent is None for term in chain.terms):
        return None
    if seed is not None:
        return seed
    return os.environ.get(SEED_VARIABLE) or int.from_bytes(os.urandom(4), "big")


def _seeded_random(seed: int | str | None, point_name: str) -> Random | None:
    """The random numbers of one point; the name takes part, so that one seed does not tie all points together."""
    if seed is None:
        return None
    from random import Random  # here, since it is slow to import and only percentages need it

    return Random(f"{seed}/{point_name}")


def _error_builders(point_name: str, chain: Chain) -> dict[int, Callable[[], Exception]]:
    return {
        index: _error_builder(point_name, term)
        for index, term in enumerate(chain.terms)
        if term.action is Action.RAISE
    }  # fmt: skip


def _error_builder(point_name: str, term: Term) -> Callable[[], Exception]:
    try:
        return error_builder(term, point_name)
    except ValueError as error:
        raise TermNotPossible(point_name, f"raise is not possible: {error}") from error


def _check_call(point_name: str, chain: Chain, call: Callable[..., object] | None) -> None:
    wanted = any(term.action is Action.CALL for term in chain.terms)
    if wanted and call is None:
        raise TermNotPossible(point_name, "a call term needs a function, given in the same process with call=")
    if call is not None and not wanted:
        raise TermNotPossible(point_name, f"call= is given but no term of {chain.text!r} is call")
