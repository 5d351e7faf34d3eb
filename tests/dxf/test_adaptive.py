"""Adaptive work: what small commits take at rest and beside it decides how much of the time it works."""

from random import Random

import psycopg
import pytest

from tests.databases import opened
from tests.dxf.conftest import empty
from tests.dxf.test_nodes import service_of
from tests.dxf.test_pure import limits
from tests.waiting import until
from tideshift.dxf import points
from tideshift.dxf.commands import Verdict
from tideshift.dxf.machine import TaskState
from tideshift.dxf.slowness import BLOCK, DUTY_MAX, DUTY_MIN, DUTY_START, SEEN_MIN, SLOW_SHARE_MAX, Slowness
from tideshift.dxf.throttle import Duty, pause_after
from tideshift.errors import InvalidParameter
from tideshift.store import bootstrap
from tideshift.testing.sample import COPY

CONCURRENT = pytest.mark.parametrize("database_url", ["postgres15"], indirect=True)
"""Where writers need not wait for one another; what is asked of the server about its sessions is in tests/store."""
ON_SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
QUICK, SLOW = 0.002, 0.05


# ── decisions ─────────────────────────────────────────────────────────────────────────────────────────────────────


def seen(*, at_rest=300, beside=0, slow_beside=0, slow_at_rest=0):
    """Slowness after so many commits, so many of them slow."""
    slowness = Slowness()
    for number in range(at_rest):
        slowness.note(SLOW if number < slow_at_rest else QUICK, beside=False)
    for number in range(beside):
        slowness.note(SLOW if number < slow_beside else QUICK, beside=True)
    return slowness


@pytest.mark.parametrize(
    ("kept", "duty"),
    [
        ({"at_rest": SEEN_MIN - 1, "beside": 300}, DUTY_START),
        ({"beside": 0}, SLOW_SHARE_MAX * 12),
        ({"beside": 388}, DUTY_MAX),
        ({"beside": 388, "slow_beside": 3}, SLOW_SHARE_MAX * 400 / 4),
        ({"beside": 388, "slow_beside": 39}, SLOW_SHARE_MAX * 400 / 40),
        ({"beside": 388, "slow_beside": 388}, DUTY_MIN),
        ({"at_rest": 200, "slow_at_rest": 1, "beside": 388, "slow_beside": 9}, 0.002 * 400 / 10),
    ],
)
def test_how_much_of_the_time_the_work_may_take(kept, duty):
    """Little before anything is known, nearly all where nobody is slowed, and by the share of slow commits in between."""
    assert seen(**kept).duty == pytest.approx(duty)


def test_what_is_slow_is_told_by_the_commits_at_rest():
    """One and a half times their 99th percentile, by the quicker of the last blocks: rest that the work itself has slowed does not count."""
    slowness = seen(at_rest=BLOCK * 6)
    before = slowness.slow_from_seconds
    for _ in range(BLOCK * 13):
        slowness.note(0.01, beside=False)
    disturbed = slowness.slow_from_seconds
    for _ in range(BLOCK * 7):
        slowness.note(0.01, beside=False)

    assert before == disturbed == pytest.approx(1.5 * QUICK)
    assert slowness.slow_from_seconds == pytest.approx(0.015)


@pytest.mark.parametrize("slow_share", [0.0, 0.01, 0.05, 0.13])
def test_over_time_fewer_than_one_in_a_hundred_are_slow(slow_share, seed):
    """An application that commits all the while, beside work that follows the duty: its 99th percentile stays what it is at rest."""
    random, slowness, slow, works = Random(seed), Slowness(), 0, 0
    commits = 20_000
    for _ in range(commits):
        beside = random.random() < slowness.duty
        is_slow = beside and random.random() < slow_share
        slowness.note(SLOW if is_slow else QUICK * random.uniform(0.8, 1), beside=beside)
        slow, works = slow + is_slow, works + beside

    assert slow / commits < 0.01
    assert works / commits > min(0.9, 0.4 * SLOW_SHARE_MAX / max(slow_share, 1e-9))


@pytest.mark.parametrize(
    ("duty", "seconds", "reason"), [(None, 0.0, None), (1.0, 0.0, None), (0.5, 0.02, "latency"), (0.1, 0.18, "latency"), (0.0001, 60.0, "latency")]
)
def test_the_rest_after_adaptive_work(duty, seconds, reason):
    """Work and rest together keep the duty; no rest is longer than a minute."""
    pause = pause_after(
        limits(), held_seconds=0.02, rows=10, size_bytes=100, shares_lock=False, duty=None if duty is None else Duty(duty, 7.0, 0.7)
    )  # fmt: skip

    assert pause.seconds == pytest.approx(seconds)
    assert pause.reason == reason
    assert (pause.limit, pause.value) == ((0.7, 7.0) if reason else (None, None))


# ── on the stepped clock ──────────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def application(database_url):
    """A session of somebody else's that has just done something."""
    with psycopg.connect(database_url.replace("+psycopg", ""), autocommit=True, application_name="shop") as connection:
        connection.execute("BEGIN")
        yield connection


class Beating:
    """Beats a node's pulse by the hand of the test, each commit taking as long as is said."""

    def __init__(self, member, failpoints, clock):
        self.pulse = member.node.pulse
        self.commits = []
        self.seconds = QUICK

        def commit(working, **_):
            self.commits.append(working)
            clock.advance(self.seconds)

        failpoints.enable(points.BEFORE_PULSE, call=commit)

    def at_rest(self, beats):
        for _ in range(beats):
            self.pulse.duty()
            self.pulse.beat()

    def beside(self, beats, seconds):
        self.seconds = seconds
        with self.pulse.working():
            self.at_rest(beats)
        self.seconds = QUICK


@CONCURRENT
def test_an_adaptive_task_rests_as_its_pulse_says(make_cluster, rows, clock, failpoints, application):
    """Where commits beside it are slow it rests long, and its row says why; `adaptive=off` is in force with the next chunk."""
    cluster = make_cluster(nodes=1)
    (member,) = cluster.members.values()
    beating = Beating(member, failpoints, clock)
    beating.at_rest(40)
    beating.beside(35, QUICK)
    beating.beside(5, SLOW)
    failpoints.enable(points.AFTER_CHUNK_WORK, call=lambda **_: clock.advance(0.01))
    task = rows.submit(parts=1, batch_size=1, adaptive="on")
    cluster.run_until(lambda: cluster.dxf.subtasks(task.id) and cluster.dxf.subtasks(task.id)[0].summary.get("chunks", 0) >= 3)
    throttle = cluster.dxf.subtasks(task.id)[0].summary["throttle"]
    duty = member.node.pulse.duty()

    answer = cluster.dxf.modify(task.id, adaptive="off")
    cluster.run_until(lambda: cluster.ended(task.id))

    assert duty.share == pytest.approx(SLOW_SHARE_MAX / (6 / 52))
    assert throttle == {"reason": "latency", "limit": pytest.approx(0.7), "value": pytest.approx(11.54)}
    assert answer.verdict is Verdict.APPLIED
    row = next(one for one in cluster.dxf.subtasks(task.id) if one.step == COPY)
    assert row.summary["effective"]["adaptive"] == "off"
    assert row.summary["throttle"]["reason"] is None
    assert rows.exactly_once()


@CONCURRENT
def test_where_nobody_else_is_there_nothing_rests(make_cluster, clock, failpoints, application):
    """When the application has gone, the work takes all of the time, and no commit is made any more to be timed."""
    (member,) = make_cluster(nodes=1).members.values()
    beating = Beating(member, failpoints, clock)
    beating.at_rest(2)
    before = member.node.pulse.duty()
    application.close()
    until(lambda: not _others(member), "the end of the application's session")
    clock.advance(1)

    beating.at_rest(5)

    assert before.share == DUTY_START
    assert member.node.pulse.duty().share == 1.0
    assert beating.commits == [0, 0]


def _others(member):
    with member.node.database.transaction(write=False) as tx:
        return tx.others_at_work()


@CONCURRENT
def test_a_pulse_that_nobody_asks_for_is_still(make_cluster, clock, failpoints, application):
    """Some seconds after the last question no commit is made any more."""
    (member,) = make_cluster(nodes=1).members.values()
    beating = Beating(member, failpoints, clock)
    beating.at_rest(3)
    clock.advance(3)

    rest = member.node.pulse.beat()

    assert rest == float("inf")
    assert not member.node.pulse.asked.is_set()
    assert beating.commits == [0, 0, 0]


@ON_SQLITE
def test_where_one_writes_at_a_time_adaptive_is_refused(cluster, rows):
    """The share of the lock is the measure there, and the error says so."""
    task = rows.submit()

    with pytest.raises(InvalidParameter, match="one writer at a time") as refusal:
        cluster.dxf.modify(task.id, adaptive="on")

    assert "lock_share" in refusal.value.hint
    assert cluster.dxf.modify(task.id, adaptive="off").verdict is Verdict.APPLIED


# ── with real threads ─────────────────────────────────────────────────────────────────────────────────────────────


@CONCURRENT
def test_a_service_beats_while_adaptive_work_runs(database_url, registry, failpoints, application):
    """Commits are timed at rest and beside the chunks, the task ends, and every row is there once."""
    from tests.dxf.conftest import Rows

    with opened(database_url) as database:
        if not bootstrap.bootstrap(database):
            empty(database)
        rows = Rows(database, 40)
        commits = []
        failpoints.enable(points.BEFORE_PULSE, call=lambda **_: commits.append(1))
        with service_of(database, registry) as service:
            task = rows.submit(parts=2, batch_size=5, adaptive="on")
            service.wake()
            until(lambda: len(commits) >= 2, "commits that are timed")
            until(lambda: _state(database, task) is TaskState.SUCCEED, "the end of the task")
        assert rows.exactly_once()


def _state(database, task):
    from tideshift.dxf.commands import Dxf

    return Dxf(database, actor="test").show(task.id).state
