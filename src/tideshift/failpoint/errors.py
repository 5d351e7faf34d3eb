"""What can be wrong with a failpoint or its terms; each error has a stable code and fields.

These are mistakes in the use of failpoints. The faults that failpoints inject are not in this tree: they are the classes
that `raise` names, or `InjectedFault` when it names none.
"""

from __future__ import annotations

from collections.abc import Iterable


class InjectedFault(Exception):
    """The error that a bare `raise` term raises; code under test should treat it as any unforeseen error."""

    code = "failpoint.injected"


class FailpointError(Exception):
    """A failpoint was declared, enabled or awaited wrongly."""

    code = "failpoint.error"


class TermSyntaxError(FailpointError):
    """The terms cannot be read; `position` is the offset of the first character that does not fit."""

    code = "failpoint.syntax"

    def __init__(self, text: str, position: int, reason: str) -> None:
        self.text = text
        self.position = position
        self.reason = reason
        super().__init__(f"{reason}, at character {position + 1} of {_excerpt(text, position)}")


class UnknownFailpoint(FailpointError):
    """No point of this name is declared: correct the name, or import the module that declares it first."""

    code = "failpoint.unknown"

    def __init__(self, name: str, declared: Iterable[str]) -> None:
        self.name = name
        self.near = near_matches(name, declared)
        super().__init__(
            f"no failpoint is named {name!r}{did_you_mean(self.near)}; it exists once its module is imported"
        )


class DeclarationError(FailpointError):
    """A point was declared with a bad name or without a sentence that tells what passing it means."""

    code = "failpoint.declaration"


class DuplicateFailpoint(DeclarationError):
    """Two declarations use one name: rename the later one."""

    code = "failpoint.duplicate"

    def __init__(self, name: str, *, first: str, second: str) -> None:
        self.name = name
        self.first = first
        self.second = second
        super().__init__(f"failpoint {name!r} is declared twice: at {first} and at {second}")


class TermNotPossible(FailpointError):
    """The terms can be read but not be carried out at this point: change the term, or what it names."""

    code = "failpoint.term"

    def __init__(self, name: str, reason: str) -> None:
        self.name = name
        self.reason = reason
        super().__init__(f"failpoint {name!r}: {reason}")


class ReturnTypeMismatch(TermNotPossible):
    """A `return` term would hand the site a value that it has not declared with returns=."""

    code = "failpoint.return_type"


class FailpointNotEnabled(FailpointError):
    """Hits are counted from the moment a point is enabled, and this one is not: enable it first."""

    code = "failpoint.not_enabled"

    def __init__(self, name: str) -> None:
        self.name = name
        super().__init__(f"failpoint {name!r} is not enabled here, so no hit of it can be awaited; enable it first")


class HitTimeout(FailpointError, TimeoutError):
    """The point was not passed as often as awaited: the code never came there, or a filter kept it out."""

    code = "failpoint.hit_timeout"

    def __init__(self, name: str, *, hits: int, hits_wanted: int, reason: str) -> None:
        self.name = name
        self.hits = hits
        self.hits_wanted = hits_wanted
        super().__init__(f"failpoint {name!r} was hit {hits} times instead of {hits_wanted} {reason}")


class EnvironmentEntryRefused(FailpointError):
    """An entry of the environment variable is wrong, so none of its entries is in force."""

    code = "failpoint.environment"

    def __init__(self, variable: str, entry: str, reason: str) -> None:
        self.variable = variable
        self.entry = entry
        super().__init__(f"{variable}: entry {entry!r} is refused, and with it the whole variable: {reason}")


def _excerpt(text: str, position: int) -> str:
    """The text, or as much of a long one around a position as fits a line."""
    start, end = max(0, position - 60), position + 60
    return f"{'…' * (start > 0)}{text[start:end]!r}{'…' * (end < len(text))}"


def near_matches(word: str, known: Iterable[str]) -> tuple[str, ...]:
    """The known words that a misspelt one may have meant, nearest first."""
    import difflib  # here, since only a mistake needs it and every start of the program would pay for it

    return tuple(difflib.get_close_matches(word, sorted(known), n=3, cutoff=0.6))


def did_you_mean(near: tuple[str, ...]) -> str:
    """The clause that offers the near matches, or nothing when there are none."""
    return f" (did you mean {' or '.join(near)}?)" if near else ""
