"""Many members in one thread on a stepped clock, with faults and commands in an order that a seed decides; after every event the rules hold.

`TIDESHIFT_SIMULATIONS=2000 pytest tests/dxf/test_simulation.py -n 2` runs that many seeds; one is replayed by `TIDESHIFT_TEST_SEED=N`.
"""

import os
from collections import Counter
from random import Random

import pytest

from tests.dxf.logs import assert_log_is_a_path
from tideshift.dxf import points
from tideshift.dxf.machine import TASK, SubtaskState, TaskState
from tideshift.errors import CannotReach, LockTimeout, Retryable
from tideshift.store import events
from tideshift.store import points as store_points

SEEDS = int(os.environ.get("TIDESHIFT_SIMULATIONS", "8"))
CASES = [("sqlite", n) for n in range(SEEDS)] + [("postgres15", n) for n in range(max(1, SEEDS // 40))] + [("postgres18", 0), ("mariadb", 0)]
EVENTS_MAX = 50
MEMBERS_MAX = 7


class Faults:
    """What may go wrong at a failpoint: each fires for whoever acts, while its chance is set."""

    def __init__(self, cluster, random):
        self.cluster = cluster
        self.random = random
        self.chance = 0.0
        self.cut_off = set()
        self.fired = Counter()

    def before_begin(self, **_):
        if self.cluster.acting in self.cut_off:
            self.fired["cut off"] += 1
            raise CannotReach("the network is gone")
        self._maybe("busy", LockTimeout)

    def before_statement(self, **_):
        self._maybe("deadlock", Retryable)

    def answer_lost(self, **_):
        lost = self.cluster.acting is not None and self.random.random() < self.chance
        self.fired["answer lost"] += lost
        return lost

    def slow(self, **_):
        if self.cluster.acting is not None and self.random.random() < self.chance:
            self.fired["slow"] += 1
            self.cluster.clock.advance(self.random.choice((0.3, 1.5, 3.0)))

    def _maybe(self, name, error):
        if self.cluster.acting is not None and self.random.random() < self.chance:
            self.fired[name] += 1
            raise error(name)


class World:
    """A cluster with tasks, what was asked of them, and everything that may happen to it."""

    def __init__(self, cluster, rows, random, faults):
        self.cluster = cluster
        self.rows = rows
        self.random = random
        self.faults = faults
        self.task = rows.submit(parts=5, batch_size=2, submit={"threads": random.choice((1, 2, 3))})
        self.acknowledged = Counter()
        self.happened = Counter()
        self.acts = {
            "kill": self._kill, "freeze": self._freeze, "thaw": self._thaw, "stop": self._stop, "join": self._join, "cut off": self._cut_off,
            "reconnect": self._reconnect, "another owner": self._owner_stands, "drain": self._drain, "jump": self._jump, "command": self._command,
            "faults": self._toggle,
        }  # fmt: skip

    def event(self):
        """Let one thing happen, then some steps pass, then look."""
        name = self.random.choice(list(self.acts))
        self.happened[name] += 1
        self.acts[name]()
        while len(self._awake()) < 2:
            self.cluster.add_node()
        self.cluster.run(self.random.randrange(1, 12))
        self.look()

    def look(self):
        """What holds whatever happens: no row twice, a paused task rests, a log that is a path, no request with two outcomes."""
        assert self.rows.copied()[0] == self.rows.copied()[1], "a row was copied twice"
        seen = self.cluster.dxf.show(self.task.id)
        states = {one.state for one in self.cluster.dxf.subtasks(self.task.id)}
        if seen.state is TaskState.PAUSED:
            assert not states & {SubtaskState.PENDING, SubtaskState.RUNNING}
        if seen.state in TASK.final:
            assert not states & {SubtaskState.PENDING, SubtaskState.RUNNING, SubtaskState.PAUSED}
        assert_log_is_a_path(self.cluster.database, TASK, task_id=self.task.id)

    def settle(self):
        """Stop every fault, let a paused task go on, and see the end."""
        self.faults.chance = 0.0
        self.faults.cut_off.clear()
        for member in self.cluster.members.values():
            member.frozen = member.owner_frozen = False
        for _ in range(400):
            if self.cluster.ended(self.task.id):
                break
            if self.cluster.dxf.show(self.task.id).state in (TaskState.PAUSED, TaskState.PAUSING, TaskState.AWAITING_RESOLUTION):
                self.acknowledged["resume"] += self.cluster.dxf.resume(self.task.id)[0].verdict == "applied"
            self.cluster.run(20)
        self.look()

    def judge(self):
        """It has ended; what was copied is whole or undone; nothing that was acknowledged is missing from the log."""
        ended = self.cluster.dxf.show(self.task.id)
        assert ended.state in (TaskState.SUCCEED, TaskState.REVERTED), self.cluster.describe()
        if ended.state is TaskState.SUCCEED:
            assert self.rows.exactly_once()
            assert not self.acknowledged["cancel"], "an acknowledged cancel was dropped"
        else:
            assert self.rows.copied() == (0, 0)
            assert self.acknowledged["cancel"] or ended.error["code"] != "cancelled"
        with self.cluster.database.transaction(write=False) as tx:
            asked = Counter(one.detail["command"] for one in events.history(tx, task_id=self.task.id, limit=10_000) if one.kind == "request")
        assert all(asked[command] >= number for command, number in self.acknowledged.items())

    # ── what may happen ───────────────────────────────────────────────────────────────────────────────────────────

    def _awake(self):
        return [name for name, member in self.cluster.members.items() if not member.frozen and name not in self.faults.cut_off]

    def _some(self):
        return self.random.choice(self._awake())

    def _kill(self):
        self.cluster.kill_node(self._some())

    def _freeze(self):
        self.cluster.freeze_node(self._some())

    def _thaw(self):
        for member in self.cluster.members.values():
            member.frozen = member.owner_frozen = False

    def _stop(self):
        self.cluster.stop_node(self._some())

    def _join(self):
        if len(self.cluster.members) < MEMBERS_MAX:
            self.cluster.add_node(slots=self.random.choice((1, 2, 4)))

    def _cut_off(self):
        self.faults.cut_off.add(self._some())

    def _reconnect(self):
        self.faults.cut_off.clear()

    def _owner_stands(self):
        owner = self.cluster.owner_name()
        if owner is not None:
            self.cluster.members[owner].owner_frozen = True

    def _drain(self):
        self.cluster.members[self._some()].node.draining.set()

    def _jump(self):
        self.cluster.clock.advance(self.random.choice((0.5, 2.5, 10.0)))

    def _toggle(self):
        self.faults.chance = self.random.choice((0.0, 0.01, 0.05))

    def _command(self):
        command = self.random.choice(("pause", "resume", "modify", "modify", "cancel" if self.random.random() < 0.2 else "resume"))
        if command == "modify":
            wished = self.random.choice(({"batch_size": 3}, {"threads": 2}, {"max_node_count": 2, "priority": 7}, {"threads": 1, "batch_size": 9}))
            answer = self.cluster.dxf.modify(self.task.id, **wished)
        else:
            (answer,) = getattr(self.cluster.dxf, command)(self.task.id)
        self.acknowledged[command] += answer.verdict == "applied"


@pytest.mark.parametrize(("database_url", "number"), CASES, indirect=["database_url"])
def test_whatever_happens_the_rules_hold(make_cluster, rows, failpoints, seed, number):
    """No row is lost or done twice, no acknowledged command is lost, and once the faults stop everything ends."""
    random = Random(seed + number)
    cluster = make_cluster(nodes=3, seed=seed + number)
    faults = Faults(cluster, random)
    failpoints.enable(store_points.BEFORE_BEGIN, "call", call=faults.before_begin)
    failpoints.enable(store_points.BEFORE_STATEMENT, "call", call=faults.before_statement)
    failpoints.enable(store_points.COMMIT_ANSWER_LOST, "call", call=faults.answer_lost)
    failpoints.enable(points.AFTER_CHUNK_WORK, "call", call=faults.slow)
    world = World(cluster, rows, random, faults)

    for _ in range(EVENTS_MAX):
        if cluster.ended(world.task.id):
            break
        world.event()
    world.settle()

    world.judge()
