"""A cluster in one thread: owners, nodes and executors of the real code, stepped in an order that a seed decides.

    clock = SteppedClock()
    database = Database(driver, clock=clock, profile=FAST)
    bootstrap(database)
    with Cluster(database, Registry(MyType()), nodes=2, seed=7) as cluster:
        task = cluster.dxf.submit("my type", "key", {...})
        cluster.run_until(lambda: cluster.ended(task.id))
        assert cluster.dxf.show(task.id).state == "succeed"

Nothing sleeps: the clock moves a little with every step, and by what an executor would have waited. Each node is a
would-be owner too. What a step may do: one tick of an owner, one look of a node for work, one step of an executor; the
first two rest until the next scan when they found nothing to do, as their loops would. Heartbeats and the renewing of
the lease come when they are due, as their own thread would see to it.

Faults, by the name of a node: `kill_node` (a process that is gone: its transactions roll back, nothing is given back),
`freeze_node` and `thaw_node` (it stands still with all it holds, and goes on later as if nothing had been),
`change_owner` (the owner stands still until another one leads; its node goes on), `stop_node` (an orderly end). To stop somebody in the
middle of a transaction, pause a failpoint and step that executor in a thread of the test's own.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Self

from tideshift import errors
from tideshift.clock import SteppedClock
from tideshift.dxf import tables
from tideshift.dxf.commands import Dxf
from tideshift.dxf.executor import Executor
from tideshift.dxf.machine import TASK
from tideshift.dxf.node import WorkerNode
from tideshift.dxf.owner import Duty, Owner
from tideshift.dxf.rescuer import Cleaner, Rescuer
from tideshift.dxf.scheduler import Scheduler
from tideshift.dxf.tasktype import Registry
from tideshift.store.database import Database

__all__ = ["Cluster", "Member", "framework_duties"]

STEP_SECONDS = 0.1
"""How far the clock moves with every step; with a few members each one looks about as often as its loop would."""
_PASSING = (errors.Retryable, errors.AmbiguousCommit, errors.CannotReach)


def framework_duties(database: Database, registry: Registry) -> Sequence[Duty]:
    """Return the owner's duties without those of schema changes."""
    return (Scheduler(database, registry), Rescuer(database), Cleaner(database))


@dataclass
class Member:
    """One process of the cluster: a node and a would-be owner."""

    node: WorkerNode
    owner: Owner
    heartbeat_due: float
    tick_due: float = 0.0
    look_due: float = 0.0
    frozen: bool = False
    owner_frozen: bool = False

    def tick(self, *, rest_until: float) -> None:
        """Let the owner tick, and rest when there was nothing to do."""
        self.tick_due = rest_until
        if self.owner.tick():
            self.tick_due = 0.0

    def look(self, *, rest_until: float) -> None:
        """Let the node look for work, and rest when there was none."""
        self.look_due = rest_until
        if self.node.start_due():
            self.look_due = 0.0

    @property
    def name(self) -> str:
        """Return the node's name."""
        return self.node.name


class Cluster:
    """Several members over one database whose clock is stepped."""

    def __init__(
        self,
        database: Database,
        registry: Registry,
        duties: Callable[[Database, Registry], Sequence[Duty]] = framework_duties,
        *,
        nodes: int = 2,
        slots: int = 2,
        seed: int = 0,
    ) -> None:
        assert isinstance(database.clock, SteppedClock), "a cluster is stepped: give the database a SteppedClock"
        self.database = database
        self.registry = registry
        self.clock = database.clock
        self.dxf = Dxf(database, actor="test")
        self.members: dict[str, Member] = {}
        self.steps = 0
        self.acting: str | None = None
        """Who does the present step, None between steps; when an injected fault ends a step, the one that it struck."""
        self._duties = duties
        self._slots = slots
        self._random = Random(seed)
        self._numbers = itertools.count(self._highest_number() + 1)
        for _ in range(nodes):
            self.add_node()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for name in list(self.members):
            self.kill_node(name)

    # ── members ───────────────────────────────────────────────────────────────────────────────────────────────────

    def add_node(self, *, scope: str = "", slots: int | None = None) -> str:
        """Start one more process and return its name; no name is used twice."""
        name = f"node-{next(self._numbers)}"
        node = WorkerNode(self.database, self.registry, slots=slots or self._slots, scope=scope, name=name)
        node.register("test")
        owner = Owner(self.database, holder=name, duties=self._duties(self.database, self.registry))
        self.members[name] = Member(node, owner, heartbeat_due=self.clock.monotonic() + self.database.profile.heartbeat_seconds)
        return name

    def kill_node(self, name: str) -> None:
        """Let a process be gone: open transactions roll back with its connections, its rows stay as they are."""
        member = self.members.pop(name)
        member.node.stopping.set()
        for executor in member.node.executors:
            executor.ended = True
        # A node that is stopping closes the connections of what has ended here, and writes nothing.
        member.node.start_due()

    def freeze_node(self, name: str) -> None:
        """Let a process stand still, with all that it believes."""
        self.members[name].frozen = True

    def thaw_node(self, name: str) -> None:
        """Let a frozen process go on."""
        self.members[name].frozen = False

    def stop_node(self, name: str) -> None:
        """End a process in order: subtasks and lease are given back, and it leaves the register."""
        member = self.members.pop(name)
        member.node.stopping.set()
        member.node.release_all()
        member.owner.resign()
        member.node.deregister()

    def owner_name(self) -> str | None:
        """Return who leads and may move, if anybody does."""
        leading = (m for m in self.members.values() if m.owner.tenure is not None and not (m.frozen or m.owner_frozen))
        return next((m.name for m in leading if m.owner.tenure and m.owner.lease.holds(m.owner.tenure)), None)

    def change_owner(self, *, steps_max: int = 2000) -> str:
        """Let the owner stand still until another one leads, and return that one; the old one then goes on."""
        assert len(self.members) > 1, "there is nobody else to lead"
        self.run_until(lambda: self.owner_name() is not None, steps_max=steps_max)
        old = self.members[self.owner_name() or ""]
        old.owner_frozen = True
        self.run_until(lambda: self.owner_name() is not None, steps_max=steps_max)
        old.owner_frozen = False
        new = self.owner_name()
        assert new is not None
        assert new != old.name
        return new

    # ── steps ─────────────────────────────────────────────────────────────────────────────────────────────────────

    def step(self) -> None:
        """Let one of the members do one thing."""
        self.steps += 1
        self.clock.advance(STEP_SECONDS)
        self._heartbeats()
        choices = self._choices()
        if choices:
            # What the loops of the service survive, the simulation survives as well.
            self.acting, act = self._random.choice(choices)
            with suppress(*_PASSING):
                act()
        self.acting = None

    def run(self, steps: int) -> None:
        """Do this many steps."""
        for _ in range(steps):
            self.step()

    def run_until(self, reached: Callable[[], object], *, steps_max: int = 3000) -> int:
        """Step until the condition holds and return how many steps it took; raise when it takes too many."""
        for taken in range(steps_max):
            if reached():
                return taken
            self.step()
        raise AssertionError(f"not reached in {steps_max} steps; {self.describe()}")

    def ended(self, *task_ids: int) -> bool:
        """Whether all these tasks are final."""
        with self.database.transaction(write=False) as tx:
            return all(tables.task_by_id(tx, task_id).state in TASK.final for task_id in task_ids)

    def executors(self) -> list[Executor]:
        """Return what runs anywhere, frozen or not."""
        return [e for member in self.members.values() for e in member.node.executors if not e.ended]

    def describe(self) -> str:
        """Tell in a line who is there and how the live tasks stand, for the message of a failure."""
        members = [f"{m.name}{' frozen' * m.frozen}" for m in self.members.values()]
        tasks = [f"task {task.id} {task.state} step {task.step}" for task in self.dxf.tasks()]
        return f"step {self.steps}; owner {self.owner_name()}; members {members}; {tasks or 'no live task'}"

    def _highest_number(self) -> int:
        """Return the highest number in a name that the register knows, so that a second cluster takes no name again."""
        with self.database.transaction(write=False) as tx:
            known = [node.host for node in tables.nodes(tx)]
        return max((int(host.removeprefix("node-")) for host in known if host.startswith("node-")), default=0)

    def _choices(self) -> list[tuple[str, Callable[[], object]]]:
        now, rest = self.clock.monotonic(), self.database.profile.scan_seconds
        choices: list[tuple[str, Callable[[], object]]] = []
        for member in self.members.values():
            if member.frozen:
                continue
            acts: list[Callable[[], object]] = [executor.step for executor in member.node.executors if not executor.ended]
            if member.tick_due <= now and not member.owner_frozen:
                acts.append(partial(member.tick, rest_until=now + rest))
            if member.look_due <= now:
                acts.append(partial(member.look, rest_until=now + rest))
            choices += [(member.name, act) for act in acts]
        return choices

    def _heartbeats(self) -> None:
        for member in self.members.values():
            if member.frozen or self.clock.monotonic() < member.heartbeat_due:
                continue
            self.acting = member.name
            member.heartbeat_due = self.clock.monotonic() + self.database.profile.heartbeat_seconds
            with suppress(*_PASSING):
                if not member.node.heartbeat():
                    member.node.register("test")
                if not member.owner_frozen:
                    member.owner.renew()
