"""How much of the time work may run so that small commits of anybody are hardly ever slower than at rest: pure decisions on what was measured.

The aim: the 99th percentile of a small commit, over all the time that the work takes, stays within one and a half times of
what it is at rest. A commit is *slow* when it takes longer than that. At rest a share of them is slow, beside the work a
larger one; the mean of both, weighed by how much of the time each is, must stay below one in a hundred.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

__all__ = ["DUTY_MIN", "SLOW_SHARE_MAX", "Slowness"]

FACTOR = 1.5
"""How many times its 99th percentile at rest a commit may take before it counts as slow."""
SLOW_SHARE_MAX = 0.007
"""How many of all commits may be slow; less than one in a hundred, since both shares are estimates."""
SLOW_SHARE_MIN = 0.002
"""What is granted to the work even where that many are slow at rest: who is slow without us is not helped by our standing still."""
DUTY_MIN = 0.05
"""The work never stands still for more than this: a job comes to its end however busy the database is."""
DUTY_MAX = 0.95
"""Even where nobody is slowed some rest is left, in which what rest is like is measured again."""
DUTY_START = 0.05
SEEN_MIN = 30
"""So many commits at rest are seen before anything is concluded from them."""
KEPT = 400
"""So many of the last commits beside the work count."""
BLOCK = 200
BLOCKS_KEPT = 20
PRIOR_SLOW, PRIOR_SEEN = 1, 12
"""What is assumed before anything was seen beside the work: that one in twelve is slow."""


class Slowness:
    """What small commits took of late, at rest and beside the work.

    Rest is measured in blocks, and the quicker of them count: what the work leaves behind, as pages that are written later,
    slows rest as well, and must not pass for what rest is like.
    """

    def __init__(self) -> None:
        self._at_rest: deque[float] = deque(maxlen=BLOCK)
        self._beside: deque[float] = deque(maxlen=KEPT)
        self._block_p99s: deque[float] = deque(maxlen=BLOCKS_KEPT)
        self._in_block = 0

    def note(self, seconds: float, *, beside: bool) -> None:
        """Count one commit: whether the work ran at any moment of it, and how long it took."""
        if beside:
            self._beside.append(seconds)
            return
        self._at_rest.append(seconds)
        self._in_block += 1
        if self._in_block == BLOCK:
            self._block_p99s.append(_quantile(self._at_rest, 0.99))
            self._in_block = 0

    @property
    def slow_from_seconds(self) -> float | None:
        """From when on a commit is slow; None as long as too little was seen."""
        if self._block_p99s:
            return FACTOR * _quantile(self._block_p99s, 0.25)
        return None if len(self._at_rest) < SEEN_MIN else FACTOR * _quantile(self._at_rest, 0.99)

    @property
    def slow_share_beside(self) -> float:
        """Return the share of the commits beside the work that are slow."""
        limit = self.slow_from_seconds
        slow = 0 if limit is None else sum(seconds > limit for seconds in self._beside)
        return (slow + PRIOR_SLOW) / (len(self._beside) + PRIOR_SEEN)

    @property
    def duty(self) -> float:
        """Return the share of the time that the work may take."""
        limit = self.slow_from_seconds
        if limit is None:
            return DUTY_START
        slow_at_rest = sum(seconds > limit for seconds in self._at_rest) / len(self._at_rest)
        granted = max(SLOW_SHARE_MIN, SLOW_SHARE_MAX - slow_at_rest)
        return min(DUTY_MAX, max(DUTY_MIN, granted / self.slow_share_beside))


def _quantile(seconds: Iterable[float], share: float) -> float:
    ordered = sorted(seconds)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]
