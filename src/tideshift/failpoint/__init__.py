"""Failpoints: named places in the code where a test, and nothing else, injects a fault.

    BEFORE_COMMIT = failpoint.point("ddl.copy.before_commit", "A chunk and its checkpoint are written, not yet committed.")

    if BEFORE_COMMIT.on:                                  # the site: a plain attribute, a few nanoseconds when off
        BEFORE_COMMIT.fire(job=job.id, node=node)

    with failpoint.enable(BEFORE_COMMIT, "skip(2) 1*pause", where={"job": 7}) as pause:    # the test
        pause.wait_hit(3)

`terms` has the language, `registry` the points and who sees them, `activation` the locking, `environment` the variable for
whole processes, `tracing` the list of passes that a crash driver walks, and `pytest_plugin` the fixture for tests.
This package imports nothing else of tideshift; each layer declares its own points in its points.py.
"""

from tideshift.failpoint.actions import NOT_FIRED
from tideshift.failpoint.declared import import_points
from tideshift.failpoint.environment import activate_from_environment
from tideshift.failpoint.errors import FailpointError, HitTimeout, InjectedFault, TermSyntaxError, UnknownFailpoint
from tideshift.failpoint.named_errors import register_error
from tideshift.failpoint.registry import (
    Declaration,
    Enabled,
    Point,
    Registry,
    Status,
    catalogue,
    disable,
    disable_all,
    enable,
    point,
    scope,
    status,
    wait_hit,
)
from tideshift.failpoint.tracing import TracedHit, ordinals, trace

__all__ = [
    "NOT_FIRED", "Declaration", "Enabled", "FailpointError", "HitTimeout", "InjectedFault", "Point", "Registry", "Status",
    "TermSyntaxError", "TracedHit", "UnknownFailpoint", "activate_from_environment", "catalogue", "disable",
    "disable_all", "enable", "import_points", "ordinals", "point", "register_error", "scope", "status", "trace", "wait_hit",
]  # fmt: skip
