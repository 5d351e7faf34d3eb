"""Which node runs which subtask: a pure decision, by a table of cases and by properties."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tideshift.dxf.balancer import assign, balance, eligible, spread, window
from tideshift.dxf.machine import SubtaskState

PENDING, RUNNING = SubtaskState.PENDING, SubtaskState.RUNNING
STATES = (PENDING, RUNNING)


def node(host, *, slots=2, role="", draining=False):
    return SimpleNamespace(host=host, slots=slots, role=role, draining=draining)


def subtask(number, exec_id=None, state=PENDING):
    return SimpleNamespace(id=number, ordinal=number, exec_id=exec_id, state=state)


def task(*, scope="", max_node_count=0, threads=8, number=1):
    return SimpleNamespace(id=number, target_scope=scope, max_node_count=max_node_count, concurrency=threads)


def placed(**per_node):
    """Subtasks by node: `a=2` waits twice on a, `a_running=1` runs once there, `nobody=3` is given to nobody yet."""
    found = []
    for name, count in per_node.items():
        host, _, running = name.partition("_")
        for _ in range(count):
            found.append(subtask(len(found) + 1, None if host == "nobody" else host, RUNNING if running else PENDING))
    return found


def after(subtasks, moves):
    """The subtasks after the moves."""
    return [subtask(s.id, moves.get(s.id, s.exec_id), s.state) for s in subtasks]


def per_node(subtasks):
    return {host: sum(s.exec_id == host for s in subtasks) for host in {s.exec_id for s in subtasks}}


A, B, C = node("a", slots=8), node("b", slots=8), node("c", slots=8)
TABLE = {
    "nothing to do": ({}, [A, B], {}),
    "fresh ones are spread": ({"nobody": 6}, [A, B, C], {"a": 2, "b": 2, "c": 2}),
    "1:2 is balanced": ({"a": 1, "b": 2}, [A, B], {"a": 1, "b": 2}),
    "2:1:1 stays": ({"a": 2, "b": 1, "c": 1}, [A, B, C], {"a": 2, "b": 1, "c": 1}),
    "1:1:2 stays, the even part is not moved to the first": ({"a": 1, "b": 1, "c": 2}, [A, B, C], {"a": 1, "b": 1, "c": 2}),
    "1:4 becomes 2:3": ({"a": 1, "b": 4}, [A, B], {"a": 2, "b": 3}),
    "5 on one become 2:2:1": ({"a": 5}, [A, B, C], {"a": 2, "b": 2, "c": 1}),
    "4 on one become 2:1:1": ({"a": 4}, [A, B, C], {"a": 2, "b": 1, "c": 1}),
    "no node is left": ({"a": 3}, [], {"a": 3}),
    "3 running on one node stay": ({"a_running": 3}, [A, B, C], {"a": 3}),
    "what waits behind 3 running goes elsewhere": ({"a_running": 3, "a": 2}, [A, B], {"a": 3, "b": 2}),
    "scale-in, 1:3:1 becomes 3:2": ({"a": 1, "b": 3, "c": 1}, [B, C], {"b": 3, "c": 2}),
    "scale-out, 4:4 becomes 3:3:2": ({"a": 4, "b": 4}, [A, B, C], {"a": 3, "b": 3, "c": 2}),
    "in and out together": ({"a": 3, "b": 3}, [B, C], {"b": 3, "c": 3}),
    "a draining node keeps what runs": ({"a_running": 1, "a": 2, "b": 1}, [node("a", slots=8, draining=True), B], {"a": 1, "b": 3}),
    "unequal nodes have unequal shares": ({"nobody": 8}, [node("a", slots=6), node("b", slots=2)], {"a": 6, "b": 2}),
    "a bigger node that joins late takes its part": ({"a": 8}, [node("a", slots=2), node("b", slots=6)], {"a": 2, "b": 6}),
    "what does not divide evenly goes to the larger remainder": ({"nobody": 5}, [node("a", slots=1), node("b", slots=3)], {"a": 1, "b": 4}),
}


@pytest.mark.parametrize("case", TABLE)
def test_the_table(case):
    """How many subtasks each node holds after the round; a second round moves nothing."""
    held, nodes, wanted = TABLE[case]
    subtasks = placed(**held)

    moves = assign(task(), subtasks, nodes)

    assert per_node(after(subtasks, moves)) == wanted
    assert assign(task(), after(subtasks, moves), nodes) == {}


def test_threads_are_what_counts_of_a_bigger_node():
    """A task of one thread uses one slot of each node, so a node with more slots gets no more of it."""
    subtasks = placed(nobody=8)

    moves = assign(task(threads=1), subtasks, [node("a", slots=6), node("b", slots=2)])

    assert per_node(after(subtasks, moves)) == {"a": 4, "b": 4}


@pytest.mark.parametrize(("most", "wanted"), [(1, {"b": 6}), (2, {"b": 3, "c": 3}), (3, {"a": 2, "b": 2, "c": 2})])
def test_a_bounded_task_keeps_the_nodes_that_hold_most_of_it(most, wanted):
    """With at most so many nodes: first those where it runs, then those that hold most."""
    subtasks = placed(a=1, b=3, c=2)

    assert per_node(after(subtasks, assign(task(max_node_count=most), subtasks, [A, B, C]))) == wanted


def test_a_lower_bound_does_not_move_what_runs():
    """Pruned to one node, what runs on the other one ends there; only what waits is moved."""
    subtasks = placed(a_running=2, a=1, b_running=1, b=2)

    moves = assign(task(max_node_count=1), subtasks, [A, B])

    assert per_node(after(subtasks, moves)) == {"a": 5, "b": 1}


def test_a_lower_rank_takes_what_is_left():
    """The better rank uses four slots of each node; the next one finds two on the bigger node and none on the other."""
    nodes = [node("a", slots=6), node("b", slots=4)]
    first, second, third = placed(nobody=20), placed(nobody=3), placed(nobody=2)
    tasks = [(task(threads=4, number=1), first), (task(threads=4, number=2), second), (task(number=3), third)]

    decided = [per_node(after(subtasks, moves)) for (_, subtasks), (_, moves) in zip(tasks, balance(tasks, nodes), strict=True)]

    assert decided == [{"a": 10, "b": 10}, {"a": 3}, {None: 2}]


def test_a_full_node_is_drained_for_a_lower_rank():
    """What waits on a node whose slots a better rank uses goes to one with a free slot."""
    nodes = [node("a", slots=2), node("b", slots=4)]
    better, lower = placed(a_running=2), placed(a=3)

    (_, unmoved), (_, moves) = balance([(task(threads=2, number=1), better), (task(number=2), lower)], nodes)

    assert unmoved == {}
    assert per_node(after(lower, moves)) == {"b": 3}


def test_scopes():
    """A scope's own nodes; without one the background nodes where there are any, else those without a role."""
    plain, background, reports = node("p"), node("b", role="background"), node("r", role="reports")

    assert eligible(task(scope="reports"), [plain, background, reports]) == [reports]
    assert eligible(task(), [plain, background, reports]) == [background]
    assert eligible(task(), [plain, reports]) == [plain]
    assert eligible(task(scope="nowhere"), [plain, background]) == []
    assert eligible(task(), [plain, node("b", role="background", draining=True)]) == [plain]


def test_what_runs_outside_its_scope_ends_there():
    """A task whose scope was changed leaves its waiting subtasks to the new scope's nodes, and keeps what runs."""
    nodes = [node("p"), node("r", role="reports")]
    subtasks = placed(p_running=1, p=2)

    assert per_node(after(subtasks, assign(task(scope="reports"), subtasks, nodes))) == {"p": 1, "r": 2}


def test_a_fresh_step_is_spread_in_order():
    """The first subtasks of a step alternate between the nodes; without a node they are given to nobody."""
    assert spread(task(), 4, [A, B]) == ["a", "b", "a", "b"]
    assert spread(task(), 4, []) == []


def test_only_so_many_are_given_out_at_a_time():
    """A step of a million subtasks gives out a window of them, in proportion to the slots that are there."""
    nodes = [node("a", slots=1), node("b", slots=1)]

    given = spread(task(), 1_000_000, nodes)

    assert len(given) == window(nodes) < 1_000_000


@st.composite
def situations(draw):
    hosts = "abcd"[: draw(st.integers(0, 4))]
    nodes = [node(host, slots=draw(st.integers(1, 5)), draining=draw(st.booleans())) for host in hosts]
    holders = st.sampled_from([None, *"abcd"])
    subtasks = [subtask(n, draw(holders), draw(st.sampled_from(STATES))) for n in range(draw(st.integers(0, 12)))]
    return task(max_node_count=draw(st.integers(0, 3)), threads=draw(st.integers(1, 6))), subtasks, nodes


@given(situations())
def test_after_the_decision(situation):
    """Only pending ones moved, each waits on an eligible node, nobody waits beyond a fair share, a second look moves nothing."""
    one, subtasks, nodes = situation
    usable = {n.host: min(n.slots, one.concurrency) for n in nodes if not n.draining}

    moves = assign(one, subtasks, nodes)
    done = after(subtasks, moves)

    assert all(s.state is PENDING for s in subtasks if s.id in moves)
    assert assign(one, done, nodes) == {}
    if not usable:
        assert moves == {}
        return
    waiting = [s for s in done if s.state is PENDING]
    assert all(s.exec_id in usable for s in waiting)
    if one.max_node_count:
        assert len({s.exec_id for s in waiting}) <= one.max_node_count
    else:
        here = [s for s in done if s.exec_id in usable]
        for host in {s.exec_id for s in waiting}:
            assert sum(s.exec_id == host for s in here) <= -(-len(here) * usable[host] // sum(usable.values()))


@given(situations(), st.randoms())
def test_the_order_of_what_is_read_does_not_matter(situation, random):
    """The same rows and nodes in any order give the same decision."""
    one, subtasks, nodes = situation
    shuffled_subtasks, shuffled_nodes = list(subtasks), list(nodes)
    random.shuffle(shuffled_subtasks)
    random.shuffle(shuffled_nodes)

    assert assign(one, subtasks, nodes) == assign(one, shuffled_subtasks, shuffled_nodes)
