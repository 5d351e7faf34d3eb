"""Which exception a `raise` term raises: one that a layer has registered by name, or an importable class.

A layer registers what one message cannot build, for example a driver's own "deadlock" error, so that terms stay short and
no test needs to know how that error is put together.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable

from tideshift.failpoint.errors import DeclarationError, InjectedFault, did_you_mean, near_matches
from tideshift.failpoint.terms import ClassPath, JsonValue, Term

ErrorFactory = Callable[[str], Exception]

_FACTORIES: dict[str, ErrorFactory] = {}


def register_error(name: str, factory: ErrorFactory) -> None:
    """Let `raise("name")` raise what the factory builds from a message."""
    if not name:
        raise DeclarationError("an error that failpoints can raise needs a name")
    if _FACTORIES.setdefault(name, factory) is not factory:
        raise DeclarationError(f"two different errors are registered under the name {name!r}")


def registered_errors() -> tuple[str, ...]:
    """The names that `raise("name")` knows, in order."""
    return tuple(sorted(_FACTORIES))


def error_builder(term: Term, point_name: str) -> Callable[[], Exception]:
    """A function that builds the exception of a raise term, proven to work; ValueError tells why there is none."""
    factory = _factory(term.arguments[0] if term.arguments else None)
    message = _message(term, point_name)

    def build() -> Exception:
        return factory(message)

    try:
        probe = build()
    except Exception as error:
        raise ValueError(
            f"the error cannot be built from a message alone ({type(error).__name__}: {error});"
            " register a factory for it with register_error"
        ) from error
    if not isinstance(probe, Exception):
        raise ValueError(  # noqa: TRY004  (one type tells the caller every reason)
            f"the factory gave {type(probe).__name__}, which is not an Exception"
        )
    return build


def _message(term: Term, point_name: str) -> str:
    second = term.arguments[1] if len(term.arguments) > 1 else None
    return str(second.decoded()) if isinstance(second, JsonValue) else f"injected by failpoint {point_name}"


def _factory(what: JsonValue | ClassPath | None) -> ErrorFactory:
    if what is None:
        return InjectedFault
    if isinstance(what, ClassPath):
        return _exception_class(what.path)
    name = what.decoded()
    if name not in _FACTORIES:
        near = did_you_mean(near_matches(name, _FACTORIES))
        raise ValueError(f"no error is registered under the name {name!r}{near}")
    return _FACTORIES[name]


def _exception_class(path: str) -> type[Exception]:
    """The class at a dotted path; a path without a dot is a built-in."""
    module_name, _, class_name = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module_name or "builtins"), class_name, None)
    except ImportError as error:
        raise ValueError(f"{path}: module {module_name} cannot be imported ({error})") from error
    if not (isinstance(found, type) and issubclass(found, Exception)):
        raise ValueError(f"{path} is not a class of exceptions")  # noqa: TRY004
    return found
