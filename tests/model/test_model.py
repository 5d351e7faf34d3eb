"""Every interleaving of the abstract task and job, from the product's own tables: weaker guards are caught, ours is clean.

Each test prints states, edges and the shortest way to every kind of fault (seen with `pytest -s`). The bounds are those
of the suite; TIDESHIFT_MODEL_ASKS adds to the number of commands that people give.
"""

import gc
import os

import pytest

from tests.model import job_model, task_model
from tests.model.explore import Found, Step, explore

MORE = int(os.environ.get("TIDESHIFT_MODEL_ASKS", "0"))


def explored(model) -> Found:
    """Explore a model and print what was found."""
    gc.disable()  # millions of small tuples, none of them in a cycle
    try:
        found = explore(model.initial(), model.steps, model.broken_in, model.rests)
    finally:
        gc.enable()
    print(f"\n{model}\n{found}")
    return found


# ── the product's guards ──────────────────────────────────────────────────────────────────────────────────────────

CLEAN_TASK = [
    {"asks_max": 4 + MORE},
    {"asks_max": 3 + MORE, "manual_recovery": True},
    {"asks_max": 2 + MORE, "owners": 2},
    {"asks_max": 2 + MORE, "owners": 2, "manual_recovery": True},
]
CLEAN_JOB = [
    {"asks_max": 3 + MORE},
    {"asks_max": 3 + MORE, "commits_alone": False},
    {"asks_max": 2 + MORE, "owners": 2, "may_fail": bool(MORE)},
    {"asks_max": 2 + MORE, "owners": 2, "crashes_max": MORE, "commits_alone": False},
    {"asks_max": 2 + MORE, "shortages_max": 2},
    {"asks_max": 1 + MORE, "owners": 2, "crashes_max": MORE, "may_fail": False, "shortages_max": 1},
]


def described(bounds):
    return "-".join(f"{name}={value}" for name, value in bounds.items())


@pytest.mark.parametrize("bounds", CLEAN_TASK, ids=described)
def test_the_task_is_clean(bounds):
    """With `rev` and the attempt no interleaving loses a command, works while paused, or gets stuck."""
    found = explored(task_model.Model(**bounds))

    assert found.violations == 0, f"\n{found}"
    assert found.states > 1000


@pytest.mark.parametrize("bounds", CLEAN_JOB, ids=described)
def test_the_job_and_its_task_are_clean(bounds):
    """With `rev`, guarded tasks and attempts no interleaving loses a command or undoes what cannot be undone."""
    found = explored(job_model.Model(**bounds))

    assert found.violations == 0, f"\n{found}"
    assert found.states > 1000


# ── weaker guards ─────────────────────────────────────────────────────────────────────────────────────────────────

CAUGHT = [
    (task_model, {"guard": "blind"}, "cancelling is overwritten by running", 3),
    (task_model, {"guard": "state"}, "a modify has a second outcome", 4),
    (task_model, {"guard": "state"}, "an acknowledged modify is lost", 4),
    (task_model, {"guard": "state", "owners": 2, "asks_max": 2}, "an acknowledged modify is lost", 4),
    (task_model, {"attempt_checked": False}, "a lost attempt commits", 8),
    (job_model, {"guard": "blind"}, "cancelling is overwritten by running", 3),
    (job_model, {"guard": "blind"}, "an acknowledged alter is overwritten", 3),
    (job_model, {"guard": "state"}, "an acknowledged alter is overwritten", 3),
    (job_model, {"tasks_guarded": False}, "an alter is called applied before it is", 7),
    (job_model, {"tasks_guarded": False, "owners": 2, "asks": ("pause", "resume"), "asks_max": 3, "crashes_max": 0, "may_fail": False},
     "the job is paused, and its task is not", 30),
    (job_model, {"old_ended_first": False, "shortages_max": 1, "asks": ("resume",), "asks_max": 1}, "a copy starts again while the old one may be at work", 30),
    (job_model, {"attempt_guarded": False, "owners": 2, "asks": ("cancel",), "asks_max": 1, "crashes_max": 0},
     "swapped, and the job is rollback done", 30),
]  # fmt: skip


@pytest.mark.parametrize(("module", "bounds", "rule", "steps_max"), CAUGHT, ids=lambda value: described(value) if isinstance(value, dict) else "")
def test_a_weaker_guard_is_caught(module, bounds, rule, steps_max):
    """The checker finds the fault, and tells the shortest way to it."""
    found = explored(module.Model(**bounds))

    assert found.violations > 0
    assert found.broken[rule] > 0, f"\n{found}"
    trace = found.traces[rule]
    assert 0 < len(trace) <= steps_max, trace


def test_a_cancel_is_lost_in_three_steps():
    """The shortest story of all: the owner reads, a person cancels, the owner writes what it meant to write."""
    found = explored(task_model.Model(guard="blind"))

    assert found.shortest() == ["owner 0: reads pending", "person: cancel -> cancelling", "owner 0: writes after pending"]


# ── the checker itself ────────────────────────────────────────────────────────────────────────────────────────────


def test_the_checker_counts_what_is_there():
    """A small graph: its states and edges, a rule broken by a step, one broken by a state, and a trap."""
    edges = {"a": "bc", "b": "d", "c": "ce", "d": "", "e": "a"}

    def steps(state):
        return iter([Step(f"{state}{to}", to, "forbidden" if (state, to) == ("e", "a") else None) for to in edges[state]])

    found = explore("a", steps, lambda state: "bad" if state == "d" else None, lambda _: False)
    trapped = explore("a", steps, lambda _: None, lambda state: state == "d")

    assert (found.states, found.edges) == (5, 6)
    assert found.broken == {"forbidden": 1, "bad": 1}
    assert found.traces == {"forbidden": ["ac", "ce", "ea"], "bad": ["ab", "bd"]}
    assert trapped.broken == {"forbidden": 1}
    assert explore("c", lambda s: iter([Step("cc", "c")]), lambda _: None, lambda _: False).broken == {"stuck: nothing leads to an end": 1}
