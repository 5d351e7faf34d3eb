"""Deaths and freezes for the scenarios: a step that dies at a failpoint, an executor that stands still in one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

from tideshift.dxf.executor import Executor
from tideshift.errors import AmbiguousCommit
from tideshift.testing.cluster import Cluster

JOIN_SECONDS = 30


class Died(BaseException):
    """The process ends here: no code of the product catches this."""


def die(**_context) -> None:
    """What a failpoint calls to let the process end."""
    raise Died


def ambiguous(**_context) -> None:
    """What a failpoint calls to lose the answer to a commit."""
    raise AmbiguousCommit("the answer to a commit was lost")


def at_step_hit(cluster: Cluster, nth: int, act) -> Callable[..., None]:
    """Act at the n-th hit that happens inside a step of the cluster; what the test itself reads does not count."""
    hits = count(1)

    def on_hit(**context) -> None:
        if cluster.acting is not None and next(hits) == nth:
            act(**context)

    return on_hit


def run_with_deaths(cluster: Cluster, reached, *, steps_max: int = 3000) -> list[str]:
    """Step until the condition holds; whoever dies is killed and replaced by a new node. Return who died."""
    died: list[str] = []
    for _ in range(steps_max):
        if reached():
            return died
        try:
            cluster.step()
        except Died:
            died.append(cluster.acting)
            cluster.acting = None
            cluster.kill_node(died[-1])
            cluster.add_node()
    raise AssertionError(f"not reached in {steps_max} steps; {cluster.describe()}")


@contextmanager
def frozen_in(failpoints, point, cluster: Cluster, executor: Executor) -> Iterator[None]:
    """Let one executor's step stand still at a failpoint, its node frozen with it; at the end both go on.

    The step runs in a thread of its own. Once this block is left the step has ended.
    """
    enabled = failpoints.enable(point, "1*pause", where={"node": executor.node})
    thread = threading.Thread(target=executor.step, name=f"frozen-{executor.node}")
    cluster.freeze_node(executor.node)
    thread.start()
    try:
        enabled.wait_hit()
        yield
    finally:
        enabled.disable()
        thread.join(JOIN_SECONDS)
        if executor.node in cluster.members:
            cluster.thaw_node(executor.node)
    assert not thread.is_alive(), "the frozen step did not end"
