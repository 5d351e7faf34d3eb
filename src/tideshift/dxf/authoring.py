"""What most authors of a distributed job need: parameters as a dataclass, a plan, and a body that commits as it goes.

    @dataclass(frozen=True)
    class Rekey:
        table: str
        batch_size: int = live(1000, minimum=1, maximum=50_000)

    class RekeyType:
        name = "shop.rekey"
        parameters = Rekey
        steps = ("rekey",)
        def plan(self, context, step): ...      # an iterable of pieces: JSON, all different, the same when planned again
        def run(self, context, piece): ...      # a generator: each `with context.commit(cursor=…)` is a chunk, each `yield` a place to pause

    db.registry.add(task_type(RekeyType()))
    submit(db.dxf, RekeyType(), Rekey("customer"), key="rekey customer")

A `run` is a generator, so that the framework is asked between two chunks whether to go on: there it waits as the limits ask,
pauses, yields its slot, or ends. After an error that passes, or on another node, it is called again and reads its cursor.
An author's type may have `revert(context)`, `modify_meta(parameters, changes)`, `clean(context)` and `is_retryable(error)` too.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from tideshift import errors
from tideshift.dxf.parameters import parameter_of
from tideshift.dxf.task import DONE, INIT, Subtask, Task
from tideshift.dxf.tasktype import Chunk, Context, Work

if TYPE_CHECKING:
    from tideshift.dxf.commands import Dxf
    from tideshift.store.database import Transaction

__all__ = ["Author", "PlanContext", "RunContext", "live", "submit", "task_type"]

P = TypeVar("P")
Piece = dict[str, Any]
_LIVE = "tideshift live"
_CURSOR = "cursor"


def live(default: Any, *, minimum: float | None = None, maximum: float | None = None) -> Any:
    """Make a field of a parameter class that may be modified while the task runs, within these bounds."""
    return field(default=default, metadata={_LIVE: (minimum, maximum)})


class Author(Protocol[P]):
    """The least that a type must have."""

    name: str
    parameters: type[P]
    steps: tuple[str, ...]

    def plan(self, context: PlanContext[P], step: str) -> Iterable[Piece]:
        """Return the pieces of a step; none skips it. Reads only."""
        ...

    def run(self, context: RunContext[P], piece: Piece) -> Iterator[None]:
        """Do one piece: commit chunk by chunk, and yield between them."""
        ...


@dataclass(frozen=True)
class PlanContext(Generic[P]):
    """What planning, undoing and cleaning are given: the parameters, and a transaction on the database."""

    parameters: P
    tx: Transaction
    task: Task


class RunContext(Generic[P]):
    """What a running piece is given."""

    def __init__(self, author: Author[P], context: Context) -> None:
        self._author = author
        self._context = context
        self._chunk: Chunk | None = None

    @property
    def parameters(self) -> P:
        """Return the parameters in force now: a live one may have changed since the last chunk."""
        return _read(self._author, self._context.task)

    @property
    def cursor(self) -> Any:
        """Return what the last commit of this piece gave as its cursor, or None; whoever ran it before may have been somebody else."""
        return self._context.subtask.checkpoint.get(_CURSOR)

    @property
    def batch_size(self) -> int:
        """Return how many rows the next chunk may hold, by `batch_size` and `max_write_speed`."""
        return self._context.limits.batch_size_rows

    @contextmanager
    def commit(self, *, cursor: Any) -> Iterator[Transaction]:
        """Open a transaction for a chunk: what is written in it, the cursor, and the check that this piece is still ours commit together."""
        with self._context.chunk() as chunk:
            self._chunk = chunk
            yield chunk.tx
            chunk.checkpoint = {_CURSOR: cursor}

    def count(self, *, rows: int = 0, size_bytes: int = 0) -> None:
        """Tell, inside a commit, what it holds: progress, speed and the limits of a write speed come from that."""
        assert self._chunk is not None, "count() is called inside commit()"
        self._chunk.rows += rows
        self._chunk.size_bytes += size_bytes

    @contextmanager
    def read(self) -> Iterator[Transaction]:
        """Open a transaction that sees one instant and writes nothing."""
        with self._context.database.transaction(write=False) as tx:
            yield tx


class _Piecework(Generic[P]):
    """The work of one subtask: its author's generator, made anew after an error."""

    def __init__(self, author: Author[P]) -> None:
        self._author = author
        self._running: Iterator[None] | None = None

    def step(self, context: Context) -> bool:
        """Go on to the next `yield`."""
        if self._running is None:
            self._running = iter(self._author.run(RunContext(self._author, context), dict(context.subtask.meta)))
        running, self._running = self._running, None
        for _ in running:
            self._running = running  # kept only when it came to its `yield`: a generator that raised cannot go on
            return True
        return False


class _Adapted(Generic[P]):
    """An author's type in the form that the framework drives."""

    def __init__(self, author: Author[P]) -> None:
        if not dataclasses.is_dataclass(author.parameters):
            raise TypeError(f"{author.name}: parameters must be a dataclass")
        if not author.steps:
            raise TypeError(f"{author.name}: there must be at least one step")
        self.author = author
        self.name = author.name
        self.live_parameters: Mapping[str, Callable[[Any], Any]] = {
            one.name: _reader(one.name, type(one.default), *one.metadata[_LIVE]) for one in fields(author.parameters) if _LIVE in one.metadata
        }

    def next_step(self, task: Task) -> int:
        """Number the steps from 1."""
        following = 1 if task.step == INIT else task.step + 1
        return following if following <= len(self.author.steps) else DONE

    def step_name(self, step: int) -> str:
        """Return the author's name of a step."""
        return self.author.steps[step - 1] if 1 <= step <= len(self.author.steps) else ""

    def plan(self, tx: Transaction, task: Task, step: int) -> list[Piece]:
        """Ask the author."""
        return [dict(piece) for piece in self.author.plan(PlanContext(_read(self.author, task), tx, task), self.step_name(step))]

    def open(self, task: Task, subtask: Subtask) -> Work:
        """Touch nothing yet."""
        return _Piecework(self.author)

    def modify(self, meta: dict[str, Any], modifications: list[dict[str, Any]]) -> dict[str, Any]:
        """Let the author merge, or take the values over; what makes no parameters of the class is refused."""
        changes = {parameter_of(one["type"]): one["to"] for one in modifications}
        own = {name: value for name, value in changes.items() if name in self.live_parameters}
        present: Any = self.author.parameters(**meta["own"])
        asked = getattr(self.author, "modify_meta", None)
        changed = asked(present, own) if asked is not None and own else dataclasses.replace(present, **own)
        framework = {name: value for name, value in changes.items() if name not in own}
        return {**meta, "own": dataclasses.asdict(changed), "parameters": {**meta["parameters"], **framework, **_limits(own)}}

    def revert(self, tx: Transaction, task: Task) -> None:
        """Ask the author, if he undoes anything."""
        self._ask("revert", tx, task)

    def clean(self, tx: Transaction, task: Task) -> None:
        """Ask the author, if he cleans anything up."""
        self._ask("clean", tx, task)

    def is_retryable(self, error: BaseException) -> bool:
        """Ask the author about an error of his own."""
        asked = getattr(self.author, "is_retryable", None)
        return asked is not None and bool(asked(error))

    def _ask(self, name: str, tx: Transaction, task: Task) -> None:
        asked = getattr(self.author, name, None)
        if asked is not None:
            asked(PlanContext(_read(self.author, task), tx, task))


def task_type(author: Author[P]) -> _Adapted[P]:
    """Return the type as the registry takes it."""
    return _Adapted(author)


def submit(dxf: Dxf, author: Author[P], parameters: P, *, key: str, **options: Any) -> Task:
    """Submit a task of this type; `options` are those of `Dxf.submit`, such as threads, priority, max_node_count and tx."""
    assert isinstance(parameters, author.parameters), f"{author.name} wants {author.parameters.__name__}"
    own = dataclasses.asdict(parameters)  # type: ignore[call-overload]
    return dxf.submit(author.name, key, {"own": own, "parameters": _limits(own)}, **options)


def _limits(own: Mapping[str, Any]) -> dict[str, Any]:
    """Return those of the type's own parameters that are limits of the framework as well."""
    return {name: own[name] for name in ("batch_size",) if name in own}


def _read(author: Author[P], task: Task) -> P:
    return author.parameters(**task.meta["own"])


def _reader(name: str, kind: type, minimum: float | None, maximum: float | None) -> Callable[[Any], Any]:
    """Return what turns a given value, or its text, into one of the field's type within its bounds."""

    def read(value: Any) -> Any:
        try:
            typed = value if kind is type(None) else value in (True, "true", "1") if kind is bool else kind(value)
        except (TypeError, ValueError) as error:
            raise errors.InvalidParameter(f"{name}: {value!r} is no {kind.__name__}") from error
        if (minimum is not None and typed < minimum) or (maximum is not None and typed > maximum):
            raise errors.InvalidParameter(f"{name}: {typed!r} is outside {minimum if minimum is not None else ''} to {maximum if maximum is not None else ''}")
        return typed

    return read
