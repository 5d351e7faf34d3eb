"""Making the n-th statement, or the n-th commit, fail: n grows until nothing is left to fail.

The life goes on in the same process, as a service would. Whatever failed, the job either ends as its twin does, or is
rolled back with the error on its row and the table as if nobody had ever asked.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from random import Random

from tests.crash.outcome import Ending, UserDatabase, read_ending
from tests.crash.stepper import Scenario, Told, is_expected
from tests.crash.strikes import Strike, Verdict, live, scratch
from tideshift import failpoint

MARK = "injected fault"


@dataclass(frozen=True)
class Fault:
    """One kind of failure: the point it stands at, the action, and whether it may make the job roll back."""

    name: str
    point: str
    action: str
    may_fail: bool = False

    def at(self, ordinal: int) -> Strike:
        """Return the failure of the n-th pass."""
        return Strike(self.point, ordinal, self.action)


def _raise(error: str) -> str:
    return f'1*raise({error},"{MARK}")'


FAULTS = {
    fault.name: fault
    for fault in (
        Fault("busy", "store.before_statement", _raise("tideshift.errors.LockTimeout")),
        Fault("retryable", "store.before_statement", _raise("tideshift.errors.Retryable")),
        Fault("disk full", "store.before_statement", _raise("tideshift.errors.DiskFull")),
        Fault("connection lost", "store.before_statement", _raise("tideshift.errors.ConnectionLost")),
        Fault("fatal", "store.before_statement", _raise("tideshift.store.database.DatabaseFailed"), may_fail=True),
        Fault("begin busy", "store.before_begin", _raise("tideshift.errors.LockTimeout")),
        Fault("commit refused", "store.before_commit", _raise("tideshift.errors.LockTimeout")),
        Fault("commit lost, not done", "store.before_commit", _raise("tideshift.errors.AmbiguousCommit")),
        Fault("commit lost, done", "store.commit_answer_lost", "1*return(true)"),
        Fault("bug", "store.after_statement", _raise("RuntimeError"), may_fail=True),
    )
}
INJECTED = (MARK, "the answer to a commit was lost")


def fail(scenario: Scenario, twin: Ending, undone: UserDatabase, fault: Fault, ordinal: int) -> Verdict:
    """Run with one failure; compare with the twin, or with the end of a job that was rolled back."""
    one = fault.at(ordinal)
    with scratch() as folder:
        path = folder / "shop.db"
        scenario.application.create(path, scenario.seed)
        told = Told()
        try:
            live(path, scenario, told, (one,))
        except AssertionError as error:
            return Verdict(scenario, (one,), told.struck, (str(error), *told.logged, *told.escaped))
        ending = read_ending(path, told.acknowledged)
    surprising = [line for line in (*told.logged, *told.escaped) if not is_expected(line, INJECTED)]
    rolled_back = ending.job["state"] in ("rollback done", "cancelled")
    if not rolled_back or not (fault.may_fail or scenario.ends == "synced"):
        return Verdict(scenario, (one,), told.struck, (*surprising, *ending.differences(twin)))
    complaints = [*surprising, *ending.problems, *ending.user.differences(undone)]
    if not fault.may_fail:
        complaints.append(f"a passing error ended the job: {ending.job}")
    if ending.job["error"] is None:
        complaints.append("rolled back without an error on the row")
    return Verdict(scenario, (one,), told.struck, tuple(complaints))


def known_fault(one: Strike) -> Fault:
    """Return the kind of failure that a strike is, or an exception at any other place, which may end the job."""
    known = {(fault.point, fault.action): fault for fault in FAULTS.values()}
    return known.get((one.point, one.action)) or Fault(MARK, one.point, one.action, may_fail=True)


def passes(trace: list[tuple[str, int]], fault: Fault) -> int:
    """Return how often a golden run passes the point of a fault."""
    return max((ordinal for point, ordinal in trace if point == fault.point), default=0)


def any_fault(hits: Sequence[failpoint.TracedHit], random: Random) -> tuple[Fault, int]:
    """Draw a kind of failure, and one of the passes at which a golden run can meet it."""
    fault = random.choice(list(FAULTS.values()))
    return fault, random.randint(1, passes(failpoint.ordinals(hits), fault))


def sampled(count: int, wanted: int) -> Iterator[int]:
    """Yield ordinals spread evenly over 1 to `count`, the last one included."""
    stride = max(1, count // max(1, wanted))
    yield from range(1 + (count - 1) % stride, count + 1, stride)
