"""Declared points, and which of them are enabled where.

A layer declares its points once, at module level, in its own points.py. A site reads `if P.on: P.fire(job=job.id)`; `on` is a
plain attribute that is true while any registry has the point enabled or a trace runs, so that an idle site costs a few
nanoseconds. `fire` then looks at the registry of its own context: several nodes in one process do not see one another.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from threading import RLock
from types import TracebackType, UnionType
from typing import Any, Final, Self, get_args

from tideshift.failpoint.actions import NOT_FIRED
from tideshift.failpoint.activation import Activation
from tideshift.failpoint.errors import (
    DeclarationError,
    DuplicateFailpoint,
    FailpointNotEnabled,
    ReturnTypeMismatch,
    TermNotPossible,
    UnknownFailpoint,
)
from tideshift.failpoint.terms import Action, Chain, parse

Recorder = Callable[[str, Mapping[str, object]], None]

WAIT_HIT_SECONDS: Final = 10.0
_NAME = re.compile(r"[a-z][a-z0-9_]*(\.[a-z][a-z0-9_]*)*")
_SWITCH = RLock()  # guards the flags and the two collections below; never held while a term runs or a thread waits
_DECLARED: dict[str, Point] = {}
_RECORDERS: dict[Recorder, bool] = {}  # recorder -> whether it wants every point on
_recorders: tuple[Recorder, ...] = ()  # the keys of the above, read by fire without the lock


@dataclass(frozen=True, slots=True, kw_only=True)
class Declaration:
    """What is known of a point without enabling it."""

    name: str
    doc: str
    returns: type | UnionType | None
    module: str
    file: str
    line: int

    @property
    def place(self) -> str:
        """Where the point is declared, as file:line."""
        return f"{self.file}:{self.line}"


class Point:
    """A named place in the code where a test may inject a fault."""

    __slots__ = ("activations", "declaration", "doc", "name", "on", "returns")

    def __init__(self, declaration: Declaration) -> None:
        self.on = False
        self.declaration = declaration
        self.name = declaration.name
        self.doc = declaration.doc
        self.returns = declaration.returns
        self.activations: dict[Registry, Activation] = {}

    def fire(self, /, **context: object) -> Any:
        """Tell that this place is passed; the answer is NOT_FIRED, or the value of a `return` term."""
        for record in _recorders:
            record(self.name, context)
        activation = self.activations.get(_REGISTRY.get())
        return NOT_FIRED if activation is None else activation.fire(context)

    @property
    def hits(self) -> int:
        """How often it was passed since it was last enabled in the registry of this context, whatever the terms did."""
        activation = _REGISTRY.get().last_activation(self)
        return 0 if activation is None else activation.hits

    def __repr__(self) -> str:
        return f"<failpoint {self.name} {'on' if self.on else 'off'}>"


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """An enabled point as it stands; `seed` replays its percentages."""

    name: str
    terms: str
    where: Mapping[str, object]
    hits: int
    fired: int
    seed: int | str | None


class Registry:
    """The points that are enabled for one context: the process by default, or one node of several in it."""

    def __init__(self, name: str = "") -> None:
        self.name = name
        self._last: dict[Point, Activation] = {}

    def prepare(
        self,
        point_or_name: Point | str,
        terms: str | None = None,
        *,
        call: Callable[..., object] | None = None,
        where: Mapping[str, object] | None = None,
        seed: int | str | None = None,
    ) -> Enabled:
        """Check everything about an enabling without putting it in force."""
        found = declared(point_or_name)
        if terms is None and call is None:
            raise TermNotPossible(found.name, "enable needs terms, or a function with call=")
        chain = parse("call" if terms is None else terms)
        _check_returns(found, chain)
        activation = Activation(point_name=found.name, chain=chain, call=call, where=where, seed=seed)
        return Enabled(self, found, activation)

    def switch_on(self, enabled: Enabled) -> None:
        """Put a prepared enabling in force and wake what waited in the one that it replaces."""
        with _SWITCH:
            replaced = enabled.point.activations.get(self)
            enabled.point.activations[self] = self._last[enabled.point] = enabled.activation
            _refresh(enabled.point)
        if replaced is not None:
            replaced.end()

    def switch_off(self, point: Point, only: Activation | None = None) -> bool:
        """End the enabling of a point here and tell whether there was one; `only` leaves a later one alone."""
        with _SWITCH:
            ended = point.activations.get(self)
            if ended is None or (only is not None and ended is not only):
                return False
            del point.activations[self]
            _refresh(point)
        ended.end()
        return True

    def disable_all(self) -> None:
        """End every enabling of this registry."""
        for found in declared_points():
            self.switch_off(found)

    def status(self) -> tuple[Status, ...]:
        """The enabled points of this registry, by name."""
        return tuple(
            _status(activation)
            for found in declared_points()
            if (activation := found.activations.get(self)) is not None
        )

    def last_activation(self, point: Point) -> Activation | None:
        """The activation in force, or the one that was last; its counters outlive it."""
        return self._last.get(point)

    def wait_hit(self, point: Point, count: int, timeout_seconds: float) -> None:
        """Return once the point was passed `count` times since it was enabled here, or raise HitTimeout."""
        activation = self.last_activation(point)
        if activation is None:
            raise FailpointNotEnabled(point.name)
        activation.wait_hit(count, timeout_seconds)


class Enabled:
    """One enabling of a point; used with `with`, it ends with the block."""

    __slots__ = ("activation", "point", "registry")

    def __init__(self, registry: Registry, point: Point, activation: Activation) -> None:
        self.registry = registry
        self.point = point
        self.activation = activation

    def __enter__(self) -> Self:
        return self

    def __repr__(self) -> str:
        return f"<enabled {self.point.name}={self.activation.chain.text}>"

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.disable()

    def disable(self) -> bool:
        """End this enabling, unless another one has already taken its place."""
        return self.registry.switch_off(self.point, self.activation)

    @property
    def hits(self) -> int:
        """How often the point was passed during this enabling."""
        return self.activation.hits

    @property
    def status(self) -> Status:
        """How the enabling stands."""
        return _status(self.activation)

    def wait_hit(self, count: int = 1, timeout_seconds: float = WAIT_HIT_SECONDS) -> None:
        """Return once the point was passed `count` times during this enabling, or raise HitTimeout."""
        self.activation.wait_hit(count, timeout_seconds)


_PROCESS_REGISTRY = Registry("process")
_REGISTRY: ContextVar[Registry] = ContextVar("tideshift_failpoint_registry", default=_PROCESS_REGISTRY)


def point(name: str, doc: str, returns: type | UnionType | None = None) -> Point:
    """Declare a point; `returns` is the type that a `return` term may hand to its site, None if it takes no value."""
    frame = sys._getframe(1)  # noqa: SLF001  (the documented way to learn who calls, and fast enough for an import)
    place = {"module": str(frame.f_globals.get("__name__")), "file": frame.f_code.co_filename}
    declaration = Declaration(name=name, doc=doc.strip(), returns=returns, line=frame.f_lineno, **place)
    if not _NAME.fullmatch(name):
        raise DeclarationError(f"{name!r} is no name of a failpoint: lower-case words joined by dots are, as in a.b_c")
    if not declaration.doc:
        raise DeclarationError(f"failpoint {name!r} needs one sentence that tells which moment it marks")
    with _SWITCH:
        first = _DECLARED.get(name)
        if first is not None:
            raise DuplicateFailpoint(name, first=first.declaration.place, second=declaration.place)
        declared_now = _DECLARED[name] = Point(declaration)
        _refresh(declared_now)
    return declared_now


def catalogue() -> tuple[Declaration, ...]:
    """Every declared point of every imported module, by name."""
    return tuple(found.declaration for found in declared_points())


def declared_points() -> tuple[Point, ...]:
    """Every declared point, by name."""
    with _SWITCH:
        return tuple(_DECLARED[name] for name in sorted(_DECLARED))


def declared(point_or_name: Point | str) -> Point:
    """The declared point that is meant, or UnknownFailpoint with near matches."""
    name = point_or_name if isinstance(point_or_name, str) else point_or_name.name
    with _SWITCH:
        found = _DECLARED.get(name)
        if found is None or (isinstance(point_or_name, Point) and found is not point_or_name):
            raise UnknownFailpoint(name, _DECLARED)
    return found


def enable(
    point_or_name: Point | str,
    terms: str | None = None,
    *,
    call: Callable[..., object] | None = None,
    where: Mapping[str, object] | None = None,
    seed: int | str | None = None,
) -> Enabled:
    """Let a point act in the registry of this context, until disabled or to the end of a `with` block."""
    registry = _REGISTRY.get()
    enabled = registry.prepare(point_or_name, terms, call=call, where=where, seed=seed)
    registry.switch_on(enabled)
    return enabled


def disable(point_or_name: Point | str) -> bool:
    """End the enabling of a point in the registry of this context and tell whether there was one."""
    return _REGISTRY.get().switch_off(declared(point_or_name))


def disable_all() -> None:
    """End every enabling in the registry of this context."""
    _REGISTRY.get().disable_all()


def status() -> tuple[Status, ...]:
    """The enabled points in the registry of this context, by name."""
    return _REGISTRY.get().status()


def wait_hit(point_or_name: Point | str, count: int = 1, timeout_seconds: float = WAIT_HIT_SECONDS) -> None:
    """Return once a point was passed `count` times since it was enabled, or raise HitTimeout."""
    _REGISTRY.get().wait_hit(declared(point_or_name), count, timeout_seconds)


def current_registry() -> Registry:
    """The registry of this context."""
    return _REGISTRY.get()


@contextmanager
def scope(registry: Registry) -> Iterator[Registry]:
    """Use another registry in this context; a thread takes part when it is started with a copy of the context."""
    token = _REGISTRY.set(registry)
    try:
        yield registry
    finally:
        _REGISTRY.reset(token)


def enabled_anywhere() -> tuple[Enabled, ...]:
    """What is enabled in any registry of the process, for checks that nothing was left behind."""
    with _SWITCH:
        return tuple(
            Enabled(registry, found, activation)
            for found in declared_points()
            for registry, activation in found.activations.items()
        )


def add_recorder(record: Recorder, *, every_point_on: bool) -> None:
    """Call `record` at each pass of a point that is on; `every_point_on` turns them all on meanwhile."""
    _change_recorders(lambda: _RECORDERS.__setitem__(record, every_point_on))


def remove_recorder(record: Recorder) -> None:
    """Call `record` no more."""
    _change_recorders(lambda: _RECORDERS.pop(record, None))


def _change_recorders(change: Callable[[], object]) -> None:
    global _recorders
    with _SWITCH:
        change()
        _recorders = tuple(_RECORDERS)
        for found in _DECLARED.values():
            _refresh(found)


# A child that is forked while another thread switches a point must not find the lock held by a thread that it lacks.
os.register_at_fork(before=_SWITCH.acquire, after_in_parent=_SWITCH.release, after_in_child=_SWITCH.release)


def _refresh(point: Point) -> None:
    """Set the flag that sites read; the caller holds the lock."""
    point.on = bool(point.activations) or any(_RECORDERS.values())


def _status(activation: Activation) -> Status:
    return Status(
        name=activation.point_name,
        terms=activation.chain.text,
        where=dict(activation.where),
        hits=activation.hits,
        fired=activation.fired,
        seed=activation.seed,
    )


def _check_returns(point: Point, chain: Chain) -> None:
    """Refuse a `return` whose value the site has not declared, since the site would ignore or misread it."""
    for term in chain.terms:
        if term.action is not Action.RETURN:
            continue
        if point.returns is None:
            raise ReturnTypeMismatch(point.name, "return has no effect, because the point is declared without returns=")
        value = term.argument()
        if not _accepts(point.returns, value):
            wanted = getattr(point.returns, "__name__", str(point.returns))
            raise ReturnTypeMismatch(point.name, f"return({value!r}) is {type(value).__name__}, not {wanted}")


def _accepts(returns: type | UnionType, value: object) -> bool:
    """Whether the value has exactly a declared type; True is no int here, and an int will do for a float."""
    kinds = get_args(returns) if isinstance(returns, UnionType) else (returns,)
    return any(kind is object or type(value) is kind or (kind is float and type(value) is int) for kind in kinds)
