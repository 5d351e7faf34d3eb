"""Which node runs which subtask: a pure decision with properties."""

from types import SimpleNamespace

from hypothesis import given
from hypothesis import strategies as st

from tideshift.dxf.balancer import assign, eligible
from tideshift.dxf.machine import SubtaskState

STATES = (SubtaskState.PENDING, SubtaskState.RUNNING)


def node(host, *, slots=2, role="", draining=False):
    return SimpleNamespace(host=host, slots=slots, role=role, draining=draining)


def subtask(number, exec_id=None, state=SubtaskState.PENDING):
    return SimpleNamespace(id=number, ordinal=number, exec_id=exec_id, state=state)


def task(*, scope="", max_node_count=0):
    return SimpleNamespace(target_scope=scope, max_node_count=max_node_count)


def assigned(subtasks, moves):
    """The subtasks after the moves."""
    return [subtask(s.id, moves.get(s.id, s.exec_id), s.state) for s in subtasks]


def per_node(subtasks):
    return {host: sum(s.exec_id == host for s in subtasks) for host in {s.exec_id for s in subtasks}}


def test_equal_nodes_get_equal_shares():
    """Six fresh subtasks on three nodes: two each."""
    subtasks = [subtask(n) for n in range(6)]

    moves = assign(task(), subtasks, [node("a"), node("b"), node("c")])

    assert per_node(assigned(subtasks, moves)) == {"a": 2, "b": 2, "c": 2}


def test_a_bigger_node_gets_a_bigger_share():
    """In proportion to the slots."""
    subtasks = [subtask(n) for n in range(8)]

    moves = assign(task(), subtasks, [node("a", slots=6), node("b", slots=2)])

    assert per_node(assigned(subtasks, moves)) == {"a": 6, "b": 2}


def test_a_running_subtask_is_never_moved():
    """Neither from a busy node nor from one that has left; that is a rescue."""
    subtasks = [subtask(n, "a", SubtaskState.RUNNING) for n in range(3)] + [subtask(9, "gone", SubtaskState.RUNNING)]

    assert assign(task(), subtasks, [node("a"), node("b")]) == {}


def test_what_waits_on_a_lost_node_finds_another():
    """Pending subtasks of a node that is gone or draining go to those who stay."""
    subtasks = [subtask(1, "gone"), subtask(2, "leaving"), subtask(3, "a")]

    moves = assign(task(), subtasks, [node("a"), node("b"), node("leaving", draining=True)])

    assert set(moves) == {1, 2}
    assert set(moves.values()) <= {"a", "b"}


def test_a_late_node_gets_its_share():
    """Six were given to one node; half of what waits goes to a second one of equal size."""
    subtasks = [subtask(1, "a", SubtaskState.RUNNING), *(subtask(n, "a") for n in range(2, 7))]

    moves = assign(task(), subtasks, [node("a"), node("b")])

    assert per_node(assigned(subtasks, moves)) == {"a": 3, "b": 3}


def test_nobody_is_there():
    """Without an eligible node nothing changes hands."""
    assert assign(task(scope="x"), [subtask(1)], [node("a")]) == {}


def test_scopes():
    """A scope's own nodes; without one the background nodes where there are any, else those without a role."""
    plain, background, reports = node("p"), node("b", role="background"), node("r", role="reports")

    assert eligible(task(scope="reports"), [plain, background, reports]) == [reports]
    assert eligible(task(), [plain, background, reports]) == [background]
    assert eligible(task(), [plain, reports]) == [plain]


def test_a_bounded_task_stays_where_it_is():
    """With at most one node, the one that already holds most of it is kept."""
    subtasks = [subtask(1, "b", SubtaskState.RUNNING), subtask(2), subtask(3)]

    moves = assign(task(max_node_count=1), subtasks, [node("a"), node("b"), node("c")])

    assert moves == {2: "b", 3: "b"}


@st.composite
def situations(draw):
    hosts = "abcd"[: draw(st.integers(0, 4))]
    nodes = [node(host, slots=draw(st.integers(1, 5)), draining=draw(st.booleans())) for host in hosts]
    holders = st.sampled_from([None, *"abcd"])
    subtasks = [subtask(n, draw(holders), draw(st.sampled_from(STATES))) for n in range(draw(st.integers(0, 12)))]
    return task(max_node_count=draw(st.integers(0, 3))), subtasks, nodes


@given(situations())
def test_after_the_decision(situation):
    """Only pending ones moved, each waits on an eligible node, nobody holds more than his share, a second look moves nothing."""
    one, subtasks, nodes = situation
    usable = {n.host: n.slots for n in nodes if not n.draining}

    moves = assign(one, subtasks, nodes)
    after = assigned(subtasks, moves)

    assert all(s.state is SubtaskState.PENDING for s in subtasks if s.id in moves)
    assert assign(one, after, nodes) == {}
    if not usable:
        assert moves == {}
        return
    waiting = [s for s in after if s.state is SubtaskState.PENDING]
    assert all(s.exec_id in usable for s in waiting)
    if one.max_node_count:
        assert len({s.exec_id for s in waiting}) <= one.max_node_count
    else:
        for host in {s.exec_id for s in waiting}:
            share = -(-len(after) * usable[host] // sum(usable.values()))
            assert sum(s.exec_id == host for s in after) <= share
