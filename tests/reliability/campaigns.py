"""The heavy proofs as lists of small runs: each has a key that replays it, and an answer that is empty when all is well."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from random import Random

from tests.crash.faults import FAULTS, MARK, Fault, fail, passes
from tests.crash.frozen import FREEZES, IS_OWNER, frozen_run
from tests.crash.killed import killed_run
from tests.crash.kinds import EVERY, KINDS
from tests.crash.outcome import Ending, offline_twin
from tests.crash.scenarios import SCENARIOS
from tests.crash.stepper import Scenario
from tests.crash.strikes import Strike, Verdict, distinct, scratch, strike, undisturbed, undone
from tests.dialects.sqlite.shapes import SHAPES
from tests.dialects.sqlite.twins import key_log_faults
from tests.proof.campaigns import change_keys, oracle_keys, run_change, run_oracle, run_twin, twin_keys
from tests.reliability import postgres
from tests.reliability.switched import PLACES, WRITERS, failures, node_keys
from tideshift import failpoint

TWICE_PER_SCENARIO = 300
PLACES_PER_KIND = 300
FAILURES_PER_KIND = 100
"""For each kind of failure, in the scenarios and kinds of statement where not each statement fails once."""
AT_LENGTH = ("plain", "strict", "cancelled")
KILLED_RUNS = 20
FROZEN_RUNS = 20
KILLS_PER_RUN = 30
KILLED_SECONDS_MAX = 240
KEY_LOG_STATEMENTS = 20_000
RAISE = f'1*raise(RuntimeError,"{MARK}")'


@dataclass(frozen=True)
class Outcome:
    """The answer of one run."""

    struck: int
    wrong: tuple[str, ...]
    figures: dict[str, int] = field(default_factory=dict)
    """What else was measured, by name."""


@dataclass(frozen=True)
class Campaign:
    """One proof: what it shows, its runs in order, and how one of them is made."""

    name: str
    shows: str
    keys: Callable[[int, int], Iterator[str]]
    run: Callable[[str], Outcome]
    parallel: bool = True


@cache
def _golden(name: str) -> tuple[Ending, tuple[failpoint.TracedHit, ...]]:
    ending, hits = undisturbed(name)
    with scratch() as folder:
        twin = offline_twin(EVERY[name], folder)
    assert not ending.user.differences(twin), f"{name}: the undisturbed run differs from the offline twin"
    return ending, hits


def _scenario(key: str) -> tuple[Scenario, str]:
    name, _, rest = key.partition(" ")
    return EVERY[name], rest


# ── killed once at every distinct place, and twice at random ones ─────────────────────────────────────────────────


def _crash_keys(seed: int, stride: int) -> Iterator[str]:
    for name in SCENARIOS:
        _, hits = _golden(name)
        for n, (point, ordinal) in enumerate(distinct(hits)):
            if n % stride == seed % stride:
                yield f"{name} {Strike(point, ordinal, 'kill' if n % 10 == 0 else 'exit')}"


def _kind_keys(seed: int, stride: int) -> Iterator[str]:
    for name in KINDS:
        places = distinct(_golden(name)[1])
        chosen = Random(f"{seed}/{name}").sample(places, min(len(places), PLACES_PER_KIND))
        yield from (f"{name} {Strike(*place)}" for place in chosen[::stride])


def _twice_keys(seed: int, stride: int) -> Iterator[str]:
    for name in SCENARIOS:
        random = Random(f"{seed}/{name}")
        _, hits = _golden(name)
        places = distinct(hits)
        for _ in range(TWICE_PER_SCENARIO // stride):
            first, second = random.choice(places), random.choice(places)
            yield f"{name} {Strike(*first)} {Strike(second[0], 1 + second[1] // 2)}"


def _run_crash(key: str) -> Outcome:
    scenario, rest = _scenario(key)
    return _outcome(strike(scenario, _golden(scenario.name)[0], [Strike.parse(text) for text in rest.split()]))


def _outcome(verdict: Verdict) -> Outcome:
    missed = () if verdict.struck else ("nothing struck",)
    return Outcome(verdict.struck, (*verdict.differences, *missed))


# ── an exception at every distinct place; the n-th statement or commit fails ──────────────────────────────────────


def _raise_keys(seed: int, stride: int) -> Iterator[str]:
    for name in EVERY:
        places = distinct(_golden(name)[1])
        chosen = _some(len(places), len(places) if name in SCENARIOS else PLACES_PER_KIND, name, seed)[seed % stride :: stride]
        yield from (f"{name} {places[n][0]}:{places[n][1]}" for n in chosen)


def _some(count: int, most: int, drawn_for: str, seed: int) -> Sequence[int]:
    """Return so many of the numbers below a count."""
    return range(count) if count <= most else Random(f"{seed}/{drawn_for}").sample(range(count), most)


def _run_raise(key: str) -> Outcome:
    scenario, place = _scenario(key)
    point, _, ordinal = place.partition(":")
    fault = Fault("raise", point, RAISE, may_fail=True)
    return _outcome(fail(scenario, _golden(scenario.name)[0], undone(scenario), fault, int(ordinal)))


def _fault_keys(seed: int, stride: int) -> Iterator[str]:
    for name in EVERY:
        places = failpoint.ordinals(_golden(name)[1])
        for fault in FAULTS.values():
            count = passes(places, fault)
            chosen = _some(count, count if name in AT_LENGTH else FAILURES_PER_KIND, f"{name}/{fault.name}", seed)[seed % stride :: stride]
            yield from (f"{name} {fault.name}:{n + 1}" for n in chosen)


def _run_fault(key: str) -> Outcome:
    scenario, rest = _scenario(key)
    name, _, ordinal = rest.partition(":")
    return _outcome(fail(scenario, _golden(scenario.name)[0], undone(scenario), FAULTS[name], int(ordinal)))


# ── real processes ────────────────────────────────────────────────────────────────────────────────────────────────


def _frozen_keys(seed: int, stride: int) -> Iterator[str]:
    for n in range(0, FROZEN_RUNS, stride):
        yield from (f"{freeze} {1 if freeze == IS_OWNER else 2 + n}" for freeze in FREEZES)


def _run_frozen(key: str) -> Outcome:
    freeze, _, passes_text = key.rpartition(" ")
    with scratch() as folder:
        frozen_run(folder, freeze, int(passes_text))
    return Outcome(1, ())


def _killed_keys(seed: int, stride: int) -> Iterator[str]:
    yield from (str(seed + n) for n in range(0, KILLED_RUNS, stride))


def _run_killed(key: str) -> Outcome:
    with scratch() as folder:
        report = killed_run(folder, int(key), kills_wanted=KILLS_PER_RUN, seconds_max=KILLED_SECONDS_MAX)
    missed = () if report.kills == KILLS_PER_RUN else (f"only {report.kills} workers were killed at work in {KILLED_SECONDS_MAX} s",)
    return Outcome(report.kills, missed)


# ── random databases and random writers ───────────────────────────────────────────────────────────────────────────


def _run_twin(key: str) -> Outcome:
    return Outcome(0, run_twin(key))


def _run_change(key: str) -> Outcome:
    carried_out, wrong = run_change(key)
    return Outcome(int(carried_out), wrong)


def _run_oracle(key: str) -> Outcome:
    every_window, wrong = run_oracle(key)
    return Outcome(int(every_window), wrong)


def _key_log_keys(seed: int, stride: int) -> Iterator[str]:
    yield from (f"{shape.name}/{seed}" for n, shape in enumerate(SHAPES) if n % stride == seed % stride)


def _run_key_log(key: str) -> Outcome:
    name, _, seed = key.partition("/")
    shape = next(shape for shape in SHAPES if shape.name == name)
    with scratch() as folder:
        return Outcome(0, key_log_faults(folder / "key-log.db", shape, int(seed), KEY_LOG_STATEMENTS))


# ── tests of which the suite runs a part ──────────────────────────────────────────────────────────────────────────


def _run_switched(key: str) -> Outcome:
    return Outcome(1, failures(key))


def _run_postgres_writers(key: str) -> Outcome:
    wrong, figures = postgres.run_writers(key)
    return Outcome(figures["rows"], wrong, figures)


def _run_postgres_place(key: str) -> Outcome:
    struck, wrong = postgres.run_place(key)
    return Outcome(int(struck), wrong)


def _run_postgres_stop(key: str) -> Outcome:
    return Outcome(1, postgres.run_stop(key))


CAMPAIGNS = {
    campaign.name: campaign
    for campaign in (
        Campaign("crash", "killed at each distinct pass of each failpoint, recovered, equal to the twin", _crash_keys, _run_crash),
        Campaign("kinds", "every kind of statement killed at 300 distinct places, equal to the twin", _kind_keys, _run_crash),
        Campaign("twice", "killed, and killed again while recovering", _twice_keys, _run_crash),
        Campaign("raise", "an exception at each distinct pass of each failpoint", _raise_keys, _run_raise),
        Campaign("faults", "the n-th statement, begin or commit fails, with each kind of error", _fault_keys, _run_fault),
        Campaign("frozen", "a worker frozen at four places; its late writes must not land", _frozen_keys, _run_frozen, parallel=False),
        Campaign("killed", "workers killed at random moments under writers that keep a log", _killed_keys, _run_killed, parallel=False),
        Campaign("twin", "random databases changed as a reload changes them, or refused where it refuses", twin_keys, _run_twin),
        Campaign("changes", "every kind of change of 200 random databases, as a reload or the library makes it, or refused (struck: not refused)", change_keys, _run_change),
        Campaign("oracle", "random writers beside a job: each statement ends as without it (struck: a row was changed in each window)", oracle_keys, _run_oracle),
        Campaign("key_log", "20,000 random statements per kind of table: no changed row is missed", _key_log_keys, _run_key_log),
        Campaign("writers", "writers in processes of their own beside every kind of change", partial(node_keys, WRITERS), _run_switched, parallel=False),
        Campaign("places", "each command, and each deed of others, at each stage of every kind of change", partial(node_keys, PLACES), _run_switched),
        Campaign("postgres-writers", f"PostgreSQL: {postgres.ROWS_WRITTEN:,} rows written by processes beside each kind of change, each statement compared with a database without a job (struck: rows)",
                 postgres.writer_keys, _run_postgres_writers, parallel=False),
        Campaign("postgres-places", "PostgreSQL: killed at each distinct pass of each failpoint, recovered, equal to the server's own change", postgres.place_keys, _run_postgres_place),
        Campaign("postgres-stops", "PostgreSQL: the server stopped as by a crash at a random moment of a copy; nothing acknowledged is lost", postgres.stop_keys, _run_postgres_stop, parallel=False),
    )
}


def run_one(campaign: str, key: str) -> tuple[str, Outcome, float]:
    """Make one run; whatever it raises is its answer."""
    begun = time.monotonic()
    try:
        outcome = CAMPAIGNS[campaign].run(key)
    except Exception as error:  # noqa: BLE001 - the campaign goes on
        outcome = Outcome(0, (f"{type(error).__name__}: {error}", traceback.format_exc()[-1500:]))
    return key, outcome, time.monotonic() - begun
