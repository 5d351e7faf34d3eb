"""Pause, resume, cancel and modify in every state: the documented answer, and exactly one outcome for each request."""

import pytest

from tests.dxf.moves import put_task
from tideshift.dxf import tables
from tideshift.dxf.commands import Verdict, allowed_commands
from tideshift.dxf.machine import TASK, SubtaskState, TaskState
from tideshift.dxf.parameters import pending_mailbox
from tideshift.errors import CommandRefused, InvalidParameter, NotFound
from tideshift.testing.sample import CopyRows, sample_meta

A, S, R = Verdict.APPLIED, Verdict.ALREADY, Verdict.REFUSED
T = TaskState
ANSWERS = {
    # state, mailbox: pause, resume, cancel, modify
    (T.PENDING, None): (A, S, A, A),
    (T.RUNNING, None): (A, S, A, A),
    (T.PAUSING, None): (S, R, A, A),
    (T.PAUSED, None): (S, A, A, A),
    (T.RESUMING, None): (A, S, A, A),
    (T.MODIFYING, "running"): (A, S, A, A),
    (T.MODIFYING, "pending"): (A, S, A, A),
    (T.MODIFYING, "paused"): (A, A, A, A),
    (T.AWAITING_RESOLUTION, None): (R, A, A, R),
    (T.CANCELLING, None): (R, R, S, R),
    (T.REVERTING, None): (R, R, S, R),
    (T.REVERTED, None): (R, R, S, R),
    (T.SUCCEED, None): (R, R, R, R),
    (T.FAILED, None): (R, R, R, R),
}
CASES = [(state, mailbox, answers) for (state, mailbox), answers in ANSWERS.items()]
COMMANDS = ("pause", "resume", "cancel", "modify")


def give(cluster, command, task_id):
    if command == "modify":
        return cluster.dxf.modify(task_id, batch_size=3)
    (answer,) = getattr(cluster.dxf, command)(task_id)
    return answer


def put_in_state(database, rows, state, mailbox, task_id):
    """Put a task of the sample type into a state, before its first step; a final one into the history."""
    meta = sample_meta(rows.source, rows.target, parts=2, batch_size=10, lock_share=100)
    params = None if mailbox is None else {"prev_state": mailbox, "modifications": []}
    columns = {"type": CopyRows.name, "step": -1, "meta": meta, "modify_params": params}
    with database.transaction() as tx:
        seen = put_task(tx, state, task_id=task_id, **columns)
        if state in TASK.final:
            names = [column.name for column in tables.task.c]
            tx.execute(tables.task_history.insert().from_select(names, tables.task.select()))
            tx.execute(tables.task.delete())
    return seen


@pytest.mark.parametrize(("state", "mailbox", "answers"), CASES, ids=[f"{state}-{mailbox}" for state, mailbox, _ in CASES])
def test_every_command_in_every_state(cluster, rows, database, outcomes, state, mailbox, answers):  # noqa: PLR0917 - fixtures come by name
    """Each command is answered as documented, a refusal names its rule, and an accepted one has its effect and one outcome."""
    for number, (command, verdict) in enumerate(zip(COMMANDS, answers, strict=True), start=1):
        seen = put_in_state(database, rows, state, mailbox, number)

        answer = give(cluster, command, number)

        assert (answer.id, answer.verdict) == (number, verdict), (command, answer)
        assert (answer.request_id is not None) == (verdict is A)
        assert str(state) in answer.reason or verdict is A
        after = cluster.dxf.show(number)
        assert (after == seen) == (verdict is not A)
        assert answer.rev == after.rev
        if verdict is not S:
            assert (command in allowed_commands(seen)) == (verdict is A), command

    if state not in TASK.final:
        cluster.run_until(lambda: settled(cluster, outcomes, range(1, 5)))
    for number, (command, verdict) in enumerate(zip(COMMANDS, answers, strict=True), start=1):
        assert outcomes(number) == ([(command, ["applied"])] if verdict is A else [])
        if verdict is A:
            assert_effect(cluster.dxf.show(number), command)


def settled(cluster, outcomes, task_ids):
    """Whether every request has an outcome and every task rests or has ended."""
    resting = TASK.final | {T.PAUSED, T.AWAITING_RESOLUTION}
    return all(cluster.dxf.show(n).state in resting and all(done for _, done in outcomes(n)) for n in task_ids)


def assert_effect(task, command):
    """What each command leads to when nothing else is asked."""
    match command:
        case "pause":
            assert task.state is T.PAUSED
        case "resume":
            assert task.state is T.SUCCEED
        case "cancel":
            assert (task.state, task.error["code"]) == (T.REVERTED, "cancelled")
        case "modify":
            assert task.meta["parameters"]["batch_size"] == 3
            assert task.modify_params is None


ON_SQLITE = pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
"""For what no database decides."""


def test_a_paused_task_does_nothing_until_it_is_resumed(cluster, rows, outcomes):
    """Running subtasks are paused with their checkpoints, nothing is copied meanwhile, and resuming goes on from there."""
    task = rows.submit()
    cluster.run_until(lambda: rows.copied()[0] > 0)
    cluster.dxf.pause(task.id)
    cluster.run_until(lambda: cluster.dxf.show(task.id).state is T.PAUSED)
    subtasks, copied = cluster.dxf.subtasks(task.id), rows.copied()

    cluster.run(100)

    assert {s.state for s in subtasks} <= {SubtaskState.PAUSED, SubtaskState.SUCCEED}
    assert cluster.dxf.subtasks(task.id) == subtasks
    assert rows.copied() == copied
    cluster.dxf.resume(task.id)
    cluster.run_until(lambda: cluster.ended(task.id))
    assert cluster.dxf.show(task.id).state is T.SUCCEED
    assert rows.exactly_once()
    assert outcomes(task.id) == [("pause", ["applied"]), ("resume", ["applied"])]


def test_a_cancelled_task_leaves_nothing(cluster, rows, outcomes):
    """In the middle of the copy: subtasks are cancelled, the type undoes, and the task says that it was cancelled."""
    task = rows.submit()
    cluster.run_until(lambda: rows.copied()[0] > 0)

    cluster.dxf.cancel(task.id)
    cluster.run_until(lambda: cluster.ended(task.id))
    cluster.run(40)

    ended = cluster.dxf.show(task.id)
    assert (ended.state, ended.error["code"]) == (T.REVERTED, "cancelled")
    assert {s.state for s in cluster.dxf.subtasks(task.id)} <= {SubtaskState.CANCELED, SubtaskState.SUCCEED}
    assert rows.copied() == (0, 0)
    assert outcomes(task.id) == [("cancel", ["applied"])]


@ON_SQLITE
def test_a_stronger_command_supersedes_what_waits(rows, cluster, database, outcomes):
    """Modify, pause, modify and cancel in a row: one outcome each, and each superseded one names who did it."""
    task = rows.submit()

    asked = [
        cluster.dxf.modify(task.id, batch_size=2), *cluster.dxf.pause(task.id), cluster.dxf.modify(task.id, threads=3),
        *cluster.dxf.cancel(task.id),
    ]  # fmt: skip
    cluster.run_until(lambda: cluster.ended(task.id))

    assert outcomes(task.id) == [("modify", ["superseded"]), ("pause", ["superseded"]), ("modify", ["superseded"]), ("cancel", ["applied"])]
    with database.transaction(write=False) as tx:
        log = tables.events.history(tx, task_id=task.id)
    by = [event.detail for event in log if event.kind == "outcome" and event.target == "superseded"]
    assert by == [{"reason": "by cancel", "by": asked[-1].request_id}] * 3
    assert cluster.dxf.show(task.id).concurrency == 1


@ON_SQLITE
def test_a_pause_takes_back_a_resume_that_has_not_happened(rows, cluster, outcomes):
    """Paused, resumed, paused again before the owner looked: it stays paused, and each request has one outcome."""
    task = rows.submit()
    cluster.dxf.pause(task.id)
    cluster.run_until(lambda: cluster.dxf.show(task.id).state is T.PAUSED)

    cluster.dxf.resume(task.id)
    cluster.dxf.pause(task.id)
    cluster.run_until(lambda: cluster.dxf.show(task.id).state is T.PAUSED)

    assert outcomes(task.id) == [("pause", ["applied"]), ("resume", ["superseded"]), ("pause", ["applied"])]


@ON_SQLITE
def test_a_task_that_ends_first_closes_what_was_asked(rows, make_cluster, database, outcomes):
    """A pause that comes when the work is done still pauses; it is never dropped by the success."""
    cluster = make_cluster(nodes=1)
    task = rows.submit(parts=1)
    cluster.run_until(lambda: (s := cluster.dxf.subtasks(task.id)) and s[-1].step == 2 and s[-1].state is SubtaskState.SUCCEED)

    (answer,) = cluster.dxf.pause(task.id)
    cluster.run_until(lambda: cluster.dxf.show(task.id).state is T.PAUSED)
    cluster.dxf.resume(task.id)
    cluster.run_until(lambda: cluster.ended(task.id))

    assert answer.verdict is A
    assert outcomes(task.id) == [("pause", ["applied"]), ("resume", ["applied"])]


@ON_SQLITE
def test_what_makes_no_sense_is_refused_before_anything_is_written(rows, cluster):
    """Unknown parameters, values out of range, nothing at all, an unknown task."""
    task = rows.submit()

    for wrong in ({"thread": 3}, {"threads": 0}, {"batch_size": "many"}, {"max_node_count": -1}, {"max_write_speed": "fast"}, {}):
        with pytest.raises(InvalidParameter):
            cluster.dxf.modify(task.id, **wrong)
    with pytest.raises(InvalidParameter):
        rows.submit("b", submit={"priority": 0})
    with pytest.raises(InvalidParameter):
        rows.submit("c", submit={"threads": 0})
    with pytest.raises(NotFound):
        cluster.dxf.show(99)

    assert cluster.dxf.modify(99, threads=2).verdict is Verdict.NOT_FOUND
    assert cluster.dxf.show(task.id) == task
    assert [t.id for t in cluster.dxf.tasks()] == [task.id]


@ON_SQLITE
def test_a_modification_may_ask_for_the_rev_that_was_seen(rows, cluster):
    """With `if_rev` it is refused once somebody else was there, and says at which rev the task is."""
    task = rows.submit()

    first = cluster.dxf.modify(task.id, threads=2, if_rev=task.rev)
    second = cluster.dxf.modify(task.id, threads=3, if_rev=task.rev)

    assert (first.verdict, second.verdict) == (A, R)
    assert f"rev {first.rev}, not {task.rev}" in second.reason
    assert [m["to"] for m in pending_mailbox(cluster.dxf.show(task.id))] == [2]


def test_a_key_race_is_refused_like_a_key_that_was_seen(rows, database, failpoints):
    """Two clients submit the same key at the same moment: one of them is told whose it is."""
    from tideshift.store import points as store_points

    raced = []

    def submit_first(**_context):
        raced.append(rows.submit("the key"))

    if database.driver.capabilities.concurrent_writers:
        # Between the look at the key and the insert, where only this database lets somebody in.
        failpoints.enable(store_points.AFTER_STATEMENT, "skip(2) 1*call", call=submit_first)
    else:
        failpoints.enable(store_points.BEFORE_BEGIN, "1*call", call=submit_first, where={"write": True})

    with pytest.raises(CommandRefused, match="belongs to task"):
        rows.submit("the key")

    assert len(raced) == 1
